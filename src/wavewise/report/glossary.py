"""The glossary: what each term of a report means, read once from `terms.toml`."""

import re
from functools import lru_cache
from importlib.resources import files

import msgspec


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry: its meaning, and the other forms that mean the same."""

    means: str
    also: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def glossary() -> dict[str, str]:
    """Term as reports write it -> its meaning."""
    return {term: entry.means for term, entry in _entries().items()}


@lru_cache(maxsize=1)
def forms() -> dict[str, str]:
    """Every form of a term, lower case -> the term."""
    return {form.lower(): term for term, entry in _entries().items() for form in (term, *entry.also)}


@lru_cache(maxsize=1)
def pattern() -> re.Pattern[str]:
    """Finds a form of a term in running text, the longest first, whole words only."""
    longest_first = sorted(forms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])", re.IGNORECASE)


@lru_cache(maxsize=1)
def _entries() -> dict[str, Term]:
    text = files("wavewise.report").joinpath("terms.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Term])
