"""Many streaming requests at once, cheap enough for a thousand of them on one core.

A stream is an `asyncio.Protocol` around the llhttp parser (httptools): no task, no lock and no buffer copy
per token, so that the arrival times are the server's, not the load generator's (benchmarks/record_load.py).
"""

import asyncio
import resource
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httptools

from wavewise.errors import InputError
from wavewise.record.client import CONNECT_TIMEOUT_S, Target, error_message

_CONNECTING_AT_ONCE = 64  # stays below the accept queue of any server
_POLL_S = 0.002
_SPARE_FILES = 64


@dataclass(frozen=True)
class Event:
    """What one server-sent event says of its request.

    Attributes:
        tokens: output tokens so far, None where the event does not count them.
        new_tokens: output tokens this event brings, where `tokens` is None.
    """

    tokens: int | None = None
    new_tokens: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str | None = None
    error: str | None = None


EventReader = Callable[[bytes], Event | None]


@dataclass
class Stream:
    """One request: when its tokens came, and how it ended.

    Attributes:
        times: arrival of each event that brought tokens, `time.perf_counter` seconds.
        counts: output tokens after that event.
        ended: why no more tokens come; None while it runs.
    """

    sent: float = 0.0
    status: int | None = None
    times: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str | None = None
    ended: str | None = None


class _Connection(asyncio.Protocol):
    """Writes one request, reads server-sent events until it ends or is aborted."""

    def __init__(self, stream: Stream, head_and_body: bytes, read: EventReader) -> None:
        self._stream, self._request, self._read = stream, head_and_body, read
        self._parser = httptools.HttpResponseParser(self)
        self._pending = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._stream.sent = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"answered with something that is not HTTP ({error})")

    def on_headers_complete(self) -> None:
        self._stream.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pending = self._pending + body if self._pending else body
        if self._stream.status != 200:
            return
        now = time.perf_counter()
        # The engines put an event's data on one line, so that lines need not be gathered into events first.
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def on_message_complete(self) -> None:
        if self._stream.status == 200:
            self._end(f"finished ({self._stream.finish or 'no reason given'})")
        else:
            self._end(f"HTTP {self._stream.status}: {error_message(self._pending.decode(errors='replace'))}")

    def eof_received(self) -> None:
        self._end("the server closed the connection in the middle of the stream")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection broke{f' ({exc})' if exc else ''}")

    def _event(self, payload: bytes, now: float) -> None:
        stream = self._stream
        if payload == b"[DONE]":
            self._end(f"finished ({stream.finish or 'no reason given'})")
            return
        event = self._read(payload)
        if event is None:
            return
        if event.error is not None:
            self._end(f"the server reports: {event.error}")
            return
        stream.prompt_tokens = (
            event.prompt_tokens if event.prompt_tokens is not None else stream.prompt_tokens
        )
        stream.cached_tokens = (
            event.cached_tokens if event.cached_tokens is not None else stream.cached_tokens
        )
        stream.finish = event.finish or stream.finish
        so_far = stream.counts[-1] if stream.counts else 0
        total = event.tokens if event.tokens is not None else so_far + event.new_tokens
        if total > so_far:
            stream.times.append(now)
            stream.counts.append(total)

    def _end(self, why: str) -> None:
        if self._stream.ended is None:
            self._stream.ended = why
        if self.transport is not None:
            self.transport.abort()


@dataclass(frozen=True)
class Limits:
    """What the load generator must not exceed or wait for longer than.

    Attributes:
        requests_per_s: rate at which requests are started, None for as fast as connections open.
        stall_s: longest silence of all streams together.
    """

    requests_per_s: float | None = None
    stall_s: float = 120.0


class Load:
    """Holds a number of streaming requests against one server."""

    def __init__(
        self, target: Target, path: str, bodies: Sequence[bytes], read: EventReader, limits: Limits
    ) -> None:
        self.streams = [Stream() for _ in bodies]
        self._target, self._limits = target, limits
        self._connections: list[_Connection] = []
        self._requests = [(_head(target, path, len(body)) + body) for body in bodies]
        self._read = read
        self._heard, self._progress = 0.0, -1

    async def __aenter__(self) -> "Load":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    async def start(self) -> None:
        """Open every stream, at the agreed rate.

        Raises:
            InputError: a connection is refused, or this process may not open that many.
        """
        _allow_open_files(len(self.streams))
        gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
        begin = self._heard = time.perf_counter()

        async def open_one(index: int) -> None:
            if self._limits.requests_per_s:
                await asyncio.sleep(
                    max(0.0, begin + index / self._limits.requests_per_s - time.perf_counter())
                )
            async with gate:
                await self._connect(index)

        tasks = [asyncio.create_task(open_one(index)) for index in range(len(self.streams))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _connect(self, index: int) -> None:
        connection = _Connection(self.streams[index], self._requests[index], self._read)
        self._connections.append(connection)
        target = self._target
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    target.host,
                    target.port,
                    ssl=target.tls,
                    server_hostname=target.host if target.tls else None,
                )
        except (OSError, TimeoutError) as error:
            raise InputError(
                f"{target.url}: request {index + 1} of {len(self.streams)} finds no "
                f"connection ({error or 'timed out'}); is the server up, and may it "
                "take that many connections?"
            ) from error

    async def until(
        self, reached: Callable[[], bool], timeout_s: float, what: str, *, patient: bool = True
    ) -> None:
        """Wait while the streams run.

        Args:
            reached: when to stop waiting.
            timeout_s: how long at most.
            what: what is waited for, to say so.
            patient: whether silence counts from now on, not from the last token (the server may have had
                reason to be silent).

        Raises:
            InputError: a stream ended, all of them fell silent, or the time is up.
        """
        deadline = time.perf_counter() + timeout_s
        if patient:
            self._heard = time.perf_counter()
        while True:
            self.check()
            if reached():
                return
            now = time.perf_counter()
            progress = sum(len(stream.times) for stream in self.streams)
            if progress != self._progress:
                self._heard, self._progress = now, progress
            if now - self._heard > self._limits.stall_s:
                raise InputError(
                    f"{self._target.url}: no stream brought a token for "
                    f"{self._limits.stall_s:g} s while waiting for {what}; is the server "
                    "stuck? (--stall-timeout)"
                )
            if now > deadline:
                raise InputError(
                    f"{self._target.url}: {what} took longer than {timeout_s:.0f} s; see "
                    "the server's log, or raise --timeout"
                )
            await asyncio.sleep(_POLL_S if len(self.streams) < 256 else 10 * _POLL_S)

    def check(self) -> None:
        """Raise if any stream has ended: the batch is then no longer whole.

        Raises:
            InputError: with the first reason and how many streams it concerns.
        """
        ended = [stream.ended for stream in self.streams if stream.ended is not None]
        if ended:
            capped = " before the batch was measured; raise --max-tokens" if "length" in ended[0] else ""
            raise InputError(
                f"{self._target.url}: {len(ended)} of {len(self.streams)} streams ended early: {ended[0]}{capped}"
            )

    @property
    def decoding(self) -> int:
        """Streams that have their first token and still run."""
        return sum(1 for stream in self.streams if stream.times and stream.ended is None)

    def events(self) -> list[int]:
        """Events so far, per stream."""
        return [len(stream.times) for stream in self.streams]

    def tokens_used(self) -> int:
        """Output tokens of the stream that has most."""
        return max((stream.counts[-1] for stream in self.streams if stream.counts), default=0)

    def abort(self) -> None:
        """Close every connection at once: the server cancels the requests of a client that has gone."""
        for connection in self._connections:
            if connection.transport is not None:
                connection.transport.abort()


def _head(target: Target, path: str, length: int) -> bytes:
    lines = [f"POST {target.prefix}{path} HTTP/1.1", f"host: {target.netloc}"]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    lines += ["content-type: application/json", f"content-length: {length}", "", ""]
    return "\r\n".join(lines).encode("ascii")


def _allow_open_files(streams: int) -> None:
    needed = streams + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise InputError(
                f"{streams} streams need {needed} open files, this shell allows {hard}; raise `ulimit -Hn`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
