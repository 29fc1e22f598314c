"""Arithmetic on sets of intervals: unions, gaps, containment. All in integer nanoseconds, all vectorised."""

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
"""One-dimensional int64 array."""


def union_length(start: IntArray, end: IntArray) -> int:
    """Length of the union of the intervals [start, end); the arrays need not be sorted."""
    if len(start) == 0:
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(reached - np.maximum(start, before), 0).sum())


def grouped_union(group: IntArray, start: IntArray, end: IntArray, groups: int) -> IntArray:
    """Union length of the intervals of each group.

    Args:
        group: group of each interval, 0 <= group < groups.
        start, end: the intervals.
        groups: how many groups there are.

    Returns:
        int64 array of length `groups`.
    """
    result = np.zeros(groups, dtype=np.int64)
    if len(start) == 0:
        return result
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    # A group's intervals are lifted above all those before it, so that one running maximum serves every group.
    low = int(start.min())
    lift = group.astype(np.int64) * (int(end.max()) - low + 1)
    start, end = start - low + lift, end - low + lift
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    covered = np.maximum(reached - np.maximum(start, before), 0)
    np.add.at(result, group, covered)
    return result


def gaps(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """The maximal gaps between the first start and the last end, in time order."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)[:-1]
    following = start[1:]
    real = following > reached
    return reached[real], following[real]


def neighbours(lane: IntArray, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """For each interval the last end before it and the next start behind it in its lane, -1 where there is none.

    Args:
        lane: what runs in order: the stream of each interval.
        start, end: the intervals, sorted by start.
    """
    before, behind = np.full(len(lane), -1, np.int64), np.full(len(lane), -1, np.int64)
    order = np.argsort(lane, kind="stable")
    same = lane[order][1:] == lane[order][:-1]
    reached = end[order]
    for piece in np.split(np.arange(len(lane)), np.flatnonzero(~same) + 1):
        reached[piece] = np.maximum.accumulate(reached[piece])
    before[order[1:][same]] = reached[:-1][same]
    behind[order[:-1][same]] = start[order[1:][same]]
    return before, behind


def merge(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """The union as disjoint intervals in time order."""
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return start[first], reached[last]


def inside_any(gap_start: IntArray, gap_end: IntArray, start: IntArray, end: IntArray) -> np.ndarray:
    """Which gaps lie wholly inside at least one of the intervals."""
    if len(start) == 0 or len(gap_start) == 0:
        return np.zeros(len(gap_start), dtype=bool)
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    at = np.searchsorted(start, gap_start, side="right") - 1
    return (at >= 0) & (reached[np.maximum(at, 0)] >= gap_end)


def outside_length(lo: int, hi: int, start: IntArray, end: IntArray) -> int:
    """How much of [lo, hi) the (disjoint, sorted) intervals leave uncovered."""
    covered = np.minimum(end, hi) - np.maximum(start, lo)
    return hi - lo - int(np.maximum(covered, 0).sum())


def subtract(lo: IntArray, hi: IntArray, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """What the (disjoint, sorted) intervals [start, end) leave of the (disjoint, sorted) stretches [lo, hi)."""
    if len(start) == 0 or len(lo) == 0:
        return lo, hi
    # Both sets end where the other begins: between neighbouring edges either all is left or nothing.
    edges = np.unique(np.concatenate([lo, hi, start, end]))
    left, right = edges[:-1], edges[1:]
    inside = _covers(lo, hi, left) & ~_covers(start, end, left)
    # Edges of one stretch that nothing was taken from must not break it in two.
    begins = inside & (np.concatenate([[True], ~inside[:-1]]) | np.isin(left, lo))
    ends = inside & (np.concatenate([~inside[1:], [True]]) | np.isin(right, hi))
    return left[begins], right[ends]


def _covers(start: IntArray, end: IntArray, at: IntArray) -> np.ndarray:
    """Whether the disjoint, sorted intervals hold each instant."""
    before = np.searchsorted(start, at, side="right") - 1
    return (before >= 0) & (end[np.maximum(before, 0)] > at)
