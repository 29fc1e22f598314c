"""A whole file: its head, its blocks, what only salvage could read, and the documents they make up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wavewise.errors import InputError
from wavewise.trace.kineto.blocks import Layout, layout_of
from wavewise.trace.kineto.events import Rows, Tables
from wavewise.trace.kineto.header import EVENT_LIST, Header, read_header
from wavewise.trace.kineto.ladder import BlockResult
from wavewise.trace.kineto.salvage import EVENT_START, Joint, Salvager
from wavewise.trace.kineto.workers import read_blocks
from wavewise.trace.notes import Notes
from wavewise.trace.progress import Progress
from wavewise.trace.source import UTF8_BOM, Limits, Text, open_text

_HEAD_STEP = 1 << 16


@dataclass(slots=True)
class Document:
    """One document while it is put together."""

    header: Header = field(default_factory=dict[str, Any])
    parts: list[Rows] = field(default_factory=list[Rows])
    notes: Notes = field(default_factory=Notes)


def read_documents(
    path: str,
    limits: Limits,
    tables: Tables,
    progress: Progress | None,
    meanwhile: Callable[[], object],
) -> list[Document]:
    """The documents of the file at `path`, in file order; one at least.

    Args:
        path: the file.
        limits: what it may cost.
        tables: where names and launch shapes are numbered.
        progress: called with what is being done and the share done.
        meanwhile: see `read_blocks`.

    Raises:
        InputError: the file cannot be read or holds no trace.
    """
    text = open_text(path, limits)
    try:
        head, layout = _head(text, path, limits)
        results = read_blocks(path, text, layout, limits, tables, progress, meanwhile)
        packing = text.notes
    finally:
        text.close()
    documents = list(_assemble(path, head, layout, results, limits, tables))
    documents[0].notes.update(packing)
    return documents


def _head(text: Text, path: str, limits: Limits) -> tuple[Document, Layout]:
    """Reads up to the first event.

    Raises:
        InputError: this is no trace.
    """
    held = text.at(0, _HEAD_STEP)
    skip = len(UTF8_BOM) if held.startswith(UTF8_BOM) else 0
    start = len(held) - len(held[skip:].lstrip(b" \t\r\n\0"))
    if start == len(held) and len(held) < _HEAD_STEP:
        what = "nothing of it can be unpacked" if text.notes.salvaged else "nothing but white space in it"
        raise InputError(f"{path}: not a trace ({what})")
    document = Document()
    if EVENT_START.match(held, start):
        return document, Layout(start, lines=True)
    if held[start : start + 1] == b"[":
        first = start + 1
        if EVENT_START.search(held, first) is None and not held[first:].strip().startswith((b"{}", b"]")):
            raise InputError(f"{path}: not a trace (a list, but not of trace events)")
        return document, layout_of(first, held[first : first + 64])
    if held[start : start + 1] != b"{":
        raise InputError(f"{path}: not a trace (neither trace JSON nor an Nsight Systems SQLite export)")
    while (found := EVENT_LIST.search(held, start)) is None:
        longer = text.at(0, 2 * len(held))
        if len(longer) == len(held) or len(held) > limits.event_bytes:
            raise InputError(f"{path}: not a trace (JSON without traceEvents)")
        held = longer
    document.header = read_header(held[start : found.end()] + b"]}", document.notes)
    first = found.end()
    return document, layout_of(first, held[first : first + 64] or text.at(first, 64))


def _assemble(
    path: str,
    head: Document,
    layout: Layout,
    results: list[BlockResult],
    limits: Limits,
    tables: Tables,
) -> Iterator[Document]:
    """Puts rows and joints in order; what no rung could read is salvaged in a second look at the file."""
    document = head
    again: Text | None = None
    salvager: Salvager | None = None
    ended = layout.lines  # whether the end of the text has been judged
    for position, result in enumerate(results):
        pieces: list[Rows | Joint] = []
        if result.rows is not None:
            pieces = [result.rows] if result.tail is None else [result.rows, Joint(tail=result.tail)]
            ended = ended or result.tail is not None
        elif result.start < result.end:
            again = again or open_text(path, limits)
            salvager = salvager or Salvager(tables, limits.event_bytes, lines=layout.lines)
            following = next((other for other in results[position + 1 :] if other.start < other.end), None)
            joined = following is not None and following.rows is None
            # Up to the next one's start, if that is in doubt, too: what lies between may be part of an event.
            end = following.start if following is not None and joined and not result.endless else result.end
            pieces = list(salvager.feed(again.at(result.start, end - result.start)))
            if not joined:
                pieces += salvager.finish(end_of_file=following is None)
                salvager = None
                ended = ended or following is None
        for piece in pieces:
            if isinstance(piece, Rows):
                document.parts.append(piece)
                document.notes.update(piece.notes)
            elif piece.tail is not None:
                document.header |= read_header(b'{"traceEvents":0' + (piece.tail or b"}"), document.notes)
            elif piece.head is not None:
                yield document
                document = Document(header=piece.head)
    if again is not None:
        again.close()
    if not ended:  # cut off between a block's last event and the next, which is not there
        document.notes.add("truncated")
    yield document
