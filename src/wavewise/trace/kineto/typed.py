"""Rung 2: any sound JSON, decoded into typed records."""

from collections.abc import Iterable

import msgspec

from wavewise.trace.kineto.events import CATEGORIES, LEGACY_OPERATOR, Event, RowBuilder, Rows, Tables

decode_event = msgspec.json.Decoder(Event).decode
_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_lines = msgspec.json.Decoder(Event).decode_lines

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding text that is no sound JSON of the wanted type can raise."""


def typed(text: bytes, tables: Tables) -> Rows | None:
    """The rows of `text`, whole events separated by commas; None where it is anything else."""
    return typed_list(b"[%b]" % text, tables)


def typed_list(text: bytes, tables: Tables) -> Rows | None:
    """The rows of a JSON list of events; None where it is anything else."""
    try:
        return _rows(_decode_list(text), tables)
    except UNREADABLE:
        return None


def typed_lines(text: bytes, tables: Tables) -> Rows | None:
    """The rows of events on lines of their own, without commas between them."""
    try:
        return _rows(_decode_lines(text), tables)
    except UNREADABLE:
        return None


def _rows(events: Iterable[Event], tables: Tables) -> Rows:
    builder = RowBuilder(tables)
    add = builder.add
    count = 0
    for event in events:
        cat = event.cat
        count += event.ph is not None
        if cat.__class__ is str and (cat in CATEGORIES or cat == LEGACY_OPERATOR):
            add(event)
    builder.events = count
    return builder.rows()
