"""The tables on growth: floor and slope, throughput, predictions, residuals, and the laws' errors."""

from collections.abc import Sequence

from wavewise.findings import Fit, Prediction, Scaling
from wavewise.report.section import Cell, Column, Table, code, number
from wavewise.report.words import amount, percent

MODEL_WORDS = {
    "constant": "constant",
    "linear": "straight line",
    "expert_activation": "expert activation",
    "staircase": "staircase",
}
"""How a table calls a model."""


def quantities(scaling: Scaling) -> Table:
    """Floor, slope and law of the step, the span and every family, steepest family first."""
    # Shares of a slope that may be 0 mean nothing.
    known = scaling.step.slope_distinguishable is not False
    step_slope = (scaling.step.slope_ms_per_request or 0.0) if known else 0.0
    families = sorted(scaling.families, key=lambda fit: -(fit.slope_ms_per_request or 0.0))
    rows = [_quantity(fit, name, step_slope) for fit, name in _named(scaling, families)]
    overlap = scaling.overlap_slope_ms_per_request
    accounts = (
        ("overlap of families", None if overlap is None else -overlap),
        ("unattributed", scaling.unattributed_slope_ms_per_request),
    )
    rows += [_account(name, value, step_slope) for name, value in accounts if value is not None]
    return Table(
        name="scaling",
        title="Floor and slope of the least-squares line through the medians; slopes of families, less their "
        "overlap, plus unattributed add up to the step's",
        columns=(
            Column("quantity"),
            Column("floor, ms", right=True, term="floor"),
            Column("floor 95 %", right=True, essential=False),
            Column("slope, us per request", right=True, term="slope"),
            Column("slope 95 %", right=True, essential=False),
            Column("of step's slope", right=True),
            Column("law"),
            Column("largest residual, us", right=True),
            Column("error at unseen size, us", right=True, essential=False),
            Column("smooth curve's, us", right=True, essential=False),
        ),
        rows=tuple(rows),
        brief=12,
    )


def _named(scaling: Scaling, families: Sequence[Fit]) -> list[tuple[Fit, str]]:
    whole = [(scaling.step, "step time"), *([(scaling.span, "GPU span")] if scaling.span else [])]
    return whole + [(fit, code(fit.family or "")) for fit in families]


def _quantity(fit: Fit, name: str, step_slope: float) -> tuple[Cell, ...]:
    smooth = [
        r.leave_one_out_error_ms for r in fit.reference.values() if r.leave_one_out_error_ms is not None
    ]
    return (
        Cell(name),
        number(fit.floor_ms, None if fit.floor_ms is None else amount(fit.floor_ms)),
        range_cell(fit.floor_ms_95, 1.0, fit.interval_reason),
        slope_cell(fit.slope_ms_per_request),
        range_cell(fit.slope_ms_per_request_95, 1e3, fit.interval_reason),
        _share(fit.slope_ms_per_request, step_slope),
        Cell(MODEL_WORDS.get(fit.model or "", fit.model or "-"), hover=fit.verdict),
        _us(fit.max_abs_residual_ms),
        _us(fit.leave_one_out_error_ms),
        _us(min(smooth, default=None)),
    )


def _account(name: str, value: float, step_slope: float) -> tuple[Cell, ...]:
    """A row that has only a slope: it makes the others add up."""
    none = number(None, hover="not a measured quantity")
    return (
        Cell(name),
        none,
        none,
        slope_cell(value),
        none,
        _share(value, step_slope),
        Cell(""),
        none,
        none,
        none,
    )


def slope_cell(value_ms: float | None) -> Cell:
    return number(value_ms, None if value_ms is None else amount(value_ms * 1e3))


def _us(value_ms: float | None) -> Cell:
    return number(value_ms, None if value_ms is None else f"{value_ms * 1e3:,.1f}")


def range_cell(interval: tuple[float, float] | None, factor: float, reason: str | None) -> Cell:
    if interval is None:
        return number(None, hover=reason)
    low, high = (amount(end * factor) for end in interval)
    return number(interval[0], f"{low} to {high}", hover=reason)


def _share(value: float | None, whole: float) -> Cell:
    return number(None) if value is None or whole <= 0.0 else number(value / whole, percent(value / whole))


def throughput(scaling: Scaling) -> Table:
    residuals = dict(zip((p.batch_size for p in scaling.step.points), scaling.step.residuals_ms, strict=True))
    spans = {p.batch_size: p.value_ms for p in scaling.span.points} if scaling.span else {}
    steps = {p.batch_size: p for p in scaling.step.points}
    return Table(
        name="throughput",
        title="Measured step time and throughput (medians of clean steps; residual of the step's law)",
        columns=(
            Column("batch size", right=True),
            Column("bucket", right=True, essential=False),
            Column("clean steps", right=True),
            Column("step, ms", right=True, term="step time"),
            Column("residual, ms", right=True),
            Column("GPU span, ms", right=True, term="GPU span"),
            Column("tokens/s", right=True),
            Column("tokens/s 95 %", right=True, essential=False),
        ),
        rows=tuple(
            (
                number(row.batch_size, str(row.batch_size)),
                number(steps[row.batch_size].bucket, str(steps[row.batch_size].bucket)),
                number(steps[row.batch_size].samples, str(steps[row.batch_size].samples)),
                number(steps[row.batch_size].value_ms, amount(steps[row.batch_size].value_ms)),
                number(residuals[row.batch_size], f"{residuals[row.batch_size]:+,.3f}"),
                amount_cell(spans.get(row.batch_size)),
                amount_cell(row.tokens_per_s),
                range_cell(row.tokens_per_s_95, 1.0, None),
            )
            for row in scaling.throughput
        ),
        brief=20,
    )


def amount_cell(value: float | None) -> Cell:
    return number(value, None if value is None else amount(value))


def predictions(scaling: Scaling) -> Table:
    return Table(
        name="predictions",
        title=f"Predicted by the laws, from batch {scaling.smallest_sane_batch_size} to "
        f"{scaling.largest_sane_batch_size}",
        columns=(
            Column("batch size", right=True),
            Column("basis"),
            Column("step, ms", right=True, term="step time"),
            Column("step 95 %", right=True, essential=False),
            Column("tokens/s", right=True),
            Column("tokens/s if the host were free", right=True),
            Column("remark"),
        ),
        rows=tuple(_prediction(row) for row in scaling.predictions),
        brief=20,
    )


def _prediction(row: Prediction) -> tuple[Cell, ...]:
    return (
        number(row.batch_size, str(row.batch_size)),
        Cell({"between": "interpolated", "beyond": "extrapolated"}.get(row.basis, row.basis)),
        amount_cell(row.step_ms),
        range_cell(row.step_ms_95, 1.0, None),
        amount_cell(row.tokens_per_s),
        amount_cell(row.if_host_free_tokens_per_s),
        Cell(row.reason or ""),
    )


def residuals(scaling: Scaling) -> Table:
    """What every law misses at every size."""
    sizes = [point.batch_size for point in scaling.step.points]
    return Table(
        name="residuals",
        title="Residuals of each quantity's law, us (measured less fitted)",
        columns=(Column("quantity"), *(Column(f"batch {size}", right=True) for size in sizes)),
        rows=tuple(
            (Cell(name), *(number(value, f"{value * 1e3:+,.1f}") for value in fit.residuals_ms))
            for fit, name in _named(scaling, scaling.families)
        ),
        detail=True,
    )


def candidates(scaling: Scaling) -> Table:
    """Every law's error at sizes it was not shown, references last."""
    columns = ("constant", "linear", "staircase", "expert_activation")
    rows: list[tuple[Cell, ...]] = []
    for fit, name in _named(scaling, scaling.families):
        errors = {c.model: c for c in fit.candidates}
        cells = [_error(errors.get(model)) for model in columns]
        cells += [_us(fit.reference[key].leave_one_out_error_ms) for key in ("power_law", "quadratic")]
        rows.append((Cell(name), *cells))
    return Table(
        name="laws",
        title="Error of each law at a batch size it was not shown, us (root mean square, each size left out once)",
        columns=(
            Column("quantity"),
            *(Column(MODEL_WORDS[model], right=True) for model in columns),
            Column("power law (reference)", right=True),
            Column("quadratic (reference)", right=True),
        ),
        rows=tuple(rows),
        detail=True,
    )


def _error(candidate: object) -> Cell:
    error = getattr(candidate, "leave_one_out_error_ms", None)
    return _us(error) if error is not None else number(None, hover=getattr(candidate, "reason", None))
