"""Marker grammars of the engines."""

import polars as pl
import pytest

from wavewise.decode.markers import parse, step_markers
from wavewise.trace.schema import MARKER_SCHEMA


@pytest.mark.parametrize(
    ("name", "kind", "batch", "context_requests", "context_tokens", "tokens", "kv"),
    [
        ("execute_context_0(0)_generation_64(64)", "decode", 64, 0, 0, 64, None),
        ("execute_context_0(0)_generation_8(32)", "decode", 8, 0, 0, 32, None),
        ("execute_context_6(8192)_generation_0(0)", "prefill", 0, 6, 8192, 0, None),
        ("execute_context_6(8187)_generation_5(5)", "mixed", 5, 6, 8187, 5, None),
        ("execute_context_0(0)_generation_0(0)", "idle", 0, 0, 0, 0, None),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 0, 1, 888, 0, None),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
            "decode", 32, 0, 0, 32, 32785,
        ),
        (
            "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)",
            "prefill", 0, 15, 15360, 0, 0,
        ),
        ("step[DECODE bs=32]", "decode", 32, 0, 0, 32, None),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 0, 15, 15360, 0, None),
        ("step[TARGET_VERIFY bs=8 toks=32]", "decode", 8, 0, 0, 32, None),
        ("step[TARGET_VERIFY bs=8]", "decode", 8, 0, 0, None, None),
        ("step[IDLE bs=0]", "idle", 0, 0, 0, None, None),
        ("step[MIXED bs=20 toks=4096]", "mixed", None, None, 4096, None, None),
        ("capture_32_FULL", "capture", None, None, None, None, None),
        ("ProfilerStep#40", "unknown", None, None, None, None, None),
    ],
)  # fmt: skip
def test_known_markers(
    name: str, kind: str, batch: int | None, context_requests: int | None, context_tokens: int | None,
    tokens: int | None, kv: int | None,
) -> None:  # fmt: skip
    facts = parse(name)
    assert facts is not None
    assert (facts.kind, facts.batch_size, facts.context_requests, facts.context_tokens) == (
        kind, batch, context_requests, context_tokens,
    )  # fmt: skip
    assert facts.generation_tokens == tokens
    assert facts.kv_tokens == kv


@pytest.mark.parametrize(
    "name", ["## forward ##", "nccl:all_reduce", "Optimizer.step#Adam.step", "captured", ""]
)
def test_other_annotations_are_no_steps(name: str) -> None:
    assert parse(name) is None


def frame(rows: list[tuple[str, int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(
        [{"name": n, "start_ns": s, "duration_ns": d, "pid": 1, "tid": t} for n, s, d, t in rows],
        schema=MARKER_SCHEMA,
    ).sort(["start_ns", "duration_ns"], descending=[False, True])


def test_nested_markers_add_no_step_and_lend_their_context() -> None:
    long = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"
    markers = step_markers(
        frame(
            [
                ("step[DECODE bs=32]", 0, 100, 1),
                (long, 10, 50, 1),
                ("step[DECODE bs=32]", 200, 100, 1),
                (long, 210, 50, 1),
            ]
        )
    )
    assert len(markers) == 2
    assert markers.engine == "sglang"
    assert [facts.kv_tokens for facts in markers.facts] == [32785, 32785]


def test_a_long_form_marker_around_sglangs_own_is_sglang_too() -> None:
    long = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"
    markers = step_markers(frame([(long, 0, 100, 1), ("step[DECODE bs=32]", 10, 50, 1)]))
    assert (len(markers), markers.engine) == (1, "sglang")


def test_engine_markers_go_before_profiler_steps() -> None:
    markers = step_markers(frame([("ProfilerStep#1", 0, 1000, 1), ("step[DECODE bs=4]", 10, 50, 1)]))
    assert markers.names == ("step[DECODE bs=4]",)
    assert markers.source == "markers"


def test_each_worker_thread_has_its_own_steps() -> None:
    markers = frame(
        [("step[DECODE bs=4]", 0, 50, 1), ("step[DECODE bs=4]", 5, 60, 2), ("step[DECODE bs=4]", 100, 50, 1)]
    )
    assert len(step_markers(markers, frozenset({(1, 2)}))) == 1
    assert len(step_markers(markers, frozenset({(1, 1)}))) == 2
    assert len(step_markers(markers, frozenset({(9, 9)}))) == 3
