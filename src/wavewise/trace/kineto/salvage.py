"""Rung 4: event by event through a stretch of text that no other rung could read.

The stretch may hold damaged events, another writer's lines, the end of one document and the beginning of the
next, and may stop in the middle. Nothing is assumed of it except that it begins outside any event.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from wavewise.trace.kineto.events import CATEGORIES, LAUNCH, Event, RowBuilder, Rows, Tables
from wavewise.trace.kineto.header import EVENT_LIST, Header, read_header
from wavewise.trace.kineto.repair import repair, requote
from wavewise.trace.kineto.typed import UNREADABLE, decode_event
from wavewise.trace.notes import Notes

EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|ts|pid|tid|dur|args|id|s|bp)"\s*:')
"""How an event begins, whoever re-wrote it: its first key is one of the format's."""

_LIST_OF_EVENTS = re.compile(rb"\[[\s,]*" + EVENT_START.pattern)
_EMPTY = re.compile(rb"\{\s*\}")
_SPACE_AND_COMMAS = re.compile(rb"[\s,]*")
# Where an event may end: a brace before the next event, an empty object, or the end of the list.
_END = re.compile(
    rb'\}(?=\s*(?:,\s*)*(?:\{\s*(?:"(?:ph|name|cat|ts|pid|tid|dur|args|id|s|bp)"\s*:|\})|\]|\Z))'
)
_LIST_END = re.compile(rb'\]\s*(?=,\s*"|\}|\[|\{|\Z)')
_DOCUMENT_END = re.compile(rb"\}(?=\s*(?:[\{\[]|\Z))")
_DOCUMENT_START = re.compile(rb"\s*[\[{]")
_TRIES = 64  # ends tried for one event: a list of objects among its arguments can look like events
_REPAIRS = 4  # of these, tried once more after mending
_INNER_TRIES = 64  # closing braces within one event tried as its end
# Bytes of text mended although another event begins in it, to start with and per byte of text read. Where ends are
# missing, every event before the next one is tried up to it: without a bound, a scrambled stretch would cost the
# square of its length. An event whose end alone is damaged costs some 12 KB.
_EFFORT = 1 << 20
_EFFORT_PER_BYTE = 4
_FIELD = {
    name: re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.]+)' % name)
    for name in (b"ph", b"cat", b"ts", b"dur", b"pid", b"tid", b"correlation", b"device", b"stream")
}


Mend = Callable[[bytes, Notes], bytes]
"""Makes sound text of text that is not, and counts what it did."""


@dataclass(slots=True)
class Joint:
    """The end of one document (`tail`: the text behind its list of events) or the start of the next."""

    tail: bytes | None = None
    head: Header | None = None


class Salvager:
    """Reads text that arrives in pieces.

    Args:
        tables: where names and launch shapes are numbered.
        limit: bytes without an event boundary beyond which the text held is given up.
        lines: whether the events are lines of their own, without a list and its commas.
    """

    def __init__(self, tables: Tables, limit: int, *, lines: bool = False) -> None:
        self._tables = tables
        self._limit = limit
        self._lines = lines
        self._inside = True  # a list of events
        self._behind_event = False
        self._at_end_of_file = False
        self._builder = RowBuilder(tables)
        self._held = b""
        self._ends = _Ends(self._held)
        self._effort = _EFFORT

    def feed(self, text: bytes) -> Iterator[Rows | Joint]:
        """What can be read now."""
        self._held += text
        self._effort += _EFFORT_PER_BYTE * len(text)
        yield from self._run(final=False)
        if len(self._held) > self._limit:
            self._builder.notes.add("oversized_event")
            self._held = b""
        yield self._flush()

    def finish(self, *, end_of_file: bool) -> Iterator[Rows | Joint]:
        """What remains, the text being at its end."""
        self._at_end_of_file = end_of_file
        yield from self._run(final=True)
        rest = self._held.strip(b" \t\r\n,\x00")
        if end_of_file and (rest or (self._inside and not self._lines)):
            self._builder.notes.add("truncated" if self._inside else "trailing_text")
            if self._inside and rest:
                self._rescue(rest)
        elif rest:
            self._lose(rest)
        self._held = b""
        yield self._flush()

    def _flush(self) -> Rows:
        rows = self._builder.rows()
        self._builder = RowBuilder(self._tables)
        return rows

    def _run(self, *, final: bool) -> Iterator[Rows | Joint]:
        position = 0
        self._ends = _Ends(self._held)
        while True:
            position = self._after_commas(position)
            if position >= len(self._held):
                break
            before = position, self._inside
            if not self._inside:
                position, joint = self._between(position, final)
            elif self._held[position] == 0x5D:  # ]
                position, joint = self._list_end(position, final)
            else:
                position, joint = self._event(position, final), None
            if joint is not None:
                yield self._flush()
                yield joint
            if (position, self._inside) == before:  # to stray events, it steps inside without moving
                break
        self._held = self._held[position:]

    def _after_commas(self, position: int) -> int:
        """Behind white space and commas; within a list there is one comma between events."""
        gap = _SPACE_AND_COMMAS.match(self._held, position)
        assert gap is not None  # the pattern matches nothing, too
        if self._inside and not self._lines and gap.end() < len(self._held):
            commas = gap[0].count(b",")
            self._builder.notes.add("extra_comma", max(0, commas - 1))
            if not commas and self._behind_event and self._held[gap.end()] == 0x7B:
                self._builder.notes.add("missing_comma")
            self._behind_event = False
        return gap.end()

    def _event(self, start: int, final: bool) -> int:
        """Reads the event (or skips what is none) at `start`; the position behind it, `start` to wait."""
        text, notes = self._held, self._builder.notes
        if text[start] != 0x7B:  # {
            following = EVENT_START.search(text, start)
            line_end = text.find(b"\n", start)
            if following is None and not final:
                return start
            stop = following.start() if following else (line_end + 1 if line_end >= 0 else len(text))
            if following or line_end >= 0:
                notes.add("foreign_text")
                return stop
            return start
        empty = _EMPTY.match(text, start)
        if empty:
            return empty.end()
        ends: list[int] = []
        for end in islice(self._ends.behind(start), _TRIES):
            if self._accept(text[start:end]):
                return end
            ends.append(end)
        if len(ends) < _TRIES and not final:
            return start  # its end may be in the text to come
        for mend in (repair, _requoted):
            for end in ends[:_REPAIRS]:
                if self._accept(text[start:end], mend):
                    return end
        if not ends:
            return start  # cut off: finish() deals with it
        return self._past_damage(start, ends[0])

    def _accept(self, piece: bytes, mend: Mend | None = None) -> bool:
        notes = None
        try:
            if mend is not None:
                if EVENT_START.search(piece, 1):
                    if len(piece) > self._effort:
                        return False
                    self._effort -= len(piece)
                notes = Notes()
                piece = mend(piece, notes)
            event = decode_event(piece)
        except UNREADABLE:
            return False
        if notes:
            self._builder.notes.update(notes)
        self._builder.add(event)
        self._builder.events += 1
        self._behind_event = True
        return True

    def _past_damage(self, start: int, first_end: int) -> int:
        """The event at `start` cannot be read up to where it seems to end: find what of it can be.

        In turn: it ended earlier and foreign text follows it; foreign lines lie within it; it never ended, and
        another event begins before its seeming end; it is lost.
        """
        text = self._held
        end = start
        for _ in range(_INNER_TRIES):
            end = text.find(b"}", end, first_end - 1) + 1
            if not end:
                break
            if self._accept(text[start:end], repair):
                return end
        if self._without_foreign_lines(text[start:first_end]):
            return first_end
        following = EVENT_START.search(text, start + 1, first_end)
        stop = following.start() if following else first_end
        if stop == len(text) and self._at_end_of_file:
            return start  # cut off: finish() deals with it
        self._lose(text[start:stop])
        return stop

    def _without_foreign_lines(self, piece: bytes) -> bool:
        """Tries the event without those of its lines that do not look like its own."""
        lines = piece.split(b"\n")
        own = [line for line in lines if not line or line[:1] in b' \t\r"{}[]']
        if 0 < len(lines) - len(own) <= 64 and self._accept(b"\n".join(own), repair):
            self._builder.notes.add("foreign_line_removed", len(lines) - len(own))
            return True
        return False

    def _lose(self, piece: bytes) -> None:
        self._builder.notes.add("malformed_event" if EVENT_START.match(piece) else "foreign_text")
        self._rescue(piece)

    def _rescue(self, piece: bytes) -> None:
        """Keeps the times and the correlation of an unreadable GPU record, so that its step can be told."""
        found = {
            name: match[1]
            for name, field in _FIELD.items()
            if (match := field.search(piece)) and _decodes(match[1])
        }
        category = found.get(b"cat", b"").strip(b'"').decode(errors="replace")
        if found.get(b"ph") != b'"X"' or CATEGORIES.get(category, LAUNCH) >= LAUNCH:
            return
        pid, tid = (decode_any(found[name]) if name in found else None for name in (b"pid", b"tid"))
        arguments = [
            b'"%b":%b' % (name, found[name])
            for name in (b"correlation", b"device", b"stream")
            if name in found
        ]
        event = Event(
            ph="X",
            cat=category,
            name="(unreadable)",
            pid=pid,
            tid=tid,
            ts=msgspec.Raw(found.get(b"ts", b"")),
            dur=msgspec.Raw(found.get(b"dur", b"")),
            args=msgspec.Raw(b"{%b}" % b",".join(arguments)),
        )
        self._builder.add(event, malformed=True)

    def _list_end(self, start: int, final: bool) -> tuple[int, Joint | None]:
        """The bracket at `start`: the end of the list, or a stray one."""
        text = self._held
        if _LIST_END.match(text, start):
            end = start + 1
            for _ in range(_TRIES):
                found = _DOCUMENT_END.search(text, end)
                if found is None or (found.end() == len(text) and not final):
                    break
                end = found.end()
                tail = text[start + 1 : end]
                if _decodes(b'{"":0' + tail):
                    self._inside = False
                    return end, Joint(tail=tail)
            if _DOCUMENT_START.match(text, start + 1):  # behind a bare list
                self._inside = False
                return start + 1, Joint(tail=b"")
            if not final:
                return start, None
            if EVENT_START.search(text, start + 1) is None:  # the list's end, and a damaged rest
                rest = text[start + 1 :]
                if rest.strip():
                    self._builder.notes.add("truncated")
                self._inside = False
                return len(text), Joint(tail=rest)
        self._builder.notes.add("foreign_text")
        return start + 1, None

    def _between(self, start: int, final: bool) -> tuple[int, Joint | None]:
        """Outside any list: the next document's beginning, a stray event, or text of no meaning."""
        text = self._held
        if EVENT_START.match(text, start):
            self._inside = True
            return start, None
        if text[start] in b"{[":
            found = EVENT_LIST.search(text, start) if text[start] == 0x7B else None
            if text[start] == 0x5B and _LIST_OF_EVENTS.match(text, start):
                self._inside = True
                return start + 1, Joint(head=Header())
            if found:
                self._inside = True
                head = Joint(head=read_header(text[start : found.end()] + b"]}", self._builder.notes))
                return found.end(), head
            if not final:
                return start, None
        line_end = text.find(b"\n", start)
        if line_end < 0 and not final:
            return start, None
        self._builder.notes.add("trailing_text")
        return (line_end + 1 if line_end >= 0 else len(text)), None


class _Ends:
    """Where events may end in a text. Looked for once, however many events begin before an end."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._found: list[int] = []
        self._searched = 0

    def behind(self, start: int) -> Iterator[int]:
        """The ends behind `start`, which never falls from call to call."""
        self._searched = max(self._searched, start)
        at = bisect_right(self._found, start)
        while True:
            if at == len(self._found):
                match = _END.search(self._text, self._searched)
                self._searched = match.end() if match else len(self._text)
                if match is None:
                    return
                self._found.append(match.end())
            yield self._found[at]
            at += 1


def _requoted(piece: bytes, notes: Notes) -> bytes:
    return repair(requote(piece, notes), notes)


decode_any = msgspec.json.Decoder().decode


def _decodes(text: bytes) -> bool:
    try:
        decode_any(text)
    except UNREADABLE:
        return False
    return True
