"""What an Nsight Systems export is to its reader, whatever holds it: named tables of integers and texts.

An export has the same tables and columns in every format. They are made lazily: what a recording, or a version of
Nsight, had nothing for is not there. So a table is asked for the columns of interest, and whatever it lacks is null.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

Columns = Mapping[str, type[pl.Int64] | type[pl.String]]
"""The columns asked for, by name. Nsight's numbers of interest are all integers."""


class Among(NamedTuple):
    """A condition on rows: `column` holds one of `values`."""

    column: str
    values: tuple[int, ...]


class Tables(ABC):
    """The tables of one export."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)

    def read(self, table: str, columns: Columns, only: Among | None = None) -> pl.DataFrame:
        """The named columns of `table`, or of the newest `_V2`, `_V3` ... of it that holds rows.

        Args:
            table: the name without a version.
            columns: what to read; a column that is missing, and a value of another type, are null.
            only: the rows to read; all of them where the table lacks the column that it asks for.

        Returns:
            A frame of exactly `columns`; no rows where there is no such table.

        Raises:
            InputError: the table is damaged.
        """
        versions = (name for name in self.names if re.fullmatch(rf"{table}(_V\d+)?", name))
        for name in sorted(versions, key=_version, reverse=True):
            if self._has_rows(name):
                return self._read(name, columns, only)
        return pl.DataFrame(schema=columns)

    @abstractmethod
    def _has_rows(self, name: str) -> bool: ...

    @abstractmethod
    def _read(self, name: str, columns: Columns, only: Among | None) -> pl.DataFrame: ...


def integers(*names: str) -> dict[str, type[pl.Int64]]:
    """Columns of integers."""
    return dict.fromkeys(names, pl.Int64)


def texts(*names: str) -> dict[str, type[pl.String]]:
    """Columns of text."""
    return dict.fromkeys(names, pl.String)


def _version(table: str) -> int:
    number = re.search(r"_V(\d+)$", table)
    return int(number[1]) if number else 1
