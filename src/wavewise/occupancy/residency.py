"""Residency of one launch: CTAs per SM, what limits it, and what one more CTA would take."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wavewise.findings import NextCta
from wavewise.hardware import GpuSpec, Launch
from wavewise.occupancy.clusters import cluster_note
from wavewise.occupancy.limits import RESOURCES, UNLIMITED, SmLimits, cta_limits


def _no_limits() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Residency:
    """How a launch sits on one SM.

    Attributes:
        ctas_per_sm: 0 when not even one CTA fits (`reason` says which limit it breaks), None when unknown.
        limiter: the resources that bind, of "warps", "registers", "shared_memory", "cta_slots", "barriers",
            joined by "+" when several do.
        warps_per_sm: resident warps at full residency.
        occupancy: resident warps over the SM's maximum (0 to 1).
        next_cta: what one more resident CTA would take.
        limits: CTAs per SM that each resource allows; resources that set no limit are absent.
        reason: why it is unknown, or why nothing fits.
        note: a caution that goes with the number (clusters).
    """

    ctas_per_sm: int | None
    limiter: str | None = None
    warps_per_sm: int | None = None
    occupancy: float | None = None
    next_cta: NextCta | None = None
    limits: Mapping[str, int] = field(default_factory=_no_limits, hash=False)
    reason: str | None = None
    note: str | None = None


def residency(gpu: GpuSpec, launch: Launch) -> Residency:
    """CTAs per SM of `launch` on `gpu`. Never raises for odd launches: what is unknown has a reason."""
    sm = SmLimits.of(gpu)
    if isinstance(sm, str):
        return Residency(None, reason=sm)
    if launch.registers_per_thread is None or launch.shared_memory_bytes is None:
        return Residency(None, reason="the launch's registers or shared memory were not recorded")
    if wrong := invalid_launch(launch):
        return Residency(None, reason=wrong)
    registers, shared = launch.registers_per_thread, launch.shared_memory_bytes
    # A kernel that does not say how many barriers it uses counts as using one, as in the CUDA header.
    barriers = 1 if launch.barriers is None else launch.barriers
    arrays = cta_limits(sm, launch.threads, registers, shared, barriers)
    limits = {name: int(arrays[name]) for name in RESOURCES if int(arrays[name]) != UNLIMITED}
    ctas = min(limits.values())
    limiter = "+".join(name for name in RESOURCES if limits.get(name) == ctas)
    warps = ctas * (-(-launch.threads // sm.warp_size))
    return Residency(
        ctas_per_sm=ctas,
        limiter=limiter,
        warps_per_sm=warps,
        occupancy=warps / sm.max_warps_per_sm,
        next_cta=cta_budget(sm, launch, ctas + 1),
        limits=limits,
        reason=_misfit(sm, launch, limits) if ctas == 0 else None,
        note=cluster_note(launch.cluster_size),
    )


NAMED_BARRIERS = 16
"""Named barriers that a CTA has (PTX ISA, "bar": barriers 0 to 15)."""


def invalid_launch(launch: Launch) -> str | None:
    """What no GPU could launch (zero threads, negative sizes), in words; None for a possible launch."""
    if min(launch.block) < 1:
        return f"a block of {'x'.join(map(str, launch.block))} threads is no launch"
    if launch.grid is not None and min(launch.grid) < 1:
        return f"a grid of {'x'.join(map(str, launch.grid))} CTAs is no launch"
    for value, name in (
        (launch.registers_per_thread, "registers per thread"),
        (launch.shared_memory_bytes, "bytes of shared memory"),
        (launch.barriers, "barriers"),
    ):
        if value is not None and value < 0:
            return f"{value:,} {name}: negative"
    if launch.barriers is not None and launch.barriers > NAMED_BARRIERS:
        return f"{launch.barriers:,} barriers: a CTA has {NAMED_BARRIERS} named barriers"
    if launch.cluster_size is not None and launch.cluster_size < 1:
        return f"a cluster of {launch.cluster_size} CTAs is no launch"
    return None


def cta_budget(gpu: GpuSpec | SmLimits, launch: Launch, ctas: int) -> NextCta:
    """Every limit that `launch` has to meet for `ctas` resident CTAs; a limit it meets already stays None.

    The register limit holds at the thread limit, where that one has to be met as well.

    Raises:
        ValueError: the GPU's limits or the launch's parameters are not known.
    """
    sm = SmLimits.of(gpu) if isinstance(gpu, GpuSpec) else gpu
    if isinstance(sm, str) or launch.registers_per_thread is None or launch.shared_memory_bytes is None:
        raise ValueError("a budget needs a known GPU and a launch with registers and shared memory")
    if ctas > sm.max_ctas_per_sm:
        return NextCta(ctas_per_sm=ctas, impossible_reason=f"an SM has {sm.max_ctas_per_sm} CTA slots")
    if launch.barriers and sm.barriers_per_sm is not None and ctas * launch.barriers > sm.barriers_per_sm:
        most = sm.barriers_per_sm // ctas
        return NextCta(
            ctas_per_sm=ctas,
            impossible_reason=(
                f"an SM has {sm.barriers_per_sm} named barriers, {most} for each (now {launch.barriers})"
            ),
        )
    warps_allowed = sm.max_warps_per_sm // ctas
    if warps_allowed == 0:
        return NextCta(ctas_per_sm=ctas, impossible_reason=f"an SM has {sm.max_warps_per_sm} warp slots")
    threads_allowed = min(warps_allowed * sm.warp_size, sm.max_threads_per_cta)
    threads = min(launch.threads, threads_allowed)
    registers_allowed = _register_budget(sm, -(-threads // sm.warp_size), ctas)
    shared_allowed = _shared_memory_budget(sm, ctas)
    if registers_allowed < 1 <= launch.registers_per_thread or shared_allowed < 0:
        what = "registers" if shared_allowed >= 0 else "shared memory"
        return NextCta(
            ctas_per_sm=ctas, impossible_reason=f"an SM has too little {what} for {ctas} CTAs of this size"
        )
    return NextCta(
        ctas_per_sm=ctas,
        shared_memory_bytes=shared_allowed if launch.shared_memory_bytes > shared_allowed else None,
        registers_per_thread=registers_allowed if launch.registers_per_thread > registers_allowed else None,
        threads_per_cta=threads_allowed if launch.threads > threads_allowed else None,
    )


def _register_budget(sm: SmLimits, warps: int, ctas: int) -> int:
    """Most registers per thread with which `ctas` CTAs of `warps` warps fit: the register rule inverted."""
    parts, unit = sm.warp_allocation_granularity, sm.register_allocation_unit
    warps_per_part = -(-ctas * warps // parts)
    per_warp = min(
        (sm.registers_per_sm // parts) // warps_per_part,
        sm.registers_per_cta // (-(-warps // parts) * parts),
    )
    return min(per_warp // unit * unit // sm.warp_size, sm.max_registers_per_thread)


def _shared_memory_budget(sm: SmLimits, ctas: int) -> int:
    """Most bytes a CTA may ask for so that `ctas` fit; negative if the driver's reserve alone is too much."""
    unit = sm.shared_memory_allocation_unit
    per_cta = sm.shared_memory_per_sm // ctas // unit * unit - sm.shared_memory_reserved_per_cta
    return min(per_cta, sm.shared_memory_per_cta)


def _misfit(sm: SmLimits, launch: Launch, limits: Mapping[str, int]) -> str:
    """Which limits a launch breaks of which not one CTA fits."""
    broken: list[str] = []
    if limits["warps"] == 0:
        broken.append(f"{launch.threads:,} threads (a CTA has at most {sm.max_threads_per_cta:,})")
    if limits.get("registers") == 0:
        most = _register_budget(sm, -(-min(launch.threads, sm.max_threads_per_cta) // sm.warp_size), 1)
        broken.append(f"{launch.registers_per_thread} registers per thread (at most {most} with its threads)")
    if limits.get("shared_memory") == 0:
        broken.append(
            f"{launch.shared_memory_bytes:,} B of shared memory (at most {sm.shared_memory_per_cta:,} B)"
        )
    if limits.get("barriers") == 0:
        broken.append(f"{launch.barriers} barriers (an SM has {sm.barriers_per_sm})")
    return "does not fit: " + ", ".join(broken)
