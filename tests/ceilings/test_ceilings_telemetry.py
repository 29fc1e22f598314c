"""Telemetry files of every accepted kind, and the verdict at each threshold."""

from pathlib import Path

import pytest

from wavewise.ceilings import TelemetrySample, Thresholds, read_telemetry, signature
from wavewise.errors import InputError, UsageError

LATENCY = "latency-bound at low occupancy"

DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    342     61      -     97     27      0      0      0      0  14001   2400
    0    340     61      -     97     27      0      0      0      0  14001   2400
    1     25     30      -      0      0      0      0      0      0    405    180
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    341     61      -     97     27      0      0      0      0  14001   2400
    0    341     61
"""

DMON_DATED = """#Date       Time        gpu    pwr     sm    mem
#YYYYMMDD   HH:MM:SS    Idx      W      %      %
 20251129   10:00:01      0    342     97     27
"""

QUERY = """timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W], power.limit [W]
2025/11/29 10:00:01.123, 0, 97 %, 27 %, 342.10 W, 600.00 W
2025/11/29 10:00:02.123, 0, 97 %, 27 %, 341.10 W, 600.00 W
2025/11/29 10:00:03.123, 0, [N/A], [N/A], [N/A], 600.00 W
"""

QUERY_BARE = """utilization.gpu, utilization.memory, power.draw, power.limit
97, 27, 342.1, 600.0
"""

RECORDER = """ts_unix_s,gpu,sm_activity_percent,memory_activity_percent,power_w,power_limit_w,gpm_sm_occupancy_percent
1764410000.1,0,97,27,342,600,
1764410000.2,0,97,27,341,600,8.5
1764410000.3,0,,,,,
"""


@pytest.mark.parametrize(
    ("text", "limit"),
    [(DMON, 600.0), (DMON_DATED, 600.0), (QUERY, None), (QUERY_BARE, None), (RECORDER, None)],
    ids=["dmon", "dmon with dates", "query", "query nounits", "recorder"],
)
def test_the_missions_figures_from_every_kind_of_file(text: str, limit: float | None, tmp_path: Path) -> None:
    file = tmp_path / "telemetry"
    file.write_text(text)
    found = signature(read_telemetry(file), power_limit_w=limit)
    assert found.verdict == LATENCY
    assert (found.sm_activity, found.memory_activity) == (0.97, 0.27)
    assert found.power_share == pytest.approx(0.57, abs=0.002)
    assert "97.0 %" in found.sentence
    assert LATENCY in found.sentence


def test_an_idle_gpu_beside_a_loaded_one_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "dmon.txt"
    file.write_text(DMON)
    samples = read_telemetry(file)
    assert len(samples) == 4  # the cut-off line is dropped
    found = signature(samples, power_limit_w=600.0)
    assert (found.samples, found.samples_left_out) == (3, 1)


def of(sm: float, memory: float | None = None, power: float | None = None, **counters: float) -> str | None:
    sample = TelemetrySample(
        sm=sm, memory=memory, power_w=None if power is None else power * 700, power_limit_w=700.0, **counters
    )
    return signature([sample] * 3).verdict


@pytest.mark.parametrize(
    ("sm", "memory", "power", "verdict"),
    [
        (0.97, 0.27, 0.57, LATENCY),
        (0.80, 0.49, 0.74, LATENCY),
        (0.99, 0.75, 0.70, "bandwidth-bound"),
        (0.99, 0.60, 0.95, "bandwidth-bound"),
        (0.99, 0.40, 0.95, "compute-bound"),
        (0.99, 0.59, 0.85, "compute-bound"),
        (0.79, 0.20, 0.40, "host-bound"),
        (0.40, 0.70, 0.90, "host-bound"),
        (0.10, 0.00, 0.20, "host-bound"),
        (0.09, 0.00, 0.10, "idle"),
        (0.00, 0.00, 0.10, "idle"),
        (0.95, 0.55, 0.70, "mixed"),
        (0.95, 0.30, 0.80, "mixed"),
    ],
)
def test_thresholds(sm: float, memory: float, power: float, verdict: str) -> None:
    assert of(sm, memory, power) == verdict


def test_every_verdict_shows_the_comparisons_behind_it() -> None:
    found = signature([TelemetrySample(sm=0.97, memory=0.27, power_w=342, power_limit_w=600)])
    assert found.because == (
        "SM activity 97.0 % >= 80.0 %",
        "memory activity 27.0 % < 50.0 %",
        "power 57.0 % < 75.0 %",
    )


def test_counters_outrank_nvmls_shares_of_time() -> None:
    assert of(0.99, 0.30, 0.60, dram=0.70) == "bandwidth-bound"
    assert of(0.99, 0.30, 0.60, tensor=0.55) == "compute-bound"
    assert of(0.99, 0.30, 0.60, occupancy=0.08) == LATENCY
    assert of(0.99, 0.30, 0.60, occupancy=0.60) == "mixed"  # many warps: few are not the reason
    found = signature(
        [TelemetrySample(sm=0.99, memory=0.3, power_w=400, power_limit_w=700, sm_active=0.34, dram=0.2)]
    )
    assert found.kind == "nvml and counters"
    assert any("grids leave SMs empty" in reason for reason in found.because)


def test_samples_before_and_after_the_load_do_not_count() -> None:
    load = [TelemetrySample(sm=0.97, memory=0.27, power_w=342, power_limit_w=600)] * 10
    rest = [TelemetrySample(sm=0.0, memory=0.0, power_w=90, power_limit_w=600)] * 30
    found = signature(rest + load + rest)
    assert (found.verdict, found.samples, found.samples_left_out) == (LATENCY, 10, 60)


def test_what_was_not_measured_gives_no_verdict() -> None:
    found = signature([TelemetrySample(sm=0.97, memory=0.27, power_w=342)])
    assert found.verdict is None
    assert "limit" in (found.reason or "")
    assert "allows no verdict" in found.sentence
    assert of(0.97, None, 0.5) is None
    assert signature([TelemetrySample(sm=0.97, memory=0.7)]).verdict == "bandwidth-bound"
    assert signature([TelemetrySample(memory=0.7)]).verdict is None


@pytest.mark.parametrize(
    "text", ["", "hello\nworld\n", "a,b\n1,2\n", "# gpu pwr sm mem\n# Idx W % %\n", '{"a": 1}\n']
)
def test_other_files_are_refused_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text(text)
    with pytest.raises(InputError, match="no SM activity") as caught:
        read_telemetry(file)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_telemetry(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00sm")
    with pytest.raises(InputError, match="cannot be read"):
        read_telemetry(tmp_path / "binary")


def test_thresholds_can_be_replaced(tmp_path: Path) -> None:
    from importlib import resources

    packaged = (resources.files("wavewise.ceilings") / "thresholds.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(packaged.replace("waiting_power_below = 0.75", "waiting_power_below = 0.50"))
    sample = TelemetrySample(sm=0.97, memory=0.27, power_w=342, power_limit_w=600)
    assert signature([sample], thresholds=Thresholds.load(file)).verdict == "mixed"
    file.write_text("idle_below = 0.1\n")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        Thresholds.load(file)
    with pytest.raises(InputError, match="cannot be read"):
        Thresholds.load(tmp_path / "none.toml")
