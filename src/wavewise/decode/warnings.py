"""What the analysis of one device had to leave out, assume or flag; codes are documented in docs/warnings.md."""

import numpy as np

from wavewise.decode.steps import Segmentation
from wavewise.findings import StepRow, Warning
from wavewise.trace import Trace, TraceWarning
from wavewise.trace.notes import Notes
from wavewise.units import NS_PER_S, format_ns

_STALL_FLOOR_NS = NS_PER_S
_STALL_FACTOR = 20
"""A stall is over a second and over this multiple of the median step: nothing that serving does at every step."""


def warnings_of(trace: Trace, device: int, found: Segmentation) -> tuple[Warning, ...]:
    """The reader's warnings that concern this device, then the analysis' own."""
    result = [_warning(w) for w in trace.warnings if w.device is None or w.device == device]
    result += _cuts(found)
    result += _losses(found, told={warning.code for warning in result})
    result += _assumptions(trace, found)
    result += _stalls(found.rows)
    return tuple(result)


def _warning(of: TraceWarning) -> Warning:
    return Warning(code=of.code, count=of.count, message=of.message, unsafe=of.unsafe)


def _cuts(found: Segmentation) -> list[Warning]:
    start, end = found.cuts
    if not len(start):
        return []
    places = "one stretch" if len(start) == 1 else f"{len(start)} stretches"
    return [
        Warning(
            code="trimmed",
            count=len(start),
            message=f"`wavewise trim` cut {format_ns(int((end - start).sum()))} out of this trace, in {places}. "
            "The window and the idle split leave that time out; no step beside a cut is clean.",
        )
    ]


def _losses(found: Segmentation, told: set[str]) -> list[Warning]:
    replays = found.replays
    result: list[Warning] = []
    wholes = int(replays.whole.sum())
    if wholes and "graphs_as_wholes" not in told:
        result += map(_warning, Notes(graphs_as_wholes=wholes).warnings())
    lost = ~replays.complete & ~replays.whole
    partial = int(lost.sum())
    if partial:
        missing = int(_expected(found)[lost].sum() - replays.operations[lost].sum())
        result.append(
            Warning(
                code="lost_records",
                count=max(missing, partial),
                unsafe=("idle",),
                message=f"{partial} graph replay(s) lost records, at least {max(missing, partial)} operations: "
                "the profiler dropped them or the file is damaged. Their steps are left out of the statistics "
                "and the hole is not counted as idle.",
            )
        )
    kernels = found.lost_launches["kernel"]
    if kernels:
        result.append(
            Warning(
                code="lost_operations",
                count=kernels,
                message=f"{kernels} launch(es) have no operation in the trace: lost, or still running "
                "when the recording ended. Their steps are not clean.",
            )
        )
    return result


def _expected(found: Segmentation) -> np.ndarray:
    """How many operations each replay should have: as many as a complete replay of its graph."""
    replays = found.replays
    columns = zip(replays.graph.tolist(), replays.complete.tolist(), replays.operations.tolist(), strict=True)
    size = {graph: number for graph, complete, number in columns if complete}
    usual = int(np.median(list(size.values()))) if size else 0
    return np.array([size.get(graph, usual) for graph in replays.graph.tolist()], np.int64)


def _assumptions(trace: Trace, found: Segmentation) -> list[Warning]:
    result: list[Warning] = []
    if found.source == "structure":
        result.append(
            Warning(
                code="steps_from_structure",
                count=len(found.rows),
                message="No engine step markers: steps are known by their graph replays alone. The batch size is "
                "unknown, and it is assumed constant as long as the same graph is replayed.",
            )
        )
    if found.source == "profiler_steps":
        result.append(
            Warning(
                code="profiler_steps_only",
                count=len(found.rows),
                message="Only ProfilerStep markers: they tell where a step begins, not its kind or batch size.",
            )
        )
    if not trace.launches.height and found.rows and found.source != "structure":
        result.append(
            Warning(
                code="no_host_launches",
                count=1,
                unsafe=("steps",),
                message="The trace holds no host launches: operations are assigned to steps by when they ran.",
            )
        )
    return result


def _stalls(rows: tuple[StepRow, ...]) -> list[Warning]:
    extents = [
        row.end_ns - row.start_ns for row in rows if row.end_ns is not None and row.start_ns is not None
    ]
    if not extents:
        return []
    limit = max(_STALL_FLOOR_NS, _STALL_FACTOR * float(np.median(extents)))
    return [
        Warning(
            code="host_stall",
            count=1,
            message=f"Step {row.index} ({row.kind}) holds {format_ns(row.stall_ns)} in which the GPU ran nothing: "
            "host time (a kernel compilation, say). It is kept out of every statistic.",
        )
        for row in rows
        if row.stall_ns is not None and row.stall_ns > limit
    ]
