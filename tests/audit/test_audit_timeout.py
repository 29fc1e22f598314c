"""The limit on one compile: what is over it is a row, and nothing that ran is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.kernels


from wavewise.audit import audit, pool  # noqa: E402
from wavewise.audit.toolchain import tool  # noqa: E402
from wavewise.errors import InputError, UsageError  # noqa: E402

HERE = Path(__file__).parent
SLOW = str(HERE / "audit_slow.py")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A cache and a folder for temporary files of the test's own."""
    monkeypatch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


@pytest.fixture
def endless_ptxas(tmp_path, monkeypatch):
    """A ptxas that never ends for 8 warps, takes 2 s for 2, and is itself for any other number.

    Gives the file in which the processes that it started write their ids.
    """
    pids = tmp_path / "pids"
    # Which of the two Triton takes for 9.0 depends on its release.
    for name, variable in (
        ("ptxas", "TRITON_PTXAS_PATH"),
        ("ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH"),
    ):
        script = tmp_path / name
        script.write_text(
            f"""#!/bin/sh
case "$*" in *--version*) exec {tool(name)} "$@";; esac
for word in "$@"; do
  case "$word" in *.ptx) source="$word";; esac
done
grep -q "reqntid 256" "$source" && {{ sleep 600 & echo $! >> {pids}; wait; }}
grep -q "reqntid 64" "$source" && sleep 2
exec {tool(name)} "$@"
"""
        )
        script.chmod(0o755)
        monkeypatch.setenv(variable, str(script))
    yield pids
    # Interrupted in the test's own process, Triton ends the script, which leaves its sleep; ptxas itself has no child.
    for pid in alive(pids) if pids.exists() else ():
        os.kill(pid, signal.SIGKILL)


def alive(pids: Path) -> list[int]:
    """Those of the processes that still run; one that has ended but was not waited for does not."""
    found = []
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


def wait_until(happened, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.05)
    return happened()


def test_a_configuration_over_the_limit_is_a_row_beside_the_others(endless_ptxas, places):
    report = audit(
        f"{SLOW}:plain",
        [{"num_warps": 8}, {"num_warps": 4}],
        ["h200"],
        signature="*fp32",
        timeout_s=10,
        jobs=2,
    )
    good, slow = report.rows
    assert (good.rank, good.fits, good.config.num_warps) == (1, True, 4)
    assert (slow.rank, slow.fits, slow.resources.timed_out) == (None, None, True)
    assert slow.reason == "compiling took longer than 10 s; a higher --timeout waits longer"
    assert list((places / "scratch").iterdir()) == []


def test_the_limit_is_per_compile_and_the_audit_goes_on_after_one(endless_ptxas):
    configs = [{"num_warps": 8}, *({"num_warps": 2, "BLOCK": block} for block in (64, 128))]
    rows = audit(
        f"{SLOW}:plain", configs, ["h200"], signature="*fp32", timeout_s=10, jobs=1, use_cache=False
    ).rows
    assert [row.resources.timed_out for row in rows] == [False, False, True]


def test_what_a_slow_compile_started_ends_with_it(endless_ptxas, places):
    report = audit(f"{SLOW}:plain", [{"num_warps": 8}], ["h200"], signature="*fp32", timeout_s=8)
    assert report.rows[0].resources.timed_out
    assert len(endless_ptxas.read_text().split()) == 1
    assert wait_until(lambda: alive(endless_ptxas) == [], 5)
    assert list((places / "scratch").iterdir()) == []


def test_a_result_over_the_limit_is_not_cached(endless_ptxas, monkeypatch, places):
    def run(timeout_s):
        return audit(f"{SLOW}:plain", [{"num_warps": 8}], ["h200"], signature="*fp32", timeout_s=timeout_s)

    assert run(3).rows[0].resources.timed_out
    assert list((places / "cache").rglob("*.json")) == []
    monkeypatch.delenv("TRITON_PTXAS_PATH")
    monkeypatch.delenv("TRITON_PTXAS_BLACKWELL_PATH")
    again = run(60)
    assert (again.compiled, again.rows[0].fits) == (1, True)


def test_a_cached_result_needs_no_time(endless_ptxas):
    def run(timeout_s):
        return audit(f"{SLOW}:plain", [{"num_warps": 2}], ["h200"], signature="*fp32", timeout_s=timeout_s)

    assert run(60).compiled == 1
    again = run(0.5)
    assert (again.compiled, again.rows[0].fits) == (0, True)


def test_a_kernel_of_this_process_only_is_interrupted_too(endless_ptxas):
    @triton.jit
    def local(x, BLOCK: triton.language.constexpr):
        triton.language.store(x + triton.language.arange(0, BLOCK), 1.0)

    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        row = audit(local, [{"BLOCK": 64, "num_warps": 8}], ["h200"], signature="*fp32", timeout_s=3).rows[0]
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert row.resources.timed_out
    assert "longer than 3 s" in row.reason
    # A timer of the caller's own goes on, less the time that the compile took.
    assert 0 < left < 28
    assert rung == []


def test_a_kernel_that_does_not_compile_is_still_an_error_beside_none_that_does():
    with pytest.raises(InputError, match="does not compile"):
        audit(f"{HERE / 'audit_zoo.py'}:broken", [{"BLOCK": 32}], ["h200"], signature="*fp32", timeout_s=60)


def test_a_module_that_hangs_while_it_is_imported_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "_START_S", 3.0)
    module = tmp_path / "audit_hanging.py"
    module.write_text(
        "import os, time\n"
        + Path(SLOW).read_text()
        + "\nif os.environ.get('WAVEWISE_AUDIT_WORKER'):\n    time.sleep(600)\n"
    )
    row = audit(f"{module}:plain", [{}], ["h200"], signature="*fp32", timeout_s=1).rows[0]
    assert row.reason.startswith("importing the kernel's module took longer than 3 s")


def started(*words: str, **more) -> "subprocess.Popen[str]":
    code = "from wavewise.cli.app import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "audit", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


AUDIT = (f"{SLOW}:plain", "--signature", "*fp32", "--num-warps", "8", "--gpu", "h200")


def test_ctrl_c_ends_everything_at_once(endless_ptxas, places):
    process = started(*AUDIT)
    assert wait_until(endless_ptxas.exists, 60)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert time.monotonic() - begun < 10
    assert wait_until(lambda: alive(endless_ptxas) == [], 5)
    assert list((places / "scratch").iterdir()) == []


@pytest.mark.parametrize("killed_by", [signal.SIGKILL, signal.SIGTERM])
def test_an_audit_that_is_killed_leaves_no_compiler_behind(endless_ptxas, places, killed_by):
    process = started(*AUDIT)
    assert wait_until(endless_ptxas.exists, 60)
    process.send_signal(killed_by)
    process.communicate(timeout=30)
    assert wait_until(lambda: alive(endless_ptxas) == [], 10)
    assert wait_until(lambda: list((places / "scratch").iterdir()) == [], 5)


def test_the_command_says_what_was_too_slow(endless_ptxas):
    process = started(*AUDIT, "--timeout", "2.5")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    assert "too slow" in out
    assert "Too slow: compiling took longer than 2.5 s; a higher --timeout waits longer" in " ".join(
        out.split()
    )


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_no_limit_is_one_line_and_exit_2(limit):
    process = started(*AUDIT, "--timeout", limit)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert "a positive number of seconds" in err
    with pytest.raises(UsageError, match="positive number of seconds"):
        audit(f"{SLOW}:plain", [{"num_warps": 8}], ["h200"], signature="*fp32", timeout_s=float(limit))


@pytest.mark.slow
def test_a_kernel_that_really_takes_minutes():
    begun = time.monotonic()
    row = audit(
        f"{SLOW}:wide_dot",
        [{"N": 512, "num_warps": 4}],
        ["h200"],
        signature="*bf16, *bf16, *fp32",
        timeout_s=10,
    ).rows[0]
    assert row.resources.timed_out
    assert time.monotonic() - begun < 60
