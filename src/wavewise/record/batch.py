"""One batch size: hold it, measure it, profile it, measure it again.

The order matters. All requests have their first token (prefill is over) and the server counts exactly that
many running before anything is measured; un-profiled decoding is measured before and behind the profiler
window, so that the growing context cancels; the requests are cancelled only when the window has closed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from wavewise.errors import InputError
from wavewise.record.engines.base import Counts, Engine, Prompt
from wavewise.record.latency import measure
from wavewise.record.model import Batch, Latency, Server
from wavewise.record.options import Options
from wavewise.record.streams import Limits, Load
from wavewise.record.traces import Seen, look

MEASURE_EVENTS = 32
_WINDOW_MARGIN = 6  # steps between the last one wanted in the window and the first one measured behind it
_ADMISSION_S = 20.0
_COUNT_TIMEOUT_S = 30.0
_RECOVERED_WITHIN = 1.25
_LIMIT_FLAGS = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}
_Say = Callable[[str], None]


@dataclass(frozen=True)
class Window:
    """What a profiler window left behind, before its traces are taken over."""

    before: Seen
    start_unix_s: float
    stop_unix_s: float


@dataclass(frozen=True)
class Held:
    """A batch as measured, its traces not yet taken over."""

    batch: Batch
    window: Window | None


class Holder:
    """Holds one batch size against a server.

    Attributes:
        watched: opens and closes the guard around a profiler window and notes it in `run.json`.
    """

    def __init__(
        self,
        engine: Engine,
        server: Server,
        options: Options,
        folders: tuple[Path | None, str | None],
        watched: Callable[[], AbstractContextManager[None]],
        say: _Say,
    ) -> None:
        self._engine, self._server, self._options = engine, server, options
        self._trace_dir, self._server_dir = folders
        self._watched, self._say = watched, say
        self._max_tokens = options.max_tokens or default_max_tokens(engine, server, options)
        self._url = engine.client.target.url
        self._unix = time.time() - time.perf_counter()

    async def hold(self, prompts: list[Prompt]) -> Held:
        """Run one batch.

        Args:
            prompts: one per request.

        Returns:
            The measurements.

        Raises:
            InputError: the batch cannot be reached or broke.
        """
        size = len(prompts)
        bodies = [self._engine.body(self._server.model, prompt, self._max_tokens) for prompt in prompts]
        limits = Limits(self._options.requests_per_s, self._options.stall_s)
        async with Load(
            self._engine.client.target, self._engine.generate_path, bodies, self._engine.read_event, limits
        ) as load:
            begin = time.perf_counter()
            await load.start()
            await self._all_decoding(load)
            first = [stream.times[0] - stream.sent for stream in load.streams]
            self._say(f"batch {size}: all {size} decode after {time.perf_counter() - begin:.1f} s")
            await self._steps(load, self._options.warmup_steps, "warm-up steps")
            counts = await self._confirmed(load)
            before = await self._measured(load, share=0.4)
            profiled, window, after = None, None, None
            if self._options.profile:
                profiled, window = await self._profiled(load)
                await self._steps(load, 2, "steps behind the profiler window")
                after = await self._measured(load, share=0.9)
                end = await self._engine.counts()
                if end.running is not None and end.running != size:
                    raise InputError(
                        f"{self._url}: counted {end.running} running "
                        f"requests behind the profiler window instead of {size}; other traffic? "
                        "Try when the server is idle"
                    )
            streams = load.streams
        context = [stream.prompt_tokens for stream in streams if stream.prompt_tokens is not None]
        cached = [stream.cached_tokens for stream in streams if stream.cached_tokens is not None]
        slowdown, why_not = _slowdown(before, profiled, after, self._options.profile)
        recovered = after.inter_token_ms_p50 / before.inter_token_ms_p50 if after else None
        notes = _notes(before, recovered, cached, self._options.prompt_tokens)
        return Held(
            Batch(
                batch_size=size,
                prompt_tokens=self._options.prompt_tokens,
                prompt_tokens_min=min(context, default=None),
                prompt_tokens_max=max(context, default=None),
                cached_tokens_max=max(cached, default=None),
                running=counts.running,
                waiting=counts.waiting,
                running_reason=counts.reason,
                first_token_s_min=min(first),
                first_token_s_max=max(first),
                unprofiled=before,
                after=after,
                profiled=profiled,
                slowdown=slowdown,
                slowdown_reason=why_not,
                recovered=recovered,
                profile="missing" if window else "none",
                profile_reason=None if window else "not asked for",
                profile_start_unix_s=window.start_unix_s if window else None,
                profile_stop_unix_s=window.stop_unix_s if window else None,
                notes=notes,
            ),
            window,
        )

    async def _all_decoding(self, load: Load) -> None:
        """Until every request has its first token; a server that admits no more of them is found out."""
        size = len(load.streams)
        deadline = time.perf_counter() + self._options.timeout_s
        have = -1
        while have < size:
            have = load.decoding
            try:
                grew = await self._grew(load, have, min(_ADMISSION_S, deadline - time.perf_counter()))
            except InputError as error:
                raise await self._too_many(size, have, error) from error
            timed_out = time.perf_counter() > deadline
            if not grew and (timed_out or (await self._engine.counts()).waiting):
                late = InputError(
                    f"{self._url}: only {load.decoding} of {size} requests had their first token after "
                    f"{self._options.timeout_s:.0f} s; see the server's log, or raise --timeout"
                )
                raise await self._too_many(size, have, late if timed_out else None)

    @staticmethod
    async def _grew(load: Load, have: int, within_s: float) -> bool:
        """Whether one more request began to decode in time (all of them counts too)."""
        end = time.perf_counter() + within_s
        size = len(load.streams)
        await load.until(
            lambda: load.decoding > have or have == size or time.perf_counter() > end,
            within_s + 60,
            "first tokens",
            patient=False,
        )
        return load.decoding > have or have == size

    async def _too_many(self, size: int, decoding: int, error: InputError | None) -> InputError:
        """The error of a batch that did not come together: the server's limit, if its counts say so."""
        counts = await self._engine.counts()
        if decoding and (counts.waiting or (error and "finished" in str(error) and decoding < size)):
            limit = _LIMIT_FLAGS.get(self._engine.name, "its batch limit")
            return InputError(
                f"{self._url}: only {decoding} of {size} requests decode at once, "
                f"{counts.waiting or 'the others'} wait; raise {limit} or its key/value memory, or ask for "
                "smaller --batches or --prompt-tokens"
            )
        return error or InputError(f"{self._url}: batch {size} did not come together")

    async def _confirmed(self, load: Load) -> Counts:
        """The server's count of running requests, once it equals the batch and none waits."""
        size = len(load.streams)
        deadline = time.perf_counter() + _COUNT_TIMEOUT_S
        while True:
            counts = await self._engine.counts()
            load.check()
            if counts.running is None or (counts.running == size and not counts.waiting):
                return counts
            if time.perf_counter() > deadline or load.tokens_used() > 0.3 * self._max_tokens:
                raise InputError(
                    f"{self._url}: counts {counts.running} running and "
                    f"{counts.waiting} waiting requests, not {size} and 0; other traffic on "
                    "this server? Try when it is idle"
                )
            await asyncio.sleep(0.1)

    async def _steps(self, load: Load, steps: int, what: str) -> None:
        base = load.events()
        await load.until(
            lambda: all(now - then >= steps for now, then in zip(load.events(), base, strict=True)),
            self._options.timeout_s,
            what,
        )

    async def _measured(self, load: Load, share: float) -> Latency:
        """Decoding as it is: for `measure_s` and `MEASURE_EVENTS` steps, within a share of the length cap."""
        begin, base = time.perf_counter(), load.events()

        def enough() -> bool:
            if any(now - then < MEASURE_EVENTS for now, then in zip(load.events(), base, strict=True)):
                return False
            return (
                time.perf_counter() - begin >= self._options.measure_s
                or load.tokens_used() > share * self._max_tokens
            )

        await load.until(enough, self._options.timeout_s, f"{MEASURE_EVENTS} measured steps")
        found = measure(load.streams, begin, time.perf_counter(), self._unix)
        assert found is not None, "every stream has events in a window that waited for them"
        return found

    async def _profiled(self, load: Load) -> tuple[Latency | None, Window]:
        """One profiler window, closed whatever happens."""
        engine, steps = self._engine, self._options.steps
        before = look(self._trace_dir) if self._trace_dir else Seen({})
        start = time.time()
        with self._watched():
            try:
                sent = time.perf_counter()
                # Some releases answer only when the window has closed: the streams run beside.
                await self._beside(
                    load, engine.start_profiler(steps, self._server_dir, f"bs{len(load.streams)}")
                )
                begin = sent if engine.closes_window_itself else time.perf_counter()
                await self._steps(
                    load, steps + (_WINDOW_MARGIN if engine.closes_window_itself else 1), "profiled steps"
                )
                profiled = measure(load.streams, begin, time.perf_counter(), self._unix)
                if not engine.closes_window_itself:
                    await self._beside(load, engine.stop_profiler())
            except BaseException:
                # Also on Ctrl-C: a second one leaves this to the guard.
                await asyncio.shield(_quietly(engine.stop_profiler()))
                raise
        return profiled, Window(before, start, time.time())

    async def _beside(self, load: Load, question: Awaitable[None]) -> None:
        """Await an answer while the batch is watched: a window without its batch is worthless."""
        task = asyncio.ensure_future(question)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=0.2)
                load.check()
            await task
        finally:
            task.cancel()


def default_max_tokens(engine: Engine, server: Server, options: Options) -> int:
    """The engine's usual length cap, cut to what the model's context leaves."""
    if server.max_model_len is None:
        return engine.max_tokens
    return max(1, min(engine.max_tokens, server.max_model_len - options.prompt_tokens - 8))


async def _quietly(question: Awaitable[None]) -> None:
    """Tidying up must not hide the error that made it necessary."""
    try:
        async with asyncio.timeout(60):
            await question
    except (InputError, TimeoutError):
        pass


def _slowdown(
    before: Latency, profiled: Latency | None, after: Latency | None, wanted: bool
) -> tuple[float | None, str | None]:
    if not wanted:
        return None, "no profiler window was asked for"
    if profiled is None or after is None:
        return None, "the profiler window held too few tokens per stream"
    return profiled.inter_token_ms_p50 / ((before.inter_token_ms_p50 + after.inter_token_ms_p50) / 2), None


def _notes(
    before: Latency, recovered: float | None, cached: list[int], prompt_tokens: int
) -> tuple[str, ...]:
    notes: list[str] = []
    if recovered is not None and recovered > _RECOVERED_WITHIN:
        notes.append(f"behind the profiler window a token took {recovered:.2f} times as long as before it")
    if before.tokens_per_event > 1.05:
        notes.append(
            f"{before.tokens_per_event:.2f} tokens per event: speculative decoding, "
            "or a front end that lags behind"
        )
    if cached and max(cached) > prompt_tokens // 10:
        notes.append(f"up to {max(cached)} prompt tokens came from the prefix cache")
    return tuple(notes)
