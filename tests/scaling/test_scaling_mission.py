"""The mission's sweep, as values and as traces on disk through the command line."""

import json
import re
from importlib import resources
from pathlib import Path

import pytest
from scaling_points import mission, mission_figures

from support.decode_files import write_trace
from wavewise.errors import UsageError
from wavewise.scaling import fit_scaling, premise, scaling_model, throughput_target

SIZES = [(32, 80), (32, 48, 64, 80), (8, 16, 32, 48, 64, 80)]

ATTENTION_SLOPE = (51.2 - 13.1) / 48  # 0.79
MOE_SLOPE = (15.9 - 15.1) / 48  # 0.017
UNATTRIBUTED = 1.05 - ATTENTION_SLOPE - MOE_SLOPE  # 0.24


@pytest.mark.parametrize("sizes", SIZES)
def test_attention_is_the_slope_and_moe_a_floor(sizes: tuple[int, ...]) -> None:
    points = mission(sizes)
    scaling, _ = fit_scaling(points)
    assert scaling is not None
    assert scaling.step.floor_ms == pytest.approx(18.0)
    assert scaling.step.slope_ms_per_request == pytest.approx(1.05)
    slopes = {f.family: f.slope_ms_per_request for f in scaling.families}
    # Samples are whole nanoseconds: one of them over 48 requests.
    assert slopes == pytest.approx({"attention_split": ATTENTION_SLOPE, "moe_gemm": MOE_SLOPE}, abs=3e-8)
    assert scaling.unattributed_slope_ms_per_request == pytest.approx(UNATTRIBUTED, abs=5e-8)
    assert scaling.unattributed.outside_replay_ms_per_request == pytest.approx(UNATTRIBUTED, abs=5e-8)
    assert scaling.asymptote_tokens_per_s == pytest.approx(1000 / 1.05)
    found = premise(scaling, points)
    assert found is not None
    assert (found.share_family, found.slope_family, found.differ) == ("moe_gemm", "attention_split", True)
    assert found.slope_share == pytest.approx(ATTENTION_SLOPE / 1.05)
    for figure in (
        "`attention_split` is the slope: 0.79 ms per request, 76 % of the step's 1.05 ms",
        "0.017 ms",
    ):
        assert figure in found.headline
    assert "0.24 ms per request of 1.05 ms (23 %) are explained by no named family" in found.sentences[0]


def test_a_thousand_tokens_per_second_lie_beyond_the_slope() -> None:
    points = mission((8, 16, 32, 48, 64, 80))
    model, _ = scaling_model(points)
    answer = throughput_target(model, points, 1000.0)
    assert answer.reachable is False
    assert answer.binding == "asymptote"
    assert answer.limit_tokens_per_s == pytest.approx(952.38, abs=0.01)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mission")
    for size in (32, 48, 64, 80):
        step, moe, attention = mission_figures(size)
        kernels = [
            ("_mma_sparse_decode_split_kernel", attention * 1e3),
            ("void moe::fp4_grouped_gemm_kernel<256>()", moe * 1e3),
        ]
        write_trace(folder / f"bs{size:03d}.json.gz", size, kernels, (step - moe - attention) * 1e3)
    return folder


def test_the_command_says_so_from_traces(
    traces: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from wavewise.cli.app import build

    out = tmp_path / "scale.json"
    words = [str(traces), "--throughput-target", "1000", "--latency-target", "60ms", "--json", str(out)]
    build()(["scale", *words], standalone_mode=False)
    found = json.loads(out.read_text())
    assert found["scaling"]["step"]["slope_ms_per_request"] == pytest.approx(1.05, rel=1e-6)
    assert found["scaling"]["unattributed_slope_ms_per_request"] == pytest.approx(UNATTRIBUTED, abs=1e-6)
    assert "attention" in found["premise"]["slope_family"]
    assert found["premise"]["share_family"] == "moe_gemm"
    assert found["latency_target"]["batch_size"] == 40
    assert found["throughput_target"]["reachable"] is False
    capfd.readouterr()
    build()(["scale", str(traces)], standalone_mode=False)
    printed = " ".join(capfd.readouterr().out.split())
    for figure in (
        "0.79 ms per request, 76 % of the step's 1.05 ms",
        "0.017 ms per request",
        "0.24 ms per request",
    ):
        assert figure in printed


def test_ceilings_of_the_profiled_forty_steps(tmp_path: Path) -> None:
    """2,412 of 3,830 ms of kernel time in 40 steps at batch 16: 2.70x if free, on the kernel sum."""
    from wavewise.analysis import analyze

    attention, rest = 2_412_000 / 40, (3_830_000 - 2_412_000) / 40
    kernels = [("_tiled_sparse_decode_kernel", attention), ("mxfp4_moe_slot_gemv_kernel", rest)]
    write_trace(tmp_path / "bs016.json.gz", 16, kernels, 1_000.0, steps=40)
    found = analyze([tmp_path])
    (row,) = [r for r in found.ceilings or () if r.basis == "kernel_sum" and r.family.startswith("attention")]
    assert row.batch_size == 16
    assert row.speedup_if_free == pytest.approx(3830 / 1418, rel=1e-6)
    assert f"{row.speedup_if_free:.2f}" == "2.70"


def test_waves_of_the_launches_make_a_staircase(tmp_path: Path) -> None:
    """80,000 bytes of shared memory: one CTA on each of 188 SMs; 8 CTAs a request; 10 us a wave and 5 more."""
    from wavewise.analysis import analyze

    for size in (16, 32, 48, 64, 80, 96):
        waves = -(-8 * size // 188)
        launch = {"grid": [size, 8, 1], "shared memory": 80_000, "registers per thread": 255}
        kernels = [("flash_fwd_splitkv_kernel", 5.0 + 10.0 * waves, launch), ("rms_norm_kernel", 3.0)]
        write_trace(tmp_path / f"bs{size:03d}.json.gz", size, kernels, 40.0)
    scaling = analyze([tmp_path]).scaling
    assert scaling is not None
    fit = next(fit for fit in scaling.families if fit.family == "attention_split")
    assert fit.model == "staircase"
    assert fit.parameters == pytest.approx({"floor_ms": 0.005, "per_wave_ms": 0.010}, rel=1e-6)
    assert next(c for c in fit.candidates if c.model == "staircase").parameters == 2


def test_telemetry_is_judged_by_the_thresholds_given(traces: Path, tmp_path: Path) -> None:
    from wavewise.cli.app import build

    telemetry = tmp_path / "smi.csv"
    telemetry.write_text(
        "timestamp, utilization.gpu [%], utilization.memory [%], power.draw [W], power.limit [W]\n"
        "2026/01/01 00:00:00.000, 97 %, 27 %, 342.0 W, 600.0 W\n"
    )
    shipped = resources.files("wavewise.ceilings").joinpath("thresholds.toml").read_text(encoding="utf-8")
    mine = tmp_path / "thresholds.toml"
    mine.write_text(re.sub(r"(?m)^bandwidth_bound_from = .*$", "bandwidth_bound_from = 0.2", shipped))
    verdicts: list[str] = []
    for words in ([], ["--thresholds", str(mine)]):
        out = tmp_path / f"{len(words)}.json"
        build()(
            ["analyze", str(traces), "--telemetry", str(telemetry), *words, "--json", str(out)],
            standalone_mode=False,
        )
        verdicts.append(json.loads(out.read_text())["signature"]["verdict"])
    assert verdicts == ["latency-bound at low occupancy", "bandwidth-bound"]
    mine.write_text("idle_below = 0.1")
    with pytest.raises(UsageError, match="thresholds"):
        build()(["scale", str(traces), "--thresholds", str(mine)], standalone_mode=False)
