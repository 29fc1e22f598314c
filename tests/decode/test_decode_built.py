"""Segmentation, cleanliness and idle on built traces whose right answers are known by construction."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.builder import Kernel, TraceBuilder, decode_run, layers, vllm
from wavewise.decode import FamilyRules, describe, segment
from wavewise.decode.cleanliness import AS_A_WHOLE
from wavewise.decode.steps import Segmentation
from wavewise.findings import TraceFindings
from wavewise.hardware import catalogue
from wavewise.trace import Trace


def findings_of(trace: Trace) -> TraceFindings:
    return describe(trace, 0, rules=FamilyRules.load(), gpus=catalogue()).findings


def clean(segmentation: Segmentation) -> list[bool]:
    return [row.clean for row in segmentation.rows]


def test_plain_decode_is_clean_but_for_its_edges() -> None:
    found = segment(decode_run([8] * 5).build(), 0)
    assert clean(found) == [False, True, True, True, False]
    assert {row.graph_replays for row in found.rows} == {1}
    assert {row.operations for row in found.rows} == {9}


def test_a_change_of_batch_makes_both_sides_unclean() -> None:
    found = segment(decode_run([8, 8, 8, 6, 6, 6, 6]).build(), 0)
    assert clean(found) == [False, True, False, False, True, True, False]
    assert found.rows[2].unclean_reason == "the step after it has 6 requests, this one 8"


def test_the_bucket_is_learned_from_row_wise_grids() -> None:
    found = segment(decode_run([27] * 4 + [32] * 4, bucket={27: 32}).build(), 0)
    assert [row.bucket for row in found.rows] == [32] * 8


def test_prefill_between_decode_is_isolated_with_and_without_markers() -> None:
    builder = decode_run([8] * 4)
    builder.marker(vllm(0, 0, (4, 2048)))
    for _ in range(60):
        builder.eager(Kernel("nvjet_prefill", 40_000))
    builder.pause(20_000)
    tail = decode_run([8] * 4)
    shift = builder.now + 60_000
    for mine, theirs in (
        (builder.operations, tail.operations),
        (builder.launches, tail.launches),
        (builder.markers, tail.markers),
    ):
        mine += [
            {
                **row,
                "start_ns": row["start_ns"] + shift,
                **({"correlation": row["correlation"] + 1000} if "correlation" in row else {}),
            }
            for row in theirs
        ]
    trace = builder.build()
    marked = segment(trace, 0)
    assert [row.kind for row in marked.rows] == ["decode"] * 4 + ["prefill"] + ["decode"] * 4
    assert clean(marked) == [False, True, True, False, False, False, True, True, False]
    bare = segment(replace(trace, markers=trace.markers.clear()), 0)
    assert [row.kind for row in bare.rows] == ["decode"] * 4 + ["unknown"] + ["decode"] * 4
    assert clean(bare) == clean(marked)
    assert bare.idle.idle.intra_step_ns > 0


@pytest.mark.parametrize(
    ("lost", "previous_clean"),
    [({3}, True), ({7}, True), ({2, 3, 4}, True), ({0}, False), (set(range(8)), False)],
)
def test_a_replay_that_lost_records_is_unclean_and_its_hole_is_no_idle(
    lost: set[int], previous_clean: bool
) -> None:
    builder = TraceBuilder()
    for i in range(6):
        builder.marker(vllm(8))
        builder.replay(layers(8), lost=lost if i == 3 else set())
        builder.eager(Kernel("argmax_kernel", 3_000))
        builder.pause(50_000)
    whole = decode_run([8] * 6)
    found, complete = segment(builder.build(), 0), segment(whole.build(), 0)
    assert clean(found) == [False, True, previous_clean, False, True, False]
    assert "not recorded" in (found.rows[3].unclean_reason or "")
    assert found.lost_launches["graph"] == (len(lost) == 8)
    split, truth = found.idle.idle, complete.idle.idle
    assert split.unrecorded_ns > 0
    assert not split.safe
    # What is called idle was idle in the complete recording too: never more.
    assert split.intra_replay_ns <= truth.intra_replay_ns
    assert split.step_boundary_ns <= truth.step_boundary_ns
    removed = sum(layers(8)[i].duration_ns for i in lost)
    assert found.idle.busy_ns == complete.idle.busy_ns - removed


def test_a_replay_cut_off_by_the_end_spoils_nothing() -> None:
    builder = decode_run([8] * 4)
    builder.marker(vllm(8))
    builder.replay(layers(8), lost={5, 6, 7})
    found = segment(builder.build(), 0)
    assert clean(found) == [False, True, True, True, False]
    assert found.idle.idle.unrecorded_ns == 0
    assert found.idle.idle.safe


def test_a_lost_eager_kernel_makes_its_step_unclean() -> None:
    builder = TraceBuilder()
    for i in range(5):
        builder.marker(vllm(8))
        builder.replay(layers(8))
        builder.eager(Kernel("argmax_kernel", 3_000), lost=i == 2)
        builder.pause(50_000)
    found = segment(builder.build(), 0)
    assert clean(found) == [False, True, False, True, False]
    assert found.rows[2].unclean_reason == "1 launched operation(s) were not recorded"


def test_kernels_launched_while_a_stream_captures_are_not_lost() -> None:
    builder = decode_run([8] * 2)
    builder.launch("cudaStreamBeginCapture")
    for _ in range(3):
        builder.launch("cudaLaunchKernel")
    builder.launch("cudaStreamEndCapture")
    for _ in range(3):
        builder.marker(vllm(8))
        builder.replay(layers(8))
        builder.pause(50_000)
    assert segment(builder.build(), 0).lost_launches == {"graph": 0, "kernel": 0}


def test_an_implausible_record_makes_its_step_unclean() -> None:
    builder = decode_run([8] * 5)
    middle = builder.markers[2]["start_ns"]
    launch = next(row for row in builder.launches if row["start_ns"] > middle)
    builder.operation(
        Kernel("broken", -5), launch["start_ns"] + 10, launch["correlation"], rejected="negative_duration"
    )  # type: ignore[operator]
    found = segment(builder.build(), 0)
    assert clean(found) == [False, True, False, True, False]


def test_target_and_draft_in_one_step_count_once_with_and_without_markers() -> None:
    draft = [Kernel("draft_norm", 2_000, grid=(8, 1, 1)), Kernel("draft_gemm", 9_000)]
    builder = TraceBuilder()
    for _ in range(6):
        builder.marker(vllm(8))
        builder.replay(layers(8))
        builder.replay(draft)
        builder.pause(60_000)
    trace = builder.build()
    marked = segment(trace, 0)
    bare = segment(replace(trace, markers=trace.markers.clear()), 0)
    for found in (marked, bare):
        assert [row.graph_replays for row in found.rows] == [2] * 6
        assert clean(found) == [False, True, True, True, True, False]
    assert [row.step_ns for row in bare.rows] == [row.step_ns for row in marked.rows]


def test_a_draft_that_is_part_of_its_target_is_a_graph_of_its_own() -> None:
    builder = TraceBuilder()
    for _ in range(6):
        builder.marker(vllm(8))
        builder.replay(layers(8, count=4))
        builder.replay(layers(8, count=1))
        builder.pause(60_000)
    found = segment(builder.build(), 0)
    assert bool(found.replays.complete.all())
    assert clean(found) == [False, True, True, True, True, False]


def halves(*, room: bool, markers: bool = True, graph_ids: bool = False) -> Segmentation:
    """Eight steps of one size; every second replay has only the first half of the operations.

    Args:
        room: whether the time of the other half passes all the same, as when its records were lost.
        markers: whether the engine says that the steps are alike.
        graph_ids: whether the profiler says that the graph is one.
    """
    whole = layers(8, count=4)
    builder = TraceBuilder()
    for i in range(8):
        builder.marker(vllm(8))
        if i % 2 and room:
            builder.replay(whole, lost=set(range(len(whole) // 2, len(whole))))
        else:
            builder.replay(whole[: len(whole) // 2] if i % 2 else whole)
        builder.pause(5_000)
    if graph_ids:
        builder.operations = [{**row, "graph_id": 4} for row in builder.operations]
    return segment(builder.build(markers=markers), 0)


def test_the_same_loss_at_every_second_step_is_no_draft_where_the_engine_says_the_steps_are_alike() -> None:
    found = halves(room=True)
    assert found.replays.complete.tolist() == [True, False] * 4
    # The steps with the whole replay stay clean: their neighbours are of their size, and begin when they began.
    assert clean(found) == [False, False, True, False, True, False, True, False]
    assert found.rows[1].unclean_reason == "operations of its replay were not recorded"
    assert found.idle.idle.unrecorded_ns > 0


def test_a_smaller_graph_of_a_step_like_the_others_is_its_own_where_nothing_can_be_missing() -> None:
    found = halves(room=False)
    assert bool(found.replays.complete.all())


def test_one_graph_id_is_one_graph_whatever_recurs() -> None:
    bare = halves(room=True, markers=False)
    assert bool(bare.replays.complete.all())  # target and draft, for all that the trace says
    told = halves(room=True, markers=False, graph_ids=True)
    assert told.replays.complete.tolist() == [True, False] * 4


def test_piecewise_graphs_of_equal_layers_are_one_step() -> None:
    first, layer, last = [Kernel("embedding", 3_000)], layers(8, count=1), [Kernel("lm_head", 30_000)]
    builder = TraceBuilder()
    for _ in range(4):
        for piece in (first, *([layer] * 10), last):
            builder.replay(piece)
        builder.pause(400_000)
    found = segment(builder.build(markers=False), 0)
    assert [row.graph_replays for row in found.rows] == [12] * 4


def test_gpu_records_alone_give_steps_by_shared_correlation() -> None:
    found = segment(decode_run([16] * 5).build(markers=False, launches=False), 0)
    assert [row.kind for row in found.rows] == ["decode"] * 5
    assert clean(found) == [False, True, True, True, False]
    assert {row.batch_size for row in found.rows} == {None}


def test_training_replays_are_not_decode() -> None:
    builder = TraceBuilder()
    for _ in range(5):
        builder.replay([*layers(8), Kernel("layer_norm_grad_input_kernel", 4_000)])
        builder.pause(50_000)
    one = findings_of(builder.build(markers=False))
    assert {row.kind for row in one.steps} == {"unknown"}
    assert one.decode == ()


def test_waiting_for_requests_is_inter_burst_and_the_step_before_it_unclean() -> None:
    builder = TraceBuilder()
    for i in range(8):
        builder.marker(vllm(8))
        builder.replay(layers(8))
        builder.pause(30_000_000 if i == 3 else 50_000)
    found = segment(builder.build(), 0)
    assert clean(found) == [False, True, True, False, True, True, True, False]
    assert found.rows[3].unclean_reason == "inter-burst idle follows it"
    assert 29_000_000 < found.idle.idle.inter_burst_ns < 30_100_000


def test_a_graph_launch_without_any_operation_is_a_lost_replay() -> None:
    builder = TraceBuilder()
    for i in range(5):
        builder.marker(vllm(8))
        if i == 2:
            builder.launch("cudaGraphLaunch")
            builder.pause(200_000)
        else:
            builder.replay(layers(8))
            builder.pause(50_000)
    found = segment(builder.build(), 0)
    assert [row.kind for row in found.rows] == ["decode"] * 5
    assert clean(found) == [False, False, False, True, False]
    assert any(w.code == "lost_records" for w in findings_of(builder.build()).events.warnings)


def test_graphs_recorded_as_wholes_give_no_figures() -> None:
    builder = TraceBuilder()
    for _ in range(5):
        builder.marker(vllm(8))
        builder.launch("cudaGraphLaunch")
        builder.pause(200_000)
        builder.eager(Kernel("argmax_kernel", 3_000))
    one = findings_of(builder.build())
    assert one.decode == ()
    assert [w.code for w in one.events.warnings] == ["graphs_as_wholes"]
    assert not one.idle.safe


KERNELS = st.lists(
    st.builds(
        Kernel,
        st.sampled_from(["norm_a", "gemm_b", "flash_fwd_splitkv_kernel", "Memcpy HtoD", "odd"]),
        st.integers(0, 40_000),
        gap_ns=st.integers(-3_000, 5_000),
        stream=st.sampled_from([7, 7, 7, 12]),
        grid=st.sampled_from([(8, 1, 1), (132, 1, 1), (1, 1, 1), None]),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["decode", "prefill", "mixed", "idle", "bare"]),
        st.sampled_from([4, 8]),
        KERNELS,
        st.integers(0, 3),
        st.sampled_from([5_000, 60_000, 2_500_000]),
        st.sets(st.integers(0, 5), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.booleans(), st.booleans())
@example([("decode", 4, [Kernel("norm_a", 1_000)], 0, 5_000, {0})], True, True)  # no graph has an operation
def test_conservation_on_any_trace(steps: list, markers: bool, launches: bool) -> None:
    builder = TraceBuilder()
    builder.eager(Kernel("first", 1_000))
    for kind, batch, kernels, eager, pause, lost in steps:
        if kind != "bare":
            name = {
                "decode": vllm(batch),
                "prefill": vllm(0, 0, (1, 99)),
                "mixed": vllm(batch, None, (1, 99)),
                "idle": vllm(0, 0),
            }[kind]
            builder.marker(name)
        if kind == "decode":
            builder.replay(kernels, lost=lost)
        elif kind != "idle":
            for kernel in kernels:
                builder.eager(kernel, lost=bool(lost))
        for _ in range(eager if kind != "idle" else 0):
            builder.eager(Kernel("sample", 1_500))
        builder.pause(pause)
    one = findings_of(builder.build(markers=markers, launches=launches))
    assert one.busy_ns + one.idle.total_ns == one.window_ns
    assert one.busy_ns <= one.sum_ns
    for row in one.steps:
        assert row.clean == (row.unclean_reason is None)
        assert row.clean is False or row.kind == "decode"
        if row.busy_ns is None:
            assert row.unclean_reason == AS_A_WHOLE
        else:
            assert row.busy_ns <= one.window_ns
    for row in one.decode:
        busy = sum(f.busy_us_per_step for f in row.families) - row.overlap_us_per_step
        # Floating point only: both sides are sums of medians in microseconds.
        assert busy == pytest.approx(row.busy_ms.median * 1000, rel=1e-9, abs=1e-9)
        if row.busy_ms.median > 0:
            assert sum(f.share_of_busy for f in row.families) == pytest.approx(1, rel=1e-9)
    for kernel in one.kernels:
        if kernel.waves is not None:
            assert kernel.grid is not None
            assert kernel.ctas_per_sm is not None
            ctas = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
            assert kernel.waves * kernel.ctas_per_sm * 132 >= ctas


def test_what_has_no_decode_row_says_so_in_words() -> None:
    assert findings_of(decode_run([8]).build()).decode_reason == (
        "The one decode step is not clean: first step of the recording."
    )
    assert findings_of(decode_run([8, 8]).build()).decode_reason == (
        "None of the 2 decode steps is clean: first step of the recording (1); last step of the recording (1)."
    )
    builder = TraceBuilder()
    builder.marker(vllm(0, 0, (4, 2048)))
    builder.eager(Kernel("nvjet_prefill", 40_000))
    assert findings_of(builder.build()).decode_reason == (
        "No decode step was found: the recording holds 1 prefill step."
    )
