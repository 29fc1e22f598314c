"""Tables, notebook and the command."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import polars as pl
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

import wavewise
from wavewise.findings import Findings, RankComparison, RankRow, RecordedPoint
from wavewise.report import render_json
from wavewise.report.export import tables

EXAMPLES = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4"
PAIR = [EXAMPLES / "context4k" / f"{name}.json.gz" for name in ("bs008", "bs016")]


@pytest.fixture(scope="module")
def findings() -> Findings:
    return wavewise.analyze(PAIR)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavewise.cli import main; main()", "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tables_hold_what_the_findings_hold(findings: Findings) -> None:
    made = tables(findings)
    assert made["traces"].height == 2
    assert made["steps"].height == sum(len(trace.steps) for trace in findings.traces)
    assert made["kernels"].height == sum(len(trace.kernels) for trace in findings.traces)
    decode = made["decode"].row(by_predicate=pl.col("batch_size") == 16, named=True)
    row = findings.traces[1].decode[0]
    assert (decode["trace"], decode["clean_steps"]) == (1, row.clean_steps)
    assert decode["step_ms_median"] == row.step_ms.median
    assert decode["intra_replay_gap_us_p90"] == row.intra_replay_gap_us.p90
    top = findings.traces[0].kernels[0]
    kernel = made["kernels"].row(0, named=True)
    assert [kernel[f"grid_{axis}"] for axis in "xyz"] == list(top.grid or ())
    assert (kernel["name"], kernel["waves"], kernel["limiter"]) == (top.name, top.waves, top.limiter)
    idle = made["traces"].select("busy_ns", pl.selectors.matches("^idle_.*_ns$")).sum_horizontal()
    assert idle.to_list() == made["traces"]["window_ns"].to_list()


def test_every_row_of_the_sweep_has_a_table() -> None:
    sweep = wavewise.analyze([EXAMPLES / "context4k"])
    made = tables(sweep)
    assert sweep.scaling is not None
    assert made["fit_candidates"].filter(quantity="step").height == len(sweep.scaling.step.candidates)
    assert made["what_ifs"]["changes"].to_list() == [
        ", ".join(f"{family}={change}" for family, change in row.changes.items())
        for row in sweep.what_ifs or ()
    ]
    assert made["what_ifs"].height > 0
    assert set(made["lever_ledger"]["lever"]) <= set(made["levers"]["id"])
    assert made["lever_ledger"].height == sum(len(lever.ledger) for lever in sweep.levers or ())
    parameters = made["fits"].row(by_predicate=pl.col("quantity") == "span", named=True)["parameters"]
    assert sweep.scaling.span is not None
    assert (
        dict(each.split("=") for each in parameters.split(", ")).keys()
        == sweep.scaling.span.parameters.keys()
    )
    assert not [name for name in made["decode"].columns if "samples" in name]


def test_rows_of_recordings_ranks_and_contexts(findings: Findings) -> None:
    rank = RankRow(trace=0, rank=3, batch_size=8, clean_steps=6, step_ms=1.0, gpu_span_ms=0.5, own_ms=0.4,
                   collective_us_per_step=12.0, wait_us_per_step=None)  # fmt: skip
    ranks = RankComparison(
        by="rank", world_size=4, ranks=(3,), missing=(0, 1, 2), rows=(rank,), straggler=None, sentence=""
    )
    point = RecordedPoint(
        run="run", batch_size=8, context_tokens=None, unprofiled_step_ms=5.0, unprofiled_tokens_per_s=1600.0,
        inter_token_ms_p50=5.0, inter_token_ms_p90=5.5, inter_token_ms_p99=6.0,
        profiler_slowdown=None, traced_step_ms=5.4,
    )  # fmt: skip
    traces = tuple(replace(trace, unexplained_names=(("kernel_x", 0.25),)) for trace in findings.traces)
    made = tables(replace(findings, ranks=ranks, recorded=(point,), traces=traces))
    assert made["ranks"].rows(named=True) == [to_builtins(rank)]
    assert made["recorded"].rows(named=True) == [to_builtins(point)]
    assert made["unexplained_names"].select("trace", "name", "share_of_busy").rows() == [
        (0, "kernel_x", 0.25), (1, "kernel_x", 0.25),
    ]  # fmt: skip


def test_samples_give_back_the_medians(findings: Findings) -> None:
    made = tables(findings)
    medians = made["samples"].group_by("batch_size").agg(pl.col("step_ns").median() / 1e6).sort("batch_size")
    assert medians["step_ns"].to_list() == pytest.approx(
        made["decode"].sort("batch_size")["step_ms_median"].to_list()
    )
    sums = made["sample_families"].group_by("trace", "step").agg(pl.col("sum_ns").sum()).sort("trace", "step")
    assert sums["sum_ns"].to_list() == made["samples"].sort("trace", "step")["sum_ns"].to_list()


def test_columns_stay_when_there_is_nothing(findings: Findings) -> None:
    full, empty = tables(findings), tables(Findings(traces=()))
    assert full.keys() == empty.keys()
    for name, frame in full.items():
        assert frame.schema == empty[name].schema, name
        assert empty[name].height == 0


def test_parquet_and_csv(findings: Findings, tmp_path: Path) -> None:
    done = run(*PAIR, "--parquet", tmp_path / "p", "--csv", tmp_path / "c")
    assert (done.returncode, done.stderr) == (0, "")
    made = tables(findings)
    assert {path.stem for path in (tmp_path / "p").iterdir()} == set(made)
    assert {path.stem for path in (tmp_path / "c").iterdir()} == set(made)
    for name, frame in made.items():
        assert (
            pl.read_parquet(tmp_path / "p" / f"{name}.parquet")
            .drop("path", strict=False)
            .equals(frame.drop("path", strict=False))
        ), name
        head = (tmp_path / "c" / f"{name}.csv").read_text().splitlines()[0]
        assert head.split(",") == frame.columns


def test_findings_file_gives_the_same_tables(findings: Findings, tmp_path: Path) -> None:
    file = tmp_path / "findings.json"
    file.write_bytes(render_json(findings))
    assert run(file, "--csv", tmp_path / "c").returncode == 0
    assert pl.read_csv(tmp_path / "c" / "decode.csv")["batch_size"].to_list() == [8, 16]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_notebook_is_valid_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    options = ["--csv", tmp_path / "tables"] if suffix == "csv" else []
    done = run(*PAIR, "--notebook", tmp_path / "look.ipynb", *options)
    assert done.returncode == 0, done.stderr
    book = nbformat.reads((tmp_path / "look.ipynb").read_text(), as_version=4)
    nbformat.validate(book)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for cell in book.cells:
        if cell.cell_type == "code":
            exec(cell.source, scope)
    assert scope["decode"].height == 2
    assert scope["tables"].keys() == tables(Findings(traces=())).keys()


def test_timeline_by_suffix(tmp_path: Path) -> None:
    for name in ("t.json", "t.json.gz"):
        assert run(PAIR[0], "--perfetto", tmp_path / name).returncode == 0
    plain = json.loads((tmp_path / "t.json").read_bytes())
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())) == plain
    assert run(*PAIR, "--perfetto", tmp_path / "two.json").returncode == 0
    both = json.loads((tmp_path / "two.json").read_bytes())["traceEvents"]
    assert {event["pid"] for event in both} == {1, 2}


def test_refusals(tmp_path: Path, findings: Findings) -> None:
    def refused(status: int, word: str, *arguments: object) -> None:
        done = run(*arguments)
        assert done.returncode == status, done.stderr
        assert word in done.stderr
        assert done.stderr.count("\n") == 1
        assert list(tmp_path.iterdir()) == before

    file = tmp_path / "findings.json"
    file.write_bytes(render_json(findings))
    before = list(tmp_path.iterdir())
    refused(2, "nothing to export", PAIR[0])
    refused(2, ".pftrace", PAIR[0], "--perfetto", tmp_path / "t.txt")
    refused(2, "findings.json", file, "--perfetto", tmp_path / "t.json")
    refused(2, "none.json", tmp_path / "none.json", "--csv", tmp_path / "c")
    refused(2, "--force", PAIR[0], "--perfetto", file.with_suffix(".json"))
    refused(2, "is a file", PAIR[0], "--parquet", file)
    refused(3, "no clean decode step", EXAMPLES / "context4k" / "falling-bucket096.json.gz",
            "--perfetto", tmp_path / "t.json")  # fmt: skip
    refused(2, "cannot be written", PAIR[0], "--perfetto", "/proc/none/t.json")


def test_frames_can_be_written_by_hand(findings: Findings) -> None:
    buffer = io.BytesIO()
    tables(findings)["levers"].write_parquet(buffer)
    assert buffer.tell() > 0
