"""Speculative decoding at this batch: verifying two tokens costs what a batch of twice the size costs."""

import numpy as np

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = T(n) - T(2n) * (1 + draft) / (1 + acceptance), in us per step of one token per request."""
    if view.batch_size is None or view.tokens is None:
        return unknown("the batch size of the decode steps")
    if view.speculates:
        return nothing(f"the steps at {view.where} verify {view.verified_tokens:g} tokens already")
    wide = _span_at(view, 2 * view.tokens)
    if wide is None:
        return unknown(f"the replay's time at {2 * view.tokens} tokens: record a batch of that size")
    acceptance, draft = spec.number("acceptance"), spec.number("draft_share")
    effective = wide * (1.0 + draft) / (1.0 + acceptance)
    break_even = wide * (1.0 + draft) / view.span_us - 1.0
    formula = (
        f"T({view.tokens}) = {view.span_us:.1f} us against T({2 * view.tokens}) = {wide:.1f} us x "
        f"(1 + {draft:g} draft) / (1 + {acceptance:g} accepted) = {effective:.1f} us per token and request"
    )
    evidence = f"pays from an acceptance of {100 * break_even:.0f} % at {view.where}"
    if effective >= view.span_us:
        return nothing(formula, evidence + "; assumed below it")
    return Judgement(
        saving_us=view.span_us - effective,
        basis=formula + f"; acceptance {acceptance:g} and draft cost {draft:g} assumed",
        evidence=evidence,
        confidence="low",
    )


def _span_at(view: View, tokens: int) -> float | None:
    """GPU span at `tokens`, measured or on the straight line between its measured neighbours, us."""
    points = sorted({v.tokens: v.span_us for v in view.others if v.tokens is not None}.items())
    if not points or not points[0][0] <= tokens <= points[-1][0]:
        return None
    sizes, spans = zip(*points, strict=True)
    return float(np.interp(tokens, sizes, spans))
