"""How well a median of few samples is known.

Up to 15 samples: sample variance times the variance of a normal sample's median (the ratios below are exact
to the digits given; Hojo 1931, David & Nagaraja, Order Statistics, 3rd ed.). It needs no tail samples, of
which six clean steps have none, and errs on the wide side for long tails.
From 16 samples: the distribution-free estimate of Price & Bonett (2001), J. Statist. Comput. Simul. 68, 295,
whose linear functions of medians are those of Bonett & Price (2002), Psychological Methods 7, 370.
Either variance is known only with n - 1 degrees of freedom, so intervals use Student's t with the effective
degrees of freedom of Welch & Satterthwaite.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NORMAL_MEDIAN_VARIANCE = (
    1.0, 0.5, 0.448671, 0.298200, 0.286834, 0.214743, 0.210447, 0.168181,
    0.166101, 0.138326, 0.137162, 0.117516, 0.116799, 0.102168, 0.101695,
)  # fmt: skip
"""Variance of the median of n standard normal samples, n = 1 to 15, by numerical integration."""


@lru_cache(maxsize=256)
def _price_bonett(n: int) -> tuple[int, float]:
    """Which order statistics (c-th and its mirror image) and the normal quantile that goes with them."""
    c = max(1, round((n + 1) / 2 - math.sqrt(n)))
    tail = sum(math.comb(n, i) for i in range(c)) / 2**n
    return c, NormalDist().inv_cdf(1.0 - tail)


def median_variance(samples: Floats) -> Floats:
    """Estimated variance of the median of each column.

    Args:
        samples: [n, S], n samples of S quantities.

    Returns:
        [S], in the samples' unit squared; NaN for n = 1, from which no scatter can be told.
    """
    n = samples.shape[0]
    if n == 1:
        return np.asarray([np.nan] * samples.shape[1], dtype=np.float64)
    if n <= len(_NORMAL_MEDIAN_VARIANCE):
        return np.asarray(samples.var(axis=0, ddof=1) * _NORMAL_MEDIAN_VARIANCE[n - 1], dtype=np.float64)
    c, quantile = _price_bonett(n)
    ordered = np.sort(samples, axis=0)
    return np.asarray(((ordered[n - c] - ordered[c - 1]) / (2.0 * quantile)) ** 2, dtype=np.float64)


def combined_dof(contributions: Floats, dof: Floats) -> float:
    """Effective degrees of freedom of a sum of variance estimates (Welch & Satterthwaite).

    Args:
        contributions: [m], each estimate times its squared weight; at least one above 0.
        dof: [m], degrees of freedom of each.
    """
    scaled = contributions / contributions.max()  # keeps squares of picoseconds from underflowing
    return float(scaled.sum() ** 2 / (scaled**2 / dof).sum())
