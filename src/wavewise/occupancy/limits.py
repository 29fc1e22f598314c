"""How many CTAs of a launch fit on one SM by each resource: the hardware's allocation rules, vectorised.

The rules, in the order of `RESOURCES`, as the CUDA toolkit's public header `cuda_occupancy.h` (13.x) states
them; docs/occupancy.md derives each one, and the golden table of an H200 checks their sum against the driver:

- warps: a CTA takes ceil(threads / warp) of the SM's warp slots.
- registers: a warp takes registers x warp size, rounded up to the allocation unit, from one of the SM's
  sub-partitions; a sub-partition holds whole warps only. A CTA's warps, rounded up to the number of
  sub-partitions, must also stay within the registers that one CTA may hold.
- shared memory: a CTA takes what it asks for plus what the driver reserves, rounded up to the unit.
- CTA slots: so many per SM.
- named barriers: so many per SM from capability 9.0 on; before that the calculator lets them set no limit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wavewise.hardware import GpuSpec

RESOURCES = ("warps", "registers", "shared_memory", "cta_slots", "barriers")
UNLIMITED = int(np.iinfo(np.int64).max)
"""Stands for "this resource sets no limit" in arrays."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SmLimits:
    """The figures of a GpuSpec that residency needs, all of them known. Fields as in GpuSpec.

    Only `barriers_per_sm` may be None: then named barriers set no limit.
    """

    warp_size: int
    max_threads_per_cta: int
    max_warps_per_sm: int
    max_ctas_per_sm: int
    registers_per_sm: int
    registers_per_cta: int
    max_registers_per_thread: int
    register_allocation_unit: int
    warp_allocation_granularity: int
    shared_memory_per_sm: int
    shared_memory_per_cta: int
    shared_memory_reserved_per_cta: int
    shared_memory_allocation_unit: int
    barriers_per_sm: int | None

    @classmethod
    def of(cls, gpu: GpuSpec) -> "SmLimits | str":
        """The limits of `gpu`, or why they are not known."""
        if gpu.vendor != "nvidia":
            return f"the allocation rules of {gpu.name} are not modelled (NVIDIA's are)"
        known = {name: getattr(gpu, name) for name in cls.__dataclass_fields__}
        if known["registers_per_cta"] is None:
            known["registers_per_cta"] = known["registers_per_sm"]
        missing = [name for name, value in known.items() if value is None and name != "barriers_per_sm"]
        if missing:
            of = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else gpu.name
            return f"{', '.join(missing)} of {of} not known"
        return cls(**known)

    def registers_per_warp(self, registers_per_thread: ArrayLike) -> Ints:
        """Registers that a warp is given: rounded up to the allocation unit."""
        unit = self.register_allocation_unit
        wanted = np.asarray(registers_per_thread, dtype=np.int64) * self.warp_size
        return -(-wanted // unit) * unit

    def shared_memory_of_cta(self, shared_memory_bytes: ArrayLike) -> Ints:
        """Bytes that a CTA is given: with the driver's reserve, rounded up to the allocation unit."""
        unit = self.shared_memory_allocation_unit
        wanted = np.asarray(shared_memory_bytes, dtype=np.int64) + self.shared_memory_reserved_per_cta
        return -(-wanted // unit) * unit


def cta_limits(
    sm: SmLimits,
    threads: ArrayLike,
    registers_per_thread: ArrayLike,
    shared_memory_bytes: ArrayLike,
    barriers: ArrayLike = 1,
) -> dict[str, Ints]:
    """CTAs per SM that each resource allows, for arrays of launches (any shapes that broadcast).

    Args:
        sm: the SM.
        threads: per CTA, at least 1.
        registers_per_thread: 0 sets no limit.
        shared_memory_bytes: static + dynamic.
        barriers: named barriers per CTA; up to the share of a CTA slot they set no limit.

    Returns:
        One int64 array per name in RESOURCES, all of the broadcast shape; 0 where not even one CTA fits,
        UNLIMITED where the resource is not used.
    """
    threads, registers, shared, used_barriers = np.broadcast_arrays(
        *(
            np.asarray(a, dtype=np.int64)
            for a in (threads, registers_per_thread, shared_memory_bytes, barriers)
        )
    )
    warps = -(-threads // sm.warp_size)
    by_warps = np.where(threads > sm.max_threads_per_cta, 0, sm.max_warps_per_sm // warps)
    slots = np.full(threads.shape, sm.max_ctas_per_sm, dtype=np.int64)
    return {
        "warps": by_warps,
        "registers": _by_registers(sm, warps, registers),
        "shared_memory": _by_shared_memory(sm, shared),
        "cta_slots": slots,
        "barriers": _by_barriers(sm, used_barriers),
    }


def ctas_per_sm(
    gpu: GpuSpec, threads: ArrayLike, registers_per_thread: ArrayLike, shared_memory_bytes: ArrayLike
) -> Ints:
    """Residency of arrays of launches at once, for sweeps and planners; 0 where a launch does not fit.

    Raises:
        ValueError: the GPU's limits are not known; `residency` gives the reason as a value.
    """
    sm = SmLimits.of(gpu)
    if isinstance(sm, str):
        raise ValueError(sm)
    limits = cta_limits(sm, threads, registers_per_thread, shared_memory_bytes)
    return np.minimum.reduce(list(limits.values()))


def _by_registers(sm: SmLimits, warps: Ints, registers: Ints) -> Ints:
    per_warp = sm.registers_per_warp(registers)
    parts = sm.warp_allocation_granularity
    warps_per_part = (sm.registers_per_sm // parts) // np.maximum(per_warp, 1)
    fits = warps_per_part * parts // warps
    # The hardware's own check of a launch counts the CTA as if it took warps in every sub-partition alike.
    assumed = per_warp * (-(-warps // parts) * parts)
    too_many = (assumed > sm.registers_per_cta) | (registers > sm.max_registers_per_thread)
    return np.where(too_many, 0, np.where(per_warp == 0, UNLIMITED, fits))


def _by_shared_memory(sm: SmLimits, shared: Ints) -> Ints:
    per_cta = sm.shared_memory_of_cta(shared)
    fits = np.where(per_cta > 0, sm.shared_memory_per_sm // np.maximum(per_cta, 1), UNLIMITED)
    largest = sm.shared_memory_per_cta + sm.shared_memory_reserved_per_cta
    return np.where(per_cta > largest, 0, fits)


def _by_barriers(sm: SmLimits, used: Ints) -> Ints:
    if sm.barriers_per_sm is None:
        return np.full(used.shape, UNLIMITED, dtype=np.int64)
    # Every slot has its share of barriers; only a kernel that uses more can run out before the slots do.
    share = sm.barriers_per_sm // sm.max_ctas_per_sm
    return np.where(used > share, sm.barriers_per_sm // np.maximum(used, 1), UNLIMITED)
