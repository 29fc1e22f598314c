"""The catalogue of levers: TOML in, frozen records out, and the names people use for them."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec

from wavewise.errors import InputError, UsageError

_SEPARATOR = r"[\s\-_]*"
_RISKS = ("low", "medium", "high")
_ACTS_ON = ("gpu", "host", "step")


@dataclass(frozen=True, kw_only=True)
class LeverSpec:
    """One lever of the catalogue.

    Attributes:
        acts_on: "gpu" (its families), "host" (time between replays) or "step" (the whole step).
        evaluator: name in `wavewise.levers.evaluators`; None for a lever known by name only.
        names: phrases, case ignored; acronyms: as written, an optional number may follow.
        parameters: figures of the evaluator.
    """

    id: str
    title: str
    families: tuple[str, ...]
    risk: str
    risk_reason: str = ""
    acts_on: str = "gpu"
    evaluator: str | None = None
    names: tuple[str, ...] = ()
    acronyms: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    source: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: cast("dict[str, Any]", {}))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds a mention of this lever in prose."""
        phrases = [*self.names, self.id.replace("-", " ")]
        parts = [f"(?i:{_phrase(name)})" for name in sorted(phrases, key=len, reverse=True)]
        parts += [rf"{re.escape(word)}-?\d{{0,3}}" for word in self.acronyms]
        return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(parts)})(?![A-Za-z0-9_])")

    def number(self, name: str) -> float:
        """A figure of the evaluator.

        Raises:
            InputError: the catalogue lacks it or it is no number.
        """
        value = self.parameters.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"lever catalogue: {self.id} needs the number parameters.{name}")
        return float(value)


def _phrase(name: str) -> str:
    words = [re.escape(word) for word in re.split(r"[\s\-_]+", name.strip()) if word]
    last = words[-1]
    if last[-1].isalpha() and not last.endswith("s"):
        words[-1] = f"{last}s?"
    return _SEPARATOR.join(words)


@dataclass(frozen=True)
class Catalogue:
    """All levers, in the order of the file."""

    levers: tuple[LeverSpec, ...]

    def __iter__(self) -> Iterator[LeverSpec]:
        return iter(self.levers)

    def get(self, lever_id: str) -> LeverSpec | None:
        """The lever of that id."""
        return next((lever for lever in self.levers if lever.id == lever_id), None)

    def find(self, name: str) -> LeverSpec:
        """The lever that a person names, by id, name or acronym.

        Raises:
            UsageError: nobody calls a lever that; the message names the nearest.
        """
        wanted = name.strip()
        exact = self.get(wanted.lower().replace("_", "-").replace(" ", "-"))
        if exact is not None:
            return exact
        for lever in self.levers:
            match = lever.pattern.fullmatch(wanted) or lever.pattern.fullmatch(wanted.upper())
            if match is not None:
                return lever
        known = {
            n.lower(): lever.id for lever in self.levers for n in (lever.id, *lever.names, *lever.acronyms)
        }
        near = difflib.get_close_matches(wanted.lower(), known, n=5, cutoff=0.5)
        nearest = list(dict.fromkeys(known[n] for n in near))[:3]
        hint = f"nearest: {', '.join(nearest)}" if nearest else "`wavewise levers --list` prints all"
        raise UsageError(f"unknown lever {name!r}; {hint}")


@lru_cache(maxsize=1)
def _packaged() -> Catalogue:
    text = resources.files("wavewise.levers").joinpath("catalogue.toml").read_bytes()
    return Catalogue(_parse(text, "packaged lever catalogue"))


def load_catalogue(path: Path | None = None) -> Catalogue:
    """The packaged catalogue, with the entries of `path` added or put in place of those of the same id.

    Raises:
        InputError: the file cannot be read, is not TOML, or an entry is malformed.
    """
    base = _packaged()
    if path is None:
        return base
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the lever catalogue ({error.strerror or error})") from error
    own = {lever.id: lever for lever in _parse(data, str(path))}
    merged = [own.pop(lever.id, lever) for lever in base]
    return Catalogue((*merged, *own.values()))


def _parse(data: bytes, where: str) -> tuple[LeverSpec, ...]:
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{where}: not valid TOML ({error})") from error
    tables = document.get("lever", [])
    if set(document) - {"lever"} or not isinstance(tables, list):
        raise InputError(f"{where}: only [[lever]] tables belong in a lever catalogue")
    levers = tuple(_lever(table, where) for table in cast("list[Any]", tables))
    ids = [lever.id for lever in levers]
    twice = {one for one in ids if ids.count(one) > 1}
    if twice:
        raise InputError(f"{where}: lever {sorted(twice)[0]} stands there twice")
    return levers


def _lever(table: Any, where: str) -> LeverSpec:
    known = {one.name for one in fields(LeverSpec)}
    unknown = set(cast("dict[str, Any]", table)) - known if isinstance(table, dict) else set[str]()
    if unknown:
        raise InputError(f"{where}: unknown key {sorted(unknown)[0]!r} in a [[lever]]")
    try:
        lever = msgspec.convert(table, LeverSpec)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: a [[lever]] is malformed: {error}") from error
    if lever.risk not in _RISKS or lever.acts_on not in _ACTS_ON:
        raise InputError(f"{where}: {lever.id}: risk is one of {_RISKS}, acts_on one of {_ACTS_ON}")
    if not lever.names and not lever.acronyms:
        raise InputError(f"{where}: {lever.id}: a lever needs at least one name")
    return lever
