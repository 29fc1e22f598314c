"""Attention computed for padded heads: a shard of 16 heads in a kernel that knows only 64 or 128."""

import re
from typing import cast

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = realised * attention time * (1 - heads / kernel heads)."""
    time = view.sum_us(spec.families)
    if not time:
        return nothing(f"no attention kernel at {view.where}")
    heads = view.known.heads_per_gpu
    width = view.known.kernel_heads or _named_width(view, spec)
    if heads is None or width is None:
        return unknown(
            "this GPU's query heads (`--heads-per-gpu`, or a model's shape and one GPU) and the heads that its "
            "attention kernel computes (`--kernel-heads`, where the kernel's name does not tell)"
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


def _named_width(view: View, spec: LeverSpec) -> int | None:
    """Heads that the dearest attention kernel computes, where its name tells (`parameters.named_width`)."""
    patterns = cast("list[str]", spec.parameters.get("named_width", []))
    for kernel in view.kernels_of(spec.families)[:1]:
        found = (re.search(pattern, kernel.name) for pattern in patterns)
        return next((int(match.group(1)) for match in found if match is not None), None)
    return None
