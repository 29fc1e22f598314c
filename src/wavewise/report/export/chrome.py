"""Tracks -> the Trace Event Format that chrome://tracing and ui.perfetto.dev read.

Format: "Trace Event Format", Google, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
(complete events "X" and metadata events "M"; times in microseconds).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wavewise.report.export.tracks import Process
from wavewise.units import NS_PER_US


def chrome_trace(processes: Sequence[Process]) -> bytes:
    """UTF-8 JSON in the object form of the format."""
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"producer": "wavewise"},
        "traceEvents": list(_events(processes)),
    }
    return msgspec.json.encode(document) + b"\n"


def _events(processes: Sequence[Process]) -> Iterator[dict[str, Any]]:
    for pid, process in enumerate(processes, start=1):
        yield _metadata("process_name", pid, 0, {"name": process.name})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        for tid, track in enumerate(process.tracks, start=1):
            yield _metadata("thread_name", pid, tid, {"name": track.name})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
            for piece in track.slices:
                yield {
                    "ph": "X",
                    "name": piece.name,
                    "cat": piece.category,
                    "pid": pid,
                    "tid": tid,
                    "ts": piece.start_ns / NS_PER_US,
                    "dur": piece.duration_ns / NS_PER_US,
                    "args": piece.arguments,
                }


def _metadata(name: str, pid: int, tid: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": arguments}
