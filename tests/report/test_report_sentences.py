"""The sentences: right numbers, right cases, and no conclusion where there is none."""

import msgspec
import pytest
import report_builder as build

from wavewise.findings import (
    Findings,
    Idle,
    Note,
    RankComparison,
    RankRow,
    RecordedPoint,
    StepRow,
    Summary,
    TraceFindings,
    Warning,
)
from wavewise.report.compose import compose
from wavewise.report.fill_text import ranked, sentence, shortcomings
from wavewise.report.idle_text import answer, stalls
from wavewise.report.points import labels_in_short, main_point, points
from wavewise.report.section import plain
from wavewise.report.verdict import dear_helpers, no_decode, per_point, verdict


def only(batch: int, **changes: object) -> Findings:
    """Findings of one batch size, the trace changed."""
    trace = msgspec.structs.replace(build.trace(batch), **changes)
    return Findings(traces=(trace,), operating_points=(build.point(batch, 0),))


def text_of(findings: Findings) -> str:
    report = compose(findings)
    lines = [*report.notes, *report.verdict, *report.summary]
    lines += [line for section in report.sections for line in section.sentences]
    return "\n".join(plain(line) for line in lines)


def test_the_verdict_is_three_sentences_about_the_largest_batch() -> None:
    first, second, third = verdict(build.sweep_findings())
    assert "At batch 80, the largest clean batch size, a decode step takes 14.2 ms" in first
    assert "median of 6 clean steps" in first
    total = sum(row.sum_us_per_step for row in build.families(80))
    assert f"MoE GEMM is {100 * 4748 / total:.0f} % of the replay's summed kernel time" in second
    assert third.startswith("When the GPU waits, it is mostly for the host")
    assert f"{100 * (14.2 - 6.625) / 14.2:.0f} % of a step" in third


def test_every_operating_point_has_its_sentence() -> None:
    lines = per_point(build.sweep_findings())
    assert len(lines) == 6
    total = sum(row.sum_us_per_step for row in build.families(64))
    (line,) = [line for line in lines if line.startswith("At batch 64 ")]
    assert "a replay takes 5.92 ms (median of 6 clean steps) and is 99.1 % busy" in line
    assert f"MoE GEMM is {100 * 4207 / total:.0f} % of its summed kernel time (4.21 ms)" in line


def test_a_helper_that_costs_more_than_what_it_helps_is_named_with_its_kernel() -> None:
    text = text_of(only(64))
    assert "decode::get_mla_metadata_kernel" in text
    assert "takes 253 us per step against 230 us at batch 64" in text


def test_a_cheap_helper_is_not_named() -> None:
    point = build.point(64, 0)
    families = tuple(
        msgspec.structs.replace(row, sum_us_per_step=229.0) if row.family == "attention_schedule" else row
        for row in point.families
    )
    findings = msgspec.structs.replace(
        only(64), operating_points=(msgspec.structs.replace(point, families=families),)
    )
    assert dear_helpers(findings) == ()
    assert "helper costs more" not in text_of(findings)


def test_a_falling_batch_has_a_reason_instead_of_a_row() -> None:
    findings = build.no_decode_findings()
    (reason,) = no_decode(findings)
    assert "falling-bucket096" in reason
    assert "94 to 81" in reason
    first, second = verdict(findings)
    assert first == reason
    assert second.startswith("Of the recorded 131 ms the GPU is busy 46 %; step boundaries (host time) 54 %")


def test_many_traces_without_a_row_do_not_drown_the_verdict() -> None:
    traces = tuple(
        msgspec.structs.replace(build.falling(), path=f"run/falling-{index}.json") for index in range(30)
    )
    findings = Findings(traces=traces)
    assert len(verdict(findings)) == 4
    assert "28 further traces have no decode row either." in verdict(findings)
    decode = next(section for section in compose(findings).sections if section.name == "decode")
    assert len(decode.sentences) == 28


def test_operations_of_no_length_divide_by_nothing() -> None:
    nothing = Summary(median=0.0, p10=0.0, p90=0.0)
    point = msgspec.structs.replace(
        build.point(64, 0), step_ms=nothing, gpu_span_ms=nothing, busy_ms=nothing, boundary_ms=nothing
    )
    assert "100.0 % busy" in text_of(msgspec.structs.replace(only(64), operating_points=(point,)))


def test_an_unsafe_idle_split_yields_no_conclusion() -> None:
    idle = Idle(
        intra_replay_ns=10, intra_step_ns=0, step_boundary_ns=18_000_000, inter_burst_ns=0,
        unrecorded_ns=1_243_990, safe=False, unsafe_reason="2 of 8 replays lost operations.",
    )  # fmt: skip
    findings = only(64, idle=idle)
    third = verdict(findings)[2]
    assert third == "Where the GPU waits cannot be said safely at batch 64: 2 of 8 replays lost operations."
    assert answer(findings.traces[0]) == "not safe"
    assert "When the GPU waits" not in text_of(findings)
    assert "not safe to conclude from, because 2 of 8 replays lost operations" in text_of(findings)


@pytest.mark.parametrize(
    ("step", "span", "busy", "words"),
    [
        (6.0, 5.99, 5.95, "hardly waits"),
        (6.0, 5.99, 4.0, "it is mostly for work inside the graph replays"),
        (12.0, 6.0, 5.9, "it is mostly for the host"),
    ],
)
def test_what_the_gpu_waits_for_follows_the_larger_part(
    step: float, span: float, busy: float, words: str
) -> None:
    def at(value: float) -> Summary:
        return Summary(median=value, p10=value, p90=value)

    point = msgspec.structs.replace(
        build.point(64, 0),
        step_ms=at(step), gpu_span_ms=at(span), busy_ms=at(busy), boundary_ms=at(step - span),
    )  # fmt: skip
    findings = msgspec.structs.replace(only(64), operating_points=(point,))
    assert words in verdict(findings)[2]


def test_a_stall_is_named_once_and_kept_out_of_the_shares() -> None:
    findings = Findings(traces=(build.mixed(),))
    (stall,) = stalls(findings.traces[0])
    assert stall.index == 1
    text = text_of(findings)
    assert text.count("left the GPU empty for 41.0 s in one stretch") == 1
    # 41,700 ms less the stall of 41,012 ms leave 688 ms, of which 390 ms are busy.
    assert f"without 41.0 s of stalls, of 688 ms the GPU was busy {100 * 390 / 688:.0f} %" in text


def test_a_steady_engine_has_no_stalls() -> None:
    slow = tuple(msgspec.structs.replace(step, stall_ns=150_000_000 + step.index) for step in build.steps(64))
    trace = msgspec.structs.replace(build.trace(64), steps=slow)
    assert stalls(trace) == ()


def test_notes_come_first_and_the_severest_of_them_first() -> None:
    notes = (
        Note(level="info", code="a", message="first."),
        Note(level="stop", code="b", message="GPUs differ."),
    )
    report = compose(msgspec.structs.replace(only(64), notes=notes))
    assert report.notes == ("Stop: GPUs differ.", "Note: first.")


def test_rows_of_unknown_batch_size_are_told_by_their_bucket() -> None:
    row = msgspec.structs.replace(build.decode_row(64), batch_size=None)
    kernels = tuple(msgspec.structs.replace(kernel, batch_size=None) for kernel in build.kernels(64))
    trace = msgspec.structs.replace(build.trace(64), decode=(row,), kernels=kernels, segmentation="structure")
    findings = Findings(traces=(trace,))
    (view,) = points(findings)
    assert view.label == "bucket 64"
    assert len(view.kernels) == len(kernels)
    text = text_of(findings)
    assert (
        "At bucket 64 (no marker says the batch size; it is assumed constant) a decode step takes 8.40 ms"
        in text
    )
    assert "a constant batch size is assumed" in text


def test_contexts_are_told_apart_and_the_commonest_leads() -> None:
    short = (build.point(32, 0), build.point(64, 1))
    long = msgspec.structs.replace(build.point(64, 2), context_length=12_288, context_label="12k")
    findings = Findings(
        traces=(build.trace(32), build.trace(64), build.trace(64)), operating_points=(*short, long)
    )
    assert [view.label for view in points(findings)] == [
        "batch 32 at 4,096 tokens of context",
        "batch 64 at 4,096 tokens of context",
        "batch 64 at 12k context",
    ]
    assert labels_in_short(points(findings)) == (
        "batch 32 and 64 at 4,096 tokens of context and batch 64 at 12k context"
    )
    main = main_point(points(findings))
    assert main is not None
    assert main.label == "batch 64 at 4,096 tokens of context"


def test_the_same_batch_on_two_devices_is_told_apart() -> None:
    other = msgspec.structs.replace(build.trace(64), device=1)
    findings = Findings(
        traces=(build.trace(64), other), operating_points=(build.point(64, 0), build.point(64, 1))
    )
    assert [view.label for view in points(findings)] == ["batch 64, device 0", "batch 64, device 1"]
    (table,) = next(section for section in compose(findings).sections if section.name == "decode").tables
    assert [row[0].text for row in table.rows] == ["batch 64, device 0", "batch 64, device 1"]


def test_kernels_that_matter_are_named_with_limiter_and_next_step() -> None:
    view = main_point(points(only(64)))
    assert view is not None
    told = {filler.main.family: sentence(filler) for filler in ranked(view)}
    assert (
        "1 CTA per SM, limited by shared memory (208,896 B), 12 of 64 warps = 18.8 % occupancy; persistent, "
        "1 wave by design; 2 CTAs per SM would fit at <= 115,712 B of shared memory (now 208,896) and "
        "<= 80 registers (now 168)"
    ) in told["attention_split"]
    assert "its grid of 1 reaches 0.8 % of the SMs" in told["attention_schedule"]
    assert "3 waves, the last with 36 CTAs, 76 % wave efficiency" in told["quant"]
    assert "residency unknown, the trace does not record this launch's registers" in told["elementwise"]


def test_a_persistent_kernel_is_no_finding() -> None:
    marlin = build.kernels(64)[0]
    assert shortcomings(marlin) == ()
    tailed = msgspec.structs.replace(marlin, persistent=False, waves=2, wave_efficiency=0.6)
    assert shortcomings(tailed) == ("waves",)
    many = msgspec.structs.replace(tailed, waves=40)
    assert shortcomings(many) == ()


def test_shares_of_kernels_add_up() -> None:
    view = main_point(points(only(64)))
    assert view is not None
    assert sum(filler.share for filler in ranked(view)) == pytest.approx(1.0, abs=1e-12)


def test_a_step_without_a_replay_is_not_called_a_replay() -> None:
    row = msgspec.structs.replace(build.decode_row(64), replay_operations_per_step=0.0)
    findings = only(64, decode=(row,))
    first = verdict(findings)[0]
    assert "without a graph replay" in first
    assert "a step takes 5.92 ms" in per_point(findings)[0]


def test_an_empty_investigation_still_renders() -> None:
    empty: TraceFindings = msgspec.structs.replace(
        build.falling(), steps=(), window_ns=0, busy_ns=0,
        idle=Idle(intra_replay_ns=0, intra_step_ns=0, step_boundary_ns=0, inter_burst_ns=0, unrecorded_ns=0),
    )  # fmt: skip
    report = compose(Findings(traces=(empty,)))
    assert "no decode row" in plain(report.verdict[0])


def test_ranks_say_who_waits_and_who_is_missing() -> None:
    def rank(index: int, own_ms: float, wait_us: float | None) -> RankRow:
        return RankRow(
            trace=index, rank=index, batch_size=64, clean_steps=6, step_ms=8.4, gpu_span_ms=5.9,
            own_ms=own_ms, collective_us_per_step=300.0, wait_us_per_step=wait_us,
        )  # fmt: skip

    ranks = RankComparison(
        by="rank", world_size=4, ranks=(0, 1), missing=(2, 3), straggler=1, sentence="Rank 1 holds rank 0 up.",
        rows=(rank(0, 5.0, 210.0), rank(1, 5.2, None)),
    )  # fmt: skip
    traces = tuple(msgspec.structs.replace(build.trace(64), rank=index) for index in (0, 1))
    findings = Findings(traces=traces, operating_points=(build.point(64, 0), build.point(64, 1)), ranks=ranks)
    assert "Rank 1 holds rank 0 up." in compose(findings).summary
    assert "No trace was given of rank 2 and 3 of 4" in text_of(findings)
    assert [view.label for view in points(findings)] == ["batch 64, rank 0", "batch 64, rank 1"]
    (table,) = next(each for each in compose(findings).sections if each.name == "ranks").tables
    assert [row[-1].text for row in table.rows] == ["210", "-"]


def recorded(size: int, traced_ms: float | None, **more: object) -> RecordedPoint:
    """A recorded batch around whose window a token takes 8 ms."""
    given = {
        "run": "run", "batch_size": size, "context_tokens": 4096, "unprofiled_step_ms": 7.9,
        "unprofiled_tokens_per_s": 10_159.0, "inter_token_ms_p50": 7.8, "inter_token_ms_p90": 8.3,
        "inter_token_ms_p99": 9.0, "profiler_slowdown": 0.985, "traced_step_ms": traced_ms,
        "around_window_ms": 8.0, "traced_over_unprofiled": traced_ms and traced_ms / 8.0,
    }  # fmt: skip
    return RecordedPoint(**{**given, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("traced_ms", "said"),
    [
        (8.07, "the profiler made no difference that a dozen steps could show"),
        (10.4, "the traced step is 30 % longer, and the profiler costs at most that"),
        (7.2, "the traced step is 10 % shorter, which no profiler explains: record that batch again"),
    ],
)
def test_a_recording_says_what_the_profiler_costs(traced_ms: float, said: str) -> None:
    findings = msgspec.structs.replace(only(64), recorded=(recorded(64, traced_ms),))
    text = text_of(findings)
    assert "At batch 64, the largest recorded, 7.80 ms pass between two tokens" in text
    assert (
        f"takes {traced_ms:.{1 if traced_ms > 10 else 2}f} ms, the median time between tokens just before"
        in text
    )
    assert "window 8.00 ms (mean of the two, since the context grows)" in text
    assert said in text
    # The ratio of the streams' own medians is another measure, and named as such where both stand.
    assert "The last column is another measure of the same" in text
    table = next(each for each in compose(findings).sections if each.name == "recorded").tables[0]
    assert [column.title for column in table.columns[-2:]] == [
        "traced step / around",
        "p50 in window / around",
    ]
    assert [cell.text for cell in table.rows[0][-2:]] == [f"{traced_ms / 8:.3f}x", "0.985x"]


def test_the_batch_that_differs_most_is_named_beside_the_largest() -> None:
    points = (recorded(16, 8.4), recorded(64, 8.0))
    text = text_of(msgspec.structs.replace(only(64), recorded=points))
    assert "They differ most at batch 16: the traced step is 5.0 % longer" in text
    equal = (recorded(16, 8.04), recorded(64, 8.0))
    assert "They differ most" not in text_of(msgspec.structs.replace(only(64), recorded=equal))


def test_sums_over_kernels_use_means_which_add_up() -> None:
    rows = [
        msgspec.structs.replace(row, sum_us_per_step=0.0, mean_us_per_step=25.0, mean_launches_per_step=0.5)
        for row in build.kernels(64)[:4]
    ]
    view = main_point(points(only(64, kernels=tuple(rows))))
    assert view is not None
    assert [filler.share for filler in ranked(view)] == [0.25] * 4


def test_every_engine_step_without_gpu_work_is_counted() -> None:
    step: StepRow = build.mixed().steps[4]
    assert step.kind == "idle"
    assert "1 engine step did no GPU work" in text_of(build.sweep_findings())


def test_damage_says_first_which_conclusions_it_spoils() -> None:
    lost = Warning(
        code="lost_records", count=40, message="the profiler says that it lost 40 or more record(s).",
        unsafe=("idle", "steps"),
    )  # fmt: skip
    events = msgspec.structs.replace(build.trace(64).events, warnings=(lost,))
    findings = msgspec.structs.replace(
        only(64, events=events), notes=(Note(level="info", code="a", message="first."),)
    )
    caution, note = compose(findings).notes
    assert caution == (
        "Caution: where the GPU waits and step times cannot be relied on in `context4k/bs064.json.gz`: "
        "the profiler says that it lost 40 or more record(s)."
    )
    assert note == "Note: first."
    assert verdict(findings)[2].startswith("Where the GPU waits cannot be said safely at batch 64")
    assert "When the GPU waits" not in text_of(findings)
