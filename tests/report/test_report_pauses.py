"""What the report says of idle between bursts: that nothing ran, and why only where an engine step tells."""

import re

import msgspec

from support.builder import TraceBuilder, layers, vllm
from wavewise.decode import FamilyRules, describe
from wavewise.findings import Findings, TraceFindings
from wavewise.hardware import catalogue
from wavewise.report.idle_text import answer, sections
from wavewise.report.pauses import clause, empty_ns
from wavewise.report.section import plain
from wavewise.report.verdict import verdict

PAUSE_NS = 30_000_000


def run(*, empty_step: bool, more: bool = False) -> TraceFindings:
    """Two bursts of five steps and a pause between them, in which the engine may run a step without requests.

    Args:
        empty_step: whether it does.
        more: whether a second pause, without such a step, follows.
    """
    builder = TraceBuilder()
    for burst in range(2 + more):
        for _ in range(5):
            builder.marker(vllm(8))
            builder.replay(layers(8))
            builder.pause(50_000)
        if burst == 0 and empty_step:
            builder.pause(250_000)
            builder.marker("execute_context_0(0)_generation_0(0)", 200_000)
        builder.pause(PAUSE_NS)
    return describe(builder.build(), 0, rules=FamilyRules.load(), gpus=catalogue()).findings


def test_a_pause_alone_says_nothing_of_requests() -> None:
    trace = run(empty_step=False)
    assert 0.9 * PAUSE_NS < trace.idle.inter_burst_ns <= 1.1 * PAUSE_NS
    assert empty_ns(trace) == 0
    assert clause([trace]) == ""
    assert answer(trace) == "next burst"


def test_an_engine_step_without_requests_says_that_there_were_none() -> None:
    trace = run(empty_step=True)
    assert empty_ns(trace) == trace.idle.inter_burst_ns > 0.9 * PAUSE_NS
    assert answer(trace) == "requests"


def test_it_says_so_of_its_own_gap_only() -> None:
    trace = run(empty_step=True, more=True)
    share = empty_ns(trace) / trace.idle.inter_burst_ns
    assert 0.49 < share < 0.51
    assert re.fullmatch(r" \((49|50|51) % of it around engine steps that held no request\)", clause([trace]))


def test_devices_of_one_file_are_told_apart_and_their_windows_counted() -> None:
    """Two devices, each with a window of its own: neither a sentence twice nor a time that nobody recorded."""
    one = run(empty_step=False)
    other = msgspec.structs.replace(one, device=1)
    findings = Findings(traces=(one, other))
    said = [plain(line) for section in sections(findings) for line in section.sentences]
    assert said[0].startswith("built.json, device 0: of ")
    assert said[1].startswith("built.json, device 1: of ")
    alone = [plain(line) for section in sections(Findings(traces=(one,))) for line in section.sentences]
    assert alone[0].startswith("built.json: of ")


def test_windows_that_are_added_are_called_together() -> None:
    bare = msgspec.structs.replace(
        run(empty_step=False), decode=(), decode_reason="No decode step was found."
    )
    both = Findings(traces=(bare, msgspec.structs.replace(bare, device=1)))
    assert "(2 windows together) the GPU is busy" in verdict(both)[-1]
    assert "together" not in verdict(Findings(traces=(bare,)))[-1]
