"""A Gluon kernel for the audit's tests."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def gluon_copy(source, target, n, BLOCK: gl.constexpr):
    """Copies through shared memory, with the layout spelt out."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    value = gl.load(source + at, mask=at < n, other=0.0)
    room = gl.allocate_shared_memory(gl.float32, [BLOCK], shared, value)
    gl.store(target + at, room.load(layout), mask=at < n)
