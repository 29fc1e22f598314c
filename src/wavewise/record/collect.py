"""Takes a window's traces over into the run folder, and judges what they hold."""

import asyncio
import time
from pathlib import Path

import msgspec

from wavewise.errors import InputError
from wavewise.record.batch import Held, Window
from wavewise.record.model import Batch, TraceFile
from wavewise.record.options import Options
from wavewise.record.preflight import OWN_TRACES
from wavewise.record.probe import POLL_S
from wavewise.record.traces import Wait, take


async def with_traces(held: Held, trace_dir: Path | None, options: Options, ranks: int | None) -> Batch:
    """The batch with its window's traces taken over, or with the reason why there are none.

    Args:
        held: the batch as measured.
        trace_dir: where this host finds the server's traces, None to leave them there.
        options: where they go, and how long to wait.
        ranks: how many of the server's processes write one.

    Raises:
        InputError: the run folder cannot take them.
    """
    batch, window = held.batch, held.window
    if window is None:
        return batch
    if trace_dir is None:
        return msgspec.structs.replace(
            batch,
            profile="left_on_server",
            profile_reason="as asked; the trace is where the server writes them",
        )
    files, whole = await _wait(trace_dir, window, ranks, options.trace_timeout_s)
    traces = await asyncio.to_thread(_take_all, files, batch.batch_size, options)
    if not any(trace.gpu for trace in traces):
        reason = (
            f"no GPU trace in {trace_dir} within {options.trace_timeout_s:.0f} s ({len(files)} files found)"
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


async def _wait(
    folder: Path, window: Window, ranks: int | None, timeout_s: float
) -> tuple[list[TraceFile], bool]:
    """What the window wrote, and whether all of it is whole."""
    wait = Wait(folder, window.before, ranks)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        files = await asyncio.to_thread(wait.ready)
        if files is not None:
            return files, True
        await asyncio.sleep(POLL_S)
    return await asyncio.to_thread(wait.found), False


def _take_all(files: list[TraceFile], size: int, options: Options) -> list[TraceFile]:
    """GPU traces into the folder, named by batch size and rank; a front end's trace stays where it is."""
    gpu = [file for file in files if file.gpu]
    taken: list[TraceFile] = []
    for rank, trace in enumerate(gpu):
        name = f"bs{size}.json.gz" if len(gpu) == 1 else f"bs{size}-rank{rank}.json.gz"
        source = Path(trace.source)
        try:
            take(
                source,
                options.out / name,
                options.move_traces or source.parent.name == OWN_TRACES,
            )
        except OSError as error:
            raise InputError(
                f"{options.out / name}: cannot be written ({error.strerror}); free space, then run "
                "the same command again"
            ) from error
        taken.append(msgspec.structs.replace(trace, file=name))
    return taken
