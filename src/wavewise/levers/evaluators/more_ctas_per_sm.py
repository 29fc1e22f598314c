"""One more CTA per SM: kernels that keep few warps resident cannot hide memory latency."""

from wavewise.findings import KernelRow, NextCta
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.packing import ctas
from wavewise.levers.view import View
from wavewise.occupancy.waves import waves


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = realised * sum over kernels of time * (1 - waves with one more CTA per SM / waves now)."""
    kernels = view.kernels_of(spec.families)
    judged = [k for k in kernels if k.occupancy is not None and k.ctas_per_sm is not None]
    if kernels and (not judged or view.gpu.sm_count is None):
        return unknown("launch parameters and the GPU's limits (grid, block, registers, shared memory, SMs)")
    bound, parts, targets = 0.0, list[str](), list[str]()
    for kernel in judged:
        target = _target(kernel, spec.number("max_occupancy"))
        grid = ctas(kernel)
        if target is None or grid is None or kernel.persistent:
            continue
        assert kernel.ctas_per_sm is not None
        assert view.gpu.sm_count is not None
        now = waves(grid, view.gpu.sm_count, kernel.ctas_per_sm).waves
        then = waves(grid, view.gpu.sm_count, target.ctas_per_sm).waves
        if then >= now:
            continue
        bound += kernel.sum_us_per_step * (1.0 - then / now)
        parts.append(f"{kernel.sum_us_per_step:.1f} us x (1 - {then}/{now} waves)")
        targets.append(
            f"{short_name(kernel.name)}: {kernel.ctas_per_sm} CTA(s)/SM by {kernel.limiter}, occupancy "
            f"{100 * (kernel.occupancy or 0.0):.1f} %; {target.ctas_per_sm} at {_limits(kernel, target)}"
        )
    if not parts:
        return nothing(
            f"no kernel at {view.where} has an occupancy of at most "
            f"{100 * spec.number('max_occupancy'):.0f} % "
            "and fewer waves with one more CTA per SM"
        )
    share = spec.number("realised")
    return Judgement(
        saving_us=share * bound,
        upper_bound_us=bound,
        basis=f"{share:g} (assumed) x [{' + '.join(parts)}]; "
        "bound if time falls with the waves (latency-bound kernels)",
        evidence="; ".join(targets),
        confidence="low",
        families=tuple(dict.fromkeys(k.family for k in judged)),
    )


def _target(kernel: KernelRow, max_occupancy: float) -> NextCta | None:
    """The next residency, where occupancy is low and something other than CTA slots stands in the way."""
    if kernel.occupancy is None or kernel.occupancy > max_occupancy or kernel.next_cta is None:
        return None
    return None if kernel.next_cta.impossible_reason is not None else kernel.next_cta


def _limits(kernel: KernelRow, target: NextCta) -> str:
    wanted: list[str] = []
    if target.shared_memory_bytes is not None:
        wanted.append(
            f"<= {target.shared_memory_bytes:,} B of shared memory (now {kernel.shared_memory_bytes:,})"
        )
    if target.registers_per_thread is not None:
        wanted.append(f"<= {target.registers_per_thread} registers (now {kernel.registers_per_thread})")
    if target.threads_per_cta is not None:
        wanted.append(f"<= {target.threads_per_cta} threads per CTA")
    return " and ".join(wanted) or "the present footprint"
