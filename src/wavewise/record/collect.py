"""Takes a window's traces over into the run folder, and judges what they hold."""

import asyncio
import time
from pathlib import Path

from msgspec.structs import replace

from wavewise.errors import InputError
from wavewise.record.model import Batch, TraceFile, Window
from wavewise.record.options import Options
from wavewise.record.preflight import OWN_TRACES
from wavewise.record.probe import POLL_S
from wavewise.record.traces import Wait, take, wait_for

GRACE_S = 5.0
"""After so long without news, a window that was given up writes nothing more."""


async def with_traces(
    batch: Batch, window: Window, options: Options, ranks: int | None, timeout_s: float
) -> Batch:
    """The batch with its window's traces taken over, or with the reason why there are none.

    Args:
        batch: the batch as measured.
        window: its profiler window.
        options: where the traces go.
        ranks: how many of the server's processes write one.
        timeout_s: how long to wait for them.

    Raises:
        InputError: the run folder cannot take them.
    """
    wait = wait_for(window, ranks)
    if wait is None:
        return replace(
            batch,
            profile="left_on_server",
            profile_reason="as asked; the trace is where the server writes them",
        )
    files, whole = await _wait(wait, timeout_s)
    traces = await asyncio.to_thread(_take_all, files, batch.batch_size, options)
    if not any(trace.gpu for trace in traces):
        reason = f"no GPU trace in {window.trace_dir} within {timeout_s:g} s ({len(files)} files found)"
        return replace(batch, profile="missing", profile_reason=reason)
    broken = [trace for trace in traces if not trace.complete]
    held, why = exactly_held(traces, batch.batch_size)
    named = all(window.label in Path(trace.source).name for trace in traces)
    if ranks is not None and len(traces) > ranks and not named:
        held = False
        why = f"{len(traces)} GPU traces came where {ranks} were due: another window's may be among them"
    return replace(
        batch,
        traces=tuple(traces),
        profile="truncated" if broken or not whole else "recorded",
        profile_reason=broken[0].reason if broken else None if whole else "the server was still writing",
        held=held,
        held_reason=why,
    )


def short_of(batch: Batch, steps: int) -> str | None:
    """What a batch lacks whose trace was collected by another recorder than the one that opened the window.

    The streams no longer vouch for the window, so the trace must: whole, nothing but decode steps of this
    batch size, and as many as were wanted. (An engine that closes the window itself may count the step at
    which it does.)

    Returns:
        The reason to record the window again, None for a batch that has all.
    """
    if batch.profile == "left_on_server":
        return None
    if batch.profile != "recorded":
        return batch.profile_reason
    if batch.held is False:
        return batch.held_reason
    counted = [sum(step.steps for step in trace.steps) for trace in batch.traces if trace.steps]
    if counted and min(counted) < steps - 1:
        return f"the trace holds {min(counted)} steps of {steps}"
    return None


async def settled(window: Window, ranks: int | None, timeout_s: float) -> None:
    """Until a window that was given up writes no more: its late trace must not pass for the next window's."""
    wait = wait_for(window, ranks)
    deadline = time.monotonic() + timeout_s
    while wait is not None and time.monotonic() < deadline:
        if await asyncio.to_thread(wait.ready) is not None or wait.quiet_s > GRACE_S:
            return
        await asyncio.sleep(POLL_S)


def in_folder(batch: Batch, folder: Path) -> bool:
    """Whether the traces that a batch names are in the run folder."""
    return all((folder / trace.file).is_file() for trace in batch.traces)


def let_go(batch: Batch, options: Options) -> None:
    """Remove the server's copies of a batch's traces, where that was asked for or they are the recorder's own."""
    for trace in batch.traces:
        source = Path(trace.source)
        if options.move_traces or (options.out / OWN_TRACES).absolute() in source.parents:
            source.unlink(missing_ok=True)


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


async def _wait(wait: Wait, timeout_s: float) -> tuple[list[TraceFile], bool]:
    """What the window wrote, and whether all of it is whole."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        files = await asyncio.to_thread(wait.ready)
        if files is not None:
            return files, True
        await asyncio.sleep(POLL_S)
    return await asyncio.to_thread(wait.found), False


def _take_all(files: list[TraceFile], size: int, options: Options) -> list[TraceFile]:
    """GPU traces into the folder, named by batch size and rank; a front end's trace stays where it is.

    The server's copies stay until `run.json` names the new ones (`let_go`).
    """
    gpu = [file for file in files if file.gpu]
    taken: list[TraceFile] = []
    for rank, trace in enumerate(gpu):
        name = f"bs{size}.json.gz" if len(gpu) == 1 else f"bs{size}-rank{rank}.json.gz"
        try:
            take(Path(trace.source), options.out / name)
        except OSError as error:
            raise InputError(
                f"{options.out / name}: cannot be written ({error.strerror}); free space, then run "
                "the same command again"
            ) from error
        taken.append(replace(trace, file=name))
    names = {trace.file for trace in taken}
    for old in (options.out / f"bs{size}.json.gz", *options.out.glob(f"bs{size}-rank*.json.gz")):
        if taken and old.name not in names:  # of a window that was given up
            old.unlink(missing_ok=True)
    return taken
