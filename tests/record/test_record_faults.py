"""What goes wrong: one clear line with the remedy, and the server left as it was found."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from record_fakes import Fake, Faults, Running
from record_helpers import command, idle, run_command, run_recording

from wavewise.errors import InputError, UsageError
from wavewise.record import read_run
from wavewise.record.client import parse_target
from wavewise.record.options import Options
from wavewise.record.session import record

pytestmark = pytest.mark.usefixtures("quick_settle")


def refused(server, out: Path, *, key: str | None = None, **changes: object) -> str:
    """The one line of a recording that fails; the server must be idle again behind it."""
    with pytest.raises((InputError, UsageError)) as caught:
        run_recording(server, out, key=key, **changes)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    assert server.wait(idle)
    return line


def test_a_port_without_server(tmp_path: Path) -> None:
    options = Options(url="http://127.0.0.1:9", out=tmp_path / "run")
    with pytest.raises(InputError, match=r"no server answers there.*check host and port"):
        record(options, parse_target(options.url, None), lambda question: True, lambda line: None)
    assert not (tmp_path / "run").exists(), "an empty folder is not left behind"


def test_a_web_server_is_no_llm_server(serve, tmp_path: Path) -> None:
    assert "not like an LLM server" in refused(serve("web"), tmp_path / "run")


def test_a_server_that_still_loads(serve, tmp_path: Path) -> None:
    assert "not ready (503)" in refused(serve("vllm", Faults(unready=True)), tmp_path / "run")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_wrong_key(serve, tmp_path: Path, engine: str, key: str | None) -> None:
    line = refused(serve(engine, Faults(key="right")), tmp_path / "run", key=key)
    assert re.search(r"refuses .*API key \(401\); .*--api-key-env", line)
    assert "wrong" not in line


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_right_key_is_sent_and_never_written(serve, tmp_path: Path, engine: str) -> None:
    server = serve(engine, Faults(key="sk-very-secret", echo_key=True))
    lines: list[str] = []
    options = Options(
        url=server.url, out=tmp_path / "run", batches=(2,), prompt_tokens=64, steps=4, measure_s=0.05,
        telemetry="none", trace_dir=server.fake.trace_dir,
    )  # fmt: skip
    record(
        options,
        parse_target(server.url, "sk-very-secret"),
        lambda question: lines.append(question) or True,
        lines.append,
    )
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"sk-very-secret" not in written
    assert "sk-very-secret" not in "".join(lines)
    assert "sk-very-secret" not in repr(parse_target(server.url, "sk-very-secret"))
    run = read_run(tmp_path / "run")
    assert run is not None
    if engine == "sglang":
        assert "(hidden)" in run.server.flags["launch_command"]


def test_a_key_in_a_servers_complaint_is_hidden(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(key="sk-very-secret", echo_key=True, overloaded=True))
    line = refused(server, tmp_path / "run", key="sk-very-secret")
    assert "overloaded for (hidden)" in line


def test_a_redirect_is_not_followed(serve, tmp_path: Path) -> None:
    other = serve("vllm")
    line = refused(serve("vllm", Faults(redirect_to=other.url)), tmp_path / "run")
    assert "redirects to" in line
    assert other.fake.log == [], "a host that was not named hears nothing"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with the openssl program")
def test_a_certificate_is_verified(tmp_path: Path) -> None:
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", private, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    fake = Fake("vllm", step_s=0.002, trace_dir=tmp_path / "traces")
    with Running(fake, ssl_certfile=str(certificate), ssl_keyfile=str(private)) as server:
        line = refused(server, tmp_path / "run", batches=(2,))
        assert "certificate cannot be verified" in line
        assert "--ca-file" in line
        assert fake.log == []
        options = Options(
            url=server.url, out=tmp_path / "run", batches=(2,), prompt_tokens=64, steps=4, measure_s=0.05,
            telemetry="none", trace_dir=fake.trace_dir, ca_file=certificate,
        )  # fmt: skip
        target = parse_target(server.url, None, certificate)
        run = record(options, target, lambda question: True, lambda line: None)
        assert run.batches[0].held is True
        assert run.url.startswith("https://")


def test_a_proxy_in_the_environment_is_not_used(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve("vllm")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    run_recording(serve("vllm"), tmp_path / "run", batches=(1,), profile=False)
    assert proxy.fake.log == []


def test_a_model_that_is_not_served(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    assert "has no model 'other'; it serves tiny-random" in refused(server, tmp_path / "run", model="other")
    assert server.fake.bodies == []


def test_a_batch_beyond_the_known_limit(serve, tmp_path: Path) -> None:
    server = serve("sglang", max_num_seqs=4)
    line = refused(server, tmp_path / "run", batches=(2, 8))
    assert "batch 8 is beyond the server's limit of 4" in line
    assert "--max-running-requests" in line
    assert server.fake.bodies == [], "found out before anything is sent"


def test_a_batch_beyond_a_limit_that_the_server_does_not_tell(serve, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("wavewise.record.batch._ADMISSION_S", 0.3)
    server = serve("vllm", max_num_seqs=3)
    line = refused(server, tmp_path / "run", batches=(2, 8))
    assert "only 3 of 8 requests decode at once, 5 wait; raise --max-num-seqs" in line
    run = read_run(tmp_path / "run")
    assert run is not None
    assert [batch.batch_size for batch in run.batches] == [2], "what was recorded before is kept"
    assert (run.state, run.reason) == ("failed", line)


def test_prompts_beyond_the_context(serve, tmp_path: Path) -> None:
    line = refused(serve("vllm", max_model_len=100), tmp_path / "run")
    assert "the server has 100" in line
    assert "--prompt-tokens" in line


def test_more_key_value_tokens_than_there_are(serve, tmp_path: Path) -> None:
    line = refused(serve("vllm"), tmp_path / "run", batches=(200,), prompt_tokens=9000)
    assert "the server has room for 1600000" in line


def test_a_profiler_that_is_not_there(serve, tmp_path: Path) -> None:
    for engine, remedy in (("vllm", "--profiler-config"), ("sglang", "0.4 or later")):
        server = serve(engine, Faults(no_profiler=True))
        line = refused(server, tmp_path / engine)
        assert remedy in line
        assert "--no-profile" in line
        assert server.fake.bodies == []


def test_a_profiler_that_runs_already(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(profiler_busy=True), version="0.33.0")
    line = refused(server, tmp_path / "vllm")
    assert "409" in line
    assert "someone else profiles" in line
    assert "already active" in line
    server = serve("sglang", Faults(profiler_busy=True))
    assert "is a profile in progress?" in refused(server, tmp_path / "sglang")


def test_an_overloaded_server(serve, tmp_path: Path) -> None:
    line = refused(serve("vllm", Faults(overloaded=True)), tmp_path / "run")
    assert "HTTP 503: overloaded" in line
    assert "wait and try again" in line


def test_a_slow_first_token_is_waited_for(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(first_token_s=0.6))
    (batch,) = run_recording(server, tmp_path / "run", batches=(3,)).batches
    assert batch.first_token_s_min > 0.6
    assert batch.held is True


def test_a_first_token_that_takes_too_long(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(first_token_s=1.0))
    line = refused(server, tmp_path / "run", batches=(3,), timeout_s=0.3)
    assert "raise --timeout" in line


def test_a_stream_that_is_dropped(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(drop_after=12))
    line = refused(server, tmp_path / "run", batches=(4,))
    assert re.search(r"1 of 4 streams ended early: the (connection broke|server closed the connection)", line)


def test_a_stream_that_reports_an_error(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(error_after=12))
    assert "the server reports: EngineCore died" in refused(server, tmp_path / "run", batches=(4,))


def test_a_length_cap_that_is_too_short(serve, tmp_path: Path) -> None:
    line = refused(serve("vllm"), tmp_path / "run", batches=(2,), max_tokens=20)
    assert "finished (length)" in line
    assert "--max-tokens" in line


def test_a_server_that_falls_silent(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(silent_after=30))
    with pytest.raises(InputError, match=r"no stream brought a token for 0.5 s .*--stall-timeout"):
        run_recording(server, tmp_path / "run", batches=(2,), stall_s=0.5)
    assert server.wait(lambda fake: not fake.running), "its requests are cancelled"


def test_a_server_that_never_brings_a_token(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(silent_after=2))
    with pytest.raises(InputError, match=r"--stall-timeout"):
        run_recording(server, tmp_path / "run", batches=(2,), stall_s=0.5)


def test_requests_of_others(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(others=2))
    line = refused(server, tmp_path / "run", wait_idle_s=0.3)
    assert "2 running" in line
    assert "--wait-idle" in line


def test_traces_that_come_late_or_slowly_are_waited_for(serve, tmp_path: Path) -> None:
    for name, faults in (("late", Faults(trace_late_s=0.8)), ("slow", Faults(trace_slowly_s=0.8))):
        (batch,) = run_recording(serve("vllm", faults), tmp_path / name, batches=(2,)).batches
        assert (batch.profile, batch.held) == ("recorded", True)
        assert batch.traces[0].complete


def test_a_trace_that_is_cut_is_kept_as_such(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(trace_truncated=True))
    (batch,) = run_recording(server, tmp_path / "run", batches=(2,), trace_timeout_s=0.8).batches
    assert batch.profile == "truncated"
    assert batch.profile_reason is not None
    assert (tmp_path / "run" / "bs2.json.gz").exists()
    assert not batch.traces[0].complete


def test_a_trace_that_never_comes(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(trace_nowhere=True))
    line = refused(server, tmp_path / "run", batches=(2,), trace_timeout_s=0.4)
    assert "no GPU trace in" in line
    assert "--trace-dir" in line
    run = read_run(tmp_path / "run")
    assert run is not None
    assert run.batches[0].profile == "missing"
    assert run.batches[0].unprofiled.tokens > 0, "what was measured is kept"
    server.fake.faults.trace_nowhere = False
    assert run_recording(server, tmp_path / "run", batches=(2,)).batches[0].profile == "recorded"


def test_a_trace_folder_that_nobody_named(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    assert "--trace-dir" in refused(server, tmp_path / "run", trace_dir=None)
    assert server.fake.bodies == []


def test_nothing_is_sent_without_consent(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    options = Options(url=server.url, out=tmp_path / "run", trace_dir=tmp_path, telemetry="none")
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(UsageError, match="not confirmed"):
        record(options, parse_target(server.url, None), no, lambda line: None)
    assert "96 requests of 4096 prompt tokens" in asked[0]
    assert not any(line.startswith("POST") for line in server.fake.log)
    assert not (tmp_path / "run").exists()


def test_a_telemetry_file_that_is_none_is_found_out_before_anything_is_sent(serve, tmp_path: Path) -> None:
    server = serve("vllm")
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    assert "not a telemetry file" in refused(server, tmp_path / "run", telemetry=str(tmp_path / "notes.csv"))
    assert "cannot be read" in refused(server, tmp_path / "run", telemetry=str(tmp_path / "none.csv"))
    assert server.fake.bodies == []


def test_folders_that_cannot_take_a_recording(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("vllm")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    assert "no run.json" in refused(server, tmp_path / "full")
    (tmp_path / "file").write_text("x")
    assert "cannot hold a recording" in refused(server, tmp_path / "file")
    monkeypatch.setattr("wavewise.record.folder._FREE_BYTES_NEEDED", 1 << 60)
    assert "MiB free" in refused(server, tmp_path / "tight")
    assert server.fake.log == []


def test_a_disk_that_fills_up_while_traces_are_taken(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wavewise.record.collect.take", no_space)
    line = refused(serve("vllm"), tmp_path / "run", batches=(2,))
    assert "No space left on device" in line
    assert "run the same command again" in line


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://host", "not the URL of a server"),
        ("http://", "not the URL of a server"),
        ("http://host:port", "not the URL of a server"),
        ("http://user:pw@host", "no credentials"),
        ("http://host/?key=1", "no credentials and no query"),
    ],
)
def test_urls_that_are_none(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_target(url, None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batches": ()}, "--batches"),
        ({"batches": (0, 1)}, "--batches"),
        ({"batches": (4, 4)}, "--batches"),
        ({"prompt_tokens": 0}, "--prompt-tokens"),
        ({"steps": 0}, "--steps"),
        ({"timeout_s": 0.0}, "--timeout"),
        ({"requests_per_s": -1.0}, "--request-rate"),
        ({"max_concurrency": 8}, "--max-concurrency"),
        ({"warmup_steps": -1}, "--warmup-steps must be at least 0"),
        ({"wait_idle_s": float("nan")}, "--wait-idle must be at least 0"),
        ({"max_tokens": 0}, "--max-tokens must be at least 1"),
        ({"leave_traces": True, "move_traces": True}, "contradict"),
    ],
)
def test_options_that_make_no_sense(changes: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Options(url="http://h", out=Path("x"), **changes)  # type: ignore[arg-type]


def test_the_command_line_says_one_line_and_exits_with_2(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(key="right"))
    done = run_command(command(server, tmp_path / "run", "--batches", "1"), WAVEWISE_API_KEY="wrong")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("wavewise: http://127.0.0.1:")
    words = command(serve("vllm"), tmp_path / "run", "--batches", "1,x")
    done = run_command(words)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    done = run_command(command(serve("sglang", max_num_seqs=4), tmp_path / "run", "--batches", "2,8"))
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert "beyond the server's limit of 4" in done.stderr
    words.remove("--yes")
    words[-1] = "1"
    done = run_command(words)  # no terminal to ask at
    assert done.returncode == 2
    assert "--yes" in done.stderr.splitlines()[-1]


def test_a_hanging_profiler_start_ends_with_the_streams(serve, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("wavewise.record.engines.vllm.PROFILE_START_TIMEOUT_S", 0.5)
    server = serve("vllm", Faults(start_hangs=True))
    begin = time.monotonic()
    assert "no answer within" in refused(server, tmp_path / "run", batches=(2,))
    assert time.monotonic() - begin < 10
