"""What the step would take if a family were free, twice as fast, or at its roofline floor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wavewise.ceilings.roofline import Floor, StepSetting, floors
from wavewise.ceilings.shapes import ModelShape
from wavewise.findings import Ceiling, DecodeRow, FamilyRow, OperatingPoint, WhatIf
from wavewise.hardware import GpuSpec

Measured = OperatingPoint | DecodeRow
"""Decode rows stand for batch sizes that no marker told; their throughput is not known."""

KERNEL_SUM, BUSY, STEP = "kernel_sum", "busy", "step"
BASES = (KERNEL_SUM, BUSY, STEP)

ATTENTION_READERS = ("attention_split", "attention")
"""Families whose kernel reads the keys: the attention floor is theirs."""


@dataclass(frozen=True)
class Removal:
    """How much of each family goes: from 0 (kept) to 1 (free)."""

    shares: Mapping[str, float]


@dataclass(frozen=True)
class _Basis:
    """One point on one basis: what is there, and what can be taken away."""

    name: str
    ms: float
    removable: Mapping[str, float]
    host_floor_ms: float | None

    def without(self, removal: Removal) -> tuple[float, str | None]:
        """(time left, what binds it). On the step basis the host floor stays, where it is known."""
        left = self.ms - sum(share * self.removable.get(f, 0.0) for f, share in removal.shares.items())
        left = max(left, 0.0)
        if self.name != STEP or self.host_floor_ms is None:
            return left, None
        return (self.host_floor_ms, "host") if left < self.host_floor_ms else (left, "gpu")


def host_floor_ms(point: Measured) -> float | None:
    """The least a step can take on the host's account: smallest clean step boundary plus launch time.

    The boundary is the time in which the GPU waits although it has nothing left to do; the launch call has to
    be made in any case. None where no sample was kept.
    """
    if point.samples is None or not point.samples.boundary_ns:
        return None
    return max(0, min(point.samples.boundary_ns)) / 1e6 + (point.launch_ms or 0.0)


def ceilings(
    points: Sequence[Measured],
    model_shape: ModelShape | None = None,
    gpu: GpuSpec | None = None,
    *,
    tensor_parallel: int | None = None,
    expert_parallel: int = 1,
) -> tuple[Ceiling, ...]:
    """Every family at every point on every basis, dearest family first.

    Args:
        points: operating points; decode rows where the batch size is not known.
        model_shape: gives attention, indexer, MoE and dense GEMM their roofline floors.
        gpu: with its memory bandwidth and tensor rates.
        tensor_parallel: GPUs that share a layer. None: 1, unless all-reduce kernels show that there are more.
        expert_parallel: GPUs that share the experts.
    """
    found: list[Ceiling] = []
    for point in points:
        least = _floors(point, model_shape, gpu, tensor_parallel, expert_parallel)
        for basis in _bases(point):
            rows = sorted(point.families, key=lambda row: -row.sum_us_per_step)
            found += [_ceiling(point, basis, row, least.get(row.family, _NO_FLOOR)) for row in rows]
    return tuple(found)


_NO_FLOOR = Floor(reason="this family's bytes and operations do not follow from the model's shape")


def _bases(point: Measured) -> tuple[_Basis, ...]:
    sums = {row.family: row.sum_us_per_step / 1e3 for row in point.families}
    alone = {row.family: row.exclusive_us_per_step / 1e3 for row in point.families}
    return (
        _Basis(KERNEL_SUM, point.sum_ms.median, sums, None),
        _Basis(BUSY, point.busy_ms.median, alone, None),
        _Basis(STEP, point.step_ms.median, alone, host_floor_ms(point)),
    )


def _floors(
    point: Measured,
    shape: ModelShape | None,
    gpu: GpuSpec | None,
    tensor_parallel: int | None,
    expert_parallel: int,
) -> dict[str, Floor]:
    """Floors by the point's own families."""
    families = {row.family for row in point.families}
    if point.batch_size is None:
        return dict.fromkeys(families, Floor(reason="the batch size is not known"))
    least = floors(
        shape,
        gpu,
        StepSetting(
            batch_size=point.batch_size,
            bucket=point.bucket or point.batch_size,
            context_length=point.context_length,
            tensor_parallel=tensor_parallel or 1,
            expert_parallel=expert_parallel,
        ),
    )
    if tensor_parallel is None and "all_reduce" in families and shape is not None:
        width = Floor(reason="all-reduce kernels show several GPUs; say how many with --tensor-parallel")
        least = dict.fromkeys(least, width)
    attention = least.pop("attention", None)
    if attention is not None:
        least |= dict.fromkeys(ATTENTION_READERS, attention)
    return least


def _ceiling(point: Measured, basis: _Basis, row: FamilyRow, least: Floor) -> Ceiling:
    free, binding = basis.without(Removal({row.family: 1.0}))
    half, _ = basis.without(Removal({row.family: 0.5}))
    family_ms = row.sum_us_per_step / 1e3
    floor_ms, floor_reason = _sound_floor(least, family_ms)
    at_floor = None
    if floor_ms is not None and family_ms > 0.0:
        at_floor, _ = basis.without(Removal({row.family: 1.0 - floor_ms / family_ms}))
    tokens = _tokens(point)
    return Ceiling(
        family=row.family,
        batch_size=point.batch_size,
        context_length=point.context_length,
        context_label=point.context_label if isinstance(point, OperatingPoint) else None,
        basis=basis.name,
        basis_ms=basis.ms,
        family_ms=family_ms,
        removable_ms=basis.removable.get(row.family, 0.0),
        time_ms_if_free=free,
        time_ms_if_2x=half,
        time_ms_if_at_floor=at_floor,
        speedup_if_free=_ratio(basis.ms, free),
        speedup_if_2x=_ratio(basis.ms, half),
        speedup_if_at_floor=_ratio(basis.ms, at_floor),
        tokens_per_s=_rate(tokens, point.step_ms.median),
        tokens_per_s_if_free=_scaled_rate(point, basis, free),
        tokens_per_s_if_2x=_scaled_rate(point, basis, half),
        tokens_per_s_if_at_floor=_scaled_rate(point, basis, at_floor),
        host_floor_ms=basis.host_floor_ms,
        binding=binding,
        floor_ms=floor_ms,
        floor_bytes=least.bytes,
        floor_flops=least.flops,
        floor_bound=least.bound,
        floor_reason=floor_reason,
        reason=_why_missing(point, free),
    )


def _sound_floor(least: Floor, family_ms: float) -> tuple[float | None, str | None]:
    """A floor above the measured time is refuted by it: then an assumption of the shape does not hold."""
    if least.ms is not None and least.ms > family_ms:
        return None, (
            f"the computed floor ({least.ms:.3f} ms) lies above the measured time ({family_ms:.3f} ms): the "
            "model is not of this shape, or its routing activates fewer experts than uniform routing"
        )
    return least.ms, least.reason


def _ratio(before: float, after: float | None) -> float | None:
    return before / after if after is not None and after > 0.0 and before > 0.0 else None


def _tokens(point: Measured) -> float | None:
    if point.tokens_per_step is not None:
        return point.tokens_per_step
    return None if point.batch_size is None else float(point.batch_size)


def _rate(tokens: float | None, step_ms: float | None) -> float | None:
    return None if tokens is None or not step_ms else 1000.0 * tokens / step_ms


def _scaled_rate(point: Measured, basis: _Basis, time_ms: float | None) -> float | None:
    """Tokens per second with this speed-up of the basis carried over to the step, as its users do.

    On the step basis that is exact; on the others it assumes that the rest of the step shrinks alike.
    """
    speedup = _ratio(basis.ms, time_ms)
    today = _rate(_tokens(point), point.step_ms.median)
    return None if speedup is None or today is None else today * speedup


def _why_missing(point: Measured, free_ms: float) -> str | None:
    if free_ms <= 0.0:
        return "nothing else runs: no finite speed-up"
    if _tokens(point) is None:
        return "the batch size is not known, so tokens per second are not either"
    return None


def what_ifs(
    points: Sequence[Measured],
    model_shape: ModelShape | None = None,
    gpu: GpuSpec | None = None,
    *,
    tensor_parallel: int | None = None,
    expert_parallel: int = 1,
) -> tuple[WhatIf, ...]:
    """Combined changes that people ask for, at every point on every basis."""
    found: list[WhatIf] = []
    for point in points:
        least = _floors(point, model_shape, gpu, tensor_parallel, expert_parallel)
        for name, changes in _questions(point, least):
            found += [what_if(point, basis, name, changes, least) for basis in BASES]
    return tuple(found)


def _questions(point: Measured, least: Mapping[str, Floor]) -> list[tuple[str, dict[str, str]]]:
    by_time = [row.family for row in sorted(point.families, key=lambda row: -row.sum_us_per_step)]
    sums = {row.family: row.sum_us_per_step / 1e3 for row in point.families}
    attention = [family for family in by_time if family.startswith("attention")]
    floored = [f for f in by_time if _sound_floor(least.get(f, _NO_FLOOR), sums[f])[0] is not None]
    questions: list[tuple[str, dict[str, str]]] = []
    if len(by_time) >= 2:
        questions.append(("the two dearest families twice as fast", dict.fromkeys(by_time[:2], "2x")))
        questions.append(("the two dearest families free", dict.fromkeys(by_time[:2], "free")))
    if len(attention) >= 2:
        questions.append(("all attention kernels free", dict.fromkeys(attention, "free")))
    if attention and "moe_gemm" in by_time:
        questions.append(
            ("attention and MoE GEMM twice as fast", dict.fromkeys([*attention, "moe_gemm"], "2x"))
        )
    if len(floored) >= 2:
        questions.append(("every family with a roofline floor at it", dict.fromkeys(floored, "floor")))
    questions.append(("every kernel twice as fast", dict.fromkeys(by_time, "2x")))
    return questions


def what_if(
    point: Measured,
    basis: str,
    name: str,
    changes: Mapping[str, str],
    least: Mapping[str, Floor] | None = None,
) -> WhatIf:
    """One combined change on one basis.

    Args:
        point: where.
        basis: "kernel_sum", "busy" or "step".
        name: the question in words.
        changes: family -> "free", "2x" or "floor".
        least: roofline floors by family, needed for "floor".

    Raises:
        ValueError: an unknown change, or "floor" for a family that has none.
    """
    rows = {row.family: row for row in point.families}
    here = next(one for one in _bases(point) if one.name == basis)
    shares: dict[str, float] = {}
    for family, change in changes.items():
        if family not in rows:
            continue
        if change == "floor":
            family_ms = rows[family].sum_us_per_step / 1e3
            floor_ms, _ = _sound_floor((least or {}).get(family, _NO_FLOOR), family_ms)
            if floor_ms is None:
                raise ValueError(f"{family} has no roofline floor")
            shares[family] = 1.0 - floor_ms / family_ms if family_ms > 0.0 else 0.0
        elif change in ("free", "2x"):
            shares[family] = 1.0 if change == "free" else 0.5
        else:
            raise ValueError(f"unknown change {change!r}")
    left, binding = here.without(Removal(shares))
    return WhatIf(
        name=name,
        batch_size=point.batch_size,
        context_length=point.context_length,
        basis=basis,
        changes=dict(changes),
        basis_ms=here.ms,
        time_ms=left,
        speedup=_ratio(here.ms, left),
        tokens_per_s=_scaled_rate(point, here, left),
        binding=binding,
        reason=_why_missing(point, left),
    )
