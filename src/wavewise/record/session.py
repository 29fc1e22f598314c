"""A whole recording: from the first question to the server to a finished run folder.

Everything that is known is on disk before the next step begins, so that a recorder may be interrupted or
killed at any point: the same command goes on with what is missing.
"""

import asyncio
import platform
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from wavewise._version import __version__
from wavewise.errors import InputError, UsageError
from wavewise.record import prompts as make
from wavewise.record.batch import MEASURE_EVENTS, Held, Holder, Window, default_max_tokens
from wavewise.record.client import Client, Target
from wavewise.record.engines import Engine, connect
from wavewise.record.engines.base import Prompt
from wavewise.record.folder import TELEMETRY_FILE, open_folder, read_run, recording_lock, write_run
from wavewise.record.guard import Guard
from wavewise.record.host import is_local, server_command
from wavewise.record.model import Batch, Clock, Run, Server, Telemetry, TraceFile
from wavewise.record.options import Options
from wavewise.record.streams import Limits, Load
from wavewise.record.telemetry import Sampler, count_samples, take_over
from wavewise.record.traces import Wait, take

_Say = Callable[[str], None]
_DONE = ("recorded", "truncated", "none", "left_on_server")
_CALIBRATION_WORDS = 64
_DRAIN_S = 20.0
_POLL_S = 0.25
OWN_TRACES = ".traces"
"""Where an engine that is told where to write writes, when nobody names a folder; emptied again."""


class Interrupted(Exception):  # noqa: N818 - not a fault
    """The user stopped the recording; `kept` batches are in the folder."""

    def __init__(self, kept: int, wanted: int) -> None:
        super().__init__(f"interrupted: {kept} of {wanted} batches are kept")
        self.kept, self.wanted = kept, wanted


def record(options: Options, target: Target, confirm: Callable[[str], bool], say: _Say) -> Run:
    """Record a server.

    Args:
        options: what to do.
        target: the server.
        confirm: asked once before load and profiler; False ends it.
        say: progress, a line at a time.

    Returns:
        The finished recording, also in `options.out`/run.json.

    Raises:
        InputError, UsageError: with the remedy; what was recorded before is kept.
        Interrupted: by SIGINT or SIGTERM; the profiler is stopped and the requests are cancelled.
    """
    open_folder(options.out)
    with recording_lock(options.out):
        return asyncio.run(_interruptible(_Session(options, target, confirm, say)))


async def _interruptible(session: "_Session") -> Run:
    """Turn the first SIGINT or SIGTERM into a cancellation; a second one leaves at once (not the guard)."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(session.run())
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        task.cancel()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        loop.add_signal_handler(each, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted(len(session.done), len(session.options.batches)) from None


class _Session:
    """The state of one recording; `run.json` always mirrors it."""

    def __init__(self, options: Options, target: Target, confirm: Callable[[str], bool], say: _Say) -> None:
        self.options, self._target, self._confirm, self._say = options, target, confirm, say
        self._source = random.Random()
        self._last_id = make.WIDE_LAST_ID
        self._words: int | None = None
        self._run: Run | None = None
        self._local = False

    @property
    def done(self) -> list[Batch]:
        """Batches that need not be recorded again."""
        return [batch for batch in (self._run.batches if self._run else ()) if batch.profile in _DONE]

    async def run(self) -> Run:
        client = Client(self._target)
        try:
            return await self._with_client(client)
        finally:
            await client.close()

    async def _with_client(self, client: Client) -> Run:
        options = self.options
        local = self._local = is_local(self._target.host)
        engine = await connect(client, options.engine)
        argv = server_command(self._target.port) if local else None
        server = self._without_key(await engine.describe(options.model, argv))
        self._say(
            f"{server.engine} {server.version or '(version unknown)'} at "
            f"{self._target.url}, model {server.model}"
        )
        prompts = "token ids" if engine.takes_token_ids else "text"
        self._run = await self._resumed(engine, server, prompts)
        missing = [size for size in options.batches if size not in {batch.batch_size for batch in self.done}]
        if not missing:
            self._say(f"all {len(options.batches)} batches are recorded already in {options.out}")
            return self._save(state="complete", reason=None)
        folders = self._trace_folders(engine, server, local)
        check_limits(server, engine, options, missing)
        if not self._confirm(self._question(server, missing)):
            raise UsageError("not confirmed: nothing was sent; --yes answers for you")
        await self._idle(engine)
        await self._probe(engine, server)
        sampler, telemetry = self._telemetry(local)
        self._save(telemetry=telemetry)
        try:
            holder = Holder(engine, server, options, folders, lambda: self._watched(engine), self._say)
            for size in missing:
                await self._record_batch(holder, engine, size, folders[0])
            await self._still_well(engine, server)
            return self._save(state="complete", reason=None, finished_unix_s=time.time())
        except asyncio.CancelledError:
            self._save(state="interrupted", reason="stopped by a signal")
            raise
        except InputError as error:
            self._save(state="failed", reason=self._hide(str(error)))
            raise
        finally:
            if sampler is not None:
                sampler.stop()
                self._save()

    # ------------------------------------------------------------------ run.json

    async def _resumed(self, engine: Engine, server: Server, prompts: str) -> Run:
        """The folder's earlier recording, continued; or a fresh one."""
        options = self.options
        settings = options.settings(prompts)
        before = read_run(options.out)
        fresh = Run(
            wavewise=__version__,
            url=self._target.url,
            server=server,
            settings=settings,
            state="running",
            started_unix_s=time.time(),
            telemetry=Telemetry(source="none", reason="not started yet"),
            clock=self._clock(engine),
            client=_client_facts(),
        )
        if before is None:
            return fresh
        if before.profiler_open:
            self._say("the recorder before this one died inside a profiler window: closing it")
            await engine.stop_profiler()
        for name, then, now in (
            ("the server", before.url, fresh.url),
            ("the model", before.server.model, server.model),
            ("the server's version", before.server.version, server.version),
            *(
                (f"--{name.replace('_', '-')}", getattr(before.settings, name), getattr(settings, name))
                for name in ("prompt_tokens", "steps", "profile", "prompts")
            ),
        ):
            if then != now:
                raise UsageError(
                    f"{options.out}: was recorded with {name} {then!r}, not {now!r}; choose "
                    "another --out, or ask for the same"
                )
        return msgspec.structs.replace(
            fresh, started_unix_s=before.started_unix_s, batches=before.batches, telemetry=before.telemetry
        )

    def _save(self, **changes: object) -> Run:
        assert self._run is not None
        telemetry = changes.get("telemetry", self._run.telemetry)
        assert isinstance(telemetry, Telemetry)
        changes["telemetry"] = msgspec.structs.replace(telemetry, samples=count_samples(self.options.out))
        self._run = msgspec.structs.replace(self._run, **changes)  # type: ignore[arg-type]
        write_run(self.options.out, self._run)
        return self._run

    def _clock(self, engine: Engine) -> Clock:
        return Clock(offset_s_low=0.0, offset_s_high=0.0) if self._local else engine.client.clock

    @contextmanager
    def _watched(self, engine: Engine) -> Iterator[None]:
        """Around a profiler window: a guard that outlives this process, and a note in `run.json`."""
        guard = Guard(self._target, engine.name, self.options.ca_file)
        self._save(profiler_open=True)
        try:
            yield
            self._save(profiler_open=False)
        except BaseException:
            self._save(profiler_open=False)
            raise
        finally:
            guard.closed()

    def _hide(self, text: str) -> str:
        """Text without the API key, should a server echo it."""
        return text.replace(self._target.key, "(hidden)") if self._target.key else text

    def _without_key(self, server: Server) -> Server:
        return msgspec.json.decode(self._hide(msgspec.json.encode(server).decode()), type=Server)

    # ------------------------------------------------------------------ before the load

    def _trace_folders(self, engine: Engine, server: Server, local: bool) -> tuple[Path | None, str | None]:
        """Where this host finds the traces, and where the server is told to write them (None: it knows)."""
        options = self.options
        if not options.profile:
            return None, None
        if not engine.can_profile or server.profiler is False:
            fix = engine.turn_on_profiler
            how = f"start it with {fix}, or use" if fix else "use"
            raise InputError(
                f"{self._target.url}: {engine.name} offers no profiler here (no "
                f"/start_profile); {how} --no-profile for load and telemetry alone"
            )
        if options.leave_traces:
            return None, options.server_trace_dir
        folder = options.trace_dir
        if folder is None and local:
            if engine.chooses_folder:
                folder = (options.out / OWN_TRACES).absolute()
            elif server.profiler_dir and "://" not in server.profiler_dir:
                folder = Path(server.profiler_dir)
        if folder is None:
            where = f" (the server writes to {server.profiler_dir})" if server.profiler_dir else ""
            raise InputError(
                f"{self._target.url}: cannot tell where this host finds the server's "
                f"traces{where}; name the folder with --trace-dir, or use "
                "--leave-traces or --no-profile"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be opened for traces ({error.strerror}); name the folder with --trace-dir"
            ) from error
        return folder, options.server_trace_dir or (str(folder) if engine.chooses_folder else None)

    def _question(self, server: Server, sizes: list[int]) -> str:
        profiled = (
            (f", and runs its profiler {len(sizes)} times, which stalls it for seconds each")
            if self.options.profile
            else ""
        )
        return (
            f"This sends up to {max(sizes)} requests of "
            f"{self.options.prompt_tokens} prompt tokens at once to "
            f"{self._target.url} ({server.model}){profiled}. Go on?"
        )

    def _telemetry(self, local: bool) -> tuple[Sampler | None, Telemetry]:
        choice = self.options.telemetry
        if choice == "none":
            return None, Telemetry(source="none", reason="not asked for")
        if choice == "auto" and not local:
            return None, Telemetry(
                source="none",
                reason=(
                    "the server runs on another host; record there with `python -m "
                    "wavewise.record.telemetry` and give the file with --telemetry"
                ),
            )
        if choice not in ("auto", "local"):
            return None, take_over(Path(choice), self.options.out)
        sampler = Sampler(self.options.out / TELEMETRY_FILE, self.options.gpus)
        telemetry = sampler.telemetry
        if telemetry.reason is not None:
            self._say(f"no telemetry: {telemetry.reason}")
            sampler.stop()
            return None, telemetry
        return sampler, telemetry

    async def _idle(self, engine: Engine) -> None:
        """Until the server runs nothing: beside other requests no batch size can be held.

        The gauges of a server that has gone idle may be stale until its next step; a request of one token
        brings them up to date.
        """
        deadline = time.monotonic() + self.options.wait_idle_s
        nudged = False
        while True:
            counts = await engine.counts()
            if not counts.running and not counts.waiting:
                return
            if time.monotonic() > deadline:
                raise InputError(
                    f"{self._target.url}: serves {counts.running} running and "
                    f"{counts.waiting or 0} waiting requests of others; record when it is "
                    "idle, or wait longer with --wait-idle"
                )
            if not nudged and time.monotonic() > deadline - self.options.wait_idle_s + 3:
                nudged = True
                assert self._run is not None
                await self._one_request(engine, self._run.server, self._prompt(engine), 1)
            await asyncio.sleep(_POLL_S)

    async def _probe(self, engine: Engine, server: Server) -> None:
        """One short request: key, model and prompts are right, and the token ids are in the vocabulary."""
        if not engine.takes_token_ids:
            await self._calibrate(engine, server)
        while True:
            try:
                prompt = self._prompt(engine)
                if isinstance(prompt, list):
                    prompt[-1] = self._last_id  # what the vocabulary must hold
                await self._one_request(engine, server, prompt, 2)
                return
            except InputError as error:
                if "vocab" not in str(error).lower() or not engine.takes_token_ids or self._last_id < 8:
                    raise
                self._last_id //= 2

    async def _calibrate(self, engine: Engine, server: Server) -> None:
        """How many words make the wanted number of tokens, by the server's own count."""
        self._words = _CALIBRATION_WORDS
        for _ in range(3):
            counted = await self._one_request(engine, server, self._prompt(engine), 1)
            if counted is None or counted < 1:
                self._words = max(1, self.options.prompt_tokens // 2)
                self._say("the server does not count prompt tokens: the length of the prompts is not known")
                return
            self._words = max(1, round(self._words * self.options.prompt_tokens / counted))

    def _prompt(self, engine: Engine) -> Prompt:
        if engine.takes_token_ids:
            return make.token_ids(self.options.prompt_tokens, self._last_id, self._source)
        return make.words(self._words or _CALIBRATION_WORDS, self._source)

    async def _one_request(self, engine: Engine, server: Server, prompt: Prompt, tokens: int) -> int | None:
        """Run one request to its end; its prompt tokens as the server counts them."""
        body = engine.body(server.model, prompt, tokens)
        limits = Limits(stall_s=self.options.stall_s)
        async with Load(self._target, engine.generate_path, [body], engine.read_event, limits) as load:
            await load.start()
            stream = load.streams[0]
            deadline = time.perf_counter() + self.options.stall_s
            while stream.ended is None:
                if time.perf_counter() > deadline:
                    raise InputError(
                        f"{self._target.url}: a single request brought no answer within "
                        f"{self.options.stall_s:.0f} s; is the server stuck? (--stall-timeout)"
                    )
                await asyncio.sleep(0.005)
            if not stream.counts:
                raise InputError(
                    f"{self._target.url}{engine.generate_path}: "
                    f"{self._hide(stream.ended)}{_remedy(stream.status)}"
                )
            return stream.prompt_tokens

    # ------------------------------------------------------------------ the batches

    async def _record_batch(self, holder: Holder, engine: Engine, size: int, trace_dir: Path | None) -> None:
        for attempt in (1, 2):
            held = await holder.hold([self._prompt(engine) for _ in range(size)])
            self._keep(held.batch)
            await self._drained(engine)
            batch = await self._with_traces(held, trace_dir)
            if batch.held is False and attempt == 1:
                self._say(f"batch {size}: {batch.held_reason}; once more")
                continue
            self._keep(batch)
            self._say(f"batch {size}: {_one_line(batch)}")
            if batch.profile == "missing":
                raise InputError(
                    f"batch {size}: {batch.profile_reason}; is {trace_dir} the folder the "
                    "server writes to? (--trace-dir)"
                )
            return

    def _keep(self, batch: Batch) -> None:
        assert self._run is not None
        others = [other for other in self._run.batches if other.batch_size != batch.batch_size]
        ordered = sorted([*others, batch], key=lambda each: each.batch_size)
        self._save(batches=tuple(ordered), clock=self._run.clock)

    async def _drained(self, engine: Engine) -> None:
        """Until the server has noticed that its clients are gone (it counts, or a moment passes)."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            counts = await engine.counts()
            if not counts.running and not counts.waiting:
                break
            await asyncio.sleep(_POLL_S)
        else:
            assert self._run is not None
            await self._one_request(engine, self._run.server, self._prompt(engine), 1)
        assert self._run is not None
        self._run = msgspec.structs.replace(self._run, clock=self._clock(engine))

    async def _with_traces(self, held: Held, trace_dir: Path | None) -> Batch:
        """The batch with its window's traces taken over, or with the reason why there are none."""
        batch, window = held.batch, held.window
        if window is None:
            return batch
        if trace_dir is None:
            return msgspec.structs.replace(
                batch,
                profile="left_on_server",
                profile_reason="as asked; the trace is where the server writes them",
            )
        assert self._run is not None
        files, whole = await self._wait_for_traces(trace_dir, window, self._run.server.ranks)
        traces = await asyncio.to_thread(self._take_traces, files, batch.batch_size)
        if not any(trace.gpu for trace in traces):
            reason = (
                f"no GPU trace in {trace_dir} within {self.options.trace_timeout_s:.0f} "
                f"s ({len(files)} files found)"
            )
            return msgspec.structs.replace(batch, profile="missing", profile_reason=reason)
        broken = [trace for trace in traces if not trace.complete]
        held_exactly, why = exactly_held(traces, batch.batch_size)
        return msgspec.structs.replace(
            batch,
            traces=tuple(traces),
            profile="truncated" if broken or not whole else "recorded",
            profile_reason=broken[0].reason if broken else None if whole else "the server was still writing",
            held=held_exactly,
            held_reason=why,
        )

    async def _wait_for_traces(
        self, folder: Path, window: Window, ranks: int | None
    ) -> tuple[list[TraceFile], bool]:
        """What the window wrote, and whether all of it is whole."""
        wait = Wait(folder, window.before, ranks)
        deadline = time.monotonic() + self.options.trace_timeout_s
        while time.monotonic() < deadline:
            files = await asyncio.to_thread(wait.ready)
            if files is not None:
                return files, True
            await asyncio.sleep(_POLL_S)
        return await asyncio.to_thread(wait.found), False

    def _take_traces(self, files: list[TraceFile], size: int) -> list[TraceFile]:
        """GPU traces into the folder, named by batch size and rank; a front end's trace stays where it is."""
        gpu = [file for file in files if file.gpu]
        taken: list[TraceFile] = []
        for rank, trace in enumerate(gpu):
            name = f"bs{size}.json.gz" if len(gpu) == 1 else f"bs{size}-rank{rank}.json.gz"
            source = Path(trace.source)
            try:
                take(
                    source,
                    self.options.out / name,
                    self.options.move_traces or source.parent.name == OWN_TRACES,
                )
            except OSError as error:
                raise InputError(
                    f"{self.options.out / name}: cannot be written ({error.strerror}); free space, then run "
                    "the same command again"
                ) from error
            taken.append(msgspec.structs.replace(trace, file=name))
        return taken

    async def _still_well(self, engine: Engine, server: Server) -> None:
        """After everything: the server answers and generates."""
        await self._one_request(engine, server, self._prompt(engine), 2)


def check_limits(server: Server, engine: Engine, options: Options, sizes: list[int]) -> None:
    """Refuse what the server is known not to take, before anything is sent.

    Raises:
        InputError: with the limit and the flag that raises it.
    """
    biggest = max(sizes)
    if server.max_model_len is not None:
        needed = options.prompt_tokens + (
            options.max_tokens or options.warmup_steps + options.steps + 3 * MEASURE_EVENTS
        )
        if needed > server.max_model_len:
            raise InputError(
                f"{options.prompt_tokens} prompt tokens and the steps to measure need a "
                f"context of {needed}, the server has {server.max_model_len}; ask for "
                "fewer --prompt-tokens, or raise --max-model-len (vLLM) or "
                "--context-length (SGLang)"
            )
    if server.max_batch is not None and biggest > server.max_batch:
        raise InputError(
            f"batch {biggest} is beyond the server's limit of {server.max_batch} "
            "running requests; raise --max-num-seqs (vLLM) or "
            "--max-running-requests (SGLang), or ask for smaller --batches"
        )
    if server.kv_tokens is not None:
        each = options.prompt_tokens + min(
            default_max_tokens(engine, server, options),
            options.warmup_steps + options.steps + 3 * MEASURE_EVENTS,
        )
        if biggest * each > server.kv_tokens:
            raise InputError(
                f"batch {biggest} at {options.prompt_tokens} prompt tokens needs "
                f"{biggest * each} key/value tokens, the server has room for "
                f"{server.kv_tokens}; ask for smaller --batches or --prompt-tokens, or "
                "give it more memory (--gpu-memory-utilization, --mem-fraction-static)"
            )


def exactly_held(traces: list[TraceFile], size: int) -> tuple[bool | None, str | None]:
    """Whether every marked step decodes this batch and nothing else; None with a reason without markers.

    Each tensor-parallel rank sees the whole batch, each data-parallel rank its share: then the shares add up.
    """
    marked = [trace.steps for trace in traces if trace.steps]
    if not marked:
        return None, "the trace names no engine steps"
    shares = [steps[0].batch_size for steps in marked if len(steps) == 1 and steps[0].kind == "decode"]
    if len(shares) == len(marked) and (set(shares) == {size} or sum(share or 0 for share in shares) == size):
        return True, None
    others = [step for steps in marked for step in steps if (step.kind, step.batch_size) != ("decode", size)]
    listed = ", ".join(f"{step.steps} {step.kind} of {step.batch_size}" for step in others[:4])
    return False, f"the window holds other steps: {listed}"


def _one_line(batch: Batch) -> str:
    plain = batch.unprofiled
    text = (
        f"{plain.tokens_per_s:,.0f} tokens/s, {plain.inter_token_ms_p50:.2f} ms "
        f"per token (p99 {plain.inter_token_ms_p99:.2f})"
    )
    if batch.slowdown is not None:
        text += f", {batch.slowdown:.2f} times as long under the profiler"
    if batch.held is not None:
        steps = sum(step.steps for trace in batch.traces for step in trace.steps)
        text += f", {steps} profiled steps {'all' if batch.held else 'NOT all'} decode of {batch.batch_size}"
    return text + "".join(f"; {note}" for note in batch.notes)


def _remedy(status: int | None) -> str:
    return {
        401: "; set the API key in the variable that --api-key-env names",
        403: "; set the API key in the variable that --api-key-env names",
        404: "; is the model right (--model), and has this server that route?",
        503: "; the server is not ready or overloaded: wait and try again",
    }.get(status or 0, "")


def _client_facts() -> dict[str, str]:
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "httpx": version("httpx"),
        "httptools": version("httptools"),
    }
