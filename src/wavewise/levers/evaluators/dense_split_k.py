"""Split-K for dense GEMMs: at decode batch sizes M x N tiles are too few to fill the GPU."""

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.packing import ctas
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = sum over kernels of launches * (realised * median * (1 - 1/splits) - reduction), where positive."""
    kernels = view.kernels_of(spec.families)
    if not kernels:
        return nothing(f"no dense GEMM at {view.where}")
    if view.gpu.sm_count is None or all(ctas(k) is None for k in kernels):
        return unknown("the dense GEMMs' grids and the GPU's SM count")
    share, reduction = spec.number("realised"), spec.number("reduce_us")
    gain, bound, parts, notes = 0.0, 0.0, list[str](), list[str]()
    for kernel in kernels:
        grid = ctas(kernel)
        if grid is None or _split_already(kernel.name):
            continue
        if grid > spec.number("max_coverage") * view.gpu.sm_count:
            continue
        # Splits go to SMs that are empty now: no more of them than fit into the same wave.
        splits = min(view.gpu.sm_count // grid, int(spec.number("max_splits")))
        per_launch = kernel.median_us * (1.0 - 1.0 / splits)
        bound += per_launch * kernel.launches_per_step
        saved = (share * per_launch - reduction) * kernel.launches_per_step
        if saved <= 0.0:
            continue
        gain += saved
        parts.append(
            f"{kernel.launches_per_step:g} x ({share:g} (assumed) x {kernel.median_us:.2f} us x (1 - 1/{splits}) - "
            f"{reduction:g} us reduction)"
        )
        notes.append(f"{short_name(kernel.name)}: {grid} CTAs on {view.gpu.sm_count} SMs; {splits} splits")
    if not parts:
        return nothing(
            "no unsplit dense GEMM leaves SMs empty for longer than a reduction would take "
            f"({spec.number('reduce_us'):g} us)"
        )
    return Judgement(
        saving_us=gain,
        upper_bound_us=bound,
        basis=" + ".join(parts),
        evidence="; ".join(notes),
        confidence="low",
        families=spec.families,
    )


def _split_already(name: str) -> bool:
    lowered = name.lower()
    return "splitk" in lowered or "split_k" in lowered or "streamk" in lowered or "stream_k" in lowered
