"""From resources to rows: residency and waves on each GPU, best first."""

from collections.abc import Mapping

from wavewise.audit.records import AuditRow, KernelConfig, Resources
from wavewise.errors import UsageError
from wavewise.hardware import GpuSpec, Launch
from wavewise.occupancy import grid_of, occupancy_of

_TENSOR_MEMORY_COLUMNS = 512
"""Of an SM with tensor memory (PTX ISA, "Tensor Memory": 512 columns x 128 lanes per CTA)."""


def row(
    gpu: GpuSpec,
    config: KernelConfig | None,
    found: Resources,
    grid: str | None,
    variables: Mapping[str, int],
    dynamic_shared: int = 0,
) -> AuditRow:
    """One row: what fits on `gpu` and how the grid fills it.

    Raises:
        UsageError: the grid's formula is wrong for this configuration.
    """
    programs = grid_of(grid, _names(config, variables)) if grid is not None else None
    shape = None if programs is None else (programs[0] * (config.num_ctas if config else 1), *programs[1:])
    if unfit := _misfit(gpu, found):
        return AuditRow(gpu=gpu.id, config=config, resources=found, grid=shape, fits=False, reason=unfit)
    if found.error is not None:
        return AuditRow(gpu=gpu.id, config=config, resources=found, grid=shape, reason=found.error)
    threads = found.threads_per_cta
    if threads is None:
        why = "the binary does not record the threads per CTA; give --threads"
        return AuditRow(gpu=gpu.id, config=config, resources=found, grid=shape, reason=why)
    if found.shared_memory_bytes is not None and dynamic_shared:
        found = _with_shared(found, found.shared_memory_bytes + dynamic_shared)
    launch = Launch(
        grid=shape,
        block=(threads, 1, 1),
        registers_per_thread=found.registers_per_thread,
        shared_memory_bytes=found.shared_memory_bytes,
        cluster_size=found.cluster_size,
        barriers=found.barriers,
    )
    residency, waves = occupancy_of(gpu, launch)
    notes = [residency.note] if residency.note else []
    if found.threads_are_bound:
        notes.append(f"{found.kernel}: {threads} threads per CTA is the most it may be launched with")
    columns = found.tensor_memory_columns
    if columns and residency.ctas_per_sm and columns * residency.ctas_per_sm > _TENSOR_MEMORY_COLUMNS:
        holds = _TENSOR_MEMORY_COLUMNS // columns
        notes.append(
            f"tensor memory ({columns} of {_TENSOR_MEMORY_COLUMNS} columns) lets {holds} CTAs per SM work at once"
        )
    return AuditRow(
        gpu=gpu.id,
        config=config,
        resources=found,
        fits=None if residency.ctas_per_sm is None else residency.ctas_per_sm > 0,
        ctas_per_sm=residency.ctas_per_sm,
        limiter=residency.limiter,
        warps_per_sm=residency.warps_per_sm,
        occupancy=residency.occupancy,
        next_cta=residency.next_cta,
        grid=shape,
        sm_coverage=waves.sm_coverage if waves else None,
        waves=waves.waves if waves else None,
        wave_efficiency=waves.wave_efficiency if waves else None,
        tail_ctas=waves.tail_ctas if waves else None,
        reason=residency.reason,
        notes=tuple(notes),
    )


def ranked(rows: list[AuditRow]) -> tuple[AuditRow, ...]:
    """Best first, GPUs in the order given: what fits, without spills, fullest SMs, fullest waves, fewest registers.

    This ranks resources, not speed: it says which configurations can hide latency and fill the GPU, and leaves
    the race among those to a measurement.
    """
    order: list[str] = list(dict.fromkeys(entry.gpu for entry in rows))
    result: list[AuditRow] = []
    for gpu in order:
        own = sorted((entry for entry in rows if entry.gpu == gpu), key=_goodness)
        place = 0
        for entry in own:
            place += entry.fits is True
            result.append(_replaced(entry, rank=place if entry.fits is True else None))
    return tuple(result)


def _goodness(entry: AuditRow) -> tuple[float, ...]:
    if not entry.fits:
        return (1.0 if entry.fits is None else 2.0,)
    spilled = (entry.resources.spill_store_bytes or 0) + (entry.resources.spill_load_bytes or 0)
    return (
        0.0,
        float(spilled > 0),
        -(entry.occupancy or 0.0),
        -(entry.wave_efficiency or 0.0),
        float(spilled),
        float(entry.resources.registers_per_thread or 0),
    )


def _names(config: KernelConfig | None, variables: Mapping[str, int]) -> dict[str, int]:
    """What a grid's formula may use: whole constants, num_warps and the like, and the user's own values."""
    if config is None:
        return dict(variables)
    constants = {
        name: int(value)
        for name, value in config.constexprs.items()
        if isinstance(value, int) and name not in variables
    }
    return {**constants, "num_warps": config.num_warps, "num_ctas": config.num_ctas, **variables}


def _misfit(gpu: GpuSpec, found: Resources) -> str | None:
    """Why the code cannot run on this GPU at all."""
    if not runs_on(found.arch, gpu.compute_capability or ""):
        return f"compiled for {found.arch}, which does not run on compute capability {gpu.compute_capability}"
    if found.error is not None and found.shared_memory_bytes is not None:
        most = f" (at most {gpu.shared_memory_per_cta:,} B)" if gpu.shared_memory_per_cta else ""
        return f"does not fit: {found.shared_memory_bytes:,} B of shared memory{most}"
    return None


def runs_on(arch: str, capability: str) -> bool:
    """Machine code runs on its own major capability from its minor on; sm_90a only on 9.0, sm_100f on its family.

    Source: CUDA programming guide, "Compute Capabilities", binary compatibility and feature sets.
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    if not digits.isdigit() or "." not in capability:
        return False
    major, minor = int(digits[:-1]), int(digits[-1])
    own_major, own_minor = (int(part) for part in capability.split(".")[:2])
    if arch.endswith("a"):
        return (major, minor) == (own_major, own_minor)
    return major == own_major and own_minor >= minor


def _with_shared(found: Resources, shared_memory_bytes: int) -> Resources:
    import msgspec

    return msgspec.structs.replace(found, shared_memory_bytes=shared_memory_bytes)


def _replaced(entry: AuditRow, rank: int | None) -> AuditRow:
    import msgspec

    return msgspec.structs.replace(entry, rank=rank)


def capability_number(gpu: GpuSpec) -> int:
    """90 for a GPU of capability 9.0, as Triton names targets.

    Raises:
        UsageError: no NVIDIA GPU, or its capability is unknown.
    """
    if gpu.vendor != "nvidia" or gpu.compute_capability is None:
        raise UsageError(f"{gpu.name}: only NVIDIA GPUs of known compute capability can be audited")
    return int(gpu.compute_capability.replace(".", ""))
