"""The launch inventory: one row per launch shape inside the clean steps of a batch size, with its occupancy."""

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

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
    per_step = frame.group_by(*_KEY, "family", "step", maintain_order=True).agg(
        pl.len().alias("launches"), pl.col("duration_ns").sum().alias("sum_ns")
    )
    rows = (
        per_step.group_by(*_KEY, "family", maintain_order=True)
        .agg("launches", "sum_ns")
        .join(
            frame.group_by(*_KEY, "family", maintain_order=True).agg(
                pl.col("duration_ns").median().alias("median_ns"),
                pl.col("recorded_occupancy").median().alias("recorded"),
                pl.col("replayed").mean().alias("replayed"),
            ),
            on=[*_KEY, "family"],
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(pl.col("name").cast(pl.String))
    )
    result = [_row(row, count, point, families, gpu) for row in rows.iter_rows(named=True)]
    return sorted(result, key=lambda row: (-row.sum_us_per_step, row.name))


def _row(
    row: dict[str, object], count: int, point: Point, families: Sequence[str], gpu: GpuSpec | str
) -> KernelRow:
    # A shape missing from a step counts as 0 there: medians are over all clean steps.
    launches = _padded(row["launches"], count)
    total = _padded(row["sum_ns"], count)
    low, median, high = np.percentile(total, [10, 50, 90]) / NS_PER_US
    recorded = row["recorded"]
    kernel = KernelRow(
        name=str(row["name"]),
        family=families[_int(row["family"])],
        batch_size=point.batch_size,
        bucket=point.bucket,
        launches_per_step=float(np.median(launches)),
        median_us=_float(row["median_ns"]) / NS_PER_US,
        sum_us_per_step=float(median),
        sum_us_per_step_p10=float(low),
        sum_us_per_step_p90=float(high),
        mean_launches_per_step=float(launches.mean()),
        mean_us_per_step=float(total.mean()) / NS_PER_US,
        kind=str(row["kind"]),
        in_replay=_float(row["replayed"]) > 0.5,
        grid=_triple(row, "grid"),
        block=_triple(row, "block"),
        registers_per_thread=_optional_int(row["registers_per_thread"]),
        shared_memory_bytes=_optional_int(row["shared_memory_bytes"]),
        recorded_occupancy=None if recorded is None else _float(recorded),
    )
    return with_occupancy(kernel, gpu)


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


def _padded(values: object, count: int) -> np.ndarray:
    present = np.asarray(values, dtype=float)
    return np.concatenate([present, np.zeros(count - len(present))])


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _float(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _optional_int(value: object) -> int | None:
    return None if value is None else _int(value)


def _triple(row: dict[str, object], stem: str) -> tuple[int, int, int] | None:
    values = [row[f"{stem}_{axis}"] for axis in "xyz"]
    if any(value is None for value in values):
        return None
    x, y, z = (_int(value) for value in values)
    return x, y, z
