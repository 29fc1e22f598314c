"""The launch inventory: one row per launch shape inside the clean steps of a batch size, with its occupancy."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from wavewise.decode.columns import group_ids
from wavewise.decode.intervals import IntArray
from wavewise.decode.inventory import Point
from wavewise.decode.steps import Segmentation
from wavewise.findings import KernelRow
from wavewise.hardware import GpuSpec, Launch
from wavewise.occupancy import residency, waves
from wavewise.units import NS_PER_US

_KEY = [
    "name",
    "kind",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers_per_thread",
    "shared_memory_bytes",
]


def kernel_rows(
    segmentation: Segmentation, point: Point, families: Sequence[str], family: IntArray, gpu: GpuSpec | str
) -> list[KernelRow]:
    """The rows of one operating point, largest time first. Eager operations of the steps are in it too.

    Args:
        segmentation, point: the steps.
        families, family: names, and index per operation of the device.
        gpu: the GPU, or the reason why it is not known.
    """
    operations, count = segmentation.operations, len(point.steps)
    frame = (
        operations.frame.select(*_KEY, "duration_ns", "recorded_occupancy")
        .with_columns(family=pl.Series(family), replayed=pl.Series(operations.replay >= 0))[point.owned]
        .with_columns(step=pl.Series(point.owned_ordinal))
    )
    frame = frame.with_columns(row=pl.Series(group_ids(frame, [*_KEY, "family"])))
    rows = (
        frame.group_by("row")
        .agg(
            pl.col(*_KEY, "family").first(),
            pl.col("duration_ns").median().alias("median_ns"),
            pl.col("recorded_occupancy").median().alias("recorded"),
            pl.col("replayed").mean().alias("replayed"),
        )
        .sort("row")
        .with_columns(pl.col("name").cast(pl.String))
    )
    # A shape missing from a step counts as 0 there: medians are over all clean steps.
    at = (frame["row"].to_numpy(), frame["step"].to_numpy())
    launches, total = np.zeros((rows.height, count)), np.zeros((rows.height, count))
    np.add.at(launches, at, 1)
    np.add.at(total, at, frame["duration_ns"].to_numpy())
    low, median, high = np.percentile(total, [10, 50, 90], axis=1) / NS_PER_US
    table = rows.with_columns(
        launches=np.median(launches, axis=1),
        mean_launches=launches.mean(axis=1),
        sum_us=median,
        sum_us_p10=low,
        sum_us_p90=high,
        mean_us=total.mean(axis=1) / NS_PER_US,
    )
    result = [with_occupancy(_row(row, point, families), gpu) for row in table.iter_rows(named=True)]
    return sorted(result, key=lambda row: (-row.sum_us_per_step, row.name))


def _row(row: dict[str, Any], point: Point, families: Sequence[str]) -> KernelRow:
    return KernelRow(
        name=row["name"],
        family=families[int(row["family"])],
        batch_size=point.batch_size,
        bucket=point.bucket,
        launches_per_step=row["launches"],
        median_us=row["median_ns"] / NS_PER_US,
        sum_us_per_step=row["sum_us"],
        sum_us_per_step_p10=row["sum_us_p10"],
        sum_us_per_step_p90=row["sum_us_p90"],
        mean_launches_per_step=row["mean_launches"],
        mean_us_per_step=row["mean_us"],
        kind=row["kind"],
        in_replay=row["replayed"] > 0.5,
        grid=_triple(row, "grid"),
        block=_triple(row, "block"),
        registers_per_thread=row["registers_per_thread"],
        shared_memory_bytes=row["shared_memory_bytes"],
        recorded_occupancy=row["recorded"],
    )


def with_occupancy(row: KernelRow, gpu: GpuSpec | str) -> KernelRow:
    """The row with residency, waves and coverage, or with the reason why they are unknown."""
    replace = msgspec.structs.replace
    if row.kind != "kernel":
        return replace(row, occupancy_reason=f"a {row.kind} has no CTAs")
    if isinstance(gpu, str):
        return replace(row, occupancy_reason=gpu)
    if row.grid is None or row.block is None:
        return replace(row, occupancy_reason="the launch's grid and block were not recorded")
    ctas = row.grid[0] * row.grid[1] * row.grid[2]
    coverage = min(1.0, ctas / gpu.sm_count) if gpu.sm_count and ctas else None
    launch = Launch(
        grid=row.grid,
        block=row.block,
        registers_per_thread=row.registers_per_thread,
        shared_memory_bytes=row.shared_memory_bytes,
    )
    at = residency(gpu, launch)
    row = replace(row, sm_coverage=coverage)
    if at.ctas_per_sm is None or at.ctas_per_sm < 1:
        return replace(row, occupancy_reason=at.reason or "the launch does not fit this GPU")
    row = replace(
        row,
        ctas_per_sm=at.ctas_per_sm,
        limiter=at.limiter,
        warps_per_sm=at.warps_per_sm,
        occupancy=at.occupancy,
        next_cta=at.next_cta,
    )
    if gpu.sm_count is None or ctas < 1:
        return replace(row, occupancy_reason="the GPU's SM count is unknown")
    laid = waves(ctas, gpu.sm_count, at.ctas_per_sm)
    return replace(
        row,
        waves=laid.waves,
        wave_efficiency=laid.wave_efficiency,
        tail_ctas=laid.tail_ctas,
        # Both shapes of a persistent kernel: as many CTAs as fit at once, or one for each SM.
        persistent=laid.persistent or ctas == gpu.sm_count,
    )


def _triple(row: dict[str, Any], stem: str) -> tuple[int, int, int] | None:
    values = (row[f"{stem}_x"], row[f"{stem}_y"], row[f"{stem}_z"])
    return None if None in values else values
