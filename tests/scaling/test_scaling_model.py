"""The Scaling as a whole: slopes add up, throughput, asymptotes and their refusals, predictions."""

import json
import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_points import mission, mission_figures, point, single

from wavewise.findings import Scaling
from wavewise.scaling import fit_scaling, scaling_model, sweeps
from wavewise.scaling.groups import family_waves

SIX = [1, 8, 16, 32, 64, 80]


def noisy(rng: np.random.Generator, sizes: list[int], steps: int = 6, scale: float = 0.02) -> list:
    """Families that overlap, gaps and host time, all with scatter."""
    points = []
    for size in sizes:
        base = {
            "moe_gemm": 2.0 + 0.05 * size,
            "dense_gemm": 0.8,
            "attention_split": 0.1 + 0.01 * size,
            "other": 0.2,
        }
        families = {f: (v * rng.normal(1, scale, steps)).tolist() for f, v in base.items()}
        total = np.sum([families[f] for f in families], axis=0)
        busy = total - 0.1 - 0.001 * size
        span = busy + 0.05
        step = span + 1.0 + 0.02 * size + rng.normal(0, 0.05, steps)
        points.append(point(size, families, step.tolist(), span=span.tolist(), busy=busy.tolist()))
    return points


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 512), min_size=2, max_size=8, unique=True))
@settings(max_examples=40)
def test_slopes_add_up(seed: int, sizes: list[int]) -> None:
    """Families less overlap plus unattributed are the step's slope, and the parts of the unattributed add up."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaling, reason = fit_scaling(noisy(np.random.default_rng(seed), sizes))
    assert reason is None
    assert scaling is not None
    families = sum(f.slope_ms_per_request for f in scaling.families)
    step = scaling.step.slope_ms_per_request
    accounted = families - scaling.overlap_slope_ms_per_request + scaling.unattributed_slope_ms_per_request
    assert accounted == pytest.approx(step, abs=1e-9 * (abs(step) + abs(families)))
    parts = scaling.unattributed
    assert parts is not None
    assert parts.outside_replay_ms_per_request + parts.gaps_ms_per_request == pytest.approx(
        scaling.unattributed_slope_ms_per_request, abs=1e-9
    )
    assert parts.unnamed_ms_per_request == next(
        f.slope_ms_per_request for f in scaling.families if f.family == "other"
    )


def test_the_value_survives_json_and_holds_no_nan() -> None:
    for points in (noisy(np.random.default_rng(1), SIX), mission((32, 80)), single({4: [1.0], 8: [2.0]})):
        scaling, _ = fit_scaling(points, extrapolate=[2, 100, 100_000])
        text = msgspec.json.encode(scaling)
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
        assert msgspec.json.decode(text, type=Scaling) == scaling


def test_exact_line_gives_throughput_and_asymptote() -> None:
    sizes = [4, 8, 16, 32, 64]
    scaling, _ = fit_scaling(single({b: [(329_960 + 2_088 * b) / 1e6] * 4 for b in sizes}))
    assert scaling is not None
    assert scaling.step.model == "linear"
    assert scaling.step.floor_ms == pytest.approx(0.32996, rel=1e-9)
    assert scaling.step.slope_ms_per_request == pytest.approx(0.002088, rel=1e-9)
    assert scaling.step.max_abs_residual_ms == pytest.approx(0.0, abs=1e-9)
    for row in scaling.throughput:
        assert row.tokens_per_s == pytest.approx(1e9 * row.batch_size / (329_960 + 2_088 * row.batch_size))
    assert scaling.asymptote_tokens_per_s == pytest.approx(1000 / 0.002088, rel=1e-9)
    low, high = scaling.asymptote_tokens_per_s_95
    assert low <= 1000 / 0.002088 <= high


def test_no_asymptote_without_a_slope() -> None:
    scaling, _ = fit_scaling(single({b: [0.287] * 6 for b in (8, 16, 32)}))
    assert scaling is not None
    assert scaling.step.model == "constant"
    assert scaling.step.slope_ms_per_request == 0.0
    assert scaling.asymptote_tokens_per_s is None
    assert scaling.asymptote_reason is not None


def test_no_asymptote_from_a_falling_step() -> None:
    scaling, _ = fit_scaling(single({b: [2.0 - 0.01 * b] * 6 for b in (8, 16, 32)}))
    assert scaling is not None
    assert scaling.asymptote_tokens_per_s is None
    assert "grow" in (scaling.asymptote_reason or "")


def test_no_asymptote_where_a_line_misses_by_a_tenth_of_the_range() -> None:
    curve = {b: [1.0 + 0.5 * np.sqrt(b)] * 6 for b in SIX}
    scaling, _ = fit_scaling(single(curve, "attention"))
    assert scaling is not None
    spread = max(v[0] for v in curve.values()) - min(v[0] for v in curve.values())
    assert scaling.step.line_max_abs_residual_ms > 0.1 * spread
    assert scaling.asymptote_tokens_per_s is None
    assert "of the range" in (scaling.asymptote_reason or "")


def host_bound(boundary_ms: float = 20.0) -> list:
    return [
        point(b, {"moe_gemm": [1.0 + 0.1 * b] * 6}, [1.0 + 0.1 * b + boundary_ms] * 6) for b in (8, 16, 32)
    ]


def test_dominating_step_boundaries_hide_the_asymptote_and_the_span_answers() -> None:
    scaling, _ = fit_scaling(host_bound())
    assert scaling is not None
    assert scaling.host_dominates
    assert scaling.asymptote_tokens_per_s is None
    assert "step boundaries dominate" in (scaling.asymptote_reason or "")
    assert scaling.asymptote_if_host_free_tokens_per_s == pytest.approx(10_000)
    assert scaling.host_share == pytest.approx(20 / 22.6)
    modest, _ = fit_scaling(host_bound(1.0))
    assert modest is not None
    assert not modest.host_dominates
    assert modest.asymptote_tokens_per_s == pytest.approx(10_000)


def test_boundaries_that_vary_more_than_the_span_dominate_too() -> None:
    boundary = {8: 1.0, 16: 9.0, 32: 3.0}
    points = [point(b, {"moe_gemm": [20 + 0.1 * b] * 6}, [20 + 0.1 * b + boundary[b]] * 6) for b in boundary]
    scaling, _ = fit_scaling(points)
    assert scaling is not None
    assert scaling.host_dominates


def test_one_size_and_none_say_what_is_missing() -> None:
    for points, word in ((mission((32,)), "batch 32"), ([], "no batch size")):
        scaling, reason = fit_scaling(points)
        assert scaling is None
        assert reason is not None
        assert word in reason


def test_speculative_tokens_are_not_requests() -> None:
    points = [point(b, {"a": [1.0 + 0.1 * b] * 4}, [1.0 + 0.1 * b] * 4, tokens=2.5 * b) for b in (8, 16, 32)]
    scaling, _ = fit_scaling(points)
    assert scaling is not None
    assert scaling.tokens_per_request == pytest.approx(2.5)
    assert scaling.throughput[0].tokens_per_s == pytest.approx(1000 * 20 / 1.8)
    assert scaling.asymptote_tokens_per_s == pytest.approx(25_000)
    uneven = [
        point(b, {"a": [2.0] * 4}, [1.0 + 0.1 * b] * 4, tokens=k * b)
        for b, k in ((8, 2.5), (16, 2.0), (32, 1.5))
    ]
    scaling, _ = fit_scaling(uneven)
    assert scaling is not None
    assert scaling.tokens_per_request is None
    assert scaling.asymptote_tokens_per_s is None


def test_predictions_and_their_refusals() -> None:
    model, _ = scaling_model(mission((8, 16, 32, 64)))
    assert model is not None
    assert model.sane_range == (4, 128)
    between, beyond = model.predict(48), model.predict(96)
    assert (between.basis, beyond.basis) == ("between", "beyond")
    assert between.step_ms == pytest.approx(mission_figures(48)[0])
    assert beyond.step_ms == pytest.approx(mission_figures(96)[0])
    assert beyond.tokens_per_s == pytest.approx(96_000 / mission_figures(96)[0])
    assert model.predict(32).basis == "measured"
    for size in (3, 129):
        refused = model.predict(size)
        assert refused.basis == "refused"
        assert refused.step_ms is None
        assert refused.reason is not None
    two, _ = scaling_model(mission((32, 80)))
    assert two is not None
    assert two.predict(81).basis == "refused"
    assert "two sizes" in (two.predict(81).reason or "")
    assert two.predict(48).step_ms == pytest.approx(mission_figures(48)[0])


def test_a_law_that_misses_measured_sizes_predicts_nothing_but_hardly_growing_steps_do() -> None:
    wild = {8: 1.0, 16: 5.0, 32: 2.0, 64: 6.0}
    model, _ = scaling_model(single({b: [v, v * 1.01, v * 0.99] for b, v in wild.items()}, "attention"))
    assert model is not None
    refused = model.predict(48)
    assert refused.step_ms is None
    assert "misses" in (refused.reason or "")
    flat, _ = scaling_model(single({8: [5.0, 5.02], 16: [5.05, 5.01], 32: [5.01, 4.99]}, "attention"))
    assert flat is not None
    assert flat.predict(24).step_ms == pytest.approx(5.0, rel=0.02)


def test_prediction_intervals_hold_new_sizes() -> None:
    """Simulated: every size departs from the line by its own 0.1 ms (another recording, another clock)."""
    inside, draws = 0, 300
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        truth = {b: 18 + 1.05 * b + rng.normal(0, 0.1) for b in (8, 16, 32, 48, 64, 96)}
        points = single(
            {b: (truth[b] + rng.normal(0, 0.05, 6)).tolist() for b in truth if b != 48}, "attention"
        )
        model, _ = scaling_model(points)
        assert model is not None
        low, high = model.predict(48).step_ms_95
        inside += low <= truth[48] <= high
    assert inside >= 0.9 * draws


def test_over_range_equals_predict() -> None:
    model, _ = scaling_model(noisy(np.random.default_rng(5), SIX))
    assert model is not None
    for name, figure in (("step", "step_ms"), ("span", "if_host_free_step_ms")):
        sizes, values = model.over_range(name)
        for size, value in list(zip(sizes.tolist(), values.tolist(), strict=True))[::7]:
            expected = getattr(model.predict(size), figure)
            assert (expected is None) == bool(np.isnan(value))
            if expected is not None:
                assert value == pytest.approx(expected)


def test_sweeps_keep_apart_what_does_not_belong_together() -> None:
    base = {"a": [1.0, 1.0]}
    points = [
        point(8, base, [2.0, 2.0], context=4096),
        point(16, base, [2.0, 2.0], context=4160),  # within 5 %: the same context
        point(16, base, [2.0, 2.0], context=12288),
        point(32, base, [2.0, 2.0], context=4096, device=1),
        point(8, base, [2.0, 2.0], context=4096, device=1),
        point(8, base, [2.0, 2.0], gpu="NVIDIA B200", context=4096),
        point(64, base, [2.0, 2.0], engine="sglang", context=4096),
        point(8, base, [2.0, 2.0]),
    ]
    found = sweeps(points)
    assert [p.batch_size for p in found[0]] == [8, 16, 32]
    assert found[0][0].device == 0
    assert sorted(len(group) for group in found) == [1, 1, 1, 1, 3]


def test_family_waves_take_the_dearest_launch() -> None:
    from wavewise.findings import KernelRow

    def row(batch: int | None, family: str, time_us: float, waves: int | None) -> KernelRow:
        return KernelRow(
            name="k", family=family, batch_size=batch, launches_per_step=1.0, median_us=time_us,
            sum_us_per_step=time_us, grid=(1, 1, 1), block=(1, 1, 1), registers_per_thread=1,
            shared_memory_bytes=0, waves=waves,
        )  # fmt: skip

    rows = [row(8, "a", 5.0, 1), row(8, "a", 9.0, 2), row(16, "a", 9.0, 3), row(8, "b", 1.0, None)]
    rows += [row(None, "a", 99.0, 7), row(16, "b", 1.0, 2)]
    assert family_waves(rows) == {"a": {8: 2.0, 16: 3.0}}
