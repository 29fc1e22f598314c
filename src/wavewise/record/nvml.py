"""Reads one GPU through NVML: the counters every driver has, and performance metrics from Hopper on.

Function and constant names as in the NVML API reference, https://docs.nvidia.com/deploy/nvml-api/. A counter
that a GPU or driver does not offer reads as None, never as 0.
"""

import math
from collections.abc import Callable
from typing import Any

import pynvml

from wavewise.record.model import TelemetryGpu

_MIB = 1 << 20

GPM_COLUMNS: dict[str, int] = {
    "gpm_sm_active_percent": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "gpm_sm_occupancy_percent": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "gpm_tensor_active_percent": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "gpm_hmma_active_percent": pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "gpm_imma_active_percent": pynvml.NVML_GPM_METRIC_IMMA_TENSOR_UTIL,
    "gpm_fp32_active_percent": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "gpm_fp16_active_percent": pynvml.NVML_GPM_METRIC_FP16_UTIL,
    "gpm_integer_active_percent": pynvml.NVML_GPM_METRIC_INTEGER_UTIL,
    "gpm_dram_bandwidth_percent": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "gpm_pcie_tx_mib_per_s": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "gpm_pcie_rx_mib_per_s": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "gpm_nvlink_tx_mib_per_s": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    "gpm_nvlink_rx_mib_per_s": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
}
"""Column to GPM metric: averages over the time since the sample before."""

THROTTLE_REASONS: dict[str, int] = {
    "power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    "clocks_setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
    "display_clocks": pynvml.nvmlClocksEventReasonDisplayClockSetting,
}
"""Why the clocks are below their maximum; "idle" is left out, since it is no throttling."""

COLUMNS: tuple[str, ...] = (
    "ts_unix_s",
    "gpu",
    "sm_activity_percent",
    "memory_activity_percent",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "memory_used_mib",
    "throttle_reasons",
    "pcie_tx_kib_per_s",
    "pcie_rx_kib_per_s",
    "nvlink_tx_kib",
    "nvlink_rx_kib",
    *GPM_COLUMNS,
)


def _try(read: Callable[[], Any]) -> Any:
    """What NVML says, None where this GPU or driver does not say it."""
    try:
        return read()
    except (pynvml.NVMLError, AttributeError):
        return None


class Gpu:
    """One GPU of this machine, open for sampling."""

    def __init__(self, index: int, slow_counters: bool = True) -> None:
        self.index = index
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self._slow = slow_counters
        self._gpm_reason = self._open_gpm()
        self._previous = self._gpm_sample()

    def describe(self) -> TelemetryGpu:
        """Name, limits, and whether performance metrics are there."""
        limit = _try(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        memory = _try(lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle))
        return TelemetryGpu(
            index=self.index,
            name=str(_try(lambda: pynvml.nvmlDeviceGetName(self._handle))),
            power_limit_w=None if limit is None else limit / 1e3,
            memory_total_mib=None if memory is None else memory.total // _MIB,
            gpm=self._gpm_reason is None,
            gpm_reason=self._gpm_reason,
        )

    def sample(self, ts_unix_s: float) -> dict[str, object]:
        """One row of the telemetry file: `COLUMNS` to values, None where not measured."""
        handle = self._handle
        use = _try(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
        power = _try(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        limit = _try(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        memory = _try(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        reasons = _try(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        row: dict[str, object] = {
            "ts_unix_s": f"{ts_unix_s:.4f}",
            "gpu": self.index,
            "sm_activity_percent": None if use is None else use.gpu,
            "memory_activity_percent": None if use is None else use.memory,
            "power_w": None if power is None else power / 1e3,
            "power_limit_w": None if limit is None else limit / 1e3,
            "sm_clock_mhz": _try(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": _try(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "temperature_c": _try(
                lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            ),
            "memory_used_mib": None if memory is None else memory.used // _MIB,
            "throttle_reasons": None if reasons is None else throttle_names(reasons),
        }
        return row | self._links() | self._gpm()

    def _links(self) -> dict[str, object]:
        """PCIe throughput (NVML itself measures 20 ms for each) and NVLink's running totals."""
        row: dict[str, object] = {}
        if self._slow and self._gpm_reason is not None:  # GPM gives PCIe without the wait
            for way, counter in (
                ("tx", pynvml.NVML_PCIE_UTIL_TX_BYTES),
                ("rx", pynvml.NVML_PCIE_UTIL_RX_BYTES),
            ):
                row[f"pcie_{way}_kib_per_s"] = _try(
                    lambda counter=counter: pynvml.nvmlDeviceGetPcieThroughput(self._handle, counter)
                )
        for way, wanted in (
            ("tx", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
            ("rx", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
        ):
            answer = _try(lambda wanted=wanted: pynvml.nvmlDeviceGetFieldValues(self._handle, [wanted])[0])
            row[f"nvlink_{way}_kib"] = (
                answer.value.ullVal
                if answer is not None and answer.nvmlReturn == pynvml.NVML_SUCCESS
                else None
            )
        return row

    def _open_gpm(self) -> str | None:
        """Why there are no performance metrics, None where there are."""
        try:
            if pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                return None
        except (pynvml.NVMLError, AttributeError) as error:
            return f"the driver offers none ({error})"
        return "this GPU has none (they begin with Hopper)"

    def _gpm_sample(self) -> Any:
        if self._gpm_reason is not None:
            return None
        sample = pynvml.nvmlGpmSampleAlloc()
        try:
            return pynvml.nvmlGpmSampleGet(self._handle, sample)
        except pynvml.NVMLError as error:
            pynvml.nvmlGpmSampleFree(sample)
            self._gpm_reason = f"the driver refuses to sample ({error})"
            return None

    def _gpm(self) -> dict[str, object]:
        """Averages since the row before."""
        now = self._gpm_sample()
        if now is None or self._previous is None:
            return {}
        question: Any = pynvml.c_nvmlGpmMetricsGet_t()
        question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(GPM_COLUMNS)
        question.sample1, question.sample2 = self._previous, now
        for place, metric in enumerate(GPM_COLUMNS.values()):
            question.metrics[place].metricId = metric
        answered = _try(lambda: pynvml.nvmlGpmMetricsGet(question))
        pynvml.nvmlGpmSampleFree(self._previous)
        self._previous = now
        if answered is None:
            return {}
        return {
            name: round(answered.metrics[place].value, 3)
            for place, name in enumerate(GPM_COLUMNS)
            if answered.metrics[place].nvmlReturn == pynvml.NVML_SUCCESS
            and math.isfinite(answered.metrics[place].value)  # 0/0 where nothing was counted yet
        }


def throttle_names(reasons: int) -> str:
    """The reasons in NVML's bit mask, joined by "+"; "none" when the clocks are free."""
    return "+".join(name for name, bit in THROTTLE_REASONS.items() if reasons & bit) or "none"
