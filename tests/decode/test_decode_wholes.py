"""Graphs that Nsight recorded as wholes: their steps are told, and nothing of what ran inside them."""

from pathlib import Path

import pytest

from support.nsys_export import GRAPHS, NVTX, RUNTIME, NsysExport, pid
from wavewise.decode import FamilyRules, describe
from wavewise.findings import TraceFindings
from wavewise.hardware import catalogue

STEP, SPAN = 200_000, 150_000
LAUNCH = 3  # the string of cudaGraphLaunch


def export(path: Path, *, markers: bool = True, launches: bool = True, steps: int = 6) -> NsysExport:
    """Decode steps of 8 requests, of which each replays one graph, recorded as a whole."""
    built = NsysExport(path / "wholes.sqlite")
    at = [1_000_000 + STEP * i for i in range(steps)]
    graphs = [(t, t + SPAN, 0, 4, 5, 7, 100 + i, pid(80)) for i, t in enumerate(at)]
    built.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, graphs)
    if launches:
        calls = [(t - 90_000, t - 80_000, 0, pid(80) + 81, 100 + i, LAUNCH, 0) for i, t in enumerate(at)]
        built.table("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, calls)
    if markers:
        name = "execute_context_0(0)_generation_8(8)"
        built.table("NVTX_EVENTS", NVTX, [(t - 95_000, t - 10_000, 59, name, pid(80) + 81, None) for t in at])
    return built


def described(built: NsysExport) -> TraceFindings:
    (trace,) = built.read()
    return describe(trace, 0, rules=FamilyRules.load(), gpus=catalogue()).findings


def test_steps_and_the_gaps_between_them(tmp_path: Path) -> None:
    one = described(export(tmp_path))
    assert [row.kind for row in one.steps] == ["decode"] * 6
    assert [row.batch_size for row in one.steps] == [8] * 6
    assert [row.step_ns for row in one.steps] == [STEP] * 5 + [None]
    assert [row.span_ns for row in one.steps] == [SPAN] * 6
    assert [row.busy_ns for row in one.steps] == [None] * 6
    assert (one.window_ns, one.busy_ns) == (5 * STEP + SPAN, 0)
    assert (one.idle.unrecorded_ns, one.idle.step_boundary_ns) == (6 * SPAN, 5 * (STEP - SPAN))
    assert not one.idle.safe


def test_nothing_is_said_of_what_ran_inside(tmp_path: Path) -> None:
    one = described(export(tmp_path))
    assert not any(row.clean for row in one.steps)
    assert (one.decode, one.kernels, one.unexplained_names) == ((), (), ())
    assert (one.events.kernels, one.events.memcpys) == (0, 0)
    assert [warning.code for warning in one.events.warnings] == ["graphs_as_wholes"]
    assert one.decode_reason is not None
    assert "batch 8: 200 us from one replay's start to the next, 150 us" in one.decode_reason
    assert "--cuda-graph-trace=node" in one.decode_reason


@pytest.mark.parametrize("launches", [True, False])
def test_without_markers_the_replays_are_the_steps(tmp_path: Path, launches: bool) -> None:
    one = described(export(tmp_path, markers=False, launches=launches))
    assert one.segmentation == "structure"
    assert [row.step_ns for row in one.steps] == [STEP] * 5 + [None]
    assert one.decode_reason is not None
    assert "unknown batch size: 200 us" in one.decode_reason


def test_work_beside_the_graphs_keeps_its_own_time(tmp_path: Path) -> None:
    built = export(tmp_path)
    starts = [1_000_000 + STEP * i + SPAN + 10_000 for i in range(6)]
    built.kernels([{"start": t, "end": t + 5_000, "correlationId": 200 + i} for i, t in enumerate(starts)])
    calls = [(t - 200_000, t - 195_000, 0, pid(80) + 81, 200 + i, 4, 0) for i, t in enumerate(starts)]
    built.table("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, calls)
    one = described(built)
    assert one.busy_ns == 6 * 5_000
    assert one.idle.unrecorded_ns == 6 * SPAN
    assert one.busy_ns + one.idle.total_ns == one.window_ns
    assert [row.step_ns for row in one.steps] == [STEP] * 5 + [None]
