"""Rung 1: the line layout that Kineto's own writer gives an event, read with vector operations.

    "  {"
    "    "ph": "X", "cat": "kernel", "name": "...", "pid": 0, "tid": 7,"
    "    "ts": 5121164781333.191, "dur": 0.735,"
    "    "args": {"
    "      "External id": 12349,"queued": 0, ..., "correlation": 693721, ..."
    "    }"
    "  },"

Lines are found, not parsed: each event's frame is checked, the events worth keeping are picked by the eight bytes
of their category, and their numbers are read from the digits, eight at a time. The text between the numbers (the
first line, and the arguments without their two ids) repeats from event to event, so it is looked up whole in a
dictionary and decoded as JSON only when it is new.

Whatever does not look exactly so, in any respect, makes `scan` return None, and the block goes one rung down.
"""

from collections.abc import Callable
from operator import add

import numpy as np
import numpy.typing as npt

from wavewise.trace.kineto.blocks import Stretch
from wavewise.trace.kineto.events import (
    CATEGORIES,
    LAUNCH,
    MARKER,
    MISSING,
    Args,
    Indices,
    Ints,
    Key,
    Rows,
    Shape,
    Tables,
    decode_args,
    shape_of,
    thread_of,
)
from wavewise.trace.kineto.typed import UNREADABLE, decode_event
from wavewise.trace.notes import Notes

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.intp]

_LINES_WITH_ARGS, _LINES_WITHOUT = 5, 2  # between the braces of an event
_PADDING = 32  # bytes: words are read past the end of the last line


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text[:8], "little"))


_OPENS = _word(b"  {\n")
_CLOSES = _word(b"  },\n")
_FOUR_BYTES, _FIVE_BYTES, _SIX_BYTES = (np.uint64((1 << 8 * count) - 1) for count in (4, 5, 6))
_PH, _PH_X = _word(b'    "ph"'), _word(b': "X", "')
_CAT, _DUR = _word(b'"cat": "'), _word(b', "dur":')
_TS, _TS_END = _word(b'    "ts"'), _word(b'  "ts": ')  # at the line's start, and two bytes on
_ARGS, _ARGS_END = _word(b'    "arg'), _word(b'args": {')  # likewise, five bytes on
_ARGS_CLOSE = _word(b"    }\n")
_ARGS_LENGTH = len(b'    "args": {\n')
_CORRELATION, _CORRELATION_END = _word(b'"correla'), _word(b'ation": ')  # the second, seven bytes on
_EXTERNAL = _word(b'"Externa')
_CAT_AT = 15  # of '"cat": ' within '    "ph": "X", "cat": '
_KEPT = sorted((_word((name + '", "name').encode()), kind) for name, kind in CATEGORIES.items())
_KEPT_WORDS = np.array([word for word, _ in _KEPT], np.uint64)
_KEPT_KINDS = np.array([kind for _, kind in _KEPT], np.int32)
_OPERATOR = _word(b"Operator")

_ZEROS = _word(b"0" * 8)
_HIGH_NIBBLES = np.uint64(0xF0F0_F0F0_F0F0_F0F0)
_SIXES = np.uint64(0x0606_0606_0606_0606)


class _UnexpectedError(Exception):
    """The text is not laid out as this rung needs it."""


def scan(stretch: Stretch, tables: Tables) -> Rows | None:
    """The rows of whole events in Kineto's layout; None where the text is anything else."""
    try:
        return _Scan(stretch, tables).rows()
    except _UnexpectedError:
        return None


class _Scan:
    """One block under the scan. Positions are offsets in `text`; every array has one element per kept event."""

    def __init__(self, stretch: Stretch, tables: Tables) -> None:
        if len(stretch.held) < stretch.hi + _PADDING:
            stretch = Stretch(stretch.text + b" " * _PADDING, 0, stretch.hi - stretch.lo)
        self._text, self._begin, self._end = stretch.held, stretch.lo, stretch.hi
        self._tables = tables
        # One word at every byte offset: gathering from it reads eight bytes wherever they start.
        self._words: Words = np.ndarray((len(self._text) - 7,), "<u8", self._text, 0, (1,))

    def rows(self) -> Rows:
        """The kept events."""
        begins, lengths, line_starts, count = self._frames()
        kind, kept = self._kinds(line_starts[begins + 1])
        begins, lengths = begins[kept], lengths[kept]
        first_line, time_line = line_starts[begins + 1], line_starts[begins + 2]
        start, duration, has_args = self._times(time_line, line_starts[begins + 3] - 1)
        _require((lengths == np.where(has_args, _LINES_WITH_ARGS, _LINES_WITHOUT)).all())
        last = len(line_starts) - 1
        arg_line, arg_end = (
            line_starts[np.minimum(begins + 4, last)],
            line_starts[np.minimum(begins + 5, last)] - 1,
        )
        self._check_arguments(begins[has_args], line_starts)
        correlation = np.full(len(kept), MISSING, np.int64)
        shape = np.full(len(kept), -1, np.int32)
        gpu = kind < LAUNCH
        _require(has_args[gpu].all())
        called = np.flatnonzero(has_args & (kind != MARKER))
        found, digits_end = self._correlations(called, arg_line, arg_end, correlation)
        shape[gpu] = self._shapes(np.flatnonzero(gpu), arg_line, arg_end, found, digits_end)
        self._check_launches(called[~gpu[called]], arg_line, arg_end, found, digits_end)
        key = self._keys(first_line, time_line - 1)
        return Rows(key, shape, start, duration, correlation, count, Notes())

    def _frames(self) -> tuple[Positions, Positions, Positions, int]:
        """Per event the number of its opening line and of the lines in it; where each line starts; the count."""
        text = np.frombuffer(self._text, np.uint8, self._end - self._begin, self._begin)
        newline = (text == 10).nonzero()[0]
        _require(len(newline) >= 4)
        line_starts = np.empty(len(newline) + 2, np.intp)
        line_starts[0] = self._begin
        np.add(newline, self._begin + 1, out=line_starts[1:-1])
        line_starts[-1] = self._end + 1  # the last line has no line end
        opens = np.flatnonzero(np.diff(line_starts) == 4)  # "  {" and its line end, or the last line's "  }"
        if line_starts[-2] == self._end - 3 and len(opens):
            opens = opens[:-1]
        words = self._words
        _require(len(opens) > 0 and opens[0] == 0)
        _require((words[line_starts[opens]] & _FOUR_BYTES == _OPENS).all())
        # Each event closes on the line before the next one opens; the last one on the last line.
        _require((words[line_starts[opens[1:] - 1]] & _FIVE_BYTES == _CLOSES).all())
        _require(self._text[line_starts[-2] : self._end] == b"  }")
        lengths = np.diff(opens, append=len(line_starts) - 1) - 2
        # Kept or not: two events run together by damage would hide the second one.
        _require(((lengths == _LINES_WITHOUT) | (lengths == _LINES_WITH_ARGS)).all())
        _require((words[line_starts[opens + 1]] == _PH).all())
        return opens, lengths, line_starts, len(opens)

    def _kinds(self, first_line: Positions) -> tuple[Indices, Positions]:
        """The kind of every event, and which are kept."""
        words = self._words
        complete = words[first_line + 8] == _PH_X
        category = np.where(complete, words[first_line + _CAT_AT + 8], np.uint64(0))
        _require((words[first_line[complete] + _CAT_AT] == _CAT).all())
        _require(not (category == _OPERATOR).any())
        place = np.minimum(np.searchsorted(_KEPT_WORDS, category), len(_KEPT_WORDS) - 1)
        kept = np.flatnonzero(_KEPT_WORDS[place] == category)
        return _KEPT_KINDS[place[kept]], kept

    def _check_arguments(self, begins: Positions, line_starts: Positions) -> None:
        """Makes sure that "args" opens on the third line of each event and closes on the fifth."""
        words, opening = self._words, line_starts[begins + 3]
        _require((words[opening] == _ARGS).all() and (words[opening + 5] == _ARGS_END).all())
        _require((line_starts[begins + 4] - opening == _ARGS_LENGTH).all())
        _require((words[line_starts[begins + 5]] & _SIX_BYTES == _ARGS_CLOSE).all())

    def _times(self, line: Positions, end: Positions) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Start and duration in nanoseconds from '    "ts": D.ddd, "dur": D.ddd', and whether a comma follows."""
        words, text = self._words, np.frombuffer(self._text, np.uint8)
        if not len(line):
            return line.astype(np.int64), line.astype(np.int64), np.zeros(0, np.bool_)
        _require((words[line] == _TS).all() and (words[line + 2] == _TS_END).all())
        number = line + 10
        dot = self._text.find(b".", int(number[0]), int(number[0]) + 20) - int(number[0])
        _require(
            1 <= dot <= 16 and (text[number + dot] == 46).all()
        )  # time stamps of one file are of one width
        start = _digits(words[number + dot - 8], min(dot, 8))
        if dot > 8:
            start = start + _digits(words[number + dot - 16], dot - 8) * 100_000_000
        start = start * 1000 + _digits(words[number + dot - 4], 3)
        after = number + dot + 4
        _require((words[after] == _DUR).all())
        has_args = text[end - 1] == 44
        end = end - has_args
        width = end - (after + 9)  # of D.ddd
        _require((text[after + 8] == 32).all() and (text[end - 4] == 46).all())
        _require(width.min() >= 5 and width.max() <= 12)
        duration = _digits(words[end - 12], width - 4) * 1000 + _digits(words[end - 8], 3)
        return start, duration, has_args

    def _correlations(
        self, rows: Positions, line: Positions, end: Positions, correlation: Ints
    ) -> tuple[Positions, Positions]:
        """Fills in `correlation` of `rows`; returns where the digits begin and end, per event (0 where absent).

        The id stands at one of a few distances from the line's start (ids before it differ in length). Each
        distance is learned from one line and tried on all that are left.
        """
        begin = np.zeros(len(line), np.intp)
        while len(rows):
            at, stop = int(line[rows[0]]), int(end[rows[0]])
            found = self._text.find(b'"correlation": ', at, stop)
            if found < 0:
                _require(self._text.find(b'"correlation"', at, stop) < 0)
                rows = rows[1:]
                continue
            place = np.minimum(line[rows] + (found - at), self._end)
            hit = (place < end[rows]) & (self._words[place] == _CORRELATION)
            hit &= self._words[place + 7] == _CORRELATION_END
            begin[rows[hit]] = place[hit] + 15
            rows = rows[~hit]
        have = np.flatnonzero(begin)
        digits_end = np.zeros(len(line), np.intp)
        correlation[have], digits_end[have] = self._integers(begin[have])
        return begin, digits_end

    def _integers(self, begin: Positions) -> tuple[Ints, Positions]:
        """The whole numbers of up to 16 digits that begin at `begin`, and where they end."""
        low, high = _not_digits(self._words[begin]), _not_digits(self._words[begin + 8])
        _require(((low != 0) | (high != 0)).all())
        width = np.where(low != 0, _first_byte(low), 8 + _first_byte(high))
        _require(len(width) == 0 or width.min() > 0)
        end = begin + width
        value = _digits(self._words[end - 8], np.minimum(width, 8))
        long = np.flatnonzero(width > 8)
        if len(long):
            value[long] += _digits(self._words[end[long] - 16], width[long] - 8) * 100_000_000
        return value, end

    def _keys(self, line: Positions, end: Positions) -> Indices:
        """Kind, name, pid and tid, by the text of the first line."""
        pieces = self._pieces(line + _CAT_AT, end)
        return _looked_up(pieces, self._tables.key_text, lambda at: self._tables.keys.of(_key(pieces[at])))

    def _pieces(self, begin: Positions, end: Positions) -> list[bytes]:
        """The text between each pair of positions; `map` keeps the loop in C."""
        return list(map(self._text.__getitem__, map(slice, begin.tolist(), end.tolist())))

    def _shapes(
        self, rows: Positions, line: Positions, end: Positions, begin: Positions, digits_end: Positions
    ) -> Indices:
        """Launch shapes of GPU operations, by the text of their arguments without the ids."""
        pieces, cuts = self._arguments(rows, line, end, begin, digits_end)

        def shape(at: int) -> int:
            return self._tables.shapes.of(_shape(_with_zero(pieces[at], cuts[at])))

        return _looked_up(pieces, self._tables.shape_text, shape)

    def _check_launches(
        self, rows: Positions, line: Positions, end: Positions, begin: Positions, digits_end: Positions
    ) -> None:
        """Makes sure that the arguments of host calls are sound, and the id found in them theirs."""
        pieces, cuts = self._arguments(rows, line, end, begin, digits_end)

        def sound(at: int) -> int:
            _sound_arguments(_with_zero(pieces[at], cuts[at]))
            return 0

        _looked_up(pieces, self._tables.launch_text, sound)

    def _arguments(
        self, rows: Positions, line: Positions, end: Positions, begin: Positions, digits_end: Positions
    ) -> tuple[list[bytes], list[int]]:
        """The text of arguments without External id and correlation, and where the latter was (-1: nowhere)."""
        line, end, begin, digits_end = line[rows], end[rows], begin[rows], digits_end[rows]
        external = self._words[line + 6] == _EXTERNAL
        at = line.copy()
        _, at[external] = self._integers(line[external] + 21)
        absent = begin == 0
        begin, digits_end = np.where(absent, end, begin), np.where(absent, end, digits_end)
        pieces = list(map(add, self._pieces(at, begin), self._pieces(digits_end, end)))
        return pieces, np.where(absent, -1, begin - at).tolist()


def _with_zero(piece: bytes, cut: int) -> bytes:
    """The arguments with 0 for the correlation id that was taken out at `cut`."""
    return piece if cut < 0 else piece[:cut] + b"0" + piece[cut:]


def _looked_up(pieces: list[bytes], known: dict[bytes, int], number: Callable[[int], int]) -> Indices:
    """The numbers of `pieces`; of those not yet known, by `number` of their place."""
    found = list(map(known.get, pieces))
    if None in found:
        for i, piece in enumerate(pieces):
            if found[i] is None:
                if piece not in known:
                    known[piece] = number(i)
                found[i] = known[piece]
    return np.array(found, np.int32)


def _key(piece: bytes) -> Key:
    """The key that a first line tells, from its category on."""
    try:
        event = decode_event(b"{%b}" % piece.rstrip(b","))
    except UNREADABLE as error:
        raise _UnexpectedError from error
    _require(isinstance(event.name, str) and event.ph is None)  # else a key stands twice
    _require(not event.ts and not event.dur and not event.args)
    _require(event.cat in CATEGORIES)  # eight bytes of it are: "cuda_run" is not yet "cuda_runtime"
    return CATEGORIES[event.cat], event.name, *thread_of(event)


def _shape(arguments: bytes) -> Shape:
    """The launch shape that a line of arguments tells; device and stream must be among them."""
    args = _sound_arguments(arguments)
    _require(args.device is not None and args.stream is not None)
    return shape_of(args, None, None)


def _sound_arguments(arguments: bytes) -> Args:
    """The arguments, whose correlation id (where one was found) has been replaced by 0."""
    try:
        args = decode_args(b"{%b}" % arguments.strip(b" ,"))
    except UNREADABLE as error:
        raise _UnexpectedError from error
    # Else what was taken for the id stands inside a string or a nested object.
    _require(args.correlation == (0 if b'"correlation": 0' in arguments else None))
    return args


def _require(holds: object) -> None:
    if not holds:
        raise _UnexpectedError


def _digits(words: Words, count: int | Positions) -> Ints:
    """The value of the last `count` (0 to 8) characters of each word.

    Each step folds neighbours together in all lanes of a word at once: digits to pairs, pairs to fours, fours to
    eights ("SWAR", after D. Lemire, "Quickly parsing eight digits", 2018).
    """
    shift = np.uint64(64) - np.asarray(count, np.uint64) * np.uint64(8)
    # Shifting by 64 is undefined; two shifts by half each are not.
    half = shift >> np.uint64(1)
    rest = shift - half
    value = (((words ^ _ZEROS) >> half) >> rest) << half << rest
    _require(not _high(value).any())
    value = value * np.uint64(10) + (value >> np.uint64(8))
    pairs = np.uint64(0x0000_00FF_0000_00FF)
    fours = (value & pairs) * np.uint64(0x000F_4240_0000_0064)
    fours += ((value >> np.uint64(16)) & pairs) * np.uint64(0x0000_2710_0000_0001)
    return (fours >> np.uint64(32)).astype(np.int64)


def _high(value: Words) -> Words:
    """Non-zero in every byte above 9, up to the first such byte."""
    return ((value + _SIXES) | value) & _HIGH_NIBBLES


def _not_digits(words: Words) -> Words:
    return _high(words ^ _ZEROS)


def _first_byte(mask: Words) -> Positions:
    """The number of the lowest byte that is not 0 (of a mask that is)."""
    lowest = mask & (~mask + np.uint64(1))
    return np.log2(np.maximum(lowest, np.uint64(1)).astype(np.float64)).astype(np.intp) // 8
