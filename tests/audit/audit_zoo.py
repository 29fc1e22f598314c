"""Small Triton kernels of the kinds that decode servers run; compiled by the audit's tests, never launched."""

import triton
import triton.language as tl


@triton.jit
def scale_add(x, y, out, n, factor, BLOCK: tl.constexpr):
    """Element-wise: out = factor * x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = factor * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, value, mask=inside)


@triton.jit
def gemv(weight, x, out, rows, columns, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr = 128):
    """One tile of rows of weight @ x, accumulated in fp32."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    for start in range(0, columns, BLOCK_K):
        column = start + tl.arange(0, BLOCK_K)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        tile = tl.load(weight + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        part = tl.load(x + column, mask=column < columns, other=0.0)
        total += tl.sum(tile.to(tl.float32) * part[None, :].to(tl.float32), axis=1)
    tl.store(out + row, total, mask=row < rows)


@triton.jit
def tiled_sparse_decode(
    q,
    kv,
    indices,
    out,
    lse,
    scale,
    topk,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Sparse decode attention, K = V: one CTA walks all selected tokens of one request, tile by tile.

    The shape of the texts' problem kernel: grid (B, H / BLOCK_H), no split over the tokens.
    """
    batch, block = tl.program_id(0), tl.program_id(1)
    head, dim = block * BLOCK_H + tl.arange(0, BLOCK_H), tl.arange(0, D)
    query = tl.load(q + (batch * H + head[:, None]) * D + dim[None, :])
    best = tl.full([BLOCK_H], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    mixed = tl.zeros([BLOCK_H, D], dtype=tl.float32)
    for start in range(0, topk, BLOCK_T):
        slot = start + tl.arange(0, BLOCK_T)
        token = tl.load(indices + batch * topk + slot, mask=slot < topk, other=-1)
        valid = token >= 0
        tile = tl.load(kv + token[:, None].to(tl.int64) * D + dim[None, :], mask=valid[:, None], other=0.0)
        scores = tl.where(valid[None, :], tl.dot(query, tl.trans(tile)) * scale, float("-inf"))
        now = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - now[:, None])
        shrink = tl.exp(best - now)
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(tile.dtype), tile, mixed * shrink[:, None])
        best = now
    tl.store(out + (batch * H + head[:, None]) * D + dim[None, :], mixed / total[:, None])
    tl.store(lse + batch * H + head, best + tl.log(total))


@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=2)], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    """An autotuned kernel: the audit looks inside."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def broken(x, BLOCK: tl.constexpr):
    """Calls what does not exist."""
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.no_such_function(x + at))


@triton.jit
def broken_for_large(x, BLOCK: tl.constexpr):
    """Compiles only for BLOCK <= 128."""
    tl.static_assert(BLOCK <= 128, "BLOCK is too large")
    tl.store(x + tl.arange(0, BLOCK), 1.0)
