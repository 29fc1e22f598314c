"""Tokens per second: what a slope allows at the most, and whether the host hides it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavewise.findings import Fit, OperatingPoint, Throughput
from wavewise.scaling import laws
from wavewise.scaling.line import Interval, line_weights, linear_interval, regression_interval, wider
from wavewise.scaling.sweep import SPAN, STEP, Sweep

HOST_SHARE_LIMIT = 0.5
"""Above this median share outside the GPU span, step time is the host's figure rather than the GPU's."""


@dataclass(frozen=True)
class Asymptote:
    """Throughput in the limit of large batches, or why none is claimed.

    Attributes:
        by_model: from the chosen model's limiting slope, where that model is not the line.
    """

    tokens_per_s: float | None
    interval: Interval | None
    by_model: float | None
    reason: str | None


def tokens_per_request(points: Sequence[OperatingPoint]) -> tuple[float | None, str | None]:
    """Tokens that one request gains per step: 1, or more with speculative decoding."""
    ratios = [(p.tokens_per_step or float(p.batch_size)) / p.batch_size for p in points]
    if max(ratios) > 1.02 * min(ratios):
        return None, (
            f"tokens per request and step differ between sizes ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return float(np.mean(ratios)), None


def host_share(sweep: Sweep) -> tuple[float | None, bool]:
    """(median share of step time outside the GPU span, whether step boundaries dominate).

    They dominate when they take more than half of the step at the median size, or when they vary over the
    sizes by more than the GPU span does: the step's slope then is the host's.
    """
    step, span = sweep.column(STEP), sweep.column(SPAN)
    if step is None or span is None:
        return None, False
    outside = sweep.medians[:, step] - sweep.medians[:, span]
    share = float(np.median(outside / sweep.medians[:, step]))
    return share, share > HOST_SHARE_LIMIT or bool(np.ptp(outside) > np.ptp(sweep.medians[:, span]))


def asymptote(
    sweep: Sweep,
    column: int,
    fit: Fit,
    per_request: float | None,
    *,
    refusal: str | None,
    model_slope: float | None,
) -> Asymptote:
    """Tokens per request over the slope, with an interval that holds the line's lack of fit.

    Args:
        sweep: where the medians and their variances are.
        column: which quantity, step or span.
        fit: that quantity's fit.
        per_request: tokens per request and step.
        refusal: a reason to claim none, found by the caller.
        model_slope: limiting slope of the chosen model in ms per request.
    """
    slope = fit.slope_ms_per_request or 0.0
    if per_request is None:
        return Asymptote(None, None, None, "tokens per request and step differ between the sizes")
    by_model = None
    if model_slope is not None and model_slope > 0.0 and fit.model not in (laws.LINEAR, laws.CONSTANT):
        by_model = 1000.0 * per_request / model_slope
    if not fit.slope_distinguishable:
        unknown = fit.slope_distinguishable is None
        why = "has no interval: one clean step per size" if unknown else "cannot be told from 0"
        return Asymptote(None, None, None, f"the slope {why}")
    if slope <= 0.0:
        return Asymptote(None, None, None, "the step does not grow with the batch size")
    if refusal is not None:
        return Asymptote(None, None, by_model, refusal)
    _, slope_weights = line_weights(sweep.x)
    residuals = np.asarray(fit.line_residuals_ms)
    interval = wider(
        linear_interval(slope, slope_weights, sweep, column),
        regression_interval(slope, slope_weights, residuals, residuals.size - 2),
    )
    limits = None
    if interval is not None and interval[0] > 0.0:
        limits = (1000.0 * per_request / interval[1], 1000.0 * per_request / interval[0])
    return Asymptote(1000.0 * per_request / slope, limits, by_model, None)


def throughput(sweep: Sweep, points: Sequence[OperatingPoint]) -> tuple[Throughput, ...]:
    """Measured tokens per second at every size, with the interval of the median step."""
    tokens = {p.batch_size: p.tokens_per_step or float(p.batch_size) for p in points}
    column = sweep.names.index(STEP)
    rows: list[Throughput] = []
    for i, size in enumerate(sweep.x):
        step = float(sweep.medians[i, column])
        if step <= 0.0:
            continue
        weights = np.zeros(sweep.x.size)
        weights[i] = 1.0
        interval = linear_interval(step, weights, sweep, column)
        per_s = 1000.0 * tokens[int(size)]
        rows.append(
            Throughput(
                batch_size=int(size),
                tokens_per_s=per_s / step,
                tokens_per_s_95=(per_s / interval[1], per_s / interval[0])
                if interval and interval[0] > 0
                else None,
            )
        )
    return tuple(rows)
