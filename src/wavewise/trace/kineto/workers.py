"""Reads the blocks of one file, in several processes where the file is large enough to pay for them.

`sharing` settles which process reads which block. The helpers are forked: they run nothing but numpy and msgspec on
memory of their own, import nothing, and leave by `os._exit`, so the parent's other threads do not matter to them.
What they read comes back through a pipe as msgpack and raw columns. A helper that dies costs time, not the result:
the parent reads what is missing.
"""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wavewise.trace.kineto.blocks import Layout
from wavewise.trace.kineto.events import COLUMNS, Interner, Key, Rows, Shape, T, Tables
from wavewise.trace.kineto.ladder import BlockResult, read_block
from wavewise.trace.kineto.sharing import Alone, InTurn, Relayed, Sharing
from wavewise.trace.notes import Notes
from wavewise.trace.progress import Progress
from wavewise.trace.source import Limits, StreamText, Text, open_text

PAYS_FROM_BYTES = 64 << 20
"""Plain text below which one process is as fast: forking and collecting cost about as much as 20 MB."""

PAYS_FROM_PACKED_BYTES = 6 << 20
MOST_PROCESSES = 4


def read_blocks(
    path: str,
    text: Text,
    layout: Layout,
    limits: Limits,
    tables: Tables,
    progress: Progress | None,
    meanwhile: Callable[[], object],
) -> list[BlockResult]:
    """Every block of the file, in order.

    Args:
        path: the file.
        text: its text, open.
        layout: of its first document.
        limits: what it may cost.
        tables: where names and launch shapes are numbered.
        progress: called after every block that this process reads.
        meanwhile: what this process will need done when the blocks are read. Where it has helpers, it is done while
            they are at work: before or after, it would keep only one core busy. (Not in a thread beside the reading:
            the two would wait for the interpreter's lock in turn, which costs more than it brings.)
    """
    processes = _processes(text)
    sharing = _sharing(text, layout, limits, processes)
    helpers = [_Helper(layout) for _ in range(processes - 1)]
    with _no_garbage_collection():
        try:
            for helper in helpers:
                helper.start(sharing)
            if helpers:
                sharing.supply()
                meanwhile()
            own = _Share()
            own.read(sharing, layout, tables, progress and (lambda at: progress("reading", text.share(at))))
            results = list(_results(own.parts, own.columns()))
            for helper in helpers:
                results += helper.collect(tables)
        finally:
            for helper in helpers:
                helper.end()
    results.sort(key=lambda result: result.index)
    contiguous = [result.index for result in results] == list(range(len(results)))
    if (contiguous and any(result.last for result in results)) or not helpers:
        return results
    return _complete(path, text, layout, limits, tables, results)


def _sharing(text: Text, layout: Layout, limits: Limits, processes: int) -> Sharing:
    if processes == 1:
        return Alone(text, layout, limits)
    if isinstance(text, StreamText):
        return Relayed(text, layout, limits)
    return InTurn(text, layout, limits)


def _processes(text: Text) -> int:
    threshold = PAYS_FROM_PACKED_BYTES if isinstance(text, StreamText) else PAYS_FROM_BYTES
    if text.packed_size < threshold or sys.platform != "linux":
        return 1
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


def _complete(
    path: str, text: Text, layout: Layout, limits: Limits, tables: Tables, results: list[BlockResult]
) -> list[BlockResult]:
    """Reads the blocks that nobody has brought."""
    have = {result.index: result for result in results}
    again = open_text(path, limits)
    try:
        for block in Alone(again, layout, limits).blocks():
            if block.index not in have:
                have[block.index] = read_block(block, layout, tables)
    finally:
        again.close()
    text.notes.clear()  # it may not have been unpacked to its end
    text.notes.update(again.notes)
    return [have[index] for index in sorted(have)]


@contextmanager
def _no_garbage_collection() -> Generator[None, None, None]:
    # A block's events are thousands of objects that live for a millisecond and hold no cycles; collecting
    # after every few hundred of them walks the whole heap for nothing.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Part(msgspec.Struct, array_like=True):
    """A BlockResult without its columns."""

    index: int
    start: int
    end: int
    tail: bytes | None
    last: bool
    endless: bool
    rung: str
    rows: int | None
    events: int
    notes: dict[str, int]
    malformed: tuple[int, ...]


class _Message(msgspec.Struct, array_like=True):
    """What a helper sends before its columns."""

    parts: list[_Part]
    keys: list[Key]
    shapes: list[Shape]


Column = npt.NDArray[Any]


class _Share:
    """What one process has read: the rows of all its blocks in one array per column.

    Thousands of small arrays would leave the heap in shreds that the frames made of them afterwards do not fit in.
    """

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self._columns = {name: bytearray() for name in COLUMNS}

    def read(
        self, sharing: Sharing, layout: Layout, tables: Tables, reached: Callable[[int], None] | None = None
    ) -> None:
        """Reads the blocks that fall to this process; `reached` is told how far in the text they begin."""
        for block in sharing.blocks():
            self._add(read_block(block, layout, tables))
            tables.forget()
            if reached:
                reached(block.start)

    def _add(self, result: BlockResult) -> None:
        rows = result.rows
        self.parts.append(
            _Part(
                result.index, result.start, result.end, result.tail, result.last, result.endless, result.rung,
                None if rows is None else len(rows), 0 if rows is None else rows.events,
                {} if rows is None else dict(rows.notes), () if rows is None else rows.malformed,
            )
        )  # fmt: skip
        if rows is not None:
            for name, dtype in COLUMNS.items():
                self._columns[name] += np.ascontiguousarray(getattr(rows, name), dtype).data.cast("B")

    def columns(self) -> dict[str, Column]:
        """The columns; nothing can be added any more."""
        return {name: np.frombuffer(self._columns[name], dtype) for name, dtype in COLUMNS.items()}


class _Helper:
    """One forked process."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._pid = 0
        self._pipe = -1

    def start(self, sharing: Sharing) -> None:
        """Forks."""
        self._pipe, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: see the module
            self._pid = os.fork()
        if self._pid:
            os.close(write)
            return
        status = 1
        try:
            os.close(self._pipe)
            self._work(sharing, write)
            status = 0
        finally:
            os._exit(status)

    def end(self) -> None:
        """Leaves nothing behind, whether it has been collected or not."""
        if self._pipe >= 0:
            os.close(self._pipe)
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)  # it has nothing left to do, or nobody to do it for
            os.waitpid(self._pid, 0)

    def _work(self, sharing: Sharing, write: int) -> None:
        sharing.enter_helper()
        tables, share = Tables(), _Share()
        share.read(sharing, self._layout, tables)
        head = msgspec.msgpack.encode(_Message(share.parts, tables.keys.values, tables.shapes.values))
        with os.fdopen(write, "wb") as out:
            out.write(len(head).to_bytes(8, "little") + head)
            for column in share.columns().values():
                out.write(column.data)

    def collect(self, tables: Tables) -> list[BlockResult]:
        """What the helper has read, numbered by `tables`; nothing if it died."""
        with os.fdopen(self._pipe, "rb") as source:
            self._pipe = -1
            size = int.from_bytes(source.read(8), "little")
            try:
                message = msgspec.msgpack.decode(source.read(size), type=_Message)
            except msgspec.DecodeError:
                return []
            count = sum(part.rows or 0 for part in message.parts)
            columns: dict[str, Column] = {name: np.empty(count, dtype) for name, dtype in COLUMNS.items()}
            for column in columns.values():
                if source.readinto(column.data.cast("B")) != column.nbytes:
                    return []
        columns["key"] = _renumbered(message.keys, tables.keys)[columns["key"]]
        columns["shape"] = _renumbered(message.shapes, tables.shapes)[columns["shape"]]
        return list(_results(message.parts, columns))


def _results(parts: list[_Part], columns: dict[str, Column]) -> Iterator[BlockResult]:
    at = 0
    for part in parts:
        rows = None
        if part.rows is not None:
            own = {name: column[at : at + part.rows] for name, column in columns.items()}
            rows = Rows(**own, events=part.events, notes=Notes(part.notes), malformed=part.malformed)
            at += part.rows
        yield BlockResult(
            part.index, part.start, part.end, rows, part.tail, part.last, part.endless, part.rung
        )


def _renumbered(values: Sequence[T], interner: Interner[T]) -> Column:
    """By the helper's number, the parent's; the last entry is for -1, which stays."""
    return np.array([*(interner.of(value) for value in values), -1], np.int32)
