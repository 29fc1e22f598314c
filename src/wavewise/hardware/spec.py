"""The two nouns of the ground: what a GPU is, and what a launch asks of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Launch:
    """What one kernel launch asks of each SM. None where it is not known (ROCm graph kernels, say).

    Attributes:
        grid: CTAs in x, y, z.
        block: threads per CTA in x, y, z.
        registers_per_thread: as the compiler assigned them.
        shared_memory_bytes: static + dynamic, per CTA.
        cluster_size: CTAs per thread block cluster; None or 1 without clusters.
        barriers: named barriers the kernel uses per CTA; None counts as the usual one.
    """

    grid: tuple[int, int, int] | None
    block: tuple[int, int, int]
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    cluster_size: int | None = None
    barriers: int | None = None

    @property
    def ctas(self) -> int | None:
        """CTAs of the whole grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        return self.block[0] * self.block[1] * self.block[2]


def _no_rates() -> Mapping[str, float]:
    return MappingProxyType({})


def _no_sources() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU: identity, the SM's limits and allocation granularities, and the rates of the whole chip.

    A figure without a public source is None, never a guess. Code asks for a *feature* ("wgmma" in
    gpu.features), never whether one capability is greater than another: 12.0 is not a bigger 10.0.

    Attributes:
        id: catalogue id ("h200"), or "trace" for a GPU described by a trace's own figures.
        aliases: the names that drivers print for it.
        compute_capability: exact, "9.0"; AMD's is the figure that HIP reports ("9.4" for gfx942).
        features: capabilities by name, see docs/occupancy.md.
        max_ctas_per_sm: CTA slots.
        registers_per_cta: what one CTA may hold.
        register_allocation_unit: registers; a warp's registers are rounded up to it.
        warp_allocation_granularity: sub-partitions of an SM, each with its own share of the registers.
        shared_memory_per_cta: bytes that a CTA may ask for after opting in.
        shared_memory_per_cta_default: bytes that a CTA may ask for without opting in.
        shared_memory_reserved_per_cta: bytes that the driver takes of every resident CTA.
        barriers_per_sm: named barriers shared by the resident CTAs; None where they set no limit of their own.
        tensor_flops: dense floating-point operations per second by precision ("bf16", "fp8", ...).
        sources: where each figure comes from, by field name.
    """

    id: str
    name: str
    vendor: str
    aliases: tuple[str, ...] = ()
    compute_capability: str | None = None
    features: frozenset[str] = frozenset()
    sm_count: int | None = None
    warp_size: int | None = None
    max_threads_per_sm: int | None = None
    max_threads_per_cta: int | None = None
    max_warps_per_sm: int | None = None
    max_ctas_per_sm: int | None = None
    registers_per_sm: int | None = None
    registers_per_cta: int | None = None
    max_registers_per_thread: int | None = None
    register_allocation_unit: int | None = None
    warp_allocation_granularity: int | None = None
    shared_memory_per_sm: int | None = None
    shared_memory_per_cta: int | None = None
    shared_memory_per_cta_default: int | None = None
    shared_memory_reserved_per_cta: int | None = None
    shared_memory_allocation_unit: int | None = None
    barriers_per_sm: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    tensor_flops: Mapping[str, float] = field(default_factory=_no_rates, hash=False)
    power_limit_w: float | None = None
    sources: Mapping[str, str] = field(default_factory=_no_sources, hash=False)
    notes: tuple[str, ...] = ()
