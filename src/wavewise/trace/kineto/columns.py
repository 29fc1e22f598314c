"""The rows of one document as the frames of a Trace.

A trace of gigabytes leaves hundreds of megabytes of rows, and its frames take more. So that the two never lie in
memory side by side, rows become frames a column at a time, and every step gives up what it has used.
"""

from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wavewise.trace.kineto.events import COLUMNS, KIND_NAMES, LAUNCH, MARKER, MISSING, Ints, Rows, Tables
from wavewise.trace.notes import Notes
from wavewise.trace.plausible import MALFORMED, REASONS, GpuRecords, judge
from wavewise.trace.schema import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    empty,
)

_SHAPE_COLUMNS = [name for name in OPERATION_SCHEMA if name == "device" or name == "stream"] + [
    "graph_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
    "shared_memory_bytes", "recorded_occupancy", "recorded_blocks_per_sm",
]  # fmt: skip

Positions = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


class Frames:
    """The four frames of a Trace.

    Takes the parts it is given out of their list, so that their memory is free before the frames take theirs.

    Attributes:
        operations, rejected, launches, markers: as in `Trace`.
    """

    def __init__(self, parts: list[Rows], tables: Tables, notes: Notes) -> None:
        kinds = np.fromiter((key[0] for key in tables.keys.values), np.int8, len(tables.keys.values))
        names = pl.Series("name", [key[1] for key in tables.keys.values], pl.String)
        malformed = _malformed(parts)
        records = _Records.joined(parts)
        on_host = kinds[records["key"]] >= LAUNCH
        malformed = malformed[~on_host]
        gpu, host = records.parted(on_host)
        sound = (host["start"] != MISSING) & (host["duration"] >= 0)
        notes.add("incomplete_host_record", len(sound) - int(np.count_nonzero(sound)))
        if not sound.all():
            host.keep(np.flatnonzero(sound))
        bounds = (
            (int(host["start"].min()), int((host["start"] + host["duration"]).max())) if len(host) else ()
        )
        reason = _reasons(gpu, tables, bounds)
        reason[malformed] = MALFORMED
        for number, code in enumerate(REASONS, 1):
            if number != MALFORMED:  # counted where it was met
                notes.add(code, int(np.count_nonzero(reason == number)))
        self.rejected = _rejected(gpu, reason, names, kinds, tables)
        if len(self.rejected):
            gpu.keep(np.flatnonzero(reason == 0))
        del reason, sound, on_host, malformed
        launches, markers = host.parted(kinds[host["key"]] == MARKER)
        self.launches = _launches(launches, names, tables)
        self.markers = _markers(markers, names, tables)
        self.operations = _operations(gpu, names, kinds, tables)


class _Records:
    """Whole columns, taken apart as they are used: what is moved out of them leaves nothing behind."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self._columns = columns

    @classmethod
    def joined(cls, parts: list[Rows]) -> "_Records":
        """The rows of all `parts`, which is empty afterwards."""
        count = sum(map(len, parts))
        pieces = {name: [getattr(part, name) for part in parts] for name in COLUMNS}
        parts.clear()
        return cls(
            {
                name: np.concatenate(pieces.pop(name), out=_pages(count, dtype))
                for name, dtype in COLUMNS.items()
            }
        )

    def __len__(self) -> int:
        return len(self._columns["key"])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def pop(self, name: str) -> npt.NDArray[Any]:
        """A column, for good."""
        return self._columns.pop(name)

    def some(self, rows: Positions) -> "_Records":
        """A copy of some rows."""
        return _Records({name: column[rows] for name, column in self._columns.items()})

    def keep(self, rows: Positions) -> None:
        """Leaves these rows, in this order."""
        for name in self._columns:
            self._columns[name] = _taken(self._columns[name], rows)

    def parted(self, mask: Mask) -> tuple["_Records", "_Records"]:
        """The rows without and those with a set `mask`; nothing stays here."""
        rows = np.flatnonzero(~mask), np.flatnonzero(mask)
        sides: tuple[dict[str, npt.NDArray[Any]], ...] = {}, {}
        for name in COLUMNS:
            column = self._columns.pop(name)
            for side, own in zip(sides, rows, strict=True):
                side[name] = _taken(column, own)
        return _Records(sides[0]), _Records(sides[1])


def _taken(column: npt.NDArray[Any], rows: Positions) -> npt.NDArray[Any]:
    return np.take(
        column, rows, out=_pages(len(rows), column.dtype), mode="clip"
    )  # "raise" would buffer `out`


def _pages(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array on pages of its own, which go back to the system with it.

    The heap would keep them: glibc serves these sizes from it once it has seen one freed (mallopt(3),
    M_MMAP_THRESHOLD), and the frames take their memory elsewhere.
    """
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(mmap(-1, size), dtype) if size else np.empty(0, dtype)


def _malformed(parts: list[Rows]) -> Mask:
    malformed = np.zeros(sum(map(len, parts)), np.bool_)
    offset = 0
    for part in parts:
        malformed[[offset + row for row in part.malformed]] = True
        offset += len(part)
    return malformed


def _reasons(gpu: _Records, tables: Tables, bounds: tuple[int, int] | tuple[()]) -> npt.NDArray[np.int8]:
    """Why a record cannot be true, by number; `bounds` are those of the host's records, where there are any."""
    lanes: dict[tuple[int, int], int] = {}  # one number per device and stream
    lane = np.array(
        [lanes.setdefault((shape[0], shape[1]), len(lanes)) for shape in tables.shapes.values], np.int64
    )
    return judge(GpuRecords(lane[gpu["shape"]], gpu["start"], gpu["duration"], gpu["correlation"]), *bounds)


def _rejected(
    gpu: _Records, reason: npt.NDArray[np.int8], names: pl.Series, kinds: npt.NDArray[np.int8], tables: Tables
) -> pl.DataFrame:
    rows = np.flatnonzero(reason)
    if not len(rows):
        return empty(REJECTED_SCHEMA)
    rows = rows[_order(gpu["start"][rows], gpu["correlation"][rows])]
    codes = pl.Series([REASONS[number - 1] for number in reason[rows].tolist()], dtype=pl.String)
    return _operations(gpu.some(rows), names, kinds, tables).with_columns(reason=codes)


def _operations(
    records: _Records, names: pl.Series, kinds: npt.NDArray[np.int8], tables: Tables
) -> pl.DataFrame:
    records.keep(_order(records["start"], records["correlation"]))
    key = records.pop("key")
    columns = {
        "name": names.cast(pl.Categorical)[pl.Series(key)],
        "kind": pl.Series(KIND_NAMES, dtype=OPERATION_SCHEMA["kind"])[pl.Series(kinds[key].astype(np.int32))],
        "start_ns": _nullable(records.pop("start")),
        "duration_ns": _nullable(records.pop("duration")),
        "correlation": _nullable(records.pop("correlation")),
    }
    shapes = pl.DataFrame(
        tables.shapes.values,
        schema={name: OPERATION_SCHEMA[name] for name in _SHAPE_COLUMNS},
        orient="row",
    )
    return shapes[pl.Series(records.pop("shape"))].with_columns(**columns).select(list(OPERATION_SCHEMA))


def _launches(records: _Records, names: pl.Series, tables: Tables) -> pl.DataFrame:
    records.keep(_order(records["start"], records["correlation"]))
    columns = _on_host(records, names.cast(pl.Categorical), tables)
    return pl.DataFrame(
        columns | {"correlation": _nullable(records.pop("correlation"))}, schema=LAUNCH_SCHEMA
    )


def _markers(records: _Records, names: pl.Series, tables: Tables) -> pl.DataFrame:
    records.keep(_order(records["start"], -records["duration"]))
    return pl.DataFrame(_on_host(records, names, tables), schema=MARKER_SCHEMA)


def _on_host(records: _Records, names: pl.Series, tables: Tables) -> dict[str, pl.Series]:
    """What launches and markers have in common."""
    key = pl.Series(records.pop("key"))
    pids, tids = (pl.Series([k[at] for k in tables.keys.values], dtype=pl.Int64) for at in (2, 3))
    return {
        "name": names[key],
        "start_ns": pl.Series(records.pop("start")),
        "duration_ns": pl.Series(records.pop("duration")),
        "pid": pids[key],
        "tid": tids[key],
    }


def _order(start: Ints, second: Ints) -> Positions:
    return np.lexsort((second, start))


def _nullable(values: Ints) -> pl.Series:
    series = pl.Series(values)
    absent = values == MISSING
    return series.set(pl.Series(absent), None) if absent.any() else series
