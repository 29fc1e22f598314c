"""Where in a replay records are missing: the recorded operations laid beside a complete replay of the graph.

Layers repeat, so names alone do not tell which of sixty equal operations was lost; time does. Of all ways to lay
the recorded operations of a stream onto the complete replay's, in order and like on like, the one is taken whose
distances in time differ least, the distances to the work before and behind the replay included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavewise.decode.intervals import IntArray

Hole = tuple[int | None, int | None]
"""From ... to, in ns; None where it reaches to the work before or behind the replay."""

_BUDGET, _PER_OPERATION = 5_000_000, 50
"""Work in all, in comparisons of candidate pairs (an operation costs as much as 50): a second or two. Where
hundreds of replays lost records, those beyond it are laid out by order alone."""

_UNREACHABLE = np.iinfo(np.int64).max // 4


@dataclass(slots=True)
class AlignmentBudget:
    """What is left of the work that alignment may take, over all replays of a device."""

    left: int = _BUDGET


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded operations of one replay, in order of start.

    Attributes:
        shape: equal for operations of equal name and launch geometry.
        name: equal for operations of equal name.
        stream, start_ns, end_ns: of each.
        geometry: whether any has a grid.
        main: the stream of most of them.
        before_ns, behind_ns: end of the work before and start of the work behind it on its main stream, -1
            where there is none.
        launch_ns: when it was launched, -1 where that is not recorded.
        graph_id: the profiler's id of its graph, -1 where it gives none.
        work: equal for replays that the engine's markers say the same of: each the only replay of a decode step,
            of equal requests and tokens. -1 where no marker does.
    """

    shape: IntArray
    name: IntArray
    stream: IntArray
    start_ns: IntArray
    end_ns: IntArray
    geometry: bool
    main: int
    before_ns: int
    behind_ns: int
    launch_ns: int
    graph_id: int = -1
    work: int = -1


@dataclass(frozen=True, slots=True)
class Delays:
    """How soon a replay starts behind the work before it, and behind its launch; None where nothing tells."""

    after_work_ns: int | None
    after_launch_ns: int | None

    @classmethod
    def of(cls, replays: Sequence[Recorded]) -> "Delays":
        """The shortest delays among complete replays."""
        starts = [int(one.start_ns[one.stream == one.main][0]) for one in replays]
        work = [
            start - one.before_ns for start, one in zip(starts, replays, strict=True) if one.before_ns > 0
        ]
        launch = [
            start - one.launch_ns for start, one in zip(starts, replays, strict=True) if one.launch_ns > 0
        ]
        return cls(min(work, default=None), min(launch, default=None))

    def expected(self, part: Recorded) -> int | None:
        """When a replay must have started: the GPU was free and the launch had arrived."""
        times = [
            before + delay
            for before, delay in (
                (part.before_ns, self.after_work_ns),
                (part.launch_ns, self.after_launch_ns),
            )
            if before > 0 and delay is not None
        ]
        return max(times, default=None)


def missing_from(
    part: Recorded, whole: Recorded, delays: Delays, budget: AlignmentBudget
) -> tuple[bool, tuple[Hole, ...] | None]:
    """Whether the first operation is missing, and the holes; no holes (None) where they cannot be told."""
    began = delays.expected(part)
    at = _lay(part, whole, began, budget)
    late = began is not None and len(whole.shape) > 1 and _late(part, whole, began)
    if at is None:
        return late or bool(part.shape[0] != whole.shape[0]), None
    missing = np.setdiff1d(np.arange(len(whole.shape)), at)
    main = whole.main
    holes = [_around(part, at, int(lost), None) for lost in missing if whole.stream[lost] != main]
    on_main = whole.stream == main
    mine = part.stream == main if set(part.stream.tolist()) <= set(whole.stream.tolist()) else None
    holes += [_around(part, at, int(lost), mine) for lost in missing if on_main[lost]]
    first_lost = bool(missing.size and missing[0] == 0) or (budget.left < 0 and late)
    return first_lost, tuple(dict.fromkeys(holes))


def _late(part: Recorded, whole: Recorded, began: int) -> bool:
    """Whether a replay was first seen later than its second operation should have been."""
    return int(part.start_ns[0]) - began > int(whole.start_ns[1] - whole.start_ns[0])


def _around(part: Recorded, at: IntArray, lost: int, mine: np.ndarray | None) -> Hole:
    """The hole of one missing operation: between its recorded neighbours (among `mine`)."""
    chosen = np.ones(len(at), bool) if mine is None else mine
    before, behind = chosen & (at < lost), chosen & (at > lost)
    return (
        int(part.end_ns[before].max()) if before.any() else None,
        int(part.start_ns[behind].min()) if behind.any() else None,
    )


def _lay(part: Recorded, whole: Recorded, began: int | None, budget: AlignmentBudget) -> IntArray | None:
    """Position in `whole` of each operation of `part`; None where they cannot be laid out."""
    main = whole.main
    if not set(part.stream.tolist()) <= set(whole.stream.tolist()):
        return _lay_lane(
            part, whole, np.arange(len(part.shape)), np.arange(len(whole.shape)), None, began, budget
        )
    at = np.full(len(part.shape), -1, np.int64)
    offsets: tuple[IntArray, IntArray] | None = None
    streams = np.unique(part.stream).tolist()
    for stream in sorted(streams, key=lambda s: s != main):
        mine, theirs = np.flatnonzero(part.stream == stream), np.flatnonzero(whole.stream == stream)
        if stream != main and offsets is None:
            return None
        found = _lay_lane(part, whole, mine, theirs, offsets, began, budget)
        if found is None:
            return None
        at[mine] = found
        if stream == main:
            offsets = part.start_ns[mine], part.start_ns[mine] - whole.start_ns[found]
    return at


def _lay_lane(
    part: Recorded,
    whole: Recorded,
    mine: IntArray,
    theirs: IntArray,
    offsets: tuple[IntArray, IntArray] | None,
    began: int | None,
    budget: AlignmentBudget,
) -> IntArray | None:
    """Lays the operations of one stream.

    Args:
        part, whole: the replays.
        mine, theirs: their operations on the stream.
        offsets: (time in part, offset to whole) where the main stream is already laid out; without it the
            distances between neighbours count.
        began: when the replay must have started.
        budget: reduced by the work done.
    """
    slack = len(theirs) - len(mine)
    if slack < 0:
        return None
    shapes = whole.shape[theirs]
    budget.left -= _PER_OPERATION * len(mine)
    if budget.left < 0:
        found = _by_order(part.shape[mine], shapes)
        return None if found is None else theirs[found]
    start, reference = part.start_ns[mine], whole.start_ns[theirs]
    expected = None if offsets is None else start - np.interp(start, *offsets).astype(np.int64)
    cost = np.zeros(1, np.int64)
    before = np.full(1, -1, np.int64)
    back: list[tuple[IntArray, IntArray]] = []
    for i in range(len(mine)):
        here = i + np.flatnonzero(shapes[i : i + slack + 1] == part.shape[mine[i]])
        if not len(here):
            return None
        budget.left -= len(here) * len(before)
        reached = np.broadcast_to(cost, (len(here), len(cost)))
        if expected is None and i:
            distance = (reference[here][:, None] - reference[before][None, :]) - (start[i] - start[i - 1])
            reached = reached + np.abs(distance)
        reached = np.where(before[None, :] < here[:, None], reached, _UNREACHABLE)
        best = reached.argmin(axis=1)
        now = reached[np.arange(len(here)), best]
        if expected is not None:
            now = now + np.abs(reference[here] - expected[i])
        elif i == 0 and began is not None:
            now = now + np.abs((start[0] - began) - (reference[here] - reference[0]))
        back.append((here, best))
        keep = now < _UNREACHABLE
        if not keep.any():
            return None
        cost, before = np.where(keep, now, _UNREACHABLE), here
    if expected is None and min(part.behind_ns, whole.behind_ns) > 0:
        # There may be any pause behind a replay, but what it lacks at its end must have fitted in.
        cost = cost + np.maximum((whole.behind_ns - reference[before]) - (part.behind_ns - start[-1]), 0)
    result = np.empty(len(mine), np.int64)
    choice = int(cost.argmin())
    for i in range(len(mine) - 1, -1, -1):
        here, best = back[i]
        result[i] = here[choice]
        choice = int(best[choice])
    return theirs[result]


def _by_order(part: IntArray, whole: IntArray) -> IntArray | None:
    """Lays equal on equal as early as possible, a stretch at a time; None where the order does not allow it."""
    result = np.empty(len(part), np.int64)
    i = j = 0
    while i < len(part):
        ahead = np.flatnonzero(whole[j:] == part[i])
        if not len(ahead):
            return None
        j += int(ahead[0])
        length = min(len(part) - i, len(whole) - j)
        unlike = np.flatnonzero(part[i : i + length] != whole[j : j + length])
        length = int(unlike[0]) if len(unlike) else length
        result[i : i + length] = np.arange(j, j + length)
        i, j = i + length, j + length
    return result
