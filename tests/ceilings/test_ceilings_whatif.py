"""What-ifs on the three bases, on points whose answers can be worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavewise.ceilings import ceilings, what_if, what_ifs
from wavewise.findings import Ceiling, DecodeRow, FamilyRow, GapSummary, OperatingPoint, Samples, Summary


def fixed(value: float) -> Summary:
    return Summary(median=value, p10=value, p90=value)


def point(
    families: dict[str, tuple[float, float]],
    *,
    step: float,
    busy: float | None = None,
    boundary: tuple[float, ...] = (1.0, 1.2),
    launch: float | None = 0.2,
    batch: int = 16,
    tokens: float | None = None,
) -> OperatingPoint:
    """Families as (summed ms, ms alone)."""
    total = sum(value for value, _ in families.values())
    return OperatingPoint(
        batch_size=batch,
        bucket=batch,
        context_length=None,
        gpu="g",
        engine="vllm",
        device=0,
        traces=(0,),
        clean_steps=2,
        tokens_per_step=tokens,
        step_ms=fixed(step),
        gpu_span_ms=fixed(step - min(boundary)),
        busy_ms=fixed(busy if busy is not None else total),
        sum_ms=fixed(total),
        launch_ms=launch,
        families=tuple(
            FamilyRow(
                family=family,
                launches_per_step=1,
                sum_us_per_step=value * 1e3,
                busy_us_per_step=value * 1e3,
                share_of_busy=0.1,
                exclusive_us_per_step=alone * 1e3,
            )
            for family, (value, alone) in families.items()
        ),
        samples=Samples(
            step_ns=(1, 1),
            span_ns=(1, 1),
            busy_ns=(1, 1),
            sum_ns=(1, 1),
            boundary_ns=tuple(round(b * 1e6) for b in boundary),
            families={},
        ),
    )


def of(rows: tuple[Ceiling, ...], family: str, basis: str) -> Ceiling:
    (row,) = [row for row in rows if (row.family, row.basis) == (family, basis)]
    return row


def test_the_missions_ceiling() -> None:
    """2,412 of 3,830 ms in 40 steps at 23 tokens/s: 2.70x if free, about 62 tokens/s."""
    steps = 40
    attention, rest = 2412 / steps, (3830 - 2412) / steps
    found = ceilings(
        [
            point(
                {"attention": (attention, attention), "moe_gemm": (rest, rest)},
                step=16_000 / 23,
                boundary=(1.0,),
            )
        ]
    )
    row = of(found, "attention", "kernel_sum")
    assert row.speedup_if_free == pytest.approx(3830 / 1418)
    assert f"{row.speedup_if_free:.2f}" == "2.70"
    assert row.speedup_if_2x == pytest.approx(3830 / (3830 - 1206))
    assert row.tokens_per_s == pytest.approx(23.0)
    assert row.tokens_per_s_if_free == pytest.approx(23 * 3830 / 1418)
    assert row.time_ms_if_free == pytest.approx(1418 / steps)


def test_bases_differ_by_overlap_and_host_time() -> None:
    """A: 4 ms of which 3 alone; B: 3 ms of which 2 alone; busy 6; step 8 with 1.0 + 0.2 ms host floor."""
    found = ceilings([point({"a": (4.0, 3.0), "b": (3.0, 2.0)}, step=8.0, busy=6.0)])
    assert of(found, "a", "kernel_sum").speedup_if_free == pytest.approx(7 / 3)
    assert of(found, "a", "busy").speedup_if_free == pytest.approx(6 / 3)
    assert of(found, "a", "step").speedup_if_free == pytest.approx(8 / 5)
    assert of(found, "a", "busy").speedup_if_2x == pytest.approx(6 / 4.5)
    assert of(found, "a", "step").binding == "gpu"
    assert of(found, "a", "kernel_sum").binding is None
    assert of(found, "a", "step").tokens_per_s_if_free == pytest.approx(16_000 / 5)


def test_the_host_floor_binds() -> None:
    """Without A the GPU needs 0.5 ms, but a step needs 5 ms of host time and 0.2 of launching."""
    found = ceilings([point({"a": (4.0, 4.0), "b": (0.3, 0.3)}, step=9.0, boundary=(5.0, 5.5))])
    row = of(found, "a", "step")
    assert row.host_floor_ms == pytest.approx(5.2)
    assert row.time_ms_if_free == pytest.approx(5.2)
    assert row.binding == "host"
    assert row.speedup_if_free == pytest.approx(9 / 5.2)
    assert of(found, "b", "step").binding == "gpu"


def test_without_samples_no_host_floor_and_no_binding_is_named() -> None:
    row = DecodeRow(
        batch_size=None,
        bucket=16,
        clean_steps=2,
        step_ms=fixed(5.0),
        gpu_span_ms=fixed(4.0),
        busy_ms=fixed(4.0),
        sum_ms=fixed(4.0),
        intra_replay_gap_us=GapSummary(median=None, p90=None, count_per_step=0),
        operations_per_step=1,
        replay_operations_per_step=1,
        families=(
            FamilyRow(
                family="a",
                launches_per_step=1,
                sum_us_per_step=4000,
                busy_us_per_step=4000,
                share_of_busy=1,
                exclusive_us_per_step=4000,
            ),
        ),
        overlap_us_per_step=0,
    )
    found = ceilings([row])
    step = of(found, "a", "step")
    assert (step.host_floor_ms, step.binding) == (None, None)
    assert step.speedup_if_free == pytest.approx(5.0)
    assert step.tokens_per_s_if_free is None
    assert step.reason is not None
    assert "batch size" in step.reason
    alone = of(found, "a", "kernel_sum")
    assert alone.speedup_if_free is None  # nothing else runs
    assert alone.reason is not None


def test_tokens_are_the_points_own() -> None:
    found = ceilings([point({"a": (1.0, 1.0), "b": (1.0, 1.0)}, step=4.0, tokens=40.0)])
    assert of(found, "a", "step").tokens_per_s == pytest.approx(10_000)


@given(
    values=st.lists(st.tuples(st.floats(0.001, 50.0), st.floats(0.0, 1.0)), min_size=1, max_size=8),
    host=st.floats(0.0, 20.0),
)
@settings(max_examples=150)
def test_limits_are_limits(values: list[tuple[float, float]], host: float) -> None:
    """Free is at least as fast as twice as fast, which is at least as fast as today, on every basis."""
    families = {f"f{i}": (value, value * share) for i, (value, share) in enumerate(values)}
    total = sum(value for value, _ in values)
    busy = max(sum(v * s for v, s in values), max(v for v, _ in values))
    one = point(families, step=busy + host + 0.5, busy=busy, boundary=(host,), launch=0.0)
    for row in ceilings([one]):
        assert row.time_ms_if_free <= row.time_ms_if_2x + 1e-9 <= row.basis_ms + 2e-9
        assert row.basis_ms == pytest.approx(
            {"kernel_sum": total, "busy": busy}.get(row.basis, busy + host + 0.5)
        )
        if row.speedup_if_free is not None and row.speedup_if_2x is not None:
            assert row.speedup_if_free >= row.speedup_if_2x - 1e-9 >= 1.0 - 2e-9
        if row.basis == "step":
            assert row.time_ms_if_free >= host - 1e-9


def test_combined_what_ifs() -> None:
    one = point(
        {
            "moe_gemm": (4.0, 4.0),
            "attention_split": (2.0, 2.0),
            "attention_combine": (1.0, 1.0),
            "norm": (1.0, 1.0),
        },
        step=10.0,
    )
    asked = {(w.name, w.basis): w for w in what_ifs([one])}
    both = asked["the two dearest families twice as fast", "kernel_sum"]
    assert both.changes == {"moe_gemm": "2x", "attention_split": "2x"}
    assert both.speedup == pytest.approx(8 / 5)
    assert asked["all attention kernels free", "step"].time_ms == pytest.approx(7.0)
    assert asked["every kernel twice as fast", "kernel_sum"].speedup == pytest.approx(2.0)
    assert asked["every kernel twice as fast", "step"].tokens_per_s == pytest.approx(16_000 / 6)
    assert all("floor" not in w.changes.values() for w in asked.values())


def test_unknown_changes_are_refused() -> None:
    one = point({"a": (1.0, 1.0)}, step=2.0)
    with pytest.raises(ValueError, match="unknown change"):
        what_if(one, "step", "?", {"a": "3x"})
    with pytest.raises(ValueError, match="no roofline floor"):
        what_if(one, "step", "?", {"a": "floor"})
    assert what_if(one, "step", "?", {"not there": "free"}).speedup == pytest.approx(1.0)
