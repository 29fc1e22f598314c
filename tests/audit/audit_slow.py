"""Kernels that are slow to compile; compiled by the audit's tests, never launched."""

import triton
import triton.language as tl


@triton.jit
def plain(x, BLOCK: tl.constexpr = 64):
    """As quick as a compile gets."""
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@triton.jit
def wide_dot(a, b, out, N: tl.constexpr):
    """A product of square tiles: 512 columns keep a compiler busy for minutes."""
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    at = row * N + column
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))
