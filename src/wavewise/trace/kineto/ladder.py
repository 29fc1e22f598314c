"""The ladder: one block, read by the fastest rung that can."""

from collections.abc import Callable, Iterator

import msgspec

from wavewise.trace.kineto.blocks import Block, Layout, Stretch
from wavewise.trace.kineto.events import Rows, Tables
from wavewise.trace.kineto.repair import mend
from wavewise.trace.kineto.scan import scan
from wavewise.trace.kineto.typed import UNREADABLE, typed, typed_lines, typed_list
from wavewise.trace.notes import Notes

_TAIL_TRIES = 512
"""Brackets tried as the end of the list. The keys behind it hold some of their own (process groups, GPUs)."""


Rung = Callable[[Stretch, Tables], Rows | None]
"""Reads the text of whole events, or returns None."""


class BlockResult(msgspec.Struct, gc=False):
    """What became of a block.

    Attributes:
        index: the block's.
        start, end: its stretch of the text.
        rows: None where only salvage can help.
        last: whether it is the last one.
        endless: whether its end was not found within the limit.
        rung: what read it.
        tail: the text behind the list of events, in the last block.
    """

    index: int
    start: int
    end: int
    rows: Rows | None = None
    tail: bytes | None = None
    last: bool = False
    endless: bool = False
    rung: str = "salvage"


def read_block(block: Block, layout: Layout, tables: Tables) -> BlockResult:
    """Climbs down the ladder until a rung holds; `rows` is None where none does."""
    result = BlockResult(
        block.index, block.start, block.start + block.stretch.hi - block.stretch.lo,
        last=block.last, endless=block.endless,
    )  # fmt: skip
    if block.endless:
        return result
    if layout.lines:
        rungs: tuple[Rung, ...] = (typed_lines,)
    elif layout.kineto:
        rungs = (scan, typed, repaired)
    else:
        rungs = (typed, repaired)
    # The last block holds the end of the list and what follows it; where it ends may be told in several ways.
    readings: list[tuple[Stretch, bytes | None]] = [(block.stretch, None)]
    if block.last and not layout.lines:
        readings = [(Stretch.of(text), tail) for text, tail in split_tail(block.stretch.text)]
    for rung in rungs:
        for stretch, tail in readings:
            rows = rung(stretch, tables)
            if rows is not None:
                result.rows, result.tail, result.rung = rows, tail, rung.__name__
                return result
    return result


def repaired(stretch: Stretch, tables: Tables) -> Rows | None:
    """Rung 3: the rows of a stretch of text once mended."""
    notes = Notes()
    rows = typed_list(b"[%b]" % mend(stretch.text, notes), tables)
    if rows is not None:
        rows.notes.update(notes)
    return rows


def split_tail(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The ways to part the events from what follows their list: other keys of the document, its closing brace.

    Behind the bracket looked for, the sound rest of an object follows (or, for a bare list, nothing); before it,
    an event or a comma. Other lists of the document can look the same; whether the events are sound, and with
    that which reading is right, is for the rungs to say.
    """
    if text[-64:].rstrip()[-1:] not in (b"]", b"}"):
        return
    end = len(text)
    for _ in range(_TAIL_TRIES):
        end = text.rfind(b"]", 0, end)
        if end < 0:
            return
        before = text[max(0, end - 64) : end].rstrip()
        if before and before[-1:] not in b"},":
            continue
        rest = text[end + 1 :].strip()
        if not rest or (rest[:1] in b",}" and _decodes(b'{"":0' + rest)):
            yield text[:end].rstrip(), rest


_decode = msgspec.json.Decoder().decode


def _decodes(text: bytes) -> bool:
    try:
        _decode(text)
    except UNREADABLE:
        return False
    return True
