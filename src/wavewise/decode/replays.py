"""Graph replays of one device: which operations one graph launch stands for, and whether all were recorded.

A replay is the set of operations that share the correlation id of one graph launch (contract). Where the launch
is not in the trace, operations that share a correlation id, or carry a graph id, are one all the same.

Which graph each is of, and what of it was lost: `graphs.py`.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl

from wavewise.decode.alignment import Hole, Recorded
from wavewise.decode.columns import group_ids, name_flags
from wavewise.decode.graphs import match
from wavewise.decode.intervals import IntArray, neighbours
from wavewise.decode.markers import StepMarkers, step_markers
from wavewise.trace import Trace

BEFORE_RECORDING = np.iinfo(np.int64).min
"""Launch time of an operation that was launched before the first recorded launch."""

_CALLS = {
    "graph": r"(?i)graphlaunch",
    "kernel": r"(?i)^(cuda|cu|hip)(module|ext)*(launch)(cooperative)?kernel",
    "copy": r"(?i)^(cuda|cu|hip)Mem(cpy|set)",
    "begins_capture": r"(?i)StreamBeginCapture",
    "ends_capture": r"(?i)StreamEndCapture",
}
"""What a host call does, by its name in the CUDA runtime, the CUDA driver and HIP."""

_LOST_COPIES = 0.25
"""Share of the copies by one call that may lack a record and still count as lost."""

_WHOLE = ("stream", "start_ns", "duration_ns", "graph_id")

_SHAPE = ["name", "kind", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]


@dataclass(frozen=True, slots=True)
class Operations:
    """The valid GPU operations of one device as arrays, sorted by start.

    Attributes:
        frame: the operations with OPERATION_SCHEMA.
        start_ns, end_ns: int64.
        launch_ns: int64, when the host launched it; estimated from the order of correlation ids where the
            launch is not recorded, BEFORE_RECORDING where that order puts it before the first launch.
        launch_known: bool, whether the launch itself is in the trace.
        replay: int64, index into the replays, -1 for eager work.
        shape: int64, equal for operations of equal name and launch geometry.
    """

    frame: pl.DataFrame
    start_ns: IntArray
    end_ns: IntArray
    launch_ns: IntArray
    launch_known: np.ndarray
    replay: IntArray
    shape: IntArray


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of one device, in launch order; arrays have one entry a replay.

    Attributes:
        correlation: correlation id of the launch.
        start_ns, end_ns: first start and last end of the recorded operations; both 0 where none was recorded.
        launch_ns: host time of the launch, estimated like that of operations.
        launch_duration_ns: length of the launch call, -1 where it is not recorded.
        operations: how many were recorded.
        size: how many its graph has, -1 where that cannot be told.
        graph: index of the graph; replays of one graph have the same operations. A replay that lost records
            has the index of the graph that it is a part of, -1 where that cannot be told.
        complete: every operation was recorded.
        first_lost: its first operation is among the lost.
        holes: per replay, where operations are missing; empty for complete ones, None where it cannot be told.
        main_stream: stream of most of its operations, -1 without any.
        whole: which were recorded as wholes, without the operations inside; their start and end are the graph's, 0
            where not even these were recorded.
    """

    correlation: IntArray
    start_ns: IntArray
    end_ns: IntArray
    launch_ns: IntArray
    launch_duration_ns: IntArray
    operations: IntArray
    size: IntArray
    graph: IntArray
    complete: np.ndarray
    first_lost: np.ndarray
    holes: tuple[tuple[Hole, ...] | None, ...]
    main_stream: IntArray
    whole: np.ndarray

    @property
    def bundled(self) -> bool:
        """Whether nothing is known of any replay but its launch."""
        return bool(len(self) and self.whole.all() and not self.end_ns.any())

    def __len__(self) -> int:
        return len(self.correlation)


@dataclass(frozen=True, slots=True)
class HostLaunches:
    """Host calls that matter for one device.

    Attributes:
        calls: LAUNCH_SCHEMA rows with a correlation id, unique by it, and a boolean column for each key of
            `_CALLS`.
        lost_ns: int64, start of each kernel launch or copy whose operation is not in the trace.
        threads: (pid, tid) that launched work of this device.
    """

    calls: pl.DataFrame
    lost_ns: IntArray
    threads: frozenset[tuple[int, int]]


def host_launches(trace: Trace, device: int) -> HostLaunches:
    """The launches that belong to `device`: those whose operations run there, and those that ran nothing."""
    flagged = trace.launches.hstack(name_flags(trace.launches["name"], _CALLS))
    calls = flagged.filter(pl.col("correlation").is_not_null()).unique(
        "correlation", keep="first", maintain_order=True
    )
    of_device = pl.concat(
        [
            frame.filter(pl.col("device") == device).select("correlation")
            for frame in (trace.operations, trace.rejected, trace.whole_graphs)
        ]
    ).unique()
    of_any = pl.concat(
        [frame.select("correlation") for frame in (trace.operations, trace.rejected, trace.whole_graphs)]
    ).unique()
    mine = calls.join(of_device, on="correlation", how="semi")
    threads = frozenset(mine.select("pid", "tid").unique().iter_rows())
    orphans = calls.join(of_any, on="correlation", how="anti")
    orphans = orphans.filter(pl.col("graph") | pl.col("kernel") | _lost_copies(calls, orphans))
    orphans = _launched_for_real(orphans, mine, flagged)
    if len(trace.device_ids()) > 1:
        on_my_threads = [tuple(at) in threads for at in orphans.select("pid", "tid").iter_rows()]
        orphans = orphans.filter(pl.Series(on_my_threads, dtype=pl.Boolean))
        orphans = _of_this_turn(orphans, calls, trace, device)
    lost = orphans.filter(~pl.col("graph"))["start_ns"].to_numpy()
    calls = pl.concat([mine, orphans.filter("graph")]).sort("start_ns")
    return HostLaunches(calls=calls, lost_ns=lost, threads=threads)


def _of_this_turn(orphans: pl.DataFrame, calls: pl.DataFrame, trace: Trace, device: int) -> pl.DataFrame:
    """Drops lost graph launches that were another device's turn, where one thread launches for several.

    A thread serves its devices in turn, so a launch without operations is of the device that usually follows the
    one before it.
    """
    if not orphans["graph"].any():
        return orphans
    devices = trace.operations.select("correlation", "device").unique("correlation")
    launched = (
        calls.filter("graph").join(devices, on="correlation", how="left").sort("pid", "tid", "start_ns")
    )
    follows: dict[tuple[int, int, int], Counter[int]] = {}
    last: tuple[int, int, int] | None = None
    turns: list[tuple[int, tuple[int, int, int]]] = []
    for pid, tid, correlation, on in launched.select("pid", "tid", "correlation", "device").iter_rows():
        same_thread = last is not None and last[:2] == (pid, tid)
        if on is None and last is not None and same_thread:
            turns.append((correlation, last))
            on = follows[last].most_common(1)[0][0] if follows.get(last) else last[2]
        elif on is not None and last is not None and same_thread:
            follows.setdefault(last, Counter())[on] += 1
        last = (pid, tid, on) if on is not None else None
    others = [
        correlation
        for correlation, before in turns
        if follows.get(before) and follows[before].most_common(1)[0][0] != device
    ]
    return orphans.filter(~pl.col("correlation").is_in(others))


def _lost_copies(calls: pl.DataFrame, orphans: pl.DataFrame) -> pl.Expr:
    """Copies without a record, where copies by that call do leave records.

    Some do not (between host buffers, of nothing): a call of which many have no record tells nothing.
    """
    of_all = dict(calls.filter("copy")["name"].value_counts().iter_rows())
    of_orphans = dict(orphans.filter("copy")["name"].value_counts().iter_rows())
    leaving = [name for name, count in of_orphans.items() if count <= _LOST_COPIES * of_all[name]]
    return pl.col("copy") & pl.col("name").cast(pl.String).is_in(leaving)


def _launched_for_real(orphans: pl.DataFrame, mine: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Drops calls that ran nothing by design: while a stream captures, or a driver call inside a runtime call."""
    if not orphans.height:
        return orphans
    keep = np.ones(orphans.height, dtype=bool)
    start = orphans["start_ns"].to_numpy()
    begins = launches.filter("begins_capture")["start_ns"].to_numpy()
    ends = launches.filter("ends_capture")["start_ns"].to_numpy()
    if len(begins):
        opened = np.searchsorted(begins, start, side="right")
        closed = np.searchsorted(ends, start, side="right")
        keep &= opened <= closed
    ran = mine.filter(~pl.col("graph"))
    for pid, tid in orphans.select("pid", "tid").unique().iter_rows():
        here = ran.filter((pl.col("pid") == pid) & (pl.col("tid") == tid))
        if not here.height:
            continue
        lo = here["start_ns"].to_numpy()
        hi = np.maximum.accumulate(lo + here["duration_ns"].fill_null(0).to_numpy())
        at = np.searchsorted(lo, start, side="right") - 1
        same = ((orphans["pid"] == pid) & (orphans["tid"] == tid)).to_numpy()
        keep &= ~(same & (at >= 0) & (start < hi[np.maximum(at, 0)]))
    return orphans.filter(pl.Series(keep))


def operations_of(trace: Trace, device: int, launches: HostLaunches) -> tuple[Operations, Replays]:
    """The operations of `device` with their launches, and its replays."""
    frame = trace.operations.filter(pl.col("device") == device)
    start = frame["start_ns"].to_numpy()
    end = start + frame["duration_ns"].to_numpy()
    calls = launches.calls
    joined = frame.select("correlation", "graph_id").join(
        calls.select("correlation", launch_ns="start_ns", graph="graph"),
        on="correlation",
        how="left",
        maintain_order="left",
    )
    known = joined["launch_ns"].is_not_null().to_numpy()
    launch = estimate_launch(frame["correlation"], joined["launch_ns"], calls, start)
    shared = joined.select(
        (
            pl.col("correlation").is_not_null()
            & (
                pl.col("graph").fill_null(False)
                | pl.col("graph_id").is_not_null()
                | (pl.col("launch_ns").is_null() & (pl.len().over("correlation") > 1))
            )
        ).alias("shared")
    )["shared"].to_numpy()
    shape = group_ids(frame, _SHAPE)
    correlation = frame["correlation"].fill_null(-1).to_numpy()
    markers = step_markers(trace.markers, launches.threads)
    wholes = trace.whole_graphs.filter(pl.col("device") == device)
    replays, replay = _replays(correlation, shared, launch, start, end, frame, shape, calls, markers, wholes)
    return (
        Operations(
            frame=frame,
            start_ns=start,
            end_ns=end,
            launch_ns=launch,
            launch_known=known,
            replay=replay,
            shape=shape,
        ),
        replays,
    )


def estimate_launch(
    correlation: pl.Series, launch: pl.Series, calls: pl.DataFrame, start: IntArray
) -> IntArray:
    """Launch time of each operation: the recorded one, else by the order of correlation ids.

    CUPTI and ROCprofiler hand out correlation ids in the order of the calls, so an operation whose call is not
    in the trace was launched right after the recorded call with the next lower id. Without any recorded call the
    start on the GPU stands in.
    """
    if not calls.height:
        return start.copy()
    by_id = calls.sort("correlation")
    ids, times = by_id["correlation"].to_numpy(), by_id["start_ns"].to_numpy()
    at = np.searchsorted(ids, correlation.fill_null(-1).to_numpy(), side="right") - 1
    estimate = np.where(at >= 0, times[np.maximum(at, 0)], BEFORE_RECORDING)
    estimate = np.where(correlation.is_null().to_numpy(), start, estimate)
    return np.where(launch.is_not_null().to_numpy(), launch.fill_null(0).to_numpy(), estimate)


def _replays(
    correlation: IntArray,
    shared: np.ndarray,
    launch: IntArray,
    start: IntArray,
    end: IntArray,
    frame: pl.DataFrame,
    shape: IntArray,
    calls: pl.DataFrame,
    markers: StepMarkers,
    wholes: pl.DataFrame,
) -> tuple[Replays, IntArray]:
    stream = frame["stream"].to_numpy()
    graph_calls = calls.filter("graph")
    members = np.flatnonzero(shared)
    ids, inverse = np.unique(correlation[members], return_inverse=True)
    wholes = wholes.filter(pl.col("correlation").is_not_null()).unique("correlation", maintain_order=True)
    launched_graphs = np.union1d(graph_calls["correlation"].to_numpy(), wholes["correlation"].to_numpy())
    missing = np.setdiff1d(launched_graphs, ids)
    recorded, n = len(ids), len(ids) + len(missing)
    ids = np.concatenate([ids, missing])
    lo, hi = np.zeros(n, np.int64), np.zeros(n, np.int64)
    launched, count = np.zeros(n, np.int64), np.zeros(n, np.int64)
    main = np.full(n, -1, np.int64)
    pieces = (
        np.split(
            members[np.argsort(inverse, kind="stable")],
            np.cumsum(np.bincount(inverse, minlength=recorded))[:-1],
        )
        if recorded
        else []
    )
    for i, piece in enumerate(pieces):
        lo[i], hi[i] = start[piece].min(), end[piece].max()
        launched[i], count[i] = launch[piece[0]], len(piece)
        values, counts = np.unique(stream[piece], return_counts=True)
        main[i] = values[counts.argmax()]
    at = dict(
        zip(
            graph_calls["correlation"].to_list(),
            graph_calls.select("start_ns", "duration_ns").iter_rows(),
            strict=True,
        )
    )
    duration = np.array(
        [
            (at.get(c) or (0, None))[1] if (at.get(c) or (0, None))[1] is not None else -1
            for c in ids.tolist()
        ],
        np.int64,
    )
    graph = np.full(n, -1, np.int64)
    whole = np.zeros(n, bool)
    extents = {row[0]: row[1:] for row in wholes.select("correlation", *_WHOLE).iter_rows()}
    for i in range(recorded, n):
        extent = extents.get(int(ids[i]))
        if extent is not None:
            whole[i], main[i], lo[i] = True, extent[0], extent[1]
            hi[i], graph[i] = extent[1] + extent[2], extent[3] if extent[3] is not None else -1
        # A launch that is not recorded came before its graph ran; no more is known.
        launched[i] = at[int(ids[i])][0] if int(ids[i]) in at else lo[i]
    if recorded == 0 and not whole.any():
        whole[:] = True
    order = np.lexsort((lo, launched))
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    recorded_launch = np.where(duration >= 0, launched, -1)
    matched = match(
        _recorded(pieces, shape, frame, start, end, main, recorded_launch, _work(markers, recorded_launch)),
        [int(i) for i in order if i < recorded],
        n,
    )
    replay = np.full(len(start), -1, np.int64)
    replay[members] = rank[inverse]
    return (
        Replays(
            correlation=ids[order],
            start_ns=lo[order],
            end_ns=hi[order],
            launch_ns=launched[order],
            launch_duration_ns=duration[order],
            operations=count[order],
            size=matched.size[order],
            # Graph ids of the trace above the numbers of matched graphs: graphs known in one way only.
            graph=np.where(graph >= 0, graph + matched.graph.max(initial=-1) + 1, matched.graph)[order],
            complete=matched.complete[order],
            first_lost=matched.first_lost[order],
            holes=tuple(matched.holes[int(i)] for i in order),
            main_stream=main[order],
            whole=whole[order],
        ),
        replay,
    )


def _work(markers: StepMarkers, launch: IntArray) -> IntArray:
    """What the engine says that each replay did, by a number; -1 where it says nothing.

    Args:
        markers: the steps.
        launch: when each replay was launched, -1 where that is not recorded.
    """
    work = np.full(len(launch), -1, np.int64)
    if not len(markers) or markers.source != "markers":
        return work
    step: IntArray = np.where(launch >= 0, np.searchsorted(markers.start_ns, launch, side="right") - 1, -1)
    alone = np.bincount(step[step >= 0], minlength=len(markers)) == 1
    numbers: dict[tuple[int, int | None], int] = {}
    for i in np.flatnonzero(step >= 0).tolist():
        at = int(step[i])
        facts = markers.facts[at] if alone[at] else None
        if facts is not None and facts.kind == "decode" and facts.batch_size is not None:
            key = (facts.batch_size, facts.generation_tokens)
            work[i] = numbers.setdefault(key, len(numbers))
    return work


def _recorded(
    pieces: list[IntArray],
    shape: IntArray,
    frame: pl.DataFrame,
    start: IntArray,
    end: IntArray,
    main: IntArray,
    launch: IntArray,
    work: IntArray,
) -> list[Recorded]:
    """What was recorded of each replay, for `match`; `launch` and `work` are -1 where they are not known."""
    graph_id = frame["graph_id"].fill_null(-1).to_numpy()
    stream, name = frame["stream"].to_numpy(), frame["name"].to_physical().to_numpy().astype(np.int64)
    geometry = frame["grid_x"].is_not_null().to_numpy()
    before, behind = neighbours(stream, start, end)
    result: list[Recorded] = []
    for i, piece in enumerate(pieces):
        on_main = piece[stream[piece] == main[i]]
        result.append(
            Recorded(
                shape=shape[piece],
                name=name[piece],
                stream=stream[piece],
                start_ns=start[piece],
                end_ns=end[piece],
                geometry=bool(geometry[piece].any()),
                main=int(main[i]),
                before_ns=int(before[on_main[0]]),
                behind_ns=int(behind[on_main[-1]]),
                launch_ns=int(launch[i]),
                graph_id=int(graph_id[piece[0]]),
                work=int(work[i]),
            )
        )
    return result
