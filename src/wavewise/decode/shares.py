"""Who uses the busy time: one sweep over all start and end points gives busy, exclusive and shared time.

Between two neighbouring points the set of running families is constant. A segment in which k families run
counts whole to the busy time of each, whole to the exclusive time of the one if k = 1, and 1/k to the share of
each, so that shares add up to the busy time exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from wavewise.decode.intervals import IntArray

_CHUNK_POINTS = 400_000
"""Points handled at once: bounds the points x families table to some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class FamilyTime:
    """Time by group (a step) and family; arrays [groups, families].

    Attributes:
        sum_ns: int64, durations added.
        busy_ns: int64, union of the family's own intervals.
        exclusive_ns: int64, time in which no other family runs.
        shared_ns: float64, overlapped time split equally.
        launches: int64.
        total_busy_ns: int64 [groups], union over all families.
    """

    sum_ns: np.ndarray
    busy_ns: np.ndarray
    exclusive_ns: np.ndarray
    shared_ns: np.ndarray
    launches: np.ndarray
    total_busy_ns: IntArray

    @classmethod
    def concatenate(cls, parts: Sequence["FamilyTime"]) -> "FamilyTime":
        """The groups of all parts, in order."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


def family_time(
    group: IntArray, family: IntArray, start: IntArray, end: IntArray, groups: int, families: int
) -> FamilyTime:
    """Splits the busy time of each group among families.

    Args:
        group, family: of each operation; 0 <= group < groups, 0 <= family < families.
        start, end: of each operation, ns.
        groups, families: how many there are.
    """
    result = FamilyTime(
        sum_ns=np.zeros((groups, families), np.int64),
        busy_ns=np.zeros((groups, families), np.int64),
        exclusive_ns=np.zeros((groups, families), np.int64),
        shared_ns=np.zeros((groups, families)),
        launches=np.zeros((groups, families), np.int64),
        total_busy_ns=np.zeros(groups, np.int64),
    )
    np.add.at(result.sum_ns, (group, family), end - start)
    np.add.at(result.launches, (group, family), 1)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group, minlength=groups)
    last: IntArray = np.cumsum(sizes)
    at = 0
    while at < groups:
        # At least one group, else as many as fit the chunk.
        base = last[at] - sizes[at]
        upto = max(at + 1, int(np.count_nonzero(last <= base + _CHUNK_POINTS // 2)))
        members = order[base : last[upto - 1]]
        _sweep(result, group[members], family[members], start[members], end[members])
        at = upto
    return result


def _sweep(result: FamilyTime, group: IntArray, family: IntArray, start: IntArray, end: IntArray) -> None:
    if not len(group):
        return
    present, family = np.unique(family, return_inverse=True)
    n = len(group)
    point = np.concatenate([start, end])
    owner = np.concatenate([group, group])
    order = np.lexsort((point, owner))
    point, owner = point[order], owner[order]
    length = np.where(owner[1:] == owner[:-1], point[1:] - point[:-1], 0)
    change = np.zeros((len(present), 2 * n), np.int32)
    change[np.concatenate([family, family])[order], np.arange(2 * n)] = np.where(order < n, 1, -1)
    # Every group ends with nothing running, so one running sum serves all groups. One family a row: the sums
    # then run along memory.
    running = np.cumsum(change, axis=1)[:, :-1] > 0
    count = running.sum(axis=0)
    bounds = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    where = owner[bounds]
    bounds = np.minimum(bounds, len(length) - 1)
    alone, split = length * (count == 1), length / np.maximum(count, 1)
    for column, mine in zip(present, running, strict=True):
        result.busy_ns[where, column] += np.add.reduceat(mine * length, bounds)
        result.exclusive_ns[where, column] += np.add.reduceat(mine * alone, bounds)
        result.shared_ns[where, column] += np.add.reduceat(mine * split, bounds)
    result.total_busy_ns[where] += np.add.reduceat(length * (count > 0), bounds)
