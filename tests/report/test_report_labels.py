"""Labels of operating points hold what tells them apart and nothing else."""

import gzip
import json
from pathlib import Path

import wavewise
from support.recorded import CONTEXT4K, SWEEP
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
