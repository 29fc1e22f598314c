"""A diff prints no difference that the traces cannot hold: times are recorded in whole nanoseconds."""

import json
import re

import pytest

from wavewise.findings import Note
from wavewise.report.diff.limits import judged, parse_limit
from wavewise.report.diff.render import render_json, render_markdown
from wavewise.report.diff.result import Change, Diff, FamilyChange, PointDiff, Side
from wavewise.report.diff.wording import below_resolution, signed, signed_percent

LONG = re.compile(r"\d\.\d{7,}")


def change(quantity: str, unit: str, before: float, by: float) -> Change:
    return Change(
        quantity=quantity, unit=unit, before=before, after=before + by, change=by, relative=by / before,
        interval=(-abs(by) / 3, abs(by)), p_value=0.5, noise_floor=0.01 * before, verdict="noise",
    )  # fmt: skip


def diff_by(ns: float) -> Diff:
    """Step, family and throughput moved by so many nanoseconds."""
    family = FamilyChange(
        family="moe_gemm",
        sum_us=change("sum_us", "us", 5000.0, ns / 1e3),
        launches_before=16,
        launches_after=16,
    )
    point = PointDiff(
        batch_before=64, batch_after=64, context_before=None, context_after=None,
        clean_steps_before=6, clean_steps_after=6,
        steps=(
            change("step_ms", "ms", 8.3, ns / 1e6),
            change("span_ms", "ms", 5.9, ns / 1e6),
            change("tokens_per_s", "tokens/s", 7712.0, -7712.0 * ns / 8.3e6),
        ),
        families=(family,), kernels=(),
    )  # fmt: skip
    side = Side(path="a", traces=1, gpus=("NVIDIA H200",), engines=("vllm",), batch_sizes=(64,))
    notes: tuple[Note, ...] = ()
    return Diff(wavewise="0", before=side, after=side, notes=notes, points=(point,))


@pytest.mark.parametrize("ns", [0.5, -0.5, 0.25])
def test_less_than_a_nanosecond_is_unchanged(ns: float) -> None:
    text = render_markdown(diff_by(ns))
    rows = [line for line in text.splitlines() if line.startswith("|") and "within noise" in line]
    assert len(rows) == 4
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[3] == "unchanged"
        assert cells[4] == "0.0"
        assert cells[5] == "0 to 0"
    assert "MoE GEMM unchanged (5.00 ms)" in text
    assert not LONG.search(text)
    assert not re.search(r"[+-]0(?:\.0*)?(?![\d.])", text)
    # The value itself is kept for programs.
    kept = json.loads(render_json(diff_by(ns)))["points"][0]["steps"][0]["change"]
    assert kept == pytest.approx(ns / 1e6)


@pytest.mark.parametrize(("ns", "ms", "us"), [(1, "+0.000001", "+0.001"), (1500, "+0.00150", "+1.50")])
def test_a_nanosecond_is_a_change(ns: float, ms: str, us: str) -> None:
    text = render_markdown(diff_by(ns))
    rows = [
        [c.strip() for c in line.strip("|").split("|")]
        for line in text.splitlines()
        if "within noise" in line
    ]
    assert [row[3] for row in rows if row[0] in ("step time, ms", "MoE GEMM")] == [ms, us]
    assert not LONG.search(text)


def test_exactly_a_nanosecond_is_recorded_whatever_the_subtraction_left_of_it() -> None:
    assert not below_resolution(8.300001 - 8.3, "ms")
    assert not below_resolution(5.6e-07 + 4.4e-07, "ms")
    assert below_resolution(9.9e-07, "ms")


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert signed(-1e-9, "ms") == "0"
    assert signed(-0.004, "tokens/s") == "0"
    assert signed(0.007, "tokens/s") == "+0.01"
    assert signed_percent(-0.0001) == "0.0"
    assert signed_percent(0.0006) == "+0.1"


def test_limits_say_their_figures_at_the_same_resolution() -> None:
    (result,) = judged(diff_by(0.5), [parse_limit("decode.64.step_ms > +3%")]).limits
    assert result.message == "decode.64.step_ms 8.30 -> 8.30 ms (0.0 %)"
