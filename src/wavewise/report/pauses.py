"""Long stretches without GPU work: stalls inside a step, and pauses between bursts of steps.

Of a pause a trace shows less than one would like. That the host runs no step says that nothing was under way, not
why: the engine may have had no requests, or may have received, sorted or freed some between two steps. Only an
engine step that held no request at all says that there were none, and only of the gap that it stands in.
"""

from collections.abc import Sequence
from itertools import pairwise

from wavewise.findings import StepRow, TraceFindings
from wavewise.report.words import percent
from wavewise.units import NS_PER_MS

STALL_NS = 100 * NS_PER_MS
"""A stretch without GPU work inside one step that is worth a sentence of its own: 100 ms, longer than the
whole decode step of any server that streams at reading speed (10 tokens/s) ..."""

STALL_TIMES_MEDIAN = 10
"""... and this many times the median step's longest stretch, so that a slow engine is not all stalls."""

NAME = "pauses between bursts of steps"
"""Inter-burst idle, as a sentence calls it."""


def stalls(trace: TraceFindings) -> tuple[StepRow, ...]:
    """Steps in which the GPU ran nothing for conspicuously long."""
    known = sorted(step.stall_ns for step in trace.steps if step.stall_ns is not None)
    if not known:
        return ()
    limit = max(STALL_NS, STALL_TIMES_MEDIAN * known[len(known) // 2])
    return tuple(step for step in trace.steps if step.stall_ns is not None and step.stall_ns > limit)


def empty_ns(trace: TraceFindings) -> int:
    """How much of a trace's inter-burst idle lies in gaps in which the engine ran a step without any request."""
    working = sorted(
        (step for step in trace.steps if step.start_ns is not None and step.end_ns is not None),
        key=lambda step: step.start_ns or 0,
    )
    empty = [step for step in trace.steps if _without_requests(step)]
    found, reached = 0, None
    for before, behind in pairwise(working):
        reached = max(reached or 0, before.end_ns or 0)
        lo, hi = reached, behind.start_ns or 0
        if lo < hi and any(_within(step, lo, hi) for step in empty):
            found += hi - lo - _under_way(trace.steps, lo, hi)
    return min(found, trace.idle.inter_burst_ns)


def clause(traces: Sequence[TraceFindings]) -> str:
    """In brackets, how much of the traces' inter-burst idle is without requests; "" where no step says so."""
    burst = sum(trace.idle.inter_burst_ns for trace in traces)
    empty = sum(map(empty_ns, traces))
    return f" ({percent(empty / burst)} of it around engine steps that held no request)" if empty else ""


def _without_requests(step: StepRow) -> bool:
    return step.kind == "idle" and step.batch_size == 0 and step.context_requests == 0


def _within(step: StepRow, lo: int, hi: int) -> bool:
    return step.host_start_ns is not None and lo <= step.host_start_ns < hi


def _under_way(steps: Sequence[StepRow], lo: int, hi: int) -> int:
    """How much of [lo, hi) the steps' markers cover."""
    covered, reached = 0, lo
    known = [(s.host_start_ns, s.host_end_ns) for s in steps if s.host_start_ns is not None and s.host_end_ns]
    for start, end in sorted(known):
        start, end = max(start, reached), min(end, hi)
        if end > start:
            covered, reached = covered + end - start, end
    return covered
