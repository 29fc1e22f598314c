"""The recorded H200 sweep against brute force: another parser, another algorithm."""

import statistics
from dataclasses import replace
from itertools import pairwise

import pytest

from support.recorded import ALL_FILES, CLEAN_FILES, SWEEP, events, gpu_events, replays, union_ns
from wavewise.decode import FamilyRules, describe
from wavewise.decode.markers import parse
from wavewise.findings import TraceFindings
from wavewise.hardware import catalogue
from wavewise.trace import Trace, read
from wavewise.trace.schema import MARKER_SCHEMA, empty

MIXED = "mixed.json.gz"


def findings_of(trace: Trace) -> TraceFindings:
    return describe(trace, 0, rules=FamilyRules.load(), gpus=catalogue()).findings


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {name: read(SWEEP / name)[0] for name in ALL_FILES}


@pytest.fixture(scope="module")
def found(traces: dict[str, Trace]) -> dict[str, TraceFindings]:
    return {name: findings_of(trace) for name, trace in traces.items()}


@pytest.mark.parametrize("name", CLEAN_FILES)
def test_replay_span_busy_and_counts_equal_brute_force(name: str, found: dict[str, TraceFindings]) -> None:
    mine = replays(name)
    assert len(mine) == 8
    # Clean are all but the first and last; medians over those, exact to the last digit of the text.
    clean = mine[1:-1]
    spans = [max(e["end_ns"] for e in r) - min(e["start_ns"] for e in r) for r in clean]
    busy = [union_ns([(e["start_ns"], e["end_ns"]) for e in r]) for r in clean]
    total = [sum(e["end_ns"] - e["start_ns"] for e in r) for r in clean]
    firsts = [min(e["start_ns"] for e in r) for r in mine]
    steps = [b - a for a, b in pairwise(firsts[1:])]
    (row,) = found[name].decode
    assert row.clean_steps == 6
    assert row.samples is not None
    assert list(row.samples.span_ns) == spans
    assert list(row.samples.busy_ns) == busy
    assert list(row.samples.sum_ns) == total
    assert list(row.samples.step_ns) == steps
    assert row.gpu_span_ms.median == pytest.approx(statistics.median(spans) / 1e6, rel=1e-12)
    assert row.replay_operations_per_step == statistics.median(len(r) for r in clean)
    gaps = [gap for r in clean for gap in _gaps(r)]
    assert row.intra_replay_gap_us.median == pytest.approx(statistics.median(gaps) / 1e3, rel=1e-12)
    assert row.intra_replay_gap_us.count_per_step == pytest.approx(len(gaps) / len(clean), rel=1e-12)


def _gaps(replay: list[dict[str, int]]) -> list[int]:
    gaps, reached = [], None
    for event in sorted(replay, key=lambda e: e["start_ns"]):
        if reached is not None and event["start_ns"] > reached:
            gaps.append(event["start_ns"] - reached)
        reached = event["end_ns"] if reached is None else max(reached, event["end_ns"])
    return gaps


README_TABLE = {
    # traces' README: GPU span ms, busy ms (three decimals, medians over all replays), operations per replay
    "context4k/bs001.json.gz": (1.686, 1.635, 336),
    "context4k/bs008.json.gz": (2.277, 2.228, 336),
    "context4k/bs016.json.gz": (2.986, 2.936, 336),
    "context4k/bs032.json.gz": (4.202, 4.151, 359),
    "context4k/bs064.json.gz": (5.916, 5.863, 359),
    "context4k/bs080.json.gz": (6.625, 6.568, 359),
    "context12k/bs064.json.gz": (5.927, 5.877, 359),
}


@pytest.mark.parametrize("name", CLEAN_FILES)
def test_rows_agree_with_the_published_table(name: str, found: dict[str, TraceFindings]) -> None:
    span, busy, operations = README_TABLE[name]
    (row,) = found[name].decode
    # 0.1 %: the table takes the median over all 8 replays, the row over the 6 clean ones.
    assert row.gpu_span_ms.median == pytest.approx(span, rel=1e-3)
    assert row.busy_ms.median == pytest.approx(busy, rel=1e-3)
    assert row.replay_operations_per_step == operations


@pytest.mark.parametrize("name", ALL_FILES)
def test_window_busy_and_idle_equal_brute_force(name: str, found: dict[str, TraceFindings]) -> None:
    all_events = gpu_events(name)
    one = found[name]
    assert one.window_ns == max(e["end_ns"] for e in all_events) - min(e["start_ns"] for e in all_events)
    assert one.busy_ns == union_ns([(e["start_ns"], e["end_ns"]) for e in all_events])
    assert one.sum_ns == sum(e["end_ns"] - e["start_ns"] for e in all_events)
    assert one.busy_ns + one.idle.total_ns == one.window_ns
    assert one.idle.intra_replay_ns == sum(
        max(e["end_ns"] for e in r)
        - min(e["start_ns"] for e in r)
        - union_ns(
            [
                (e["start_ns"], e["end_ns"]) for e in all_events if _overlaps(e, r)
            ]  # side streams count as busy
        )
        for r in replays(name)
    )


def _overlaps(event: dict[str, int], replay: list[dict[str, int]]) -> bool:
    # Only valid because no foreign operation of these recordings crosses a replay's edge; asserted here.
    start, end = min(e["start_ns"] for e in replay), max(e["end_ns"] for e in replay)
    inside = start <= event["start_ns"] and event["end_ns"] <= end
    assert inside or event["end_ns"] <= start or event["start_ns"] >= end
    return inside


@pytest.mark.parametrize("name", [n for n in ALL_FILES if n != MIXED])
def test_sweep_has_eight_decode_steps_with_unclean_edges(name: str, found: dict[str, TraceFindings]) -> None:
    one = found[name]
    assert [row.kind for row in one.steps] == ["decode"] * 8
    assert (one.steps[0].clean, one.steps[-1].clean) == (False, False)
    assert one.steps[0].unclean_reason == "first step of the recording"
    # Host time fills the boundaries of this in-process engine; nothing waits for requests.
    assert one.idle.step_boundary_ns > 10 * one.idle.intra_replay_ns
    assert one.idle.inter_burst_ns == 0


def test_a_falling_batch_has_no_row_and_says_why(found: dict[str, TraceFindings]) -> None:
    one = found["context4k/falling-bucket096.json.gz"]
    assert [row.batch_size for row in one.steps] == [94, 93, 91, 89, 87, 85, 83, 81]
    assert {row.bucket for row in one.steps} == {96}
    assert not any(row.clean for row in one.steps)
    assert one.decode == ()
    assert one.decode_reason is not None
    assert "94, 93, 91, 89, 87, 85, 83, 81" in one.decode_reason
    assert "bucket 96" in one.decode_reason


def test_mixed_has_every_marked_step(found: dict[str, TraceFindings]) -> None:
    marked = sorted(
        (e for e in events(MIXED) if e["cat"] == "user_annotation" and parse(e["name"])),
        key=lambda e: e["ts"],
    )
    one = found[MIXED]
    assert [row.marker for row in one.steps] == [e["name"] for e in marked]
    sizes = [(r.batch_size, r.bucket) for r in one.steps if r.kind == "decode"]
    assert [size for size, _ in sizes] == [24] * 4 + [27, 22, 16, 11, 8, 8, 8, 6, 3] + [16] * 4 + [5]
    captured = [1, 2, 4, 8, 16, 32, 48, 64, 80, 96]
    assert [bucket for _, bucket in sizes] == [min(c for c in captured if c >= size) for size, _ in sizes]
    first_mixed = next(r for r in one.steps if r.kind == "mixed")
    assert (first_mixed.context_requests, first_mixed.context_tokens) == (6, 8187)
    assert sum(r.kind == "idle" for r in one.steps) == 2
    assert [r.kind for r in one.steps].count("prefill") == 2


def test_the_stall_is_flagged_and_kept_out(found: dict[str, TraceFindings]) -> None:
    one = found[MIXED]
    (stall,) = [w for w in one.events.warnings if w.code == "host_stall"]
    assert "41.4 s" in stall.message
    assert "Step 4 (mixed)" in stall.message
    assert all(row.step_ms.p90 < 20 for row in one.decode)


def test_the_pause_is_inter_burst_idle(found: dict[str, TraceFindings]) -> None:
    # 150 ms of sleep between the bursts; the gap around it belongs to no step on the host either.
    assert 150e6 <= found[MIXED].idle.inter_burst_ns <= 200e6


MOE_SUM_US = {1: 368, 8: 910, 16: 1556, 32: 2633, 64: 4207, 80: 4748}
SPLIT_SUM_US = {1: 126, 8: 123, 16: 147, 32: 172, 64: 230, 80: 245}
SCHEDULE_SUM_US = {1: 206, 8: 213, 16: 219, 32: 231, 64: 253, 80: 272}


@pytest.mark.parametrize("batch", sorted(MOE_SUM_US))
def test_family_sums_agree_with_the_published_ones(batch: int, found: dict[str, TraceFindings]) -> None:
    (row,) = found[f"context4k/bs{batch:03d}.json.gz"].decode
    families = {f.family: f.sum_us_per_step for f in row.families}
    # 0.5 %: published over all 8 replays and rounded to microseconds.
    assert families["moe_gemm"] == pytest.approx(MOE_SUM_US[batch], rel=5e-3)
    assert families["attention_split"] == pytest.approx(SPLIT_SUM_US[batch], rel=1e-2)
    assert families["attention_schedule"] == pytest.approx(SCHEDULE_SUM_US[batch], rel=5e-3)
    assert row.coverage is not None
    assert row.coverage >= 0.97


@pytest.mark.parametrize("name", ALL_FILES)
def test_without_markers_the_same_decode_steps(
    name: str, traces: dict[str, Trace], found: dict[str, TraceFindings]
) -> None:
    stripped = findings_of(replace(traces[name], markers=empty(MARKER_SCHEMA)))
    marked = [row for row in found[name].steps if row.kind == "decode"]
    bare = [row for row in stripped.steps if row.kind == "decode"]
    assert [(r.graph_replays, r.span_ns) for r in bare] == [(r.graph_replays, r.span_ns) for r in marked]
    assert all(row.batch_size is None for row in bare)
    assert any(w.code == "steps_from_structure" and "constant" in w.message for w in stripped.events.warnings)
    for was, now in zip(marked, bare, strict=True):
        if now.bucket is not None:
            assert now.bucket == was.bucket
        if was.clean != now.clean:
            # Only where the batch changed inside one bucket, which structure cannot see.
            assert was.unclean_reason is not None
            assert "requests, this one" in was.unclean_reason
    if name != MIXED and "falling" not in name:
        assert [r.clean for r in bare] == [r.clean for r in marked]
        assert stripped.decode[0].gpu_span_ms == found[name].decode[0].gpu_span_ms
    # Batch 1 leaves no trace in the grids (every extent is 1); all other captured sizes must be learned.
    assert all(
        now.bucket is not None for was, now in zip(marked, bare, strict=True) if (was.bucket or 0) >= 8
    )
