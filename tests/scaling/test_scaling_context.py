"""Growth with the context length."""

import pytest
from scaling_points import point

from wavewise.scaling import fit_context


def grown(batch: int, context: int | None, **more) -> object:
    tokens = (context or 0) / 1000
    families = {"attention_split": [0.2 + 0.003 * batch * tokens] * 5, "moe_gemm": [4.0] * 5}
    total = families["attention_split"][0] + 4.0
    return point(batch, families, [total + 2.0] * 5, span=[total + 0.1] * 5, context=context, **more)


def test_slope_per_thousand_tokens() -> None:
    points = [
        grown(64, 4096),
        grown(64, 12288),
        grown(64, 32768),
        grown(8, 4096),
        grown(8, None),
        grown(16, None),
    ]
    (found,) = fit_context(points)
    assert found.batch_size == 64
    slopes = {fit.family: fit.slope_ms_per_thousand_tokens for fit in found.families}
    # Whole nanoseconds over 28,672 tokens.
    assert slopes == pytest.approx({"attention_split": 0.003 * 64, "moe_gemm": 0.0}, abs=1e-7)
    assert found.step.slope_ms_per_thousand_tokens == pytest.approx(0.192, abs=1e-7)
    assert found.span is not None
    assert found.span.slope_ms_per_thousand_tokens == pytest.approx(0.192, abs=1e-7)
    assert found.step.max_abs_residual_ms == pytest.approx(0.0, abs=1e-6)
    assert [p.context_length for p in found.step.points] == [4096, 12288, 32768]
    moe = next(fit for fit in found.families if fit.family == "moe_gemm")
    assert moe.slope_distinguishable is False


def test_nearly_equal_contexts_are_no_axis() -> None:
    assert fit_context([grown(64, 4096), grown(64, 4200)]) == ()
    assert fit_context([grown(64, 4096), grown(32, 12288)]) == ()
    assert fit_context([grown(64, 4096, engine="sglang"), grown(64, 12288)]) == ()
