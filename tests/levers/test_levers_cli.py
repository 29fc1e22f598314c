"""The commands: what they print, write and refuse."""

import json
from pathlib import Path

import msgspec
import pytest
from test_levers_ranking import h200_like
from typer.testing import CliRunner

from support.decode_files import write_trace
from wavewise.cli.app import build
from wavewise.errors import UsageError, WavewiseError

RUNNER = CliRunner()


def run(*words: str) -> str:
    result = RUNNER.invoke(build(), list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "findings.json"
    path.write_bytes(msgspec.json.encode(h200_like()))
    return path


def test_levers_reads_a_findings_file(stored: Path) -> None:
    printed = run("levers", str(stored), "--tried", "nccl-tuning,cuda-graphs")
    assert "1. Overlap the host's work" in printed
    assert "Tried: nccl-tuning." in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_levers_writes_json(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "levers.json"
    run("levers", str(stored), "--json", str(out), "--tried", "EP")
    levers = json.loads(out.read_text())["levers"]
    keys = {"id", "title", "family", "batch_size", "predicted_saving_us_per_step", "basis", "risk",
            "verdict_in_ledger", "evidence"}  # fmt: skip
    assert all(keys <= lever.keys() for lever in levers)
    assert next(lever for lever in levers if lever["id"] == "expert-parallel")["tried"]["name"] == "EP"
    with pytest.raises(UsageError, match="--force"):
        run("levers", str(stored), "--json", str(out))


def test_levers_lists_its_catalogue() -> None:
    assert "wave-aware-splits" in run("levers", "--list")


def test_levers_refuses_what_is_no_findings(tmp_path: Path, stored: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema":"wavewise.findings/1","traces":3}')
    with pytest.raises(WavewiseError, match="damaged findings"):
        run("levers", str(broken))
    newer = tmp_path / "newer.json"
    newer.write_text(stored.read_text().replace("findings/1", "findings/2"))
    with pytest.raises(WavewiseError, match="newer wavewise"):
        run("levers", str(newer))
    with pytest.raises(UsageError, match="unknown lever"):
        run("levers", str(stored), "--tried", "wishful thinking")


def test_ledger_from_init_to_contradiction(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    assert run("ledger", "init", str(folder)).strip() == str(folder / "ledger.toml")
    with pytest.raises(UsageError, match="already"):
        run("ledger", "init", str(folder))
    common = ("--evidence", 'as "seen"', "--source", "trace 7", "--gpu", "H200", "--date", "2026-11-29")
    added = run("ledger", "add", str(folder), "--lever", "NCCL tree", "--verdict", "no-gain", *common)
    assert "nccl-tree-2026-11-29" in added
    again = run("ledger", "add", str(folder), "--lever", "nccl-tree", "--verdict", "worse", *common)
    assert "contradiction on nccl-tree" in again
    listed = json.loads(run("ledger", "list", str(folder), "--own", "--json"))
    assert [e["verdict"] for e in listed["entries"]] == ["no gain", "worse"]
    assert listed["entries"][0]["evidence"] == 'as "seen"'
    assert "contradiction on nccl-tree" in run("ledger", "check", str(folder), "--own")
    strict = RUNNER.invoke(build(), ["ledger", "check", str(folder), "--own", "--strict"])
    assert strict.exit_code == 1
    with pytest.raises(WavewiseError, match="great"):
        run("ledger", "add", str(folder), "--lever", "EP", "--verdict", "great", *common)


def test_ledger_list_marks_what_holds_on_a_gpu() -> None:
    assert "nccl-tree" in run("ledger", "list", "--gpu", "RTX PRO 6000")
    assert "nccl-tree" not in run("ledger", "list", "--gpu", "H200")


def test_sweep_prints_and_writes_drafts(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("NCCL tree lost 4 % at batch 64.\n\nWe feared EP was worse; it was not.\n")
    drafts, out = tmp_path / "drafts.toml", tmp_path / "sweep.json"
    printed = run(
        "sweep", str(notes), "--drafts", str(drafts), "--json", str(out), "--gpu", "L40S", "--passages"
    )
    assert 'nccl-tree: worse (measured), 4 %. "NCCL tree lost 4 % at batch 64." (notes.md:1)' in " ".join(
        printed.split()
    )
    assert "an attitude, not an outcome" in " ".join(printed.split())
    assert 'status = "draft"' in drafts.read_text()
    found = json.loads(out.read_text())
    assert [(d["lever"], d["verdict"], d["figure"]) for d in found["drafts"]] == [
        ("nccl-tree", "worse", "4 %")
    ]
    with pytest.raises(UsageError, match="--force"):
        run("sweep", str(notes), "--drafts", str(drafts))
    assert "draft, counts for nothing" in run("ledger", "check", str(drafts), "--own")


def test_sweep_refuses_missing_documents(tmp_path: Path) -> None:
    with pytest.raises(WavewiseError, match="cannot read"):
        run("sweep", str(tmp_path / "none.md"))
    with pytest.raises(WavewiseError, match="no document"):
        run("sweep", str(tmp_path))
    with pytest.raises(WavewiseError, match="git log failed"):
        run("sweep", "--git", str(tmp_path))


@pytest.mark.parametrize(("version", "verdict"), [("0.26.0", "no gain"), ("0.27.1", None)])
def test_analyze_expires_entries_by_the_engine_version(
    tmp_path: Path, version: str, verdict: str | None
) -> None:
    trace = tmp_path / "bs8.json.gz"
    write_trace(trace, 8, [("sgl_kernel::moe_fused_gate", 900.0), ("nvjet_gemm", 300.0)], 700.0)
    book = tmp_path / "book"
    run("ledger", "init", str(book))
    run("ledger", "add", str(book), "--lever", "host-boundary", "--verdict", "no gain", "--evidence", "tried",
        "--source", "notes", "--engine", "vllm", "--reopens-at", "0.27.0")  # fmt: skip
    out = tmp_path / f"{version}.json"
    run("analyze", str(trace), "--ledger", str(book), "--engine-version", version, "--json", str(out))
    lever = next(one for one in json.loads(out.read_text())["levers"] if one["id"] == "host-boundary")
    assert lever["verdict_in_ledger"] == verdict
