"""A recorder that is interrupted or killed at any stage: the server is left as it was, nothing recorded is lost."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from record_fakes import Fake, Faults, Running
from record_helpers import command, idle, run_command, run_recording

from wavewise.errors import UsageError
from wavewise.record import read_run

pytestmark = pytest.mark.usefixtures("quick_settle")


def stage_first_token(fake: Fake) -> bool:
    """The second batch's requests are sent, their first tokens are still to come."""
    return fake.profiles_written == 1 and len([body for body in fake.bodies if body["max_tokens"] > 8]) == 4


def stage_measuring(fake: Fake) -> bool:
    """The second batch decodes; its window is not open."""
    return len(fake.running) == 3 and fake.profile is None and min(each.tokens for each in fake.running) > 5


def stage_window(fake: Fake) -> bool:
    """The second batch's profiler window is open."""
    return fake.profile is not None and len(fake.running) == 3


def stage_window_of_the_first(fake: Fake) -> bool:
    return fake.profile is not None


def stage_traces(fake: Fake) -> bool:
    """The second window is closed, its trace still on its way."""
    return fake.profiles_written == 2 and not fake.running


STAGES = {
    "first tokens": stage_first_token,
    "measuring": stage_measuring,
    "first window": stage_window_of_the_first,
    "second window": stage_window,
    "waiting for traces": stage_traces,
}


def begin(server: Running, out: Path, reached: Callable[[Fake], bool]) -> "subprocess.Popen[str]":
    """Start a recording of batches 1 and 3; return when it has reached a stage."""
    process = subprocess.Popen(
        command(server, out, "--batches", "1,3", "--measure-seconds", "0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if not server.wait(reached, 20.0):
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"the stage was not reached: {process.communicate()}")
    return process


def cases() -> list[object]:
    """Every stage, signal and engine."""
    rows: list[object] = []
    for stage in STAGES:
        # The stages before and behind the window do not depend on the engine.
        engines = ("vllm", "sglang") if "window" in stage or stage == "measuring" else ("vllm",)
        for how in (signal.SIGINT, signal.SIGKILL):
            for engine in engines:
                # What Ctrl-C does is the recorder's doing, and outside a window so is all else, whatever the engine.
                again = engine == "sglang" and (how == signal.SIGINT or "window" not in stage)
                marks = pytest.mark.exhaustive if again else ()
                name = f"{engine}-{stage}-{how.name}".replace(" ", "-")
                rows.append(pytest.param(engine, how, stage, id=name, marks=marks))
    return rows


@pytest.mark.parametrize(("engine", "how", "stage"), cases())
def test_stopped_at_any_stage(serve, tmp_path: Path, engine: str, how: signal.Signals, stage: str) -> None:
    # Late tokens, slow profiled steps and a late trace make every stage last long enough to be hit.
    server = serve(engine, Faults(first_token_s=0.2, trace_late_s=0.4), step_s=0.004, profiled_factor=6.0)
    out = tmp_path / "run"
    process = begin(server, out, STAGES[stage])
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    # The guard needs an interpreter's start before it can ask the server to stop profiling.
    assert server.wait(idle, 15.0), (server.fake.running, server.fake.profile, said)
    if how == signal.SIGINT:
        assert process.returncode == 130, said
        assert "interrupted" in said.splitlines()[-1]
        assert "Traceback" not in said
    kept = read_run(out)
    assert kept is not None
    assert kept.state == ("interrupted" if how == signal.SIGINT else "running")
    done = [batch.batch_size for batch in kept.batches if batch.profile == "recorded"]
    assert done == ([] if stage == "first window" else [1])
    profiles = server.fake.log.count("POST /start_profile")
    first = [batch for batch in kept.batches if batch.batch_size == 1 and batch.profile == "recorded"]

    again = run_command(command(server, out, "--batches", "1,3", "--measure-seconds", "0.1"))
    assert again.returncode == 0, again.stderr
    run = read_run(out)
    assert run is not None
    assert [(batch.batch_size, batch.profile, batch.held) for batch in run.batches] == [
        (1, "recorded", True),
        (3, "recorded", True),
    ]
    # A window that has passed is not missing, although its trace was.
    missing = 0 if stage == "waiting for traces" else 2 - len(done)
    assert server.fake.log.count("POST /start_profile") - profiles == missing
    assert all(batch in run.batches for batch in first), "what was recorded is kept as it was"
    assert (run.state, run.profiler_open) == ("complete", False)
    assert server.wait(idle)


def test_a_finished_recording_is_not_recorded_again(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    first = run_recording(server, tmp_path / "run", batches=(1, 2))
    asked = len(server.fake.bodies)
    again = run_recording(server, tmp_path / "run", batches=(1, 2))
    assert len(server.fake.bodies) == asked
    assert again.batches == first.batches


def test_more_batches_join_a_recording(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    run_recording(server, tmp_path / "run", batches=(4,))
    run = run_recording(server, tmp_path / "run", batches=(1, 4))
    assert [batch.batch_size for batch in run.batches] == [1, 4]
    assert server.fake.log.count("POST /start_profile") == 2


@pytest.mark.parametrize("changes", [{"prompt_tokens": 65}, {"steps": 7}, {"profile": False}])
def test_another_question_wants_another_folder(serve, tmp_path: Path, changes: dict[str, Any]) -> None:
    server = serve("vllm")
    run_recording(server, tmp_path / "run", batches=(1,))
    with pytest.raises(UsageError, match="choose another --out"):
        run_recording(server, tmp_path / "run", batches=(1, 2), **changes)


def test_another_server_wants_another_folder(serve, tmp_path: Path) -> None:
    run_recording(serve("vllm"), tmp_path / "run", batches=(1,))
    with pytest.raises(UsageError, match="choose another --out"):
        run_recording(serve("vllm"), tmp_path / "run", batches=(1, 2))


def test_a_window_left_open_by_a_lost_host_is_closed_first(serve, tmp_path: Path) -> None:
    """Recorder and guard are gone (the host went down): the note in run.json tells the next one."""
    server = serve("vllm")
    run_recording(server, tmp_path / "run", batches=(1,))
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"profiler_open": false', '"profiler_open": true'))
    server.fake.profile = {}
    run = run_recording(server, tmp_path / "run", batches=(1, 2))
    assert [batch.held for batch in run.batches] == [True, True]
    assert server.fake.profile is None


def test_a_server_that_dies_in_the_window(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(), step_s=0.004, profiled_factor=6.0)
    process = begin(server, tmp_path / "run", stage_window)
    server.__exit__()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("wavewise: http://127.0.0.1:")
    kept = read_run(tmp_path / "run")
    assert kept is not None
    assert kept.state == "failed"
    assert [batch.batch_size for batch in kept.batches if batch.profile == "recorded"] == [1]


def test_the_guard_leaves_with_the_recorder(serve, tmp_path: Path) -> None:
    server = serve("vllm", step_s=0.004, profiled_factor=6.0)
    process = begin(server, tmp_path / "run", stage_window)
    process.kill()
    process.communicate()
    assert server.wait(idle, 15.0)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and guards(server.url):
        time.sleep(0.05)
    assert guards(server.url) == []


def guards(url: str) -> list[str]:
    """Guards of this server that still run."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
        except OSError:
            continue
        if "wavewise.record.guard" in words and url in words:
            found.append(process.name)
    return found
