"""Steps from structure alone: graph replays, their periodicity, and the eager work between them."""

from dataclasses import dataclass

import numpy as np

from wavewise.decode.intervals import IntArray
from wavewise.decode.replays import BEFORE_RECORDING, Operations, Replays

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


def phase(replays: Replays, known: IntArray, lag: int) -> int:
    """Which replay of the period comes first: the one with the longest median gap before it."""
    if lag == 1:
        return 0
    gap = replays.start_ns[known][1:] - replays.end_ns[known][:-1]
    before = [gap[(position - 1) % lag :: lag] for position in range(lag)]
    return int(np.argmax([float(np.median(gaps)) if len(gaps) else 0.0 for gaps in before]))


def structural_steps(operations: Operations, replays: Replays) -> StructuralSteps:
    """Segments by replays; eager work that is far more than what usually stands between them is a step too.

    Usual eager work (sampling, input copies) goes to the step of the replay before it. The limit, twice the
    median number of operations plus 4, lets sampling vary and still sees a prefill, which launches several
    kernels per layer. Replays launched before the recording began make no step: nothing tells where they began.
    """
    known = np.flatnonzero(replays.launch_ns > BEFORE_RECORDING)
    lag = period(replays.graph[known])
    first = phase(replays, known, lag)
    starting = range(first - lag if first else 0, len(known), lag)
    groups = [tuple(int(i) for i in known[max(0, at) : at + lag]) for at in starting if at + lag > 0]
    eager = np.sort(operations.launch_ns[operations.replay < 0])
    starts = np.array([replays.launch_ns[group[0]] for group in groups], np.int64)
    at = np.searchsorted(starts, eager, side="right")
    between = np.bincount(at, minlength=len(groups) + 1)
    usual = float(np.median(between[1:-1])) if len(groups) > 1 else float(between[1:].max(initial=0))
    limit = 2 * usual + 4
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
