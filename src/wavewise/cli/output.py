"""What commands share: the console, writing files safely, progress and left-out files on stderr."""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wavewise.errors import InputError, UsageError, WavewiseError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 100
"""A pipe has no width of its own; a hundred columns is what reports are laid out for."""

_QUIET_S = 1.0
"""Work shorter than this shows no progress."""


def console(width: int = PIPE_WIDTH) -> "Console":
    """Standard output for a report: as wide as the terminal, `width` and plain in a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, highlight=False)


def name_left_out(_path: Path, error: WavewiseError) -> None:
    """Names a file of a folder that could not be read on stderr; the rest is analysed."""
    print(f"wavewise: left out: {error}", file=sys.stderr)


def refuse_existing(paths: Iterable[Path], force: bool) -> None:
    """Refuses, before any work, to overwrite a file without `--force`.

    Raises:
        UsageError: a file is there already and `force` is not set, or a folder is in its place.
    """
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; name a file")
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path}: is a pipe or device, which a finished file cannot replace; name a file"
            )
        if path.exists() and not force:
            raise UsageError(f"{path}: exists already; --force overwrites it")


def write_files(files: Mapping[Path, bytes]) -> None:
    """Writes all files or none: each to a temporary name beside it, renamed once all are complete.

    A symbolic link stays one: the file that it names is replaced.

    Raises:
        InputError: a folder cannot be made or written.
    """
    written: list[tuple[str, Path]] = []
    path = Path()
    try:
        for path, data in files.items():
            target = path.resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            written.append((name, target))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            # mkstemp makes files private; a report has the permissions of any other new file.
            os.chmod(name, 0o666 & ~_umask())
        for name, path in written:
            os.replace(name, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        for name, _ in written:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


@contextlib.contextmanager
def progress_on_stderr() -> Iterator[Callable[[str, float], None] | None]:
    """A progress callback that draws a bar once the work takes over a second; None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=1.0)
    begun = time.monotonic()
    shown = False

    def update(what: str, share: float) -> None:
        nonlocal shown
        if not shown and time.monotonic() - begun > _QUIET_S:
            bar.start()
            shown = True
        bar.update(task, description=what, completed=share)

    try:
        yield update
    finally:
        if shown:
            bar.stop()
