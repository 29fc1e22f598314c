"""What an audit takes and says, as values."""

from typing import Any

import msgspec

from wavewise.findings import NextCta
from wavewise.findings.base import Result


class KernelConfig(Result, frozen=True, kw_only=True):
    """One way to compile a kernel. The defaults are Triton's own for NVIDIA GPUs."""

    constexprs: dict[str, Any] = msgspec.field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None


class Resources(Result, frozen=True, kw_only=True):
    """What the compiler gave one kernel for one architecture.

    Attributes:
        arch: as the compiler names it: "sm_90a".
        threads_per_cta: warps x 32, warps of specialised partitions included; None where a binary does not
            record it.
        threads_are_bound: the binary records a maximum (launch bounds), not the launch's own size.
        shared_memory_bytes: static + dynamic; of a binary the static part only, its launch adds the rest.
        spill_store_bytes, spill_load_bytes: per thread, as ptxas reports them; a binary does not record them.
        stack_bytes: local memory per thread: spills, and arrays that registers cannot hold.
        tensor_memory_columns: of the 512 that an SM of the data-centre Blackwell has; None without tensor memory.
        error: the compiler's message in one line, None for a kernel that compiled.
        timed_out: the compile was ended because it took longer than it may; `error` says how long that is.
    """

    kernel: str
    arch: str
    threads_per_cta: int | None = None
    threads_are_bound: bool = False
    registers_per_thread: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_memory_bytes: int | None = None
    barriers: int | None = None
    cluster_size: int | None = None
    tensor_memory_columns: int | None = None
    error: str | None = None
    timed_out: bool = False


class AuditRow(Result, frozen=True, kw_only=True):
    """One kernel in one configuration on one GPU; occupancy fields as in the findings' kernel rows.

    Attributes:
        rank: 1 is best among the rows of this GPU; None for what does not fit, did not compile or took too long.
        fits: whether at least one CTA fits on an SM; None when residency is unknown.
        grid: CTAs of the launch, clusters included; None without a grid.
        reason: why occupancy is unknown, or what does not fit.
        notes: cautions that go with the numbers.
    """

    gpu: str
    config: KernelConfig | None
    resources: Resources
    rank: int | None = None
    fits: bool | None = None
    ctas_per_sm: int | None = None
    limiter: str | None = None
    warps_per_sm: int | None = None
    occupancy: float | None = None
    next_cta: NextCta | None = None
    grid: tuple[int, int, int] | None = None
    sm_coverage: float | None = None
    waves: int | None = None
    wave_efficiency: float | None = None
    tail_ctas: int | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()


class AuditReport(Result, frozen=True, kw_only=True):
    """All rows, best first within each GPU, and what computed them.

    Attributes:
        compiler: "triton 3.9.0, ptxas 13.4.59" or the tool that read a binary.
        compiled: how many kernels were compiled for this report; the others came from the cache.
    """

    kernel: str
    rows: tuple[AuditRow, ...]
    compiler: str
    compiled: int = 0
    cached: int = 0
