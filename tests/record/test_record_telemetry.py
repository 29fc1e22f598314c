"""The GPU sampler, against a driver that is played by the test, and the process that runs it."""

import csv
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from record_helpers import run_recording

from wavewise.errors import InputError
from wavewise.record import nvml, read_run
from wavewise.record.telemetry import Sampler, count_samples, main, take_over


class Driver:
    """Plays NVML: an H200 at work, or an older GPU that lacks what an H200 has."""

    def __init__(self, hopper: bool = True) -> None:
        self.hopper, self.freed, self.asked = hopper, 0, 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(*_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        answers: dict[str, Callable[..., object]] = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200" if self.hopper else "NVIDIA A100",
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=1 << 37, used=3 << 30),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=41),
            "nvmlDeviceGetPowerUsage": lambda handle: 512_345,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1980 if kind == pynvml.NVML_CLOCK_SM else 3201,
            "nvmlDeviceGetTemperature": lambda handle, kind: 61 if self.hopper else absent(),
            "nvmlDeviceGetPcieThroughput": lambda handle, counter: 1234,
            "nvmlDeviceGetFieldValues": lambda handle, fields: [
                SimpleNamespace(nvmlReturn=0 if self.hopper else 3, value=SimpleNamespace(ullVal=55))
            ],
            "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=int(self.hopper)),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmSampleGet": lambda handle, sample: sample,
            "nvmlGpmSampleFree": lambda sample: setattr(self, "freed", self.freed + 1),
            "nvmlGpmMetricsGet": self.metrics,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)

    def metrics(self, question):
        """Metric k reads k; tensor activity is refused, DRAM is 0/0."""
        self.asked += 1
        for place in range(question.numMetrics):
            metric = question.metrics[place]
            metric.value, metric.nvmlReturn = float(metric.metricId), 0
            if metric.metricId == pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL:
                metric.nvmlReturn = 3
            if metric.metricId == pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL:
                metric.value = float("nan")
        return question


def test_an_h200_reads_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.install(monkeypatch)
    gpu = nvml.Gpu(0)
    described = gpu.describe()
    assert (described.name, described.power_limit_w, described.memory_total_mib) == (
        "NVIDIA H200",
        700.0,
        1 << 17,
    )
    assert (described.gpm, described.gpm_reason) == (True, None)
    row = gpu.sample(1000.25)
    assert set(row) <= set(nvml.COLUMNS)
    assert row["ts_unix_s"] == "1000.2500"
    assert (row["sm_activity_percent"], row["memory_activity_percent"]) == (97, 41)
    assert (row["power_w"], row["power_limit_w"], row["throttle_reasons"]) == (512.345, 700.0, "power_cap")
    assert (row["sm_clock_mhz"], row["memory_clock_mhz"], row["memory_used_mib"]) == (1980, 3201, 3072)
    assert row["gpm_sm_occupancy_percent"] == pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
    assert "gpm_tensor_active_percent" not in row, "refused is absent, not 0"
    assert "gpm_dram_bandwidth_percent" not in row, "0/0 is absent"
    assert row["nvlink_tx_kib"] == 55
    gpu.sample(1000.35)
    assert driver.freed == driver.asked == 2, "each sample is given back"


def test_an_older_gpu_reads_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(hopper=False).install(monkeypatch)
    gpu = nvml.Gpu(0)
    assert gpu.describe().gpm is False
    assert "Hopper" in (gpu.describe().gpm_reason or "")
    row = gpu.sample(1.0)
    assert row["temperature_c"] is None
    assert row["nvlink_rx_kib"] is None
    assert row["pcie_rx_kib_per_s"] == 1234
    assert not any(name.startswith("gpm_") for name in row)


def test_the_file_has_a_row_for_each_period(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    Driver().install(monkeypatch)
    out = tmp_path / "telemetry.csv"
    begin = time.time()
    assert main(["--out", str(out), "--seconds", "0.5", "--period-ms", "20"]) == 0
    with out.open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert tuple(rows[0]) == nvml.COLUMNS
    assert 12 <= len(rows) <= 26, "25 periods; a busy machine may miss some"
    stamps = [float(row["ts_unix_s"]) for row in rows]
    assert stamps == sorted(stamps)
    assert begin <= stamps[0]
    assert stamps[-1] <= time.time()
    assert rows[0]["gpm_tensor_active_percent"] == ""
    with out.open("ab") as torn:
        torn.write(b"1795996858.4,0,9")  # a killed sampler
    main(["--out", str(out), "--seconds", "0.1", "--period-ms", "20"])
    lines = out.read_text().splitlines()
    assert sum(line.startswith("ts_unix_s") for line in lines) == 1
    assert lines[len(rows) + 1] == "1795996858.4,0,9"
    assert lines[len(rows) + 2].count(",") == len(nvml.COLUMNS) - 1
    assert "NVIDIA H200" in capsys.readouterr().out


def test_no_gpu_says_so_and_the_recording_goes_on(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pytest.skip("this machine has a GPU")
    run = run_recording(serve("vllm"), tmp_path / "run", batches=(1,), profile=False, telemetry="auto")
    assert run.telemetry.file is None
    assert "no NVIDIA GPU" in (run.telemetry.reason or "")
    assert run.state == "complete"


def test_a_sampler_process_ends_with_its_owner(tmp_path: Path) -> None:
    """Its stdin closes when the recorder dies; a GPU is not needed to see that."""
    code = (
        "import sys, wavewise.record.telemetry as t; from types import SimpleNamespace as N\n"
        "from pathlib import Path\n"
        "gpu = N(sample=lambda ts: {'ts_unix_s': ts, 'gpu': 0, 'sm_activity_percent': 1})\n"
        "t._sample_until(t._stop_event(True, None), [gpu], Path(sys.argv[1]), 0.01)\n"
    )
    out = tmp_path / "t.csv"
    process = subprocess.Popen([sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not (out.exists() and out.read_text().count("\n") > 3):
        time.sleep(0.02)
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=5) == 0
    assert out.read_text().endswith("\n")


def test_a_file_from_another_host(serve, tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("ts_unix_s,gpu,sm_activity_percent\n1.0,0,97\n1.1,0,98\n")
    run = run_recording(serve("vllm"), tmp_path / "run", batches=(1,), profile=False, telemetry=str(file))
    assert (run.telemetry.file, run.telemetry.source, run.telemetry.samples) == (
        "telemetry.csv",
        "file there.csv",
        2,
    )
    assert read_run(tmp_path / "run") == run
    for text in ("", "a,b\n1,2\n", "\x00\x01"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"not a telemetry file|cannot be read"):
            take_over(file, tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        take_over(tmp_path / "none.csv", tmp_path)
    assert count_samples(tmp_path / "nowhere") == 0


def test_a_sampler_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    sampler = Sampler(tmp_path / "t.csv", (0,))
    sampler.stop()
    assert sampler.telemetry.reason == "the sampler did not start"
