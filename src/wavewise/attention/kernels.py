"""Triton bodies that run on every architecture: the portable split kernel, the combine, and the baseline.

`decode` validates, allocates and launches them; `README.md` derives them. Nothing here queries a device.
Shapes: N queries (requests times s_q), H heads, D = 512 dimensions, T tokens in a tile.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
DATA_BYTES = tl.constexpr(576)
SCALE_BYTES = tl.constexpr(8)
NOPE = tl.constexpr(448)


@triton.jit
def _dot(a, b, acc, UPCAST: tl.constexpr):
    # The interpreter multiplies the raw bits of bf16 operands, so there the (already rounded) values go up.
    if UPCAST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(a, b, acc)


@triton.jit
def _decode_e4m3(codes, scale_bytes, ASM: tl.constexpr):
    """Codes [T, C * 64] u8 and UE8M0 scale bytes [T, C] int32 to bf16 [T, C * 64]; exact for every code and scale.

    ASM moves the bits of four codes at a time to where bf16 has its sign, the low exponent bits and the top
    mantissa bits (which reads as value * 2^-120, denormals included) and undoes that with two exact
    multiplications: about three instructions a value, none of them on the conversion pipe. It is declared
    impure to hide the 8-bit origin: Triton would otherwise stage the tile in shared memory a second time.
    The other way converts in hardware through fp32.
    """
    T: tl.constexpr = codes.shape[0]
    W: tl.constexpr = codes.shape[1]
    C: tl.constexpr = W // 64
    if ASM:
        bits = tl.maximum(scale_bytes << 7, 0x40).to(tl.int16).to(tl.bfloat16, bitcast=True)
        scales = tl.reshape(tl.broadcast_to(tl.reshape(bits, [T, C, 1]), [T, C, 64]), [T, W])
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d, k, z;
            mov.b32 k, 0x7b807b80;
            mov.b32 z, 0x80008000;
            prmt.b32 a, $2, 0, 0x1404;
            prmt.b32 b, $2, 0, 0x3424;
            shr.u32 c, a, 4;
            shr.u32 d, b, 4;
            and.b32 c, c, 0x07f007f0;
            and.b32 d, d, 0x07f007f0;
            lop3.b32 c, a, 0x80008000, c, 0xEA;
            lop3.b32 d, b, 0x80008000, d, 0xEA;
            fma.rn.bf16x2 c, c, k, z;
            fma.rn.bf16x2 d, d, k, z;
            fma.rn.bf16x2 $0, c, $3, z;
            fma.rn.bf16x2 $1, d, $4, z;
            }""",
            "=r,=r,r,r,r",
            [codes, scales],
            dtype=tl.bfloat16,
            is_pure=False,
            pack=4,
        )
    scales = tl.maximum(scale_bytes << 23, 0x400000).to(tl.float32, bitcast=True)
    values = codes.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    scaled = tl.reshape(values, [T, C, 64]) * tl.reshape(scales, [T, C, 1])
    return tl.reshape(scaled, [T, W]).to(tl.bfloat16)


@triton.jit
def _length(lengths, b, bound, GIVEN: tl.constexpr):
    """How many of the leftmost indices of request b count; no load where no lengths were given."""
    if GIVEN:
        return tl.maximum(tl.minimum(tl.load(lengths + b), bound), 0)
    return bound


@triton.jit
def _tile(
    i,
    tiles_a,
    cache_a,
    cache_e,
    index_a,
    index_e,
    length_a,
    length_e,
    page_a,
    page_e,
    stride_a,
    stride_e,
    T: tl.constexpr,
):
    """Base pointer, validity and byte offsets (row, scales) of tile i: window tiles first, then extra ones."""
    extra = i >= tiles_a
    base = tl.where(extra, cache_e, cache_a)
    pointer = tl.where(extra, index_e, index_a)
    length = tl.where(extra, length_e, length_a)
    page_size = tl.where(extra, page_e, page_a)
    stride = tl.where(extra, stride_e, stride_a)
    t = tl.where(extra, i - tiles_a, i) * T + tl.arange(0, T)
    index = tl.load(pointer + t, mask=t < length, other=-1)
    valid = index >= 0
    safe = tl.maximum(index, 0)
    page = safe // page_size
    offset = safe - page * page_size
    start = page.to(tl.int64) * stride
    row = tl.multiple_of(start + offset * DATA_BYTES, 16)
    scales = tl.multiple_of(start + page_size * DATA_BYTES + offset * SCALE_BYTES, 8)
    return base, valid, row, scales


@triton.jit
def _load_tile(base, valid, row, scales, ASM: tl.constexpr):
    """The dequantised tile, bf16 [T, 512]; rows that are not valid are zero, whatever their bytes hold."""
    T: tl.constexpr = row.shape[0]
    d = tl.arange(0, 512)
    chunk = tl.arange(0, 8)
    scale_words = tl.load((base + scales).to(tl.pointer_type(tl.int64)), mask=valid, other=0)
    scale_bytes = ((scale_words[:, None] >> (chunk * 8)[None, :]) & 0xFF).to(tl.int32)
    # The eighth byte is padding and may hold anything; its chunk is replaced by the rope values below.
    scale_bytes = tl.where((chunk < 7)[None, :], scale_bytes, 0)
    codes = tl.load(base + row[:, None] + d[None, :], mask=valid[:, None] & (d < NOPE)[None, :], other=0)
    rope_pointer = (base + (row + NOPE)).to(tl.pointer_type(tl.bfloat16))
    rope = tl.load(rope_pointer[:, None] + tl.arange(0, 64)[None, :], mask=valid[:, None], other=0.0)
    nope = tl.reshape(_decode_e4m3(codes, scale_bytes, ASM), [T, 8, 64])
    whole = tl.where((chunk == 7)[None, :, None], tl.reshape(rope, [T, 1, 64]), nope)
    return tl.reshape(whole, [T, 512])


@triton.jit
def split_portable(
    query, cache_a, index_a, length_a, cache_e, index_e, length_e, sink, out, lse_out,
    scale_log2, queries_per_request, bound_a, bound_e, page_a, page_e, stride_a, stride_e,
    index_stride_a, index_stride_e, query_stride_n, query_stride_h, out_stride_n, out_stride_s, out_stride_h,
    lse_stride_n, lse_stride_s, lse_stride_h, splits,
    HAS_LENGTH_A: tl.constexpr, HAS_LENGTH_E: tl.constexpr, HAS_SINK: tl.constexpr,
    SINGLE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr, STAGES: tl.constexpr,
    ASM: tl.constexpr, PDL: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Attend BLOCK_H heads of one query to one range of tiles; grid (H / BLOCK_H, splits, N).

    The KV tile stands on the M side of both products (S^T = K Q^T, O^T = K^T P^T), so a narrow block of heads
    wastes no rows of the tensor core and the accumulator is spread over all warps.
    """
    block = tl.program_id(0)
    split = tl.program_id(1)
    n = tl.program_id(2)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b = n // queries_per_request
    wide = n.to(tl.int64)
    la = _length(length_a, b, bound_a, HAS_LENGTH_A)
    le = _length(length_e, b, bound_e, HAS_LENGTH_E)
    tiles_a = tl.cdiv(la, BLOCK_T)
    tiles = tiles_a + tl.cdiv(le, BLOCK_T)
    lo = tiles * split // splits
    hi = tiles * (split + 1) // splits
    h = (block * BLOCK_H + tl.arange(0, BLOCK_H)).to(tl.int64)
    d = tl.arange(0, 512)
    q = tl.load(query + wide * query_stride_n + h[:, None] * query_stride_h + d[None, :])
    ia = index_a + wide * index_stride_a
    ie = index_e + wide * index_stride_e
    m = tl.full([BLOCK_H], float("-inf"), tl.float32)
    denominator = tl.zeros([BLOCK_H], tl.float32)
    o = tl.zeros([512, BLOCK_H], tl.float32)
    for i in tl.range(lo, hi, num_stages=STAGES):
        base, valid, row, scales = _tile(
            i, tiles_a, cache_a, cache_e, ia, ie, la, le, page_a, page_e, stride_a, stride_e, BLOCK_T
        )
        k = _load_tile(base, valid, row, scales, ASM)
        s = _dot(k, tl.trans(q), tl.zeros([BLOCK_T, BLOCK_H], tl.float32), UPCAST) * scale_log2
        s = tl.where(valid[:, None], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2(m - m_safe)
        p = tl.exp2(s - m_safe[None, :])
        denominator = denominator * alpha + tl.sum(p, 0)
        m = m_new
        o = _dot(tl.trans(k), p.to(tl.bfloat16), o * alpha[None, :], UPCAST)
    lse = tl.where(denominator > 0, m + tl.log2(denominator), float("-inf"))
    inverse = tl.where(denominator > 0, 1.0 / denominator, 0.0)
    if SINGLE:
        if HAS_SINK:
            sink_log2 = tl.load(sink + h) * LOG2E
            inverse = inverse * tl.where(denominator > 0, 1.0 / (1.0 + tl.exp2(sink_log2 - lse)), 0.0)
        lse = lse * LN2
    target = out + wide * out_stride_n + split * out_stride_s
    tl.store(target + h[None, :] * out_stride_h + d[:, None], (o * inverse[None, :]).to(out.dtype.element_ty))
    tl.store(lse_out + wide * lse_stride_n + split * lse_stride_s + h * lse_stride_h, lse)


@triton.jit
def sparse_mla_combine(
    partial, partial_lse, sink, out, lse_out, out_stride_n, out_stride_h, lse_stride_n, lse_stride_h,
    H: tl.constexpr, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr, HAS_SINK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Merge the partials of one (head, query) and apply the sink, once; grid (H, N).

    `partial` [N, SPLITS, H, 512] and `partial_lse` [N, SPLITS, H] (base 2) are contiguous; BLOCK_S is SPLITS
    rounded up. Two warps hold a row of 512 between them, so a thread sums its splits alone, and no load waits
    for another: the kernel lasts little more than one trip to the L2. A split that saw no key has lse -inf;
    what its values hold is read but never used.
    """
    h = tl.program_id(0)
    n = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, 512)
    if HAS_SINK:
        sink_log2 = tl.load(sink + h) * LOG2E
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    first = n * (SPLITS * H) + h
    s = tl.arange(0, BLOCK_S)
    rows = first + tl.minimum(s, SPLITS - 1) * H
    values = tl.load(partial + rows[:, None] * 512 + d[None, :])
    # Without this barrier the compiler puts each load off to its use, behind the wait for every lse.
    tl.debug_barrier()
    m = float("-inf")
    for i in tl.static_range(SPLITS):
        m = tl.maximum(m, tl.load(partial_lse + first + i * H))
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    total = 0.0
    weights = tl.zeros([BLOCK_S], tl.float32)
    for i in tl.static_range(SPLITS):
        weight = tl.exp2(tl.load(partial_lse + first + i * H) - m_safe)
        total += weight
        weights = tl.where(s == i, weight, weights)
    weighted = values.to(tl.float32) * weights[:, None]
    merged = tl.sum(tl.where((weights > 0)[:, None], weighted, 0.0), 0)
    lse = tl.where(total > 0, m_safe + tl.log2(total), float("-inf"))
    factor = tl.where(total > 0, 1.0 / total, 0.0)
    if HAS_SINK:
        factor = factor * tl.where(total > 0, 1.0 / (1.0 + tl.exp2(sink_log2 - lse)), 0.0)
    tl.store(out + n * out_stride_n + h * out_stride_h + d, (merged * factor).to(out.dtype.element_ty))
    tl.store(lse_out + n * lse_stride_n + h * lse_stride_h, lse * LN2)


@triton.jit
def tiled_sparse_mla_baseline(
    query, cache_a, index_a, length_a, cache_e, index_e, length_e, sink, out, lse_out,
    scale_log2, queries_per_request, bound_a, bound_e, page_a, page_e, stride_a, stride_e,
    index_stride_a, index_stride_e, query_stride_n, query_stride_h, out_stride_n, out_stride_h,
    lse_stride_n, lse_stride_h,
    HAS_LENGTH_A: tl.constexpr, HAS_LENGTH_E: tl.constexpr, HAS_SINK: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Where the mission starts: one CTA per (query, head), grid (N, H), no tensor core, KV decoded once per head."""
    n = tl.program_id(0)
    h = tl.program_id(1)
    b = n // queries_per_request
    wide = n.to(tl.int64)
    la = _length(length_a, b, bound_a, HAS_LENGTH_A)
    le = _length(length_e, b, bound_e, HAS_LENGTH_E)
    tiles_a = tl.cdiv(la, BLOCK_T)
    tiles = tiles_a + tl.cdiv(le, BLOCK_T)
    d = tl.arange(0, 512)
    q = tl.load(query + wide * query_stride_n + h * query_stride_h + d).to(tl.float32) * scale_log2
    ia = index_a + wide * index_stride_a
    ie = index_e + wide * index_stride_e
    m = float("-inf")
    denominator = 0.0
    o = tl.zeros([512], tl.float32)
    for i in range(tiles):
        base, valid, row, scales = _tile(
            i, tiles_a, cache_a, cache_e, ia, ie, la, le, page_a, page_e, stride_a, stride_e, BLOCK_T
        )
        k = _load_tile(base, valid, row, scales, False).to(tl.float32)
        s = tl.where(valid, tl.sum(k * q[None, :], 1), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2(m - m_safe)
        p = tl.exp2(s - m_safe)
        denominator = denominator * alpha + tl.sum(p, 0)
        m = m_new
        o = o * alpha + tl.sum(p[:, None] * k, 0)
    lse = tl.where(denominator > 0, m + tl.log2(denominator), float("-inf"))
    factor = tl.where(denominator > 0, 1.0 / denominator, 0.0)
    if HAS_SINK:
        factor = factor * tl.where(
            denominator > 0, 1.0 / (1.0 + tl.exp2(tl.load(sink + h) * LOG2E - lse)), 0.0
        )
    tl.store(out + wide * out_stride_n + h * out_stride_h + d, (o * factor).to(out.dtype.element_ty))
    tl.store(lse_out + wide * lse_stride_n + h * lse_stride_h, lse * LN2)
