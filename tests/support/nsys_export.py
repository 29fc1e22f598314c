"""Builds Nsight Systems exports for tests, table by table: as a SQLite database, and the same as Parquet tables."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from wavewise.errors import WavewiseError
from wavewise.trace import Trace, read

KERNEL = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory",
    "dynamicSharedMemory", "graphNodeId", "graphId",
)  # fmt: skip
RUNTIME = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue")
NVTX = ("start", "end", "eventType", "text", "globalTid", "textId")
GRAPHS = ("start", "end", "deviceId", "graphId", "graphExecId", "streamId", "correlationId", "globalPid")
STRINGS = {
    1: "void gemm<4>(int)",
    2: "gemm",
    3: "cudaGraphLaunch_v10000",
    4: "cudaLaunchKernel_ptsz_v7000",
    5: "step",
}

_PARQUET_TYPES: dict[str, type[pl.DataType]] = {
    "start": pl.Int64, "end": pl.Int64, "globalPid": pl.UInt64, "globalTid": pl.UInt64, "graphNodeId": pl.UInt64,
    "deviceId": pl.UInt32, "streamId": pl.UInt32, "correlationId": pl.UInt32, "eventType": pl.UInt16,
    "gridX": pl.Int32, "blockX": pl.Int32, "totalMemory": pl.UInt64,
}  # fmt: skip


def pid(process: int) -> int:
    """A global process id, as Nsight serialises it."""
    return (1 << 48) | (process << 24)


class NsysExport:
    """An export under construction, as SQLite.

    Args:
        path: of the database.
        version: EXPORT_SCHEMA_VERSION, None for an export that says nothing of itself.
        strings: the rows of StringIds.
    """

    def __init__(
        self, path: Path, version: str | None = "3.24.14", strings: dict[int, str] | None = None
    ) -> None:
        self.path = path
        self._database = sqlite3.connect(path)
        self.table("StringIds", ("id", "value"), list((STRINGS if strings is None else strings).items()))
        if version:
            self.table("META_DATA_EXPORT", ("name", "value"), [("EXPORT_SCHEMA_VERSION", version)])

    def table(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Adds rows to a table, which is made as needed."""
        self._database.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        self._database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def kernels(
        self,
        rows: Sequence[dict[str, Any]],
        table: str = "CUPTI_ACTIVITY_KIND_KERNEL",
        without: Sequence[str] = (),
    ) -> None:
        """Adds kernels, each of the usual values but for those named."""
        default = {
            "start": 1000, "end": 1500, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 11,
            "globalPid": pid(80), "demangledName": 1, "shortName": 2, "registersPerThread": 32, "gridX": 64, "gridY": 2,
            "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1, "staticSharedMemory": 64, "dynamicSharedMemory": 1024,
            "graphNodeId": None, "graphId": None,
        }  # fmt: skip
        columns = tuple(name for name in KERNEL if name not in without)
        self.table(table, columns, [tuple((default | row)[name] for name in columns) for row in rows])

    def run(self, statement: str) -> None:
        """Does to the database what `statement` says."""
        self._database.execute(statement)

    def close(self) -> Path:
        """The finished database."""
        self._database.commit()
        self._database.close()
        return self.path

    def read(self) -> list[Trace]:
        """What the database gives, and just so the same tables in Parquet.

        Raises:
            WavewiseError: what both raise.
        """
        database = self.close()
        outcome = outcome_of(database)
        assert_same(outcome, outcome_of(to_parquet(database)))
        if isinstance(outcome, WavewiseError):
            raise outcome
        return outcome


def outcome_of(path: Path) -> list[Trace] | WavewiseError:
    """The traces of an export, or why there are none."""
    try:
        return read(path)
    except WavewiseError as error:
        return error


def assert_same(one: list[Trace] | WavewiseError, other: list[Trace] | WavewiseError) -> None:
    """Both hold the same traces, column by column, or raised the same, but for where they come from."""
    if isinstance(one, WavewiseError) or isinstance(other, WavewiseError):
        assert type(one) is type(other), (one, other)
        assert str(one).partition(": ")[2] == str(other).partition(": ")[2]
        return
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        for field in fields(Trace):
            left, right = getattr(mine, field.name), getattr(theirs, field.name)
            if isinstance(left, pl.DataFrame):
                assert left.schema == right.schema, field.name
                assert left.equals(right), field.name
            elif field.name != "path":
                assert left == right, field.name


def to_parquet(database: Path) -> Path:
    """The folder with the tables of a SQLite export as Parquet, named as Nsight names it.

    Numbers get Nsight's own widths where they fit, so that unsigned and narrow columns are met; a column of several
    types, which Parquet cannot hold, becomes text.
    """
    folder = database.with_name(f"{database.stem}_pqtdir")
    folder.mkdir()
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?immutable=1", uri=True)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = connection.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
            series = [_series(name, list(column)) for name, column in zip(names, columns, strict=True)]
            pl.DataFrame(series).write_parquet(folder / f"{table}.parquet")
    return folder


def _series(name: str, values: list[Any]) -> pl.Series:
    types = {type(value) for value in values if value is not None}
    if types > {int} or types > {str}:
        return pl.Series(name, [None if value is None else str(value) for value in values], pl.String)
    if types == {int}:
        narrow = _PARQUET_TYPES.get(name, pl.Int64)
        wide = pl.Series(name, values, pl.Int64)
        if narrow == pl.UInt64:
            return wide.reinterpret(signed=False)
        as_narrow = wide.cast(narrow, strict=False)
        return as_narrow if as_narrow.null_count() == wide.null_count() else wide
    return pl.Series(name, values, pl.String if types == {str} or not types else None)
