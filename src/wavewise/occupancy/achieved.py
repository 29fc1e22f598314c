"""The estimate of achieved occupancy that profilers record, computed for every launch."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wavewise.hardware import GpuSpec
from wavewise.occupancy.limits import ctas_per_sm


def achieved_occupancy(
    gpu: GpuSpec,
    ctas: ArrayLike,
    threads: ArrayLike,
    registers_per_thread: ArrayLike,
    shared_memory_bytes: ArrayLike,
) -> NDArray[np.float64]:
    """Threads an SM holds on average over its thread maximum: min(grid / SMs, residency) x threads / max.

    This is Kineto's "est. achieved occupancy %" (pytorch/kineto, libkineto/src/DeviceProperties.cpp,
    `kernelOccupancy`), with one difference: Kineto asks the calculator with the limit of 48 KB that holds
    before a kernel opts in to more, so it finds no CTA that fits and writes 0 for every kernel above; here
    the opted-in limit holds. Threads, not warps, are counted, as Kineto does.

    Returns:
        Shares (0 to 1) of the broadcast shape; above 48 KB too.

    Raises:
        ValueError: the GPU's figures are not known.
    """
    if gpu.sm_count is None or gpu.max_threads_per_sm is None:
        raise ValueError(f"the SM count or thread limit of {gpu.name} is not known")
    resident = ctas_per_sm(gpu, threads, registers_per_thread, shared_memory_bytes)
    per_sm = np.minimum(np.asarray(ctas, dtype=np.float64) / gpu.sm_count, resident)
    return per_sm * np.asarray(threads, dtype=np.float64) / gpu.max_threads_per_sm
