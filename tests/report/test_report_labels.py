"""What a report says of whom it speaks: labels of operating points, and whose figures the GPU's are."""

import gzip
import json
from pathlib import Path

import wavewise
from support.recorded import CONTEXT4K, SWEEP
from wavewise.analysis import Settings
from wavewise.report import render_markdown
from wavewise.report.points import points


def test_traces_without_markers_are_told_apart_by_their_file_alone(tmp_path: Path) -> None:
    paths = []
    for folder in (CONTEXT4K, SWEEP / "context12k"):
        document = json.loads(gzip.decompress((folder / "bs064.json.gz").read_bytes()))
        document["traceEvents"] = [
            event
            for event in document["traceEvents"]
            if event.get("cat") not in ("user_annotation", "gpu_user_annotation")
        ]
        paths.append(tmp_path / f"{folder.name}.json")
        paths[-1].write_text(json.dumps(document))
    labels = [view.label for view in points(wavewise.analyze(paths))]
    assert labels == [f"bucket 64, {tmp_path.name}/{path.name}" for path in paths]


def test_an_unknown_gpu_is_described_by_its_trace_and_the_report_says_so(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress((CONTEXT4K / "bs001.json.gz").read_bytes()))
    document["deviceProperties"][0] |= {"name": "NVIDIA H2O", "numSms": 78}
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps(document))
    own = "NVIDIA H2O: not in the GPU catalogue: the trace's own figures are used."
    assert own in render_markdown(wavewise.analyze(path))
    overridden = render_markdown(wavewise.analyze(path, settings=Settings(gpu="b200")))
    assert own not in overridden
    assert "are those of NVIDIA B200, which was named in place of the trace's own GPU" in overridden
    known = render_markdown(wavewise.analyze(CONTEXT4K / "bs001.json.gz"))
    assert "GPU catalogue" not in known
    assert "in place of the trace" not in known
