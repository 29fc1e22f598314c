"""Decode calls: validate, plan, launch. And the two faces that drop in for FlashMLA and for SGLang's fallback.

Everything here is safe in a CUDA graph capture: the plan depends on shapes alone, no value is read back from the
device (but in debug mode), and memory comes from the caller or from torch's caching allocator.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from wavewise.attention.configurations import SUPPORTED_HEADS, KernelConfig, footprints_for
from wavewise.attention.launch import Problem, Scope, interpreted, launch_combine, launch_split
from wavewise.attention.layout import HEAD_DIM, TOKEN_BYTES
from wavewise.attention.plan import MAX_SPLITS, DecodePlan, DecodeShape, plan_decode
from wavewise.errors import InputError, UsageError
from wavewise.hardware import GpuSpec, catalogue

MAX_QUERIES = 4
"""s_q: one token, or up to four for speculative verification."""

_CACHE_DTYPES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
_ALIGNMENT = 16
_LARGEST_PAGE = 1 << 20
"""Offsets inside a page are 32-bit numbers of bytes in the kernels."""
_MOST_QUERIES = 65_535
"""CUDA's limit of a grid's z axis, on which the queries lie."""
_INTERPRETED_GPU = "h200"
"""What a plan is made for where Triton interprets kernels on the CPU and there is no GPU to ask."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Room for the partials of a split call; reuse it between calls that run in order on one stream.

    Attributes:
        partial: bf16, at least queries * splits * heads * 512 elements, contiguous.
        partial_lse: fp32, at least queries * splits * heads elements, contiguous.
    """

    partial: torch.Tensor
    partial_lse: torch.Tensor

    @classmethod
    def for_plan(cls, plan: DecodePlan, device: torch.device | str) -> "Workspace":
        """A workspace that just fits a plan (nothing is needed where it does not split)."""
        rows = plan.shape.queries * plan.num_splits * plan.shape.heads if plan.num_splits > 1 else 0
        return cls(
            partial=torch.empty(rows * HEAD_DIM, dtype=torch.bfloat16, device=device),
            partial_lse=torch.empty(rows, dtype=torch.float32, device=device),
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)


def _check_cache(cache: torch.Tensor, name: str) -> torch.Tensor:
    _require(
        cache.dtype in _CACHE_DTYPES,
        f"{name} is {cache.dtype}: expected uint8 or float8_e4m3fn (bytes of the footer layout)",
    )
    _require(
        cache.ndim == 4 and cache.shape[2] == 1 and cache.shape[3] == TOKEN_BYTES,
        f"{name} has shape {tuple(cache.shape)}: expected [pages, page_size, 1, {TOKEN_BYTES}] "
        "(656 bytes a token is DeepSeek-V3.2's layout, which layout.unpack_inline reads)",
    )
    pages, page_size = cache.shape[:2]
    _require(pages > 0 and page_size > 0, f"{name} has no pages")
    _require(
        page_size <= _LARGEST_PAGE, f"{name} has pages of {page_size:,} tokens: at most {_LARGEST_PAGE:,}"
    )
    inner = cache.stride(3) == 1 and (page_size == 1 or cache.stride(1) == TOKEN_BYTES)
    _require(inner, f"{name} has strides {cache.stride()}: the bytes of a page must be contiguous")
    stride = cache.stride(0)
    _require(
        pages == 1 or (stride >= page_size * TOKEN_BYTES and stride % _ALIGNMENT == 0),
        f"{name} has a page stride of {stride} bytes: expected a multiple of {_ALIGNMENT} that holds "
        f"{page_size} tokens of {TOKEN_BYTES} bytes (the layout rounds it up to a multiple of 576)",
    )
    _require(cache.data_ptr() % _ALIGNMENT == 0, f"{name} does not start at a multiple of {_ALIGNMENT} bytes")
    return cache if cache.dtype == torch.uint8 else cache.view(torch.uint8)


def _check_indices(indices: torch.Tensor, batch: int, queries: int, name: str) -> torch.Tensor:
    _require(indices.dtype == torch.int32, f"{name} is {indices.dtype}: expected int32")
    if indices.ndim == 2 and queries == 1:
        indices = indices.unsqueeze(1)
    _require(
        indices.ndim == 3 and tuple(indices.shape[:2]) == (batch, queries),
        f"{name} has shape {tuple(indices.shape)}: expected [{batch}, {queries}, topk]",
    )
    _require(indices.shape[2] > 0, f"{name} is 0 wide")
    # A kernel steps over queries with one stride, and reads along a row without any.
    uniform = queries == 1 or batch == 1 or indices.stride(0) == queries * indices.stride(1)
    return indices if indices.stride(2) == 1 and uniform else indices.contiguous()


def _check_lengths(lengths: torch.Tensor | None, batch: int, name: str) -> torch.Tensor | None:
    if lengths is None:
        return None
    _require(lengths.dtype == torch.int32, f"{name} is {lengths.dtype}: expected int32")
    _require(tuple(lengths.shape) == (batch,), f"{name} has shape {tuple(lengths.shape)}: expected [{batch}]")
    return lengths.contiguous()


def _check_range(scope: Scope, name: str) -> None:
    """Debug mode: every index that counts lies in the cache. Reads back from the device, so it synchronises."""
    indices, slots = scope.indices, scope.cache.shape[0] * scope.cache.shape[1]
    counted = torch.ones_like(indices, dtype=torch.bool)
    if scope.lengths is not None:
        place = torch.arange(indices.shape[2], device=indices.device)
        counted = (place[None, None, :] < scope.lengths[:, None, None]).expand_as(indices)
    wrong = counted & ((indices >= slots) | (indices < -1))
    if bool(wrong.any()):
        b, s, place = (int(x) for x in wrong.nonzero()[0])
        raise InputError(
            f"{name}[{b}, {s}, {place}] is {int(indices[b, s, place])}: the cache holds {slots:,} tokens "
            "(-1 stands for no key)"
        )


def _same_device(q: torch.Tensor, others: dict[str, torch.Tensor | None]) -> None:
    for name, tensor in others.items():
        if tensor is not None and tensor.device != q.device:
            raise InputError(f"{name} is on {tensor.device}, q on {q.device}")
    if q.device.type != "cuda" and not interpreted():
        raise InputError(
            f"q is on {q.device}: the kernels need an NVIDIA GPU "
            "(TRITON_INTERPRET=1, set before triton is imported, interprets the portable one on a CPU)"
        )


def _check_query(q: torch.Tensor) -> torch.Tensor:
    _require(q.dtype == torch.bfloat16, f"q is {q.dtype}: expected bfloat16")
    _require(
        q.ndim == 4 and q.shape[3] == HEAD_DIM,
        f"q has shape {tuple(q.shape)}: expected [batch, s_q, heads, {HEAD_DIM}]",
    )
    batch, queries, heads, _ = q.shape
    _require(batch > 0, "q holds no request")
    _require(batch * queries <= _MOST_QUERIES, f"{batch * queries:,} queries: at most {_MOST_QUERIES:,}")
    _require(1 <= queries <= MAX_QUERIES, f"s_q is {queries}: 1 to {MAX_QUERIES} queries a request")
    _require(
        heads in SUPPORTED_HEADS,
        f"{heads} query heads: supported are {', '.join(map(str, SUPPORTED_HEADS))}",
    )
    aligned = q.stride(2) % 8 == 0 and q.stride(1) % 8 == 0 and q.data_ptr() % _ALIGNMENT == 0
    uniform = queries == 1 or batch == 1 or q.stride(0) == queries * q.stride(1)
    return q if q.stride(3) == 1 and aligned and uniform else q.contiguous()


def _step(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its request and query axes such that stride(1) steps from query to query."""
    batch, queries = tensor.shape[:2]
    if queries > 1 or batch == 1:
        return tensor
    # One query a request: the next query is the next request's.
    strides = (tensor.stride(0), tensor.stride(0), *tensor.stride()[2:])
    return tensor.as_strided(tensor.shape, strides)


@lru_cache(maxsize=64)
def _gpu_of(index: int) -> GpuSpec:
    """The catalogue's entry of a CUDA device, or what the driver says of one that is not in it."""
    properties: Any = torch.cuda.get_device_properties(index)
    capability = f"{properties.major}.{properties.minor}"
    known = catalogue().match(properties.name, capability, properties.multi_processor_count)
    if known is not None:
        return known
    return catalogue().from_figures(
        name=properties.name,
        compute_capability=capability,
        sm_count=properties.multi_processor_count,
        warp_size=properties.warp_size,
        max_threads_per_sm=properties.max_threads_per_multi_processor,
        registers_per_sm=properties.regs_per_multiprocessor,
        shared_memory_per_sm=properties.shared_memory_per_multiprocessor,
        shared_memory_per_cta_optin=properties.shared_memory_per_block_optin,
        memory_bytes=properties.total_memory,
    )


@lru_cache(maxsize=4096)
def _plan_on(shape: DecodeShape, gpu: GpuSpec, compiler: str, portable_only: bool) -> DecodePlan:
    footprints = footprints_for(gpu, compiler)
    if portable_only:
        footprints = tuple(f for f in footprints if f.config.kernel == "portable")
    return plan_decode(shape, None, gpu, footprints)


def plan_for(shape: DecodeShape, device: torch.device) -> DecodePlan:
    """The plan that `sparse_mla_decode` follows for a shape on a device. Cached; touches no tensor."""
    import triton

    if device.type != "cuda":
        return _plan_on(shape, catalogue().find(_INTERPRETED_GPU), triton.__version__, True)
    index = device.index if device.index is not None else torch.cuda.current_device()
    return _plan_on(shape, _gpu_of(index), triton.__version__, False)


def _problem(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    softmax_scale: float | None,
    extra_k_cache: torch.Tensor | None,
    extra_indices: torch.Tensor | None,
    extra_topk_length: torch.Tensor | None,
    check_indices: bool,
) -> Problem:
    """Everything about the inputs that can be known without reading a value, checked before any launch."""
    q = _check_query(q)
    batch, queries, heads, _ = q.shape
    if (extra_k_cache is None) != (extra_indices is None):
        raise UsageError("extra_k_cache and extra_indices go together: one of them is missing")
    if extra_topk_length is not None and extra_k_cache is None:
        raise UsageError("extra_topk_length without extra_k_cache")
    if attn_sink is not None:
        _require(attn_sink.dtype == torch.float32, f"attn_sink is {attn_sink.dtype}: expected float32")
        _require(
            tuple(attn_sink.shape) == (heads,),
            f"attn_sink has shape {tuple(attn_sink.shape)}: expected [{heads}]",
        )
        attn_sink = attn_sink.contiguous()
    window = Scope(
        _check_cache(k_cache, "k_cache"),
        _check_indices(indices, batch, queries, "indices"),
        _check_lengths(topk_length, batch, "topk_length"),
    )
    extra: Scope | None = None
    if extra_k_cache is not None and extra_indices is not None:
        extra = Scope(
            _check_cache(extra_k_cache, "extra_k_cache"),
            _check_indices(extra_indices, batch, queries, "extra_indices"),
            _check_lengths(extra_topk_length, batch, "extra_topk_length"),
        )
    tensors = {"k_cache": k_cache, "indices": indices, "topk_length": topk_length, "attn_sink": attn_sink}
    tensors |= {"extra_k_cache": extra_k_cache, "extra_indices": extra_indices}
    _same_device(q, tensors | {"extra_topk_length": extra_topk_length})
    if check_indices:
        _check_range(window, "indices")
        if extra is not None:
            _check_range(extra, "extra_indices")
    stepped = Scope(window.cache, _step(window.indices), window.lengths)
    if extra is not None:
        extra = Scope(extra.cache, _step(extra.indices), extra.lengths)
    scale = HEAD_DIM**-0.5 if softmax_scale is None else float(softmax_scale)
    return Problem(_step(q), stepped, extra, attn_sink, scale)


def _output(out: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor:
    if out is None:
        return torch.empty(tuple(q.shape), dtype=torch.bfloat16, device=q.device)
    _require(
        out.dtype == torch.bfloat16 and out.shape == q.shape and out.is_contiguous(),
        f"out is {out.dtype} {tuple(out.shape)}: expected contiguous bfloat16 {tuple(q.shape)}",
    )
    _require(out.device == q.device, f"out is on {out.device}, q on {q.device}")
    _require(out.data_ptr() % _ALIGNMENT == 0, f"out does not start at a multiple of {_ALIGNMENT} bytes")
    return out


def _partials(
    workspace: Workspace | None, queries: int, splits: int, heads: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = queries * splits * heads
    if workspace is None:
        partial = torch.empty((queries, splits, heads, HEAD_DIM), dtype=torch.bfloat16, device=device)
        return partial, torch.empty((queries, splits, heads), dtype=torch.float32, device=device)
    partial, lse = workspace.partial, workspace.partial_lse
    fits = partial.numel() >= rows * HEAD_DIM and lse.numel() >= rows
    typed = partial.dtype == torch.bfloat16 and lse.dtype == torch.float32
    placed = partial.device == device and lse.device == device
    _require(
        fits and typed and placed and partial.is_contiguous() and lse.is_contiguous(),
        f"the workspace does not hold {rows * HEAD_DIM:,} bfloat16 and {rows:,} float32 values on {device}",
    )
    return (
        partial.view(-1)[: rows * HEAD_DIM].view(queries, splits, heads, HEAD_DIM),
        lse.view(-1)[:rows].view(queries, splits, heads),
    )


def sparse_mla_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    *,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    workspace: Workspace | None = None,
    config: KernelConfig | None = None,
    num_splits: int | None = None,
    check_indices: bool = False,
    pdl: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend queries to the cached tokens that their indices name; both scopes are one softmax.

    Args:
        q: bf16 [B, s_q, H, 512], s_q from 1 to 4, H of 8, 16, 32, 64, 128.
        k_cache: footer layout, uint8 or float8_e4m3fn [pages, page_size, 1, 584]; any page size.
        indices: int32 [B, s_q, topk]; page * page_size + offset, -1 for no key, anywhere.
        topk_length: int32 [B]; only the leftmost so many indices count. None: all.
        attn_sink: fp32 [H]; the output is scaled by 1 / (1 + exp(sink - lse)). +inf gives 0, -inf nothing.
        softmax_scale: None: 512^-0.5.
        extra_k_cache: the second scope's cache, with `extra_indices` and, at choice, `extra_topk_length`.
        extra_indices: int32 [B, s_q, extra_topk].
        extra_topk_length: int32 [B].
        out: bf16 [B, s_q, H, 512], contiguous; None allocates it.
        workspace: room for partials; None allocates it where the plan splits.
        config: fixes the kernel, with `num_splits`; None follows `plan_for`.
        num_splits: fixes the split count.
        check_indices: debug mode: refuse indices outside the cache. Synchronises; costs nothing when off.
        pdl: programmatic dependent launch; None: where the GPU has it.

    Returns:
        out, and lse fp32 [B, H, s_q]: natural log, without the sink. A query without a valid key has output 0
        and lse -inf.

    Raises:
        InputError: a tensor of the wrong type, shape, layout or device. Raised before any launch.
        UsageError: arguments that contradict each other.
    """
    problem = _problem(
        q, k_cache, indices, topk_length, attn_sink, softmax_scale,
        extra_k_cache, extra_indices, extra_topk_length, check_indices,
    )  # fmt: skip
    batch, s_q, heads, _ = q.shape
    target = _output(out, q)
    if config is None or num_splits is None:
        if config is not None:
            raise UsageError("config fixes the kernel only together with num_splits")
        extra_topk = 0 if problem.extra is None else problem.extra.indices.shape[2]
        shape = DecodeShape(batch, heads, problem.window.indices.shape[2], extra_topk, s_q)
        plan = plan_for(shape, q.device)
        config, num_splits = plan.config, num_splits or plan.num_splits
    _require(config.serves(heads), f"{config.id} does not serve {heads} heads")
    _require(1 <= num_splits <= MAX_SPLITS, f"{num_splits} splits: 1 to {MAX_SPLITS}")
    if pdl is None:
        pdl = q.device.type == "cuda" and torch.cuda.get_device_capability(q.device)[0] >= 9
    queries = batch * s_q
    # A view, not a permuted copy: rows of lse lie [B, s_q, H], and the caller sees [B, H, s_q].
    lse = torch.empty((batch, s_q, heads), dtype=torch.float32, device=q.device)
    flat_out, flat_lse = target.view(queries, heads, HEAD_DIM), lse.view(queries, heads)
    if num_splits == 1:
        launch_split(problem, config, 1, flat_out, flat_lse, pdl)
    else:
        partial, partial_lse = _partials(workspace, queries, num_splits, heads, q.device)
        launch_split(problem, config, num_splits, partial, partial_lse, pdl)
        launch_combine(problem, partial, partial_lse, flat_out, flat_lse, pdl)
    return target, lse.transpose(1, 2)


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: Any = None,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    workspace: Workspace | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FlashMLA's call in its sparse FP8 mode, DeepSeek-V4 layout. The scheduler metadata is not needed: ignored.

    Where FlashMLA returns an lse of +inf (a query without a valid key), this returns -inf.

    Raises:
        UsageError: a mode that is not this one (dense, causal, bf16 cache, other value width).
    """
    del block_table, cache_seqlens, tile_scheduler_metadata
    if indices is None:
        raise UsageError("dense decoding is not offered: pass indices")
    if causal:
        raise UsageError("causal has no meaning with indices: they name every key")
    if not is_fp8_kvcache:
        raise UsageError("is_fp8_kvcache=False: only the FP8 cache is offered")
    if head_dim_v != HEAD_DIM:
        raise UsageError(f"head_dim_v is {head_dim_v}: it is {HEAD_DIM} in this layout")
    if num_splits is not None:
        raise UsageError("num_splits must be None, as FlashMLA's interface demands")
    return sparse_mla_decode(
        q,
        k_cache,
        indices,
        topk_length=topk_length,
        attn_sink=attn_sink,
        softmax_scale=softmax_scale,
        extra_k_cache=extra_k_cache,
        extra_indices=extra_indices_in_kvcache,
        extra_topk_length=extra_topk_length,
        out=out,
        workspace=workspace,
    )


def flash_mla_sparse_decode_triton(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    workspace: Workspace | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SGLang's call of its Triton fallback for sm_120.

    The lse that comes back is without the sink, as FlashMLA's is; SGLang's own has the sink in it.
    """
    if head_dim_v != HEAD_DIM:
        raise UsageError(f"head_dim_v is {head_dim_v}: it is {HEAD_DIM} in this layout")
    batch, queries = q.shape[:2]
    return sparse_mla_decode(
        q,
        k_cache,
        indices.reshape(batch, queries, -1),
        topk_length=topk_length,
        attn_sink=attn_sink,
        softmax_scale=softmax_scale,
        extra_k_cache=extra_k_cache,
        extra_indices=None if extra_indices is None else extra_indices.reshape(batch, queries, -1),
        extra_topk_length=extra_topk_length,
        out=out,
        workspace=workspace,
    )
