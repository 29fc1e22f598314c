"""What `wavewise trim` cut out of a trace is neither idle nor busy, and no step beside a cut is clean."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.builder import TraceBuilder, layers, vllm
from wavewise.cli.app import build
from wavewise.decode import FamilyRules, describe, segment
from wavewise.decode.cuts import between, cuts_of, with_cuts
from wavewise.decode.intervals import subtract
from wavewise.hardware import catalogue
from wavewise.trace import Trace, read, trim
from wavewise.trace.schema import WHOLE_GRAPH_SCHEMA

PAUSE_NS = 400_000_000


def stretches(least: int = 0) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Disjoint stretches of small times, in order; neighbours may touch."""
    edges = st.lists(st.integers(0, 40), min_size=2 * least, max_size=12, unique=True).map(sorted)
    return edges.map(lambda e: list(zip(e[0::2], e[1::2], strict=False)))


@given(stretches(), stretches())
def test_subtraction_agrees_with_counting_instants(
    here: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> None:
    arrays = [np.array([x[i] for x in s], np.int64) for s in (here, taken) for i in (0, 1)]
    lo, hi = subtract(*arrays)
    instants = lambda s: {t for a, b in s for t in range(a, b)}  # noqa: E731
    left = list(zip(lo.tolist(), hi.tolist(), strict=True))
    assert instants(left) == instants(here) - instants(taken)
    assert all(a < b for a, b in left)
    # No stretch is broken where nothing was taken out of it.
    untouched = [s for s in here if not instants([s]) & instants(taken)]
    assert set(untouched) <= set(left)


def three_bursts() -> Trace:
    """Batch 8, 12 and 16: seven steps of each, a pause behind each."""
    builder = TraceBuilder()
    for batch in (8, 12, 16):
        for _ in range(7):
            builder.marker(vllm(batch))
            builder.replay(layers(batch))
            builder.pause(50_000)
        builder.pause(PAUSE_NS)
    return builder.build()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "whole.json"
    path.write_bytes(trim.to_kineto(three_bursts()))
    return path


def analysed(path: Path, out: Path) -> dict[str, object]:
    result = CliRunner().invoke(build(), ["analyze", str(path), "--json", str(out), "--force"])
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())["traces"][0]


@pytest.mark.parametrize("scrub", [[], ["--scrub"]])
def test_a_trimmed_trace_has_no_idle_where_it_was_cut(
    recorded: Path, tmp_path: Path, scrub: list[str]
) -> None:
    small = tmp_path / "small.json.gz"
    words = ["trim", str(recorded), "--steps", "2", "-o", str(small), *scrub]
    assert CliRunner().invoke(build(), words).exit_code == 0
    before, after = (analysed(path, tmp_path / "f.json") for path in (recorded, small))
    assert before["idle"]["inter_burst_ns"] > 1.9 * PAUSE_NS  # type: ignore[index]
    assert after["idle"]["inter_burst_ns"] == 0  # type: ignore[index]
    assert after["window_ns"] == after["busy_ns"] + sum(  # type: ignore[operator]
        after["idle"][f"{part}_ns"]  # type: ignore[index]
        for part in ("intra_replay", "intra_step", "step_boundary", "inter_burst", "unrecorded")
    )
    # Four steps of each size are left, 100 us or so each; the pauses are gone from the window.
    assert after["window_ns"] < PAUSE_NS / 10  # type: ignore[operator]
    (warning,) = after["events"]["warnings"]  # type: ignore[index]
    assert (warning["code"], warning["count"]) == ("trimmed", 2)
    for row in (*before["decode"], *after["decode"]):  # type: ignore[misc]
        # One value for each clean step, their number, and where in the trace the step of the timeline stands.
        del row["samples"], row["clean_steps"], row["timeline"]["step_index"]
    assert after["decode"] == before["decode"]
    reasons = [step["unclean_reason"] for step in after["steps"]]  # type: ignore[union-attr]
    assert reasons.count("the trace was cut behind it") == 2
    assert reasons.count("the trace was cut before it") == 2
    for step, reason in zip(after["steps"], reasons, strict=True):  # type: ignore[arg-type]
        assert step["step_ns"] is None or reason != "the trace was cut behind it"


def test_cuts_of_a_trimmed_trace_survive_a_second_trim(recorded: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.json", tmp_path / "twice.json"
    run = lambda *words: CliRunner().invoke(build(), ["trim", *map(str, words)])  # noqa: E731
    assert run(recorded, "--steps", "3", "-o", once).exit_code == 0
    assert run(once, "--range", "0:20", "-o", twice).exit_code == 0
    first, second = (cuts_of(read(path)[0], 0) for path in (once, twice))
    assert len(first[0]) == 2
    assert [array.tolist() for array in first] == [array.tolist() for array in second]


def test_neighbours_of_one_size_across_a_cut_are_no_neighbours() -> None:
    """Steps 0 to 2 and 6 to 8 of one batch size: 2 and 6 would look like neighbours."""
    builder = TraceBuilder()
    for _ in range(9):
        builder.marker(vllm(8))
        builder.replay(layers(8))
        builder.pause(50_000)
    whole = builder.build()
    found = segment(whole, 0)
    kept = [0, 1, 2, 6, 7, 8]
    rows = found.rows
    begins = [*(row.host_start_ns or 0 for row in rows), 1 << 62]
    hosts = [(begins[i], begins[i + 1]) for i in kept]
    small = trim.cut(whole, np.isin(found.step, kept), hosts)
    cuts = {0: between(found.step, found.operations.start_ns, found.operations.end_ns, kept)}
    assert cuts[0] == [(rows[2].end_ns, rows[6].start_ns)]
    blind, told = segment(small, 0), segment(with_cuts(small, whole, cuts), 0)
    assert [row.clean for row in blind.rows] == [False, True, True, True, True, False]
    assert [row.clean for row in told.rows] == [False, True, False, False, True, False]
    one = describe(with_cuts(small, whole, cuts), 0, rules=FamilyRules.load(), gpus=catalogue()).findings
    assert one.window_ns == blind.idle.window_ns - ((rows[6].start_ns or 0) - (rows[2].end_ns or 0))


def test_a_device_with_nothing_but_whole_graphs_has_nothing_cut() -> None:
    row = {"device": 1, "stream": 7, "start_ns": 5, "duration_ns": 9, "correlation": 1, "graph_id": 4}
    whole = replace(three_bursts(), whole_graphs=pl.DataFrame([row], schema=WHOLE_GRAPH_SCHEMA))
    assert whole.device_ids() == [0, 1]
    cut = with_cuts(whole, whole, {0: [(1_000, 2_000)]})
    assert [len(cuts_of(cut, device)[0]) for device in (0, 1)] == [1, 0]
