"""How the step grows: floor and slope, the premise check, laws, throughput, and the two targets."""

from collections.abc import Sequence

from wavewise.findings import ContextScaling, Findings, Fit, LackOfFit, Prediction, Scaling
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, ms, percent, plural
from wavewise.units import significant

MODEL_WORDS = {
    "constant": "constant",
    "linear": "straight line",
    "expert_activation": "expert activation",
    "staircase": "staircase",
}
"""How a table calls a model."""

SLOPE_MATTERS = 0.10
"""Families from this share of the step's slope on get a sentence of their own."""

MISFIT = 0.05
"""A lack-of-fit test below this chance says that the medians miss the model."""


def sections(findings: Findings) -> tuple[Section, ...]:
    """Growth with batch size, then with context length; empty without decode steps."""
    found = list(_batch(findings))
    found += [_context(scaling) for scaling in findings.context_scaling]
    return tuple(found)


def headlines(findings: Findings) -> tuple[str, ...]:
    """The premise check where it has something to say, and premises that an earlier analysis got wrong."""
    premise = findings.premise
    if premise is None:
        return ()
    differs = (premise.headline, *premise.sentences[:1]) if premise.differ else ()
    return (*differs, *(change.message for change in premise.changes))


def _batch(findings: Findings) -> tuple[Section, ...]:
    scaling = findings.scaling
    if scaling is None:
        if not findings.scaling_reason:
            return ()
        answers = _targets(findings)
        reason = f"No floor and slope: {findings.scaling_reason.rstrip('.')}."
        return (Section(name="scaling", title=_TITLE, sentences=(reason, *answers)),)
    return (
        Section(
            name="scaling",
            title=_TITLE,
            sentences=(
                *_premise(findings),
                _line("The step", scaling.step),
                *([_line("The GPU span", scaling.span)] if scaling.span else []),
                *_families(scaling),
                *_constants(scaling),
                *_limits(scaling),
                *_targets(findings),
            ),
            tables=(
                _quantities(scaling),
                _throughput(scaling),
                *([_predictions(scaling)] if scaling.predictions else []),
                _residuals(scaling),
                _candidates(scaling),
            ),
            charts=("step-time",),
        ),
    )


_TITLE = "How the step grows with the batch size"


def _premise(findings: Findings) -> tuple[str, ...]:
    premise = findings.premise
    if premise is None:
        return ()
    baseline = () if premise.baseline_reason is None else (f"No comparison: {premise.baseline_reason}.",)
    return (
        premise.headline,
        *premise.sentences,
        *(change.message for change in premise.changes),
        *baseline,
    )


def _line(what: str, fit: Fit) -> str:
    """Floor, slope and their intervals, the law chosen, and whether the scatter allows it."""
    if fit.floor_ms is None or fit.slope_ms_per_request is None:
        return f"{what}: {fit.reason or 'not measured'}."
    sizes = [point.batch_size for point in fit.points]
    text = (
        f"{what} is {_fixed(fit.floor_ms)} ms + {_fixed(fit.slope_ms_per_request)} ms per request"
        f"{_interval(fit)} by the line through the medians of {plural(len(sizes), 'batch size')}, "
        f"{sizes[0]} to {sizes[-1]}"
    )
    if fit.verdict:
        text += f"; {fit.verdict}"
    return f"{text}. {_misfit(fit.lack_of_fit, fit)}".rstrip()


def _families(scaling: Scaling) -> list[str]:
    """The law of every family that carries a tenth of the slope, and how far a straight line would miss."""
    least = SLOPE_MATTERS * abs(scaling.step.slope_ms_per_request or 0.0)
    steep = [fit for fit in scaling.families if abs(fit.slope_ms_per_request or 0.0) > least]
    sentences: list[str] = []
    for fit in sorted(steep, key=lambda fit: -abs(fit.slope_ms_per_request or 0.0)):
        sentence = _line(code(fit.family or ""), fit)
        line = fit.line_max_abs_residual_ms
        if fit.model not in ("linear", "constant") and line is not None:
            sentence = f"{sentence.rstrip('.')}, where the straight line misses by {ms(line)}."
        sentences.append(sentence)
    return sentences


def _fixed(value: float) -> str:
    """A slope or floor in ms, three significant digits: floors and slopes are read next to one another."""
    return significant(value)


def _interval(fit: Fit) -> str:
    if fit.slope_ms_per_request_95 is None:
        return f" (no interval: {fit.interval_reason})"
    low, high = fit.slope_ms_per_request_95
    return f" (95 %: {_fixed(low)} to {_fixed(high)})"


def _misfit(test: LackOfFit | None, fit: Fit) -> str:
    """The lack-of-fit test in words, with the largest residual."""
    residual = "" if fit.max_abs_residual_ms is None else f"largest residual {ms(fit.max_abs_residual_ms)}"
    if test is None or test.p_value is None:
        return f"{residual.capitalize()}." if residual else ""
    chance = "p < 0.0001" if test.p_value < 1e-4 else f"p = {significant(test.p_value, 2)}"
    if test.p_value < MISFIT:
        return f"The medians miss this law by more than the steps' scatter explains ({chance}), {residual}."
    return f"The steps' scatter explains what the law misses ({chance}), {residual}."


def _constants(scaling: Scaling) -> tuple[str, ...]:
    """Where the experts' constants come from, if the law took part."""
    if scaling.expert is None:
        fitted = [
            f for f in (scaling.span, *scaling.families) if f and "active_share_of_experts" in f.parameters
        ]
        if not fitted:
            return ()
        share = fitted[0].parameters["active_share_of_experts"]
        return (
            f"The experts' constants are not known: their active share is fitted as well ({percent(share)}); "
            "`--experts N,k` gives them.",
        )
    expert = scaling.expert
    return (
        f"Expert activation counts {expert.experts} experts, {expert.active} per token ({expert.source}).",
    )


def _limits(scaling: Scaling) -> tuple[str, ...]:
    """Asymptotes, or why none is claimed."""
    sentences: list[str] = []
    step = scaling.asymptote_tokens_per_s
    if step is not None:
        sentences.append(
            f"Throughput tends to {_rate(step)}{_rates(scaling.asymptote_tokens_per_s_95)}: one over the slope of "
            f"the step's line.{_by_model(scaling.asymptote_model_tokens_per_s, scaling.step)}"
        )
    elif scaling.asymptote_reason:
        sentences.append(f"No asymptote of the throughput is claimed: {scaling.asymptote_reason}.")
    free = scaling.asymptote_if_host_free_tokens_per_s
    if free is not None and scaling.span is not None and (step is None or scaling.host_dominates):
        sentences.append(
            f"If the host were free, throughput would tend to {_rate(free)}"
            f"{_rates(scaling.asymptote_if_host_free_tokens_per_s_95)} by the line of the GPU span."
            f"{_by_model(scaling.asymptote_if_host_free_model_tokens_per_s, scaling.span)}"
        )
    if scaling.host_share is not None:
        sentences.append(
            f"Outside the GPU span lies {percent(scaling.host_share)} of the step (median over the sizes)"
            f"{': step boundaries dominate' if scaling.host_dominates else ''}."
        )
    return tuple(sentences)


def _by_model(limit: float | None, fit: Fit) -> str:
    if limit is None:
        return ""
    name = MODEL_WORDS.get(fit.model or "", fit.model or "")
    return f" The law that predicts better, {name}, tends to {_rate(limit)}, far outside the measured sizes."


def _rate(value: float) -> str:
    return f"{significant(value)} tokens/s"


def _rates(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    return f" (95 %: {significant(interval[0])} to {significant(interval[1])})"


def _targets(findings: Findings) -> tuple[str, ...]:
    answers = [
        target.sentence
        for target in (findings.latency_target, findings.throughput_target)
        if target is not None
    ]
    if findings.targets_reason:
        answers.append(f"The target cannot be judged: {findings.targets_reason.rstrip('.')}.")
    return tuple(answers)


def _quantities(scaling: Scaling) -> Table:
    """Floor, slope and law of the step, the span and every family, steepest family first."""
    step_slope = scaling.step.slope_ms_per_request or 0.0
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
        _range(fit.floor_ms_95, 1.0, fit.interval_reason),
        _slope(fit.slope_ms_per_request),
        _range(fit.slope_ms_per_request_95, 1e3, fit.interval_reason),
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
        _slope(value),
        none,
        _share(value, step_slope),
        Cell(""),
        none,
        none,
        none,
    )


def _slope(value_ms: float | None) -> Cell:
    return number(value_ms, None if value_ms is None else amount(value_ms * 1e3))


def _us(value_ms: float | None) -> Cell:
    return number(value_ms, None if value_ms is None else f"{value_ms * 1e3:,.1f}")


def _range(interval: tuple[float, float] | None, factor: float, reason: str | None) -> Cell:
    if interval is None:
        return number(None, hover=reason)
    low, high = (amount(end * factor) for end in interval)
    return number(interval[0], f"{low} to {high}", hover=reason)


def _share(value: float | None, whole: float) -> Cell:
    return number(None) if value is None or whole <= 0.0 else number(value / whole, percent(value / whole))


def _throughput(scaling: Scaling) -> Table:
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
                _amount(spans.get(row.batch_size)),
                _amount(row.tokens_per_s),
                _range(row.tokens_per_s_95, 1.0, None),
            )
            for row in scaling.throughput
        ),
        brief=20,
    )


def _amount(value: float | None) -> Cell:
    return number(value, None if value is None else amount(value))


def _predictions(scaling: Scaling) -> Table:
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
        _amount(row.step_ms),
        _range(row.step_ms_95, 1.0, None),
        _amount(row.tokens_per_s),
        _amount(row.if_host_free_tokens_per_s),
        Cell(row.reason or ""),
    )


def _residuals(scaling: Scaling) -> Table:
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


def _candidates(scaling: Scaling) -> Table:
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


def _context(scaling: ContextScaling) -> Section:
    """Growth with the context length at one batch size."""
    lengths = [point.context_length for point in scaling.step.points]
    fits = [("step time", scaling.step), *([("GPU span", scaling.span)] if scaling.span else [])]
    families = sorted(scaling.families, key=lambda fit: -abs(fit.slope_ms_per_thousand_tokens))
    steepest = [f for f in families if f.slope_distinguishable and f.slope_ms_per_thousand_tokens > 0.0][:3]
    named = [f"{code(fit.family or '')} by {ms(fit.slope_ms_per_thousand_tokens)}" for fit in steepest]
    grows = f": {listing(named)}" if named else "; no family measurably"
    span = scaling.span or scaling.step
    return Section(
        name=f"context-{scaling.batch_size}",
        title=f"How the step grows with the context length at batch {scaling.batch_size}",
        sentences=(
            f"Per thousand tokens of context the {'GPU span' if scaling.span else 'step'} grows by "
            f"{ms(span.slope_ms_per_thousand_tokens)} between {lengths[0]:,} and {lengths[-1]:,} tokens{grows}.",
        ),
        tables=(
            Table(
                name=f"context-{scaling.batch_size}",
                title=f"Slope per thousand tokens of context at batch {scaling.batch_size}, us "
                f"(line through the medians of {plural(len(lengths), 'length')})",
                columns=(
                    Column("quantity"),
                    Column("slope, us", right=True),
                    Column("slope 95 %", right=True),
                    *(Column(f"{length:,} tokens, ms", right=True) for length in lengths),
                ),
                rows=tuple(
                    (
                        Cell(name),
                        _slope(fit.slope_ms_per_thousand_tokens),
                        _range(fit.slope_ms_per_thousand_tokens_95, 1e3, fit.interval_reason),
                        *(_amount(point.value_ms) for point in fit.points),
                    )
                    for name, fit in (*fits, *((code(f.family or ""), f) for f in families))
                ),
            ),
        ),
    )
