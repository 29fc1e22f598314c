"""The least-squares line through medians, with intervals from the per-step samples."""

import math
from dataclasses import dataclass

import numpy as np

from wavewise.scaling.distributions import f_survival, student_975
from wavewise.scaling.medians import Floats, combined_dof
from wavewise.scaling.sweep import Sweep

Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One quantity's line. Intervals are None, or rest on the residuals, where no step scatter is known."""

    floor: float
    slope: float
    floor_95: Interval | None
    slope_95: Interval | None
    residuals: Floats
    distinguishable: bool | None
    interval_reason: str | None = None


def line_weights(x: Floats) -> tuple[Floats, Floats]:
    """Weights that make floor and slope linear functions of the medians: floor = f @ y, slope = s @ y."""
    centred = x - x.mean()
    slope = centred / (centred**2).sum()
    return 1.0 / x.size - x.mean() * slope, slope


def without_noise(value: float, terms: float) -> float:
    """0 where `value` is only what rounding left of `terms` that cancel."""
    return 0.0 if abs(value) < 1e-12 * terms else value


def fit_line(sweep: Sweep, column: int) -> Line:
    """The line of one quantity.

    The interval says how well the line through *these* sizes is known, from the scatter of the steps at each
    size (sizes may scatter differently). Whether a line is the right curve, the lack-of-fit test asks.
    """
    y = sweep.medians[:, column]
    floor_weights, slope_weights = line_weights(sweep.x)
    slope = without_noise(float(slope_weights @ (y - y.mean())), float(np.abs(slope_weights) @ np.abs(y)))
    floor = float(y.mean() - slope * sweep.x.mean())
    residuals = y - floor - slope * sweep.x
    floor_95, slope_95, reason = None, None, None
    if sweep.has_scatter:
        floor_95 = linear_interval(floor, floor_weights, sweep, column)
        slope_95 = linear_interval(slope, slope_weights, sweep, column)
    elif y.size >= 3:
        reason = "from the residuals: one clean step per size shows no scatter of its own"
        floor_95 = regression_interval(floor, floor_weights, residuals, y.size - 2)
        slope_95 = regression_interval(slope, slope_weights, residuals, y.size - 2)
    else:
        reason = "one clean step per size shows no scatter"
    distinguishable = None if slope_95 is None else not slope_95[0] <= 0.0 <= slope_95[1]
    return Line(
        floor=floor,
        slope=slope,
        floor_95=floor_95,
        slope_95=slope_95,
        residuals=residuals,
        distinguishable=distinguishable,
        interval_reason=reason,
    )


def linear_interval(estimate: float, weights: Floats, sweep: Sweep, column: int) -> Interval | None:
    """95 % interval of a linear function of the medians, from the scatter of the steps.

    Args:
        estimate: weights @ medians.
        weights: [m].
        sweep: where the medians and their variances are.
        column: which quantity.

    Returns:
        None where no scatter is known.
    """
    if not sweep.has_scatter:
        return None
    contributions = weights**2 * sweep.variance[:, column]
    half = student_975(combined_dof(contributions, sweep.dof)) * math.sqrt(float(contributions.sum()))
    return estimate - half, estimate + half


def regression_interval(
    estimate: float, weights: Floats, residuals: Floats, dof: int, *, unseen: bool = False
) -> Interval | None:
    """The textbook 95 % interval of a regression: all that a law misses counts as scatter between sizes.

    Args:
        estimate: weights @ medians.
        weights: [m].
        residuals: [m] of the law.
        dof: sizes less fitted coefficients.
        unseen: whether `estimate` is for a size that departs from the law by itself, like the measured ones.

    Returns:
        None where nothing is left to judge the law by.
    """
    if dof < 1:
        return None
    variance = float((residuals**2).sum()) / dof * (float((weights**2).sum()) + float(unseen))
    half = student_975(float(dof)) * math.sqrt(variance)
    return estimate - half, estimate + half


def wider(*intervals: Interval | None) -> Interval | None:
    """The widest of the intervals that are there."""
    known = [interval for interval in intervals if interval is not None]
    return max(known, key=lambda interval: interval[1] - interval[0], default=None)


def lack_of_fit(residual_operator: Floats, sweep: Sweep, column: int) -> tuple[float | None, float | None]:
    """F-like statistic and p-value of the medians' misfit against the per-step scatter.

    The residual sum of squares of an unweighted fit is, under the model, a weighted sum of chi-squares; Box's
    approximation (Box 1954, Ann. Math. Statist. 25, 290; Brunner, Dette & Munk 1997, JASA 92, 1494) matches
    its first two moments, which lets every size have a scatter of its own.

    Args:
        residual_operator: [m, m], the matrix that maps medians to residuals.
        sweep: where the medians and their variances are.
        column: which quantity.

    Returns:
        (None, None) where the model has as many parameters as sizes, or no scatter is known.
    """
    rank = float(np.trace(residual_operator))
    variance = sweep.variance[:, column]
    if rank < 0.5 or not sweep.has_scatter:
        return None, None
    # Picosecond units keep the squares of nanosecond figures well away from underflow.
    scaled = variance * 1e18
    diagonal = np.diag(residual_operator) * scaled
    spread = residual_operator * scaled
    trace = float(diagonal.sum())
    residuals = residual_operator @ sweep.medians[:, column] * 1e9
    statistic = float(residuals @ residuals) / trace
    numerator_dof = trace**2 / float((spread * spread.T).sum())
    denominator_dof = combined_dof(diagonal, sweep.dof)
    return statistic, f_survival(statistic, numerator_dof, denominator_dof)
