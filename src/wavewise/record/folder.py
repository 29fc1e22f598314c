"""The run folder: one writer at a time, every state on disk before the next step begins."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from wavewise.errors import InputError, UsageError
from wavewise.record.model import SCHEMA, Run

RUN_FILE = "run.json"
TELEMETRY_FILE = "telemetry.csv"
PART = ".part"
"""Ends the name of a file that is still being written."""

GUARD_FILE = ".guard"
"""Locked by every guard that may still have to stop the server's profiler."""

_LOCK_FILE = ".recording"
_FREE_BYTES_NEEDED = 256 * 1024 * 1024  # a trace of a dozen steps with stacks takes tens of megabytes


def read_run(folder: Path) -> Run | None:
    """The recording in a folder.

    Args:
        folder: a run folder (or any other).

    Returns:
        The typed `run.json`, None where the folder has none.

    Raises:
        InputError: `run.json` is there, but is not one of ours.
    """
    path = folder / RUN_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        run = msgspec.json.decode(data, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a recording of wavewise ({error}); move it away") from error
    if run.schema != SCHEMA:
        raise InputError(
            f"{path}: has schema {run.schema!r}, this wavewise reads {SCHEMA!r}; upgrade wavewise"
        )
    return run


def write_run(folder: Path, run: Run) -> None:
    """Replace `run.json` in one step, so that a reader or a crash never meets half of it.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    path = folder / RUN_FILE
    temporary = folder / f".{RUN_FILE}{PART}"
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
        put_in_place(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another --out"
        ) from error


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a finished file its name, so that neither half of it nor its loss can follow a power cut."""
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(path)
    with suppress(OSError):  # not every file system can sync a folder
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def open_folder(folder: Path) -> None:
    """Make the folder and check that it can take a recording.

    Raises:
        InputError: it cannot be made or written, or the disk has no room.
        UsageError: it is there, has files, and none of them is a recording.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(
            f"{folder}: cannot hold a recording ({error.strerror}); choose another --out"
        ) from error
    if free < _FREE_BYTES_NEEDED:
        raise InputError(
            f"{folder}: only {free >> 20} MiB free on this disk, traces need "
            f"{_FREE_BYTES_NEEDED >> 20}; free space or choose another --out"
        )
    if not (folder / RUN_FILE).exists() and any(not name.name.startswith(".") for name in folder.iterdir()):
        raise UsageError(f"{folder}: has files but no {RUN_FILE}; choose an empty folder for --out")


@contextmanager
def recording_lock(folder: Path) -> Iterator[None]:
    """Hold the folder against a second recorder; the kernel lets go when this process ends, however it ends.

    Raises:
        UsageError: another recorder holds it.
    """
    with (folder / _LOCK_FILE).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"{folder}: another wavewise record is writing here; wait for it or choose another --out"
            ) from error
        try:
            yield
        finally:
            _tidy(folder)


def guards_gone(folder: Path) -> bool:
    """Whether no guard of this run folder is at work any more."""
    try:
        with (folder / GUARD_FILE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _tidy(folder: Path) -> None:
    """Remove what is of no use behind a recording: locks, files that a killed recorder left half, empty folders.

    A folder for traces stays as long as the recording does: the server may still be about to write there.
    """
    for path in (folder / _LOCK_FILE, *folder.glob(f".*{PART}")):
        path.unlink(missing_ok=True)
    if guards_gone(folder):
        (folder / GUARD_FILE).unlink(missing_ok=True)
    if (folder / RUN_FILE).exists():
        return
    for each in (*folder.glob(".*/"), folder):
        with suppress(OSError):  # not empty
            each.rmdir()
