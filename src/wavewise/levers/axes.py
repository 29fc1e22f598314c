"""Which axis of an attention grid counts the splits: read from how grids change with the batch size."""

from dataclasses import dataclass

from wavewise.findings import KernelRow
from wavewise.levers.view import View

_NAMES = "xyz"


@dataclass(frozen=True)
class SplitAxis:
    """The split axis of one launch.

    Attributes:
        splits: present count.
        units: CTAs with one split.
        why: how the axis was recognised.
    """

    splits: int
    units: int
    why: str


def split_axis(kernel: KernelRow, view: View) -> SplitAxis | None:
    """The split axis of `kernel`, or None where its grid does not tell.

    The axis that equals the batch size (or bucket) counts requests. Of the others, one that changes between
    batch sizes counts splits; where only one batch size was recorded, or none changes, a last axis (z) above
    1 does: split-KV kernels of FlashAttention, FlashInfer, FlashMLA and SGLang put it there.
    """
    if kernel.grid is None:
        return None
    sizes = _sizes(kernel, view)
    requests = {
        a for a in range(3) if all(grid[a] == tokens for tokens, grid in sizes) and kernel.grid[a] > 1
    }
    free = [a for a in range(3) if a not in requests]
    changing = [a for a in free if len({grid[a] for _, grid in sizes}) > 1]
    if len(changing) == 1 and requests:
        axis, why = changing[0], f"grid {_NAMES[changing[0]]} changes with the batch and is not the batch"
    elif not changing and 2 in free and kernel.grid[2] > 1:
        axis, why = 2, "taken from grid z, where split-KV kernels put it"
    else:
        return None
    splits = kernel.grid[axis]
    total = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    return SplitAxis(splits, total // splits, why)


def _sizes(kernel: KernelRow, view: View) -> list[tuple[int | None, tuple[int, int, int]]]:
    """(tokens, grid) of this kernel at every comparable batch size where it runs with one grid."""
    found: list[tuple[int | None, tuple[int, int, int]]] = []
    assert kernel.grid is not None
    for other in view.others:
        grids = {k.grid for k in other.kernels if k.name == kernel.name and k.grid is not None}
        if other.batch_size == view.batch_size:
            found.append((view.tokens, kernel.grid))
        elif len(grids) == 1:
            found.append((other.tokens, grids.pop()))
    return found
