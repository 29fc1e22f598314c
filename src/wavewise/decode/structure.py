"""Steps from structure alone: graph replays, their periodicity, and the eager work between them."""

from dataclasses import dataclass

import numpy as np

from wavewise.decode.intervals import IntArray
from wavewise.decode.replays import Operations, Replays

_MAX_PERIOD = 512
"""Longest pattern of replays looked for within one step (piecewise graphs: a few per layer)."""

_PERIODIC_SHARE = 0.95
"""Share of replays that must repeat after one period before a step is said to hold several replays."""


@dataclass(frozen=True, slots=True)
class StructuralSteps:
    """Steps without markers.

    Attributes:
        bounds_ns: int64, launch time from which on operations belong to step i; ascending.
        replays: for each step the indices of its replays; empty for a stretch of eager work.
    """

    bounds_ns: IntArray
    replays: tuple[tuple[int, ...], ...]


def period(graph: IntArray) -> int:
    """How many replays make one step: the shortest lag at which the sequence of graphs repeats itself.

    One replay per step is the rule; a longer period is accepted only if it explains the sequence clearly better,
    since a changing batch also makes graphs alternate.
    """
    n = len(graph)
    best, best_share = 1, _repeating(graph, 1) if n > 1 else 1.0
    for lag in range(2, min(n // 2, _MAX_PERIOD) + 1):
        share = _repeating(graph, lag)
        if share >= _PERIODIC_SHARE and share > best_share + 0.01 and len(set(graph[:lag].tolist())) > 1:
            best, best_share = lag, share
    return best


def _repeating(graph: IntArray, lag: int) -> float:
    """Share of replays whose graph is the same again `lag` replays later."""
    return int(np.count_nonzero(graph[lag:] == graph[:-lag])) / (len(graph) - lag)


def phase(replays: Replays, lag: int) -> int:
    """Which replay of the period comes first: the one with the longest median gap before it."""
    if lag == 1:
        return 0
    gap = replays.start_ns[1:] - replays.end_ns[:-1]
    medians = [
        float(np.median(gap[(p - 1) % lag :: lag])) if len(gap[(p - 1) % lag :: lag]) else 0.0
        for p in range(lag)
    ]
    return int(np.argmax(medians))


def structural_steps(operations: Operations, replays: Replays) -> StructuralSteps:
    """Segments by replays; eager work that is far more than what usually stands between them is a step too.

    Usual eager work (sampling, input copies) goes to the step of the replay before it. The limit, twice the
    median number of operations plus 16, lets sampling vary and still sees a prefill, which launches hundreds.
    """
    lag = period(replays.graph)
    first = phase(replays, lag)
    groups = [
        tuple(range(max(0, at), min(at + lag, len(replays))))
        for at in range(first - lag if first else 0, len(replays), lag)
    ]
    groups = [group for group in groups if group]
    eager = np.sort(operations.launch_ns[operations.replay < 0])
    starts = np.array([replays.launch_ns[group[0]] for group in groups], np.int64)
    at = np.searchsorted(starts, eager, side="right")
    between = np.bincount(at, minlength=len(groups) + 1)
    usual = float(np.median(between[1:-1])) if len(groups) > 1 else float(between[1:].max(initial=0))
    limit = 2 * usual + 16
    bounds: list[int] = []
    members: list[tuple[int, ...]] = []
    offsets = np.concatenate([[0], np.cumsum(between)])
    for i in range(len(groups) + 1):
        if i > 0:
            bounds.append(int(starts[i - 1]))
            members.append(groups[i - 1])
        if between[i] > limit:
            skip = int(usual) if i > 0 else 0
            bounds.append(int(eager[offsets[i] + skip]))
            members.append(())
    return StructuralSteps(bounds_ns=np.array(bounds, np.int64), replays=tuple(members))
