"""`wavewise analyze` as a user meets it: streams, files, exit statuses."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.recorded import CONTEXT4K

WAVEWISE = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'wavewise'; from wavewise.cli import main; main()",
]


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WAVEWISE, *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_report_in_a_pipe_is_plain_and_fits_a_hundred_columns() -> None:
    done = run("analyze", CONTEXT4K / "bs064.json.gz")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "5.92 ms" in done.stdout


def test_out_writes_every_rendering_and_prints_their_paths(tmp_path: Path) -> None:
    out = tmp_path / "report"
    done = run("analyze", CONTEXT4K / "bs064.json.gz", CONTEXT4K / "bs008.json.gz", "--out", out)
    assert done.returncode == 0, done.stderr
    assert {"findings.json", "PROFILE_FINDINGS.md", "report.html", "charts"} <= {
        p.name for p in out.iterdir()
    }
    assert done.stdout.split() == [
        str(out / n) for n in ("findings.json", "PROFILE_FINDINGS.md", "report.html")
    ]
    findings = json.loads((out / "findings.json").read_text())
    assert findings["schema"] == "wavewise.findings/1"
    markdown = (out / "PROFILE_FINDINGS.md").read_text()
    for chart in (out / "charts").iterdir():
        assert f"charts/{chart.name}" in markdown


def test_output_goes_through_a_link_and_never_over_a_device(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe.json"
    real.write_text("{}")
    link.symlink_to(real)
    os.mkfifo(pipe)
    assert run("analyze", CONTEXT4K / "bs001.json.gz", "--json", link, "--force").returncode == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["schema"] == "wavewise.findings/1"
    done = run("analyze", CONTEXT4K / "bs001.json.gz", "--json", pipe, "--force")
    assert done.returncode == 2
    assert "name a file" in one_line(done)
    assert pipe.is_fifo()


@pytest.mark.parametrize("length", ["0", "-5", "0k", "-1.5k", "0.0"])
def test_a_context_without_tokens_is_refused(length: str) -> None:
    done = run("analyze", "--label", f"context={length}", CONTEXT4K / "bs001.json.gz")
    assert done.returncode == 2
    assert "at least one token" in one_line(done)


def test_one_file_cannot_hold_two_renderings(tmp_path: Path) -> None:
    done = run("analyze", CONTEXT4K / "bs001.json.gz", "--json", tmp_path / "x", "--html", tmp_path / "x")
    assert done.returncode == 2
    assert "both json and html" in one_line(done)
    assert not list(tmp_path.iterdir())


def test_existing_output_is_kept_without_force(tmp_path: Path) -> None:
    target = tmp_path / "findings.json"
    target.write_text("mine")
    refused = run("analyze", CONTEXT4K / "bs064.json.gz", "--json", target)
    assert refused.returncode == 2
    assert "--force" in one_line(refused)
    assert target.read_text() == "mine"
    assert run("analyze", CONTEXT4K / "bs064.json.gz", "--json", target, "--force").returncode == 0
    assert target.read_text() != "mine"


@pytest.mark.parametrize(
    ("name", "content", "status", "says"),
    [
        ("missing.json", None, 2, "no such file"),
        ("broken.json", b"{nonsense", 2, "broken.json"),
        ("config.json", b'{"hidden_size": 4096}', 2, "not a trace"),
        ("empty.json", b"", 2, "empty.json"),
        ("cpu.json", b'{"schemaVersion": 1, "traceEvents": []}', 3, "GPU"),
    ],
)
def test_bad_input_is_one_line_and_the_right_status(
    tmp_path: Path, name: str, content: bytes | None, status: int, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = run("analyze", tmp_path / name, "--json", tmp_path / "out.json")
    assert done.returncode == status
    assert says in one_line(done)
    assert done.stdout == ""
    assert {p.name for p in tmp_path.iterdir()} <= {name}


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    done = run("analyze", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in one_line(done)


def test_unwritable_output_leaves_nothing_behind(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = run("analyze", CONTEXT4K / "bs064.json.gz", "--json", blocker / "findings.json")
    assert done.returncode == 2
    one_line(done)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_usage_errors_say_what_is_wrong(tmp_path: Path) -> None:
    unknown = run("analyze", CONTEXT4K / "bs064.json.gz", "--gpu", "h2000")
    assert unknown.returncode == 2
    assert "h200" in one_line(unknown)
    label = run("analyze", "--label", "context", CONTEXT4K / "bs064.json.gz")
    assert label.returncode == 2
    assert "KEY=VALUE" in one_line(label)
    dangling = run("analyze", CONTEXT4K / "bs064.json.gz", "--label", "context=4k")
    assert dangling.returncode == 2
    assert "follow" in one_line(dangling)


def test_labels_belong_to_the_path_behind_them(tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    other = CONTEXT4K / "bs008.json.gz"
    done = run("analyze", "--label", "context=12k", CONTEXT4K / "bs064.json.gz", other, "--json", out)
    assert done.returncode == 0, done.stderr
    traces = json.loads(out.read_text())["traces"]
    assert [(Path(t["path"]).name, t["context_length"], t["context_length_source"]) for t in traces] == [
        ("bs064.json.gz", 12288, "label"),
        ("bs008.json.gz", None, None),
    ]


def test_a_closed_pipe_ends_quietly() -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [*WAVEWISE, "analyze", str(CONTEXT4K / "bs064.json.gz")], stdout=write_end, stderr=subprocess.PIPE
    )
    os.close(write_end)
    os.close(read_end)
    _, stderr = process.communicate()
    assert stderr == b""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("analyze", "--gpuz", "x"), "--gpuz"),
        (("nonsense",), "nonsense"),
        (("waves", "--gpu", "h200", "--grid"), "--grid"),
        (("plan-attention", "--gpu", "h200", "--batch", "many"), "many"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in one_line(done)


@pytest.mark.parametrize("words", [[], ["analyze"], ["occupancy"], ["audit"], ["trim"]])
def test_no_arguments_print_the_help_and_one_line(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Usage" in done.stdout
    assert one_line(done).endswith(f"see {' '.join(['wavewise', *words])} --help")


def test_a_closed_output_is_no_fault_of_ours() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&- 2>&-', "sh", *WAVEWISE, "analyze", str(CONTEXT4K / "bs001.json.gz")],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0


def test_what_the_output_cannot_encode_is_no_fault_of_ours() -> None:
    words = ["occupancy", "--gpu", "h200", "--threads", "128", "--sweep", "registers=16:64:16"]
    done = subprocess.run(
        [*WAVEWISE, *words],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_a_file_name_that_is_not_utf_8_is_rendered_everywhere(tmp_path: Path) -> None:
    odd = os.path.join(os.fsencode(tmp_path), b"b\xff.json.gz")
    with open(odd, "wb") as file:
        file.write((CONTEXT4K / "bs001.json.gz").read_bytes())
    done = run("analyze", os.fsdecode(odd), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "out").iterdir():
        if path.is_file():
            path.read_bytes().decode()
    assert run("analyze", os.fsdecode(odd)).returncode == 0


@pytest.mark.parametrize(
    "option", ["--json", "--out", "--rules", "--gpus", "--ledger", "--baseline", "--telemetry"]
)
def test_a_name_that_the_system_refuses_is_one_line(option: str, tmp_path: Path) -> None:
    done = run("analyze", CONTEXT4K / "bs001.json.gz", option, tmp_path / ("x" * 300))
    assert done.returncode == 2
    assert "x" * 300 in one_line(done)


def test_a_fault_of_ours_is_one_line_too(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['wavewise', 'analyze', 'x']; import wavewise.cli.app as app\n"
        "def fail(): raise ValueError('boom')\n"
        "app.build = fail; app.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "boom" in one_line(done)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["--version"], ["ledger", "list"], ["levers", "--list"]])
def test_a_full_disk_behind_the_output_is_one_clear_line(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*WAVEWISE, *words],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert one_line(done) == "wavewise: standard output cannot be written (No space left on device)"


def test_ctrl_c_is_one_word_and_a_status(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)  # opened from both sides once the trace is being read
    code = f"""
import time
from wavewise.cli import main
from wavewise.trace.kineto import document

def slow(*_):
    open({str(started)!r}, "w").close()
    time.sleep(60)

document.read_blocks = slow
main()
"""
    command = [sys.executable, "-c", code, "analyze", str(CONTEXT4K / "bs064.json.gz")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.read_bytes()
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=30)
    assert (process.returncode, out, said) == (130, "", "wavewise: interrupted\n")
