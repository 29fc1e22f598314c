"""A fitted sweep: the Scaling that reports print, and predictions at other batch sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from wavewise.findings import (
    ExpertShape,
    Fit,
    OperatingPoint,
    Prediction,
    Scaling,
    Unattributed,
)
from wavewise.scaling.fit import LACK_LIMIT, FittedSeries, Waves, fit_sweep, lack, line_lack
from wavewise.scaling.line import Interval, linear_interval, regression_interval, wider, without_noise
from wavewise.scaling.medians import Floats
from wavewise.scaling.sweep import BUSY, SPAN, STEP, Sweep, sweep_of
from wavewise.scaling.throughput import Asymptote, asymptote, host_share, throughput, tokens_per_request

DRAWN_SIZES = 48
"""Sizes at which a curve is computed for drawing: closer than a reader can see."""

SANE_FACTOR = 2.0
"""Predictions reach from half the smallest to twice the largest measured size: one doubling, over which a law
fitted to at least three sizes can be wrong by no more than its curvature already shows. Two sizes cannot show
any curvature, so with two nothing outside them is predicted."""


@dataclass(frozen=True)
class ScalingModel:
    """A sweep with the laws fitted to it.

    Attributes:
        scaling: everything a report prints.
        tokens_per_request: tokens that a request gains per step, None where it differs between sizes.
    """

    scaling: Scaling
    sweep: Sweep
    fitted: dict[str, FittedSeries]
    tokens_per_request: float | None

    @property
    def sane_range(self) -> tuple[int, int]:
        """Smallest and largest batch size that `predict` answers for."""
        return _sane_range(self.sweep)

    def predict(self, batch_size: int) -> Prediction:
        """Step time and tokens/s at a batch size; refused, with the reason, outside the sane range."""
        low, high = self.sane_range
        if not low <= batch_size <= high:
            few = " (two sizes cannot show curvature)" if self.sweep.x.size < 3 else ""
            return _refusal(
                batch_size,
                f"batch {batch_size} lies outside {low}..{high}, beyond which these sizes say nothing{few}",
            )
        basis = self._basis(batch_size)
        step, step_95, reason = self._quantity(STEP, batch_size)
        span, span_95, span_reason = self._quantity(SPAN, batch_size)
        if step is None and span is None:
            return _refusal(batch_size, reason or span_reason or "not measured")
        return Prediction(
            batch_size=batch_size,
            basis=basis,
            step_ms=step,
            step_ms_95=step_95,
            tokens_per_s=self._rate(batch_size, step),
            tokens_per_s_95=self._rates(batch_size, step_95),
            if_host_free_step_ms=span,
            if_host_free_step_ms_95=span_95,
            if_host_free_tokens_per_s=self._rate(batch_size, span),
            reason=reason,
        )

    def drawn(self) -> tuple[Prediction, ...]:
        """The laws at sizes spread evenly over the sane range, for drawing; never at a measured size."""
        low, high = self.sane_range
        sizes = np.unique(np.linspace(low, high, DRAWN_SIZES).round().astype(int)).tolist()
        return tuple(self.predict(size) for size in sizes if size not in self.sweep.x)

    def _basis(self, batch_size: int) -> str:
        if batch_size in self.sweep.x:
            return "measured"
        return "between" if self.sweep.x[0] < batch_size < self.sweep.x[-1] else "beyond"

    def over_range(self, name: str) -> tuple[NDArray[np.int64], Floats]:
        """(batch sizes of the sane range, values in ms) of step or span; measured sizes have their medians.

        NaN where the model predicts nothing; empty where the quantity was not measured.
        """
        low, high = self.sane_range
        sizes = np.arange(low, high + 1)
        series = self.fitted.get(name)
        if series is None:
            return sizes[:0], np.empty(0)
        values = np.full(sizes.size, np.nan)
        if series.predicts:
            x = sizes.astype(np.float64)
            hat = series.chosen.hat(series.series, self.sweep, x, self._buckets(x))
            values = hat @ self.sweep.medians[:, series.column]
            values[values <= 0.0] = np.nan
        values[np.searchsorted(sizes, self.sweep.x)] = self.sweep.medians[:, series.column]
        return sizes, values

    def _quantity(self, name: str, batch_size: int) -> tuple[float | None, Interval | None, str | None]:
        """(value, interval, reason if None) of step or span at a batch size."""
        series = self.fitted.get(name)
        if series is None:
            return None, None, f"no {name} was measured"
        at = np.flatnonzero(self.sweep.x == batch_size)
        if at.size:
            weights = np.zeros(self.sweep.x.size)
            weights[at[0]] = 1.0
            value = float(self.sweep.medians[at[0], series.column])
            return value, linear_interval(value, weights, self.sweep, series.column), None
        if not series.predicts:
            missed = 100 * lack(series.fit)
            return None, None, f"the {name}'s best model misses measured sizes by {missed:.0f} % of the range"
        x = np.asarray([float(batch_size)])
        hat = series.chosen.hat(series.series, self.sweep, x, self._buckets(x))[0]
        value = float(hat @ self.sweep.medians[:, series.column])
        if not np.isfinite(value) or value <= 0.0:
            return None, None, f"the {name}'s model gives no positive time there"
        return value, self._interval(series, hat, value), None

    def _buckets(self, sizes: Floats) -> Floats:
        """The bucket that each size would replay: the smallest known one that holds it, else its own size."""
        known = np.asarray(sorted({float(b) for b in self.sweep.known_buckets if b is not None}))
        if not known.size:
            return sizes
        at = np.searchsorted(known, sizes)
        return np.where(at < known.size, known[np.minimum(at, known.size - 1)], sizes)

    def _interval(self, series: FittedSeries, weights: Floats, value: float) -> Interval | None:
        """The wider of what the steps' scatter and what the law's misses allow."""
        residuals = series.chosen.residuals[:, series.series]
        return wider(
            linear_interval(value, weights, self.sweep, series.column),
            regression_interval(value, weights, residuals, series.dof, unseen=True),
        )

    def _rate(self, batch_size: int, step_ms: float | None) -> float | None:
        if not step_ms or self.tokens_per_request is None:
            return None
        return 1000.0 * batch_size * self.tokens_per_request / step_ms

    def _rates(self, batch_size: int, step_95: Interval | None) -> Interval | None:
        if step_95 is None or step_95[0] <= 0.0:
            return None
        low, high = self._rate(batch_size, step_95[1]), self._rate(batch_size, step_95[0])
        return None if low is None or high is None else (low, high)


def _refusal(batch_size: int, reason: str) -> Prediction:
    return Prediction(batch_size=batch_size, basis="refused", step_ms=None, tokens_per_s=None, reason=reason)


def _sane_range(sweep: Sweep) -> tuple[int, int]:
    smallest, largest = int(sweep.x[0]), int(sweep.x[-1])
    if sweep.x.size < 3:
        return smallest, largest
    return max(1, int(np.ceil(smallest / SANE_FACTOR))), int(largest * SANE_FACTOR)


def scaling_model(
    points: Sequence[OperatingPoint],
    *,
    expert: ExpertShape | None = None,
    waves: Waves | None = None,
    extrapolate: Sequence[int] = (),
) -> tuple[ScalingModel | None, str | None]:
    """Fits the sweep that `points` make: one GPU, model, engine and context length, one point per batch size.

    Args:
        points: the sweep.
        expert: the expert-activation law's constants; without them they are fitted from five sizes on.
        waves: family -> batch size -> waves of its dearest kernel, for the staircase.
        extrapolate: batch sizes to predict.

    Returns:
        (model, None), or (None, why there is none).
    """
    sizes = [point.batch_size for point in points]
    if len(set(sizes)) < 2:
        named = f"only batch {sizes[0]} has clean decode steps" if sizes else "no batch size has clean steps"
        return None, f"{named}; floor and slope need two"
    sweep = sweep_of(points, sizes)
    fitted = fit_sweep(sweep, expert, waves)
    per_request, per_request_reason = tokens_per_request(points)
    scaling = _scaling(sweep, fitted, points, per_request, per_request_reason, expert)
    model = ScalingModel(scaling, sweep, fitted, per_request)
    predictions = tuple(model.predict(size) for size in sorted(set(extrapolate)))
    scaling = replace(scaling, predictions=predictions, curve=model.drawn())
    return ScalingModel(scaling, sweep, fitted, per_request), None


def fit_scaling(
    points: Sequence[OperatingPoint],
    *,
    expert: ExpertShape | None = None,
    waves: Waves | None = None,
    extrapolate: Sequence[int] = (),
) -> tuple[Scaling | None, str | None]:
    """The Scaling of `scaling_model`: (value, None) or (None, reason)."""
    model, reason = scaling_model(points, expert=expert, waves=waves, extrapolate=extrapolate)
    return (None if model is None else model.scaling), reason


def _scaling(
    sweep: Sweep,
    fitted: dict[str, FittedSeries],
    points: Sequence[OperatingPoint],
    per_request: float | None,
    per_request_reason: str | None,
    expert: ExpertShape | None,
) -> Scaling:
    step = fitted[STEP].fit
    span = fitted[SPAN].fit if SPAN in fitted else None
    families = tuple(fitted[name].fit for name in sweep.families)
    share, dominates = host_share(sweep)
    whole = _asymptote(sweep, fitted[STEP], per_request, dominates)
    free = _asymptote(sweep, fitted[SPAN], per_request, False) if SPAN in fitted else None
    unattributed, overlap, parts = _accounts(fitted, families)
    low, high = _sane_range(sweep)
    return Scaling(
        step=step,
        span=span,
        families=families,
        unattributed_slope_ms_per_request=unattributed,
        overlap_slope_ms_per_request=overlap,
        unattributed=parts,
        throughput=throughput(sweep, points),
        tokens_per_request=per_request,
        tokens_per_request_reason=per_request_reason,
        asymptote_tokens_per_s=whole.tokens_per_s,
        asymptote_tokens_per_s_95=whole.interval,
        asymptote_reason=whole.reason,
        asymptote_model_tokens_per_s=whole.by_model,
        asymptote_if_host_free_tokens_per_s=free.tokens_per_s if free else None,
        asymptote_if_host_free_tokens_per_s_95=free.interval if free else None,
        asymptote_if_host_free_reason=free.reason if free else "no GPU span was measured",
        asymptote_if_host_free_model_tokens_per_s=free.by_model if free else None,
        host_share=share,
        host_dominates=dominates,
        smallest_sane_batch_size=low,
        largest_sane_batch_size=high,
        context_length=points[0].context_length,
        context_label=points[0].context_label,
        expert=expert,
    )


def _accounts(
    fitted: dict[str, FittedSeries], families: Sequence[Fit]
) -> tuple[float | None, float | None, Unattributed | None]:
    """(unattributed slope, overlap slope, where the unattributed slope lies).

    Step = outside the replay + gaps + busy, and busy = the families' sums less their overlap; least-squares
    slopes of medians add up just so.
    """
    step = _slope(fitted, STEP)
    busy = _slope(fitted, BUSY)
    if step is None or busy is None:
        return None, None, None
    span = _slope(fitted, SPAN)
    in_families = sum(family.slope_ms_per_request or 0.0 for family in families)
    unnamed = sum(f.slope_ms_per_request or 0.0 for f in families if f.family == "other")
    terms = sum(abs(f.slope_ms_per_request or 0.0) for f in families) + abs(step) + abs(busy)
    parts = Unattributed(
        outside_replay_ms_per_request=None if span is None else without_noise(step - span, terms),
        gaps_ms_per_request=None if span is None else without_noise(span - busy, terms),
        unnamed_ms_per_request=unnamed,
    )
    return without_noise(step - busy, terms), without_noise(in_families - busy, terms), parts


def _slope(fitted: dict[str, FittedSeries], name: str) -> float | None:
    return fitted[name].fit.slope_ms_per_request if name in fitted else None


def _asymptote(
    sweep: Sweep, series: FittedSeries, per_request: float | None, host_dominates: bool
) -> Asymptote:
    missed = line_lack(series.fit)
    by_law = series.chosen.law.limit_slope(series.fit.parameters)
    return asymptote(
        sweep,
        series.column,
        series.fit,
        per_request,
        refusal=(
            "step boundaries dominate the step time: its slope is the host's, not the GPU's"
            if host_dominates
            else f"the straight line misses a measured size by {100 * missed:.0f} % of the range"
            if missed >= LACK_LIMIT
            else None
        ),
        model_slope=by_law if lack(series.fit) < LACK_LIMIT and not host_dominates else None,
    )
