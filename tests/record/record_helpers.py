"""Short recordings against the fake servers."""

import os
import subprocess
import sys
from pathlib import Path

from record_fakes import Fake, Running

from wavewise.record.client import parse_target
from wavewise.record.model import Run
from wavewise.record.options import Options
from wavewise.record.session import record

FAST = {"prompt_tokens": 64, "measure_s": 0.05, "steps": 6, "warmup_steps": 3, "telemetry": "none"}


def run_recording(server: Running, out: Path, *, key: str | None = None, **changes: object) -> Run:
    """One recording in this process; `changes` are fields of `Options`."""
    fake = server.fake
    given: dict[str, object] = {**FAST, "batches": (1, 4)}
    if fake.engine == "vllm":
        given["trace_dir"] = fake.trace_dir
    if fake.engine in ("tensorrt-llm", "openai"):
        given["profile"] = False
    options = Options(url=server.url, out=out, **{**given, **changes})  # type: ignore[arg-type]
    return record(options, parse_target(options.url, key), lambda question: True, lambda line: None)


def command(server: Running, out: Path, *more: str) -> list[str]:
    """The same recording as a command line."""
    words = [
        sys.executable,
        "-c",
        "from wavewise.cli import main; main()",
        "record",
        server.url,
        "--out",
        str(out),
    ]
    words += [
        "--yes",
        "--prompt-tokens",
        "64",
        "--measure-seconds",
        "0.05",
        "--steps",
        "6",
        "--telemetry",
        "none",
    ]
    words += ["--trace-dir", str(server.fake.trace_dir)] if server.fake.engine == "vllm" else []
    return [*words, *more]


def run_command(words: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command line, run to its end."""
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )


def idle(fake: Fake) -> bool:
    """The server is as it was found: nothing runs, nothing waits, nothing is profiled."""
    return not fake.running and not fake.waiting and fake.profile is None
