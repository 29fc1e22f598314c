"""The language of --fail-if and its judgement."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.errors import UsageError
from wavewise.findings import Note
from wavewise.report.diff.limits import judged, parse_limit
from wavewise.report.diff.result import Change, Diff, FamilyChange, PointDiff, Side
from wavewise.report.diff.sentences import limit_sentences


def change(
    before: float | None, after: float | None, verdict: str, floor: float = 0.05, unit: str = "ms"
) -> Change:
    both = before is not None and after is not None
    return Change(
        quantity="step_ms", unit=unit, before=before, after=after, change=after - before if both else None,
        relative=after / before - 1 if both and before else None, noise_floor=floor, verdict=verdict,
        reason="2 and 2 clean steps are too few to tell it from noise" if verdict == "unclear" else None,
    )  # fmt: skip


def a_diff(
    step: Change, *rows: FamilyChange, batch: int = 64, after: int | None = None, context: str | None = None
) -> Diff:
    side = Side(path="x", traces=1, gpus=("H200",), engines=("vllm",), batch_sizes=(batch,))
    point = PointDiff(
        batch_before=batch, batch_after=after or batch, context_before=context, context_after=context,
        clean_steps_before=6, clean_steps_after=6, steps=(step,), families=rows, kernels=(),
    )  # fmt: skip
    return Diff(
        wavewise="0",
        before=side,
        after=side,
        notes=(Note(level="info", code="x", message="x"),),
        points=(point,),
    )


def outcome(text: str, diff: Diff) -> str:
    results = judged(diff, [parse_limit(text)]).limits
    assert len(results) == 1
    return results[0].outcome


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("decode.64.step_ms > +3%", (64, None, None, "step_ms", ">", 3, "relative")),
        ("decode.64.step_ms>3%", (64, None, None, "step_ms", ">", 3, "relative")),
        ("decode.*.gpu_span_ms >= +0.1", (None, None, None, "span_ms", ">=", 0.1, "change")),
        ("decode.8.tokens_per_s < -2%", (8, None, None, "tokens_per_s", "<", -2, "relative")),
        ("decode.8@12k.busy_ms > 14", (8, "12k", None, "busy_ms", ">", 14, "value")),
        ("decode.64.family.moe_gemm.sum_us > +5%", (64, None, "moe_gemm", "sum_us", ">", 5, "relative")),
        (" decode.64.family.*.launches > +0 ", (64, None, "*", "launches", ">", 0, "change")),
    ],
)
def test_grammar(text: str, expected: tuple[object, ...]) -> None:
    assert astuple(parse_limit(text)) == (text.strip(), *expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not understood"),
        ("step_ms > 3%", "not understood"),
        ("decode.64.step_ms", "not understood"),
        ("decode.64.step_ms = 3%", "not understood"),
        ("decode.64.step_ms > three", "not understood"),
        ("decode.64.step_ms > 3%; import os", "not understood"),
        ("decode.64.steps > +3%", "no quantity 'steps'"),
        ("decode.64.family.moe_gemm.step_ms > +3%", "no quantity 'step_ms'"),
        ("decode.64.step_ms > -3%", "would fail without any change"),
        ("decode.64.tokens_per_s < +3%", "would fail without any change"),
    ],
)
def test_what_is_no_limit(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_limit(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        limit = parse_limit(text)
    except UsageError:
        return
    assert limit.text == text.strip()


def test_relative_limits() -> None:
    slower = a_diff(change(10.0, 10.5, "up"))
    assert outcome("decode.64.step_ms > +3%", slower) == "exceeded"
    assert outcome("decode.64.step_ms > +6%", slower) == "kept"
    assert outcome("decode.*.step_ms > +3%", slower) == "exceeded"
    assert outcome("decode.64.step_ms < -3%", slower) == "kept"
    assert outcome("decode.64.step_ms > +3%", a_diff(change(10.0, 9.0, "down"))) == "kept"
    assert outcome("decode.64.step_ms < -3%", a_diff(change(10.0, 9.0, "down"))) == "exceeded"


def test_noise_never_fails() -> None:
    assert outcome("decode.64.step_ms > +3%", a_diff(change(10.0, 10.5, "noise"))) == "within noise"
    assert outcome("decode.64.step_ms > +0%", a_diff(change(10.0, 10.0, "same"))) == "kept"
    assert outcome("decode.64.step_ms > +3%", a_diff(change(10.0, 10.5, "unclear"))) == "unclear"
    assert outcome("decode.64.step_ms > +6%", a_diff(change(10.0, 10.5, "unclear"))) == "kept"


def test_limits_on_the_change_and_on_the_value() -> None:
    slower = a_diff(change(10.0, 10.5, "up"))
    assert outcome("decode.64.step_ms > +0.4", slower) == "exceeded"
    assert outcome("decode.64.step_ms > +0.6", slower) == "kept"
    assert outcome("decode.64.step_ms > 10.4", slower) == "exceeded"
    assert outcome("decode.64.step_ms > 10.6", slower) == "kept"
    # A value that exceeds its limit by less than the noise floor does not fail, whatever it was before.
    assert outcome("decode.64.step_ms > 10.48", slower) == "within noise"


def test_families_and_launches() -> None:
    row = FamilyChange(
        family="moe_gemm", sum_us=change(100.0, 120.0, "up", unit="us"), launches_before=16, launches_after=17
    )
    same = FamilyChange(
        family="norm", sum_us=change(50.0, 50.0, "same", unit="us"), launches_before=8, launches_after=8
    )
    diff = a_diff(change(10.0, 10.0, "same"), row, same)
    assert outcome("decode.64.family.moe_gemm.sum_us > +5%", diff) == "exceeded"
    assert outcome("decode.64.family.moe_gemm.launches > +0", diff) == "exceeded"
    assert outcome("decode.64.family.norm.launches > +0", diff) == "kept"
    every = judged(diff, [parse_limit("decode.64.family.*.sum_us > +5%")]).limits
    assert [result.outcome for result in every] == ["exceeded", "kept"]
    assert [result.path for result in every] == [
        "decode.64.family.moe_gemm.sum_us", "decode.64.family.norm.sum_us",
    ]  # fmt: skip


def test_a_new_family_exceeds_any_percentage() -> None:
    new = FamilyChange(
        family="quant", sum_us=change(None, 40.0, "added", unit="us"), launches_before=0, launches_after=8
    )
    gone = FamilyChange(
        family="rope", sum_us=change(40.0, None, "vanished", unit="us"), launches_before=8, launches_after=0
    )
    diff = a_diff(change(10.0, 10.0, "same"), new, gone)
    assert outcome("decode.64.family.quant.sum_us > +50%", diff) == "exceeded"
    assert outcome("decode.64.family.rope.sum_us > +50%", diff) == "kept"
    assert outcome("decode.64.family.rope.sum_us < -50%", diff) == "exceeded"
    assert outcome("decode.64.family.quant.sum_us > +30", diff) == "exceeded"


@pytest.mark.parametrize(
    ("text", "diff"),
    [
        ("decode.32.step_ms > +3%", a_diff(change(1.0, 2.0, "up"))),
        ("decode.64.step_ms > +3%", a_diff(change(1.0, 2.0, "up"), after=80)),
        ("decode.*.step_ms > +3%", a_diff(change(1.0, 2.0, "up"), after=80)),
        ("decode.64.family.rope.sum_us > +3%", a_diff(change(1.0, 2.0, "up"))),
        ("decode.64.busy_ms > +3%", a_diff(change(1.0, 2.0, "up"))),
        ("decode.64@4k.step_ms > +3%", a_diff(change(1.0, 2.0, "up"), context="12k")),
    ],
)
def test_what_cannot_be_judged_is_an_error(text: str, diff: Diff) -> None:
    with pytest.raises(UsageError, match="nothing to judge it on"):
        judged(diff, [parse_limit(text)])


def test_contexts_are_compared_as_lengths() -> None:
    diff = a_diff(change(10.0, 11.0, "up"), context="12,288 tokens")
    assert outcome("decode.64@12k.step_ms > +3%", diff) == "exceeded"
    assert outcome("decode.64@12288.step_ms > +3%", diff) == "exceeded"
    assert (
        outcome("decode.64@long.step_ms > +3%", a_diff(change(10.0, 11.0, "up"), context="long"))
        == "exceeded"
    )


def test_sentences_count_what_a_pattern_kept() -> None:
    rows = [
        FamilyChange(
            family=name, sum_us=change(10.0, after, verdict, unit="us"), launches_before=1, launches_after=1
        )
        for name, after, verdict in (("norm", 10.0, "same"), ("rope", 10.0, "same"), ("quant", 12.0, "up"))
    ]
    diff = judged(a_diff(change(1.0, 1.0, "same"), *rows), [parse_limit("decode.64.family.*.sum_us > +5%")])
    assert limit_sentences(diff.limits) == (
        "Limit `decode.64.family.*.sum_us > +5%` FAILED: decode.64.family.quant.sum_us 10.0 -> 12.0 us (+20.0 %).",
        "Limit `decode.64.family.*.sum_us > +5%` kept: 2 quantities.",
    )
