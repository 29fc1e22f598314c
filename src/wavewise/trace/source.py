"""The text of a file, whatever it is packed in: read forward, in bounded memory, never trusting its name.

`open_text` looks at the first bytes and gives a `Text`, whose `at(offset, size)` returns a stretch of the
unpacked bytes. A plain file is read where it is asked for; a compressed one is unpacked forward and forgets what
lies before the offset asked for last. Damage to the packing never raises once there is some text: what can be
unpacked is the text, and `Text.notes` says what was lost.
"""

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from isal import igzip_lib

from wavewise.errors import InputError
from wavewise.trace.notes import Notes
from wavewise.trace.remote import open_url, url_of

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
UTF8_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 18  # compressed bytes per read; text per unpacking step. Larger steps fall out of the L2 cache.
_RESCUE_PIECE = 1 << 12
_BROKEN: type[Exception] = cast(Any, igzip_lib).IsalError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file may cost before it is refused.

    Attributes:
        text_bytes: unpacked size. Also settable with the environment variable WAVEWISE_MAX_TEXT_BYTES.
        expansion: unpacked bytes per packed byte, judged once `expansion_from` bytes are unpacked. Kineto
            traces pack 10:1 to 60:1; gzip can reach 1032:1 and zstd far more, on nothing but repetition.
        expansion_from: unpacked bytes below which the expansion is not judged.
        block_bytes: text read at a time. A block and its index of lines about fill the L2 cache of one core at the
            default; both smaller and larger ones were measured to be slower.
        event_bytes: the longest stretch without an event boundary that is kept in memory.
    """

    text_bytes: int = field(default_factory=lambda: int(os.environ.get("WAVEWISE_MAX_TEXT_BYTES", 64 << 30)))
    expansion: int = 400
    expansion_from: int = 256 << 20
    block_bytes: int = 2 << 20
    event_bytes: int = 64 << 20


class Text(ABC):
    """Unpacked bytes of one file, to be asked for at offsets that never fall.

    Attributes:
        packed_size: bytes of the file.
        notes: what was wrong with the packing.
    """

    def __init__(self, file: BinaryIO, packed_size: int) -> None:
        self._file = file
        self.packed_size = packed_size
        self.notes = Notes()

    @abstractmethod
    def at(self, offset: int, size: int) -> bytes:
        """The bytes [offset, offset + size), fewer at the end of the text."""

    @abstractmethod
    def share(self, offset: int) -> float:
        """How far through the file the text at `offset` is, 0 to 1."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class PlainText(Text):
    """A file that is not compressed."""

    def at(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def share(self, offset: int) -> float:
        return min(1.0, offset / max(1, self.packed_size))


class StreamText(Text):
    """Text that comes from `pull() -> bytes` (empty at the end), such as a decompressor's output."""

    def __init__(
        self, file: BinaryIO, packed_size: int, unpack: Callable[[BinaryIO, Notes], Callable[[], bytes]],
        limits: Limits, path: str,
    ) -> None:  # fmt: skip
        super().__init__(file, packed_size)
        self._pull = unpack(file, self.notes)
        self._limits = limits
        self._path = path
        self._held: list[bytes] = []
        self._base = 0  # offset of the first byte held, and of the first byte not yet unpacked
        self._next = 0
        self._ended = False

    def at(self, offset: int, size: int) -> bytes:
        if offset < self._base:
            raise ValueError("a stream is read forward only")
        while self._held and self._base + len(self._held[0]) <= offset:
            self._base += len(self._held.pop(0))
        while not self._ended and self._next < offset + size:
            piece = self._unpacked()
            if self._next > offset:
                self._held.append(piece)
            else:
                self._base = self._next
        text = b"".join(self._held)
        start = offset - self._base
        if start + size < len(text):
            return text[start : start + size]
        return text[start:] if start else text

    def pieces(self, offset: int) -> Iterator[bytes]:
        """The text from `offset` on, in the pieces that unpacking it gives; for who needs no other part of it."""
        start = offset - self._base
        while self._held:
            piece = self._held.pop(0)
            if start < len(piece):
                yield piece[start:] if start > 0 else piece
            start -= len(piece)
        while piece := self._unpacked():
            yield piece

    def _unpacked(self) -> bytes:
        piece = self._pull()
        self._ended = not piece
        self._next += len(piece)
        self._refuse_bombs()
        return piece

    def share(self, offset: int) -> float:
        del offset
        return min(1.0, self._file.tell() / max(1, self.packed_size))

    def _refuse_bombs(self) -> None:
        unpacked = self._next
        limits = self._limits
        if unpacked > limits.text_bytes:
            raise InputError(
                f"{self._path}: unpacks to more than {limits.text_bytes:,} bytes; raise WAVEWISE_MAX_TEXT_BYTES "
                "if that is meant"
            )
        if unpacked > limits.expansion_from and unpacked > limits.expansion * max(1, self._file.tell()):
            raise InputError(
                f"{self._path}: unpacks to over {limits.expansion} times its size, as no trace does; "
                "unpack it yourself if it is one"
            )


def open_text(path: str, limits: Limits) -> Text:
    """The text of the file at `path`, which may be a URL.

    Raises:
        InputError: the file cannot be opened, or is empty.
    """
    url = url_of(path)
    if url is not None:
        file, size = open_url(url)
    else:
        try:
            file = cast(BinaryIO, open(path, "rb", buffering=0))  # noqa: SIM115 - the Text owns and closes it
            size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        start = file.read(len(ZSTD))
        file.seek(0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not start:
        file.close()
        raise InputError(f"{path}: the file is empty; was the profiler stopped before it wrote?")
    if start.startswith(GZIP):
        text: Text = StreamText(file, size, _gunzip, limits, path)
    elif start == ZSTD:
        text = StreamText(file, size, _unzstd, limits, path)
    elif url is not None:
        text = StreamText(file, size, _as_it_is, limits, path)
    else:
        text = PlainText(file, size)
    return text


def _as_it_is(file: BinaryIO, notes: Notes) -> Callable[[], bytes]:
    del notes
    return lambda: file.read(_PIECE)


def _gunzip(file: BinaryIO, notes: Notes) -> Callable[[], bytes]:
    """Unpacks gzip members one after another, stops at the first byte that is none of theirs."""
    decoder = _member()
    member_start = 0  # where the present member lies in the file, and how much of it was handed out
    member_text = 0
    rescue: Callable[[], bytes] | None = None

    def pull() -> bytes:
        nonlocal decoder, member_start, member_text, rescue
        while True:
            if rescue is not None:
                return rescue()
            if decoder.eof:
                rest: bytes = decoder.unused_data + (
                    b"" if len(decoder.unused_data) >= 2 else file.read(_PIECE)
                )
                if not rest.strip(b"\0"):  # tape blocks and some writers pad with zeros
                    return b""
                if not rest.startswith(GZIP):
                    notes.add("trailing_junk", 1)
                    return b""
                member_start, member_text = file.tell() - len(rest), 0
                decoder = _member()
                packed = rest
            elif decoder.needs_input:
                packed = file.read(_PIECE)
                if not packed:
                    notes.add("truncated_compression", 1)
                    return b""
            else:
                packed = b""
            try:
                text: bytes = decoder.decompress(packed, _PIECE)
            except _BROKEN:
                notes.add("damaged_compression", 1)
                rescue = _rescue_member(file, member_start, member_text)
                continue
            if text:
                member_text += len(text)
                return text

    return pull


def _member() -> Any:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP, hist_bits=15)


def _rescue_member(file: BinaryIO, start: int, skip: int) -> Callable[[], bytes]:
    """What can still be had of a damaged gzip member, after its first `skip` bytes of text.

    A decompressor that fails keeps the text of the failing call to itself. So the member is unpacked again with
    zlib, whose state can be copied: the piece that fails is fed once more byte by byte. The cost is paid for
    damaged files only.
    """
    file.seek(start)
    decoder = zlib.decompressobj(31)
    seen = 0
    failed = False

    def step() -> bytes:
        nonlocal decoder, failed
        packed = file.read(_RESCUE_PIECE)
        before = decoder.copy()
        try:
            failed = not packed
            return decoder.decompress(packed)
        except zlib.error:
            failed = True
            decoder = before
            text = b""
            try:
                for i in range(len(packed)):
                    text += decoder.decompress(packed[i : i + 1])
            except zlib.error:
                pass
            return text

    def pull() -> bytes:
        nonlocal seen
        while not (failed or decoder.eof):
            text = step()
            seen += len(text)
            if seen > skip and text:
                return text[-(seen - skip) :] if seen - len(text) < skip else text
        return b""

    return pull


def _unzstd(file: BinaryIO, notes: Notes) -> Callable[[], bytes]:
    """Unpacks zstd frames one after another."""
    import zstandard  # imported when needed: few traces are packed with it

    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        file, read_size=_PIECE, read_across_frames=True
    )

    def pull() -> bytes:
        try:
            return reader.read(_PIECE)
        except zstandard.ZstdError:
            notes.add("damaged_compression", 1)
            return b""

    return pull
