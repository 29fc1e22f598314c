"""`wavewise occupancy` and `wavewise waves` as a user calls them."""

import json
import sys

import pytest

from wavewise.cli.app import main


@pytest.fixture
def wavewise(monkeypatch, capsys):
    """Calls the command line and gives back exit status, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wavewise", *words])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return call


LAUNCH = ("occupancy", "--gpu", "rtx-pro-6000", "--threads", "128", "--registers", "255")
BARRIER = (*LAUNCH, "--shared-memory", "80000", "--grid", "32x2x4")


def test_json_has_the_contracts_names_at_top_level(wavewise):
    code, out, _ = wavewise(*BARRIER, "--json")
    found = json.loads(out)
    assert code == 0
    assert {k: found[k] for k in ("ctas_per_sm", "limiter", "warps_per_sm", "sm_coverage", "waves")} == {
        "ctas_per_sm": 1,
        "limiter": "shared_memory",
        "warps_per_sm": 4,
        "sm_coverage": 1.0,
        "waves": 2,
    }
    assert found["occupancy"] == pytest.approx(1 / 12)
    assert found["wave_efficiency"] == pytest.approx(256 / 376)
    assert found["next_cta"]["shared_memory_bytes"] == 50176


def test_the_text_says_what_the_next_cta_would_take(wavewise):
    code, out, _ = wavewise(*BARRIER)
    assert code == 0
    for words in (
        "256 CTAs of 128 threads",
        "1 CTA per SM, limited by shared memory",
        "4 of 48 per SM: occupancy 8.3 %",
        "2 of 188 slots: efficiency 68.1 %, the last wave holds 68 CTAs",
        "2 CTAs/SM at <= 50,176 B of shared memory (now 80,000)",
        "3 CTAs/SM at <= 33,024 B of shared memory (now 80,000) and <= 168 registers (now 255)",
    ):
        assert words in " ".join(out.split())


def test_a_budget_that_allows_several_more_stands_once(wavewise):
    _, out, _ = wavewise("occupancy", "--gpu", "h200", "--threads", "128")
    steps = out.split("Next step")[1].split("\n")[:3]
    assert [line.split(":")[0].split()[:4] for line in steps] == [
        ["17", "CTAs/SM", "at", "<="],  # 64 warps hold 21 CTAs of 3 warps, and 22 need CTAs of 2
        ["22", "CTAs/SM", "at", "<="],
        ["no", "33", "CTAs/SM"],
    ]


def test_without_a_grid_waves_are_null_with_a_reason(wavewise):
    found = json.loads(
        wavewise("occupancy", "--gpu", "h200", "--threads", "384", "--registers", "168", "--json")[1]
    )
    assert (found["ctas_per_sm"], found["waves"], found["sm_coverage"]) == (1, None, None)
    assert found["waves_reason"]


def test_a_kernel_that_does_not_fit_is_an_answer(wavewise):
    code, out, _ = wavewise("occupancy", "--gpu", "h200", "--threads", "128", "--shared-memory", "300000")
    assert code == 0
    assert "does not fit: 300,000 B of shared memory (at most 232,448 B)" in out


def test_an_unmodelled_gpu_is_null_in_json_and_one_line_in_text(wavewise):
    found = json.loads(wavewise("occupancy", "--gpu", "mi300x", "--threads", "256", "--json")[1])
    assert found["ctas_per_sm"] is None
    assert "not modelled" in found["reason"]
    code, _, err = wavewise("occupancy", "--gpu", "mi300x", "--threads", "256")
    assert code == 2
    assert "not modelled" in err


def test_a_sweep_lists_the_steps(wavewise):
    words = (*LAUNCH, "--sweep", "shared-memory=0:100000:1024")
    code, out, _ = wavewise(*words)
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("0 - 32,768 2 registers 16.7 %") for line in lines)
    assert any(line.startswith("33,792 - 50,176 2 registers and") for line in lines)
    assert any(line.startswith("51,200 - 99,328 1 shared memory") for line in lines)
    rows = json.loads(wavewise(*words, "--json")[1])["rows"]
    assert [row["value"] for row in rows] == list(range(0, 100_001, 1024))
    assert [row["ctas_per_sm"] for row in rows] == [2] * 50 + [1] * 48


def test_a_sweep_of_the_grid_has_a_row_per_number_of_waves(wavewise):
    words = ("occupancy", "--gpu", "h200", "--threads", "128", "--registers", "64", "--sweep", "grid=1:5000")
    code, out, _ = wavewise(*words)
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    # 8 CTAs on each of 132 SMs: 1,056 slots.
    assert "1 - 1,056 8 registers 1 0.1 - 100.0 % 50.0 %" in lines
    assert "4,225 - 5,000 8 registers 5 80.0 - 94.7 % 50.0 %" in lines
    assert len(lines) < 12
    rows = json.loads(wavewise(*words, "--json")[1])["rows"]
    assert [row["waves"] for row in rows] == [-(-ctas // 1056) for ctas in range(1, 5001)]


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_sweep_is_drawn_and_never_over_a_file(wavewise, tmp_path, suffix):
    file = tmp_path / f"chart.{suffix}"
    words = (
        "occupancy",
        "--gpu",
        "h200",
        "--threads",
        "128",
        "--sweep",
        "registers=16:255:8",
        "--chart",
        str(file),
    )
    assert wavewise(*words)[0] == 0
    assert file.stat().st_size > 1000
    code, _, err = wavewise(*words)
    assert (code, err.count("\n")) == (2, 1)
    assert "--force" in err
    assert wavewise(*words, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--threads 0", "--threads 0: a CTA has at least 1 thread"),
        ("--threads -5", "at least 1 thread"),
        ("--threads 1025", "takes at most 1,024 threads per CTA"),
        ("--threads 64 --registers 256", "at most 255 registers"),
        ("--threads 64 --registers -1", "negative"),
        ("--threads 64 --shared-memory -1", "negative"),
        ("--threads 64 --grid 0x1", "0 CTAs"),
        ("--threads 64 --grid -3", "-3 CTAs"),
        ("--threads 64 --grid B", "--let B=..."),
        ("--threads 64 --cluster-size 0", "cluster of 0"),
        ("--threads 64 --cluster-size 32", "a cluster has at most 16"),
        ("--threads 64 --cluster-size 3 --grid 64", "64 CTAs cannot be cut into clusters of 3"),
        ("--threads 64 --cluster-size 2 --sweep grid=2:8", "3 CTAs cannot be cut into clusters of 2"),
        ("--threads 64 --barriers 17", "a CTA has 16 named barriers"),
        ("--threads 64 --barriers -1", "negative"),
        ("--threads 64 --sweep threads=0:64:32", "threads 0: at least 1"),
        ("--threads 64 --sweep grid=0:8", "grid 0: at least 1"),
        ("--threads 64 --sweep colour=1:3", "cannot sweep 'colour'"),
        ("--threads 64 --sweep registers", "PARAMETER=VALUES"),
        ("--threads 64 --sweep registers=9:1", "is empty"),
        ("--threads 64 --chart x.svg", "--chart draws a --sweep"),
        ("--threads 64 --sweep registers=1:9 --chart x.bmp", ".svg, .png or .html"),
        ("--threads 64 --let B", "NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(wavewise, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = wavewise("occupancy", "--gpu", "h200", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_gpu_names_the_nearest(wavewise):
    code, _, err = wavewise("occupancy", "--gpu", "rtx-pro-600", "--threads", "64")
    assert (code, err.count("\n")) == (2, 1)
    assert "rtx-pro-6000" in err


def test_a_gpu_without_clusters_refuses_them(wavewise):
    for command in ("occupancy --gpu a40 --threads 64", "waves --gpu a40 --grid 64"):
        code, out, err = wavewise(*command.split(), "--cluster-size", "2")
        assert (code, out) == (2, "")
        assert "NVIDIA A40 has no thread block clusters" in err


def test_waves_of_clusters_are_whole_and_a_bound(wavewise):
    words = ("waves", "--gpu", "h200", "--grid", "ceil(B/8)*8", "--batches", "100:600", "--cluster-size", "8")
    code, out, _ = wavewise(*words)
    assert code == 0
    assert "132 SMs x 1 CTA in whole clusters of 8 = 128 slots" in out
    assert "bounds (at most so many slots" in " ".join(out.split())
    found = json.loads(wavewise(*words, "--json")[1])
    assert (found["slots"], found["cluster_size"]) == (128, 8)
    assert "clusters of 8" in found["note"]
    assert json.loads(wavewise(*FAMILY, "--batches", "1", "--let", "nsplit=4", "--json")[1])["note"] is None


FAMILY = ("waves", "--gpu", "rtx-pro-6000", "--ctas-per-sm", "1", "--grid", "ceil(B*2*nsplit)")


def test_waves_of_a_family_over_batch_sizes(wavewise):
    code, out, _ = wavewise(*FAMILY, "--batches", "1:128", "--let", "nsplit=4", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["sm_count"], found["slots"], len(found["rows"])) == (188, 188, 128)
    by_batch = {row["batch_size"]: row for row in found["rows"]}
    assert [(by_batch[b]["ctas"], by_batch[b]["waves"]) for b in (32, 44, 48)] == [
        (256, 2),
        (352, 2),
        (384, 3),
    ]
    assert round(by_batch[44]["wave_efficiency"], 3) == 0.936


def test_long_families_are_told_by_wave_count(wavewise):
    out = wavewise(*FAMILY, "--batches", "1:128", "--let", "nsplit=4")[1]
    assert any(" ".join(line.split()).startswith("24 - 47 192 - 376 2") for line in out.splitlines())
    assert len(out.splitlines()) < 20
    every = wavewise(*FAMILY, "--batches", "1:128", "--let", "nsplit=4", "--all")[1]
    assert len(every.splitlines()) > 128


def test_several_split_counts_are_compared(wavewise):
    code, out, _ = wavewise(*FAMILY, "--batches", "32,48,64", "--let", "nsplit=4,14")
    assert code == 0
    assert "nsplit = 14" in out
    assert "Fullest waves" in out


def test_a_grid_without_batches(wavewise):
    code, out, _ = wavewise("waves", "--sms", "188", "--grid", "B, 64", "--batches", "1")
    assert code == 0
    assert "34.0 %" in out
    found = json.loads(wavewise("waves", "--sms", "132", "--ctas-per-sm", "2", "--grid", "264", "--json")[1])
    assert (found["rows"][0]["waves"], found["rows"][0]["persistent"]) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--grid B*2 --sms 4", "--batches 1:128"),
        ("--grid 8 --sms 4 --batches 1:3", "does not use"),
        ("--grid 8", "--gpu NAME, or its size with --sms N"),
        ("--grid 8 --sms 4 --gpu h200", "one of them"),
        ("--grid 8 --sms 0", "at least 1"),
        ("--grid 8 --sms 4 --ctas-per-sm 0", "at least 1"),
        ("--grid 8 --sms 4 --let x=1", "does not use 'x'"),
        ("--grid B*n --sms 4 --batches 1:3", "--let n=..."),
        ("--grid B*n --sms 4 --batches 0:3 --let n=2", "0 CTAs at B=0, n=2"),
        ("--grid B/2 --sms 4 --batches 1:3", "round it with ceil or floor"),
        ("--grid B --sms 4 --batches 1:3 --cluster-size 5", "between 1 and the 4 slots"),
        (
            "--grid B --sms 40 --batches 8:9 --cluster-size 8",
            "9 CTAs cannot be cut into clusters of 8 (at B=9)",
        ),
        ("--grid 64 --sms 64 --cluster-size 32", "a cluster has at most 16"),
        ("--grid __import__('os') --sms 4", "not allowed"),
        ("--grid B --sms 4 --batches -1", "negative"),
    ],
)
def test_a_mistake_in_waves_is_one_line_and_exit_2(wavewise, words, message):
    code, out, err = wavewise("waves", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
