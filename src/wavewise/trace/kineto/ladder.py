"""The ladder: one block, read by the fastest rung that can."""

import msgspec

from wavewise.trace.kineto.blocks import Block, Layout
from wavewise.trace.kineto.events import Rows, Tables
from wavewise.trace.kineto.repair import repair
from wavewise.trace.kineto.typed import UNREADABLE, typed, typed_lines, typed_list
from wavewise.trace.notes import Notes

_TAIL_TRIES = 512
"""Brackets tried as the end of the list. The keys behind it hold some of their own (process groups, GPUs)."""


class BlockResult(msgspec.Struct, gc=False):
    """What became of a block.

    Attributes:
        index: the block's.
        start, end: its stretch of the text.
        rows: None where only salvage can help.
        tail: the text behind the list of events, in the last block.
    """

    index: int
    start: int
    end: int
    rows: Rows | None = None
    tail: bytes | None = None
    last: bool = False
    rung: int = 0


def read_block(block: Block, layout: Layout, tables: Tables) -> BlockResult:
    """Climbs down the ladder until a rung holds; `rows` is None where none does."""
    result = BlockResult(block.index, block.start, block.start + len(block.text), last=block.last)
    text = block.text
    if block.endless:
        return result
    if block.last and not layout.lines:
        split = split_tail(text)
        if split is None:
            return result
        text, result.tail = split
    if layout.lines:
        result.rows = typed_lines(text, tables)
    else:
        result.rows = typed(text, tables)
        if result.rows is None:
            result.rows = repaired(text, tables)
    if result.rows is None:
        result.tail = None
    return result


def repaired(text: bytes, tables: Tables) -> Rows | None:
    """Rung 3: the rows of `text` once mended."""
    notes = Notes()
    rows = typed_list(repair(b"[%b]" % text, notes), tables)
    if rows is not None:
        rows.notes.update(notes)
    return rows


def split_tail(text: bytes) -> tuple[bytes, bytes] | None:
    """Parts the events from what follows their list: the other keys of the document and its closing brace.

    The bracket looked for is the last one behind which a sound rest of an object follows (or, for a bare list,
    nothing). Whether the events before it are sound is for the rungs to say.
    """
    if text[-64:].rstrip()[-1:] not in (b"]", b"}"):
        return None
    end = len(text)
    for _ in range(_TAIL_TRIES):
        end = text.rfind(b"]", 0, end)
        if end < 0:
            return None
        rest = text[end + 1 :].strip()
        if not rest:
            return text[:end], b""
        if rest[:1] in b",}" and _decodes(b'{"":0' + rest):
            return text[:end], rest
    return None


_decode = msgspec.json.Decoder().decode


def _decodes(text: bytes) -> bool:
    try:
        _decode(text)
    except UNREADABLE:
        return False
    return True
