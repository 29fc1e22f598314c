"""The columns of a Trace's frames, with their types."""

import polars as pl

OPERATION_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.Categorical,
    "kind": pl.Enum(["kernel", "memcpy", "memset"]),
    "device": pl.Int32,
    "stream": pl.Int64,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "correlation": pl.Int64,
    "graph_id": pl.Int64,
    "grid_x": pl.Int64,
    "grid_y": pl.Int64,
    "grid_z": pl.Int64,
    "block_x": pl.Int32,
    "block_y": pl.Int32,
    "block_z": pl.Int32,
    "registers_per_thread": pl.Int32,
    "shared_memory_bytes": pl.Int32,
    "recorded_occupancy": pl.Float32,
    "recorded_blocks_per_sm": pl.Float32,
}
"""GPU operations. shared_memory_bytes is static + dynamic per CTA; recorded_occupancy is a share (0 to 1) as
the profiler wrote it, which reads 0 for kernels with over 48 KB of shared memory and is never trusted."""

REJECTED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {**OPERATION_SCHEMA, "reason": pl.String}
"""GPU records left out: `reason` is the warning code. start_ns and duration_ns may be null or absurd here."""

LAUNCH_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.Categorical,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "pid": pl.Int64,
    "tid": pl.Int64,
    "correlation": pl.Int64,
}
"""Host runtime and driver API calls (launches, copies, synchronisations), correlation null where absent."""

MARKER_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "name": pl.String,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "pid": pl.Int64,
    "tid": pl.Int64,
}
"""Host annotations (user_annotation, NVTX ranges). Their GPU-side copies are not in here."""

WHOLE_GRAPH_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "device": pl.Int32,
    "stream": pl.Int64,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "correlation": pl.Int64,
    "graph_id": pl.Int64,
}
"""Graph launches that the profiler recorded as wholes, without the operations inside them."""


def empty(schema: dict[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    """A frame of `schema` without rows."""
    return pl.DataFrame(schema=schema)
