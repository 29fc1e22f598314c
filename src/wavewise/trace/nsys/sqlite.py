"""The tables of a SQLite export (`nsys export --type sqlite`)."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from urllib.parse import quote

import polars as pl

from wavewise.errors import InputError
from wavewise.trace.nsys.forms import are_an_export
from wavewise.trace.nsys.tables import Among, Columns, Tables

_BATCH_ROWS = 20_000  # rows held as Python objects at a time, some ten times larger than as columns
_BUSY_S = 2.0


@contextmanager
def sqlite_tables(path: str) -> Generator[Tables]:
    """The tables of the export at `path`, open as long as the context is.

    Raises:
        InputError: here or from any read within: the database cannot be read or is no Nsight Systems export.
    """
    # Without a journal beside it the file is complete, and `immutable` reads it even where no lock can be had and
    # nothing may be written. With one the rest lies there, and only SQLite's own locking gives a sound reading.
    unfinished = [end for end in ("-wal", "-journal") if _holds_data(path + end)]
    uri = f"file:{quote(path)}?mode=ro" + ("" if unfinished else "&immutable=1")
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            connection.text_factory = _text
            yield SqliteTables(connection, path)
    except sqlite3.DatabaseError as error:
        advice = "export it again"
        if unfinished:
            advice = f"{os.path.basename(path)}{unfinished[0]} beside it says that it is still being written"
        raise InputError(f"{path}: the SQLite database cannot be read ({error}); {advice}") from error


class SqliteTables(Tables):
    """The tables of an open database."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        )
        self._connection = connection
        if not are_an_export(self.names):
            raise InputError(f"{path}: not a trace (a SQLite database, but no Nsight Systems export)")

    def _has_rows(self, name: str) -> bool:
        return self._connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() is not None

    def _read(self, name: str, columns: Columns, only: Among | None) -> pl.DataFrame:
        present = {row[1] for row in self._connection.execute(f'PRAGMA table_info("{name}")')}
        select = ", ".join(
            _typed(column, kind) if column in present else "NULL" for column, kind in columns.items()
        )
        where = ""
        if only and only.column in present:
            where = f' WHERE "{only.column}" IN ({", ".join(map(str, only.values))})'
        cursor = self._connection.execute(f'SELECT {select} FROM "{name}"{where}')
        frames = [pl.DataFrame(schema=columns)]
        while rows := cursor.fetchmany(_BATCH_ROWS):
            values = zip(columns.items(), zip(*rows, strict=True), strict=True)
            frames.append(pl.DataFrame([pl.Series(column, data, kind) for (column, kind), data in values]))
        return pl.concat(frames)


def _typed(column: str, kind: type[pl.DataType]) -> str:
    # SQLite columns hold what they like. Anything but an integer (or text) of its type is read as null.
    wanted = "'integer'" if kind is pl.Int64 else "'text'"
    return f'CASE typeof("{column}") WHEN {wanted} THEN "{column}" END'


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _holds_data(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False
