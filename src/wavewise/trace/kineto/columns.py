"""The rows of one document as the frames of a Trace."""

import numpy as np
import numpy.typing as npt
import polars as pl

from wavewise.trace.kineto.events import KIND_NAMES, LAUNCH, MARKER, MISSING, Indices, Ints, Rows, Tables
from wavewise.trace.model import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    empty,
)
from wavewise.trace.notes import Notes
from wavewise.trace.plausible import MALFORMED, REASONS, GpuRecords, judge

_SHAPE_COLUMNS = [name for name in OPERATION_SCHEMA if name == "device" or name == "stream"] + [
    "graph_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "recorded_occupancy", "recorded_blocks_per_sm",
]  # fmt: skip


class Frames:
    """The four frames of a Trace.

    Takes the parts it is given out of their list, so that their memory is free before the frames take theirs.

    Attributes:
        operations, rejected, launches, markers: as in `Trace`.
    """

    def __init__(self, parts: list[Rows], tables: Tables, notes: Notes) -> None:
        key, shape, start, duration, correlation, malformed = _joined(parts)
        kinds = np.fromiter((k[0] for k in tables.keys.values), np.int8, len(tables.keys.values))
        kind = kinds[key]
        host = np.flatnonzero(kind >= LAUNCH)
        sound = (start[host] != MISSING) & (duration[host] >= 0)
        notes.add("incomplete_host_record", int(len(host) - np.count_nonzero(sound)))
        host = host[sound]
        gpu = np.flatnonzero(kind < LAUNCH)
        bounds = (int(start[host].min()), int((start[host] + duration[host]).max())) if len(host) else ()
        lanes = _lanes(tables)[shape[gpu]]
        reason = judge(GpuRecords(lanes, start[gpu], duration[gpu], correlation[gpu]), *bounds)
        reason[malformed[gpu]] = MALFORMED
        for number, code in enumerate(REASONS, 1):
            if number != MALFORMED:  # counted where it was met
                notes.add(code, int(np.count_nonzero(reason == number)))
        names = pl.Series("name", [k[1] for k in tables.keys.values], pl.String)
        columns = (key, shape, start, duration, correlation)
        self.operations = _operations(gpu[reason == 0], columns, names, kind, tables)
        bad = gpu[reason != 0]
        self.rejected = (
            _operations(bad, columns, names, kind, tables, reason[reason != 0])
            if len(bad)
            else empty(REJECTED_SCHEMA)
        )
        self.launches = _host(host[kind[host] == LAUNCH], columns, names, tables, LAUNCH_SCHEMA)
        self.markers = _host(host[kind[host] == MARKER], columns, names, tables, MARKER_SCHEMA)


Columns = tuple[Indices, Indices, Ints, Ints, Ints]


def _joined(parts: list[Rows]) -> tuple[Indices, Indices, Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    def join(name: str) -> npt.NDArray[np.generic]:
        return np.concatenate([getattr(part, name) for part in parts])

    malformed = np.zeros(sum(map(len, parts)), np.bool_)
    offset = 0
    for part in parts:
        malformed[[offset + row for row in part.malformed]] = True
        offset += len(part)
    joined = (
        join("key"), join("shape"), join("start"), join("duration"), join("correlation"), malformed,
    )  # fmt: skip
    parts.clear()
    return joined  # type: ignore[return-value]


def _lanes(tables: Tables) -> Ints:
    """One number per device and stream, by shape."""
    lanes: dict[tuple[int, int], int] = {}
    return np.array(
        [lanes.setdefault((shape[0], shape[1]), len(lanes)) for shape in tables.shapes.values], np.int64
    )


def _order(start: Ints, second: Ints) -> npt.NDArray[np.intp]:
    return np.lexsort((second, start))


def _nullable(name: str, values: Ints) -> pl.Series:
    series = pl.Series(name, values)
    absent = values == MISSING
    return series.set(pl.Series(absent), None) if absent.any() else series


def _operations(
    rows: npt.NDArray[np.intp], columns: Columns, names: pl.Series, kind: npt.NDArray[np.int8], tables: Tables,
    reason: npt.NDArray[np.int8] | None = None,
) -> pl.DataFrame:  # fmt: skip
    key, shape, start, duration, correlation = columns
    order = _order(start[rows], correlation[rows])
    rows = rows[order]
    shapes = pl.DataFrame(
        tables.shapes.values,
        schema={name: OPERATION_SCHEMA[name] for name in _SHAPE_COLUMNS},
        orient="row",
    )
    frame = shapes[pl.Series(shape[rows])]
    kinds = pl.Series(KIND_NAMES, dtype=OPERATION_SCHEMA["kind"])
    parts = {
        "name": names.cast(pl.Categorical)[pl.Series(key[rows])],
        "kind": kinds[pl.Series(kind[rows].astype(np.int32))],
        "start_ns": _nullable("start_ns", start[rows]),
        "duration_ns": _nullable("duration_ns", duration[rows]),
        "correlation": _nullable("correlation", correlation[rows]),
    }
    frame = frame.with_columns(**parts).select(list(OPERATION_SCHEMA))
    if reason is not None:
        frame = frame.with_columns(
            reason=pl.Series([REASONS[number - 1] for number in reason[order].tolist()], dtype=pl.String)
        )
    return frame


def _host(
    rows: npt.NDArray[np.intp], columns: Columns, names: pl.Series, tables: Tables,
    schema: dict[str, pl.DataType | type[pl.DataType]],
) -> pl.DataFrame:  # fmt: skip
    key, _, start, duration, correlation = columns
    markers = "correlation" not in schema
    rows = rows[_order(start[rows], -duration[rows] if markers else correlation[rows])]
    keys = pl.DataFrame(
        {
            "name": names.cast(schema["name"]),
            "pid": pl.Series([k[2] for k in tables.keys.values], dtype=pl.Int64),
            "tid": pl.Series([k[3] for k in tables.keys.values], dtype=pl.Int64),
        }
    )
    frame = keys[pl.Series(key[rows])].with_columns(
        start_ns=pl.Series(start[rows]), duration_ns=pl.Series(duration[rows])
    )
    if not markers:
        frame = frame.with_columns(_nullable("correlation", correlation[rows]))
    return frame.select(list(schema))
