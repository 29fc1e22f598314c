"""Rung 2: any sound JSON, decoded into typed records."""

from collections.abc import Iterable

import msgspec

from wavewise.trace.kineto.blocks import Stretch
from wavewise.trace.kineto.events import CATEGORIES, LEGACY_OPERATOR, Event, RowBuilder, Rows, Tables

decode_event = msgspec.json.Decoder(Event).decode
_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_lines = msgspec.json.Decoder(Event).decode_lines

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding text that is no sound JSON of the wanted type can raise."""


def typed(stretch: Stretch, tables: Tables) -> Rows | None:
    """The rows of whole events separated by commas; None where the text is anything else."""
    return typed_list(stretch.in_brackets(), tables)


def typed_list(text: bytes, tables: Tables) -> Rows | None:
    """The rows of a JSON list of events; None where it is anything else."""
    try:
        return _rows(_decode_list(text), tables)
    except UNREADABLE:
        return None


def typed_lines(stretch: Stretch, tables: Tables) -> Rows | None:
    """The rows of events on lines of their own, without commas between them."""
    try:
        return _rows(_decode_lines(stretch.text), tables)
    except UNREADABLE:
        return None


def _rows(events: Iterable[Event], tables: Tables) -> Rows:
    builder = RowBuilder(tables)
    add = builder.add
    count = 0
    for event in events:
        count += 1
        cat = event.cat
        if cat.__class__ is str:
            if cat in CATEGORIES or cat == LEGACY_OPERATOR:
                add(event)
        elif event.ph is None:  # an empty object
            count -= 1
    builder.events = count
    return builder.rows()
