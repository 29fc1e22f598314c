"""Killed, interrupted or terminated at every stage: what was finished is not done again, and nothing is lost.

A recorder in a process of its own is stopped at each of its durable writes (see record_stopped.py), then the
same command goes on here. What it may do again follows from what was on disk when it was stopped; the run must
end like one that nobody stopped.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from record_fakes import Fake, Faults, Running
from record_helpers import command, idle, run_recording

from wavewise.record import Run, read_run

pytestmark = pytest.mark.usefixtures("quick_settle")

BATCHES = (1, 3)
WRITES = {"vllm": 12, "sglang": 12}
"""Durable writes of a recording whose first batch is done, from its first word to its last."""

KEPT = {
    "state",
    "profile",
    "held",
    "batch_size",
    "kind",
    "running",
    "waiting",
    "complete",
    "gpu",
    "file",
    "url",
}
"""Fields of run.json that must be equal; of all others whether they are there, and their type."""


def shape(value: object, name: str = "") -> object:
    """A run's content without its times."""
    if isinstance(value, dict):  # a note tells of a pace that differs, as it may on a busy machine
        return {key: shape(each, key) for key, each in value.items() if key != "notes"}
    if isinstance(value, list | tuple):
        return [shape(each, name) for each in value]
    return value if name in KEPT else type(value).__name__


def content(run: Run) -> object:
    import msgspec

    return shape(msgspec.to_builtins(run))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def loads(fake: Fake) -> int:
    """Requests that were part of a batch, not of a probe."""
    limits = [body.get("max_tokens") or body["sampling_params"]["max_new_tokens"] for body in fake.bodies]
    return sum(limit > 8 for limit in limits)


def windows(fake: Fake) -> int:
    return fake.log.count("POST /start_profile")


def stopped(server: Running, out: Path, how: int, at: int) -> int:
    """Record in a process that stops itself; its exit status."""
    words = command(server, out, "--batches", ",".join(map(str, BATCHES)))
    script, count = Path(__file__).with_name("record_stopped.py"), out.with_name("count")
    process = subprocess.run(
        [sys.executable, str(script), str(int(how)), str(at), str(out), str(count), *words[3:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in process.stderr, process.stderr
    return process.returncode


def slow_traces(serve, engine: str) -> Running:
    """A server whose traces come late, so that a killed recorder has one outstanding."""
    return serve(engine, Faults(trace_late_s=0.3), step_s=0.002, profiled_factor=3.0)


@pytest.fixture(scope="module")
def references() -> dict[str, tuple[object, list[str]]]:
    """Per engine, what a recording that nobody stopped holds."""
    return {}


def reference(references, serve, tmp_path: Path, engine: str) -> tuple[object, list[str]]:
    if engine not in references:
        server = slow_traces(serve, engine)
        out = tmp_path / "whole"
        run_recording(server, out, batches=BATCHES[:1])
        assert stopped(server, out, 0, 0) == 0
        assert int((tmp_path / "count").read_text()) == WRITES[engine], "every write is a stage to stop at"
        run = read_run(out)
        assert run is not None
        references[engine] = content(run), files(out)
    return references[engine]


def every_stage() -> list[object]:
    """Each write and signal; the quick ones end in an open window, with a trace outstanding, and in its copying."""
    rows: list[object] = []
    for engine in WRITES:
        for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            for at in range(1, WRITES[engine] + 1):
                quick = engine == "vllm" and how == signal.SIGKILL and at in (5, 7, 9)
                marks = [] if quick else pytest.mark.slow
                rows.append(pytest.param(engine, how, at, id=f"{engine}-{how.name}-{at}", marks=marks))
    return rows


@pytest.mark.parametrize(("engine", "how", "at"), every_stage())
def test_stopped_at_every_write(
    serve, tmp_path: Path, references, engine: str, how: signal.Signals, at: int
) -> None:
    whole, names = reference(references, serve, tmp_path, engine)
    server = slow_traces(serve, engine)
    fake, out = server.fake, tmp_path / "run"
    run_recording(server, out, batches=BATCHES[:1])
    status = stopped(server, out, how, at)
    # The last write leaves nothing to interrupt.
    assert status in ({-how} if how == signal.SIGKILL else {130, 0} if at == WRITES[engine] else {130})
    assert server.wait(idle, 15.0), "profiler and requests are stopped by whoever is left"
    at_the_end = read_run(out)
    assert at_the_end is not None
    left, sent, opened = at_the_end.unfinished, loads(fake), windows(fake)
    first = at_the_end.batches[0]

    run = run_recording(server, out, batches=BATCHES, warmup_steps=8)  # as the command line has it

    assert content(run) == _elsewhere(whole, server.url)
    assert run == read_run(out)
    assert files(out) == names
    assert run.batches[0] == first, "what was recorded is kept as it was"
    assert server.wait(idle)
    batch = run.batches[1]
    if (left is None and len(at_the_end.batches) == 2) or (left is not None and left.measured):
        assert loads(fake) == sent, "no request is sent again for what is measured"
    if left is not None and left.batch is not None:
        assert batch.unprofiled == left.batch.unprofiled, "a finished measurement is not redone"
    if left is not None and left.window is not None and left.window.profiled is not None:
        assert windows(fake) == opened, "a window that has passed is not opened again"
        assert batch.profiled == left.window.profiled
    if left is not None and left.window is not None and left.window.state in ("open", "broken"):
        assert windows(fake) <= opened + 1
    assert 6 <= sum(step.steps for trace in batch.traces for step in trace.steps) <= 40


def _elsewhere(whole: object, url: str) -> object:
    """The reference, recorded from a server on another port."""
    assert isinstance(whole, dict)
    return {**whole, "url": url}
