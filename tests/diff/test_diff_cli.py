"""The command: exit status, files, and one line on stderr for every refusal."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from diff_recordings import EXAMPLES, plant, recorded
from msgspec.structs import replace

from wavewise.report import render_json
from wavewise.report.diff import Diff

SHORT = EXAMPLES / "context4k" / "bs016.json.gz"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavewise.cli import main; main()", "diff", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("findings") / "before.json"
    path.write_bytes(render_json(recorded("context4k/bs016")))
    return path


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant("context4k/bs016", "moe_gemm", 1.05, tmp_path_factory.mktemp("slow") / "slow.json")


def test_findings_and_traces_mix(findings: Path) -> None:
    done = run(findings, SHORT, "--fail-if", "decode.16.step_ms > +0%")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No difference: at batch 16 not one figure differs." in done.stdout


def test_regression_exits_with_one_and_still_writes(findings: Path, slow: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    limit = "decode.16.family.moe_gemm.sum_us > +3%"
    done = run(findings, slow, "--fail-if", limit, "--out", out)
    assert done.returncode == 1
    assert done.stderr.startswith(f"wavewise: a limit exceeded beyond noise: '{limit}': ")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in out.iterdir()) == ["DIFF.md", "diff.html", "diff.json"]
    value = msgspec.json.decode((out / "diff.json").read_bytes(), type=Diff)
    assert [result.outcome for result in value.limits] == ["exceeded"]
    assert json.loads((out / "diff.json").read_text())["schema"] == "wavewise.diff/1"
    assert "FAILED" in (out / "DIFF.md").read_text()
    page = (out / "diff.html").read_text()
    assert "changes-16-16" in page
    assert "http://" not in page.split("<script")[0]


def test_same_limit_is_kept_by_a_hair(findings: Path, tmp_path: Path) -> None:
    hair = plant("context4k/bs016", "moe_gemm", 1.003, tmp_path / "hair.json")
    done = run(findings, hair, "--fail-if", "decode.16.family.moe_gemm.sum_us > +0.1%")
    assert (done.returncode, done.stderr) == (0, "")
    assert "kept (what exceeds it is noise)" in done.stdout


def test_noise_share_can_be_set(findings: Path, slow: Path) -> None:
    limit = ("--fail-if", "decode.16.family.moe_gemm.sum_us > +3%")
    assert run(findings, slow, *limit, "--noise", "10%").returncode == 0
    assert run(findings, slow, *limit, "--noise", "0.02").returncode == 1


def test_files_are_not_overwritten(findings: Path, tmp_path: Path) -> None:
    there = tmp_path / "diff.md"
    there.write_text("mine")
    done = run(findings, findings, "--markdown", there)
    assert (done.returncode, there.read_text()) == (2, "mine")
    assert "--force" in done.stderr
    assert run(findings, findings, "--markdown", there, "--force").returncode == 0
    assert there.read_text().startswith("### wavewise diff")


def test_nothing_to_compare_exits_with_three_and_says_why(findings: Path, tmp_path: Path) -> None:
    done = run(
        findings, EXAMPLES / "context4k" / "falling-bucket096.json.gz", "--json", tmp_path / "diff.json"
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "no clean decode step after: " in done.stderr
    assert ".." not in done.stderr
    assert (tmp_path / "diff.json").exists()
    lonely = run(findings, EXAMPLES / "context4k", "--fail-if", "decode.16.step_ms > +900%")
    assert lonely.returncode == 0
    missed = run(
        findings, EXAMPLES / "context4k" / "falling-bucket096.json.gz", "--fail-if", "decode.16.step_ms > +9%"
    )
    assert missed.returncode == 2


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_newer_schema(findings: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text(findings.read_text().replace("wavewise.findings/1", "wavewise.findings/2", 1))
    refused(run(findings, newer), "newer.json", "newer")


def test_damaged_findings(findings: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(findings.read_bytes()[:5000])
    refused(run(cut, findings), "cut.json")


def test_a_diff_is_no_findings(findings: Path, tmp_path: Path) -> None:
    assert run(findings, findings, "--json", tmp_path / "diff.json").returncode == 0
    refused(run(findings, tmp_path / "diff.json"), "diff.json", "wavewise.diff/1")


def test_other_gpu(findings: Path, tmp_path: Path) -> None:
    base = recorded("context4k/bs016")
    traces = tuple(replace(trace, gpu=replace(trace.gpu, name="NVIDIA B200")) for trace in base.traces)
    other = tmp_path / "b200.json"
    other.write_bytes(render_json(replace(base, traces=traces)))
    out = tmp_path / "out"
    refused(run(findings, other, "--out", out), "The GPUs differ", "--anyway")
    assert not out.exists()
    done = run(findings, other, "--anyway")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("- Stop: The GPUs differ")


def test_bad_arguments(findings: Path, tmp_path: Path) -> None:
    refused(run(findings, tmp_path / "none.json"), "none.json")
    refused(run(findings, findings, "--fail-if", "nonsense"), "--fail-if", "not understood")
    refused(run(findings, findings, "--fail-if", "decode.99.step_ms > +1%"), "nothing to judge it on")
    refused(run(findings, findings, "--noise", "much"), "--noise")
    refused(run(findings, findings, "--noise", "100%"), "--noise")
    refused(run(findings, findings, "--out", findings), "is a file")
    refused(run(findings, findings, "--json", Path("/proc/none/diff.json")), "/proc/none")
