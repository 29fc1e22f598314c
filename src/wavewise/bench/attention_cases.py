"""Inputs for the attention kernels that a lucky kernel does not survive, and the judgement of its answers.

Caches hold NaN bytes in every place that no valid index names, outputs start as NaN, and the kernel runs before
the reference does. The cases and tolerances follow FlashMLA's own tests (tests/test_flash_mla_sparse_decoding.py
and tests/lib.py there); the mission's gate comes on top.
"""

import math
from dataclasses import dataclass, field

import torch

from wavewise.attention.layout import (
    DATA_BYTES,
    SCALE_BYTES,
    TOKEN_BYTES,
    pack,
    page_stride_bytes,
    quantise,
)

GATE = 6.7e-3
"""The mission's gate: relative error of the output, by norms."""

OUT_ABSOLUTE, OUT_RELATIVE, OUT_COSINE = 1e-3, 2.01 / 128, 5e-6
LSE_ABSOLUTE, LSE_RELATIVE = 1e-6, 8.01 / 65536
"""FlashMLA's tolerances against the dequantised cache."""


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """One correctness case; lengths None means full."""

    name: str
    batch: int = 3
    queries: int = 1
    window: int = 128
    extra: int = 512
    window_page: int = 256
    extra_page: int = 64
    window_lengths: tuple[int, ...] | None = None
    extra_lengths: tuple[int, ...] | None = None
    holes: float = 0.0
    sink: float | None = None
    strided: bool = False


CASES = (
    CaseSpec("plain"),
    CaseSpec("odd widths", window=63, extra=1000, window_page=64, extra_page=2),
    CaseSpec("one scope", extra=0),
    CaseSpec("ragged", window_lengths=(128, 1, 37), extra_lengths=(512, 65, 0)),
    CaseSpec("zero lengths", window_lengths=(0, 0, 5), extra_lengths=(0, 7, 0)),
    CaseSpec("holes", holes=0.3),
    CaseSpec("all indices invalid", holes=1.0),
    CaseSpec("sink +inf", sink=math.inf),
    CaseSpec("sink -inf", sink=-math.inf, window_lengths=(128, 0, 3), extra_lengths=(64, 0, 0)),
    CaseSpec("verify 2", batch=2, queries=2, holes=0.1),
    CaseSpec("verify 4", batch=2, queries=4, window_page=64, extra_page=2, extra_lengths=(512, 17)),
    CaseSpec("odd pages", window_page=3, extra_page=100),
    CaseSpec("not contiguous", strided=True),
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensors of one call, named as `sparse_mla_decode` names them."""

    q: torch.Tensor
    k_cache: torch.Tensor
    indices: torch.Tensor
    topk_length: torch.Tensor | None
    attn_sink: torch.Tensor | None
    extra_k_cache: torch.Tensor | None = None
    extra_indices: torch.Tensor | None = None
    extra_topk_length: torch.Tensor | None = None

    def head(self, requests: int) -> "Inputs":
        """The same call for the first requests alone."""

        def cut(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor[:requests]

        return Inputs(
            self.q[:requests], self.k_cache, self.indices[:requests], cut(self.topk_length), self.attn_sink,
            self.extra_k_cache, cut(self.extra_indices), cut(self.extra_topk_length),
        )  # fmt: skip


def poison(cache: torch.Tensor, used: torch.Tensor) -> None:
    """Overwrite with NaN bytes (0xFF) every token of a footer cache that is not in `used`, and all padding."""
    pages, page_size = cache.shape[:2]
    raw = cache.as_strided((pages, page_stride_bytes(page_size)), (cache.stride(0), 1))
    unused = torch.ones(pages * page_size, dtype=torch.bool, device=cache.device)
    unused[used.long()] = False
    unused = unused.view(pages, page_size)
    raw[:, : page_size * DATA_BYTES].unflatten(1, (page_size, DATA_BYTES))[unused] = 0xFF
    scales = raw[:, page_size * DATA_BYTES : page_size * TOKEN_BYTES].unflatten(1, (page_size, SCALE_BYTES))
    scales[unused] = 0xFF
    scales[:, :, SCALE_BYTES - 1] = 0xFF
    raw[:, page_size * TOKEN_BYTES :] = 0xFF


def build(spec: CaseSpec, heads: int, device: torch.device | str, seed: int = 0) -> Inputs:
    """The inputs of a case: values drawn as FlashMLA's tests draw them, unused slots poisoned."""
    g = torch.Generator(device=device).manual_seed(seed)

    def scope(
        width: int, page: int, lengths: tuple[int, ...] | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tokens = 2 * spec.batch * spec.queries * width + 7
        values = (torch.randn((tokens, 512), generator=g, device=device) / 10).clamp(-1, 1)
        cache = _full(pack(quantise(values), page, fill=0xFF))
        shape = (spec.batch, spec.queries, width)
        indices = torch.randint(0, tokens, shape, generator=g, device=device, dtype=torch.int32)
        if spec.holes:
            indices[torch.rand(shape, generator=g, device=device) < spec.holes] = -1
        length = torch.tensor(lengths or (width,) * spec.batch, dtype=torch.int32, device=device)
        place = torch.arange(width, device=device)
        counted = (place[None, None] < length[:, None, None]) & (indices >= 0)
        poison(cache, indices[counted])
        return cache, indices, length

    k_cache, indices, length = scope(spec.window, spec.window_page, spec.window_lengths)
    extra = scope(spec.extra, spec.extra_page, spec.extra_lengths) if spec.extra else (None, None, None)
    q = torch.randn((spec.batch, spec.queries, heads, 512), generator=g, device=device).to(torch.bfloat16)
    sink = torch.randn(heads, generator=g, device=device)
    if spec.sink is not None:
        sink = torch.full_like(sink, spec.sink)
    if spec.strided:
        # Every second head of a wider tensor, rows of a wider index table.
        wide = torch.full((spec.batch, spec.queries, 2 * heads, 520), math.nan, device=device)
        view = wide.to(torch.bfloat16)[:, :, ::2, :512]
        view.copy_(q)
        q = view
        table = torch.full((spec.batch, spec.queries, indices.shape[2] + 3), -5, device=device)
        rows = table.to(torch.int32)[:, :, : indices.shape[2]]
        rows.copy_(indices)
        indices = rows
    return Inputs(q, k_cache, indices, length, sink, *extra)


def _full(cache: torch.Tensor) -> torch.Tensor:
    """A cache of one page has a meaningless page stride: give it the layout's own."""
    stride = page_stride_bytes(cache.shape[1])
    if cache.shape[0] > 1:
        return cache
    return cache.as_strided(cache.shape, (stride, *cache.stride()[1:]))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an answer compares with the reference.

    Attributes:
        relative_error: ||out - reference|| / ||reference||; 0 where both are zero.
        lse_error: largest absolute difference of finite lse.
        faults: what is wrong, in words; empty where nothing is.
    """

    relative_error: float
    lse_error: float
    faults: tuple[str, ...] = field(default=())


def judge(
    out: torch.Tensor,
    lse: torch.Tensor,
    expected: torch.Tensor,
    expected_lse: torch.Tensor,
    strict: bool = True,
) -> Verdict:
    """Compare with the fp64 reference: no NaN, same infinities, the gate, and (strict) FlashMLA's tolerances."""
    o, found = out.double(), lse.double()
    faults: list[str] = []
    if not bool(torch.isfinite(o).all()):
        faults.append(f"{int((~torch.isfinite(o)).sum())} output values are not finite")
    difference, norm = (o - expected).norm(), expected.norm()
    relative = float(difference / norm) if float(norm) > 0 else float(difference)
    if not relative <= GATE:
        faults.append(f"relative error {relative:.2e} exceeds {GATE}")
    finite = torch.isfinite(expected_lse)
    if not torch.equal(torch.isfinite(found), finite) or not bool(
        (found[~finite] == expected_lse[~finite]).all()
    ):
        faults.append("lse is infinite in other places than the reference")
    off = (found[finite] - expected_lse[finite]).abs()
    if strict:
        allowed = LSE_ABSOLUTE + LSE_RELATIVE * expected_lse[finite].abs()
        if bool((off > allowed).any()):
            faults.append(f"lse is off by {float(off.max()):.2e}")
        beyond = (o - expected).abs() > OUT_ABSOLUTE + OUT_RELATIVE * expected.abs()
        if bool(beyond.any()):
            faults.append(f"{int(beyond.sum())} output values beyond FlashMLA's tolerance")
        squares = float((o * o + expected * expected).sum())
        cosine = 1 - 2 * float((o * expected).sum()) / squares if squares > 0 else 0.0
        if cosine > OUT_COSINE:
            faults.append(f"cosine difference {cosine:.1e} exceeds {OUT_COSINE}")
    return Verdict(relative, float(off.max()) if off.numel() else 0.0, tuple(faults))
