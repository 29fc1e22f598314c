"""Split-KV: an attention grid of requests x heads is too small for the GPU at small batches."""

from wavewise.findings import KernelRow
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.packing import best_split, ctas
from wavewise.levers.view import View
from wavewise.occupancy.waves import waves


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = sum over kernels of time * (1 - ratio) - launches * combine."""
    kernels = view.kernels_of(spec.families)
    if not kernels:
        return nothing(f"no unsplit attention kernel at {view.where}")
    if view.gpu.sm_count is None or all(ctas(k) is None for k in kernels):
        return unknown("the attention kernel's grid and the GPU's SM count")
    gain, cost, parts, notes = 0.0, 0.0, list[str](), list[str]()
    for kernel in kernels:
        grid = ctas(kernel)
        if grid is None or kernel.persistent:
            continue
        if not _lacks_ctas(grid, kernel, view.gpu.sm_count, spec):
            continue
        # Of a grid below the SM count every SM holds one CTA at most: SMs are what splits fill, whatever fits on one.
        best = best_split(grid, view.gpu.sm_count, 1, largest=int(spec.number("max_splits")))
        combine = kernel.launches_per_step * spec.number("combine_us")
        saved = kernel.sum_us_per_step * (1.0 - best.ratio)
        if 1.0 - best.ratio < spec.number("least_gain") or saved <= combine:
            continue
        gain, cost = gain + saved, cost + combine
        parts.append(
            f"{kernel.sum_us_per_step:.1f} us x (1 - {best.ratio:.3f}) - {kernel.launches_per_step:g} "
            f"combines x "
            f"{spec.number('combine_us'):g} us"
        )
        notes.append(
            f"{short_name(kernel.name)}: {grid} CTAs on {view.gpu.sm_count} SMs (coverage "
            f"{100 * min(1.0, grid / view.gpu.sm_count):.0f} %); {best.splits} splits make {best.ctas} "
            f"CTAs in "
            f"{best.waves} waves of 1/{best.splits} of the work"
        )
    if not parts:
        return nothing("the unsplit attention grids fill the GPU, or a combine would cost what a split saves")
    return Judgement(
        saving_us=gain - cost,
        upper_bound_us=gain,
        basis="; ".join(parts),
        evidence="; ".join(notes),
        confidence="medium",
        families=spec.families,
    )


def _lacks_ctas(grid: int, kernel: KernelRow, sm_count: int, spec: LeverSpec) -> bool:
    """Whether SMs stay empty: fewer CTAs than SMs, or a second wave, one CTA per SM, that is far from full."""
    if grid < sm_count:
        return True
    laid = waves(grid, sm_count, 1)
    return (
        kernel.ctas_per_sm == 1 and laid.waves == 2 and laid.wave_efficiency <= spec.number("max_efficiency")
    )
