"""Kill a recorder of a real server twice, let the same command go on, and check that nothing is lost.

`record_vllm.py --kill-and-resume` starts the server and calls `kill_and_resume`. The first SIGKILL comes while
the trace of the first batch is awaited (its window has passed, the server still writes), the second inside the
open window of the second batch.
"""

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_POLL_S = 0.002
_STAGE_TIMEOUT_S = 300.0
_IDLE_TIMEOUT_S = 120.0
_TOKENS = 96
_INSIDE_S = 0.1
_STOPPING_S = 0.3
"""From the note that a window has passed until the server has surely heard that it is to stop; it then writes for
seconds. Killed at once, the recorder's requests end before its profiler does, and the window is not clean."""


def kill_and_resume(command: Sequence[str], url: str, model: str, out: Path, traces: Path, log: Path) -> dict:
    """Record with two kills.

    Args:
        command: the recording, `--out` included, for at least two batch sizes.
        url: the server.
        model: a name that it serves.
        out: the run folder.
        traces: where the server writes its traces.
        log: the server's log, in which its requests are counted.

    Returns:
        What was seen: `kills`, `checks` (all must be true) and the figures behind them.
    """
    before_ms = ms_per_token(url, model)
    kills = [
        _killed(command, url, out, "trace awaited", lambda run: _window(run) == "passed", _STOPPING_S),
        _killed(command, url, out, "window open", lambda run: _window(run) == "open", _INSIDE_S),
    ]
    begin = time.monotonic()
    last = subprocess.run(command, capture_output=True, text=True, check=False)
    run = json.loads((out / "run.json").read_text())
    found = {
        "kills": kills,
        "last_resume_s": time.monotonic() - begin,
        "last_resume_said": last.stdout.splitlines() + last.stderr.splitlines(),
        "exit_status": last.returncode,
        "windows_opened": log.read_text(errors="replace").count("POST /start_profile"),
        "ms_per_token_before": before_ms,
        "ms_per_token_after": ms_per_token(url, model),
        "batches": [_batch(batch, out) for batch in run["batches"]],
    }
    found["checks"] = _checks(found, run, kills, _left_running(url, traces))
    return found


def _killed(
    command: Sequence[str],
    url: str,
    out: Path,
    stage: str,
    reached: Callable[[dict[str, Any]], bool],
    later_s: float = 0.0,
) -> dict[str, Any]:
    """Start the recording, kill it once `run.json` shows a stage, and tell what it left."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not reached(_run(out)):
        if process.poll() is not None or time.monotonic() - begin > _STAGE_TIMEOUT_S:
            process.kill()
            raise SystemExit(f"{stage}: not reached; the recorder said: {process.communicate()[0]}")
        time.sleep(_POLL_S)
    time.sleep(later_s)
    process.send_signal(signal.SIGKILL)
    said, killed = process.communicate()[0], time.monotonic()
    left = _run(out)
    unfinished = left["unfinished"]
    return {
        "stage": stage,
        "batch": unfinished["batch_size"],
        "killed_after_s": killed - begin,
        "window": unfinished["window"]["state"],
        "unprofiled": unfinished["batch"]["unprofiled"],
        "profiled": unfinished["window"]["profiled"],
        "said": said.splitlines(),
        "idle_after_s": _idle_after(url, killed),
    }


def _run(out: Path) -> dict[str, Any]:
    try:
        return json.loads((out / "run.json").read_text())
    except FileNotFoundError:
        return {}


def _window(run: dict[str, Any]) -> str | None:
    window = (run.get("unfinished") or {}).get("window")
    return window["state"] if window else None


def _idle_after(url: str, since: float) -> float | None:
    """Seconds until the server counts no running request; None where it never does."""
    while time.monotonic() - since < _IDLE_TIMEOUT_S:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        gauges = [line for line in lines if line.startswith("vllm:num_requests_running")]
        if gauges and all(float(line.rsplit(" ", 1)[1]) == 0 for line in gauges):
            return time.monotonic() - since
        time.sleep(0.1)
    return None


def ms_per_token(url: str, model: str) -> float:
    """Time per token of one request on its own, prefill of a few tokens included."""
    body = {"model": model, "prompt": [17] * 32, "max_tokens": _TOKENS, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    times = []
    for _ in range(3):
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
        times.append((time.monotonic() - begin) / _TOKENS * 1e3)
    return min(times)


def _left_running(url: str, traces: Path) -> bool:
    """Whether a profiler was still on: only then does a stop write another trace."""
    before = set(traces.rglob("*.json*"))
    request = urllib.request.Request(f"{url}/stop_profile", b"", method="POST")
    # vLLM 0.26 answers 500 where nothing runs ("Can't disable Kineto profiler when it's not running").
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=900) as answer:
        answer.read()
    time.sleep(3)
    return set(traces.rglob("*.json*")) != before


def _batch(batch: dict[str, Any], out: Path) -> dict[str, Any]:
    steps = [step for trace in batch["traces"] for step in trace["steps"]]
    return {
        "batch": batch["batch_size"],
        "profile": batch["profile"],
        "held": batch["held"],
        "steps": sum(step["steps"] for step in steps),
        "inter_token_ms_p50": batch["unprofiled"]["inter_token_ms_p50"],
        "recovered": batch["recovered"],
        "slowdown": batch["slowdown"],
        "files_there": all((out / trace["file"]).is_file() for trace in batch["traces"]),
    }


def _checks(
    found: dict[str, Any], run: dict[str, Any], kills: list[dict[str, Any]], left_running: bool
) -> dict[str, bool]:
    batches = found["batches"]
    by_size = {batch["batch_size"]: batch for batch in run["batches"]}
    awaited, opened = (by_size[kill["batch"]] for kill in kills)
    return {
        "the last command succeeded and the recording is complete": found["exit_status"] == 0
        and run["state"] == "complete"
        and run["unfinished"] is None,
        "every batch has a whole trace of its own decode steps": all(
            batch["profile"] == "recorded" and batch["held"] and batch["files_there"] for batch in batches
        ),
        "finished measurements were not made again": awaited["unprofiled"] == kills[0]["unprofiled"]
        and opened["unprofiled"] == kills[1]["unprofiled"],
        "the awaited trace was collected, its window not opened again": awaited["profiled"]
        == kills[0]["profiled"],
        "no window was opened again but the broken one": found["windows_opened"] <= len(batches) + 1,
        "the server ran nothing of ours after each kill": all(
            kill["idle_after_s"] is not None for kill in kills
        ),
        "its profiler was not left running": not left_running,
        "it decodes as before (within 5 %)": found["ms_per_token_after"]
        < 1.05 * found["ms_per_token_before"],
    }


def table(found: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = [
        f"{'killed while':<15} {'batch':>5} {'after, s':>9} {'window on disk':<15} {'idle again, s':>13}"
    ]
    for kill in found["kills"]:
        idle = "never" if kill["idle_after_s"] is None else f"{kill['idle_after_s']:.1f}"
        lines.append(
            f"{kill['stage']:<15} {kill['batch']:>5} {kill['killed_after_s']:>9.1f} {kill['window']:<15} {idle:>13}"
        )
    lines += ["", f"{'batch':>5} {'profile':<10} {'held':<5} {'steps':>5} {'p50, ms':>8} {'recovered':>9}"]
    lines += [
        f"{batch['batch']:>5} {batch['profile']:<10} {batch['held']!s:<5} {batch['steps']:>5} "
        f"{batch['inter_token_ms_p50']:>8.3f} {batch['recovered']:>9.3f}"
        for batch in found["batches"]
    ]
    lines += [
        "",
        f"one request alone: {found['ms_per_token_before']:.3f} ms per token before, "
        f"{found['ms_per_token_after']:.3f} after",
        "",
    ]
    return "\n".join(
        [*lines, *(f"{'ok  ' if holds else 'FAIL'}  {check}" for check, holds in found["checks"].items())]
    )
