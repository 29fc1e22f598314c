"""Trace files: find the ones a window wrote, wait until they are whole, look inside, take them over."""

import re
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from isal import igzip

from wavewise.record.folder import PART, put_in_place
from wavewise.record.model import StepCount, TraceFile, Window

_SUFFIXES = (".json", ".json.gz")
_CHUNK = 1 << 20
_OVERLAP = 512  # longer than any marker or key that is looked for
_SETTLE_S = 1.0
_GZIP = 31  # zlib's window bits for a gzip header and trailer

# Kineto writes ph, cat, name; tools that rewrite traces may put the name first.
_ANNOTATION = re.compile(
    rb'"cat":\s*"user_annotation",\s*(?:"ph":\s*"X",\s*)?"name":\s*"([^"\\]{1,256})"'
    rb'|"name":\s*"([^"\\]{1,256})",\s*(?:"ph":\s*"X",\s*)?"cat":\s*"user_annotation"'
)
_KERNEL = re.compile(rb'"cat":\s*"kernel"')
_BASE_TIME = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)[^\d]')
# vLLM: execute_context_A(T)_generation_B(N), long form execute_N_context_A(sq..)_generation_B(sq..).
_VLLM_STEP = re.compile(rb"execute_(?:\d+_)?context_(\d+)\([^)]*\)_generation_(\d+)\(")
# SGLang: step[DECODE bs=32 ...], step[EXTEND bs=15 toks=15360], step[MIXED ...], step[IDLE ...].
_SGLANG_STEP = re.compile(rb"step\[(\w+)(?: bs=(\d+))?")


@dataclass(frozen=True)
class Seen:
    """The trace files of a folder at one moment: path to (size, modification time in ns)."""

    files: dict[Path, tuple[int, int]]


def look(folder: Path) -> Seen:
    """Which trace files a folder (and its direct subfolders) holds now."""
    files: dict[Path, tuple[int, int]] = {}
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            try:
                stat = path.stat()
            except OSError:
                continue
            if path.name.endswith(_SUFFIXES) and path.is_file():
                files[path] = (stat.st_size, stat.st_mtime_ns)
    return Seen(files)


def new_since(before: Seen, now: Seen) -> dict[Path, tuple[int, int]]:
    """Files that came or changed."""
    return {path: state for path, state in now.files.items() if before.files.get(path) != state}


class Wait:
    """Follows a folder until the window's traces are whole; asked again and again by the recorder's loop.

    That is: no file of the window changed for a second, each is a whole document, and each rank has written
    one with GPU kernels (a front end's trace may be there long before them). The window's files are those that
    came or changed after it was opened; of these, where the engine names its traces as asked, those so named.
    """

    def __init__(self, folder: Path, before: Seen, ranks: int | None, label: str | None = None) -> None:
        self._folder, self._before, self._ranks, self._label = folder, before, ranks or 1, label
        self._state: dict[Path, tuple[int, int]] = {}
        self._changed = time.monotonic()
        self._inspected: dict[tuple[Path, tuple[int, int]], TraceFile] = {}

    def ready(self) -> list[TraceFile] | None:
        """The window's files once all are whole, None before."""
        state = new_since(self._before, look(self._folder))
        if state != self._state:
            self._state, self._changed = state, time.monotonic()
            return None
        if not state or time.monotonic() - self._changed < _SETTLE_S:
            return None
        files = self.found()
        whole = all(file.complete for file in files)
        return files if whole and sum(file.gpu for file in files) >= self._ranks else None

    def found(self) -> list[TraceFile]:
        """The window's files as they are now, whole or not."""
        state = new_since(self._before, look(self._folder))
        for file, stamp in state.items():
            if (file, stamp) not in self._inspected:
                self._inspected[file, stamp] = inspect(file, file.name)
        files = [self._inspected[key] for key in sorted(state.items())]
        named = [file for file in files if self._label and self._label in Path(file.source).name]
        return named if any(file.gpu for file in named) else files

    @property
    def quiet_s(self) -> float:
        """How long nothing has changed."""
        return time.monotonic() - self._changed


def wait_for(window: Window, ranks: int | None) -> Wait | None:
    """Follows the traces of a window; None where they stay with the server."""
    if window.trace_dir is None:
        return None
    before = Seen({Path(path): state for path, state in window.seen.items()})
    return Wait(Path(window.trace_dir), before, ranks, window.label)


def inspect(file: Path, name: str) -> TraceFile:
    """Read a trace file once for what a recording must know of it.

    Args:
        file: the trace, whole or not.
        name: its name in the run folder.

    Returns:
        Its size, whether it is whole and has GPU kernels, and the engine steps that its markers name. Markers
        are the host's annotations; the device's copies of them are not counted again.
    """
    vllm: Counter[tuple[str, int | None]] = Counter()
    sglang: Counter[tuple[str, int | None]] = Counter()
    gpu, base, reason, last = False, None, None, b""
    try:
        for window, start in _windows(file):
            gpu = gpu or _KERNEL.search(window) is not None
            for match in _ANNOTATION.finditer(window):
                if match.end() > start:  # not already seen at the end of the window before
                    _count(match.group(1) or match.group(2), vllm, sglang)
            if base is None and (found := _BASE_TIME.search(window)):
                base = int(found.group(1))
            last = window[-64:]
        complete = last.rstrip().endswith((b"}", b"]"))
        reason = None if complete else "the file ends in the middle of its JSON document"
    except (OSError, EOFError) as error:
        complete, reason = False, f"the file ends early ({error})"
    steps = sglang or vllm  # SGLang nests markers of both forms
    counted = sorted(steps.items(), key=lambda item: (-item[1], str(item[0])))
    return TraceFile(
        file=name,
        source=str(file),
        bytes=file.stat().st_size,
        complete=complete,
        gpu=gpu,
        steps=tuple(StepCount(kind=kind, batch_size=size, steps=count) for (kind, size), count in counted),
        base_time_ns=base,
        reason=reason,
    )


def take(file: Path, destination: Path) -> None:
    """Copy a trace into the run folder under a temporary name first; a plain file is compressed."""
    temporary = destination.with_name(f".{destination.name}{PART}")
    if file.name.endswith(".gz"):
        shutil.copyfile(file, temporary)
    else:
        with file.open("rb") as source, igzip.open(temporary, "wb") as out:
            shutil.copyfileobj(source, cast(IO[bytes], out), _CHUNK)
    put_in_place(temporary, destination)


def _count(
    name: bytes, vllm: Counter[tuple[str, int | None]], sglang: Counter[tuple[str, int | None]]
) -> None:
    if match := _VLLM_STEP.match(name):
        context, generation = int(match.group(1)), int(match.group(2))
        kind = (
            "idle"
            if context + generation == 0
            else "mixed"
            if context and generation
            else "prefill"
            if context
            else "decode"
        )
        vllm[kind, generation or context] += 1
    elif match := _SGLANG_STEP.match(name):
        sglang[match.group(1).decode().lower(), int(match.group(2)) if match.group(2) else None] += 1


def _chunks(file: Path) -> Iterator[bytes]:
    """A file's contents, unpacked; of a broken gzip stream, all that is there before the EOFError."""
    with file.open("rb") as source:
        if not file.name.endswith(".gz"):
            while chunk := source.read(_CHUNK):
                yield chunk
            return
        stream = zlib.decompressobj(wbits=_GZIP)
        packed = source.read(_CHUNK)
        while packed:
            try:
                data = stream.decompress(packed)
            except zlib.error as error:
                raise EOFError(f"the gzip stream is broken: {error}") from error
            if data:
                yield data
            if stream.eof and (stream.unused_data or source.peek(1)):  # the next member of the file
                packed = stream.unused_data or source.read(_CHUNK)
                stream = zlib.decompressobj(wbits=_GZIP)
            else:
                packed = source.read(_CHUNK)
        if not stream.eof:
            raise EOFError("the gzip stream is not complete")


def _windows(file: Path) -> Iterator[tuple[bytes, int]]:
    """Chunks with the end of the one before in front, and where the new bytes start."""
    tail = b""
    for chunk in _chunks(file):
        yield tail + chunk, len(tail)
        tail = (tail + chunk)[-_OVERLAP:]
