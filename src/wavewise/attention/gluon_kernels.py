"""Warp-specialised split kernels for Hopper (sm_90), in Gluon. Bodies only: `decode` validates and launches.

One CTA attends one block of heads to one range of tiles. `split_hopper` (64 heads, 32-token tiles) has warps with
three jobs:

* **gather** (4 warps): copy indices, then 576-byte rows and their scale bytes, ahead of time and asynchronously, to
  a staging ring; decode e4m3 to bf16 from there into a ring of KV tiles.
* **score** (4 warps, the default partition): S = Q K^T by `wgmma`, online softmax inside the warpgroup (a row never
  leaves its quad), P to shared memory, then P V for value dimensions 0 to 255.
* **value** (4 warps): P V for value dimensions 256 to 511, with P and the rescale factor from shared memory.

Q K^T is computed once, K is read from global memory once and serves as V from the same tile.
`split_hopper_narrow` (8, 16 or 32 heads, 64-token tiles) has gather warps and one group that does the rest.

Common names: T tokens of a tile, NB tiles in the ring, NWP gather warps, DEPTH staged units of 32 rows; `lo` and `hi`
bound the CTA's tiles; K0 and K1 hold dimensions 0 to 255 and 256 to 511. The README draws it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin as _builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@_builtin
def _copy(memory, pointer, mask=None, _semantic=None):
    # `async_copy_global_to_shared` in Triton 3.6, later `async_load`. Where the mask is false, zeros arrive.
    copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
    copy(memory, pointer, mask=mask, _semantic=_semantic)


@_builtin
def _view(memory, dtype, shape, layout, _semantic=None):
    # Triton 3.6 spells it `_reinterpret`, later versions `reinterpret`.
    method = getattr(memory, "_reinterpret", None) or memory.reinterpret
    return method(dtype, shape, layout, _semantic=_semantic)


@gluon.jit
def _decode_word(word, scale):
    """Four e4m3 in one word, times a bf16x2 power of two, as two bf16x2 words: exact for every code and scale.

    The e4m3 bits are moved to where bf16 has its sign, the low four exponent bits and the top three of its
    mantissa; that reads as value * 2^-120, denormals included. Two exact multiplications undo it.
    """
    return gl.inline_asm_elementwise(
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
        fma.rn.bf16x2 $1, d, $3, z;
        }""",
        "=r,=r,r,r",
        [word, scale],
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _decode_chunks(words, scales, first: gl.constexpr, layout: gl.constexpr):
    """Words [T, W] of e4m3 with scale bytes `first`.. of `scales` [T] (int32) to bf16x2 words [T, 2 W]."""
    T: gl.constexpr = words.shape[0]
    W: gl.constexpr = words.shape[1]
    chunk = gl.arange(0, W, gl.SliceLayout(0, layout)) >> 4
    exponent = (scales[:, None] >> (first * 8 + chunk * 8)[None, :]) & 0xFF
    # The byte becomes a bf16 exponent in both halves; byte 0 is 2^-127, a bf16 denormal.
    low, high = _decode_word(words, gl.maximum(exponent * 0x00800080, 0x00400040))
    return gl.join(low, high).reshape([T, W * 2])


@gluon.jit
def _length(lengths, b, bound, GIVEN: gl.constexpr):
    """How many of the leftmost indices of request b count; no load where no lengths were given."""
    if GIVEN:
        return gl.maximum(gl.minimum(gl.load(lengths + b), bound), 0)
    return bound


@gluon.jit
def _scope_of(i, scopes):
    """Of the scope that tile i belongs to: cache, indices, length, page size, page stride, and i's place in it."""
    (
        cache_a, cache_e, index_a, index_e, length_a, length_e,
        page_a, page_e, stride_a, stride_e, tiles_a,
    ) = scopes  # fmt: skip
    extra = i >= tiles_a
    cache = cache_e if extra else cache_a
    index = index_e if extra else index_a
    length = gl.where(extra, length_e, length_a)
    page_size = gl.where(extra, page_e, page_a)
    stride = gl.where(extra, stride_e, stride_a)
    return cache, index, length, page_size, stride, gl.where(extra, i - tiles_a, i)


@gluon.jit
def _fetch_indices(i, hi, half: gl.constexpr, scopes, slot, T: gl.constexpr, NWP: gl.constexpr):
    """Start copying the 32 indices of unit `half` of tile i to `slot`; zeros where there are none."""
    _, pointer, length, _, _, place = _scope_of(i, scopes)
    t = place * T + half * 32 + gl.arange(0, 32, gl.BlockedLayout([1], [32], [NWP], [0]))
    _copy(slot, pointer + t, mask=(t < length) & (i < hi))


@gluon.jit
def _fetch_rows(
    i, hi, half: gl.constexpr, scopes, indices, bias, R0, R1, R2, R3, RS,
    T: gl.constexpr, NWP: gl.constexpr, SHIFT: gl.constexpr,
):  # fmt: skip
    """Start copying the 32 rows that `indices` names, and say in `bias` which of them are keys.

    Rows that are no keys arrive as zeros, whatever the cache holds in their place.
    """
    L: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [NWP, 1], [1, 0])
    R: gl.constexpr = gl.SliceLayout(1, L)
    cache, _, length, page_size, stride, place = _scope_of(i, scopes)
    index = indices.load(R)
    t = place * T + half * 32 + gl.arange(0, 32, R)
    valid = (index >= 0) & (t < length) & (i < hi)
    bias.store(gl.where(valid, 0.0, float("-inf")))
    index = gl.where(valid, index, 0)
    if SHIFT:
        # Page sizes that are powers of two arrive as their logarithms.
        page = index >> page_size
        offset = index - (page << page_size)
        scales_at = (1 << page_size) * 576
    else:
        page = index // page_size
        offset = index - page * page_size
        scales_at = page_size * 576
    start = page.to(gl.int64) * stride
    rows = (cache + gl.multiple_of(start + offset * 576, 16)).to(gl.pointer_type(gl.int32))
    scales = (cache + gl.multiple_of(start + scales_at + offset * 8, 8)).to(gl.pointer_type(gl.int64))
    w0 = gl.arange(0, 64, gl.SliceLayout(0, L))
    w1 = gl.arange(0, 32, gl.SliceLayout(0, L))
    w2 = gl.arange(0, 16, gl.SliceLayout(0, L))
    mask = valid[:, None]
    _copy(R0, rows[:, None] + w0[None, :], mask=mask)
    _copy(R1, rows[:, None] + (64 + w1)[None, :], mask=mask)
    _copy(R2, rows[:, None] + (96 + w2)[None, :], mask=mask)
    _copy(R3, rows[:, None] + (112 + w1)[None, :], mask=mask)
    _copy(RS, scales, mask=valid)


@gluon.jit
def _beside(left, right, layout: gl.constexpr):
    """[T, W] and [T, W] side by side as [T, 2 W]; each thread keeps its own words."""
    T: gl.constexpr = left.shape[0]
    W: gl.constexpr = left.shape[1]
    both = gl.join(gl.convert_layout(left, layout), gl.convert_layout(right, layout))
    return both.permute((0, 2, 1)).reshape([T, 2 * W])


@gluon.jit
def _gather(
    scopes, lo, hi, indices, R0, R1, R2, R3, RS, K0, K1, bias, full, empty,
    T: gl.constexpr, NB: gl.constexpr, NWP: gl.constexpr, DEPTH: gl.constexpr, SHIFT: gl.constexpr,
):  # fmt: skip
    """The gather warps' loop over the CTA's tiles."""
    # A unit is 32 rows. Its indices are fetched 2 (DEPTH - 1) units ahead of its decode, its rows DEPTH - 1 ahead,
    # by asynchronous copies that are waited for in order. (Loads to registers would not do: the compiler gives
    # all loads that a loop carries one scoreboard, so waiting for the oldest waits for the youngest as well.)
    # Four threads own one row: 64 bytes of codes, one scale group, is 16 bytes a thread; decoded, 32. A quarter
    # warp then writes 16-byte pieces of two neighbouring rows, which the 128-byte swizzle puts in all 32 banks.
    L: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [NWP, 1], [1, 0])
    W: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [NWP, 1], [1, 0])
    UNITS: gl.constexpr = T // 32
    AHEAD: gl.constexpr = DEPTH - 1
    for v in gl.static_range(2 * AHEAD):
        _fetch_indices(lo + v // UNITS, hi, v % UNITS, scopes, indices.index(v % 8), T, NWP)
        async_copy.commit_group()
    async_copy.wait_group(AHEAD)
    for v in gl.static_range(AHEAD):
        _fetch_rows(
            lo + v // UNITS, hi, v % UNITS, scopes, indices.index(v % 8), bias.index(v),
            R0.index(v), R1.index(v), R2.index(v), R3.index(v), RS.index(v), T, NWP, SHIFT,
        )  # fmt: skip
        async_copy.commit_group()
    for i in range(lo, hi):
        j = i - lo
        slot = j % NB
        for half in gl.static_range(UNITS):
            u = j * UNITS + half
            async_copy.wait_group(AHEAD - 1)
            # Read before the next copies are issued: the queue to shared memory is first come, first served.
            raw = u % DEPTH
            s = RS.index(raw).load(gl.SliceLayout(1, L))
            x2 = R2.index(raw).load(L)
            x1 = R1.index(raw).load(L)
            rope = R3.index(raw).load(W)
            coming = u + AHEAD
            at = coming % DEPTH
            _fetch_rows(
                i + (half + AHEAD) // UNITS, hi, (half + AHEAD) % UNITS, scopes,
                indices.index(coming % 8), bias.index(coming % (8 * UNITS)),
                R0.index(at), R1.index(at), R2.index(at), R3.index(at), RS.index(at), T, NWP, SHIFT,
            )  # fmt: skip
            mbarrier.wait(empty.index(slot), ((j // NB) & 1) ^ 1)
            # Read behind the wait, which the compiler does not move reads across: it would else decode all of
            # the unit before the copies above, and write it in one burst at the end.
            x0 = R0.index(raw).load(L)
            s0 = s.to(gl.int32)
            s1 = (s >> 32).to(gl.int32)
            k1 = K1.index(slot).slice(half * 32, 32, dim=0)
            tail = _beside(_decode_chunks(x2, s1, 2, L), rope, W)
            k1.store(_beside(_decode_chunks(x1, s1, 0, L), tail, W))
            K0.index(slot).slice(half * 32, 32, dim=0).store(_decode_chunks(x0, s0, 0, L))
            if half == UNITS - 1:
                fence_async_shared()
                mbarrier.arrive(full.index(slot), count=1)
            _fetch_indices(
                i + (half + 2 * AHEAD) // UNITS, hi, (half + 2 * AHEAD) % UNITS, scopes,
                indices.index((u + 2 * AHEAD) % 8), T, NWP,
            )  # fmt: skip
            async_copy.commit_group()
    async_copy.wait_group(0)


@gluon.jit
def _store_half(out, strides, n, split, o, staging, first: gl.constexpr, h0):
    """Write [64, 256] through shared memory: from the accumulator's layout a warp would write 16 bytes a row.

    The address is computed here, not passed in: its registers would be taken all through the loop.
    """
    stride_n, stride_s, stride_h = strides
    L: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    h = (h0 + gl.arange(0, 64, gl.SliceLayout(1, L))).to(gl.int64)
    d = first + gl.arange(0, 256, gl.SliceLayout(0, L))
    staging.store(o.to(gl.bfloat16))
    target = out + n.to(gl.int64) * stride_n + split * stride_s
    gl.store(target + h[:, None] * stride_h + d[None, :], staging.load(L).to(out.dtype.element_ty))


@gluon.jit
def _publish_weights(S, bias, m, denominator, j, scale_log2, P, factor, p_full, p_empty):
    """One step of the online softmax over tile j; its weights and rescale factor go to the value warps."""
    S = S * scale_log2 + bias[None, :]
    m_new = gl.maximum(m, gl.max(S, 1))
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = gl.exp2(m - m_safe)
    p = gl.exp2(S - m_safe[:, None])
    denominator = denominator * alpha + gl.sum(p, 1)
    weights = p.to(gl.bfloat16)
    mbarrier.wait(p_empty.index(j % 2), ((j // 2) & 1) ^ 1)
    P.index(j % 2).store(weights)
    factor.index(j % 2).store(alpha)
    fence_async_shared()
    mbarrier.arrive(p_full.index(j % 2), count=1)
    return m_new, denominator, alpha, weights


@gluon.jit
def _score(
    query,
    query_strides,
    lo,
    hi,
    h0,
    Q0,
    Q1,
    K0,
    K1,
    bias,
    P,
    factor,
    full,
    empty,
    p_full,
    p_empty,
    scale_log2,
    sink,
    n,
    split,
    out,
    out_strides,
    lse_out,
    lse_strides,
    HAS_SINK: gl.constexpr,
    SINGLE: gl.constexpr,
    T: gl.constexpr,
    NB: gl.constexpr,
):
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, T, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16])
    LP: gl.constexpr = gl.DotOperandLayout(0, LO, 2)
    MS: gl.constexpr = gl.SliceLayout(1, LS)
    TS: gl.constexpr = gl.SliceLayout(0, LS)
    MO: gl.constexpr = gl.SliceLayout(1, LO)
    LQ: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    hq = (h0 + gl.arange(0, 64, gl.SliceLayout(1, LQ))).to(gl.int64)
    dq = gl.arange(0, 256, gl.SliceLayout(0, LQ))
    query_stride_n, query_stride_h = query_strides
    rows = query + n.to(gl.int64) * query_stride_n + hq[:, None] * query_stride_h + dq[None, :]
    _copy(Q0, rows)
    _copy(Q1, rows + 256)
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    m = gl.full([64], float("-inf"), gl.float32, MS)
    denominator = gl.full([64], 0.0, gl.float32, MS)
    o = gl.zeros([64, 256], gl.float32, LO)
    mbarrier.wait(full.index(0), 0)
    zero = gl.zeros([64, T], gl.float32, LS)
    S = warpgroup_mma(Q0, K0.index(0).permute((1, 0)), zero, use_acc=False, is_async=True)
    S = warpgroup_mma(Q1, K1.index(0).permute((1, 0)), S, is_async=True)
    b = bias.index(0).load(TS)
    S = warpgroup_mma_wait(0, [S])
    for j in range(hi - lo - 1):
        slot = j % NB
        following = (j + 1) % NB
        # The tensor cores work on the next tile's scores while this one's softmax runs.
        mbarrier.wait(full.index(following), ((j + 1) // NB) & 1)
        S_next = warpgroup_mma(Q0, K0.index(following).permute((1, 0)), zero, use_acc=False, is_async=True)
        S_next = warpgroup_mma(Q1, K1.index(following).permute((1, 0)), S_next, is_async=True)
        b_next = bias.index((j + 1) % 8).load(TS)
        m, denominator, alpha, weights = _publish_weights(
            S, b, m, denominator, j, scale_log2, P, factor, p_full, p_empty
        )
        o = o * gl.convert_layout(alpha, MO)[:, None]
        o = warpgroup_mma(gl.convert_layout(weights, LP), K0.index(slot), o, is_async=True)
        o, S = warpgroup_mma_wait(0, [o, S_next])
        b = b_next
        mbarrier.arrive(empty.index(slot), count=1)
    j = hi - lo - 1
    m, denominator, alpha, weights = _publish_weights(
        S, b, m, denominator, j, scale_log2, P, factor, p_full, p_empty
    )
    o = o * gl.convert_layout(alpha, MO)[:, None]
    o = warpgroup_mma(gl.convert_layout(weights, LP), K0.index(j % NB), o, is_async=True)
    o = warpgroup_mma_wait(0, [o])
    lse = gl.where(denominator > 0, m + gl.log2(denominator), float("-inf"))
    inverse = gl.where(denominator > 0, 1.0 / denominator, 0.0)
    h = h0 + gl.arange(0, 64, MS)
    if SINGLE:
        if HAS_SINK:
            sink_log2 = gl.load(sink + h) * 1.4426950408889634
            inverse = inverse * gl.where(denominator > 0, 1.0 / (1.0 + gl.exp2(sink_log2 - lse)), 0.0)
        lse = lse * 0.6931471805599453
    j = hi - lo
    mbarrier.wait(p_empty.index(j % 2), ((j // 2) & 1) ^ 1)
    factor.index(j % 2).store(inverse)
    mbarrier.arrive(p_full.index(j % 2), count=1)
    stride_n, stride_s, stride_h = lse_strides
    gl.store(lse_out + n.to(gl.int64) * stride_n + split * stride_s + h.to(gl.int64) * stride_h, lse)
    _store_half(out, out_strides, n, split, o * gl.convert_layout(inverse, MO)[:, None], Q0, 0, h0)


@gluon.jit
def _value(
    lo,
    hi,
    h0,
    Q1,
    K1,
    P,
    factor,
    full,
    empty,
    p_full,
    p_empty,
    n,
    split,
    out,
    out_strides,
    NB: gl.constexpr,
):
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16])
    MO: gl.constexpr = gl.SliceLayout(1, LO)
    o = gl.zeros([64, 256], gl.float32, LO)
    for i in range(lo, hi):
        j = i - lo
        slot = j % NB
        mbarrier.wait(p_full.index(j % 2), (j // 2) & 1)
        o = o * factor.index(j % 2).load(MO)[:, None]
        mbarrier.wait(full.index(slot), (j // NB) & 1)
        o = warpgroup_mma(P.index(j % 2), K1.index(slot), o, is_async=True)
        o = warpgroup_mma_wait(0, [o])
        mbarrier.arrive(p_empty.index(j % 2), count=1)
        mbarrier.arrive(empty.index(slot), count=1)
    j = hi - lo
    mbarrier.wait(p_full.index(j % 2), (j // 2) & 1)
    # The score warps have read Q for the last time before they sent this factor.
    _store_half(out, out_strides, n, split, o * factor.index(j % 2).load(MO)[:, None], Q1, 256, h0)


@gluon.jit
def split_hopper(
    query,
    cache_a,
    index_a,
    length_a,
    cache_e,
    index_e,
    length_e,
    sink,
    out,
    lse_out,
    scale_log2,
    queries_per_request,
    bound_a,
    bound_e,
    page_a,
    page_e,
    stride_a,
    stride_e,
    index_stride_a,
    index_stride_e,
    query_stride_n,
    query_stride_h,
    out_stride_n,
    out_stride_s,
    out_stride_h,
    lse_stride_n,
    lse_stride_s,
    lse_stride_h,
    splits,
    HAS_LENGTH_A: gl.constexpr,
    HAS_LENGTH_E: gl.constexpr,
    HAS_SINK: gl.constexpr,
    SINGLE: gl.constexpr,
    T: gl.constexpr,
    NB: gl.constexpr,
    NWP: gl.constexpr,
    DEPTH: gl.constexpr,
    SHIFT: gl.constexpr,
    VALUE_REGISTERS: gl.constexpr,
    GATHER_REGISTERS: gl.constexpr,
    PDL: gl.constexpr,
):
    h0 = gl.program_id(0) * 64
    split = gl.program_id(1)
    n = gl.program_id(2)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b = n // queries_per_request
    la = _length(length_a, b, bound_a, HAS_LENGTH_A)
    le = _length(length_e, b, bound_e, HAS_LENGTH_E)
    tiles_a = (la + T - 1) // T
    tiles = tiles_a + (le + T - 1) // T
    lo = tiles * split // splits
    hi = tiles * (split + 1) // splits
    wide = n.to(gl.int64)
    if lo == hi:
        # Nothing to attend to. A partial's lse of -inf tells the combine to leave its values unread.
        LH: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        h = (h0 + gl.arange(0, 64, LH)).to(gl.int64)
        empty_lse = lse_out + wide * lse_stride_n + split * lse_stride_s
        gl.store(empty_lse + h * lse_stride_h, gl.full([64], float("-inf"), gl.float32, LH))
        if SINGLE:
            LZ: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
            hz = (h0 + gl.arange(0, 64, gl.SliceLayout(1, LZ))).to(gl.int64)
            dz = gl.arange(0, 512, gl.SliceLayout(0, LZ))
            zeros = gl.zeros([64, 512], out.dtype.element_ty, LZ)
            gl.store(out + wide * out_stride_n + hz[:, None] * out_stride_h + dz[None, :], zeros)
    else:
        scopes = (
            cache_a,
            cache_e,
            index_a + wide * index_stride_a,
            index_e + wide * index_stride_e,
            la,
            le,
            page_a,
            page_e,
            stride_a,
            stride_e,
            tiles_a,
        )
        SL: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
        SP: gl.constexpr = gl.NVMMASharedLayout(2 * T, 16, 2)
        S32: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
        S1: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        # Neighbouring rows are read together: these put them in different banks.
        SR: gl.constexpr = gl.SwizzledSharedLayout(16, 1, 2, [1, 0])
        SR2: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 1, [1, 0])
        SR3: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 2, [1, 0])
        Q0 = gl.allocate_shared_memory(gl.bfloat16, [64, 256], SL)
        Q1 = gl.allocate_shared_memory(gl.bfloat16, [64, 256], SL)
        K0 = gl.allocate_shared_memory(gl.bfloat16, [NB, T, 256], SL)
        K1 = gl.allocate_shared_memory(gl.bfloat16, [NB, T, 256], SL)
        P = gl.allocate_shared_memory(gl.bfloat16, [2, 64, T], SP)
        bias = gl.allocate_shared_memory(gl.float32, [8, T], S1)
        factor = gl.allocate_shared_memory(gl.float32, [2, 64], S1)
        indices = gl.allocate_shared_memory(gl.int32, [8, 32], S1)
        R0 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 64], SR)
        R1 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 32], SR)
        R2 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 16], SR2)
        R3 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 32], SR3)
        RS = gl.allocate_shared_memory(gl.int64, [DEPTH, 32], S1)
        full = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
        p_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        p_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        for s in gl.static_range(NB):
            mbarrier.init(full.index(s), count=1)
            mbarrier.init(empty.index(s), count=2)
        for s in gl.static_range(2):
            mbarrier.init(p_full.index(s), count=1)
            mbarrier.init(p_empty.index(s), count=1)
        fence_async_shared()
        gl.warp_specialize(
            [
                (
                    _score,
                    (
                        query,
                        (query_stride_n, query_stride_h),
                        lo,
                        hi,
                        h0,
                        Q0,
                        Q1,
                        K0,
                        K1,
                        bias,
                        P,
                        factor,
                        full,
                        empty,
                        p_full,
                        p_empty,
                        scale_log2,
                        sink,
                        n,
                        split,
                        out,
                        (out_stride_n, out_stride_s, out_stride_h),
                        lse_out,
                        (lse_stride_n, lse_stride_s, lse_stride_h),
                        HAS_SINK,
                        SINGLE,
                        T,
                        NB,
                    ),
                ),
                (
                    _value,
                    (
                        lo,
                        hi,
                        h0,
                        Q1,
                        K1,
                        P,
                        factor,
                        full,
                        empty,
                        p_full,
                        p_empty,
                        n,
                        split,
                        out,
                        (out_stride_n, out_stride_s, out_stride_h),
                        NB,
                    ),
                ),
                (
                    _gather,
                    (
                        scopes,
                        lo,
                        hi,
                        indices,
                        R0,
                        R1,
                        R2,
                        R3,
                        RS,
                        _view(K0, gl.int32, [NB, T, 128], S32),
                        _view(K1, gl.int32, [NB, T, 128], S32),
                        _view(bias, gl.float32, [8 * (T // 32), 32], S1),
                        full,
                        empty,
                        T,
                        NB,
                        NWP,
                        DEPTH,
                        SHIFT,
                    ),
                ),
            ],
            [4, NWP],
            [VALUE_REGISTERS, GATHER_REGISTERS],
        )


@gluon.jit
def _attend_narrow(
    query, query_stride, lo, hi, h0, Q0, Q1, K0, K1, bias, P, full, empty,
    scale_log2, sink, out, out_stride, lse_out, lse_stride,
    HAS_SINK: gl.constexpr, SINGLE: gl.constexpr, BLOCK_H: gl.constexpr, T: gl.constexpr, NB: gl.constexpr,
):  # fmt: skip
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_H, 16])
    MS: gl.constexpr = gl.SliceLayout(0, LS)
    LQ: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    hq = (h0 + gl.arange(0, BLOCK_H, gl.SliceLayout(1, LQ))).to(gl.int64)
    dq = gl.arange(0, 256, gl.SliceLayout(0, LQ))
    rows = query + hq[:, None] * query_stride + dq[None, :]
    _copy(Q0, rows)
    _copy(Q1, rows + 256)
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    m = gl.full([BLOCK_H], float("-inf"), gl.float32, MS)
    denominator = gl.full([BLOCK_H], 0.0, gl.float32, MS)
    o0 = gl.zeros([256, BLOCK_H], gl.float32, LS)
    o1 = gl.zeros([256, BLOCK_H], gl.float32, LS)
    zero = gl.zeros([T, BLOCK_H], gl.float32, LS)
    for j in range(hi - lo):
        slot = j % NB
        mbarrier.wait(full.index(slot), (j // NB) & 1)
        S = warpgroup_mma(K0.index(slot), Q0.permute((1, 0)), zero, use_acc=False, is_async=True)
        S = warpgroup_mma(K1.index(slot), Q1.permute((1, 0)), S, is_async=True)
        S = warpgroup_mma_wait(0, [S])
        S = S * scale_log2 + bias.index(j % 8).load(gl.SliceLayout(1, LS))[:, None]
        m_new = gl.maximum(m, gl.max(S, 0))
        m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = gl.exp2(m - m_safe)
        p = gl.exp2(S - m_safe[None, :])
        denominator = denominator * alpha + gl.sum(p, 0)
        m = m_new
        P.store(p.to(gl.bfloat16))
        fence_async_shared()
        o0 = o0 * alpha[None, :]
        o1 = o1 * alpha[None, :]
        o0 = warpgroup_mma(K0.index(slot).permute((1, 0)), P, o0, is_async=True)
        o1 = warpgroup_mma(K1.index(slot).permute((1, 0)), P, o1, is_async=True)
        o0, o1 = warpgroup_mma_wait(0, [o0, o1])
        mbarrier.arrive(empty.index(slot), count=1)
    lse = gl.where(denominator > 0, m + gl.log2(denominator), float("-inf"))
    inverse = gl.where(denominator > 0, 1.0 / denominator, 0.0)
    h = (h0 + gl.arange(0, BLOCK_H, MS)).to(gl.int64)
    if SINGLE:
        if HAS_SINK:
            sink_log2 = gl.load(sink + h) * 1.4426950408889634
            inverse = inverse * gl.where(denominator > 0, 1.0 / (1.0 + gl.exp2(sink_log2 - lse)), 0.0)
        lse = lse * 0.6931471805599453
    gl.store(lse_out + h * lse_stride, lse)
    # Q has been read for the last time: its place turns the output over, so that a warp writes whole rows.
    Q0.permute((1, 0)).store((o0 * inverse[None, :]).to(gl.bfloat16))
    Q1.permute((1, 0)).store((o1 * inverse[None, :]).to(gl.bfloat16))
    target = out + hq[:, None] * out_stride + dq[None, :]
    gl.store(target, Q0.load(LQ).to(out.dtype.element_ty))
    gl.store(target + 256, Q1.load(LQ).to(out.dtype.element_ty))


@gluon.jit
def split_hopper_narrow(
    query, cache_a, index_a, length_a, cache_e, index_e, length_e, sink, out, lse_out,
    scale_log2, queries_per_request, bound_a, bound_e, page_a, page_e, stride_a, stride_e,
    index_stride_a, index_stride_e, query_stride_n, query_stride_h, out_stride_n, out_stride_s, out_stride_h,
    lse_stride_n, lse_stride_s, lse_stride_h, splits,
    HAS_LENGTH_A: gl.constexpr, HAS_LENGTH_E: gl.constexpr, HAS_SINK: gl.constexpr,
    SINGLE: gl.constexpr, BLOCK_H: gl.constexpr, T: gl.constexpr, NB: gl.constexpr, NWP: gl.constexpr,
    DEPTH: gl.constexpr, SHIFT: gl.constexpr, GATHER_REGISTERS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """For 8, 16 or 32 heads: the KV tile stands on the M side of both products, so no row is padding."""
    h0 = gl.program_id(0) * BLOCK_H
    split = gl.program_id(1)
    n = gl.program_id(2)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b = n // queries_per_request
    la = _length(length_a, b, bound_a, HAS_LENGTH_A)
    le = _length(length_e, b, bound_e, HAS_LENGTH_E)
    tiles_a = (la + T - 1) // T
    tiles = tiles_a + (le + T - 1) // T
    lo = tiles * split // splits
    hi = tiles * (split + 1) // splits
    wide = n.to(gl.int64)
    out += wide * out_stride_n + split * out_stride_s
    lse_out += wide * lse_stride_n + split * lse_stride_s
    scopes = (
        cache_a, cache_e, index_a + wide * index_stride_a, index_e + wide * index_stride_e, la, le,
        page_a, page_e, stride_a, stride_e, tiles_a,
    )  # fmt: skip
    SL: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    SP: gl.constexpr = gl.NVMMASharedLayout(2 * BLOCK_H if BLOCK_H > 8 else 0, 16, 2)
    S32: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
    S1: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    # Neighbouring rows are read together: these put them in different banks.
    SR: gl.constexpr = gl.SwizzledSharedLayout(16, 1, 2, [1, 0])
    SR2: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 1, [1, 0])
    SR3: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 2, [1, 0])
    Q0 = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_H, 256], SL)
    Q1 = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_H, 256], SL)
    K0 = gl.allocate_shared_memory(gl.bfloat16, [NB, T, 256], SL)
    K1 = gl.allocate_shared_memory(gl.bfloat16, [NB, T, 256], SL)
    P = gl.allocate_shared_memory(gl.bfloat16, [T, BLOCK_H], SP)
    bias = gl.allocate_shared_memory(gl.float32, [8, T], S1)
    indices = gl.allocate_shared_memory(gl.int32, [8, 32], S1)
    R0 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 64], SR)
    R1 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 32], SR)
    R2 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 16], SR2)
    R3 = gl.allocate_shared_memory(gl.int32, [DEPTH, 32, 32], SR3)
    RS = gl.allocate_shared_memory(gl.int64, [DEPTH, 32], S1)
    full = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(NB):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _attend_narrow,
                (
                    query + wide * query_stride_n, query_stride_h, lo, hi, h0, Q0, Q1, K0, K1, bias, P, full, empty,
                    scale_log2, sink, out, out_stride_h, lse_out, lse_stride_h, HAS_SINK, SINGLE, BLOCK_H, T, NB,
                ),
            ),
            (
                _gather,
                (
                    scopes, lo, hi, indices, R0, R1, R2, R3, RS,
                    _view(K0, gl.int32, [NB, T, 128], S32), _view(K1, gl.int32, [NB, T, 128], S32),
                    _view(bias, gl.float32, [8 * (T // 32), 32], S1), full, empty,
                        T, NB, NWP, DEPTH, SHIFT,
                ),
            ),
        ],
        [NWP],
        [GATHER_REGISTERS],
    )  # fmt: skip
