"""What the diff says of recorded traces, and of changes planted in them."""

from pathlib import Path

import pytest
from diff_recordings import plant, recorded

from wavewise.analysis import analyze
from wavewise.report.diff import Diff, diff, render_markdown
from wavewise.report.diff.result import PointDiff
from wavewise.report.diff.text import report


def families(point: PointDiff, *verdicts: str) -> set[str]:
    return {row.family for row in point.families if row.sum_us.verdict in verdicts}


def only(found: Diff) -> PointDiff:
    assert len(found.points) == 1
    return found.points[0]


def test_longer_context_names_attention_and_indexer_and_host_time() -> None:
    found = diff(recorded("context4k/bs064"), recorded("context12k/bs064"))
    point = only(found)
    assert {"attention_split", "indexer"} <= families(point, "up")
    assert "moe_gemm" in families(point, "noise")
    assert families(point, "down", "added", "vanished") == set()
    step, span, boundary = (point.step(name) for name in ("step_ms", "span_ms", "boundary_ms"))
    assert step is not None
    assert span is not None
    assert boundary is not None
    assert (step.verdict, boundary.verdict, span.verdict) == ("up", "up", "noise")
    assert point.host_share == pytest.approx(1, abs=0.02)
    said = report(found)
    assert "host time at step boundaries" in said.verdict[0]
    assert "host noise" in said.verdict[0]
    up = next(line for line in said.summary if line.startswith("Up"))
    assert "attention split" in up
    assert "indexer" in up
    assert "MoE GEMM" in next(line for line in said.summary if line.startswith("Flat"))
    assert any("--label context=12k" in line for line in said.summary)


def test_figures_are_medians_of_the_samples() -> None:
    before, after = recorded("context4k/bs064"), recorded("context12k/bs064")
    point = only(diff(before, after))
    old, new = (side.operating_points[0] for side in (before, after))
    assert point.clean_steps_before == old.clean_steps
    step = point.step("step_ms")
    assert step is not None
    assert (step.before, step.after) == (pytest.approx(old.step_ms.median), pytest.approx(new.step_ms.median))
    sums = {row.family: row.sum_us_per_step for row in new.families}
    for row in point.families:
        assert row.sum_us.after == pytest.approx(sums[row.family])


def test_other_batch_sizes_are_said_first() -> None:
    found = diff(recorded("context4k/bs064"), recorded("context4k/bs080"))
    said = report(found)
    assert said.notes[0] == (
        "Caution: The batch sizes differ: batch 64 before, batch 80 after. What follows compares unequal work."
    )
    markdown = render_markdown(found)
    assert markdown.index("batch sizes differ") < markdown.index("step time")
    assert "moe_gemm" in families(only(found), "up")


def test_a_recording_against_itself_is_empty() -> None:
    found = diff(recorded("context4k/bs064"), recorded("context4k/bs064"))
    assert found.empty
    assert all(kernel.match == "exact" for kernel in only(found).kernels)
    said = report(found)
    assert said.verdict == ("No difference: at batch 64 not one figure differs.",)
    assert said.sections == ()
    assert said.summary == ()


@pytest.mark.parametrize(
    "family",
    ["moe_gemm", "dense_gemm", "attention_split", "attention_schedule", "indexer", "norm", "quant", "kv_compress",
     "residual_mix", "moe_route", "elementwise", "attention_combine"],
)  # fmt: skip
def test_planted_slowdown_of_one_family(tmp_path: Path, family: str) -> None:
    before = recorded("context4k/bs064")
    slow = only(diff(before, analyze([plant("context4k/bs064", family, 1.05, tmp_path / "slow.json")])))
    assert families(slow, "up") == {family}
    planted = next(row.sum_us for row in slow.families if row.family == family)
    # Durations are written to the nanosecond, so the planted 5 % comes back but for rounding.
    assert planted.relative == pytest.approx(0.05, abs=1e-3)
    assert families(slow, "same") == {row.family for row in slow.families} - {family}
    slightly = only(
        diff(before, analyze([plant("context4k/bs064", family, 1.003, tmp_path / "slight.json")]))
    )
    assert family in families(slightly, "noise")
    assert families(slightly, "up", "down", "unclear") == set()


def test_planted_slowdown_names_the_kernels(tmp_path: Path) -> None:
    after = analyze([plant("context4k/bs064", "attention_split", 1.05, tmp_path / "slow.json")])
    changed = [
        k for k in only(diff(recorded("context4k/bs064"), after)).kernels if k.sum_us.verdict != "same"
    ]
    assert {kernel.family for kernel in changed} == {"attention_split"}
    assert all(kernel.match == "exact" and kernel.sum_us.verdict == "up" for kernel in changed)


def test_everything_slower_by_a_hair_is_noise(tmp_path: Path) -> None:
    after = analyze([plant("context4k/bs016", None, 1.003, tmp_path / "hair.json")])
    point = only(diff(recorded("context4k/bs016"), after))
    assert families(point, "up", "down", "unclear") == set()
    assert {step.verdict for step in point.steps} <= {"noise", "same"}


def test_replaced_kernels_come_and_go() -> None:
    point = only(diff(recorded("context4k/bs064"), recorded("context4k/bs080")))
    matches = {kernel.match for kernel in point.kernels}
    assert {"exact", "added", "vanished", "reshaped", "retuned"} <= matches
    for kernel in point.kernels:
        if kernel.match == "added":
            assert kernel.sum_us.before is None
            assert kernel.sum_us.after is not None
        if kernel.match == "vanished":
            assert kernel.sum_us.after is None
    # Nothing is lost or counted twice: the kernels' sums are the sum of all rows on each side.
    for side in ("before", "after"):
        total = sum(getattr(kernel.sum_us, side) or 0 for kernel in point.kernels)
        rows = recorded(f"context4k/{'bs064' if side == 'before' else 'bs080'}").traces[0].kernels
        assert total == pytest.approx(sum(row.sum_us_per_step for row in rows))


def test_more_than_all_of_a_change_is_not_a_share_over_100_percent() -> None:
    found = diff(recorded("context4k/bs016"), recorded("mixed"))
    said = report(found).verdict[0]
    assert found.points[0].host_share is not None
    assert found.points[0].host_share > 1
    assert "All of it is host time at step boundaries" in said
    assert "the replay's GPU span went down" in said
