"""The README's examples run, and what it says of files is there."""

import re
import subprocess
import sys
from pathlib import Path

import wavewise

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs_and_prints_every_batch_size() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1", "8", "16", "32", "64", "80"]


def test_tables_are_frames_of_what_was_found() -> None:
    findings = wavewise.analyze(ROOT / "examples/h200-vllm-dsv4/context4k/bs064.json.gz")
    frames = wavewise.tables(findings)
    assert frames["decode"].height == 1
    assert frames["kernels"].height == len(findings.traces[0].kernels)
    assert frames["steps"]["clean"].sum() == 6


def test_the_output_shown_is_what_the_command_prints() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    code = "import sys; sys.argv[0] = 'wavewise'; from wavewise.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "analyze", "examples/h200-vllm-dsv4/context4k"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = done.stdout.split("\n")
    lines = shown.rstrip("\n").split("\n")
    assert lines[-1] == "..."
    assert printed[: len(lines) - 1] == lines[:-1]


def test_relative_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
