"""Recorded findings for the diff's tests, and recordings with a planted change."""

import gzip
import json
from functools import cache
from pathlib import Path

from wavewise.analysis import analyze
from wavewise.decode.families import FamilyRules
from wavewise.findings import Findings

EXAMPLES = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4"


@cache
def recorded(name: str) -> Findings:
    """Findings of one of the shipped traces: "context4k/bs064"."""
    return analyze([EXAMPLES / f"{name}.json.gz"])


def plant(name: str, family: str | None, factor: float, to: Path) -> Path:
    """A copy of a shipped trace in which every kernel of a family (or every one) lasts `factor` times as long."""
    document = json.loads(gzip.decompress((EXAMPLES / f"{name}.json.gz").read_bytes()))
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    families = FamilyRules.load().classify([event["name"] for event in kernels])
    for event, found in zip(kernels, families, strict=True):
        if family is None or found == family:
            event["dur"] = round(event["dur"] * factor, 3)
    to.write_text(json.dumps(document), encoding="utf-8")
    return to
