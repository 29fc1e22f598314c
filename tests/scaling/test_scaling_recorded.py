"""The recorded H200 sweep: what the laws must say of it, against figures computed by brute force here."""

from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from support.recorded import CONTEXT4K, SWEEP, replays
from wavewise.analysis import Settings, analyze
from wavewise.findings import Findings, Fit
from wavewise.scaling import scaling_model

SIZES = [1, 8, 16, 32, 64, 80]

pytestmark = pytest.mark.skipif(not SWEEP.exists(), reason="the recorded sweep is not in this checkout")


@cache
def findings() -> Findings:
    return analyze([CONTEXT4K / f"bs{size:03d}.json.gz" for size in SIZES])


@cache
def moe_medians_ms() -> np.ndarray:
    """Summed Marlin time per replay, the first and the last replay of a file left out, read event by event."""
    medians = []
    for size in SIZES:
        sums = [
            sum(op["end_ns"] - op["start_ns"] for op in replay if "marlin_moe" in op["name"])
            for replay in replays(f"context4k/bs{size:03d}.json.gz")[1:-1]
        ]
        medians.append(np.median(sums) / 1e6)
    return np.asarray(medians)


def family(name: str) -> Fit:
    scaling = findings().scaling
    assert scaling is not None
    return next(fit for fit in scaling.families if fit.family == name)


def test_the_points_are_the_brute_force_medians() -> None:
    assert [p.value_ms for p in family("moe_gemm").points] == pytest.approx(list(moe_medians_ms()), rel=1e-9)


def test_moe_follows_expert_activation_where_the_line_misses() -> None:
    fit = family("moe_gemm")
    assert fit.model == "expert_activation"
    assert (fit.parameters["experts"], fit.parameters["active_experts"]) == (256, 6)
    assert fit.max_abs_residual_ms < 0.080
    assert fit.line_max_abs_residual_ms > 0.300
    # The same residuals from a least-squares fit written out here.
    b = np.asarray(SIZES, dtype=float)
    design = np.stack([np.ones_like(b), 256 * (1 - (1 - 6 / 256) ** b), b], 1)
    y = moe_medians_ms()
    c = np.linalg.lstsq(design, y, rcond=None)[0]
    assert fit.max_abs_residual_ms == pytest.approx(np.abs(y - design @ c).max(), rel=1e-6)
    line = np.polyfit(b, y, 1)
    assert fit.line_max_abs_residual_ms == pytest.approx(np.abs(y - np.polyval(line, b)).max(), rel=1e-6)


def test_the_smooth_reference_stands_beside_it() -> None:
    fit = family("moe_gemm")
    assert fit.verdict is not None
    assert "expert activation is the best mechanistic model" in fit.verdict
    assert "a smooth curve predicts better (23.0 us against 83.1 us)" in fit.verdict
    smooth = fit.reference["quadratic"].leave_one_out_error_ms
    b, y = np.asarray(SIZES, dtype=float), moe_medians_ms()
    errors = [y[i] - np.polyval(np.polyfit(np.delete(b, i), np.delete(y, i), 2), b[i]) for i in range(6)]
    assert smooth == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-4)


def test_the_span_follows_the_same_law() -> None:
    scaling = findings().scaling
    assert scaling is not None
    assert scaling.span is not None
    assert scaling.span.model == "expert_activation"
    assert scaling.span.max_abs_residual_ms < 0.080


def test_its_law_predicts_the_bucket_it_was_not_shown() -> None:
    """Bucket 96 replayed for 94 to 81 requests: no clean step, but its span is known, 7.10 ms."""
    points = findings().operating_points
    model, _ = scaling_model(points, expert=findings().scaling.expert)
    assert model is not None
    low, high = model.predict(94).if_host_free_step_ms, model.predict(96).if_host_free_step_ms
    spans = [
        max(op["end_ns"] for op in replay) - min(op["start_ns"] for op in replay)
        for replay in replays("context4k/falling-bucket096.json.gz")
    ]
    assert np.median(spans) / 1e6 == pytest.approx(low, rel=0.03)
    assert low < high


def test_attentions_slope_is_small_and_its_schedule_dearer_than_its_split() -> None:
    scaling = findings().scaling
    assert scaling is not None
    assert family("attention_split").slope_ms_per_request < 0.05 * scaling.step.slope_ms_per_request
    points = {p.batch_size: p.value_ms for p in family("attention_split").points}
    schedule = {p.batch_size: p.value_ms for p in family("attention_schedule").points}
    assert all(schedule[size] > points[size] for size in SIZES)


def test_the_host_hides_the_asymptote() -> None:
    scaling = findings().scaling
    assert scaling is not None
    assert scaling.host_dominates
    assert scaling.asymptote_tokens_per_s is None
    assert "step boundaries dominate" in (scaling.asymptote_reason or "")
    assert scaling.asymptote_if_host_free_tokens_per_s == pytest.approx(
        1000 / scaling.span.slope_ms_per_request, rel=1e-9
    )


def test_premise_names_moe_as_the_slope() -> None:
    found = findings().premise
    assert found is not None
    assert (found.share_family, found.slope_family, found.differ) == ("dense_gemm", "moe_gemm", True)


def test_without_the_shape_experts_are_fitted_and_it_says_so() -> None:
    points = findings().operating_points
    model, _ = scaling_model(points)
    assert model is not None
    fit = next(f for f in model.scaling.families if f.family == "moe_gemm")
    assert fit.model == "expert_activation"
    assert "active_share_of_experts" in fit.parameters
    assert next(c for c in fit.candidates if c.model == "expert_activation").parameters == 4


def test_the_flag_overrides_the_shape() -> None:
    found = analyze([CONTEXT4K], settings=Settings(experts=(128, 8)))
    assert found.scaling is not None
    fit = next(f for f in found.scaling.families if f.family == "moe_gemm")
    used = next(c for c in fit.candidates if c.model == "expert_activation")
    assert used.parameters == 3
    assert found.scaling.expert is not None
    assert found.scaling.expert.experts == 128


def test_growth_with_context() -> None:
    """At 12k tokens attention split and the indexer grow, MoE does not."""
    from pathlib import Path

    labels = {Path(CONTEXT4K): {"context": "4k"}, SWEEP / "context12k": {"context": "12k"}}
    found = analyze(list(labels), settings=Settings(labels=labels))
    (scaling,) = found.context_scaling
    assert scaling.batch_size == 64
    slopes = {fit.family: fit.slope_ms_per_thousand_tokens * 1e3 for fit in scaling.families}
    assert slopes["attention_split"] == pytest.approx((253 - 230) / 8.192, abs=0.3)
    assert slopes["indexer"] > 1.0
    moe = next(fit for fit in scaling.families if fit.family == "moe_gemm")
    assert abs(moe.slope_ms_per_thousand_tokens) < 0.002 * moe.points[0].value_ms
    assert replace(found).scaling is not None


def test_the_report_says_all_of_it() -> None:
    """The sentences of the section and of the first lines, with their figures."""
    from wavewise.report import scaling_text
    from wavewise.report.verdict import verdict

    (section,) = scaling_text.sections(findings())
    text = " ".join(section.sentences)
    for said in (
        "expert activation is the best mechanistic model",
        "a smooth curve predicts better (23.0 us against 83.1 us)",
        "largest residual 43.6 us, where the straight line misses by 309 us",
        "Expert activation counts 256 experts, 6 per token",
        "step boundaries dominate",
        "`moe_gemm` is the slope: 0.055 ms per request, 89 % of the GPU span's 0.062 ms",
        "a slope of 0.082 ms per request misses its medians by up to 2.80 ms",
    ):
        assert said in text
    second = verdict(findings())[1]
    assert second.startswith(
        "The family that looks dearest is a floor: dense GEMM is the largest family at batch 1"
    )
    assert second.endswith("; MoE GEMM is the slope: 0.055 ms per request, 89 % of the GPU span's 0.062 ms.")
    tables = {table.name: table for table in section.tables}
    assert {"scaling", "throughput", "residuals", "laws"} <= set(tables)
    quantities = [row[0].text for row in tables["scaling"].rows]
    assert quantities[:3] == ["step time", "GPU span", "`moe_gemm`"]
    assert quantities[-2:] == ["overlap of families", "unattributed"]
    # The column of slopes adds up to the step's.
    slopes = [row[3].sort for row in tables["scaling"].rows]
    assert sum(slopes[2:]) == pytest.approx(slopes[0], rel=1e-6)
