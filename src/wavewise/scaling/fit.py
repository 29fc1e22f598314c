"""Floor, slope and the honest choice of a model, for every quantity of a batch-size sweep."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from wavewise.findings import Candidate, ExpertShape, Fit, LackOfFit, Point, Reference
from wavewise.scaling import laws
from wavewise.scaling.line import Line, fit_line, lack_of_fit
from wavewise.scaling.selection import FittedLaw, choose, fit_law, standard_error
from wavewise.scaling.sweep import RESOLUTION_MS, SPAN, STEP, Sweep
from wavewise.units import format_ns

FREE_CONSTANTS_FROM = 5
"""Sizes from which a constant of a law may be fitted: fewer cannot tell it from the coefficients."""

LACK_LIMIT = 0.10
"""A model that misses a measured size by this share of the range or more predicts nothing (the contract)."""

MISFIT = 0.05
"""A lack-of-fit test below this chance says that the medians miss the model."""

FLAT_LIMIT = 0.03
"""... unless it misses every size by less than this share of the smallest: then nothing grows."""

Waves = Mapping[str, Mapping[int, float]]
"""Family -> batch size -> waves of its dearest kernel, from the launches."""


@dataclass(frozen=True)
class FittedSeries:
    """One quantity with the law chosen for it.

    Attributes:
        series: index of the quantity within `chosen`; column: within the sweep.
        predicts: whether the law may say anything of sizes that were not measured.
    """

    fit: Fit
    chosen: FittedLaw
    series: int
    column: int
    predicts: bool

    @property
    def dof(self) -> int:
        """Sizes less fitted parameters: what is left to judge the law by."""
        return len(self.fit.points) - self.chosen.law.parameters


def fit_sweep(sweep: Sweep, expert: ExpertShape | None, waves: Waves | None) -> dict[str, FittedSeries]:
    """Fits every quantity of the sweep."""
    columns = range(len(sweep.names))
    everywhere = {law.name: fit_law(law, sweep, columns) for law in (laws.constant(), laws.linear())}
    references = {law.name: fit_law(law, sweep, columns) for law in (laws.power_law(), laws.quadratic())}
    experts, no_experts = _expert_fits(sweep, expert)
    steps = _staircase_fits(sweep, waves or {})
    fitted: dict[str, FittedSeries] = {}
    for column, name in enumerate(sweep.names):
        fits = {key: fit for key, fit in everywhere.items() if fit is not None}
        series = dict.fromkeys(fits, column)
        refused: dict[str, str] = {}
        for model, (fit, index, reason) in {
            laws.EXPERT: (*experts.get(name, (None, 0)), no_experts.get(name)),
            laws.STAIRCASE: steps[name],
        }.items():
            if fit is not None:
                fits[model], series[model] = fit, index
            elif reason is not None:
                refused[model] = reason
        fitted[name] = _series(sweep, column, fits, series, references, refused)
    return fitted


def _expert_fits(
    sweep: Sweep, expert: ExpertShape | None
) -> tuple[dict[str, tuple[FittedLaw | None, int]], dict[str, str]]:
    """Expert activation where it can act, or why it was left out."""
    where = [name for name in sweep.names if name in laws.EXPERT_FAMILIES]
    if not any(name.startswith("moe_") for name in sweep.families):
        return {}, {}
    if expert is None and sweep.x.size < FREE_CONSTANTS_FROM:
        reason = (
            f"experts and active experts are not known, and {sweep.x.size} sizes cannot tell their ratio too"
        )
        return {}, dict.fromkeys(where, reason)
    fit = fit_law(laws.expert_activation(expert), sweep, [sweep.names.index(name) for name in where])
    if fit is None:
        return {}, dict.fromkeys(where, "its terms cannot be told apart at these sizes")
    return {name: (fit, index) for index, name in enumerate(where)}, {}


def _staircase_fits(sweep: Sweep, waves: Waves) -> dict[str, tuple[FittedLaw | None, int, str | None]]:
    """The staircase of every quantity: with the launches' waves where known, else with a fitted period."""
    fits: dict[str, tuple[FittedLaw | None, int, str | None]] = {}
    free: list[int] = []
    for column, name in enumerate(sweep.names):
        if name in waves:
            law = laws.staircase(sweep.x, waves[name])
            if law is None:
                fits[name] = (None, 0, "the launches' wave counts do not change over these sizes")
            else:
                fit = fit_law(law, sweep, [column])
                fits[name] = (fit, 0, None if fit else "its terms cannot be told apart at these sizes")
        elif sweep.x.size < FREE_CONSTANTS_FROM:
            fits[name] = (
                None,
                0,
                f"wave counts are not known, and {sweep.x.size} sizes cannot tell a period",
            )
        else:
            free.append(column)
    law = laws.staircase(sweep.x, None) if free else None
    fit = fit_law(law, sweep, free) if law is not None else None
    for index, column in enumerate(free):
        reason = None if fit else "no period groups these sizes into treads"
        fits[sweep.names[column]] = (fit, index, reason)
    return fits


def _series(
    sweep: Sweep,
    column: int,
    fits: dict[str, FittedLaw],
    series: dict[str, int],
    references: Mapping[str, FittedLaw | None],
    refused: Mapping[str, str],
) -> FittedSeries:
    line = fit_line(sweep, column)
    model = choose(fits, series)
    if model is None:  # two sizes: nothing can be left out; the interval decides
        model = laws.LINEAR if line.distinguishable is not False else laws.CONSTANT
    fit, index = fits[model], series[model]
    name = sweep.names[column]
    residuals = fit.residuals[:, index]
    result = Fit(
        family=None if name in (STEP, SPAN) else name,
        floor_ms=line.floor,
        slope_ms_per_request=line.slope,
        floor_ms_95=line.floor_95,
        slope_ms_per_request_95=line.slope_95,
        interval_reason=line.interval_reason,
        slope_distinguishable=line.distinguishable,
        model=model,
        parameters=fit.parameters(index),
        residuals_ms=tuple(residuals.tolist()),
        max_abs_residual_ms=float(np.abs(residuals).max()),
        line_residuals_ms=tuple(line.residuals.tolist()),
        line_max_abs_residual_ms=float(np.abs(line.residuals).max()),
        leave_one_out_error_ms=fit.error(index),
        candidates=tuple(_candidate(fits[key], series[key]) for key in fits)
        + tuple(_refused(key, reason) for key, reason in refused.items()),
        lack_of_fit=_misfit(sweep, column, fit, index),
        line_lack_of_fit=_misfit(sweep, column, fits[laws.LINEAR], series[laws.LINEAR]),
        reference={key: _reference(ref, column, sweep) for key, ref in references.items()},
        points=_points(sweep, column),
    )
    verdict = _verdict(result, line)
    return FittedSeries(replace(result, verdict=verdict), fit, index, column, _trustworthy(result))


def _trustworthy(fit: Fit) -> bool:
    """Whether the chosen model may predict: it misses no size by 10 % of the range, or by 3 % of its time.

    The second holds for what hardly grows: there the range is all scatter.
    """
    least = min(point.value_ms for point in fit.points)
    return lack(fit) < LACK_LIMIT or (fit.max_abs_residual_ms or 0.0) < FLAT_LIMIT * least


def lack(fit: Fit) -> float:
    """Largest miss of the chosen model as a share of the medians' range."""
    return _share(fit, fit.max_abs_residual_ms)


def line_lack(fit: Fit) -> float:
    """Largest miss of the straight line as a share of the medians' range."""
    return _share(fit, fit.line_max_abs_residual_ms)


def line_holds(fit: Fit) -> bool:
    """Whether the medians lie on the straight line well enough for its slope to stand for the quantity's growth.

    It does not where the line misses a size by a tenth of the range *and* by more than the steps' scatter
    explains: then something that is not the batch size moves the quantity from size to size.
    """
    test = fit.line_lack_of_fit
    missed = test is not None and test.p_value is not None and test.p_value < MISFIT
    return not missed or line_lack(fit) < LACK_LIMIT


def _share(fit: Fit, residual: float | None) -> float:
    values = [point.value_ms for point in fit.points]
    spread = max(values) - min(values)
    return 0.0 if not residual or spread <= 0.0 else residual / spread


def _candidate(fit: FittedLaw, index: int) -> Candidate:
    error = fit.error(index)
    return Candidate(
        model=fit.law.name,
        parameters=fit.law.parameters,
        leave_one_out_error_ms=error,
        standard_error_ms=standard_error(fit, index),
        max_abs_residual_ms=float(np.abs(fit.residuals[:, index]).max()),
        reason=None if error is not None else "too few sizes to leave one out",
    )


def _refused(model: str, reason: str) -> Candidate:
    return Candidate(
        model=model,
        parameters=None,
        leave_one_out_error_ms=None,
        standard_error_ms=None,
        max_abs_residual_ms=None,
        reason=reason,
    )


def _reference(fit: FittedLaw | None, column: int, sweep: Sweep) -> Reference:
    if fit is None or sweep.x.size < fit.law.parameters:
        return Reference(
            leave_one_out_error_ms=None, max_abs_residual_ms=None, reason=f"{sweep.x.size} sizes are too few"
        )
    error = fit.error(column)
    return Reference(
        leave_one_out_error_ms=error,
        max_abs_residual_ms=float(np.abs(fit.residuals[:, column]).max()),
        reason=None if error is not None else "too few sizes to leave one out",
    )


def _misfit(sweep: Sweep, column: int, fit: FittedLaw, index: int) -> LackOfFit:
    hat = fit.hat(index, sweep, sweep.x, sweep.bucket)
    statistic, p_value = lack_of_fit(np.eye(sweep.x.size) - hat, sweep, column)
    reason = None
    if statistic is None:
        reason = (
            "one clean step per size shows no scatter"
            if not sweep.has_scatter
            else "as many parameters as sizes"
        )
    return LackOfFit(model=fit.law.name, statistic=statistic, p_value=p_value, reason=reason)


def _points(sweep: Sweep, column: int) -> tuple[Point, ...]:
    return tuple(
        Point(batch_size=int(size), bucket=bucket, value_ms=float(value), samples=count)
        for size, bucket, value, count in zip(
            sweep.x, sweep.known_buckets, sweep.medians[:, column], sweep.counts, strict=True
        )
    )


def _verdict(fit: Fit, line: Line) -> str:
    """One sentence on the choice: what won, by how much, and whether a smooth curve does better."""
    model = fit.model or ""
    error = fit.leave_one_out_error_ms
    if error is None or len(fit.points) < 3:
        told = {
            True: "the slope is",
            False: "no slope is",
            None: "with one step per size, a slope is assumed",
        }
        return (
            f"{len(fit.points)} sizes cannot test a curve: a straight line is drawn, and "
            f"{told[line.distinguishable]}{'' if line.distinguishable is None else ' distinguishable from 0'}"
        )
    others = [
        f"{laws.WORDS[c.model]} {_time(c.leave_one_out_error_ms)}"
        for c in fit.candidates
        if c.model != model and c.leave_one_out_error_ms is not None
    ]
    least = min(c.leave_one_out_error_ms for c in fit.candidates if c.leave_one_out_error_ms is not None)
    best = (
        "is the best mechanistic model"
        if error <= least + RESOLUTION_MS
        else "does as well as any mechanistic model, within one standard error,"
    )
    sentence = f"{laws.WORDS[model]} {best} (predicts an unseen size {_within(error)}; {', '.join(others)})"
    smooth = [
        r.leave_one_out_error_ms for r in fit.reference.values() if r.leave_one_out_error_ms is not None
    ]
    if smooth and min(smooth) + RESOLUTION_MS < error:
        sentence += f"; a smooth curve predicts better ({_time(min(smooth))} against {_time(error)})"
    return sentence


def _within(error_ms: float) -> str:
    return "exactly" if error_ms < RESOLUTION_MS else f"within {_time(error_ms)}"


def _time(value_ms: float | None) -> str:
    return format_ns(0.0 if value_ms is None or value_ms < RESOLUTION_MS else value_ms * 1e6)
