"""Tracks -> Perfetto's protobuf trace, by the official Python package (extra "perfetto").

Format: https://perfetto.dev/docs/reference/synthetic-track-event (tracks, slices, interned names).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from wavewise.errors import MissingExtraError
from wavewise.report.export.tracks import Process, Slice, Track

_SEQUENCE = 1


def perfetto_trace(processes: Sequence[Process]) -> bytes:
    """The serialised trace.

    Raises:
        MissingExtraError: the `perfetto` package is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError:
        raise MissingExtraError(
            "a .pftrace needs the perfetto package: pip install 'wavewise[perfetto]', or name a .json file"
        ) from None
    builder = TraceProtoBuilder()
    first = _packet(builder)
    first.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    words = _Words(first.interned_data)
    uuid = 0
    for process in processes:
        uuid += 1
        parent = uuid
        descriptor = _packet(builder).track_descriptor
        descriptor.uuid, descriptor.name = parent, process.name
        descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
        for rank, track in enumerate(process.tracks):
            uuid += 1
            descriptor = _packet(builder).track_descriptor
            descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, track.name
            descriptor.sibling_order_rank = rank
            for at_ns, piece in _edges(track):
                packet = _packet(builder)
                packet.timestamp = at_ns
                packet.sequence_flags = protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
                event = packet.track_event
                event.track_uuid = uuid
                if piece is None:
                    event.type = protos.TrackEvent.TYPE_SLICE_END
                    continue
                event.type = protos.TrackEvent.TYPE_SLICE_BEGIN
                event.name_iid = words.name(piece.name)
                event.category_iids.append(words.category(piece.category))
                _annotate(event, piece, words)
    return builder.serialize()


class _Words:
    """Numbers for texts: kernel names are long, and all words repeat in every step. Texts stand in the first packet."""

    def __init__(self, interned: Any) -> None:
        self._interned = interned
        self._numbers: dict[tuple[str, str], int] = {}

    def name(self, text: str) -> int:
        return self._number("event_names", "name", text)

    def category(self, text: str) -> int:
        return self._number("event_categories", "name", text)

    def key(self, text: str) -> int:
        return self._number("debug_annotation_names", "name", text)

    def value(self, text: str) -> int:
        return self._number("debug_annotation_string_values", "str", text)

    def _number(self, table: str, field: str, text: str) -> int:
        number = self._numbers.get((table, text))
        if number is None:
            number = self._numbers[table, text] = len(self._numbers) + 1
            entry = getattr(self._interned, table).add()
            entry.iid = number
            setattr(entry, field, text.encode() if field == "str" else text)
        return number


def _packet(builder: Any) -> Any:
    packet = builder.add_packet()
    packet.trusted_packet_sequence_id = _SEQUENCE
    return packet


def _edges(track: Track) -> Iterator[tuple[int, Slice | None]]:
    """Beginnings (with their slice) and ends (None) in the order in which a reader must see them."""
    open_until: list[int] = []
    for piece in track.slices:
        while open_until and open_until[-1] <= piece.start_ns:
            yield open_until.pop(), None
        yield piece.start_ns, piece
        open_until.append(piece.start_ns + piece.duration_ns)
    while open_until:
        yield open_until.pop(), None


def _annotate(event: Any, piece: Slice, words: _Words) -> None:
    for key, value in piece.arguments.items():
        if value is None:
            continue
        note = event.debug_annotations.add()
        note.name_iid = words.key(key)
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value_iid = words.value(value)
