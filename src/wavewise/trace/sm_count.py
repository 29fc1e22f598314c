"""The number of SMs of a GPU that its trace does not describe."""

import numpy as np
import polars as pl

from wavewise.trace.model import DeviceProperties

_ENOUGH_BLOCKS = 0.05  # Kineto prints six decimals: below this they do not tell 132 SMs from 133
_AGREEMENT = 0.99


def infer_sm_count(operations: pl.DataFrame, device: int) -> int | None:
    """SMs of `device`, from what Kineto calls "blocks per SM": the grid's CTAs over the number of SMs.

    None unless practically all kernels agree on one number.
    """
    counts = (
        operations.lazy()
        .filter(pl.col("device") == device, pl.col("recorded_blocks_per_sm") >= _ENOUGH_BLOCKS)
        .select(
            ratio=pl.col("grid_x").cast(pl.Float64) * pl.col("grid_y") * pl.col("grid_z")
            / pl.col("recorded_blocks_per_sm").cast(pl.Float64)
        )
        .filter(pl.col("ratio").is_finite())
        .collect()["ratio"]
    )  # fmt: skip
    if counts.is_empty():
        return None
    count = round(float(np.median(counts.to_numpy())))
    agreeing = (counts - count).abs() <= 0.002 * count
    return count if count > 0 and float(agreeing.sum()) >= _AGREEMENT * len(counts) else None


def describe_devices(
    devices: tuple[DeviceProperties, ...], operations: pl.DataFrame
) -> tuple[tuple[DeviceProperties, ...], int]:
    """`devices`, and what can be inferred of those in use that have no description; how many were inferred.

    Where there is exactly one description and one device in use, it is its description whatever its id.
    """
    used = operations["device"].unique().sort().to_list()
    if len(used) == len(devices) == 1:
        return devices, 0
    known = {entry.id for entry in devices}
    inferred = [
        DeviceProperties(id=device, sm_count=count)
        for device in used
        if device not in known and (count := infer_sm_count(operations, device)) is not None
    ]
    return devices + tuple(inferred), len(inferred)
