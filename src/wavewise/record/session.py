"""A whole recording: from the first question to the server to a finished run folder.

Everything that is known is on disk before the next step begins, so that a recorder may be interrupted or
killed at any point: the same command goes on with what is missing.
"""

import asyncio
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from wavewise._version import __version__
from wavewise.errors import InputError, UsageError, WavewiseError
from wavewise.record.batch import Holder
from wavewise.record.client import Client, Target
from wavewise.record.collect import with_traces
from wavewise.record.engines import Engine, connect
from wavewise.record.folder import TELEMETRY_FILE, open_folder, read_run, recording_lock, write_run
from wavewise.record.guard import Guard
from wavewise.record.host import is_local, server_command, without_key
from wavewise.record.model import Batch, Clock, Run, Server, Telemetry
from wavewise.record.options import Options
from wavewise.record.preflight import check_limits, question, trace_folders
from wavewise.record.probe import Probe
from wavewise.record.telemetry import Sampler, count_samples, take_over

_Say = Callable[[str], None]
_DONE = ("recorded", "truncated", "none", "left_on_server")


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

    @property
    def done(self) -> list[Batch]:
        """Batches that need not be recorded again."""
        return [batch for batch in (self._run.batches if self._run else ()) if batch.profile in _DONE]

    async def run(self) -> Run:
        """Record; no error that leaves this place holds the API key, should the server have echoed it."""
        client = Client(self._target)
        try:
            return await self._with_client(client)
        except WavewiseError as error:
            if self._hide(str(error)) == str(error):
                raise
            raise type(error)(self._hide(str(error))) from None
        finally:
            await client.close()

    async def _with_client(self, client: Client) -> Run:
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
        self._run = await self._resumed(engine, server, prompts)
        missing = [size for size in options.batches if size not in {batch.batch_size for batch in self.done}]
        if not missing:
            self._say(f"all {len(options.batches)} batches are recorded already in {options.out}")
            return self._save(state="complete", reason=None)
        folders = trace_folders(engine, server, options, local)
        check_limits(server, engine, options, missing)
        if not self._confirm(question(server, options, self._target.url, missing)):
            raise UsageError("not confirmed: nothing was sent; --yes answers for you")
        probe = Probe(engine, server.model, options, self._say)
        await probe.idle()
        await probe.try_out()
        sampler, telemetry = self._telemetry(local)
        self._save(telemetry=telemetry)
        try:
            holder = Holder(engine, server, options, folders, lambda: self._watched(engine), self._say)
            for size in missing:
                await self._record_batch(holder, probe, size, folders[0])
                self._save(clock=self._clock(client))
            await probe.one_request(probe.prompt(), 2)  # the server answers and generates as before
            return self._save(state="complete", reason=None, finished_unix_s=time.time())
        except asyncio.CancelledError:
            self._save(state="interrupted", reason="stopped by a signal")
            raise
        except Exception as error:
            self._save(state="failed", reason=self._hide(str(error) or type(error).__name__))
            raise
        finally:
            if sampler is not None:
                sampler.stop()
                self._save()

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
            clock=self._clock(engine.client),
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

    def _clock(self, client: Client) -> Clock:
        return Clock(offset_s_low=0.0, offset_s_high=0.0) if self._local else client.clock

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

    async def _record_batch(self, holder: Holder, probe: Probe, size: int, trace_dir: Path | None) -> None:
        assert self._run is not None
        for attempt in (1, 2):
            held = await holder.hold([probe.prompt() for _ in range(size)])
            self._keep(held.batch)
            await probe.drained()
            batch = await with_traces(held, trace_dir, self.options, self._run.server.ranks)
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
        self._save(batches=tuple(ordered))


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
