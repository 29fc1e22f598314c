"""`wavewise plan-attention` and `wavewise bench attention` as a user meets them."""

import importlib.util
import json
import subprocess
import sys

import pytest


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from wavewise.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
    )


def test_the_call_of_the_issue_prints_a_row_for_every_batch_and_head_count():
    done = run(
        "plan-attention",
        "--gpu",
        "rtx-pro-6000",
        "--batch",
        "1:128",
        "--heads",
        "64,16",
        "--topk",
        "512",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["rows"]
    assert [(r["heads"], r["batch"]) for r in rows] == [(h, b) for h in (64, 16) for b in range(1, 129)]
    for row in rows:
        assert set(row) >= {
            "batch", "heads", "num_splits", "tile", "ctas_per_sm", "waves", "wave_efficiency", "predicted_us",
        }  # fmt: skip
        assert row["num_splits"] >= 1
        assert row["ctas_per_sm"] >= 1
        assert 0 < row["wave_efficiency"] <= 1
        ctas = row["grid"][0] * row["grid"][1] * row["grid"][2]
        slots = 188 * row["ctas_per_sm"]
        assert row["waves"] == -(-ctas // slots)
        assert row["wave_efficiency"] == pytest.approx(ctas / (row["waves"] * slots))
        assert row["predicted_us"] > 0


def test_the_table_says_what_it_rests_on():
    done = run("plan-attention", "--gpu", "NVIDIA H200", "--batch", "8,64", "--heads", "64", "--window", "0")
    assert done.returncode == 0, done.stderr
    first, header, *rows, last = done.stdout.splitlines()
    assert first == "NVIDIA H200: 512 keys a query, footprints of Triton 3.6.0"
    assert header.split()[:4] == ["heads", "batch", "splits", "tile"]
    assert len(rows) == 2
    assert "measured on one NVIDIA H200" in last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "h201"], "unknown GPU 'h201'"),
        (["--gpu", "h200", "--heads", "24"], "24 query heads"),
        (["--gpu", "h200", "--batch", "0:4"], "at least 1"),
        (["--gpu", "h200", "--batch", "x"], "--batch"),
        (["--gpu", "mi300x"], "no audited attention kernel"),
        (["--gpu", "h200", "--topk", "0", "--window", "0"], "no key"),
        (["--gpu", "h200", "--queries", "5"], "at most 4"),
        (["--gpu", "h200", "--triton", "1.0"], "audited are"),
        (["--gpu", "h200", "--topk", "-3"], "topk"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(arguments, said):
    done = run("plan-attention", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.kernels
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_bench_without_a_gpu_says_so(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = run("bench", "attention", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 2
    assert "no CUDA GPU" in done.stderr
    assert not (tmp_path / "out.json").exists()
    (tmp_path / "there.json").touch()
    done = run("bench", "attention", "--json", str(tmp_path / "there.json"))
    assert done.returncode == 2
    assert "--force" in done.stderr


@pytest.fixture
def faked(monkeypatch):
    """The bench command with its GPU part replaced by what it would have returned."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    import torch

    import wavewise.bench.attention as bench
    import wavewise.bench.gpu as gpu

    check = {"case": "plain", "heads": 64, "config": "c", "num_splits": 1, "relative_error": 2e-3}
    checks = [{**check, "lse_error": 0.0, "faults": []}]
    row = {"batch": 8, "heads": 64, "scopes": [512], "floor_us": 1.0, "max_rel_err": 2e-3}
    rows = [
        {"kernel": "wavewise", **row, "median_us": 10.0, "samples_us": [10.0], "num_splits": 4},
        {"kernel": "flashmla", **row, "median_us": 15.0, "samples_us": [15.0]},
    ]
    asked = []

    def measure(settings, device, say):
        asked.append(settings)
        return {"gpu": "fake", "versions": {"torch": str(torch.__version__)}, "rows": rows}

    monkeypatch.setattr(gpu, "require_gpu", lambda: None)
    monkeypatch.setattr(bench, "check", lambda device: checks)
    monkeypatch.setattr(bench, "measure", measure)
    return checks, asked


def invoke(*arguments):
    from typer.testing import CliRunner

    from wavewise.cli.app import build

    return CliRunner().invoke(build(), ["bench", "attention", *arguments])


@pytest.mark.kernels
def test_bench_writes_what_it_measured(faked, tmp_path):
    _, asked = faked
    target = tmp_path / "new" / "out.json"
    done = invoke("--batch", "8", "--heads", "64", "--json", str(target))
    assert done.exit_code == 0, done.output
    assert "1 checks, 0 red" in done.output
    assert "1.50" in done.output
    found = json.loads(target.read_text(encoding="utf-8"))
    assert found["rows"][0]["median_us"] == 10.0
    assert found["checks"][0]["case"] == "plain"
    assert asked[0].batches == [8]
    assert invoke("--sweep").exit_code == 0
    assert asked[1].sweep
    assert asked[1].scopes == ((128, 512),)


@pytest.mark.kernels
def test_bench_times_nothing_on_a_red_check(faked):
    from wavewise.errors import RegressionFound

    checks, asked = faked
    checks[0]["faults"] = ["relative error 2e-2 exceeds 0.0067"]
    done = invoke("--batch", "8")
    assert isinstance(done.exception, RegressionFound)
    assert done.exception.exit_status == 1
    assert "nothing was timed" in str(done.exception)
    assert asked == []


@pytest.mark.kernels
def test_bench_refuses_wrong_lists(faked):
    assert "supported are" in str(invoke("--heads", "24").exception)
    assert "at least 1" in str(invoke("--batch", "0").exception)
    _, asked = faked
    assert invoke("--check-only").exit_code == 0
    assert asked == []
