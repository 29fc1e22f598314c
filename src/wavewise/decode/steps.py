"""Trace -> steps: kinds, sizes, what each step owns, its times, and whether it is clean.

Evidence in the order of the contract: the engine's markers, else structure (`structure.py`). A step owns what
was launched from its beginning on the host to the next step's, whenever that ran on the GPU.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wavewise.decode import cleanliness
from wavewise.decode.buckets import bucket_of
from wavewise.decode.cuts import cuts_of
from wavewise.decode.idle import INTER_BURST_FLOOR_NS, IdleSplit, split_idle
from wavewise.decode.intervals import IntArray, grouped_union, merge
from wavewise.decode.markers import MarkerFacts, StepMarkers, step_markers
from wavewise.decode.replays import (
    BEFORE_RECORDING,
    HostLaunches,
    Operations,
    Replays,
    estimate_launch,
    host_launches,
    operations_of,
)
from wavewise.decode.structure import structural_steps
from wavewise.findings import StepRow
from wavewise.trace import Trace

_TRAINING = r"(?i)backward|_bwd|bwd_|dgrad|wgrad|multi_tensor_apply|adamw?_?functor|layer_norm_grad"
"""Kernel names of training: replays beside them are not decode steps, whatever their periodicity."""


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Steps of one device, with everything that the floors above compute from.

    Attributes:
        operations, replays, launches: see `replays.py`.
        step: int64 per operation, the step that owns it, -1 for work launched before the first step.
        replay_step: int64 per replay, likewise.
        rows: one StepRow a step, complete.
        facts: what each step's marker says, None for structural steps.
        source: "markers", "profiler_steps", "structure" or "none".
        engine: "vllm", "sglang" or "unknown".
        idle: the exact split of the window.
        lost_launches: launches whose operations are not in the trace, by what they were: graph, kernel.
        cuts: starts and ends of what `wavewise trim` cut out of the device's time.
    """

    operations: Operations
    replays: Replays
    launches: HostLaunches
    step: IntArray
    replay_step: IntArray
    rows: tuple[StepRow, ...]
    facts: tuple[MarkerFacts | None, ...]
    source: str
    engine: str
    idle: IdleSplit
    lost_launches: dict[str, int]
    cuts: tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Steps before their times are known."""

    bounds_ns: IntArray
    host_start_ns: IntArray
    host_end_ns: IntArray
    facts: tuple[MarkerFacts | None, ...]
    names: tuple[str | None, ...]
    source: str
    engine: str


def segment(trace: Trace, device: int, *, sm_count: int | None = None) -> Segmentation:
    """Segments the work of one device into steps.

    Args:
        trace: the trace.
        device: which of its devices.
        sm_count: the device's SMs, to tell persistent kernels from row-wise ones when learning the bucket.
    """
    launches = host_launches(trace, device)
    operations, replays = operations_of(trace, device, launches)
    frame, step, replay_step = _frame(trace, operations, replays, launches)
    count = len(frame.bounds_ns)
    kinds = _kinds(frame, replay_step, replays, operations)
    rejected_step = _rejected_steps(trace, device, launches, frame)
    lost_step = np.searchsorted(frame.bounds_ns, launches.lost_ns, side="right") - 1
    capturing = np.array([k == "capture" for k in kinds], bool)
    real_loss = lost_step[(lost_step >= 0) & ~capturing[np.maximum(lost_step, 0)]] if count else lost_step[:0]
    times = _Times.of(operations, replays, step, replay_step, count)
    no_replay = _without_replay(kinds, times.replays)
    cuts = cuts_of(trace, device)
    idle = split_idle(
        operations,
        replays,
        interior_start=times.start[no_replay],
        interior_end=times.end[no_replay],
        step_first=times.first,
        host_start=frame.host_start_ns,
        host_end=frame.host_end_ns,
        cuts=cuts,
    )
    cut_follows = _cut_follows(times, cuts)
    lost_launches = np.bincount(real_loss, minlength=count)
    rows = _rows(
        frame, kinds, times, operations, replays, replay_step, sm_count, idle, lost_launches, cut_follows
    )
    evidence = cleanliness.Evidence(
        rows=rows,
        source=frame.source,
        graphs=_graphs(replays, replay_step, count),
        whole=np.bincount(replay_step[(replay_step >= 0) & replays.whole], minlength=count) > 0,
        incomplete=np.bincount(replay_step[(replay_step >= 0) & ~replays.complete], minlength=count) > 0,
        first_lost=_first_lost(replays, replay_step, count)
        | _first_eager_lost(operations, step, launches.lost_ns, lost_step, times.replays),
        before_recording=np.bincount(
            replay_step[(replay_step >= 0) & (replays.launch_ns == BEFORE_RECORDING)], minlength=count
        )
        > 0,
        rejected=np.bincount(rejected_step[rejected_step >= 0], minlength=count),
        lost_launches=lost_launches,
        burst_follows=idle.burst_follows(times.first),
        cut_follows=cut_follows,
    )
    rows = cleanliness.judge(evidence)
    return Segmentation(
        operations=operations,
        replays=replays,
        launches=launches,
        step=step,
        replay_step=replay_step,
        rows=rows,
        facts=frame.facts,
        source=frame.source,
        engine=frame.engine,
        idle=idle,
        lost_launches={
            "graph": int(
                (
                    (replay_step >= 0)
                    & (replays.operations == 0)
                    & ~replays.whole
                    & ~_in(capturing, replay_step)
                ).sum()
            ),
            "kernel": len(real_loss),
        },
        cuts=cuts,
    )


def _in(mask: np.ndarray, step: IntArray) -> np.ndarray:
    return mask[np.maximum(step, 0)] & (step >= 0) if len(mask) else np.zeros(len(step), bool)


def _frame(
    trace: Trace, operations: Operations, replays: Replays, launches: HostLaunches
) -> tuple[_Frame, IntArray, IntArray]:
    markers = step_markers(trace.markers, launches.threads)
    if len(markers) and not _several_steps_in_one(markers, replays):
        bounds = markers.start_ns
        frame = _Frame(
            bounds_ns=bounds,
            host_start_ns=bounds,
            host_end_ns=markers.end_ns,
            facts=markers.facts,
            names=markers.names,
            source=markers.source,
            engine=markers.engine,
        )
        step = np.searchsorted(bounds, operations.launch_ns, side="right") - 1
        replay_step = np.searchsorted(bounds, replays.launch_ns, side="right") - 1
        return frame, step, replay_step
    if not len(replays) or replays.bundled:
        nothing = np.zeros(0, np.int64)
        frame = _Frame(nothing, nothing, nothing, (), (), "none", "unknown")
        return frame, np.full(len(operations.start_ns), -1, np.int64), np.full(len(replays), -1, np.int64)
    found = structural_steps(operations, replays)
    step = np.searchsorted(found.bounds_ns, operations.launch_ns, side="right") - 1
    replay_step = np.full(len(replays), -1, np.int64)
    for i, members in enumerate(found.replays):
        replay_step[list(members)] = i
    in_replay = operations.replay >= 0
    step[in_replay] = replay_step[operations.replay[in_replay]]
    host_start, host_end = _host_extent(launches, found.bounds_ns)
    frame = _Frame(
        bounds_ns=found.bounds_ns,
        host_start_ns=host_start,
        host_end_ns=host_end,
        facts=(None,) * len(found.replays),
        names=(None,) * len(found.replays),
        source="structure",
        engine="unknown",
    )
    return frame, step, replay_step


def _several_steps_in_one(markers: StepMarkers, replays: Replays) -> bool:
    """Whether ProfilerStep wraps several engine steps: the same graph replayed more than once within one."""
    if markers.source != "profiler_steps" or not len(replays):
        return False
    step = np.searchsorted(markers.start_ns, replays.launch_ns, side="right") - 1
    pairs = pl.DataFrame({"step": step, "graph": replays.graph}).filter(
        (pl.col("step") >= 0) & (pl.col("graph") >= 0)
    )
    if not pairs.height:
        return False
    repeats = pairs.group_by("step", "graph").len()["len"].to_numpy()
    return float(np.median(repeats)) > 1


def _host_extent(launches: HostLaunches, bounds: IntArray) -> tuple[IntArray, IntArray]:
    """When the host was at work, without markers: its recorded calls, shorter pauses between them included."""
    calls = launches.calls
    if not calls.height:
        return bounds, bounds
    start = calls["start_ns"].to_numpy()
    bridged = start + calls["duration_ns"].fill_null(0).to_numpy() + INTER_BURST_FLOOR_NS
    begin, finish = merge(start, bridged)
    return begin, finish - INTER_BURST_FLOOR_NS


def _kinds(frame: _Frame, replay_step: IntArray, replays: Replays, operations: Operations) -> list[str]:
    count = len(frame.bounds_ns)
    replayed = np.bincount(replay_step[replay_step >= 0], minlength=count) if count else np.zeros(0, int)
    if frame.source == "markers":
        return [facts.kind if facts else "unknown" for facts in frame.facts]
    names = operations.frame["name"].unique().cast(pl.String)
    training = bool(names.str.contains(_TRAINING).any())
    return [
        "decode" if replayed[i] and not training and not replays.bundled else "unknown" for i in range(count)
    ]


def _without_replay(kinds: list[str], replays: IntArray) -> np.ndarray:
    """Steps whose inner gaps are intra-step idle: no replay, or prefill and mixed work around piecewise ones."""
    other = np.array([kind != "decode" for kind in kinds], bool)
    return (replays == 0) | other if len(kinds) else np.zeros(0, bool)


def _rejected_steps(trace: Trace, device: int, launches: HostLaunches, frame: _Frame) -> IntArray:
    """The step that each rejected record of this device belongs to."""
    rejected = trace.rejected.filter(pl.col("device").is_null() | (pl.col("device") == device))
    joined = rejected.select("correlation", "start_ns").join(
        launches.calls.select("correlation", launch_ns="start_ns"),
        on="correlation",
        how="left",
        maintain_order="left",
    )
    launch = estimate_launch(
        joined["correlation"], joined["launch_ns"], launches.calls, joined["start_ns"].fill_null(0).to_numpy()
    )
    return np.searchsorted(frame.bounds_ns, launch, side="right") - 1


@dataclass(frozen=True, slots=True)
class _Times:
    """Per step; arrays of 0 where a step has no operation and no graph recorded as a whole."""

    start: IntArray
    end: IntArray
    first: IntArray
    busy: IntArray
    span: IntArray
    operations: IntArray
    replays: IntArray
    whole: np.ndarray

    @classmethod
    def of(
        cls, operations: Operations, replays: Replays, step: IntArray, replay_step: IntArray, count: int
    ) -> "_Times":
        owned = step >= 0
        big = np.iinfo(np.int64).max
        start, end = np.full(count, big), np.zeros(count, np.int64)
        np.minimum.at(start, step[owned], operations.start_ns[owned])
        np.maximum.at(end, step[owned], operations.end_ns[owned])
        number = np.bincount(step[owned], minlength=count)
        live = (replay_step >= 0) & (replays.end_ns > 0)
        np.minimum.at(start, replay_step[live], replays.start_ns[live])
        np.maximum.at(end, replay_step[live], replays.end_ns[live])
        first = start.copy()
        first_replay = np.full(count, big)
        np.minimum.at(first_replay, replay_step[live], replays.start_ns[live])
        has = np.bincount(replay_step[live], minlength=count)
        first[has > 0] = first_replay[has > 0]
        span = grouped_union(replay_step[live], replays.start_ns[live], replays.end_ns[live], count)
        whole = np.bincount(replay_step[(replay_step >= 0) & replays.whole], minlength=count) > 0
        busy = grouped_union(step[owned], operations.start_ns[owned], operations.end_ns[owned], count)
        for array in (start, first):
            array[(number == 0) & (has == 0)] = 0
        return cls(
            start=start,
            end=end,
            first=first,
            busy=busy,
            span=span,
            operations=number,
            replays=has,
            whole=whole,
        )


def _cut_follows(times: _Times, cuts: tuple[IntArray, IntArray]) -> np.ndarray:
    """Behind which steps the trace was cut: the last one that ran before each cut."""
    follows = np.zeros(len(times.start), bool)
    live = np.flatnonzero(times.end > 0)
    if not len(live):
        return follows
    order = live[np.argsort(times.start[live], kind="stable")]
    at = np.searchsorted(times.start[order], cuts[0], side="right") - 1
    follows[order[at[at >= 0]]] = True
    return follows


def _graphs(replays: Replays, replay_step: IntArray, count: int) -> list[tuple[int, ...]]:
    graphs: list[list[int]] = [[] for _ in range(count)]
    for step, graph in zip(replay_step, replays.graph, strict=True):
        if step >= 0:
            graphs[int(step)].append(int(graph))
    return [tuple(g) for g in graphs]


def _first_lost(replays: Replays, replay_step: IntArray, count: int) -> np.ndarray:
    """Whether the first operation of a step's first replay was lost, so that the step before has no end."""
    lost = np.zeros(count, bool)
    seen: set[int] = set()
    for at, step in enumerate(replay_step.tolist()):
        if step >= 0 and step not in seen:
            seen.add(step)
            lost[step] = bool(replays.first_lost[at])
    return lost


def _first_eager_lost(
    operations: Operations, step: IntArray, lost_ns: IntArray, lost_step: IntArray, replays: IntArray
) -> np.ndarray:
    """The same for steps without replay: a lost kernel was launched before anything that was recorded."""
    never = np.iinfo(np.int64).max
    first, lost = np.full(len(replays), never), np.full(len(replays), never)
    np.minimum.at(first, step[step >= 0], operations.launch_ns[step >= 0])
    np.minimum.at(lost, lost_step[lost_step >= 0], lost_ns[lost_step >= 0])
    return (replays == 0) & (lost < first)


def _rows(
    frame: _Frame,
    kinds: list[str],
    times: _Times,
    operations: Operations,
    replays: Replays,
    replay_step: IntArray,
    sm_count: int | None,
    idle: IdleSplit,
    lost_launches: IntArray,
    cut_follows: np.ndarray,
) -> list[StepRow]:
    buckets = _buckets(frame, kinds, operations, replays, replay_step, sm_count)
    launched = np.bincount(replay_step[replay_step >= 0], minlength=len(kinds)) if kinds else np.zeros(0, int)
    stalls = idle.inside(times.start, times.end)
    rows: list[StepRow] = []
    for i, kind in enumerate(kinds):
        facts, some = frame.facts[i], int(times.end[i]) > 0
        following = int(times.first[i + 1]) if i + 1 < len(kinds) and times.end[i + 1] else None
        first = int(times.first[i])
        step_ns = following - first if some and following is not None and following > first else None
        if cut_follows[i]:
            step_ns = None  # the next step's beginning was cut out; what follows is another one's
        structural = frame.source == "structure"
        if kind != "capture" and not some and not launched[i] and not lost_launches[i]:
            kind = "idle"
        rows.append(
            StepRow(
                index=i,
                kind=kind,
                batch_size=facts.batch_size if facts else None,
                context_requests=facts.context_requests if facts else None,
                context_tokens=facts.context_tokens if facts else None,
                generation_tokens=facts.generation_tokens if facts else None,
                bucket=buckets[i],
                graph_replays=int(launched[i]),
                start_ns=int(times.start[i]) if some else None,
                end_ns=int(times.end[i]) if some else None,
                step_ns=step_ns,
                span_ns=int(times.span[i]) if times.replays[i] else None,
                busy_ns=None if times.whole[i] else int(times.busy[i]),
                operations=int(times.operations[i]),
                host_start_ns=None if structural else int(frame.host_start_ns[i]),
                host_end_ns=None if structural else int(frame.host_end_ns[i]),
                stall_ns=int(stalls[i]) if some else None,
                marker=frame.names[i],
                clean=False,
                unclean_reason=None,
            )
        )
    return rows


def _buckets(
    frame: _Frame,
    kinds: list[str],
    operations: Operations,
    replays: Replays,
    replay_step: IntArray,
    sm_count: int | None,
) -> list[int | None]:
    """The bucket of each decode step, from the grids of a complete replay of its graph."""
    sample: dict[int, int] = {}
    for at in np.flatnonzero(replays.complete & (replays.graph >= 0)).tolist():
        sample.setdefault(int(replays.graph[at]), at)
    graphs = _graphs(replays, replay_step, len(kinds))
    shapes: dict[int, pl.DataFrame] = {}
    known: dict[tuple[int, int | None, int | None], int | None] = {}
    result: list[int | None] = []
    for i, kind in enumerate(kinds):
        mine = [g for g in graphs[i] if g in sample]
        if kind != "decode" or not mine:
            result.append(None)
            continue
        # With several replays in a step the one with the most operations (the target model) tells the bucket.
        graph = max(mine, key=lambda g: int(replays.operations[sample[g]]))
        facts = frame.facts[i]
        key = (graph, facts.batch_size if facts else None, facts.generation_tokens if facts else None)
        if key not in known:
            if graph not in shapes:
                shapes[graph] = operations.frame.filter(pl.Series(operations.replay == sample[graph]))
            known[key] = bucket_of(shapes[graph], key[1], key[2], sm_count)
        result.append(known[key])
    return result
