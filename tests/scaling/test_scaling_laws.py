"""The choice among laws: right on exact data, cautious on noise, equal to brute force."""

import numpy as np
import pytest
from scaling_points import point, single
from scipy.optimize import nnls

from wavewise.findings import ExpertShape
from wavewise.scaling import fit_scaling, laws
from wavewise.scaling.fit import fit_sweep
from wavewise.scaling.selection import fit_law
from wavewise.scaling.sweep import sweep_of

FLASH = ExpertShape(experts=256, active=6)
SIX = [1, 8, 16, 32, 64, 80]


def experts(batch: float, count: int = 256, active: int = 6) -> float:
    return count * (1 - (1 - active / count) ** batch)


def sweep(points: list):
    return sweep_of(points, [p.batch_size for p in points])


def fit_of(points: list, name: str = "moe_gemm", expert: ExpertShape | None = None, waves=None):
    return fit_sweep(sweep(points), expert, waves)[name].fit


def test_exact_expert_activation_is_recognised_with_its_constants() -> None:
    values = {b: [0.2 + 0.0116 * experts(b) + 0.025 * b] * 4 for b in SIX}
    fit = fit_of(single(values), expert=FLASH)
    assert fit.model == "expert_activation"
    assert fit.parameters["fixed_ms"] == pytest.approx(0.2, rel=1e-4)  # samples are whole nanoseconds
    assert fit.parameters["per_distinct_expert_ms"] == pytest.approx(0.0116, rel=1e-4)
    assert fit.parameters["per_request_ms"] == pytest.approx(0.025, rel=1e-4)
    assert fit.parameters["experts"] == 256
    assert fit.max_abs_residual_ms == pytest.approx(0.0, abs=2e-6)
    # Floor and slope stay those of the straight line.
    slope, floor = np.polyfit(SIX, [v[0] for v in values.values()], 1)
    assert (fit.floor_ms, fit.slope_ms_per_request) == pytest.approx((floor, slope), rel=1e-5)
    assert fit.line_max_abs_residual_ms is not None
    assert fit.line_max_abs_residual_ms > 0.1


def test_experts_are_activated_by_the_bucket_not_the_batch() -> None:
    sizes = [(5, 8), (12, 16), (27, 32), (60, 64), (70, 96)]
    points = [
        point(b, {"moe_gemm": [v] * 3}, [v] * 3, bucket=bucket)
        for b, bucket in sizes
        if (v := 0.1 + 0.02 * experts(bucket) + 0.01 * b)
    ]
    fit = fit_of(points, expert=FLASH)
    assert fit.model == "expert_activation"
    assert fit.parameters["per_distinct_expert_ms"] == pytest.approx(0.02, rel=1e-3)


def test_unknown_experts_are_fitted_from_five_sizes_on_and_counted() -> None:
    sizes = [1, 4, 8, 16, 32, 64, 128]
    values = {b: [0.3 + 0.05 * experts(b, 64, 8) + 0.001 * b] * 4 for b in sizes}
    fit = fit_of(single(values))
    assert fit.model == "expert_activation"
    assert fit.parameters["active_share_of_experts"] == pytest.approx(8 / 64, rel=0.1)  # 60 shares are tried
    candidate = next(c for c in fit.candidates if c.model == "expert_activation")
    assert candidate.parameters == 4
    few = fit_of(single({b: values[b] for b in sizes[:4]}))
    left_out = next(c for c in few.candidates if c.model == "expert_activation")
    assert left_out.leave_one_out_error_ms is None
    assert left_out.reason is not None
    assert few.model in ("constant", "linear")


def test_below_five_sizes_given_constants_still_take_part() -> None:
    values = {b: [0.2 + 0.01 * experts(b) + 0.02 * b] * 4 for b in (1, 16, 64, 128)}
    assert fit_of(single(values), expert=FLASH).model == "expert_activation"


def test_expert_activation_is_offered_only_where_experts_act() -> None:
    """A curve alone names no mechanism: attention that follows T's curve is no expert activation."""
    values = {b: [0.2 + 0.0116 * experts(b) + 0.025 * b] * 4 for b in SIX}
    points = [point(b, {"attention_split": v, "moe_gemm": v}, v) for b, v in values.items()]
    fitted = fit_sweep(sweep(points), FLASH, None)
    assert fitted["moe_gemm"].fit.model == "expert_activation"
    assert all(c.model != "expert_activation" for c in fitted["attention_split"].fit.candidates)
    dense = fit_sweep(sweep([point(b, {"dense_gemm": v}, v) for b, v in values.items()]), FLASH, None)
    assert all(c.model != "expert_activation" for c in dense["step"].fit.candidates)


WAVES = {1: 1, 8: 1, 16: 2, 32: 3, 64: 6, 80: 7}


def test_staircase_with_the_launches_waves() -> None:
    values = {b: [0.1 + 0.05 * w] * 4 for b, w in WAVES.items()}
    fit = fit_of(single(values, "attention_split"), "attention_split", waves={"attention_split": WAVES})
    assert fit.model == "staircase"
    assert fit.parameters["per_wave_ms"] == pytest.approx(0.05, rel=1e-4)
    assert fit.max_abs_residual_ms == pytest.approx(0.0, abs=2e-6)


def test_staircase_whose_period_is_fitted() -> None:
    sizes = [4, 8, 12, 24, 36, 48, 60, 72, 84, 96]
    values = {b: [1.0 + 0.5 * np.ceil(b / 25)] * 4 for b in sizes}
    fit = fit_of(single(values, "attention"), "attention")
    assert fit.model == "staircase"
    assert np.ceil(np.asarray(sizes) / fit.parameters["requests_per_wave"]).tolist() == [
        np.ceil(b / 25) for b in sizes
    ]


def test_waves_that_do_not_change_are_no_staircase() -> None:
    points = single({b: [1.0 + 0.1 * b] * 4 for b in SIX}, "attention")
    fit = fit_of(points, "attention", waves={"attention": dict.fromkeys(SIX, 1)})
    assert fit.model == "linear"
    refused = next(c for c in fit.candidates if c.model == "staircase")
    assert refused.reason is not None
    assert "do not change" in refused.reason


def test_waves_in_proportion_to_the_batch_stay_a_line() -> None:
    points = single({b: [1.0 + 0.1 * b] * 4 for b in (8, 16, 24, 48)}, "attention")
    fit = fit_of(points, "attention", waves={"attention": {8: 1, 16: 2, 24: 3, 48: 6}})
    assert fit.model == "linear"


def test_a_smooth_curve_that_predicts_better_is_named_as_such() -> None:
    values = {b: [0.3 + 0.085 * b - 0.0004 * b * b] * 4 for b in SIX}
    fit = fit_of(single(values), expert=FLASH)
    assert fit.model == "expert_activation"
    assert fit.verdict is not None
    assert "expert activation is the best mechanistic model" in fit.verdict
    assert "a smooth curve predicts better" in fit.verdict
    assert fit.reference["quadratic"].leave_one_out_error_ms == pytest.approx(0.0, abs=1e-5)
    assert set(fit.reference) == {"power_law", "quadratic"}


def test_flat_noise_is_constant_and_sloped_noise_a_line() -> None:
    """One standard error: curves do not win on noise. 200 simulated sweeps of each."""
    rng = np.random.default_rng(11)
    names = [f"f{i}" for i in range(200)]
    flat = [point(b, {f: (5 + rng.normal(0, 0.1, 6)).tolist() for f in names}, [9000.0] * 6) for b in SIX]
    models = [fit.fit.model for fit in fit_sweep(sweep(flat), None, None).values()][3:]
    assert models.count("constant") >= 150
    sloped = [
        point(b, {f: (5 + 0.05 * b + rng.normal(0, 0.1, 6)).tolist() for f in names}, [9000.0] * 6)
        for b in SIX
    ]
    models = [fit.fit.model for fit in fit_sweep(sweep(sloped), None, None).values()][3:]
    assert models.count("linear") >= 190


def test_two_sizes_decide_by_the_interval() -> None:
    assert fit_of(single({32: [5.0] * 6, 80: [9.0] * 6})).model == "linear"
    assert fit_of(single({32: [5.0, 6.0, 7.0], 80: [5.1, 6.1, 7.1]})).model == "constant"


def brute_force_errors(design: np.ndarray, y: np.ndarray, nonnegative: bool) -> np.ndarray:
    errors = []
    for i in range(y.size):
        kept = np.arange(y.size) != i
        if nonnegative:
            coefficients, _ = nnls(design[kept], y[kept])
        else:
            coefficients = np.linalg.lstsq(design[kept], y[kept], rcond=None)[0]
        errors.append(y[i] - design[i] @ coefficients)
    return np.asarray(errors)


@pytest.mark.parametrize("seed", range(5))
def test_leave_one_out_errors_equal_brute_force(seed: int) -> None:
    """Refit by hand (scipy's nnls for the non-negative law) without each size in turn."""
    rng = np.random.default_rng(seed)
    points = single({b: (0.2 + 0.01 * experts(b) + 0.02 * b + rng.normal(0, 0.05, 5)).tolist() for b in SIX})
    found = sweep(points)
    x, y = found.x, found.medians[:, 0]
    one = np.ones_like(x)
    cases = [
        (laws.constant(), np.stack([one], 1), False),
        (laws.linear(), np.stack([one, x], 1), False),
        (laws.quadratic(), np.stack([one, x, x * x], 1), False),
        (laws.expert_activation(FLASH), np.stack([one, np.asarray([experts(b) for b in x]), x], 1), True),
    ]
    for law, design, nonnegative in cases:
        fit = fit_law(law, found, [0])
        assert fit is not None
        assert fit.left_out[:, 0] == pytest.approx(
            brute_force_errors(design, y, nonnegative), rel=1e-6, abs=1e-9
        )


def test_free_constants_are_chosen_anew_for_every_left_out_size() -> None:
    """The power law's exponent must not peek at the size it predicts."""
    rng = np.random.default_rng(2)
    found = sweep(single({b: (1 + 0.3 * b**0.6 + rng.normal(0, 0.2, 3)).tolist() for b in SIX}))
    law = laws.power_law()
    fit = fit_law(law, found, [0])
    assert fit is not None
    x, y = found.x, found.medians[:, 0]
    for i in range(x.size):
        kept = np.arange(x.size) != i
        tries = []
        for exponent in law.tried:
            design = np.stack([np.ones_like(x), x**exponent], 1)
            c = np.linalg.lstsq(design[kept], y[kept], rcond=None)[0]
            tries.append((((design[kept] @ c - y[kept]) ** 2).sum(), y[i] - design[i] @ c))
        assert fit.left_out[i, 0] == pytest.approx(min(tries)[1], rel=1e-6, abs=1e-9)


def test_negative_coefficients_are_barred() -> None:
    """A family that falls with the batch cannot be explained by experts that cost negative time."""
    fit = fit_law(laws.expert_activation(FLASH), sweep(single({b: [3.0 - 0.01 * b] * 3 for b in SIX})), [0])
    assert fit is not None
    assert (fit.coefficients >= -1e-9).all()


def test_the_line_is_printed_with_its_own_residuals_whatever_the_model() -> None:
    values = {b: [0.2 + 0.0116 * experts(b)] * 4 for b in SIX}
    scaling, _ = fit_scaling(single(values), expert=FLASH)
    assert scaling is not None
    fit = scaling.families[0]
    line = np.asarray([p.value_ms for p in fit.points]) - (
        fit.floor_ms + fit.slope_ms_per_request * np.asarray(SIX)  # type: ignore[operator]
    )
    assert fit.line_residuals_ms == pytest.approx(tuple(line), abs=1e-12)
    assert max(abs(r) for r in fit.residuals_ms) == pytest.approx(fit.max_abs_residual_ms)
