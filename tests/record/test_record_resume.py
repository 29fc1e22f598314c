"""Killed, interrupted or terminated at every stage: what was finished is not done again, and nothing is lost.

A recorder in a process of its own is stopped at each of its durable writes (see record_stopped.py), then the
same command goes on here. What it may do again follows from what was on disk when it was stopped; the run must
end like one that nobody stopped.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from record_fakes import Fake, Faults, Running
from record_helpers import command, idle, run_recording

from wavewise.errors import InputError, UsageError
from wavewise.record import Run, read_run
from wavewise.record.client import parse_target
from wavewise.record.options import Options
from wavewise.record.session import record
from wavewise.record.telemetry import take_over

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


def stopped(server: Running, out: Path, how: int, at: int, *more: str) -> int:
    """Record in a process that stops itself; its exit status."""
    words = command(server, out, "--batches", ",".join(map(str, BATCHES)), *more)
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
    """Each write and signal. Every run of the tests kills at each write that vLLM's recorder makes."""
    rows: list[object] = []
    for engine in WRITES:
        for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            for at in range(1, WRITES[engine] + 1):
                usual = engine == "vllm" and how == signal.SIGKILL
                marks = [] if usual else pytest.mark.exhaustive
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


# ---------------------------------------------------------------------- between the writes


def begun(server: Running, out: Path, reached, *more: str) -> "subprocess.Popen[str]":
    """A recording of batch 3 in a process of its own, once the server has reached a state."""
    process = subprocess.Popen(
        command(server, out, "--batches", "3", *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if not server.wait(reached, 20.0):
        process.kill()
        raise AssertionError(f"the stage was not reached: {process.communicate()}")
    return process


def resumed(server: Running, out: Path, **changes: Any) -> tuple[Run, list[str]]:
    """The same recording again, and what it says."""
    lines: list[str] = []
    options = Options(
        url=server.url, out=out, batches=(3,), prompt_tokens=64, steps=6, measure_s=0.05, telemetry="none",
        trace_dir=server.fake.trace_dir, **changes,
    )  # fmt: skip
    run = record(options, parse_target(server.url, None), lambda question: True, lines.append)
    return run, lines


def left_by_killing(process: "subprocess.Popen[str]", out: Path) -> Run:
    """What a recorder leaves on disk that is killed now."""
    process.kill()
    process.communicate()
    left = read_run(out)
    assert left is not None
    return left


def test_killed_while_the_server_writes_the_trace(serve, tmp_path: Path) -> None:
    """The server stands still for a second, in answer to a recorder that is no more; its trace is the window's."""
    server = serve("vllm", Faults(stop_s=1.5, trace_slowly_s=0.5), step_s=0.003)
    process = begun(server, tmp_path / "run", lambda fake: "POST /stop_profile" in fake.log)
    left = left_by_killing(process, tmp_path / "run")
    assert left.unfinished is not None
    assert left.unfinished.window is not None
    assert (left.unfinished.window.state, left.profiler_open) == ("passed", True)
    run, lines = resumed(server, tmp_path / "run")
    (batch,) = run.batches
    assert (batch.profile, batch.held, batch.traces[0].complete) == ("recorded", True, True)
    assert windows(server.fake) == 1
    assert batch.profiled == left.unfinished.window.profiled
    assert any("waiting for the trace of the window that was closed already" in line for line in lines)
    assert server.wait(idle)


def test_a_trace_that_never_turns_up_is_recorded_again_and_said(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(trace_nowhere=True), step_s=0.003)
    process = begun(server, tmp_path / "run", lambda fake: fake.profiles_written == 1 and not fake.running)
    left = left_by_killing(process, tmp_path / "run")
    assert left.unfinished is not None
    assert left.unfinished.batch is not None
    server.fake.faults.trace_nowhere = False
    run, lines = resumed(server, tmp_path / "run", trace_timeout_s=0.6)
    (batch,) = run.batches
    assert (batch.profile, batch.held) == ("recorded", True)
    assert windows(server.fake) == 2
    assert batch.unprofiled == left.unfinished.batch.unprofiled
    assert any("no GPU trace in" in line and "recorded again" in line for line in lines)


def test_a_late_trace_of_a_broken_window_is_not_taken_for_the_next_ones(serve, tmp_path: Path) -> None:
    """Its steps end with the recorder's requests; it comes after the recorder has gone on."""
    server = serve("vllm", Faults(trace_late_s=1.5), step_s=0.004, profiled_factor=8.0)
    process = begun(server, tmp_path / "run", lambda fake: fake.profile is not None and len(fake.steps) >= 2)
    process.kill()
    process.communicate()
    run, lines = resumed(server, tmp_path / "run")
    (batch,) = run.batches
    assert (batch.profile, batch.held, len(batch.traces)) == ("recorded", True, 1)
    assert sum(step.steps for step in batch.traces[0].steps) >= 6
    assert any("cut short; it is recorded again" in line for line in lines)
    sources = sorted(path.name for path in (server.fake.trace_dir or tmp_path).glob("*rank0*"))
    assert Path(batch.traces[0].source).name == sources[-1], "the second window's"
    assert files(tmp_path / "run") == ["bs3.json.gz", "run.json"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"warmup_steps": 9}, "begun with other options"),
        ({"measure_s": 0.06}, "begun with other options"),
        ({}, "describes itself differently"),
    ],
)
def test_measurements_of_two_kinds_are_not_joined(
    serve, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    server = serve("vllm", Faults(trace_nowhere=True), step_s=0.003)
    process = begun(server, tmp_path / "run", lambda fake: fake.profiles_written == 1 and not fake.running)
    process.kill()
    process.communicate()
    server.fake.faults.trace_nowhere = False
    if not changes:
        server.fake.max_model_len += 1000
    left = read_run(tmp_path / "run")
    given = {"measure_s": 0.05, **changes}
    lines: list[str] = []
    options = Options(
        url=server.url, out=tmp_path / "run", batches=(3,), prompt_tokens=64, steps=6, telemetry="none",
        trace_dir=server.fake.trace_dir, **given,
    )  # fmt: skip
    run = record(options, parse_target(server.url, None), lambda question: True, lines.append)
    assert any(why in line for line in lines), lines
    assert left is not None
    assert left.unfinished is not None
    assert left.unfinished.batch is not None
    assert run.batches[0].unprofiled != left.unfinished.batch.unprofiled
    assert run.batches[0].held is True


def test_another_url_does_not_stop_a_strangers_profiler(serve, tmp_path: Path) -> None:
    ours, other = serve("vllm"), serve("vllm")
    run_recording(ours, tmp_path / "run", batches=(1,))
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"profiler_open": false', '"profiler_open": true'))
    with pytest.raises(UsageError, match="choose another --out"):
        run_recording(other, tmp_path / "run", batches=(1,))
    assert "POST /stop_profile" not in other.fake.log


# ---------------------------------------------------------------------- telemetry


def test_samples_from_before_the_kill_stay(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sampler of this host, played by a process that needs no GPU."""
    monkeypatch.setattr(sys, "executable", str(_python_with_a_gpu(tmp_path)))
    server = serve("vllm", Faults(trace_nowhere=True), step_s=0.003)
    out = tmp_path / "run"
    with pytest.raises(InputError, match="no GPU trace"):
        run_recording(server, out, batches=(3,), telemetry="local", trace_timeout_s=0.4)
    before = (out / "telemetry.csv").read_text()
    assert before.count("\n") > 3
    server.fake.faults.trace_nowhere = False
    run = run_recording(server, out, batches=(3,), telemetry="local")
    after = (out / "telemetry.csv").read_text()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert run.telemetry.samples == after.count("\n") - 1
    (done,) = run_recording(server, out, batches=(3, 4), telemetry="none").batches[1:]
    assert done.batch_size == 4
    kept = read_run(out)
    assert kept is not None
    assert kept.telemetry == run.telemetry, "what was sampled is still named where no more is asked for"
    assert (out / "telemetry.csv").read_text() == after


def test_a_killed_recorders_sampler_ends_and_its_samples_stay(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = _python_with_a_gpu(tmp_path)
    monkeypatch.setenv("PYTHON_OF_HELPERS", str(python))
    server = slow_traces(serve, "vllm")
    out = tmp_path / "run"
    run_recording(server, out, batches=BATCHES[:1])
    assert stopped(server, out, signal.SIGKILL, 7, "--telemetry", "local") == -signal.SIGKILL
    assert server.wait(idle, 15.0)
    time.sleep(0.3)  # the sampler has seen its owner's end
    before = (out / "telemetry.csv").read_text()
    time.sleep(0.2)
    assert (out / "telemetry.csv").read_text() == before, "nobody samples any more"
    assert before.count("\n") > 10
    monkeypatch.setattr(sys, "executable", str(python))
    run = run_recording(server, out, batches=BATCHES, warmup_steps=8, telemetry="local")
    after = (out / "telemetry.csv").read_text()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert after.count("ts_unix_s") == 1
    assert run.telemetry.samples == after.count("\n") - 1
    assert [batch.profile for batch in run.batches] == ["recorded", "recorded"]


def test_a_second_telemetry_file_joins_the_first(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("ts_unix_s,gpu,sm_activity_percent\n1.0,0,97\n2.0,0,98\n2.5,0")
    second.write_text("ts_unix_s,gpu,sm_activity_percent,power_w\n2.0,0,98,\n3.0,0,99,500\n")
    take_over(first, tmp_path)
    found = take_over(second, tmp_path)
    assert found.samples == 3
    assert (tmp_path / "telemetry.csv").read_text().splitlines() == [
        "ts_unix_s,gpu,sm_activity_percent,power_w",
        "1.0,0,97,",
        "2.0,0,98,",
        "3.0,0,99,500",
    ]


def _python_with_a_gpu(folder: Path) -> Path:
    """This interpreter, except that `-m wavewise.record.telemetry` samples a GPU that is made up."""
    script = folder / "sampler.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "import wavewise.record.telemetry as t\n"
        "out = Path(sys.argv[sys.argv.index('--out') + 1])\n"
        "gpu = SimpleNamespace(sample=lambda ts: {'ts_unix_s': f'{ts:.4f}', 'gpu': 0, 'sm_activity_percent': 9})\n"
        "t._say(t._Hello(driver='580', gpus=(t.TelemetryGpu(index=0, name='NVIDIA H200'),)))\n"
        "t._sample_until(t._stop_event(True, None), [gpu], out, 0.02)\n"
    )
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'if [ "$2" = wavewise.record.telemetry ]; then shift 2; exec "{sys.executable}" "{script}" "$@"; fi\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


# ---------------------------------------------------------------------- many streams


@pytest.mark.slow
def test_a_thousand_streams_are_held_killed_and_taken_up(serve, tmp_path: Path) -> None:
    """The whole recorder, not its load generator alone: 1,024 requests decode in every profiled step."""
    server = serve(
        "vllm", Faults(trace_late_s=3.0), step_s=0.2, profiled_factor=1.0, max_num_seqs=1024,
        prefill_budget=1 << 20,
    )  # fmt: skip
    out, telemetry = tmp_path / "run", tmp_path / "there.csv"
    telemetry.write_text("ts_unix_s,gpu,sm_activity_percent\n1.0,0,97\n1.1,0,98\n")
    words = command(server, out, "--batches", "1024", "--telemetry", str(telemetry), "--timeout", "300")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        written = server.wait(lambda fake: fake.profiles_written == 1 and not fake.running, 300.0)
        process.kill()
        said = process.communicate()
        assert written, said
    finally:
        process.kill()
    assert server.wait(idle, 30.0)
    left = read_run(out)
    assert left is not None
    assert left.unfinished is not None
    assert left.unfinished.measured
    sent = loads(server.fake)
    assert sent == server.fake.peak == 1024
    run = run_recording(server, out, batches=(1024,), warmup_steps=8, telemetry=str(telemetry))
    (batch,) = run.batches
    assert (batch.profile, batch.held, batch.running, batch.waiting) == ("recorded", True, 1024, 0)
    ((steps,),) = (trace.steps for trace in batch.traces)
    assert (steps.kind, steps.batch_size) == ("decode", 1024)
    assert steps.steps >= 6
    assert batch.unprofiled.streams == 1024
    assert batch.unprofiled.events_of_slowest_stream >= 32
    assert loads(server.fake) == sent, "nothing is sent again"
    assert (run.telemetry.file, run.telemetry.samples) == ("telemetry.csv", 2)
