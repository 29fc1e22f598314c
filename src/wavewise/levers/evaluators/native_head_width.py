"""Attention computed for padded heads: a shard of 16 heads in a kernel that knows only 64 or 128."""

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = realised * attention time * (1 - heads / kernel heads)."""
    time = view.sum_us(spec.families)
    if not time:
        return nothing(f"no attention kernel at {view.where}")
    heads, width = view.known.heads_per_gpu, view.known.kernel_heads
    if heads is None or width is None:
        return unknown(
            "this GPU's query heads and the heads that its attention kernel computes "
            "(`--heads-per-gpu`, `--kernel-heads`): a trace shows neither"
        )
    if heads >= width:
        return nothing(f"no padding: {heads} heads in a kernel for {width}")
    share = spec.number("realised")
    bound = time * (1.0 - heads / width)
    return Judgement(
        saving_us=share * bound,
        upper_bound_us=bound,
        basis=f"{share:g} (assumed) x {time:.1f} us x (1 - {heads}/{width} heads)",
        evidence=f"{width - heads} of {width} computed heads are padding, by what was stated",
        confidence="low",
        families=spec.families,
    )
