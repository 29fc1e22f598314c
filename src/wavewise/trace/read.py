"""Finds traces and reads them: knows the source of a file by its first bytes, never by its name."""

import os
from collections.abc import Iterable
from pathlib import Path

from wavewise.errors import InputError
from wavewise.trace.kineto import read_kineto
from wavewise.trace.model import Trace
from wavewise.trace.progress import Progress as Progress
from wavewise.trace.source import Limits

SUFFIXES = (".json", ".json.gz", ".json.zst", ".sqlite")


def find_traces(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Every trace file that `paths` names, folders expanded in the order of their names.

    Raises:
        InputError: a path does not exist, or a folder holds no trace.
    """
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name.endswith(SUFFIXES))
            if not inside:
                raise InputError(f"{path}: no trace in this folder (looked for {', '.join(SUFFIXES)})")
            found.extend(inside)
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file or folder")
    return found


def read(path: str | os.PathLike[str], *, progress: Progress | None = None) -> list[Trace]:
    """All complete documents of one trace file, in file order.

    Raises:
        InputError: the file cannot be read or is no trace.
        NothingToAnalyzeError: a trace without any GPU operation.
    """
    return read_kineto(str(path), Limits(), progress)
