"""The recorded sweep that ships with the project, and a reader of it that shares no code with the product."""

import gzip
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

SWEEP = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4"
CONTEXT4K = SWEEP / "context4k"
CLEAN_FILES = [f"context4k/bs{size:03d}.json.gz" for size in (1, 8, 16, 32, 64, 80)] + [
    "context12k/bs064.json.gz"
]
ALL_FILES = [*CLEAN_FILES, "context4k/falling-bucket096.json.gz", "mixed.json.gz"]


def exact_ns(value: Decimal | int) -> int:
    """Microseconds as written to nanoseconds, digit by digit."""
    scaled = Decimal(value) * 1000
    assert scaled == scaled.to_integral_value()
    return int(scaled)


@cache
def events(name: str) -> list[dict[str, Any]]:
    """All complete events of a recorded trace, numbers as Decimal."""
    with gzip.open(SWEEP / name) as file:
        document = json.loads(file.read(), parse_float=Decimal)
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def gpu_events(name: str) -> list[dict[str, Any]]:
    """GPU operations with start_ns and end_ns."""
    return [
        event | {"start_ns": exact_ns(event["ts"]), "end_ns": exact_ns(event["ts"]) + exact_ns(event["dur"])}
        for event in events(name)
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    ]


def replays(name: str) -> list[list[dict[str, Any]]]:
    """The operations of each graph launch, in launch order."""
    launched = sorted(
        (event for event in events(name) if event["name"] == "cudaGraphLaunch"), key=lambda event: event["ts"]
    )
    by_id: dict[int, list[dict[str, Any]]] = {}
    for event in gpu_events(name):
        by_id.setdefault(int(event["args"]["correlation"]), []).append(event)
    return [by_id[int(event["args"]["correlation"])] for event in launched]


def union_ns(intervals: list[tuple[int, int]]) -> int:
    """Union length by sweeping sorted intervals one at a time."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
