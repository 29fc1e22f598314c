"""Every engine step of every window: its kind, requests, tokens and bucket, and why it is or is not clean."""

from collections import Counter

from wavewise.findings import Findings, StepRow, TraceFindings
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, percent, plural, short_path
from wavewise.units import NS_PER_MS

MOST_STEPS = 400
"""Steps of one window that a page lists one by one; the rest are in findings.json."""

EVIDENCE = {
    "markers": "the engine's own markers",
    "structure": "structure alone (graph replays, their period and kernel sequence)",
    "profiler_steps": "the profiler's step markers, which tell steps but neither kind nor size",
}


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section on steps and buckets."""
    traces = [trace for trace in findings.traces if trace.steps]
    if not traces:
        return ()
    # A window of decode steps at one size says nothing step by step that the decode table does not.
    varied = [trace for trace in traces if _varied(trace)]
    buckets = _bucket_table(findings)
    return (
        Section(
            name="steps",
            title="The steps that were recorded",
            sentences=tuple(_sentences(traces)),
            tables=(
                _kinds_table(traces),
                *((buckets,) if buckets else ()),
                *(_steps_table(trace, index) for index, trace in enumerate(varied, 1)),
            ),
            charts=("steps",) if varied else (),
        ),
    )


def _varied(trace: TraceFindings) -> bool:
    return len({(step.kind, step.batch_size) for step in trace.steps}) > 1


def _sentences(traces: list[TraceFindings]) -> list[str]:
    kinds = Counter(step.kind for trace in traces for step in trace.steps)
    clean = sum(step.clean for trace in traces for step in trace.steps)
    counted = [f"{count} {kind}" for kind, count in kinds.most_common()]
    hold = "holds" if len(traces) == 1 else "hold"
    sentences = [
        f"{plural(len(traces), 'window')} {hold} {plural(sum(kinds.values()), 'step')} ({listing(counted)}); "
        f"{clean} of them are clean and feed the statistics."
    ]
    evidence = Counter(trace.segmentation for trace in traces)
    told = [
        f"{EVIDENCE[key]} in {plural(count, 'window')}"
        for key, count in evidence.most_common()
        if key in EVIDENCE
    ]
    if told:
        sentences.append(f"Steps rest on {listing(told)}.")
    empty = kinds.get("idle", 0)
    if empty:
        sentences.append(f"{plural(empty, 'engine step')} did no GPU work (kind `idle`).")
    return sentences


def _kinds_table(traces: list[TraceFindings]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for trace in traces:
        kinds = Counter(step.kind for step in trace.steps)
        sizes = sorted({step.batch_size for step in trace.steps if step.batch_size is not None})
        rows.append(
            (
                Cell(code(short_path(trace.path)), hover=trace.path),
                number(len(trace.steps), f"{len(trace.steps):,}"),
                Cell(", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
                Cell(_range(sizes)),
                number(sum(step.clean for step in trace.steps)),
            )
        )
    return Table(
        name="step-kinds",
        title="Steps of each window",
        columns=(
            Column("trace"),
            Column("steps", right=True),
            Column("kinds"),
            Column("requests", right=True, term="batch size"),
            Column("clean", right=True, term="clean step"),
        ),
        rows=tuple(rows),
        brief=40,
    )


def _range(sizes: list[int]) -> str:
    if not sizes:
        return "-"
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _bucket_table(findings: Findings) -> Table | None:
    uses: Counter[tuple[int, int]] = Counter()
    for trace in findings.traces:
        for use in trace.bucket_use:
            if use.bucket is not None:
                uses[(use.batch_size, use.bucket)] += use.steps
    padded = sorted(use for use in uses.items() if use[0][0] != use[0][1])
    if not padded:
        return None
    return Table(
        name="buckets",
        title="Steps that replayed a bucket larger than their batch size",
        columns=(
            Column("requests", right=True, term="batch size"),
            Column("bucket", right=True, term="bucket"),
            Column("steps", right=True),
            Column("padding", right=True, term="padding"),
        ),
        rows=tuple(
            (
                number(batch, str(batch)),
                number(bucket, str(bucket)),
                number(steps, f"{steps:,}"),
                number(1 - batch / bucket, percent(1 - batch / bucket)),
            )
            for (batch, bucket), steps in padded
        ),
        brief=30,
    )


def _steps_table(trace: TraceFindings, index: int) -> Table:
    shown = trace.steps[:MOST_STEPS]
    tail = f" (first {MOST_STEPS} of {len(trace.steps):,})" if len(trace.steps) > MOST_STEPS else ""
    return Table(
        name=f"steps-{index}",
        title=f"Steps of {code(short_path(trace.path))}{tail}",
        columns=(
            Column("step", right=True),
            Column("kind", term="step kind"),
            Column("requests", right=True, term="batch size"),
            Column("prefilling", right=True),
            Column("prefill tokens", right=True),
            Column("bucket", right=True, term="bucket"),
            Column("step, ms", right=True, term="step time"),
            Column("busy, ms", right=True, term="busy time"),
            Column("longest stall, ms", right=True),
            Column("clean, or why not"),
        ),
        rows=tuple(_step_cells(step) for step in shown),
        brief=MOST_STEPS,
        detail=True,
    )


def _step_cells(step: StepRow) -> tuple[Cell, ...]:
    return (
        number(step.index, str(step.index)),
        Cell(step.kind, hover=step.marker),
        _count(step.batch_size),
        _count(step.context_requests),
        _count(step.context_tokens),
        _count(step.bucket),
        _time(step.step_ns),
        _time(step.busy_ns),
        _time(step.stall_ns),
        Cell("clean" if step.clean else step.unclean_reason or "not clean"),
    )


def _count(value: int | None) -> Cell:
    return number(value, None if value is None else f"{value:,}")


def _time(value_ns: int | None) -> Cell:
    return number(value_ns, None if value_ns is None else amount(value_ns / NS_PER_MS))
