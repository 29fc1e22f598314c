"""Comparing the ranks of a run: built so that one rank is slow and the others wait in the all-reduce."""

from dataclasses import replace

import pytest

from support.builder import Kernel, TraceBuilder, vllm
from wavewise.decode import FamilyRules, describe
from wavewise.decode.ranks import compare_ranks
from wavewise.findings import TraceFindings
from wavewise.hardware import catalogue

GEMM, ALL_REDUCE = (
    "nvjet_sm90_tst_64x80",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


def rank_trace(
    rank: int, gemm_ns: int, all_reduce_ns: int, world_size: int | None = 4, batch: int = 8
) -> TraceFindings:
    """Five steps of one GEMM and one all-reduce."""
    builder = TraceBuilder()
    for _ in range(5):
        builder.marker(vllm(batch))
        builder.replay([Kernel(GEMM, gemm_ns), Kernel(ALL_REDUCE, all_reduce_ns, grid=(4, 1, 1))])
        builder.pause(40_000)
    trace = replace(
        builder.build(),
        rank=rank,
        path=f"rank{rank}.json",
        metadata={} if world_size is None else {"world_size": world_size},
    )
    return describe(trace, 0, rules=FamilyRules.load(), gpus=catalogue()).findings


def test_the_rank_that_waits_least_is_the_straggler() -> None:
    # All enter together but rank 2, whose GEMM takes 60 us longer; the others spend those in the all-reduce.
    traces = [rank_trace(r, 160_000 if r == 2 else 100_000, 10_000 if r == 2 else 70_000) for r in range(4)]
    found = compare_ranks(traces)
    assert found is not None
    assert (found.by, found.ranks, found.missing, found.world_size) == ("rank", (0, 1, 2, 3), (), 4)
    assert found.straggler == 2
    assert [row.wait_us_per_step for row in found.rows] == [60.0, 60.0, 0.0, 60.0]
    assert [row.own_ms for row in found.rows] == pytest.approx([0.1, 0.1, 0.16, 0.1])
    assert "wait for rank 2: 60.0 us per step" in found.sentence


def test_even_ranks_have_no_straggler() -> None:
    found = compare_ranks([rank_trace(r, 100_000, 12_000 + r * 200) for r in range(4)])
    assert found is not None
    assert found.straggler is None
    assert "none keeps the others waiting" in found.sentence


def test_missing_ranks_are_named() -> None:
    found = compare_ranks([rank_trace(r, 100_000, 12_000) for r in (0, 3)])
    assert found is not None
    assert found.missing == (1, 2)
    assert "no trace of rank 1, 2" in found.sentence


def test_ranks_without_a_shared_batch_size_are_not_compared() -> None:
    found = compare_ranks([rank_trace(0, 100_000, 9_000), rank_trace(1, 100_000, 9_000, batch=16)])
    assert found is not None
    assert found.straggler is None
    assert "not compared" in found.sentence


def test_repeats_and_single_traces_are_no_ranks() -> None:
    assert compare_ranks([rank_trace(0, 1_000, 1_000)]) is None
    assert compare_ranks([rank_trace(0, 1_000, 1_000), rank_trace(0, 1_000, 1_000)]) is None
