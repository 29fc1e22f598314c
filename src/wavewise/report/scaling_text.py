"""How the step grows: floor and slope, the premise check, laws, throughput, and the two targets."""

from wavewise.findings import ContextScaling, Findings, Fit, LackOfFit, Scaling
from wavewise.report.scaling_tables import (
    MODEL_WORDS,
    amount_cell,
    candidates,
    predictions,
    quantities,
    range_cell,
    residuals,
    slope_cell,
    throughput,
)
from wavewise.report.section import Cell, Column, Section, Table, code, listing
from wavewise.report.verdict import displaced
from wavewise.report.words import ms, percent, plural
from wavewise.units import significant

SLOPE_MATTERS = 0.10
"""Families from this share of the step's slope on get a sentence of their own."""


MISFIT = 0.05
"""A lack-of-fit test below this chance says that the medians miss the model (as `scaling.fit` counts it, which a
text rendering must not load)."""


def sections(findings: Findings) -> tuple[Section, ...]:
    """Growth with batch size, then with context length; empty without decode steps."""
    found = list(_batch(findings))
    found += [_context(scaling) for scaling in findings.context_scaling]
    return tuple(found)


def headlines(findings: Findings) -> tuple[str, ...]:
    """Premises that an earlier analysis got wrong; then, where the premise check stands in the verdict, what it took
    the place of and what belongs to it.
    """
    premise = findings.premise
    if premise is None:
        return ()
    beside = (*displaced(findings), *premise.sentences[:1]) if premise.differ else ()
    return (*(change.message for change in premise.changes), *beside)


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
                quantities(scaling),
                throughput(scaling),
                *([predictions(scaling)] if scaling.predictions else []),
                residuals(scaling),
                candidates(scaling),
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
    totals = [fit.slope_ms_per_request or 0.0 for fit in (scaling.step, scaling.span) if fit]
    least = SLOPE_MATTERS * max(map(abs, totals))
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
        return f" (no interval: {fit.interval_reason or 'not computed'})"
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
                        slope_cell(fit.slope_ms_per_thousand_tokens),
                        range_cell(fit.slope_ms_per_thousand_tokens_95, 1e3, fit.interval_reason),
                        *(amount_cell(point.value_ms) for point in fit.points),
                    )
                    for name, fit in (*fits, *((code(f.family or ""), f) for f in families))
                ),
            ),
        ),
    )
