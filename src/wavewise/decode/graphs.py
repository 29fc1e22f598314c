"""Which graph each replay is of, and which replays lost records.

A graph is fixed when it is captured, so every replay of it has the same operations. A replay whose operations
are a strict part of another's has lost records: the profiler's buffer overflowed, or the file is damaged.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from wavewise.decode.alignment import AlignmentBudget, Delays, Hole, Recorded, missing_from
from wavewise.decode.intervals import union_length

_CANDIDATES = 16
"""Larger graphs that a replay is compared with: bounds the work on recordings of thousands of graphs."""

_BY_CHANCE = 3
"""How often the same loss may recur by chance, since layers are alike."""

_ALIKE = 0.5
"""Two damaged replays of one graph share at least this share of their operations."""

_NOT_REPLACED = 0.75
"""... and this share of the difference is missing by name too: another captured size launches the same names."""

_FITS = 0.8
"""Durations vary from replay to replay: room for this share of what is lacking is room enough."""

_SAMPLES = 8
"""Replays of a graph that are looked at to tell whether it is one."""

_MUCH = 0.1
"""Share of a graph's time that must be lacking before its room tells anything: neighbours overlap by some."""


@dataclass(frozen=True, slots=True)
class Matched:
    """One entry a replay; see `Replays` for the meaning."""

    graph: np.ndarray
    size: np.ndarray
    complete: np.ndarray
    first_lost: np.ndarray
    holes: tuple[tuple[Hole, ...] | None, ...]


@dataclass(slots=True)
class _Signature:
    """Replays with the same operations."""

    replays: list[int]
    shapes: Counter[int]
    names: Counter[int]
    size: int
    geometry: bool
    whole: int
    damaged: bool = False


class _Order:
    """The replays in launch order."""

    def __init__(self, replays: list[int]) -> None:
        self.replays = replays
        self.position = {replay: at for at, replay in enumerate(replays)}

    def nearest(self, replay: int, signature: _Signature) -> int:
        """The replay of a signature that was launched nearest to `replay`; a signature's are in launch order."""
        at = bisect_left(signature.replays, self.position[replay], key=self.position.__getitem__)
        return min(
            signature.replays[max(0, at - 1) : at + 1],
            key=lambda other: abs(self.position[other] - self.position[replay]),
        )


def match(recorded: list[Recorded], order: list[int], count: int) -> Matched:
    """Matches replays with graphs.

    Two different graphs can also be part and whole (a one-layer draft model and its target); see
    `_graph_of_its_own`. Where no replay of a graph is complete, damaged ones betray each other: each has
    operations that the other lacks.

    Args:
        recorded: the recorded operations of each replay that has any.
        order: the indices of `recorded` in launch order.
        count: how many replays there are, those without any recorded operation included (at the end).
    """
    signatures = _signatures(recorded, order)
    launched = _Order(order)
    _find_wholes(signatures, recorded, launched)
    _find_damaged(signatures)
    graph = np.full(count, -1, np.int64)
    size = np.full(count, -1, np.int64)
    complete, first_lost = np.zeros(count, bool), np.ones(count, bool)
    holes: list[tuple[Hole, ...] | None] = [None] * count
    budget = AlignmentBudget()
    delays: dict[int, Delays] = {}
    for at, signature in enumerate(signatures):
        whole = signatures[signature.whole]
        for replay in signature.replays:
            graph[replay], size[replay] = signature.whole, whole.size
            complete[replay] = signature.whole == at and not whole.damaged
            if complete[replay]:
                first_lost[replay], holes[replay] = False, ()
                continue
            near = launched.nearest(replay, whole)
            if whole.damaged:
                first_lost[replay] = recorded[replay].shape[0] != recorded[near].shape[0]
            else:
                if signature.whole not in delays:
                    delays[signature.whole] = Delays.of([recorded[i] for i in whole.replays])
                first_lost[replay], holes[replay] = missing_from(
                    recorded[replay], recorded[near], delays[signature.whole], budget
                )
    return Matched(graph=graph, size=size, complete=complete, first_lost=first_lost, holes=tuple(holes))


def _signatures(recorded: list[Recorded], order: list[int]) -> list[_Signature]:
    """Largest first."""
    groups: dict[bytes, list[int]] = {}
    for replay in order:
        groups.setdefault(np.sort(recorded[replay].shape).tobytes(), []).append(replay)
    ordered = sorted(groups.values(), key=lambda replays: -len(recorded[replays[0]].shape))
    return [
        _Signature(
            replays=replays,
            shapes=Counter(recorded[replays[0]].shape.tolist()),
            names=Counter(recorded[replays[0]].name.tolist()),
            size=len(recorded[replays[0]].shape),
            geometry=recorded[replays[0]].geometry,
            whole=at,
        )
        for at, replays in enumerate(ordered)
    ]


def _find_wholes(signatures: list[_Signature], recorded: list[Recorded], order: _Order) -> None:
    """Sets `whole` of the signatures that are a part of a larger one."""
    having: dict[int, list[int]] = defaultdict(list)
    for at, small in enumerate(signatures):
        rarest = min(small.shapes, key=lambda shape: len(having[shape]))
        for other in having[rarest][:_CANDIDATES]:
            large = signatures[other]
            if (
                large.size > small.size
                and small.shapes <= large.shapes
                and not _graph_of_its_own(small, large, recorded, order)
            ):
                small.whole = other
                break
        else:
            for shape in small.shapes:
                having[shape].append(at)


def _graph_of_its_own(small: _Signature, large: _Signature, recorded: list[Recorded], order: _Order) -> bool:
    """Whether a part is a graph of its own, not a replay that lost records.

    Lost records do not recur so exactly: a graph that follows the larger one the same number of times each time
    (a draft model) is its own, unless the engine says that both did the same work: a draft is not a decode step by
    itself. And lost operations took their time: a replay that leaves no room for what it lacks did not lose it.
    Without launch geometry names alone must do, and graphs of two captured sizes can differ by a few operations:
    there even a little counts, if the part recurs often or in a row. Where the profiler gives both the same graph
    id, they are one graph whatever recurs.
    """
    if _ids(small, recorded) & _ids(large, recorded):
        return False
    if len(small.replays) > 1:
        if not small.geometry and small.size * 2 > large.size:
            at = sorted(order.position[replay] for replay in small.replays)
            in_a_row = at[-1] - at[0] == len(at) - 1
            often = len(small.replays) >= len(large.replays) / 2
            return (in_a_row or often) and _no_room(small, large, recorded, order, 0.0)
        if _alternates(small, large, order) and not _same_work(small, large, recorded):
            return True
    return _no_room(small, large, recorded, order, _MUCH)


def _ids(signature: _Signature, recorded: list[Recorded]) -> set[int]:
    return {recorded[replay].graph_id for replay in signature.replays} - {-1}


def _same_work(small: _Signature, large: _Signature, recorded: list[Recorded]) -> bool:
    """Whether the markers say of every small replay what they say of a large one."""
    mine = {recorded[replay].work for replay in small.replays}
    return -1 not in mine and mine <= {recorded[replay].work for replay in large.replays}


def _no_room(
    small: _Signature, large: _Signature, recorded: list[Recorded], order: _Order, much: float
) -> bool:
    """Whether what the small replays lack (`much` of the whole or more) does not fit where it is missing."""
    whole = recorded[large.replays[0]]
    on_main = whole.stream == whole.main
    durations = (whole.end_ns - whole.start_ns)[on_main].tolist()
    lacking = large.shapes - small.shapes
    missing_ns = 0
    for shape, duration in zip(whole.shape[on_main].tolist(), durations, strict=True):
        if lacking[shape] > 0:
            lacking[shape] -= 1
            missing_ns += duration
    if missing_ns < much * sum(durations):
        return False
    delays = Delays.of([recorded[replay] for replay in large.replays[:_SAMPLES]])
    rooms = [
        room
        for replay in small.replays[:_SAMPLES]
        if (room := _room(recorded[replay], recorded[order.nearest(replay, large)], delays)) is not None
    ]
    return bool(rooms) and float(np.median(rooms)) < _FITS * missing_ns


def _room(one: Recorded, whole: Recorded, delays: Delays) -> int | None:
    """How long the holes of a replay are; None where one reaches to an edge of the recording."""
    _, holes = missing_from(one, whole, delays, AlignmentBudget())
    total = 0
    for lo, hi in holes or ((None, None),):
        lo, hi = one.before_ns if lo is None else lo, one.behind_ns if hi is None else hi
        if min(lo, hi) < 0:
            return None
        total += max(0, hi - lo)
    return total - (0 if holes else union_length(one.start_ns, one.end_ns))


def _alternates(small: _Signature, large: _Signature, order: _Order) -> bool:
    """Whether the same number of small replays stands between any two large ones."""
    if len(large.replays) < 2:
        return False
    mine, theirs = set(small.replays), set(large.replays)
    between: list[int] = []
    run: int | None = None
    for replay in order.replays:
        if replay in theirs:
            if run is not None:
                between.append(run)
            run = 0
        elif replay in mine and run is not None:
            run += 1
    return bool(between) and between[0] > 0 and len(set(between)) == 1


def _find_damaged(signatures: list[_Signature]) -> None:
    """Marks graphs of which every replay lost records: none recurs often, and they complement each other."""
    single = [
        s for at, s in enumerate(signatures) if s.whole == at and len(s.replays) <= _BY_CHANCE and s.geometry
    ]
    leaders: list[_Signature] = []
    for one in single:
        for leader in leaders[:_CANDIDATES]:
            if _complement(one, leader):
                one.whole = leader.whole
                leader.damaged = True
                break
        else:
            leaders.append(one)


def _complement(one: _Signature, other: _Signature) -> bool:
    """Whether two replays are nearly the same, and lack what the other has rather than replacing it."""
    shared = (one.shapes & other.shapes).total()
    if shared < _ALIKE * max(one.size, other.size):
        return False
    by_shape = one.size + other.size - 2 * shared
    mine, theirs = (one.names - other.names).total(), (other.names - one.names).total()
    return min(mine, theirs) > 0 and mine + theirs >= _NOT_REPLACED * by_shape
