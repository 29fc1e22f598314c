"""The GPUs of an export, under the numbers by which each of its processes knows them."""

from typing import Any

from wavewise.trace.model import DeviceProperties
from wavewise.trace.nsys.tables import Tables, integers, texts

_FIGURES = (
    "id", "cuDevice", "smCount", "totalMemory", "maxShmemPerBlock", "maxShmemPerBlockOptin", "maxShmemPerSm",
    "maxRegistersPerSm", "threadsPerWarp", "maxWarpsPerSm", "maxThreadsPerBlock", "computeMajor", "computeMinor",
    "smMajor", "smMinor",
)  # fmt: skip


class Devices:
    """What an export says of its GPUs."""

    def __init__(self, tables: Tables) -> None:
        self._gpus = tables.read("TARGET_INFO_GPU", {**texts("name"), **integers(*_FIGURES)}).to_dicts()
        columns = integers("gpuId", "cudaId", "pid", "numMultiprocessors")
        self._visible = tables.read("TARGET_INFO_CUDA_DEVICE", columns).to_dicts()

    def of(self, pid: int) -> tuple[DeviceProperties, ...]:
        """The GPUs that process `pid` sees, under the device ids of its records.

        CUDA_VISIBLE_DEVICES gives a process numbers of its own. Exports that do not tell them number all GPUs alike.
        """
        gpus = {gpu["id"]: gpu for gpu in self._gpus}
        seen = {
            row["cudaId"]: _properties(gpus[row["gpuId"]], row["cudaId"], row["numMultiprocessors"])
            for row in self._visible
            if row["pid"] == pid and row["cudaId"] is not None and row["gpuId"] in gpus
        }
        return tuple(seen.values()) or tuple(_properties(gpu, gpu["cuDevice"], None) for gpu in self._gpus)


def _properties(gpu: dict[str, Any], device: int | None, sm_count: int | None) -> DeviceProperties:
    major = gpu["computeMajor"] if gpu["computeMajor"] is not None else gpu["smMajor"]
    minor = gpu["computeMinor"] if gpu["computeMinor"] is not None else gpu["smMinor"]
    warps, width = gpu["maxWarpsPerSm"], gpu["threadsPerWarp"]
    return DeviceProperties(
        id=device if device is not None else (gpu["id"] or 0),
        name=gpu["name"] or None,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        sm_count=sm_count
        or gpu["smCount"]
        or None,  # of a partitioned GPU the process sees fewer than it has
        warp_size=width or None,
        max_threads_per_cta=gpu["maxThreadsPerBlock"] or None,
        max_threads_per_sm=warps * width if warps and width else None,
        registers_per_sm=gpu["maxRegistersPerSm"] or None,
        shared_memory_per_sm=gpu["maxShmemPerSm"] or None,
        shared_memory_per_cta=gpu["maxShmemPerBlock"] or None,
        shared_memory_per_cta_optin=gpu["maxShmemPerBlockOptin"] or None,
        memory_bytes=gpu["totalMemory"] or None,
    )
