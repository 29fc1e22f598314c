"""Is a difference between two recordings more than noise?

Two things make equal builds differ. Steps of one recording scatter: an exact permutation test of the means
(R. A. Fisher, "The Design of Experiments", 1935) says whether the samples can be told apart, and a percentile
bootstrap (B. Efron, "Bootstrap methods: another look at the jackknife", 1979) how far the medians may lie
apart. And recordings scatter: clocks, placement and the profiler itself make every step of one run a little
slower than those of another, which no test on the steps of one recording can see. So a change also has to
exceed a floor: a share of the quantity, plus one tick of the GPU's time stamps per launch, or what repeated
recordings of one operating point show where there are any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

FLOOR_SHARE = 0.01
"""Recordings of equal work differ by up to this share. Measured on the shipped sweep: the families over 200
us per step whose work does not depend on the context differ by 0.1 to 0.6 % between its two recordings of
batch 64."""

TICK_NS = 32
"""Resolution of the GPU's time stamps: durations in the shipped H200 traces are multiples of 32 ns."""

ALPHA = 0.05
"""A difference counts when chance alone would give one as large in fewer than 1 of 20 pairs of recordings."""

_EXACT_LIMIT = 20_000
_LEAST_WAYS = 2_000
_CELLS = 4_000_000
"""Samples times permutations held at once; ten times that are drawn at most, as long as `_LEAST_WAYS` are."""

_BOOTSTRAP = 2_000
_REPEAT_SIGMAS = 2.0
_SEED = 20_261_129
"""Fixed, so that the same two inputs always get the same verdict."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The test of one quantity.

    Attributes:
        change: difference of the medians, after minus before.
        interval: 95 % bootstrap interval of `change`.
        p_value: None where no two samples differ or there are too few to tell anything.
        verdict: "up", "down", "noise", "same" or "unclear".
    """

    before: float
    after: float
    change: float
    interval: tuple[float, float]
    p_value: float | None
    floor: float
    verdict: str
    reason: str | None = None


def compare(before: Floats, after: Floats, floors: Floats) -> list[Comparison]:
    """Compares quantities by their samples.

    Args:
        before: [quantities, steps before].
        after: [quantities, steps after], in the same units.
        floors: [quantities], the least change that counts.

    Returns:
        One comparison for each quantity.
    """
    median_before, median_after = np.median(before, axis=1), np.median(after, axis=1)
    low, high = _bootstrap(before, after)
    p_values, least = _permutation(before, after)
    results: list[Comparison] = []
    for i in range(len(before)):
        change = float(median_after[i] - median_before[i])
        beyond_floor = abs(change) > floors[i]
        verdict, reason = "noise", None
        if np.array_equal(np.sort(before[i]), np.sort(after[i])):
            verdict = "same"
        elif beyond_floor and least > ALPHA:
            verdict = "unclear"
            reason = f"{before.shape[1]} and {after.shape[1]} clean steps are too few to tell it from noise"
        elif beyond_floor and p_values[i] <= ALPHA:
            verdict = "up" if change > 0 else "down"
        results.append(
            Comparison(
                before=float(median_before[i]),
                after=float(median_after[i]),
                change=change,
                interval=(float(low[i]), float(high[i])),
                p_value=float(p_values[i]),
                floor=float(floors[i]),
                verdict=verdict,
                reason=reason,
            )
        )
    return results


def floor(value: float, launches: float, share: float, tick: float) -> float:
    """The least change of a median that counts without repeats: a share of it plus a tick per launch."""
    return share * abs(value) + tick * launches


def repeat_floor(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Twice the standard error of the difference as repeated recordings show it; None without repeats.

    Args:
        before: the median of each recording before.
        after: the median of each recording after.
    """
    if len(before) < 2 or len(after) < 2:
        return None
    squares = sum(float(np.var(values) * len(values)) for values in (before, after))
    pooled = squares / (len(before) + len(after) - 2)
    return _REPEAT_SIGMAS * float(np.sqrt(pooled * (1 / len(before) + 1 / len(after))))


def _permutation(before: Floats, after: Floats) -> tuple[Floats, float]:
    """Two-sided p-values of the difference of means, and the least that these sample sizes allow."""
    n, m = before.shape[1], after.shape[1]
    pooled = np.concatenate([before, after], axis=1)
    pooled -= pooled.mean(axis=1, keepdims=True)  # the differences stay, the rounding of large sums does not
    observed = np.abs(pooled[:, :n].mean(axis=1) - pooled[:, n:].mean(axis=1))[:, None]
    # Equal sums in another order may differ in the last digits of the samples: they count as reached.
    rounding = 1e-12 * np.maximum(np.abs(before).max(axis=1), np.abs(after).max(axis=1))[:, None]
    chosen = _choices(n, m)
    reached = np.zeros(len(pooled))
    rows = max(1, _CELLS // (n + m))
    for first in range(0, len(chosen), rows):
        sums = pooled @ chosen[first : first + rows].T.astype(np.float64)
        # The pooled mean is 0, so what was not chosen sums to the negative.
        reached += (np.abs(sums) * (1 / n + 1 / m) >= observed - rounding).sum(axis=1)
    if comb(n + m, n) <= _EXACT_LIMIT:
        return reached / len(chosen), (2 if n == m else 1) / len(chosen)
    return (reached + 1) / (len(chosen) + 1), 1 / (len(chosen) + 1)


@lru_cache(maxsize=4)
def _choices(n: int, m: int) -> NDArray[np.bool_]:
    """[ways, n + m]: which samples are called "before", in every way or in a fixed random sample of the ways."""
    if comb(n + m, n) <= _EXACT_LIMIT:
        places = np.array(list(combinations(range(n + m), n)), np.int64)
        chosen = np.zeros((len(places), n + m), np.bool_)
        np.put_along_axis(chosen, places, True, axis=1)
        return chosen
    ways = min(_EXACT_LIMIT, max(_LEAST_WAYS, 10 * _CELLS // (n + m)))
    base = np.arange(n + m) < n
    return np.random.default_rng(_SEED).permuted(np.broadcast_to(base, (ways, n + m)), axis=1)


def _bootstrap(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """95 % percentile intervals of the change of the median."""
    rng = np.random.default_rng(_SEED)
    change = _resampled_medians(after, rng) - _resampled_medians(before, rng)
    low, high = np.percentile(change, [2.5, 97.5], axis=1)
    return low, high


def _resampled_medians(samples: Floats, rng: np.random.Generator) -> Floats:
    """[quantities, replicates]: medians of resamples of the same size, drawn without drawing the resamples.

    A resample is n uniform places among the sorted samples, so its middle place is the middle order statistic of
    n uniform numbers, which is Beta distributed; for even n the next place is the least of the n/2 above it
    (H. A. David, H. N. Nagaraja, "Order Statistics", 2003, sections 2.1 and 2.5). The cost so does not grow
    with the number of steps.
    """
    n = samples.shape[1]
    ordered = np.sort(samples, axis=1)
    half = n // 2
    if n % 2:
        return ordered[:, _places(rng.beta(half + 1, half + 1, _BOOTSTRAP), n)]
    lower = rng.beta(half, half + 1, _BOOTSTRAP)
    upper = lower + (1 - lower) * rng.beta(1, half, _BOOTSTRAP)
    return (ordered[:, _places(lower, n)] + ordered[:, _places(upper, n)]) / 2


def _places(uniform: Floats, n: int) -> NDArray[np.int64]:
    return np.minimum((uniform * n).astype(np.int64), n - 1)
