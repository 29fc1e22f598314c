"""Ledger folders: plain TOML, one file or many, read with every fault named by file and entry."""

import datetime as dt
import json
import os
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec

from wavewise.errors import InputError, UsageError
from wavewise.levers.ledger.book import Ledger
from wavewise.levers.ledger.entry import GROUNDS, VERDICTS, Claim, Entry, Platform, check

_HEADER = f"""\
# Ledger of levers: what was tried, where, with what verdict. Kept by hand and by `wavewise ledger add`.
# verdict: {", ".join(VERDICTS)}
# ground:  {", ".join(GROUNDS)}
# An entry holds for the platform it states (gpu, interconnect, model, engine); `reopens_at` names the engine
# version, `expires` the day, from which it should be tried again. `status = "draft"` never counts.
"""
_START = "ledger.toml"


def load_ledger(folder: Path | None = None, *, shipped: bool = True) -> Ledger:
    """The entries of a folder's `*.toml` (or of one file), with the packaged ones before them.

    Args:
        folder: None for the packaged entries alone.
        shipped: whether the packaged entries take part.

    Raises:
        InputError: the folder is not there, or a file is not a ledger.
    """
    entries: list[Entry] = []
    claims: list[Claim] = []
    if shipped:
        for resource in sorted(
            resources.files("wavewise.levers.ledger").joinpath("shipped").iterdir(), key=lambda r: r.name
        ):
            if resource.name.endswith(".toml"):
                _read(resource.read_bytes(), f"packaged ledger {resource.name}", entries, claims)
    for path in _files(folder):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot read the ledger ({error.strerror or error})") from error
        _read(data, str(path), entries, claims)
    return Ledger(tuple(entries), tuple(claims))


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"{folder}: no such ledger folder; `wavewise ledger init {folder}` makes one")
    return sorted(folder.glob("*.toml"))


def _read(data: bytes, where: str, entries: list[Entry], claims: list[Claim]) -> None:
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{where}: not valid TOML ({error})") from error
    strange = set(document) - {"entry", "claim", "defaults"}
    if strange:
        raise InputError(
            f"{where}: unknown {sorted(strange)[0]!r}; a ledger holds [[entry]], [[claim]] and [defaults]"
        )
    defaults = document.get("defaults", {})
    seen = {statement.id for statement in (*entries, *claims)}
    for kind, target in ((Entry, entries), (Claim, claims)):
        tables = document.get(kind.__name__.lower(), [])
        if not isinstance(tables, list) or not isinstance(defaults, dict):
            raise InputError(
                f"{where}: [[{kind.__name__.lower()}]] tables and one [defaults] table are expected"
            )
        for number, table in enumerate(cast("list[dict[str, Any]]", tables), 1):
            statement = _convert({**cast("dict[str, Any]", defaults), **table}, kind, where, number)
            if statement.id in seen:
                raise InputError(f"{where}: the id {statement.id!r} stands in the ledger twice")
            seen.add(statement.id)
            cast("list[Entry | Claim]", target).append(statement)


def _convert(
    table: dict[str, Any], kind: type[Entry] | type[Claim], where: str, number: int
) -> Entry | Claim:
    try:
        statement = msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        name = table.get("id", f"number {number}")
        raise InputError(f"{where}: [[{kind.__name__.lower()}]] {name}: {error}") from error
    check(statement, where)
    return statement


def init_ledger(folder: Path) -> Path:
    """Makes a ledger folder with one empty, explained file.

    Raises:
        UsageError: there are TOML files already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.glob("*.toml"))):
        raise UsageError(f"{folder}: there is a ledger (or a file) already; nothing was changed")
    path = folder / _START
    _replace(path, _HEADER)
    return path


def add_entry(folder: Path, entry: Entry) -> Path:
    """Appends an entry to the folder's file of its lever, after checking it against the whole ledger.

    Raises:
        InputError: the entry is malformed, or the ledger is.
        UsageError: its id is taken.
    """
    check(entry, "the new entry")
    ledger = load_ledger(folder, shipped=True)
    if entry.id in {s.id for s in (*ledger.entries, *ledger.claims)}:
        raise UsageError(f"the id {entry.id!r} is taken; give another with --id")
    path = (folder.parent if folder.is_file() else folder) / f"{entry.lever}.toml"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    _replace(path, (before.rstrip() + "\n\n" if before.strip() else "") + as_toml(entry))
    return path


def write_entries(
    path: Path, entries: Sequence[Entry], header: Iterable[str] = (), *, force: bool = False
) -> None:
    """Writes entries to one file.

    Raises:
        UsageError: the file exists and `force` is False.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} exists; --force overwrites it")
    lines = "".join(f"# {line}\n" for line in header)
    _replace(path, lines + "\n" + "\n".join(as_toml(entry) for entry in entries))


def as_toml(entry: Entry) -> str:
    """One [[entry]] table; what is None is left out."""
    lines = ["[[entry]]"]
    own = [name for name in Entry.__struct_fields__ if name not in Platform.__struct_fields__]
    for name in (*own, *Platform.__struct_fields__):
        value = getattr(entry, name)
        if value is None:
            continue
        if isinstance(value, dt.date):
            text = value.isoformat()
        elif isinstance(value, int):
            text = str(value)
        else:
            # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
            text = json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    """Writes to a temporary name, then renames: a ledger is never half-written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"{path}: cannot write ({error.strerror or error})") from error
