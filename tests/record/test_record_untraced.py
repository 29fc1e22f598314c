"""From a server without a profiler to a report: what can be said without a trace, by the command line alone."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from record_helpers import command, run_command, run_recording

from wavewise.record import read_run

pytestmark = pytest.mark.usefixtures("quick_settle")

SLOW_PER_REQUEST_MS = 1.0


def analyze(*words: object) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", "from wavewise.cli import main; main()", "analyze"]
    return run_command([*program, *map(str, words)])


@pytest.fixture
def recorded(serve, tmp_path: Path) -> Path:
    """Three batches of TensorRT-LLM's server, recorded by the command line; a step grows with the batch."""
    server = serve("tensorrt-llm", step_s=0.008, per_request_s=SLOW_PER_REQUEST_MS / 1e3)
    out = tmp_path / "run"
    done = run_command(command(server, out, "--batches", "1,4,12", "--no-profile"))
    assert done.returncode == 0, done.stderr
    assert f"next: wavewise analyze {out}" in done.stdout
    return out


def test_a_server_without_a_profiler_from_url_to_report(recorded: Path, tmp_path: Path) -> None:
    run = read_run(recorded)
    assert run is not None
    busy = run.decode_windows[0]
    with (recorded / "telemetry.csv").open(
        "w", newline=""
    ) as out:  # as `python -m wavewise.record.telemetry` does
        rows = csv.writer(out)
        rows.writerow(
            ["ts_unix_s", "gpu", "sm_activity_percent", "memory_activity_percent", "power_w", "power_limit_w"]
        )
        start = min(busy[0], busy[1] - 0.01)
        rows.writerows([start + (busy[1] - start) * k / 40, 0, 97, 80, 600, 700] for k in range(41))
    text = (recorded / "run.json").read_text()
    (recorded / "run.json").write_text(
        text.replace('"source": "none"', '"file": "telemetry.csv", "source": "file"')
    )

    shown = analyze(recorded)
    assert (shown.returncode, shown.stderr) == (0, "")
    words = " ".join(shown.stdout.split())
    assert words.startswith("1 recording of TensorRT-LLM")
    assert "Without a trace nothing here says where the time of a decode step goes" in words
    assert "At batch 12, the largest recorded," in words
    assert "fitted to inter-token latencies, not to traced steps" in words
    assert "its server has no profiler that HTTP could start" in words
    assert "nsys profile --cuda-graph-trace=node" in words
    assert "attention" not in words, "no family is invented"

    report = tmp_path / "report"
    written = analyze(recorded, "--out", report)
    assert (written.returncode, written.stderr) == (0, "")
    found = json.loads((report / "findings.json").read_bytes())
    assert found["schema"] == "wavewise.findings/1"
    assert (found["traces"], found["operating_points"]) == ([], [])
    for name in ("scaling", "ceilings", "levers"):
        assert found[name] is None
        assert "no trace" in found[f"{name}_reason"]
    assert [point["batch_size"] for point in found["recorded"]] == [1, 4, 12]
    for point, batch in zip(found["recorded"], run.batches, strict=True):
        assert point["unprofiled_tokens_per_s"] == batch.unprofiled.tokens_per_s
        assert point["inter_token_ms_p99"] == batch.unprofiled.inter_token_ms_p99
        assert (point["traced_step_ms"], point["profiler_slowdown"]) == (None, None)
        assert point["reason"] == "not asked for"
    (recording,) = found["recordings"]
    assert recording["engine"] == "tensorrt-llm"
    fit = recording["inter_token"]
    assert [point["value_ms"] for point in fit["points"]] == [
        batch.unprofiled.inter_token_ms_p50 for batch in run.batches
    ]
    # The server's own law is 8 ms + 1 ms per request, plus what this machine adds.
    assert 0.7 * SLOW_PER_REQUEST_MS < fit["slope_ms_per_request"] < 2 * SLOW_PER_REQUEST_MS
    assert found["signature"]["verdict"]

    markdown = (report / "PROFILE_FINDINGS.md").read_text()
    assert "Without a trace nothing here says" in markdown
    assert "| 12 |" in markdown
    page = (report / "report.html").read_text()
    assert "Without a trace nothing here says" in page
    assert not re.search(r">\s*(nan|None|inf)\s*<", page)


def test_traces_that_could_not_be_found_leave_the_latencies(serve, tmp_path: Path) -> None:
    server, out = serve("vllm"), tmp_path / "run"
    words = command(server, out, "--batches", "2", "--leave-traces")
    assert run_command(words).returncode == 0
    shown = analyze(out)
    assert shown.returncode == 0, shown.stderr
    said = " ".join(shown.stdout.split())
    assert "its traces were left with the server" in said
    assert "fitted to" not in said, "one batch size is no line"
    found = tmp_path / "found.json"
    assert analyze(out, "--json", found).returncode == 0
    (recording,) = json.loads(found.read_bytes())["recordings"]
    assert (recording["inter_token"], recording["inter_token_reason"]) == (
        None,
        "floor and slope need two batch sizes",
    )


def test_a_vllm_recorded_without_its_profiler_says_how_to_turn_it_on(serve, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_recording(serve("vllm"), out, batches=(1, 2), profile=False)
    said = " ".join(analyze(out).stdout.split())
    assert "it was recorded with --no-profile" in said
    assert "--profiler-config" in said


def test_a_recording_that_has_no_batch_yet_is_exit_3(serve, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_recording(serve("tensorrt-llm"), out, batches=(1,))
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**run, "state": "running", "batches": []}))
    done = analyze(out)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "without a measured batch yet" in line


@pytest.mark.parametrize("words", [("scale",), ("levers",), ("diff",)])
def test_commands_that_need_steps_say_that_there_are_none(
    serve, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "run"
    run_recording(serve("tensorrt-llm"), out, batches=(1,))
    program = [sys.executable, "-c", "from wavewise.cli import main; main()"]
    done = run_command([*program, *words, str(out), *([str(out)] if words == ("diff",) else [])])
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "trace" in done.stderr or "step" in done.stderr


def test_its_latencies_are_exported_as_a_table(serve, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = run_recording(serve("tensorrt-llm"), out, batches=(1, 4))
    program = [sys.executable, "-c", "from wavewise.cli import main; main()"]
    done = run_command([*program, "export", str(out), "--csv", str(tmp_path / "tables")])
    assert done.returncode == 0, done.stderr
    with (tmp_path / "tables" / "recorded.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [int(row["batch_size"]) for row in rows] == [1, 4]
    assert float(rows[1]["unprofiled_tokens_per_s"]) == pytest.approx(run.batches[1].unprofiled.tokens_per_s)
    assert rows[0]["traced_step_ms"] == ""
