"""One batch size: hold it, measure it, profile it, measure it again.

The order matters. All requests have their first token (prefill is over) and the server counts exactly that
many running before anything is measured; un-profiled decoding is measured before and behind the profiler
window, so that the growing context cancels; the requests are cancelled only when the window has closed.

What each stage has brought is noted before the next one begins. A hold that takes up where an earlier one
was interrupted decodes to the context at which that one stopped, and does what is missing from there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from wavewise.errors import InputError
from wavewise.record.engines.base import Counts, Engine, Prompt
from wavewise.record.guard import Guard
from wavewise.record.latency import measure
from wavewise.record.model import Batch, Latency, Server, Unfinished, Window
from wavewise.record.options import Options
from wavewise.record.streams import Limits, Load
from wavewise.record.traces import Seen, look

BEFORE_WINDOW = "the recording ended before its profiler window"
MEASURE_EVENTS = 32
_WINDOW_MARGIN = 6  # steps between the last one wanted in the window and the first one measured behind it
_ADMISSION_S = 20.0
_COUNT_TIMEOUT_S = 30.0
_RECOVERED_WITHIN = 1.25
_LIMIT_FLAGS = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}
_Say = Callable[[str], None]


class Holder:
    """Holds one batch size against a server.

    Attributes:
        note: puts what is known of the batch on disk.
    """

    def __init__(
        self,
        engine: Engine,
        server: Server,
        options: Options,
        folders: tuple[Path | None, str | None],
        note: Callable[[Unfinished], None],
        say: _Say,
    ) -> None:
        self._engine, self._server, self._options = engine, server, options
        self._trace_dir, self._server_dir = folders
        self._note, self._say = note, say
        self._max_tokens = options.max_tokens or default_max_tokens(engine, server, options)
        self._url = engine.client.target.url
        self._unix = time.time() - time.perf_counter()

    async def hold(self, prompts: list[Prompt], so_far: Unfinished) -> Unfinished:
        """Run one batch, or what is missing of it.

        Args:
            prompts: one per request.
            so_far: what an interrupted hold of it has brought.

        Returns:
            The batch measured; its traces are not yet taken over.

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
            self._say(f"batch {size}: all {size} decode after {time.perf_counter() - begin:.1f} s")
            await self._steps(load, self._options.warmup_steps, "warm-up steps")
            so_far = await self._before(load, so_far)
            if self._options.profile:
                if so_far.window is None:
                    so_far = await self._profiled(load, so_far)
                so_far = await self._behind(load, so_far)
        return so_far

    async def _before(self, load: Load, so_far: Unfinished) -> Unfinished:
        """Un-profiled decoding in front of the window; where it is known already, the context at its end."""
        counts = await self._confirmed(load)
        if so_far.batch is not None:
            reached = so_far.window.output_tokens if so_far.window else so_far.output_tokens
            await load.until(
                lambda: load.tokens_used() >= reached,
                self._options.timeout_s,
                "the context at which the earlier recorder measured",
            )
            return so_far
        before = await self._measured(load, share=0.4)
        batch = _with_notes(_batch(load, counts, before, self._options), self._options)
        so_far = replace(
            so_far, batch=batch, output_tokens=load.tokens_used(), measured=not self._options.profile
        )
        self._note(so_far)
        return so_far

    async def _behind(self, load: Load, so_far: Unfinished) -> Unfinished:
        """Un-profiled decoding behind the window."""
        size = len(load.streams)
        await self._steps(load, 2, "steps behind the profiler window")
        after = await self._measured(load, share=0.9)
        end = await self._engine.counts()
        if end.running is not None and end.running != size:
            raise InputError(
                f"{self._url}: counted {end.running} running "
                f"requests behind the profiler window instead of {size}; other traffic? "
                "Try when the server is idle"
            )
        assert so_far.batch is not None
        assert so_far.window is not None
        batch = _behind_window(so_far.batch, so_far.window, after)
        so_far = replace(so_far, batch=_with_notes(batch, self._options), measured=True)
        self._note(so_far)
        return so_far

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

    async def _profiled(self, load: Load, so_far: Unfinished) -> Unfinished:
        """One profiler window, closed whatever happens, and on disk as far as it has come."""
        engine, steps = self._engine, self._options.steps
        seen = look(self._trace_dir) if self._trace_dir else Seen({})
        window = Window(
            state="open",
            label=f"bs{len(load.streams)}-{time.time_ns():x}",
            trace_dir=str(self._trace_dir) if self._trace_dir else None,
            seen={str(path): state for path, state in seen.files.items()},
            start_unix_s=time.time(),
        )
        self._note(replace(so_far, window=window))
        guard = Guard(engine.client.target, engine.name, self._options.ca_file, self._options.out)
        try:
            sent = time.perf_counter()
            # Some releases answer only when the window has closed: the streams run beside.
            await self._beside(load, engine.start_profiler(steps, self._server_dir, window.label))
            begin = sent if engine.closes_window_itself else time.perf_counter()
            await self._steps(
                load, steps + (_WINDOW_MARGIN if engine.closes_window_itself else 1), "profiled steps"
            )
            window = replace(
                window,
                state="passed",
                stop_unix_s=time.time(),
                profiled=measure(load.streams, begin, time.perf_counter(), self._unix),
                output_tokens=load.tokens_used(),
            )
            self._note(replace(so_far, window=window))
            # Also where the window closes itself: streams that lag behind count steps of before it.
            await self._beside(load, engine.stop_profiler())
        except BaseException:
            # Also on Ctrl-C: a second one leaves this to the guard.
            if await asyncio.shield(_quietly(engine.stop_profiler())):
                guard.closed()
                window = replace(window, state="closed" if window.state == "passed" else "broken")
                with suppress(InputError):  # the first error is the one to tell
                    self._note(replace(so_far, window=window))
            else:
                guard.act()
            raise
        guard.closed()
        so_far = replace(so_far, window=replace(window, state="closed"))
        self._note(so_far)
        return so_far

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


async def _quietly(question: Awaitable[None]) -> bool:
    """Ask while tidying up, which must not hide the error that made it necessary. Whether it was answered."""
    try:
        async with asyncio.timeout(60):
            await question
    except (InputError, TimeoutError):
        return False
    return True


def _batch(load: Load, counts: Counts, before: Latency, options: Options) -> Batch:
    """The batch as it stands before its window."""
    streams = load.streams
    first = [stream.times[0] - stream.sent for stream in streams]
    prompts = [stream.prompt_tokens for stream in streams if stream.prompt_tokens is not None]
    cached = [stream.cached_tokens for stream in streams if stream.cached_tokens is not None]
    return Batch(
        batch_size=len(streams),
        prompt_tokens=options.prompt_tokens,
        prompt_tokens_min=min(prompts, default=None),
        prompt_tokens_max=max(prompts, default=None),
        cached_tokens_max=max(cached, default=None),
        running=counts.running,
        waiting=counts.waiting,
        running_reason=counts.reason,
        first_token_s_min=min(first),
        first_token_s_max=max(first),
        unprofiled=before,
        slowdown_reason=None if options.profile else "no profiler window was asked for",
        profile="missing" if options.profile else "none",
        profile_reason=BEFORE_WINDOW if options.profile else "not asked for",
    )


def _behind_window(batch: Batch, window: Window, after: Latency) -> Batch:
    """The batch with what was measured in its window and behind it."""
    before, inside = batch.unprofiled.inter_token_ms_p50, window.profiled
    around = (before + after.inter_token_ms_p50) / 2
    collected = window.state == "collected"
    return replace(
        batch,
        profiled=inside,
        after=after,
        slowdown=inside.inter_token_ms_p50 / around if inside else None,
        slowdown_reason=None if inside else "the profiler window held too few tokens per stream",
        recovered=after.inter_token_ms_p50 / before,
        profile=batch.profile if collected else "missing",
        profile_reason=batch.profile_reason
        if collected
        else "the recording ended before its trace was there",
        profile_start_unix_s=window.start_unix_s,
        profile_stop_unix_s=window.stop_unix_s,
    )


def _with_notes(batch: Batch, options: Options) -> Batch:
    """The batch with what a reader should know of it."""
    notes: list[str] = []
    if batch.recovered is not None and batch.recovered > _RECOVERED_WITHIN:
        notes.append(
            f"behind the profiler window a token took {batch.recovered:.2f} times as long as before it"
        )
    per_event = batch.unprofiled.tokens_per_event
    if per_event > 1.05:
        notes.append(
            f"{per_event:.2f} tokens per event: speculative decoding, or a front end that lags behind"
        )
    if batch.cached_tokens_max and batch.cached_tokens_max > options.prompt_tokens // 10:
        notes.append(f"up to {batch.cached_tokens_max} prompt tokens came from the prefix cache")
    return replace(batch, notes=tuple(notes))
