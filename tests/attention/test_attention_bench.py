"""The judgement cannot be fooled, and the recorded table meets the goals."""

import json
import statistics
from pathlib import Path

import pytest

from wavewise.bench.attention_table import table

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RECORDED = RESULTS / "2026-11-30-gpu-attention.json"
SWEEP = RESULTS / "2026-11-30-gpu-attention-sweep.json"


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def times(recorded, kernel, heads, scopes=(128, 512)):
    return {
        row["batch"]: row["median_us"]
        for row in recorded["rows"]
        if (row["kernel"], row["heads"], tuple(row["scopes"])) == (kernel, heads, scopes)
    }


def test_the_recorded_run_is_sound(recorded):
    assert recorded["gpu"] == "NVIDIA H200"
    assert set(recorded["versions"]) >= {"torch", "triton", "wavewise"}
    assert recorded["commit"]
    assert len(recorded["checks"]) == 1040
    assert all(not check["faults"] for check in recorded["checks"])
    for row in recorded["rows"]:
        assert row["max_rel_err"] <= 6.7e-3
        assert row["median_us"] == pytest.approx(statistics.median(row["samples_us"]), abs=1e-3)
        assert row["median_us"] > row["floor_us"]
        if row["kernel"] != "wavewise":
            continue
        assert {"config", "num_splits", "predicted_us"} <= set(row)


@pytest.mark.parametrize("scopes", [(128, 512), (512,)])
def test_goals_against_flashmla_at_64_heads(recorded, scopes):
    ours = times(recorded, "wavewise", 64, scopes)
    reused = times(recorded, "flashmla", 64, scopes)
    scheduled = times(recorded, "flashmla+schedule", 64, scopes)
    assert set(ours) == {1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 256}
    for batch, us in ours.items():
        assert us < reused[batch]
        assert 1.5 * us < scheduled[batch]


@pytest.mark.parametrize("scopes", [(128, 512), (512,)])
def test_native_16_heads_beat_64_padded_ones(recorded, scopes):
    narrow, wide = times(recorded, "wavewise", 16, scopes), times(recorded, "wavewise", 64, scopes)
    assert all(narrow[batch] < wide[batch] for batch in wide)


def test_the_planner_predicts_what_was_measured(recorded):
    """Median within 5 %, every row within 30 %: the model has one figure per kernel, not one per shape."""
    off = [
        abs(row["predicted_us"] / row["median_us"] - 1)
        for row in recorded["rows"]
        if row["kernel"] == "wavewise"
    ]
    assert statistics.median(off) < 0.05
    assert max(off) < 0.30


def test_the_shipped_time_model_chooses_well_among_the_measured_launches():
    """Of the sweep's rows the model picks one within 5 % of the fastest, for every batch and head count."""
    from wavewise.attention.configurations import configurations, footprints_for
    from wavewise.attention.plan import DecodeShape, predict_us, shipped_coefficients, tiles_of
    from wavewise.hardware import catalogue
    from wavewise.occupancy import residency

    spec = catalogue().find("h200")
    resident = {f.config.id: residency(spec, f.launch((1, 1, 1))).ctas_per_sm for f in footprints_for(spec)}
    configs = {c.id: c for c in configurations("9.0")}
    cases = {}
    for row in json.loads(SWEEP.read_text(encoding="utf-8"))["rows"]:
        shape = DecodeShape(row["batch"], row["heads"], row["scopes"][0], sum(row["scopes"][1:]))
        config = configs[row["config"]]
        tiles = tiles_of(shape, None, config.block_t)
        us = predict_us(
            shape, tiles, row["num_splits"], config, spec, resident[config.id], shipped_coefficients()
        )[0]
        if row["num_splits"] <= 32:
            cases.setdefault(shape, []).append((us, row["median_us"]))
    assert len(cases) > 15
    for shape, rows in cases.items():
        assert min(rows)[1] <= 1.05 * min(measured for _, measured in rows), shape


def test_the_table_shows_no_speed_up_for_a_wrong_answer(recorded):
    rows = [row for row in recorded["rows"] if row["heads"] == 64 and row["batch"] == 64]
    whole = table(rows).splitlines()
    assert len(whole) == 3
    assert "1.63" in whole[1]
    broken = [dict(row, median_us=None) if row["kernel"] == "wavewise" else row for row in rows]
    cells = table(broken).splitlines()[1].split()
    assert cells[3] == "-"
    assert cells[6] == "-"


@pytest.mark.kernels
def test_the_judge_sees_every_fault():
    torch = pytest.importorskip("torch")
    from wavewise.attention.reference import reference_decode
    from wavewise.bench.attention_cases import CASES, build, judge

    x = build(CASES[3], 8, "cpu")
    expected, expected_lse = reference_decode(
        x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, None,
        x.extra_k_cache, x.extra_indices, x.extra_topk_length,
    )  # fmt: skip
    out, lse = expected.to(torch.bfloat16), expected_lse.float()
    assert judge(out, lse, expected, expected_lse).faults == ()

    def faults(change_out=None, change_lse=None):
        o, s = out.clone(), lse.clone()
        if change_out is not None:
            change_out(o)
        if change_lse is not None:
            change_lse(s)
        return " ".join(judge(o, s, expected, expected_lse).faults)

    assert "not finite" in faults(lambda o: o[0, 0, 0].fill_(float("nan")))
    assert "relative error" in faults(lambda o: o[1].mul_(1.02))
    assert "tolerance" in faults(lambda o: o[0, 0, 0, :1].add_(0.01))
    assert "lse is off" in faults(None, lambda s: s[0, 0].add_(1e-3))
    assert "infinite" in faults(None, lambda s: s[0, 0].fill_(float("inf")))


@pytest.mark.kernels
def test_unused_slots_of_a_case_hold_nan():
    torch = pytest.importorskip("torch")
    from wavewise.attention.layout import dequantise, unpack
    from wavewise.bench.attention_cases import CASES, build

    x = build(CASES[3], 8, "cpu")
    used = torch.cat([x.indices[b, 0, : int(n)] for b, n in enumerate(x.topk_length)]).long()
    tokens = unpack(x.k_cache)
    values = dequantise(tokens)
    assert bool(torch.isfinite(values[used]).all())
    unused = torch.ones(len(values), dtype=torch.bool)
    unused[used] = False
    assert int(unused.sum()) > 500
    assert bool(torch.isnan(values[unused][:, 448:]).all())
    assert bool((tokens.codes[unused] == 0xFF).all())
