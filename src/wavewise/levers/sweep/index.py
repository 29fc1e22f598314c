"""The full-text index of sentences (SQLite FTS5): which of them can name a lever at all."""

import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from wavewise.errors import InputError
from wavewise.levers.catalogue import Catalogue, LeverSpec


class SentenceIndex:
    """Sentences by row id; in memory, or in a file that other tools can query (table `sentence`)."""

    def __init__(self, path: Path | None = None) -> None:
        """Opens a fresh index; an existing file of that name is written anew.

        Raises:
            InputError: the file cannot be written, or SQLite lacks FTS5.
        """
        if path is not None:
            path.unlink(missing_ok=True)
        try:
            self._db = sqlite3.connect(str(path) if path is not None else ":memory:")
            self._db.execute(
                "CREATE VIRTUAL TABLE sentence USING fts5(text, document UNINDEXED, place UNINDEXED, "
                "tokenize = 'unicode61 remove_diacritics 2')"
            )
        except sqlite3.Error as error:
            raise InputError(
                f"{path or 'the index'}: SQLite cannot make a full-text index ({error})"
            ) from error

    def add(self, rows: Iterable[tuple[int, str, str, str]]) -> None:
        """Adds (id, text, document, place)."""
        self._db.executemany("INSERT INTO sentence(rowid, text, document, place) VALUES (?, ?, ?, ?)", rows)
        self._db.commit()

    def naming(self, catalogue: Catalogue) -> set[int]:
        """Ids of the sentences that may name a lever of the catalogue."""
        found: set[int] = set()
        for lever in catalogue:
            query = " OR ".join(sorted(_queries(lever)))
            found.update(
                row[0]
                for row in self._db.execute("SELECT rowid FROM sentence WHERE sentence MATCH ?", (query,))
            )
        return found

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


def _queries(lever: LeverSpec) -> set[str]:
    """FTS5 phrases for a lever's names: as words, and run together; the last word as a prefix."""
    queries: set[str] = set()
    for name in (*lever.names, *lever.acronyms, lever.id):
        words = re.findall(r"[^\W_]+", name)
        if words:
            queries.add(f'"{" ".join(words)}" *')
            queries.add(f'"{"".join(words)}" *')
    return queries
