"""Which operating points are compared, and what is refused or said first."""

import pytest
from diff_recordings import recorded
from msgspec.structs import replace

from wavewise.analysis import analyze
from wavewise.errors import UsageError
from wavewise.findings import Findings
from wavewise.report.diff import diff
from wavewise.report.diff.text import report


def on_gpu(findings: Findings, name: str) -> Findings:
    traces = tuple(replace(trace, gpu=replace(trace.gpu, name=name)) for trace in findings.traces)
    return replace(findings, traces=traces)


def with_launches(findings: Findings, factor: float, *families: str) -> Findings:
    """Findings whose named families (all, without names) launch `factor` times as many kernels."""
    points = tuple(
        replace(
            point,
            families=tuple(
                replace(row, launches_per_step=row.launches_per_step * factor)
                if not families or row.family in families
                else row
                for row in point.families
            ),
        )
        for point in findings.operating_points
    )
    return replace(findings, operating_points=points)


def at_context(findings: Findings, label: str | None, length: int | None = None) -> Findings:
    points = tuple(
        replace(point, context_label=label, context_length=length) for point in findings.operating_points
    )
    return replace(findings, operating_points=points)


def together(*parts: Findings) -> Findings:
    return replace(
        parts[0], operating_points=tuple(point for part in parts for point in part.operating_points)
    )


BASE = "context4k/bs016"


def test_other_gpus_are_refused_and_said_first_if_compared_anyway() -> None:
    before, after = recorded(BASE), on_gpu(recorded(BASE), "NVIDIA B200")
    with pytest.raises(
        UsageError, match=r"The GPUs differ: NVIDIA H200 before, NVIDIA B200 after\. --anyway"
    ):
        diff(before, after)
    said = report(diff(before, after, anyway=True))
    assert said.notes[0] == "Stop: The GPUs differ: NVIDIA H200 before, NVIDIA B200 after."


def test_another_number_of_layers_is_another_model() -> None:
    before, after = recorded(BASE), with_launches(recorded(BASE), 2.0)
    with pytest.raises(UsageError, match="The models differ: 8 attention launches per step before, 16 after"):
        diff(before, after)
    assert report(diff(before, after, anyway=True)).notes[0].startswith("Stop: The models differ")


def test_a_rewritten_attention_is_no_other_model() -> None:
    after = with_launches(recorded(BASE), 2.0, "attention_split", "attention_combine")
    assert diff(recorded(BASE), after).notes == ()


def test_experts_that_vanish_are_another_model() -> None:
    dense = with_launches(recorded(BASE), 0.0, "moe_gemm")
    with pytest.raises(UsageError, match="with expert GEMMs before, without after"):
        diff(recorded(BASE), dense)


def test_other_engines_are_compared_with_a_caution() -> None:
    traces = tuple(replace(trace, engine="sglang") for trace in recorded(BASE).traces)
    notes = diff(recorded(BASE), replace(recorded(BASE), traces=traces)).notes
    assert [note.code for note in notes] == ["different_engines"]
    assert notes[0].message == "The engines differ: vLLM before, SGLang after."


def test_batches_on_one_side_are_named() -> None:
    both = together(recorded(BASE), recorded("context4k/bs008"))
    found = diff(both, recorded(BASE))
    assert [point.batch_before for point in found.points] == [16]
    assert [note.message for note in found.notes] == ["Only before: batch 8; not compared."]


def test_no_common_batch_among_several() -> None:
    both = together(recorded(BASE), recorded("context4k/bs008"))
    found = diff(both, recorded("context4k/bs032"))
    assert found.points == ()
    assert [note.code for note in found.notes] == ["no_common_batch"]
    assert report(found).verdict == ("Nothing could be compared.",)


def test_contexts_pair_by_length_or_label() -> None:
    short, long = at_context(recorded(BASE), None, 4096), at_context(recorded(BASE), None, 12288)
    found = diff(together(short, long), together(at_context(recorded(BASE), None, 12300), short))
    assert [(p.context_before, p.context_after) for p in found.points] == [
        ("4,096 tokens", "4,096 tokens"), ("12,288 tokens", "12,300 tokens"),
    ]  # fmt: skip
    assert found.notes == ()
    labelled = diff(at_context(recorded(BASE), "chat"), at_context(recorded(BASE), "code"))
    assert [note.message for note in labelled.notes] == [
        "The context lengths differ at batch 16: chat before, code after."
    ]


def test_contexts_on_one_side_only() -> None:
    short, long = at_context(recorded(BASE), None, 4096), at_context(recorded(BASE), None, 12288)
    found = diff(together(short, long), short)
    assert len(found.points) == 1
    assert [note.message for note in found.notes] == [
        "Only before: batch 16 at context 12,288 tokens; not compared."
    ]


def test_nothing_clean_on_one_side_says_why() -> None:
    empty = recorded("context4k/falling-bucket096")
    found = diff(recorded(BASE), empty)
    assert found.points == ()
    assert found.notes[0].code == "no_decode"
    assert found.notes[0].message.startswith("There is no clean decode step after: ")


def test_repeats_are_pooled_and_raise_the_floor() -> None:
    from diff_recordings import EXAMPLES

    pair = [EXAMPLES / "context4k" / "bs064.json.gz", EXAMPLES / "context12k" / "bs064.json.gz"]
    repeated = analyze(pair)
    assert len(repeated.operating_points) == 1
    found = diff(repeated, repeated)
    assert found.empty
    point = found.points[0]
    floors = {row.family: row.sum_us.noise_floor for row in point.families}
    single = {
        row.family: row.sum_us.noise_floor
        for row in diff(recorded("context4k/bs064"), recorded("context4k/bs064")).points[0].families
    }
    # The two recordings differ much in the indexer's time and hardly in the norms'.
    assert floors["indexer"] > 5 * single["indexer"]
    kernels = sum(kernel.sum_us.before or 0 for kernel in point.kernels)
    rows = [row for trace in repeated.traces for row in trace.kernels]
    # Two recordings of six clean steps each: half of each one's kernel time.
    assert kernels == pytest.approx(sum(row.sum_us_per_step for row in rows) / 2)


def test_without_markers_buckets_are_compared(tmp_path) -> None:
    import gzip
    import json

    from diff_recordings import EXAMPLES

    document = json.loads(gzip.decompress((EXAMPLES / f"{BASE}.json.gz").read_bytes()))
    document["traceEvents"] = [
        event for event in document["traceEvents"] if "annotation" not in str(event.get("cat", ""))
    ]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document), encoding="utf-8")
    findings = analyze([bare])
    assert findings.operating_points == ()
    found = diff(findings, findings)
    assert found.empty
    assert len(found.points) == 1
    assert found.points[0].batch_before is None


def test_models_known_by_name_decide() -> None:
    base = recorded(BASE)
    one, other = (
        replace(base, traces=tuple(replace(trace, model=name) for trace in base.traces))
        for name in ("one", "other")
    )
    with pytest.raises(UsageError, match="The models differ: one before, other after"):
        diff(one, other)
    assert diff(one, one).notes == ()
    assert diff(one, base).notes == ()
