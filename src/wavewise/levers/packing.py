"""Grids on whole waves: how much of a kernel's time another number of splits would leave.

The wave arithmetic itself is `wavewise.occupancy.waves`, shared with the occupancy section and the planner.
"""

from dataclasses import dataclass

import numpy as np

from wavewise.findings import KernelRow
from wavewise.occupancy.waves import wave_table


@dataclass(frozen=True)
class Packing:
    """The best split count found, and the share of the kernel's time that it leaves."""

    splits: int
    ctas: int
    waves: int
    now_waves: int
    ratio: float


def ctas(kernel: KernelRow) -> int | None:
    """CTAs of the launch."""
    if kernel.grid is None:
        return None
    return kernel.grid[0] * kernel.grid[1] * kernel.grid[2]


def best_split(
    units: int,
    sm_count: int,
    ctas_per_sm: int,
    *,
    now: int = 1,
    largest: int = 16,
    tiles: int | None = None,
    combine: float = 0.0,
) -> Packing:
    """The split count with the least predicted time.

    A kernel of `units` independent units of work, each cut into s splits, runs ceil(units * s / slots) whole
    waves of CTAs that each do 1/s of a unit's work: T(s) = ceil(units * s / slots) / s. Where a unit consists
    of `tiles` tiles, a split walks whole ones: W(s) = ceil(units * s / slots) * ceil(tiles / s). With both
    known the *worse* of the two ratios to the present count stands, so that neither model flatters.

    Args:
        units: CTAs with one split.
        sm_count: SMs of the GPU; slots = sm_count * ctas_per_sm.
        ctas_per_sm: residency.
        now: the present split count.
        largest: largest count to consider; the present one is always considered.
        tiles: tiles per unit; no split is left without one.
        combine: time of the combine over the kernel's; it grows with the splits, by s / now - 1, and counts.

    Returns:
        The best count with its ratio (the combine left out), the present one (1.0) where nothing is better.
        Ties go to the present count, then to fewer splits.
    """
    splits = np.array(sorted({now, *range(1, min(largest, tiles or largest) + 1)}), dtype=np.int64)
    count = wave_table(units * splits, sm_count, ctas_per_sm).waves
    at = int(np.flatnonzero(splits == now)[0])
    ratio = (count / splits) / (count[at] / now)
    if tiles is not None:
        walked = count * -(-tiles // splits)
        ratio = np.maximum(ratio, walked / walked[at])
    cost = ratio + combine * np.maximum(splits / now - 1.0, 0.0)
    order = np.lexsort((splits, splits != now, cost.round(12)))
    best = int(order[0])
    return Packing(
        splits=int(splits[best]),
        ctas=int(units * splits[best]),
        waves=int(count[best]),
        now_waves=int(count[at]),
        ratio=float(ratio[best]),
    )
