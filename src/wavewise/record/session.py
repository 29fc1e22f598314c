"""A whole recording: from the first question to the server to a finished run folder.

Everything that is known is on disk before the next stage begins, so that a recorder may be interrupted or
killed at any point: the same command goes on with what is missing.
"""

import asyncio
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import msgspec

from wavewise._version import __version__
from wavewise.errors import InputError, UsageError, WavewiseError
from wavewise.record.batch import Holder
from wavewise.record.client import Client, Target
from wavewise.record.collect import let_go, with_traces
from wavewise.record.engines import Engine, connect
from wavewise.record.folder import (
    TELEMETRY_FILE,
    guards_gone,
    open_folder,
    read_run,
    recording_lock,
    write_run,
)
from wavewise.record.host import is_local, server_command, without_key
from wavewise.record.model import Batch, Clock, Run, Server, Settings, Telemetry, Unfinished
from wavewise.record.options import Options
from wavewise.record.preflight import OWN_TRACES, check_limits, question, trace_folders
from wavewise.record.probe import POLL_S, Probe
from wavewise.record.resume import Left, take_up
from wavewise.record.telemetry import Sampler, check_file, count_samples, take_over

_Say = Callable[[str], None]
_DONE = ("recorded", "truncated", "none", "left_on_server")
_GUARD_S = 120.0
"""Longest wait for the guard of a killed recorder: it asks a server that may be busy writing a trace."""

_LAST_GUARD_S = 5.0
"""Longest wait for this recorder's own guards, which were told to leave."""


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
        self._run: Run | None = None
        self._local = False
        self._begun = False

    @property
    def done(self) -> list[Batch]:
        """Batches that need not be recorded again."""
        if self._run is None:
            return []
        left = self._run.unfinished
        open_size = left.batch_size if left and not _is_kept(left) else None
        return [b for b in self._run.batches if b.profile in _DONE and b.batch_size != open_size]

    def _missing(self) -> list[int]:
        """What is still to be recorded, the batch that was begun first."""
        assert self._run is not None
        done = {batch.batch_size for batch in self.done}
        begun = self._run.unfinished.batch_size if self._run.unfinished else None
        missing = [size for size in self.options.batches if size not in done]
        return sorted(missing, key=lambda size: size != begun)

    async def run(self) -> Run:
        """Record; no error that leaves this place holds the API key, should the server have echoed it."""
        client = Client(self._target)
        try:
            await self._with_client(client)
            assert self._run is not None
            return self._run  # with the samples that came after the last batch
        except asyncio.CancelledError:
            self._stopped("interrupted", "stopped by a signal")
            raise
        except WavewiseError as error:
            said = self._hide(str(error))
            self._stopped("failed", said)
            if said == str(error):
                raise
            raise type(error)(said) from None
        finally:
            await client.close()

    def _stopped(self, state: str, reason: str) -> None:
        """Write down why the recording ended early, if it had begun."""
        if self._begun:
            with suppress(InputError):  # the error that ends it is the one to tell
                self._save(state=state, reason=reason)

    async def _with_client(self, client: Client) -> None:
        options = self.options
        local = self._local = is_local(self._target.host)
        engine = await connect(client, options.engine)
        argv = server_command(self._target.port) if local else None
        server = without_key(await engine.describe(options.model, argv), self._target.key)
        self._say(
            f"{server.engine} {server.version or '(version unknown)'} at "
            f"{self._target.url}, model {server.model}"
        )
        prompts = "token ids" if engine.takes_token_ids else "text"
        settings = options.settings(prompts)
        self._run = await self._resumed(engine, server, settings)
        if not self._missing() and self._run.unfinished is None:
            self._say(f"all {len(options.batches)} batches are recorded already in {options.out}")
            await self._complete(finished_unix_s=self._run.finished_unix_s or time.time())
            return
        folders = trace_folders(engine, server, options, local)
        await self._take_up(folders[0], settings)
        missing = self._missing()
        if not missing:
            await self._complete()
            return
        check_limits(server, engine, options, missing)
        check_file(options.telemetry)
        if not self._confirm(question(server, options, self._target.url, missing)):
            raise UsageError("not confirmed: nothing was sent; --yes answers for you")
        probe = Probe(engine, server.model, options, self._say)
        await probe.idle()
        await probe.try_out()
        self._save()  # before the sampler's file: a folder with files but no run.json is refused
        sampler, telemetry = self._telemetry(local)
        self._save(telemetry=telemetry)
        try:
            holder = Holder(engine, server, options, folders, self._note, self._say)
            for size in missing:
                await self._record_batch(holder, probe, size, settings)
                self._save(clock=self._clock(client))
            await probe.one_request(probe.prompt(), 2)  # the server answers and generates as before
            await self._complete()
        finally:
            if sampler is not None:
                sampler.stop()
                self._save()

    async def _take_up(self, trace_dir: Path | None, settings: Settings) -> None:
        """What an interrupted recorder left of a batch, as far as no request is needed for it."""
        assert self._run is not None
        left = self._run.unfinished
        if left is None:
            return
        if not _is_kept(left):
            where = Left(left, trace_dir, settings, self._run.server)
            left = await take_up(where, self.options, self._note, self._say)
        if _wants_another(left):
            self._once_more(left)
        elif left.measured:
            self._finish(left)
        elif left.batch_size not in self.options.batches:
            self._say(f"batch {left.batch_size}: begun, but not asked for now; it is left unfinished")

    async def _complete(self, finished_unix_s: float | None = None) -> None:
        """The last word on disk; nothing of the recorder is left behind."""
        shutil.rmtree(self.options.out / OWN_TRACES, ignore_errors=True)  # windows that were given up
        self._save(state="complete", reason=None, finished_unix_s=finished_unix_s or time.time())
        await self._after_the_guard(_LAST_GUARD_S)

    async def _resumed(self, engine: Engine, server: Server, settings: Settings) -> Run:
        """The folder's earlier recording, continued; or a fresh one."""
        options = self.options
        before = read_run(options.out)
        fresh = Run(
            wavewise=__version__,
            url=self._target.url,
            server=server,
            settings=settings,
            state="running",
            started_unix_s=time.time(),
            telemetry=Telemetry(source="none", reason="not started yet"),
            clock=self._clock(engine.client),
            client=_client_facts(),
        )
        if before is None:
            return fresh
        self._must_equal("the server", before.url, fresh.url)
        await self._after_the_guard(_GUARD_S)
        if before.profiler_open:
            self._say("the recorder before this one died inside a profiler window: closing it")
            await engine.stop_profiler()
            write_run(options.out, msgspec.structs.replace(before, profiler_open=False))
        self._must_equal("the model", before.server.model, server.model)
        self._must_equal("the server's version", before.server.version, server.version)
        for name in ("prompt_tokens", "steps", "profile", "prompts"):
            self._must_equal(
                f"--{name.replace('_', '-')}", getattr(before.settings, name), getattr(settings, name)
            )
        return msgspec.structs.replace(
            fresh,
            started_unix_s=before.started_unix_s,
            finished_unix_s=before.finished_unix_s,
            batches=before.batches,
            unfinished=before.unfinished,
            telemetry=before.telemetry,
        )

    def _must_equal(self, name: str, then: object, now: object) -> None:
        if then != now:
            raise UsageError(
                f"{self.options.out}: was recorded with {name} {then!r}, not {now!r}; choose "
                "another --out, or ask for the same"
            )

    async def _after_the_guard(self, timeout_s: float) -> None:
        """Until the guard of a killed recorder has stopped the profiler: it must not stop the next window."""
        deadline = time.monotonic() + timeout_s
        while not guards_gone(self.options.out) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)

    def _save(self, **changes: object) -> None:
        assert self._run is not None
        telemetry = changes.get("telemetry", self._run.telemetry)
        assert isinstance(telemetry, Telemetry)
        changes["telemetry"] = msgspec.structs.replace(telemetry, samples=count_samples(self.options.out))
        self._run = msgspec.structs.replace(self._run, **changes)  # type: ignore[arg-type]
        self._begun = True
        write_run(self.options.out, self._run)

    def _note(self, unfinished: Unfinished) -> None:
        """Put what is known of the batch on disk before its next stage."""
        batches = {} if unfinished.batch is None else {"batches": self._with(unfinished.batch)}
        self._save(unfinished=unfinished, profiler_open=unfinished.profiler_open, **batches)

    def _clock(self, client: Client) -> Clock:
        return Clock(offset_s_low=0.0, offset_s_high=0.0) if self._local else client.clock

    def _hide(self, text: str) -> str:
        """Text without the API key, should a server echo it."""
        return text.replace(self._target.key, "(hidden)") if self._target.key else text

    def _telemetry(self, local: bool) -> tuple[Sampler | None, Telemetry]:
        """The sampler, if there is to be one, and what the folder then holds: earlier samples stay."""
        assert self._run is not None
        sampler, telemetry = self._sampled(local)
        before = self._run.telemetry
        if telemetry.file is None and before.file is not None:
            self._say(f"no more telemetry: {telemetry.reason}; what was sampled before is kept")
            return sampler, before
        return sampler, telemetry

    def _sampled(self, local: bool) -> tuple[Sampler | None, Telemetry]:
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

    async def _record_batch(self, holder: Holder, probe: Probe, size: int, settings: Settings) -> None:
        assert self._run is not None
        server = self._run.server
        begun = self._run.unfinished
        fresh = Unfinished(batch_size=size, settings=settings, server=server)
        so_far = begun if begun is not None and begun.batch_size == size else fresh
        while True:
            so_far = await holder.hold([probe.prompt() for _ in range(size)], so_far)
            await probe.drained()
            so_far = await self._collected(so_far)
            batch = so_far.batch
            assert batch is not None
            if _wants_another(so_far):
                so_far = self._once_more(so_far)
                continue
            if batch.profile == "missing":
                self._say(f"batch {size}: {_one_line(batch)}")
                assert so_far.window is not None
                raise InputError(
                    f"batch {size}: {batch.profile_reason}; is {so_far.window.trace_dir} the folder the "
                    "server writes to? (--trace-dir)"
                )
            self._finish(so_far)
            return

    async def _collected(self, so_far: Unfinished) -> Unfinished:
        """The batch with its window's traces in the folder, and that on disk; as it is without a window."""
        assert self._run is not None
        batch, window = so_far.batch, so_far.window
        if batch is None or window is None or window.state == "collected":
            return so_far
        timeout_s = self.options.trace_timeout_s
        batch = await with_traces(batch, window, self.options, self._run.server.ranks, timeout_s)
        state = "missing" if batch.profile == "missing" else "collected"
        so_far = msgspec.structs.replace(
            so_far, batch=batch, window=msgspec.structs.replace(window, state=state)
        )
        self._note(so_far)
        return so_far

    def _once_more(self, so_far: Unfinished) -> Unfinished:
        """The batch from its beginning: other steps than its own were in the window."""
        assert so_far.batch is not None
        self._say(f"batch {so_far.batch_size}: {so_far.batch.held_reason}; once more")
        again = Unfinished(
            batch_size=so_far.batch_size, attempt=2, settings=so_far.settings, server=so_far.server
        )
        self._note(again)
        return again

    def _finish(self, so_far: Unfinished) -> None:
        """The batch is done; the server's copies of its traces go only now that `run.json` names ours."""
        assert so_far.batch is not None
        self._say(f"batch {so_far.batch_size}: {_one_line(so_far.batch)}")
        let_go(so_far.batch, self.options)
        self._save(unfinished=None, batches=self._with(so_far.batch))

    def _with(self, batch: Batch) -> tuple[Batch, ...]:
        """The recorded batches, this one among them or in its place."""
        assert self._run is not None
        others = [other for other in self._run.batches if other.batch_size != batch.batch_size]
        return tuple(sorted([*others, batch], key=lambda each: each.batch_size))


def _wants_another(so_far: Unfinished) -> bool:
    batch = so_far.batch
    return so_far.measured and so_far.attempt == 1 and batch is not None and batch.held is False


def _is_kept(left: Unfinished) -> bool:
    """Whether a batch was finished but for tidying up behind it."""
    window = left.window
    return left.measured and (window is None or window.state == "collected")


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


def _client_facts() -> dict[str, str]:
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "httpx": version("httpx"),
        "httptools": version("httptools"),
    }
