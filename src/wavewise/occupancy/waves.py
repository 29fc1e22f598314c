"""Waves: how often a grid fills the GPU, as whole numbers, with the tail that whole numbers leave."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Waves:
    """A grid laid out on the GPU's slots.

    Attributes:
        ctas: of the whole grid.
        slots: CTAs that are resident at once: SMs x CTAs per SM.
        waves: ceil(ctas / slots).
        wave_efficiency: ctas / (waves x slots): the share of slot-waves that hold a CTA.
        tail_ctas: CTAs in the last wave if it is not full, else 0.
        sm_coverage: min(1, ctas / SMs).
    """

    ctas: int
    slots: int
    waves: int
    wave_efficiency: float
    tail_ctas: int
    sm_coverage: float

    @property
    def persistent(self) -> bool:
        """Whether the grid is exactly the slots: the shape of a persistent kernel, one wave by design."""
        return self.ctas == self.slots


@dataclass(frozen=True, slots=True)
class WaveTable:
    """`Waves` for an array of grids; every array has the shape of the grids, fields as in Waves."""

    ctas: NDArray[np.int64]
    slots: NDArray[np.int64]
    waves: NDArray[np.int64]
    wave_efficiency: NDArray[np.float64]
    tail_ctas: NDArray[np.int64]
    sm_coverage: NDArray[np.float64]


def waves(ctas: int, sm_count: int, ctas_per_sm: int, cluster_size: int | None = None) -> Waves:
    """Waves of a grid of `ctas` CTAs.

    Args:
        ctas: CTAs of the grid, at least 1.
        sm_count: SMs of the GPU.
        ctas_per_sm: residency, at least 1.
        cluster_size: CTAs per cluster; the slots are then cut to whole clusters, a bound from above.

    Raises:
        ValueError: an argument below 1, or a cluster larger than the GPU holds.
    """
    table = wave_table(ctas, sm_count, ctas_per_sm, cluster_size)
    return Waves(
        ctas=ctas,
        slots=int(table.slots),
        waves=int(table.waves),
        wave_efficiency=float(table.wave_efficiency),
        tail_ctas=int(table.tail_ctas),
        sm_coverage=float(table.sm_coverage),
    )


def wave_table(
    ctas: ArrayLike, sm_count: int, ctas_per_sm: ArrayLike, cluster_size: int | None = None
) -> WaveTable:
    """`waves` for arrays: grids over batch sizes x splits, or residencies of a sweep (shapes broadcast).

    Raises:
        ValueError: an argument below 1, or a cluster larger than the GPU holds.
    """
    grid, resident = np.broadcast_arrays(
        np.asarray(ctas, dtype=np.int64), np.asarray(ctas_per_sm, dtype=np.int64)
    )
    cluster = cluster_size or 1
    if sm_count < 1 or cluster < 1 or (grid < 1).any() or (resident < 1).any():
        raise ValueError("waves need at least 1 CTA, 1 SM and 1 CTA per SM")
    slots = sm_count * resident // cluster * cluster
    if (slots < 1).any():
        raise ValueError(
            f"a cluster of {cluster} CTAs is larger than the GPU's {sm_count * int(resident.min())} slots"
        )
    count = -(-grid // slots)
    return WaveTable(
        ctas=grid,
        slots=slots,
        waves=count,
        wave_efficiency=grid / (count * slots),
        tail_ctas=grid % slots,
        sm_coverage=np.minimum(1.0, grid / sm_count),
    )
