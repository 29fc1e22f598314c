"""Cuts the text of an event list into blocks of whole events, without reading it all.

Block k runs from the first event boundary at or behind `first + k * size` to the first at or behind
`first + (k + 1) * size`, so every process finds the same blocks by itself. A boundary is *guessed* from the
layout: text that merely looks like one would cut an event in two. No wrong guess passes unseen: block k ends where
block k + 1 starts, and a block is sound JSON only if both its ends lie between events; so either every cut is
right, or a block fails to decode and `salvage` reads it together with its neighbours.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from wavewise.trace.source import Limits

_OVERLAP = 1 << 16
_KINETO_START = re.compile(rb'[ \t\r]*\n(?=  \{\n    "ph": )')
_KINETO_BOUNDARY = b"\n  },\n"
_ANY_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|tid|dur|args|id|s|bp)"\s*:)')
_LINE_BOUNDARY = re.compile(rb"\}[ \t\r]*\n\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how the first document's events lie.

    Attributes:
        first: offset behind the bracket that opens the list.
        kineto: whether the events have Kineto's own line layout.
        lines: whether they are lines of their own without a list around them.
    """

    first: int
    kineto: bool = False
    lines: bool = False

    def cut(self, text: bytes, start: int) -> "Cut | None":
        """The first boundary that begins at or behind `start`."""
        if self.kineto:
            found = text.find(_KINETO_BOUNDARY, start)
            return Cut(found, found + 4, found + 6) if found >= 0 else None
        match = (_LINE_BOUNDARY if self.lines else _ANY_BOUNDARY).search(text, start)
        return Cut(match.start(), match.start() + 1, match.end()) if match else None


class Cut(NamedTuple):
    """A boundary: where it begins, where the event before it ends, where the next one starts."""

    at: int
    end: int
    start: int


def layout_of(first: int, text: bytes) -> Layout:
    """The layout of the list of events whose text, from `first` on, begins with `text`."""
    kineto = _KINETO_START.match(text)
    return Layout(first + kineto.end(), kineto=True) if kineto else Layout(first)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The bytes [lo, hi) of `held`. Kept as bounds, so that a megabyte is not copied for nothing."""

    held: bytes
    lo: int
    hi: int

    @classmethod
    def of(cls, text: bytes) -> "Stretch":
        """All of `text`."""
        return cls(text, 0, len(text))

    @property
    def text(self) -> bytes:
        """A copy of the bytes."""
        return self.held[self.lo : self.hi]

    def in_brackets(self) -> bytes:
        """The text as a JSON list."""
        return b"".join((b"[", memoryview(self.held)[self.lo : self.hi], b"]"))


@dataclass(frozen=True, slots=True)
class Block:
    """Text of whole events.

    Attributes:
        index: k.
        start: offset in the text of the file.
        stretch: the events, empty where no boundary lies in the block's part of the file.
        last: whether the text runs to the end of the file, whatever follows the events included.
        endless: whether no boundary was found within the limit.
    """

    index: int
    start: int
    stretch: Stretch
    last: bool = False
    endless: bool = False


def reach(limits: Limits) -> int:
    """Bytes from a block's nominal start on that finding its end takes, unless an event is longer than a block."""
    return 2 * (limits.block_bytes + _OVERLAP)


class Stretches(Protocol):
    """A text as a Cutter needs it."""

    def at(self, offset: int, size: int) -> bytes:
        """The bytes [offset, offset + size), fewer at the end of the text; offsets never fall."""
        ...


class Cutter:
    """Hands out the blocks of a text, at indices that never fall."""

    def __init__(self, text: Stretches, layout: Layout, limits: Limits) -> None:
        self._text, self._layout, self._limits = text, layout, limits

    def block(self, index: int) -> Block | None:
        """Block `index`, None behind the last one."""
        size = self._limits.block_bytes
        nominal = self._layout.first + index * size
        held = self._text.at(nominal, size + _OVERLAP)
        if not held:
            return None
        start = 0
        if index:
            cut = self._layout.cut(held, 0)
            if cut is None or cut.at >= size:
                # Nothing begins here. At the very end of the file the block before holds all there is.
                return Block(index, nominal, Stretch.of(b"")) if len(held) > size else None
            start = cut.start
        wanted = size + _OVERLAP
        while True:
            cut = self._layout.cut(held, max(size, start)) if len(held) > size else None
            if cut is not None:
                return Block(index, nominal + start, Stretch(held, start, cut.end))
            if len(held) < wanted:
                return Block(index, nominal + start, Stretch(held, start, len(held)), last=True)
            if wanted > self._limits.event_bytes:
                return Block(index, nominal + start, Stretch(held, start, len(held)), endless=True)
            wanted *= 2
            held = self._text.at(nominal, wanted)
