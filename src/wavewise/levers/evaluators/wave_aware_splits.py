"""Wave-aware split count: the last wave of a split-KV attention grid is often nearly empty."""

from wavewise.levers.axes import split_axis
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.packing import best_split
from wavewise.levers.planner import planned, tiles_per_request
from wavewise.levers.view import View
from wavewise.occupancy.waves import waves


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = sum over kernels of time * (1 - ratio), less what the combine kernels grow by."""
    kernels = view.kernels_of(spec.families)
    if not kernels:
        return nothing(f"no split attention kernel at {view.where}")
    if all(k.persistent for k in kernels):
        return nothing(
            f"the split kernel's grid is the GPU's slots {kernels[0].grid}: planned for one wave already"
        )
    gain, parts, notes = 0.0, list[str](), list[str]()
    open_questions = 0
    combine = view.sum_us(("attention_combine",))
    share = combine / sum(k.sum_us_per_step for k in kernels)
    growth = 0.0
    for kernel in kernels:
        axis = split_axis(kernel, view)
        if kernel.persistent:
            continue
        if axis is None or kernel.ctas_per_sm is None or view.gpu.sm_count is None:
            open_questions += 1
            continue
        grid = axis.units * axis.splits
        # Of a grid below the SM count every SM holds one CTA at most; of one that is resident at once, more CTAs
        # are more warps per SM, not fewer waves, which this lever does not claim.
        resident = 1 if grid < view.gpu.sm_count else kernel.ctas_per_sm
        if grid >= view.gpu.sm_count and waves(grid, view.gpu.sm_count, resident).waves == 1:
            continue
        tiles, tiles_source = tiles_per_request(kernel, view, spec)
        best = best_split(
            axis.units,
            view.gpu.sm_count,
            resident,
            now=axis.splits,
            largest=int(spec.number("max_splits")),
            tiles=tiles,
            combine=share,
        )
        if 1.0 - best.ratio < spec.number("least_gain"):
            continue
        gain += kernel.sum_us_per_step * (1.0 - best.ratio)
        growth += kernel.sum_us_per_step * share * max(0.0, best.splits / axis.splits - 1.0)
        parts.append(
            f"{kernel.sum_us_per_step:.1f} us x (1 - {best.ratio:.3f}): {best.splits} splits instead of "
            f"{axis.splits} make {best.ctas} CTAs in {best.waves} waves instead of "
            f"{grid} in {best.now_waves}"
        )
        plan = planned(kernel, view, spec)
        notes.append(f"{short_name(kernel.name)}: {axis.why}; {tiles_source}" + (f"; {plan}" if plan else ""))
    if not parts and open_questions:
        return unknown("the split axis of the grid (two batch sizes show it), CTAs per SM and the SM count")
    if not parts or gain <= growth:
        return nothing(
            f"no split count up to {spec.number('max_splits'):.0f} saves at least "
            f"{100 * spec.number('least_gain'):.0f} % of the split kernel after the combine's growth"
        )
    basis = "; ".join(parts)
    if growth:
        basis += f"; less {growth:.1f} us that the combine ({combine:.1f} us) grows by with the splits"
    return Judgement(
        saving_us=gain - growth,
        upper_bound_us=gain,
        basis=f"{basis}. Model: the worse of whole waves / splits and whole waves x whole tiles, by which a "
        "split walks whole tiles",
        evidence="; ".join(notes),
        confidence="medium",
        families=spec.families,
    )
