"""The tables of a Parquet export (`nsys export --type parquetdir`): a folder with one file for each table."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from wavewise.errors import InputError
from wavewise.trace.nsys.forms import are_an_export, tables_in
from wavewise.trace.nsys.tables import Among, Columns, Tables

_BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


@contextmanager
def parquet_tables(path: str) -> Generator[Tables]:
    """The tables of the export in the folder `path`.

    Raises:
        InputError: here or from any read within: a table cannot be read, or the folder is no export.
    """
    try:
        found = tables_in(Path(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not are_an_export(found):
        raise InputError(f"{path}: not a trace (a folder, but no Nsight Systems export)")
    yield ParquetTables(found)


class ParquetTables(Tables):
    """The tables of a folder."""

    def __init__(self, files: dict[str, Path]) -> None:
        super().__init__(files)
        self._files = files

    def _has_rows(self, name: str) -> bool:
        with self._rows(name) as rows:
            return rows.select(pl.len()).collect().item() > 0

    def _read(self, name: str, columns: Columns, only: Among | None) -> pl.DataFrame:
        with self._rows(name) as rows:
            present = rows.collect_schema()
            if only and only.column in present:
                rows = rows.filter(_typed(only.column, present, pl.Int64).is_in(only.values))
            # Added to the rows, not selected from nothing: a table with none of the columns still has its rows.
            typed = [_typed(column, present, kind) for column, kind in columns.items()]
            return rows.with_columns(typed).select(*columns).collect()

    @contextmanager
    def _rows(self, name: str) -> Generator[pl.LazyFrame]:
        file = self._files[name]
        try:
            with _no_panic_messages():
                yield pl.scan_parquet(file, glob=False, hive_partitioning=False)
        except _BROKEN as error:
            fault = str(error).strip().partition("\n")[0]
            if isinstance(error, pl.exceptions.PanicException):  # an assertion of polars, in its own terms
                fault = "its index does not fit its contents"
            raise InputError(f"{file}: the Parquet file cannot be read ({fault}); export it again") from error


@contextmanager
def _no_panic_messages() -> Generator[None]:
    """Keeps what polars says of damage to one exception.

    On some damage its own assertions fail. That is an exception, too, but its message has been written by then: to
    file descriptor 2, past `sys.stderr`.
    """
    if sys.__stderr__ is None:  # a process that was started without one: 2 is some other file, in use
        yield
        return
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(nowhere)
        os.close(stderr)


def _typed(column: str, present: pl.Schema, kind: type[pl.DataType]) -> pl.Expr:
    found, value = present.get(column), pl.col(column)
    if kind is pl.Int64 and found == pl.UInt64:
        # Global ids use all 64 bits; SQLite holds the same bits as a signed number.
        value = value.reinterpret(signed=True)
    elif kind is pl.Int64 and found is not None and found.is_integer():
        value = value.cast(pl.Int64, strict=False)
    elif kind is pl.String and isinstance(found, (pl.String, pl.Categorical, pl.Enum)):
        value = value.cast(pl.String)
    else:
        value = pl.lit(None, kind)
    return value.alias(column)
