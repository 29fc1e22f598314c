"""Floor and slope of the latency that clients see, where no trace tells the step time."""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from wavewise.findings import Fit, LackOfFit
from wavewise.scaling.fit import fit_sweep
from wavewise.scaling.sweep import STEP, Sweep

_ONE_EACH = "a recording keeps one median per batch size, which shows no scatter"


def fit_latency(medians_ms: Mapping[int, float]) -> tuple[Fit | None, str | None]:
    """Fits median inter-token latencies over the batch size.

    The laws and their choice are those of step times. With one figure per size nothing is known of its
    scatter: intervals rest on what the line misses, and with two sizes there are none.

    Args:
        medians_ms: batch size -> median inter-token latency in milliseconds.

    Returns:
        (fit, None), or (None, why there is none).
    """
    if len(medians_ms) < 2:
        return None, "floor and slope need two batch sizes"
    sizes = sorted(medians_ms)
    count = len(sizes)
    sweep = Sweep(
        x=np.asarray(sizes, dtype=np.float64),
        bucket=np.asarray(sizes, dtype=np.float64),
        known_buckets=(None,) * count,
        names=(STEP,),
        medians=np.asarray([[medians_ms[size]] for size in sizes], dtype=np.float64),
        variance=np.full((count, 1), np.nan),
        dof=np.ones(count),
        counts=(1,) * count,
    )
    fit = fit_sweep(sweep, None, None)[STEP].fit
    return replace(
        fit,
        interval_reason=f"from the residuals: {_ONE_EACH}" if fit.slope_ms_per_request_95 else _ONE_EACH,
        lack_of_fit=_untested(fit.lack_of_fit),
        line_lack_of_fit=_untested(fit.line_lack_of_fit),
        verdict=fit.verdict if count > 2 else "two sizes cannot test whether it is one",
    ), None


def _untested(test: LackOfFit | None) -> LackOfFit | None:
    return None if test is None else replace(test, reason=_ONE_EACH)
