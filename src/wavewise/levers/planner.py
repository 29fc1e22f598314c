"""What the shipped split-KV kernel's planner says of a sparse-MLA attention in the trace."""

import re
from typing import cast

from wavewise.attention.plan import DecodeShape, plan_decode, tiles_of
from wavewise.errors import WavewiseError
from wavewise.findings import KernelRow
from wavewise.hardware import GpuSpec
from wavewise.hardware import catalogue as gpu_catalogue
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.view import View


def is_sparse_mla(kernel: KernelRow, spec: LeverSpec) -> bool:
    """Whether the kernel is a split-KV sparse-MLA decode, by its name (`parameters.sparse_mla`)."""
    patterns = cast("list[str]", spec.parameters.get("sparse_mla", []))
    return any(re.search(pattern, kernel.name) for pattern in patterns)


def tiles_per_request(kernel: KernelRow, view: View, spec: LeverSpec) -> tuple[int, str]:
    """Tiles that a request's longest attention walks, and where the figure comes from.

    For sparse MLA with a known model shape, the planner's own count (each scope starts a tile of its own);
    else the catalogue's assumption.
    """
    scopes = view.known.attended_scopes
    size = int(spec.number("tile_tokens"))
    if scopes is None or not is_sparse_mla(kernel, spec):
        tiles = int(spec.number("tiles"))
        return tiles, f"{tiles} tiles a request assumed"
    tiles = int(tiles_of(_shape(1, 64, scopes), None, size).max())
    return tiles, f"{tiles} tiles of {size} tokens a request, by the model's shape"


def planned(kernel: KernelRow, view: View, spec: LeverSpec) -> str | None:
    """The shipped kernel's plan for this call, with what the present kernel takes; None where it has none."""
    known, gpu = view.known, _gpu(view)
    if not is_sparse_mla(kernel, spec) or known.attended_scopes is None or known.heads_per_gpu is None:
        return None
    if gpu is None or view.tokens is None:
        return None
    try:
        plan = plan_decode(_shape(view.tokens, known.heads_per_gpu, known.attended_scopes), None, gpu)
    except WavewiseError:
        return None
    return (
        f"the shipped kernel's planner would launch {plan} (model) a call for layers that attend to "
        f"{sum(known.attended_scopes)} tokens; this kernel takes {kernel.median_us:.1f} us (median of all layers)"
    )


def _shape(batch: int, heads: int, scopes: tuple[int, int]) -> DecodeShape:
    return DecodeShape(batch=batch, heads=heads, topk=scopes[0], extra_topk=scopes[1])


def _gpu(view: View) -> GpuSpec | None:
    return next((gpu for gpu in gpu_catalogue() if gpu.id == view.gpu.spec), None)
