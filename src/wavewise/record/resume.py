"""Takes up a batch that an interrupted recorder left: what was finished stays, what was lost is said.

Here nothing is sent but the question for the trace folder; what needs requests again is left to the holder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from wavewise.record.batch import BEFORE_WINDOW
from wavewise.record.collect import in_folder, settled, short_of, with_traces
from wavewise.record.model import Batch, Server, Settings, Unfinished, Window
from wavewise.record.options import Options

LAST_LOOK_S = 3.0
"""For a trace that a recorder has waited for in vain already: it may have come since."""


@dataclass(frozen=True)
class Left:
    """What was left, and where the recording stands now.

    Attributes:
        batch: the unfinished batch.
        trace_dir: where this host finds the server's traces now.
        settings, server: those of the recording that goes on.
    """

    batch: Unfinished
    trace_dir: Path | None
    settings: Settings
    server: Server

    @property
    def changed(self) -> str | None:
        """Why the measurements of then and those of now do not belong together, None where they do."""
        then, now = self.batch.settings, replace(self.settings, batches=self.batch.settings.batches)
        if then != now:
            return "it was begun with other options"
        if self.batch.server != self.server:
            return "the server describes itself differently now"
        return None

    @property
    def same_folder(self) -> bool:
        """Whether traces are looked for where the window's were to go."""
        window = self.batch.window
        now = str(self.trace_dir) if self.trace_dir else None
        return window is None or window.trace_dir == now


async def take_up(
    left: Left, options: Options, note: Callable[[Unfinished], None], say: Callable[[str], None]
) -> Unfinished:
    """Settle what can be settled without a request.

    Args:
        left: the unfinished batch.
        options: how long to wait for its trace, and where that goes.
        note: puts the batch on disk.
        say: progress.

    Returns:
        The batch with its trace collected; or without its window, where that must be recorded again; or as if
        it had not been begun, where its measurements do not belong to those of now.
    """
    batch = left.batch
    window, size = batch.window, batch.batch_size
    if window is not None and window.state in ("open", "broken"):
        say(f"batch {size}: the profiler window was cut short; it is recorded again")
        await settled(window, left.server.ranks, options.trace_timeout_s)
        batch = without_window(batch)
        note(batch)
    if left.changed is not None:
        say(f"batch {size}: {left.changed}; it is recorded from its beginning")
        batch = Unfinished(batch_size=size, settings=left.settings, server=left.server)
        note(batch)
        return batch
    if batch.window is None or batch.batch is None:
        if batch.batch is not None:
            say(f"batch {size}: the measurement before its window is kept")
        return batch
    reason, batch = await _collected(left, batch, batch.window, batch.batch, options, say)
    if reason is not None:
        say(f"batch {size}: {reason}; the window is recorded again")
        batch = without_window(batch)
    note(batch)
    return batch


def without_window(batch: Unfinished) -> Unfinished:
    """The batch as it was before its window opened."""
    measured = batch.batch
    if measured is not None:
        measured = replace(
            measured,
            after=None,
            profiled=None,
            slowdown=None,
            slowdown_reason=None,
            recovered=None,
            held=None,
            held_reason=None,
            profile="missing",
            profile_reason=BEFORE_WINDOW,
            profile_start_unix_s=None,
            profile_stop_unix_s=None,
            traces=(),
        )
    return replace(batch, batch=measured, window=None, measured=False)


async def _collected(
    left: Left,
    batch: Unfinished,
    window: Window,
    measured: Batch,
    options: Options,
    say: Callable[[str], None],
) -> tuple[str | None, Unfinished]:
    """The batch with the traces that its window left, or why they will not do."""
    if window.state == "collected":
        return (None if in_folder(measured, options.out) else "its traces are gone from the folder"), batch
    if not left.same_folder:
        return f"its trace went to {window.trace_dir}, not {left.trace_dir}", batch
    patience_s = options.trace_timeout_s
    if window.state == "missing":
        patience_s = min(LAST_LOOK_S, patience_s)
    else:
        say(f"batch {batch.batch_size}: waiting for the trace of the window that was closed already")
    found = await with_traces(measured, window, options, left.server.ranks, patience_s)
    return (
        short_of(found, options.steps),
        replace(batch, batch=found, window=replace(window, state="collected")),
    )
