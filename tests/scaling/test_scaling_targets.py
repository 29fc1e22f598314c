"""--latency-target and --throughput-target."""

import pytest
from scaling_points import mission, point, single

from wavewise.findings import Ceiling
from wavewise.scaling import latency_target, scaling_model, throughput_target


def model_of(points: list):
    model, reason = scaling_model(points)
    assert model is not None, reason
    return model


SWEEP = mission((8, 16, 32, 48, 64, 80))


@pytest.mark.parametrize(("target", "size"), [(60.0, 40), (59.999, 39), (26.4, 8), (102.0, 80), (110.0, 87)])
def test_the_largest_batch_within_a_latency(target: float, size: int) -> None:
    """Exactly solvable: 18 + 1.05 B <= target."""
    answer = latency_target(model_of(SWEEP), target)
    assert answer.batch_size == size == int((target - 18) / 1.05 + 1e-9)
    assert answer.tokens_per_s == pytest.approx(1000 * size / (18 + 1.05 * size))
    assert answer.sure_batch_size in (size, size - 1)  # exact data: a nanosecond may decide
    assert not answer.at_least


def test_a_latency_below_and_above_the_range() -> None:
    answer = latency_target(model_of(SWEEP), 5.0)
    assert answer.batch_size is None
    assert answer.reason is not None
    assert "No batch size meets 5.00 ms" in answer.sentence
    answer = latency_target(model_of(SWEEP), 1000.0)
    assert (answer.batch_size, answer.at_least) == (160, True)
    assert "At least batch 160" in answer.sentence


def test_no_answer_passes_a_measured_miss() -> None:
    """The line says that batch 24 takes 5.5 ms; the measured 20.0 ms at batch 16 forbid it."""
    values = {8: [3.0] * 4, 16: [20.0] * 4, 32: [7.0] * 4, 64: [13.0] * 4}
    answer = latency_target(model_of(single(values, "attention")), 8.0)
    assert answer.batch_size == 8
    assert answer.measured_batch_size == 32


def test_confidence_asks_for_room() -> None:
    values = {b: [18 + 1.05 * b + d for d in (-3.0, -1.0, 0.0, 1.0, 3.0)] for b in (8, 16, 32, 64)}
    answer = latency_target(model_of(single(values, "attention")), 40.0)
    assert answer.batch_size == 20
    assert answer.sure_batch_size is not None
    assert answer.sure_batch_size < 20
    assert "95 % confidence" in answer.sentence


def test_the_host_free_answer_stands_beside_a_host_bound_one() -> None:
    points = [point(b, {"moe_gemm": [1 + 0.1 * b] * 6}, [21 + 0.1 * b] * 6) for b in (8, 16, 32)]
    answer = latency_target(model_of(points), 5.0)
    assert answer.batch_size is None
    assert answer.if_host_free_batch_size == 40
    assert "If the host were free: batch 40" in answer.sentence


def test_throughput_measured_predicted_unreachable() -> None:
    model = model_of(SWEEP)
    met = throughput_target(model, SWEEP, 700.0)
    assert (met.reachable, met.basis, met.batch_size) == (True, "measured", 48)  # 48 / 68.4 ms = 702
    predicted = throughput_target(model, SWEEP, 800.0)
    assert (predicted.reachable, predicted.basis) == (True, "extrapolated")
    assert predicted.batch_size == 90  # 800 (18 + 1.05 B) = 1000 B at B = 90
    beyond = throughput_target(model, SWEEP, 930.0)
    assert (beyond.reachable, beyond.binding) == (None, "sane range")
    never = throughput_target(model, SWEEP, 1000.0)
    assert (never.reachable, never.binding) == (False, "asymptote")
    assert never.if_host_free_reachable is True  # the span's slope is 0.81 ms


def ceiling(family: str, batch: int, rate: float | None, basis: str = "step") -> Ceiling:
    return Ceiling(
        family=family, batch_size=batch, basis=basis, speedup_if_free=2.0, speedup_if_2x=1.3,
        tokens_per_s_if_free=rate,
    )  # fmt: skip


def test_ceilings_say_which_family_would_have_to_go() -> None:
    rows = [
        ceiling("attention_split", 80, 1575.0),
        ceiling("moe_gemm", 80, 929.0),
        ceiling("moe_gemm", 32, 9e9),
    ]
    rows += [ceiling("dense_gemm", 80, 9e9, "kernel_sum"), ceiling("norm", 80, None)]
    answer = throughput_target(model_of(SWEEP), SWEEP, 1000.0, rows)
    assert answer.families_that_suffice == ("attention_split",)
    assert "`attention_split`" in answer.sentence
    answer = throughput_target(model_of(SWEEP), SWEEP, 5000.0, rows)
    assert answer.families_that_suffice == ()
    assert "No single family suffices" in answer.sentence
    assert answer.needed_speedup == pytest.approx(5000 / (80_000 / 102))


def test_a_target_behind_the_host() -> None:
    points = [point(b, {"moe_gemm": [1 + 0.1 * b] * 6}, [21 + 0.1 * b] * 6) for b in (8, 16, 32)]
    model = model_of(points)
    within = throughput_target(model, points, 5_000.0)
    assert (within.reachable, within.binding, within.if_host_free_reachable) == (None, "host", True)
    above = throughput_target(model, points, 20_000.0)
    assert above.if_host_free_reachable is False
    assert "10,000" in above.sentence


def test_one_size_cannot_judge_by_batch_size() -> None:
    points = mission((32,))
    answer = throughput_target(None, points, 1000.0)
    assert answer.reachable is None
    assert throughput_target(None, points, 600.0).reachable is True
