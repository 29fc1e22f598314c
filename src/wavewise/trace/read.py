"""Finds traces and reads them: knows the source of a file by its first bytes, never by its name.

Only a folder of Parquet tables, which is one trace, is known by names: those of the tables.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from wavewise.errors import InputError
from wavewise.trace.kineto import read_kineto
from wavewise.trace.model import Trace
from wavewise.trace.nsys.forms import PARQUET_MAGIC, SQLITE_MAGIC, export_folder
from wavewise.trace.progress import Progress as Progress
from wavewise.trace.ranks import rank_in_name
from wavewise.trace.remote import list_url, open_url, url_of
from wavewise.trace.source import Limits

SUFFIXES = (".json", ".json.gz", ".json.zst", ".sqlite")
"""What a trace in a folder is called. A file named itself may be called anything."""

_LOOKED_FOR = f"{', '.join(SUFFIXES)}, folders of Nsight Systems Parquet tables"

RAW_NSIGHT = (".nsys-rep", ".qdrep", ".qdstrm")
"""Nsight Systems' own formats, which only its exporter reads."""

_PARQUET_FOLDER = "_pqtdir"
"""What Nsight Systems adds to a report's name for its Parquet export, unless it is told another name."""

_OF_OUR_OWN = frozenset({"run.json", "findings.json"})
"""JSON that wavewise itself puts beside traces."""


def find_traces(paths: Iterable[str | os.PathLike[str]], *, recursive: bool = False) -> list[Path]:
    """Every trace file that `paths` names, folders expanded in the order of their names.

    Args:
        paths: files and folders.
        recursive: search folders within folders, too.

    Raises:
        InputError: a path does not exist, or a folder holds no trace.
    """
    try:
        return _found(paths, recursive)
    except OSError as error:  # a folder on the way that may not be searched, a name that is too long
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _found(paths: Iterable[str | os.PathLike[str]], recursive: bool) -> list[Path]:
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        url = url_of(given)
        if url is not None:
            inside = list_url(url)
            found.extend(
                [path] if inside is None else [Path(one) for one in inside if one.endswith(SUFFIXES)]
            )
            if inside is not None and not any(one.endswith(SUFFIXES) for one in inside):
                raise InputError(f"{url}: no trace in this folder (looked for {', '.join(SUFFIXES)})")
        elif path.is_dir():
            inside = sorted(_in_folder(path, recursive), key=_as_counted)
            if not inside:
                below = not recursive and any(child.is_dir() for child in path.iterdir())
                raise InputError(
                    f"{path}: no trace in this folder (looked for {_LOOKED_FOR})"
                    + ("; --recursive searches the folders below it, too" if below else "")
                )
            found.extend(inside)
        elif path.exists():
            found.append(export_folder(path) or path)
        else:
            raise InputError(f"{path}: no such file or folder")
    return found


def _as_counted(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which bs8 stands before bs16."""
    pieces = re.findall(r"(\d+)|(\D+)", str(path))
    return tuple((0, int(digits), digits) if digits else (1, 0, other) for digits, other in pieces)


def _in_folder(folder: Path, recursive: bool) -> Iterator[Path]:
    if export_folder(folder):
        yield folder
    for path in folder.rglob("*") if recursive else folder.iterdir():
        if path.is_dir():
            is_trace = export_folder(path) is not None and not _export_beside(path, ".sqlite")
        elif path.name.endswith(RAW_NSIGHT):
            is_trace = path.is_file() and not _export_beside(path, ".sqlite", _PARQUET_FOLDER)
        else:
            is_trace = path.name.endswith(SUFFIXES) and path.name not in _OF_OUR_OWN and path.is_file()
        if is_trace:
            yield path


def _export_beside(path: Path, *endings: str) -> bool:
    """Whether the same Nsight recording stands beside `path` in another form, which is the one to read."""
    report = path.name.removesuffix(_PARQUET_FOLDER) if path.is_dir() else path.stem
    return any(path.with_name(report + ending).exists() for ending in endings)


def read(
    path: str | os.PathLike[str], *, progress: Progress | None = None, limits: Limits | None = None
) -> list[Trace]:
    """All documents of one trace file, in file order.

    Args:
        path: the file, or the folder of an Nsight Systems Parquet export.
        progress: called with what is being done and the share done.
        limits: what the file may cost before it is refused.

    Raises:
        InputError: the file cannot be read or is no trace.
        NothingToAnalyzeError: a trace without any GPU operation.
    """
    name = os.fspath(path)
    tables = export_folder(Path(name))
    if tables is not None:
        name = str(tables)
        traces = _read_nsys(name, progress)
    elif (start := _first_bytes(name)).startswith(SQLITE_MAGIC):
        traces = _read_nsys(name, progress)
    elif start.startswith(PARQUET_MAGIC):
        raise InputError(
            f"{name}: a Parquet file that is no trace; an Nsight Systems export is a folder of them, StringIds.parquet "
            "included: nsys export --type parquetdir"
        )
    elif name.endswith(RAW_NSIGHT):
        raise InputError(
            f"{name}: a raw Nsight Systems report; export it first: nsys export --type sqlite {os.path.basename(name)}"
        )
    else:
        traces = read_kineto(name, limits or Limits(), progress)
    if len(traces) == 1 and traces[0].rank is None:
        traces = [replace(traces[0], rank=rank_in_name(Path(name).name))]
    return traces


def _read_nsys(path: str, progress: Progress | None) -> list[Trace]:
    # It brings polars, which a Kineto file is begun to be read without.
    from wavewise.trace.nsys.reader import read_nsys

    return read_nsys(path, progress)


def _first_bytes(path: str) -> bytes:
    url = url_of(path)
    if url is not None:
        file, _ = open_url(url)
        with file:
            start = file.read(len(SQLITE_MAGIC))
        if start.startswith(SQLITE_MAGIC):
            raise InputError(f"{url}: an SQLite export cannot be read from afar; copy it here first")
        return start
    try:
        # Before it is opened: a named pipe that nobody writes would hold us forever.
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise InputError(f"{path}: a pipe, and a trace is read more than once; write it to a file first")
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC))
    except IsADirectoryError as error:
        raise InputError(f"{path}: a folder, not a trace file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
