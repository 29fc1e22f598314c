"""`wavewise scale` from the outside: exit status, one line on stderr, terminal and JSON."""

import json
from pathlib import Path

import pytest
from scaling_points import mission_figures

from support.decode_files import write_trace
from wavewise.cli.app import main


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    for size in (16, 32, 64):
        step, moe, attention = mission_figures(size)
        kernels = [("flash_fwd_splitkv_kernel", attention * 1e3), ("fused_moe_kernel", moe * 1e3)]
        write_trace(folder / f"bs{size:03d}.json.gz", size, kernels, (step - moe - attention) * 1e3)
    return folder


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    def run(*words: object) -> Ran:
        monkeypatch.setattr("sys.argv", ["wavewise", "scale", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


def test_the_terminal_answer(scale, sweep: Path) -> None:
    ran = scale(sweep, "--latency-target", "40ms", "--throughput-target", "1000", "--extrapolate", "96,500")
    assert ran.status == 0
    text = " ".join(ran.out.split())
    assert "Batch 20 meets 40.0 ms" in text
    assert "1.05 ms per request allow at most 952" in text
    assert "batch 500 lies outside 8..128" in text
    assert "No work on" in text
    assert all(len(line) <= 100 for line in ran.out.splitlines())


def test_json_alone_goes_to_stdout_and_holds_the_contracts_names(scale, sweep: Path) -> None:
    for words in ((sweep, "--json"), ("--json", sweep), (sweep, "--json", "-")):
        ran = scale(*words)
        assert ran.status == 0
        found = json.loads(ran.out)
        assert found["schema"] == "wavewise.findings/1"
        assert found["scaling"]["step"]["floor_ms"] == pytest.approx(18.0)
        assert found["scaling"]["step"]["model"] == "linear"
        assert {row["family"] for row in found["scaling"]["families"]} == {"attention_split", "moe_gemm"}
        assert "traces" not in found


def test_json_to_a_file_never_overwrites_unasked(scale, sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "scale.json"
    assert scale(sweep, "--json", out).status == 0
    first = out.read_bytes()
    refused = scale(sweep, "--json", out)
    assert refused.status == 2
    assert "--force" in refused.err
    assert out.read_bytes() == first
    assert scale(sweep, "--json", out, "--force").status == 0


def test_a_trace_named_json_behind_the_flag_stays_an_input(scale, sweep: Path, tmp_path: Path) -> None:
    import gzip

    trace = tmp_path / "bs016.json"
    trace.write_bytes(gzip.decompress((sweep / "bs016.json.gz").read_bytes()))
    ran = scale("--json", trace, "--throughput-target", "100")
    assert ran.status == 0
    assert json.loads(ran.out)["scaling"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("--experts", "256"),
        ("--experts", "6,256"),
        ("--experts", "a,b"),
        ("--latency-target", "soon"),
        ("--latency-target", "0ms"),
        ("--latency-target", "-3ms"),
        ("--throughput-target", "fast"),
        ("--throughput-target", "0"),
        ("--extrapolate", "96;128"),
        ("--extrapolate", ","),
        ("--model", "gpt-9"),
        ("--telemetry", "no-such-file"),
        ("--baseline", "no-such-file"),
    ],
)
def test_wrong_arguments_end_with_one_line_and_status_2(scale, sweep: Path, words: tuple[str, str]) -> None:
    ran = scale(sweep, *words)
    assert ran.status == 2
    assert len(ran.err.strip().splitlines()) == 1
    assert words[1] in ran.err


@pytest.mark.parametrize("text", ["40ms", "0.04s", "40000us", "40", "40.0 ms"])
def test_latencies_in_any_unit(scale, sweep: Path, text: str) -> None:
    ran = scale(sweep, "--latency-target", text, "--json")
    assert json.loads(ran.out)["latency_target"]["target_ms"] == pytest.approx(40.0)


def test_one_batch_size_is_nothing_to_scale(scale, sweep: Path) -> None:
    ran = scale(sweep / "bs032.json.gz")
    assert ran.status == 3
    assert "only batch 32" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    # ... but a throughput can still be judged by its ceilings.
    answered = scale(sweep / "bs032.json.gz", "--throughput-target", "5000")
    assert answered.status == 0
    assert "No single family suffices" in " ".join(answered.out.split())


def test_missing_input(scale, tmp_path: Path) -> None:
    assert scale(tmp_path / "none").status == 2


def test_telemetry_joins_the_answer(scale, sweep: Path, tmp_path: Path) -> None:
    file = tmp_path / "dmon.txt"
    file.write_text("# gpu    pwr     sm    mem\n# Idx      W      %      %\n    0    342     97     27\n")
    ran = scale(sweep, "--telemetry", file, "--power-limit", "600")
    assert "latency-bound at low occupancy" in " ".join(ran.out.split())
    assert "allows no verdict" in " ".join(scale(sweep, "--telemetry", file).out.split())


def test_baseline_premises(scale, sweep: Path, tmp_path: Path) -> None:
    from wavewise.analysis import analyze
    from wavewise.report import render_json

    baseline = tmp_path / "findings.json"
    baseline.write_bytes(render_json(analyze([sweep / "bs016.json.gz"])))
    ran = scale(sweep, "--baseline", baseline)
    assert ran.status == 0
    assert "The dearest family was MoE GEMM at batch 16; at batch 64 it is attention split" in " ".join(
        ran.out.split()
    )
