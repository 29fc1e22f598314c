"""How processes share out the blocks of one file: which process reads which, and where it gets the text.

All processes find the same blocks (see `blocks`); which one reads a block is settled when its turn comes, so that
none waits for a slower one. Of a plain file each reads its own stretches. The text of a packed file comes from one
process, which unpacks it into a ring of shared memory, as far ahead as there is room, and reads blocks, too.

A `Sharing` is made before the processes part. Whatever becomes of one of them (it dies with a block in its hands, or
holds up the ring) leaves blocks unread; none is read twice, and nobody waits for ever.
"""

import os
import select
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from mmap import mmap
from struct import Struct

from wavewise.trace.kineto.blocks import Block, Cutter, Layout, reach
from wavewise.trace.source import Limits, StreamText, Text

_PATIENCE_S = 10.0
"""What one process waits for takes another microseconds."""

_BLOCKS_AHEAD = 16
"""Blocks that may be unpacked before anybody has taken them. They keep a helper busy for a while when the process that
unpacks has something else to do (`Sharing.supply`); three times as many gained nothing that could be measured."""


class Sharing(ABC):
    """Hands out blocks, each to one process."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The blocks that fall to this process, at indices that rise."""

    def supply(self) -> None:  # noqa: B027 - not all have something to do
        """Called in the process that has helpers, before it does something else for a while."""

    def enter_helper(self) -> None:  # noqa: B027 - not all have something to do
        """Called in a helper before anything else."""


class Alone(Sharing):
    """One process reads everything."""

    def __init__(self, text: Text, layout: Layout, limits: Limits) -> None:
        self._cutter = Cutter(text, layout, limits)

    def blocks(self) -> Iterator[Block]:
        for index in count():
            block = self._cutter.block(index)
            if block is None:
                return
            yield block


class InTurn(Sharing):
    """Every process reads the file where it must. A token goes round: the number of the next block."""

    def __init__(self, text: Text, layout: Layout, limits: Limits) -> None:
        self._cutter = Cutter(text, layout, limits)
        self._token = _Pipe()
        self._token.put(0)

    def blocks(self) -> Iterator[Block]:
        # None: the token was lost with a process that died holding it.
        while (token := self._token.take(_PATIENCE_S)) is not None:
            index = token[0]
            self._token.put(index + 1)
            block = self._cutter.block(index)
            if block is None:
                return
            yield block


class Relayed(Sharing):
    """The process that makes this unpacks the text for all of them.

    Args:
        text: the unpacked text, read by this process alone.
        layout: of its first document.
        limits: what it may cost.
    """

    def __init__(self, text: StreamText, layout: Layout, limits: Limits) -> None:
        self._pieces = text.pieces(layout.first)
        self._size, self._reach = limits.block_bytes, reach(limits)
        self._capacity = self._reach + _BLOCKS_AHEAD * self._size
        self._ring = _Ring(layout.first, self._capacity)
        self._cutter = Cutter(self._ring, layout, limits)
        self._ready = _Pipe(3)  # number of a block handed out; bytes unpacked by then; whether that is all
        self._copied = _Pipe()  # number of a block that the ring need no longer hold
        self._unpacks = True
        self._next = 0  # block to be handed out
        self._uncopied: set[int] = set()

    def enter_helper(self) -> None:
        self._unpacks = False
        self._ready.close_end()  # it ends when the last process that can write to it closes it

    def supply(self) -> None:
        self._fill()

    def blocks(self) -> Iterator[Block]:
        while (index := self._own_next() if self._unpacks else self._helpers_next()) is not None:
            block = None
            with suppress(_NotInRingError):
                block = self._cutter.block(index)
            self._copied.put(index)
            if block is not None:
                yield block

    def _helpers_next(self) -> int | None:
        ready = self._ready.take()
        if ready is None:
            return None
        # Not what has been unpacked since: it would have to be read while the other process writes it.
        index, self._ring.unpacked, self._ring.ended = ready[0], ready[1], bool(ready[2])
        return index

    def _own_next(self) -> int | None:
        """A block for the process that unpacks, once there is no room to unpack more."""
        while True:
            self._fill()
            ready = self._ready.take(None if self._ring.ended else 0)
            if ready is not None:
                return ready[0]
            if self._ring.ended:
                return None
            # All blocks in the ring are in the hands of others.
            copied = self._copied.take(_PATIENCE_S)
            if copied is None:  # one of them died
                self._ready.close_end()
                return None
            self._uncopied.discard(copied[0])

    def _fill(self) -> None:
        while (copied := self._copied.take(0)) is not None:
            self._uncopied.discard(copied[0])
        ring = self._ring
        while not ring.ended:
            oldest = min(self._uncopied, default=self._next)
            if not ring.unpack(self._pieces, until=oldest * self._size + self._capacity):
                return
            while self._next * self._size + (0 if ring.ended else self._reach) < ring.unpacked:
                self._uncopied.add(self._next)
                self._ready.put(self._next, ring.unpacked, ring.ended)
                self._next += 1
        self._ready.close_end()


class _NotInRingError(Exception):
    """The ring does not reach as far as was asked."""


class _Ring:
    """The last stretch of a text that is unpacked as one process goes, in memory that all share.

    Attributes:
        unpacked: bytes of the text, from `first` on, that this process knows to be unpacked.
        ended: whether that is all there is.
    """

    def __init__(self, first: int, size: int) -> None:
        self._first = first
        self._memory = mmap(-1, size)
        self._rest = b""  # of a piece that did not fit
        self.unpacked, self.ended = 0, False

    def unpack(self, pieces: Iterator[bytes], until: int) -> bool:
        """Takes a piece, or what fits of it before the first `until` bytes; returns whether there was room."""
        done, size = self.unpacked, len(self._memory)
        if done >= until:
            return False
        piece = self._rest or next(pieces, b"")
        taken, self._rest = piece[: until - done], piece[until - done :]
        at = done % size
        self._memory[at : at + len(taken)] = taken[: size - at]
        if at + len(taken) > size:
            self._memory[: at + len(taken) - size] = taken[size - at :]
        self.unpacked, self.ended = done + len(taken), not taken
        return True

    def at(self, offset: int, size: int) -> bytes:
        """The bytes [offset, offset + size), fewer at the end of the text.

        Raises:
            _NotInRingError: they have not been unpacked yet.
        """
        begin = offset - self._first
        end = min(begin + size, self.unpacked)
        if end < begin + size and not self.ended:
            raise _NotInRingError
        begin_at, end_at = begin % len(self._memory), end % len(self._memory)
        if begin >= end:
            return b""
        if begin_at < end_at:
            return self._memory[begin_at:end_at]
        return self._memory[begin_at:] + self._memory[:end_at]


class _Pipe:
    """Messages of some whole numbers that processes pass to each other; each is taken once."""

    def __init__(self, numbers: int = 1) -> None:
        self._message = Struct(f"<{numbers}q")
        self._read, self._write = os.pipe()
        # To be told that there is one is not to have it: another process may be quicker.
        os.set_blocking(self._read, False)

    def put(self, *numbers: int) -> None:
        """Adds a message."""
        os.write(self._write, self._message.pack(*numbers))  # whole: it is shorter than PIPE_BUF

    def take(self, timeout: float | None = None) -> tuple[int, ...] | None:
        """The next message.

        Args:
            timeout: seconds to wait for one; None for as long as a process can still write one.

        Returns:
            None when there is none.
        """
        while select.select([self._read], [], [], timeout)[0]:
            try:
                message = os.read(self._read, self._message.size)
            except BlockingIOError:
                continue
            return self._message.unpack(message) if message else None
        return None

    def close_end(self) -> None:
        """This process writes no more."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def __del__(self) -> None:
        self.close_end()
        os.close(self._read)
