"""The premise check, and premises of an earlier analysis that no longer hold."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from scaling_points import mission, point

from wavewise.findings import (
    EventCounts,
    Findings,
    GpuRow,
    Idle,
    OperatingPoint,
    Premise,
    TraceFindings,
)
from wavewise.scaling import fit_scaling, premise


def findings(points: Sequence[OperatingPoint], gpu: str = "NVIDIA H200", scale: bool = True) -> Findings:
    trace = TraceFindings(
        path="a.json",
        source="kineto",
        engine="vllm",
        gpu=GpuRow(name=gpu, compute_capability="9.0", sm_count=132, spec="h200"),
        events=EventCounts(read=0, kernels=0, memcpys=0, memsets=0, salvaged=False, warnings=()),
        window_ns=0,
        busy_ns=0,
        sum_ns=0,
        device=0,
        rank=None,
        idle=Idle(intra_replay_ns=0, intra_step_ns=0, step_boundary_ns=0, inter_burst_ns=0, unrecorded_ns=0),
        steps=(),
        decode=(),
        kernels=(),
    )
    scaling = fit_scaling(points)[0] if scale else None
    return Findings(traces=(trace,), operating_points=tuple(points), scaling=scaling)


def check(points: Sequence[OperatingPoint], baseline: Findings | None = None) -> Premise:
    scaling, reason = fit_scaling(points)
    assert scaling is not None, reason
    found = premise(scaling, points, baseline)
    assert found is not None
    return found


def test_one_family_may_be_both() -> None:
    points = [
        point(b, {"moe_gemm": [2 + 0.1 * b] * 4, "norm": [0.1] * 4}, [3 + 0.1 * b] * 4) for b in (8, 16, 32)
    ]
    found = check(points)
    assert not found.differ
    assert "and the steepest" in found.headline


def test_slopes_that_overlap_are_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    points = [
        point(
            b,
            {
                "moe_gemm": (5 + 0.010 * b + rng.normal(0, 1, 4)).tolist(),
                "attention": (4 + 0.012 * b + rng.normal(0, 1, 4)).tolist(),
            },
            (10 + 0.5 * b + rng.normal(0, 0.01, 4)).tolist(),
        )
        for b in (8, 16, 32)
    ]
    found = check(points)
    if found.share_family != found.slope_family:
        assert not found.differ
        assert "intervals overlap" in found.headline


def test_a_flat_step_has_no_slope_to_name() -> None:
    points = [point(b, {"moe_gemm": [2.0] * 4, "norm": [0.1] * 4}, [3.0] * 4) for b in (8, 16, 32)]
    found = check(points)
    assert found.slope_share is None
    assert not found.differ
    assert "no family carries a slope" in found.headline


def test_a_step_that_the_host_hides_is_judged_by_its_span() -> None:
    rng = np.random.default_rng(4)
    points = [
        point(
            b,
            {"dense_gemm": [5.0] * 6, "moe_gemm": [0.1 * b] * 6},
            (60 + rng.normal(0, 8, 6)).tolist(),
            span=(5 + 0.1 * b + rng.normal(0, 0.001, 6)).tolist(),
        )
        for b in (8, 16, 32)
    ]
    found = check(points)
    assert (found.basis, found.slope_family, found.differ) == ("span", "moe_gemm", True)
    assert found.slope_share == pytest.approx(1.0, rel=0.01)
    assert "100 % of the GPU span's 0.10 ms" in found.headline
    assert "host time hides" in found.sentences[0]


def test_a_step_that_follows_no_line_is_judged_by_its_span() -> None:
    """Host time jumps between the sizes by more than the GPU's time grows; the steps of one size agree."""
    rng = np.random.default_rng(5)
    host = {1: 9.0, 8: 4.0, 16: 5.0, 32: 9.0, 64: 3.0, 80: 11.0}
    points = [
        point(
            b,
            {"dense_gemm": [5.0] * 6, "moe_gemm": [0.06 * b] * 6},
            (host[b] + 5 + 0.06 * b + rng.normal(0, 0.1, 6)).tolist(),
            span=(5 + 0.06 * b + rng.normal(0, 0.001, 6)).tolist(),
        )
        for b in host
    ]
    scaling, _ = fit_scaling(points)
    assert scaling is not None
    assert scaling.step.slope_distinguishable  # by the scatter of its steps alone it would count
    found = check(points)
    assert (found.basis, found.slope_family) == ("span", "moe_gemm")
    assert found.slope_share == pytest.approx(1.0, rel=0.01)
    x, y = np.array(list(host)), np.array([host[b] + 5 + 0.06 * b for b in host])
    slope, floor = np.polyfit(x, y, 1)
    worst = np.abs(y - floor - slope * x).max()
    assert scaling.step.line_max_abs_residual_ms == pytest.approx(worst, abs=0.15)
    assert "The step itself follows no line" in found.sentences[0]
    assert (
        found.sentences[1] == "Named families explain the whole slope of the GPU span, 0.060 ms per request."
    )


def test_what_no_family_explains_of_the_span_is_named() -> None:
    """Half of the span's growth is gaps between the kernels."""
    rng = np.random.default_rng(6)
    points = [
        point(
            b,
            {"dense_gemm": [5.0] * 6, "moe_gemm": [0.05 * b] * 6},
            (60 + rng.normal(0, 8, 6)).tolist(),
            span=[5 + 0.10 * b] * 6,
        )
        for b in (8, 16, 32)
    ]
    found = check(points)
    assert found.sentences[1] == (
        "0.050 ms per request of the GPU span's 0.10 ms (50 %) are explained by no named family: "
        "0.050 ms in gaps inside the replay."
    )


def test_unnamed_kernels_are_no_premise_but_are_counted() -> None:
    """`other` is dearest and steepest here; the named families are compared, its slope printed beside."""
    points = [
        point(
            b,
            {"moe_gemm": [2.0] * 4, "attention": [1 + 0.1 * b] * 4, "other": [9 + 0.2 * b] * 4},
            [20 + 0.3 * b] * 4,
        )
        for b in (8, 16, 32)
    ]
    found = check(points)
    assert (found.share_family, found.slope_family) == (
        "moe_gemm",
        "attention",
    ) or found.share_family != "other"
    assert found.slope_family == "attention"
    assert "0.20 ms per request" in found.sentences[0]
    assert "in kernels that no rule names" in found.sentences[0]


def test_no_named_family_no_premise() -> None:
    points = [point(b, {"other": [1 + 0.1 * b] * 4}, [2 + 0.1 * b] * 4) for b in (8, 16)]
    scaling, _ = fit_scaling(points)
    assert scaling is not None
    assert premise(scaling, points) is None


def test_the_missions_revision() -> None:
    """An old trace at batch 32 alone, then the sweep: the assumed culprit was a floor."""
    found = check(mission((32, 80)), findings(mission((32,)), scale=True))
    messages = " ".join(change.message for change in found.changes)
    assert "The dearest family was `moe_gemm` at batch 32; at batch 80 it is `attention_split`." in messages
    assert "knew no slope" in messages
    assert found.baseline_reason is None


def test_the_same_again_changes_nothing() -> None:
    points = mission((32, 48, 80))
    assert check(points, findings(points)).changes == ()


def test_changed_slopes_and_laws_are_named() -> None:
    before = mission((16, 32, 48, 80))

    def sped_up(p: OperatingPoint) -> OperatingPoint:
        families = {f: [v / 1e6 for v in values] for f, values in p.samples.families.items()}
        families["attention_split"] = [v / 4 for v in families["attention_split"]]
        saved = p.samples.families["attention_split"][0] / 1e6 * 3 / 4
        return point(p.batch_size, families, [s / 1e6 - saved for s in p.samples.step_ns])

    after = [sped_up(p) for p in before]
    found = check(after, findings(before))
    premises = {change.premise for change in found.changes}
    assert {"slope of step", "slope of attention_split"} <= premises
    assert "dearest family" in premises
    step = next(c for c in found.changes if c.premise == "slope of step")
    assert (step.before, step.now) == ("1.05 ms per request", "0.45 ms per request")


def recorded_anew(
    seed: int, slope: float = 0.054, law: float = 0.0, moe: float = 1.0, first: float = 0.9
) -> list[OperatingPoint]:
    """One recording of a sweep: steps scatter by 0.1 %, and each recording by up to 1 % as a whole."""
    rng = np.random.default_rng(seed)
    points: list[OperatingPoint] = []
    for b in (1, 8, 16, 32, 64, 80):
        whole = rng.uniform(0.995, 1.005)
        scatter = 1 + rng.normal(0, 0.001, 6)
        experts = (moe + slope * b + law * np.sqrt(b)) * whole * scatter
        dense = np.full(6, first)
        points.append(
            point(
                b,
                {"moe_gemm": experts.tolist(), "dense_gemm": dense.tolist()},
                (experts + dense + 1).tolist(),
            )
        )
    return points


@pytest.mark.parametrize("seed", range(8))
def test_recordings_of_equal_work_revise_nothing(seed: int) -> None:
    """Their slopes' intervals lie apart (steps of one recording hardly scatter), and nothing changed."""
    assert check(recorded_anew(seed), findings(recorded_anew(100 + seed))).changes == ()


def test_a_slope_that_moves_by_two_per_cent_revises_nothing() -> None:
    before, after = recorded_anew(1, slope=0.054), recorded_anew(2, slope=0.055)
    one, other = fit_scaling(before)[0], fit_scaling(after)[0]
    assert one is not None
    assert other is not None
    assert check(after, findings(before)).changes == ()


def test_a_slope_that_moves_by_less_than_its_line_misses_revises_nothing() -> None:
    """A fifth more slope, but on curves that no line follows to within that."""
    before, after = recorded_anew(3, slope=0.010, law=0.5), recorded_anew(4, slope=0.012, law=0.5)
    assert not [c for c in check(after, findings(before)).changes if c.premise.startswith("slope of")]


def test_a_slope_that_moves_by_a_third_is_a_revision() -> None:
    changes = check(recorded_anew(6, slope=0.072), findings(recorded_anew(5, slope=0.054))).changes
    assert {"slope of moe_gemm", "slope of step"} <= {change.premise for change in changes}


def test_two_families_as_dear_swap_places_by_chance() -> None:
    near, swapped = recorded_anew(7, moe=0.85, first=0.92), recorded_anew(7, moe=0.87, first=0.90)
    assert check(swapped, findings(near)).changes == ()
    apart = recorded_anew(7, moe=0.80, first=1.10)
    (change,) = check(recorded_anew(7, moe=1.3, first=0.90), findings(apart)).changes
    assert (change.premise, change.before, change.now) == ("dearest family", "dense_gemm", "moe_gemm")


def test_another_gpu_is_no_baseline() -> None:
    points = mission((32, 80))
    found = check(points, findings(mission((32, 80)), gpu="NVIDIA B200"))
    assert found.changes == ()
    assert found.baseline_reason is not None
    assert "NVIDIA B200" in found.baseline_reason
    empty = replace(findings(points), operating_points=(), scaling=None)
    assert check(points, empty).baseline_reason == "the baseline has no clean decode steps"


def test_share_of_busy_is_the_points_own() -> None:
    found = check(mission((32, 80)))
    assert found.share_of_step == pytest.approx(15.1 / 51.6, rel=1e-6)
    assert found.share_of_busy == pytest.approx(15.1 / 28.2, rel=1e-6)
