"""Steps from structure alone: graph replays, their periodicity, and the eager work between them."""

from dataclasses import dataclass

import numpy as np

from wavewise.decode.intervals import IntArray
from wavewise.decode.replays import BEFORE_RECORDING, Operations, Replays

_MAX_PERIOD = 512
"""Longest pattern of replays looked for within one step (piecewise graphs: a few per layer)."""

_PERIODIC_SHARE = 0.95
"""Share of replays that must repeat after one period before a step is said to hold several replays."""

_CLEARLY = 2
"""How much longer the GPU must wait before another replay than before the first recorded one to begin steps there."""

_LARGE_FACTOR, _LARGE_MORE = 2, 4
"""Eager work of more than 2 x the usual number of operations + 4 is a step of its own: sampling varies less, and
a prefill launches several kernels per layer."""

_LONG_FACTOR = 4
"""... and so are kernels that run for over 4 x the usual time and half a replay."""


@dataclass(frozen=True, slots=True)
class StructuralSteps:
    """Steps without markers.

    Attributes:
        bounds_ns: int64, launch time from which on operations belong to step i; ascending.
        replays: for each step the indices of its replays; empty for a stretch of eager work.
    """

    bounds_ns: IntArray
    replays: tuple[tuple[int, ...], ...]


def period(graph: IntArray, size: IntArray) -> int:
    """How many replays make one step: the shortest lag at which the sequence of replays repeats itself.

    One replay per step is the rule; a longer period is accepted only if it explains the sequence clearly better,
    since a changing batch also makes graphs alternate. Where the batch changes within longer steps, the graphs do
    not repeat, but their sizes do.

    Args:
        graph: graph of each replay.
        size: how many operations that graph has.
    """
    by_graph = _period(graph)
    return by_graph if by_graph > 1 else _period(size)


def _period(sequence: IntArray) -> int:
    n = len(sequence)
    best, best_share = 1, _repeating(sequence, 1) if n > 1 else 1.0
    for lag in range(2, min(n // 2, _MAX_PERIOD) + 1):
        share = _repeating(sequence, lag)
        if share >= _PERIODIC_SHARE and share > best_share + 0.01 and len(set(sequence[:lag].tolist())) > 1:
            best, best_share = lag, share
    return best


def _repeating(sequence: IntArray, lag: int) -> float:
    """Share of replays that are the same again `lag` replays later; -1 (unknown) is the same as any."""
    now, later = sequence[:-lag], sequence[lag:]
    return int(np.count_nonzero((now == later) | (now < 0) | (later < 0))) / len(now)


def phase(replays: Replays, known: IntArray, lag: int) -> int:
    """Which replay of the period comes first: the one before which the GPU clearly waits longest, else the first."""
    if lag == 1:
        return 0
    gap = replays.start_ns[known][1:] - replays.end_ns[known][:-1]
    before = [gap[(position - 1) % lag :: lag] for position in range(lag)]
    waits = np.array([float(np.median(gaps)) if len(gaps) else 0.0 for gaps in before])
    longest = int(waits.argmax())
    return longest if waits[longest] > _CLEARLY * max(float(waits[0]), 0.0) else 0


def structural_steps(operations: Operations, replays: Replays) -> StructuralSteps:
    """Segments by replays; eager work that is far more than what usually stands between them is a step too.

    Usual eager work (sampling, input copies) goes to the step of the replay before it. Replays launched before the
    recording began make no step: nothing tells where they began.
    """
    known = np.flatnonzero(replays.launch_ns > BEFORE_RECORDING)
    lag = period(replays.graph[known], replays.size[known])
    first = phase(replays, known, lag)
    starting = range(first - lag if first else 0, len(known), lag)
    groups = [tuple(int(i) for i in known[max(0, at) : at + lag]) for at in starting if at + lag > 0]
    starts = np.array([replays.launch_ns[group[0]] for group in groups], np.int64)
    eager = np.flatnonzero(operations.replay < 0)
    eager = eager[np.argsort(operations.launch_ns[eager], kind="stable")]
    launched = operations.launch_ns[eager]
    at = np.searchsorted(starts, launched, side="right")
    between = np.bincount(at, minlength=len(groups) + 1)
    usual = _usual(between)
    large = (between > _LARGE_FACTOR * usual + _LARGE_MORE) | _long(
        operations, replays, known, eager, at, len(groups)
    )
    bounds: list[int] = []
    members: list[tuple[int, ...]] = []
    offsets = np.concatenate([[0], np.cumsum(between)])
    for i in range(len(groups) + 1):
        if i > 0:
            bounds.append(int(starts[i - 1]))
            members.append(groups[i - 1])
        if large[i] and between[i] > usual:
            skip = int(usual) if i > 0 else 0
            bounds.append(int(launched[offsets[i] + skip]))
            members.append(())
    return StructuralSteps(bounds_ns=np.array(bounds, np.int64), replays=tuple(members))


def _usual(between: IntArray) -> float:
    """What usually stands between two replays: the lower quartile, since every second step may be a prefill.

    Args:
        between: what stands before the first replay, between each two, and behind the last.
    """
    inner = between[1:-1]
    return (
        float(np.percentile(inner, 25, method="lower")) if len(inner) else float(between[1:].max(initial=0))
    )


def _long(
    operations: Operations, replays: Replays, known: IntArray, eager: IntArray, at: IntArray, groups: int
) -> np.ndarray:
    """Where the kernels between two replays run for long beyond the usual: longer than half a replay."""
    length = operations.end_ns[eager] - operations.start_ns[eager]
    length = np.where((operations.frame["kind"] == "kernel").to_numpy()[eager], length, 0)
    total = np.zeros(groups + 1, np.int64)
    np.add.at(total, at, length)
    spans = (replays.end_ns - replays.start_ns)[known]
    half = float(np.median(spans)) / 2 if len(spans) else 0.0
    return total > _LONG_FACTOR * _usual(total) + half
