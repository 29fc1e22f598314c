"""The idle split: every nanosecond of the window is busy or in exactly one named idle part.

Gaps are the maximal stretches in which no operation of the device runs, on any stream. Each gap falls, in this
order, to: the hole of a replay that lost records; a replay; the inside of a step without replay; the boundary
between steps. Of a long boundary gap, the part with no step under way on the host is inter-burst idle: the host
runs no step either. Whether it had no requests or waited for something else, the gap alone does not tell. What
`wavewise trim` cut out is neither busy nor idle: the window leaves it out.
"""

from dataclasses import dataclass

import numpy as np

from wavewise.decode.intervals import (
    IntArray,
    gaps,
    inside_any,
    merge,
    outside_length,
    subtract,
    union_length,
)
from wavewise.decode.replays import Operations, Replays
from wavewise.findings import Idle
from wavewise.units import NS_PER_MS

INTER_BURST_FLOOR_NS = NS_PER_MS
"""Shorter gaps are step boundaries whatever the host does (contract)."""

INTER_BURST_FACTOR = 3
"""... and so are gaps under this multiple of the median step-boundary gap (contract)."""


@dataclass(frozen=True, slots=True)
class IdleSplit:
    """The split and the gaps behind it.

    Attributes:
        window_start_ns, window_end_ns: first start and last end of the device's operations.
        busy_ns, sum_ns: union and sum of the durations.
        idle: the parts; with busy_ns they add up to the window.
        gap_start_ns, gap_end_ns: all gaps in time order.
        gap_kind: what each was counted as; a boundary gap with an inter-burst part is "inter_burst".
        cut_ns: what cuts took out of the window.
    """

    window_start_ns: int
    window_end_ns: int
    busy_ns: int
    sum_ns: int
    idle: Idle
    gap_start_ns: IntArray
    gap_end_ns: IntArray
    gap_kind: np.ndarray
    cut_ns: int = 0

    @property
    def window_ns(self) -> int:
        """Length of the window, without what was cut out of it."""
        return self.window_end_ns - self.window_start_ns - self.cut_ns

    def burst_follows(self, step_first: IntArray) -> np.ndarray:
        """Which steps hold inter-burst idle between their first operation and the next step's."""
        result = np.zeros(len(step_first), bool)
        bursts = self.gap_start_ns[self.gap_kind == "inter_burst"]
        live = np.flatnonzero(step_first > 0)
        if len(bursts) and len(live):
            order = live[np.argsort(step_first[live], kind="stable")]
            at = np.searchsorted(step_first[order], bursts, side="right") - 1
            result[order[at[at >= 0]]] = True
        return result

    def inside(self, start: IntArray, end: IntArray) -> IntArray:
        """How long the GPU ran nothing within each of the extents [start, end)."""
        total = np.concatenate([[0], np.cumsum(self.gap_end_ns - self.gap_start_ns)])
        return (
            total[np.searchsorted(self.gap_start_ns, end)] - total[np.searchsorted(self.gap_start_ns, start)]
        )


def split_idle(
    operations: Operations,
    replays: Replays,
    *,
    interior_start: IntArray,
    interior_end: IntArray,
    step_first: IntArray,
    host_start: IntArray,
    host_end: IntArray,
    cuts: tuple[IntArray, IntArray] | None = None,
) -> IdleSplit:
    """Splits the window of one device.

    Args:
        operations, replays: of the device.
        interior_start, interior_end: extents of the steps whose inner gaps are intra-step idle.
        step_first: first (replay) operation of each step, 0 where a step has none.
        host_start, host_end: when each step was under way on the host.
        cuts: starts and ends of what was cut out of the trace, disjoint, in time order.
    """
    start, end = operations.start_ns, operations.end_ns
    # A graph recorded as a whole leaves no gap, but what of it was busy is not recorded.
    occupied_start = np.concatenate([start, replays.start_ns[replays.whole & (replays.end_ns > 0)]])
    occupied_end = np.concatenate([end, replays.end_ns[replays.whole & (replays.end_ns > 0)]])
    busy, window = union_length(start, end), (int(occupied_start.min()), int(occupied_end.max()))
    unseen_ns = union_length(occupied_start, occupied_end) - busy
    lo, hi = gaps(occupied_start, occupied_end)
    recorded_ns = int((hi - lo).sum())
    if cuts is not None:
        lo, hi = subtract(lo, hi, *cuts)
    cut_ns = recorded_ns - int((hi - lo).sum())
    length = hi - lo
    live = replays.operations > 0
    in_hole = inside_any(lo, hi, *_holes(operations, replays))
    in_replay = inside_any(lo, hi, replays.start_ns[live], replays.end_ns[live]) & ~in_hole
    in_step = inside_any(lo, hi, interior_start, interior_end) & ~in_hole & ~in_replay
    boundary = ~(in_hole | in_replay | in_step)
    burst, burst_ns = _bursts(lo, hi, boundary, step_first, host_start, host_end)
    kind = np.select(
        [in_hole, in_replay, in_step, burst],
        ["unrecorded", "intra_replay", "intra_step", "inter_burst"],
        default="step_boundary",
    )
    # A replay that the end of the recording cut off leaves no hole inside the window, and spoils nothing.
    lost = bool(length[in_hole].any()) and not replays.bundled
    wholes = bool(replays.whole.any())
    idle = Idle(
        intra_replay_ns=int(length[in_replay].sum()),
        intra_step_ns=int(length[in_step].sum()),
        step_boundary_ns=int(length[boundary].sum()) - burst_ns,
        inter_burst_ns=burst_ns,
        unrecorded_ns=int(length[in_hole].sum()) + unseen_ns,
        safe=not lost and not wholes,
        unsafe_reason=_unsafe_reason(replays, lost),
    )
    split = IdleSplit(
        window_start_ns=window[0],
        window_end_ns=window[1],
        busy_ns=busy,
        sum_ns=int((end - start).sum()),
        idle=idle,
        gap_start_ns=lo,
        gap_end_ns=hi,
        gap_kind=kind,
        cut_ns=cut_ns,
    )
    if split.busy_ns + idle.total_ns != split.window_ns:
        raise AssertionError(f"idle split does not add up: {split.busy_ns} + {idle} != {split.window_ns}")
    return split


def _unsafe_reason(replays: Replays, lost: bool) -> str | None:
    if replays.whole.any():
        return "graph launches were recorded as wholes, so what ran inside them is unknown"
    if lost:
        return (
            f"{int((~replays.complete).sum())} graph replay(s) lost records, so part of the idle time is none"
        )
    return None


def _holes(operations: Operations, replays: Replays) -> tuple[IntArray, IntArray]:
    """Where the operations of incomplete replays may have run unseen.

    A hole that reaches to the work before or behind its replay ends there: at the last end of what was launched
    earlier on the same stream, at the first start of what was launched later.
    """
    start: list[int] = []
    end: list[int] = []
    lost = np.flatnonzero(~replays.complete & ~(replays.whole & (replays.end_ns > 0)))
    if not len(lost) or not len(operations.start_ns):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    before, behind = _work_around(operations, replays, lost)
    for at, i in enumerate(lost.tolist()):
        holes, some = replays.holes[i], bool(replays.operations[i])
        if holes is None:
            spared = some and not replays.first_lost[i]
            holes = ((int(replays.start_ns[i]) if spared else None, None),)
        for lo, hi in holes:
            start.append(int(before[at]) if lo is None else lo)
            end.append(int(behind[at]) if hi is None else hi)
    return np.array(start, np.int64), np.array(end, np.int64)


def _work_around(operations: Operations, replays: Replays, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """End of the work launched before each chosen replay on its main stream, start of the work launched behind."""
    own = replays.launch_ns[np.maximum(operations.replay, 0)] if len(replays) else operations.launch_ns
    launch = np.where(operations.replay >= 0, own, operations.launch_ns)
    streams = operations.frame["stream"].to_numpy()
    usual = replays.main_stream[replays.operations > 0]
    values, counts = np.unique(usual, return_counts=True)
    before = np.full(len(chosen), operations.start_ns.min())
    behind = np.full(len(chosen), operations.end_ns.max())
    fallback = values[counts.argmax()] if len(values) else -1
    stream = np.where(replays.operations[chosen] > 0, replays.main_stream[chosen], fallback)
    for one in np.unique(stream):
        here = np.flatnonzero(streams == one) if len(values) else np.arange(len(streams))
        here = here[np.argsort(launch[here], kind="stable")]
        reached = np.maximum.accumulate(operations.end_ns[here])
        ahead = np.minimum.accumulate(operations.start_ns[here][::-1])[::-1]
        mine = np.flatnonzero(stream == one)
        earlier = np.searchsorted(launch[here], replays.launch_ns[chosen[mine]], side="left")
        later = np.searchsorted(launch[here], replays.launch_ns[chosen[mine]], side="right")
        known = mine[earlier > 0]
        before[known] = reached[earlier[earlier > 0] - 1]
        known = mine[later < len(here)]
        behind[known] = ahead[later[later < len(here)]]
    return before, behind


def _bursts(
    lo: IntArray,
    hi: IntArray,
    boundary: np.ndarray,
    step_first: IntArray,
    host_start: IntArray,
    host_end: IntArray,
) -> tuple[np.ndarray, int]:
    """Which boundary gaps hold inter-burst idle, and how much in all."""
    burst = np.zeros(len(lo), bool)
    at = np.flatnonzero(boundary)
    if not len(at):
        return burst, 0
    length = hi - lo
    firsts = np.sort(step_first[step_first > 0])
    boundary_of = np.searchsorted(firsts, lo[at], side="right")
    longest = np.zeros(int(boundary_of.max()) + 1, np.int64)
    np.maximum.at(longest, boundary_of, length[at])
    threshold = max(INTER_BURST_FLOOR_NS, INTER_BURST_FACTOR * float(np.median(longest[longest > 0])))
    under_way = merge(host_start, np.maximum(host_start, host_end))
    total = 0
    for i in at[length[at] > threshold].tolist():
        free = outside_length(int(lo[i]), int(hi[i]), *under_way)
        burst[i] = free > 0
        total += free
    return burst, total
