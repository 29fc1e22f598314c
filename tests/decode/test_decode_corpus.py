"""The corpus' traces with their markers stripped: the same decode steps, clean where structure can tell."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from wavewise.decode import segment
from wavewise.trace import read

CORPUS = os.environ.get("WAVEWISE_CORPUS")
DEV = Path(CORPUS or "", "corpus", "dev")
CASES = [
    path.parent
    for path in sorted(DEV.glob("*/expected.json") if CORPUS else [])
    if (expected := json.loads(path.read_text()))["exit"] == 0
    and isinstance(expected["input"], str)
    and (path.parent / expected["input"]).is_file()
]

UNSEEN_BY_STRUCTURE = (
    "requests, this one",  # the batch changes inside one bucket
    "has no GPU work",  # an engine step that leaves nothing on the GPU
)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="WAVEWISE_CORPUS is not set")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_markers_the_same_decode_steps(case: Path) -> None:
    trace = read(case / json.loads((case / "expected.json").read_text())["input"])[0]
    device = trace.device_ids()[0]
    marked = [r for r in segment(trace, device).rows if r.kind == "decode" and r.graph_replays]
    bare = [
        r for r in segment(replace(trace, markers=trace.markers.clear()), device).rows if r.kind == "decode"
    ]
    assert [(r.graph_replays, r.span_ns) for r in bare] == [(r.graph_replays, r.span_ns) for r in marked]
    for was, now in zip(marked, bare, strict=True):
        if was.clean:
            assert now.step_ns == was.step_ns
        if now.clean and not was.clean:
            assert any(reason in (was.unclean_reason or "") for reason in UNSEEN_BY_STRUCTURE)
        if was.clean and not now.clean:
            # Without markers nothing shows that the host was inside a step during a long gap; and a name that
            # had to be repaired in one replay makes it another graph.
            repaired = any(warning.code == "unescaped_quote" for warning in trace.warnings)
            assert now.unclean_reason == "inter-burst idle follows it" or (
                repaired and "replays another graph" in (now.unclean_reason or "")
            )
