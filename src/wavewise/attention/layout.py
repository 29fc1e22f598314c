"""The bytes of a paged FP8 KV cache: pack, unpack and quantise the two DeepSeek layouts.

Footer layout (DeepSeek-V4, 584 bytes a token). A page of P tokens holds P data rows of 576 bytes (448 e4m3
values, then 64 bf16 rope values), then P scale rows of 8 bytes (7 UE8M0 bytes, one for each 64 values, and one
byte of padding). Pages lie at a stride rounded up to a multiple of 576 bytes.

Inline layout (DeepSeek-V3.2, 656 bytes a token): 512 e4m3 values, 4 fp32 scales (one for each 128 values),
64 bf16 rope values.

Sources: FlashMLA, `tests/quant.py` and the docstring of `flash_mla_with_kvcache`.
"""

from dataclasses import dataclass

import torch

from wavewise.errors import InputError

HEAD_DIM = 512
NOPE_DIM = 448
ROPE_DIM = 64
GROUP = 64
GROUPS = NOPE_DIM // GROUP
DATA_BYTES = NOPE_DIM + 2 * ROPE_DIM
SCALE_BYTES = GROUPS + 1
TOKEN_BYTES = DATA_BYTES + SCALE_BYTES
E4M3_MAX = 448.0
SCALE_BIAS = 127

INLINE_NOPE_DIM = 512
INLINE_GROUP = 128
INLINE_GROUPS = INLINE_NOPE_DIM // INLINE_GROUP
INLINE_TOKEN_BYTES = INLINE_NOPE_DIM + 4 * INLINE_GROUPS + 2 * ROPE_DIM
INLINE_HEAD_DIM = INLINE_NOPE_DIM + ROPE_DIM


@dataclass(frozen=True, slots=True)
class QuantisedTokens:
    """Tokens as the footer layout stores them.

    Attributes:
        codes: e4m3 bit patterns, uint8 [N, 448].
        scale_bytes: UE8M0 exponents, uint8 [N, 7]; a value is code * 2^(byte - 127).
        rope: bf16 [N, 64].
    """

    codes: torch.Tensor
    scale_bytes: torch.Tensor
    rope: torch.Tensor


def page_stride_bytes(page_size: int) -> int:
    """Bytes from one page to the next: the page's tokens, rounded up to a multiple of 576."""
    if page_size < 1:
        raise InputError(f"page size {page_size}: a page holds at least one token")
    return -(-page_size * TOKEN_BYTES // DATA_BYTES) * DATA_BYTES


def quantise(kv: torch.Tensor) -> QuantisedTokens:
    """Quantise tokens to e4m3 with one power-of-two scale for each 64 values.

    The scale is the smallest power of two that brings the group's largest magnitude within e4m3's 448, so no
    value saturates and the error of a value is at most half a step of e4m3: 2^-4 of its magnitude, or 2^-10 of
    the scale where the code is denormal. A group of zeros takes scale 1.

    Args:
        kv: float [N, 512]; the last 64 dimensions are rope and are kept as bf16.

    Raises:
        InputError: wrong shape, or a value that is not finite.
    """
    if kv.ndim != 2 or kv.shape[1] != HEAD_DIM:
        raise InputError(f"KV tokens of shape {tuple(kv.shape)}: expected [N, {HEAD_DIM}]")
    if not bool(torch.isfinite(kv).all()):
        raise InputError("KV tokens hold values that are not finite; e4m3 has no place for them")
    groups = kv[:, :NOPE_DIM].float().reshape(-1, GROUPS, GROUP)
    largest = groups.abs().amax(dim=2)
    # frexp is exact where log2 rounds: largest / 448 = mantissa * 2^exponent with mantissa in [0.5, 1).
    mantissa, exponent = torch.frexp(largest / E4M3_MAX)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    exponent = torch.where(largest == 0, torch.zeros_like(exponent), exponent).clamp(-SCALE_BIAS, SCALE_BIAS)
    # Two halves: 2^-exponent itself overflows fp32 for the smallest scales.
    half = exponent // 2
    scaled = torch.ldexp(torch.ldexp(groups, -half[:, :, None]), (half - exponent)[:, :, None])
    codes = scaled.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)
    return QuantisedTokens(
        codes=codes.reshape(-1, NOPE_DIM),
        scale_bytes=(exponent + SCALE_BIAS).to(torch.uint8),
        rope=kv[:, NOPE_DIM:].to(torch.bfloat16),
    )


def dequantise(tokens: QuantisedTokens, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The values that the stored bytes stand for, [N, 512], exact in fp64."""
    values = tokens.codes.contiguous().view(torch.float8_e4m3fn).to(torch.float32).double()
    scale = torch.exp2(tokens.scale_bytes.double() - SCALE_BIAS)
    nope = values.reshape(-1, GROUPS, GROUP) * scale[:, :, None]
    return torch.cat([nope.reshape(-1, NOPE_DIM), tokens.rope.double()], dim=1).to(dtype)


def pack(tokens: QuantisedTokens, page_size: int, fill: int = 0) -> torch.Tensor:
    """Lay tokens out in pages.

    Args:
        tokens: N tokens; the last page is filled up where N is no multiple of the page size.
        page_size: tokens in a page; any, 1 included.
        fill: the byte in every place that no token owns (0xFF reads as NaN in e4m3, bf16 and UE8M0).

    Returns:
        uint8 [pages, page_size, 1, 584] with a stride of `page_stride_bytes(page_size)` between pages: the view
        that FlashMLA takes. Its last axis is bytes of the page, not of one token.
    """
    count = tokens.codes.shape[0]
    pages = max(1, -(-count // page_size))
    stride = page_stride_bytes(page_size)
    device = tokens.codes.device
    cache = torch.full((pages, stride), fill, dtype=torch.uint8, device=device)
    data = torch.full((pages * page_size, DATA_BYTES), fill, dtype=torch.uint8, device=device)
    data[:count, :NOPE_DIM] = tokens.codes
    data[:count, NOPE_DIM:] = tokens.rope.contiguous().view(torch.uint8).reshape(count, 2 * ROPE_DIM)
    scales = torch.full((pages * page_size, SCALE_BYTES), fill, dtype=torch.uint8, device=device)
    scales[:count, :GROUPS] = tokens.scale_bytes
    cache[:, : page_size * DATA_BYTES] = data.reshape(pages, -1)
    cache[:, page_size * DATA_BYTES : page_size * TOKEN_BYTES] = scales.reshape(pages, -1)
    return cache[:, : page_size * TOKEN_BYTES].view(pages, page_size, 1, TOKEN_BYTES)


def _page_bytes(cache: torch.Tensor) -> torch.Tensor:
    """The cache as bytes [pages, page_size * 584]."""
    if cache.ndim != 4 or cache.shape[2] != 1 or cache.shape[3] != TOKEN_BYTES:
        raise InputError(
            f"KV cache of shape {tuple(cache.shape)}: expected [pages, page_size, 1, {TOKEN_BYTES}]"
        )
    raw = cache if cache.dtype == torch.uint8 else cache.view(torch.uint8)
    return raw.as_strided((cache.shape[0], cache.shape[1] * TOKEN_BYTES), (cache.stride(0), 1))


def gather(cache: torch.Tensor, indices: torch.Tensor) -> QuantisedTokens:
    """Tokens at `indices` (int, [N], each page * page_size + offset, none negative) of a footer cache."""
    page_size = cache.shape[1]
    pages = _page_bytes(cache)
    index = indices.long()
    page, offset = index // page_size, index % page_size
    data_at = offset[:, None] * DATA_BYTES + torch.arange(DATA_BYTES, device=cache.device)
    scale_at = page_size * DATA_BYTES + offset[:, None] * SCALE_BYTES
    scale_at = scale_at + torch.arange(GROUPS, device=cache.device)
    data = pages[page[:, None], data_at]
    return QuantisedTokens(
        codes=data[:, :NOPE_DIM].contiguous(),
        scale_bytes=pages[page[:, None], scale_at],
        rope=data[:, NOPE_DIM:].contiguous().view(torch.bfloat16),
    )


def unpack(cache: torch.Tensor) -> QuantisedTokens:
    """Every token of a footer cache, in index order: the inverse of `pack`."""
    return gather(cache, torch.arange(cache.shape[0] * cache.shape[1], device=cache.device))


def pack_inline(kv: torch.Tensor, page_size: int) -> torch.Tensor:
    """Quantise and lay out DeepSeek-V3.2 tokens: float [N, 576] to uint8 [pages, page_size, 1, 656].

    The scale of a group of 128 values is its largest magnitude over 448, in fp32 (not a power of two).
    Tokens that fill up the last page are zero bytes.
    """
    if kv.ndim != 2 or kv.shape[1] != INLINE_HEAD_DIM:
        raise InputError(f"KV tokens of shape {tuple(kv.shape)}: expected [N, {INLINE_HEAD_DIM}]")
    if not bool(torch.isfinite(kv).all()):
        raise InputError("KV tokens hold values that are not finite; e4m3 has no place for them")
    count = kv.shape[0]
    pages = max(1, -(-count // page_size))
    groups = kv[:, :INLINE_NOPE_DIM].float().reshape(count, INLINE_GROUPS, INLINE_GROUP)
    scale = (groups.abs().amax(dim=2) / E4M3_MAX).clamp(min=torch.finfo(torch.float32).tiny)
    scaled = (groups / scale[:, :, None]).clamp(-E4M3_MAX, E4M3_MAX)
    codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8).reshape(count, -1)
    rope = kv[:, INLINE_NOPE_DIM:].to(torch.bfloat16).contiguous().view(torch.uint8)
    rows = torch.zeros((pages * page_size, INLINE_TOKEN_BYTES), dtype=torch.uint8, device=kv.device)
    rows[:count] = torch.cat([codes, scale.contiguous().view(torch.uint8), rope], dim=1)
    return rows.view(pages, page_size, 1, INLINE_TOKEN_BYTES)


def unpack_inline(cache: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The values of a DeepSeek-V3.2 cache, [pages * page_size, 576]: the inverse of `pack_inline`."""
    if cache.ndim != 4 or cache.shape[2] != 1 or cache.shape[3] != INLINE_TOKEN_BYTES:
        raise InputError(
            f"KV cache of shape {tuple(cache.shape)}: expected [pages, page_size, 1, {INLINE_TOKEN_BYTES}]"
        )
    rows = cache.reshape(-1, INLINE_TOKEN_BYTES)
    rows = rows if rows.dtype == torch.uint8 else rows.view(torch.uint8)
    end_of_scales = INLINE_NOPE_DIM + 4 * INLINE_GROUPS
    codes = rows[:, :INLINE_NOPE_DIM].contiguous().view(torch.float8_e4m3fn).float().double()
    scale = rows[:, INLINE_NOPE_DIM:end_of_scales].contiguous().view(torch.float32).double()
    rope = rows[:, end_of_scales:].contiguous().view(torch.bfloat16).double()
    nope = codes.reshape(-1, INLINE_GROUPS, INLINE_GROUP) * scale[:, :, None]
    return torch.cat([nope.reshape(-1, INLINE_NOPE_DIM), rope], dim=1).to(dtype)
