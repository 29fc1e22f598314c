"""Whole recordings of each engine, as its server speaks."""

from pathlib import Path

import pytest
from record_fakes import Faults
from record_helpers import command, idle, run_command, run_recording

from wavewise.record import read_run
from wavewise.record.model import StepCount

pytestmark = pytest.mark.usefixtures("quick_settle")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_records_batches_that_hold_decode_steps_alone(serve, tmp_path: Path, engine: str) -> None:
    server = serve(engine)
    run = run_recording(server, tmp_path / "run", batches=(1, 5, 12))
    assert run == read_run(tmp_path / "run")
    assert (run.state, run.server.engine, run.server.model) == ("complete", engine, "tiny-random")
    assert [batch.batch_size for batch in run.batches] == [1, 5, 12]
    for batch in run.batches:
        assert (batch.profile, batch.held, batch.running, batch.waiting) == (
            "recorded",
            True,
            batch.batch_size,
            0,
        )
        (trace,) = batch.traces
        assert trace.file == f"bs{batch.batch_size}.json.gz"
        assert (tmp_path / "run" / trace.file).exists()
        (steps,) = trace.steps
        assert (steps.kind, steps.batch_size) == ("decode", batch.batch_size)
        assert steps.steps >= 6
        assert (batch.prompt_tokens_min, batch.prompt_tokens_max) == (64, 64)
        assert run.batch_of(trace.file) == batch
    assert server.wait(idle)
    assert server.fake.peak == 12
    assert run.batch_of("something.json") is None


def test_vllm_is_asked_as_its_source_says(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    run_recording(server, tmp_path / "run", batches=(3,))
    loads = [body for body in server.fake.bodies if body["max_tokens"] > 8]
    assert len(loads) == 3
    for body in loads:
        assert (body["ignore_eos"], body["stream"], len(body["prompt"])) == (True, True, 64)
        assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    prompts = {tuple(body["prompt"]) for body in server.fake.bodies}
    assert len(prompts) == len(server.fake.bodies), "no two requests share a prompt that a cache could serve"
    assert server.fake.log.count("POST /start_profile") == server.fake.log.count("POST /stop_profile") == 1


def test_sglang_is_told_steps_folder_and_activities(serve, tmp_path: Path) -> None:
    server = serve("sglang")
    seen: list[dict] = []
    write = server.fake.write_trace

    async def spy() -> None:
        assert server.fake.profile is not None
        seen.append(dict(server.fake.profile))
        await write()

    server.fake.write_trace = spy
    run_recording(server, tmp_path / "run", batches=(2,))
    (profile,) = seen
    folder = profile.pop("output_dir")
    assert Path(folder).parent == tmp_path / "run"
    assert profile.pop("profile_prefix").startswith("bs2-"), "a name that no other window has"
    assert profile == {
        "num_steps": 6, "activities": ["CPU", "GPU"], "profile_by_stage": False, "with_stack": False,
        "record_shapes": True,
    }  # fmt: skip
    assert not Path(folder).exists(), "its own trace folder is emptied and removed"
    assert server.fake.log.count("POST /stop_profile") == 1, (
        "it closes itself, but lagging streams cannot tell"
    )


def test_a_newer_vllm_closes_the_window_itself_should_the_recorder_die(serve, tmp_path: Path) -> None:
    server = serve("vllm", version="0.33.0")
    run = run_recording(server, tmp_path / "run", batches=(2,))
    assert server.fake.max_iterations == 6 + 64
    assert run.batches[0].held is True


@pytest.mark.parametrize("engine", ["tensorrt-llm", "openai"])
def test_engines_without_profiler_give_load_and_latency(serve, tmp_path: Path, engine: str) -> None:
    server = serve(engine)
    run = run_recording(server, tmp_path / "run", batches=(1, 6))
    assert run.server.engine == engine
    for batch in run.batches:
        assert (batch.profile, batch.traces, batch.profiled, batch.slowdown) == ("none", (), None, None)
        assert batch.slowdown_reason == "no profiler window was asked for"
        assert batch.unprofiled.streams == batch.batch_size
    assert run.batches[1].running == (6 if engine == "tensorrt-llm" else None)
    assert server.wait(idle)


def test_the_command_ends_with_what_can_be_done_next(serve, tmp_path: Path) -> None:
    for engine, words, end in (
        (
            "tensorrt-llm",
            ["--no-profile"],
            "without a trace: throughput and latency alone; next: wavewise analyze ",
        ),
        ("sglang", [], "next: wavewise analyze "),
    ):
        done = run_command(command(serve(engine), tmp_path / engine, "--batches", "1", *words))
        assert done.returncode == 0, done.stderr
        assert end in done.stdout.splitlines()[-1]


def test_text_prompts_reach_the_wanted_length_by_the_servers_count(serve, tmp_path: Path) -> None:
    server = serve("openai")
    run_recording(server, tmp_path / "run", batches=(2,), prompt_tokens=150)
    # The fake's tokenizer makes two tokens of a word.
    assert {len(body["prompt"].split()) for body in server.fake.bodies if body["max_tokens"] > 8} == {75}


def test_the_slowdown_is_the_profilers(serve, tmp_path: Path) -> None:
    server = serve("vllm", step_s=0.01, profiled_factor=2.0)
    run = run_recording(server, tmp_path / "run", batches=(4,), measure_s=0.3)
    (batch,) = run.batches
    # Sleeping 20 ms instead of 10 ms doubles the step; timers and a busy machine add a millisecond or two each.
    assert batch.slowdown == pytest.approx(2.0, rel=0.2)
    assert batch.recovered == pytest.approx(1.0, rel=0.2)
    assert batch.unprofiled.step_ms == pytest.approx(10, rel=0.3)
    assert batch.unprofiled.tokens_per_s == pytest.approx(400, rel=0.3)
    assert batch.unprofiled.tokens_per_event == 1.0
    assert batch.unprofiled.inter_token_ms_p50 <= batch.unprofiled.inter_token_ms_p99


def test_a_server_that_stays_slow_is_noticed(serve, tmp_path: Path) -> None:
    server = serve("vllm", step_s=0.01, faults=Faults(slower_after_profile=2.0))
    (batch,) = run_recording(server, tmp_path / "run", batches=(2,)).batches
    assert batch.recovered == pytest.approx(2.0, rel=0.25)
    assert "times as long as before" in batch.notes[0]


def test_a_window_with_a_prefill_step_is_taken_again(serve, tmp_path: Path) -> None:
    server = serve("vllm", faults=Faults(dirty_windows=1))
    (batch,) = run_recording(server, tmp_path / "run", batches=(3,)).batches
    assert batch.held is True
    assert server.fake.log.count("POST /start_profile") == 2


def test_a_window_that_never_holds_is_kept_and_said_so(serve, tmp_path: Path) -> None:
    server = serve("vllm", faults=Faults(dirty_windows=9))
    (batch,) = run_recording(server, tmp_path / "run", batches=(3,)).batches
    assert batch.held is False
    assert batch.held_reason is not None
    assert "mixed" in batch.held_reason
    assert StepCount(kind="mixed", batch_size=3, steps=1) in batch.traces[0].steps


def test_token_ids_shrink_into_a_small_vocabulary(serve, tmp_path: Path) -> None:
    server = serve("vllm", faults=Faults(vocabulary=300))
    run_recording(server, tmp_path / "run", batches=(2,), profile=False)
    assert max(max(body["prompt"]) for body in server.fake.bodies[-2:]) < 300


def test_uncounted_requests_are_null_with_a_reason(serve, tmp_path: Path) -> None:
    for engine, flag in (("vllm", "--disable-log-stats"), ("sglang", "--enable-metrics")):
        server = serve(engine, faults=Faults(no_metrics=True))
        (batch,) = run_recording(server, tmp_path / engine, batches=(2,)).batches
        assert batch.running is None
        assert batch.running_reason is not None
        assert flag in batch.running_reason


def test_traces_can_stay_on_the_server_or_be_moved(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    (batch,) = run_recording(server, tmp_path / "stay", batches=(2,), leave_traces=True).batches
    assert (batch.profile, batch.traces) == ("left_on_server", ())
    assert len(list(server.fake.trace_dir.glob("dp0*"))) == 1
    (batch,) = run_recording(server, tmp_path / "moved", batches=(2,), move_traces=True).batches
    assert not Path(batch.traces[0].source).exists()
    assert (tmp_path / "moved" / "bs2.json.gz").exists()


def test_the_request_rate_is_kept(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    (batch,) = run_recording(
        server, tmp_path / "run", batches=(5,), requests_per_s=20.0, profile=False
    ).batches
    run = read_run(tmp_path / "run")
    assert run is not None
    # The fifth request starts 4 / 20 s behind the first: the whole batch cannot decode sooner.
    assert batch.unprofiled.start_unix_s - run.started_unix_s > 0.2


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_bare_server_is_known_by_what_it_has(serve, tmp_path: Path, engine: str) -> None:
    """Only the routes that a recording cannot do without; no list of models, nothing for OPTIONS."""
    server = serve(engine, Faults(bare=True))
    run = run_recording(server, tmp_path / "run", batches=(2,))
    assert (run.server.engine, run.server.profiler) == (engine, None)
    assert run.batches[0].held is True
