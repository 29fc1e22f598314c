"""One event of the Chrome trace format as Kineto writes it, and the rows that are kept of it."""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from wavewise.trace.notes import Notes

KERNEL, MEMCPY, MEMSET, LAUNCH, MARKER = range(5)
KIND_NAMES = ("kernel", "memcpy", "memset")

CATEGORIES: dict[str, int] = {
    # Names of libkineto/src/ActivityType.cpp; the capitalised ones are those of its releases before 2021.
    "kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET,
    "cuda_runtime": LAUNCH, "cuda_driver": LAUNCH, "hip_runtime": LAUNCH, "xpu_runtime": LAUNCH,
    "xpu_driver": LAUNCH, "privateuse1_runtime": LAUNCH, "privateuse1_driver": LAUNCH,
    "user_annotation": MARKER,
    "Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET, "Runtime": LAUNCH,
}  # fmt: skip
LEGACY_OPERATOR = "Operator"
"""Category that the releases before 2021 gave to every host range, the profiler's own step markers included."""

MISSING = int(np.iinfo(np.int64).min)
"""Stands for an absent integer in the int64 columns between the ladder and the frames."""
_INT64_MAX = int(np.iinfo(np.int64).max)

_EXACT = Context(prec=100)  # more digits than _ANY_NUMBER lets through, so that nothing is rounded twice
_ANY_NUMBER = re.compile(rb"-?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?").fullmatch


class Event(msgspec.Struct, gc=False):
    """The parts of an event that matter. Times and args stay raw: most events are dropped unparsed."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False):
    """The arguments that a GPU operation or a launch may carry."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared_memory: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    graph_id: Any = msgspec.field(default=None, name="graph id")


NO_ARGS = Args()
decode_args = msgspec.json.Decoder(Args).decode


class _LaunchArgs(msgspec.Struct, gc=False):
    """The one argument of a host call that matters."""

    correlation: Any = None


_decode_launch = msgspec.json.Decoder(_LaunchArgs).decode

T = TypeVar("T")

Key = tuple[int, str, Any, Any]
"""Kind, name, pid, tid: what the first line of an event says."""
Shape = tuple[Any, ...]
"""device, stream, graph id, grid x y z, block x y z, registers, shared memory, occupancy, blocks per SM."""
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class Interner(Generic[T]):
    """Values numbered in the order of their first appearance."""

    __slots__ = ("index", "values")

    def __init__(self) -> None:
        self.index: dict[T, int] = {}
        self.values: list[T] = []

    def of(self, value: T) -> int:
        """The number of `value`."""
        number = self.index.get(value)
        if number is None:
            number = self.index[value] = len(self.values)
            self.values.append(value)
        return number


class Tables:
    """The dictionaries that the columns of all blocks of one process point into.

    Attributes:
        keys, shapes: the values.
        key_text, shape_text: their numbers by the text that says them, for the rung that compares text.
        launch_text: texts of host calls' arguments that were found sound.
        raw_keys, raw_shapes: their numbers by the decoded values, for the rungs that decode.
    """

    REMEMBERED = 1 << 16
    """Ways to say a value kept before they are forgotten: some never come again (the bandwidth of a copy)."""

    def __init__(self) -> None:
        self.keys: Interner[Key] = Interner()
        self.shapes: Interner[Shape] = Interner()
        self.key_text: dict[bytes, int] = {}
        self.shape_text: dict[bytes, int] = {}
        self.launch_text: dict[bytes, int] = {}
        self.raw_keys: dict[tuple[Any, ...], int] = {}
        self.raw_shapes: dict[tuple[Any, ...], int] = {}

    def forget(self) -> None:
        """Keeps the memory of what says the values bounded."""
        for known in (self.key_text, self.shape_text, self.launch_text, self.raw_keys, self.raw_shapes):
            if len(known) > self.REMEMBERED:
                known.clear()


COLUMNS: dict[str, type[np.integer[Any]]] = {
    "key": np.int32, "shape": np.int32, "start": np.int64, "duration": np.int64, "correlation": np.int64,
}  # fmt: skip
"""The columns of `Rows`."""


class Rows:
    """Kept events of one block, as columns.

    Attributes:
        key: index into Tables.keys.
        shape: index into Tables.shapes, -1 for host records.
        start, duration: nanoseconds, MISSING where the event has none that can be used.
        correlation: MISSING where absent.
        events: events of any kind in the block.
        malformed: positions of the rows that were rescued from an unreadable event.
        notes: what was met on the way.
    """

    __slots__ = ("correlation", "duration", "events", "key", "malformed", "notes", "shape", "start")

    def __init__(
        self, key: Indices, shape: Indices, start: Ints, duration: Ints, correlation: Ints,
        events: int, notes: Notes, malformed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.key, self.shape = key, shape
        self.start, self.duration, self.correlation = start, duration, correlation
        self.events, self.notes, self.malformed = events, notes, malformed

    def __len__(self) -> int:
        return len(self.key)


class RowBuilder:
    """Collects rows one event at a time, for the rungs that have no faster way.

    Values are looked up as they were decoded and worked out only when they are new: an event costs a few
    dictionary look-ups.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._columns: tuple[list[int], ...] = ([], [], [], [], [])
        self._malformed: list[int] = []
        self.events = 0
        self.notes = Notes()

    def add(self, event: Event, *, malformed: bool = False) -> None:
        """Keeps what is to be kept of `event`."""
        if event.ph != "X":
            return
        category = event.cat
        kind = CATEGORIES.get(category) if category.__class__ is str else None
        if kind is None:
            if category != LEGACY_OPERATOR or not str(event.name).startswith("ProfilerStep"):
                return
            kind = MARKER
        correlation, shape = MISSING, -1
        if kind != MARKER:
            try:
                if kind == LAUNCH:
                    correlation = whole(_decode_launch(event.args or b"{}").correlation)
                else:
                    args = decode_args(event.args or b"{}")
                    correlation = whole(args.correlation)
                    shape = self._shape(args, event)
            except msgspec.DecodeError:
                shape = shape if kind == LAUNCH else self._shape(NO_ARGS, event)
                if bytes(event.args)[:1] == b"{":  # else arguments that are no object: none
                    self.notes.add("malformed_event")
                    malformed = True
        key, shapes, start, duration, correlations = self._columns
        if malformed:
            self._malformed.append(len(key))
        key.append(self._key(kind, event))
        shapes.append(shape)
        start.append(to_ns(event.ts))
        duration.append(to_ns(event.dur))
        correlations.append(correlation)

    def rows(self) -> Rows:
        """The rows so far."""
        key, shape, start, duration, correlation = self._columns
        return Rows(
            np.array(key, np.int32), np.array(shape, np.int32), np.array(start, np.int64),
            np.array(duration, np.int64), np.array(correlation, np.int64),
            self.events, self.notes, tuple(self._malformed),
        )  # fmt: skip

    def _key(self, kind: int, event: Event) -> int:
        raw = (kind, event.name, event.pid, event.tid)
        known = self._tables.raw_keys
        try:
            number = known.get(raw)
        except TypeError:  # a list or an object for one of them
            return self._tables.keys.of((kind, str(event.name), *thread_of(event)))
        if number is None:
            number = known[raw] = self._tables.keys.of((kind, str(event.name), *thread_of(event)))
        return number

    def _shape(self, args: Args, event: Event) -> int:
        grid, block = args.grid, args.block
        raw = (
            args.device, args.stream, args.graph_id, tuple(grid) if grid.__class__ is list else None,
            tuple(block) if block.__class__ is list else None, args.registers, args.shared_memory, args.occupancy,
            args.blocks_per_sm, event.pid, event.tid,
        )  # fmt: skip
        known = self._tables.raw_shapes
        try:
            number = known.get(raw)
        except TypeError:
            return self._tables.shapes.of(shape_of(args, event.pid, event.tid))
        if number is None:
            number = known[raw] = self._tables.shapes.of(shape_of(args, event.pid, event.tid))
        return number


def to_ns(token: bytes | msgspec.Raw) -> int:
    """A JSON number (or a string that holds one) of microseconds as nanoseconds, from its digits.

    A double cannot hold a time stamp counted from 1970 to the nanosecond; the digits can. Digits below the
    nanosecond are rounded half to even. MISSING for anything that is no number or does not fit 64 bits.
    """
    token = bytes(token)
    if token[-4:-3] == b"." and len(token) < 20 and token[:1] != b'"':  # as Kineto writes it: D.ddd
        try:
            return int(token[:-4] + token[-3:])
        except ValueError:  # an exponent
            pass
    token = token.strip(b'" \t\r\n')
    if not _ANY_NUMBER(token):
        return MISSING
    value = int(_EXACT.scaleb(Decimal(token.decode()), 3).to_integral_value(ROUND_HALF_EVEN, _EXACT))
    return value if -_INT64_MAX <= value <= _INT64_MAX else MISSING


def whole(value: object) -> int:
    """`value` if it is a whole number that fits 64 bits (or a string of one), else MISSING."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return MISSING
    elif isinstance(value, float) and value.is_integer():  # re-written by a tool that has no integers
        value = int(value)
    if isinstance(value, int) and -_INT64_MAX <= value <= _INT64_MAX:
        return value
    return MISSING


def thread_of(event: Event) -> tuple[int | None, int | None]:
    """Process and thread as numbers, where they are numbers; old releases wrote them as strings."""
    return trailing_int(event.pid), trailing_int(event.tid)


def trailing_int(value: object) -> int | None:
    """The integer that `value` is or ends with ("stream 7", "GPU 0"), None where there is none."""
    if isinstance(value, str):
        digits = re.search(r"-?\d{1,18}$", value.strip())
        value = int(digits[0]) if digits else None
    number = whole(value)
    return None if number == MISSING else number


def shape_of(args: Args, pid: object, tid: object) -> Shape:
    """What a GPU operation's arguments say, the device and stream from pid and tid where they lack them."""
    device = _natural(args.device)
    stream = _natural(args.stream)
    return (
        device if device is not None else (_natural(trailing_int(pid)) or 0),
        stream if stream is not None else (trailing_int(tid) or 0),
        _natural(args.graph_id) or None,
        *_three(args.grid, 1 << 62),
        *_three(args.block, 1 << 31),
        _natural(args.registers, 1 << 31),
        _natural(args.shared_memory, 1 << 31),
        _real(args.occupancy, 0.01),
        _real(args.blocks_per_sm, 1.0),
    )


def _natural(value: object, below: int = 1 << 31) -> int | None:
    number = whole(value)
    return number if 0 <= number < below else None


def _three(value: object, below: int) -> tuple[int | None, int | None, int | None]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    if len(items) == 3:
        x, y, z = (_natural(item, below) for item in items)
        if x and y and z:
            return x, y, z
    return None, None, None


def _real(value: object, unit: float) -> float | None:
    if isinstance(value, int | float):
        return value * unit
    return None
