"""PyTorch-profiler (Kineto) JSON to a Trace."""

from typing import Any

import msgspec
import numpy as np
import polars as pl

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace.model import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    DeviceProperties,
    Trace,
    empty,
)

_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def parse(data: bytes, *, path: str) -> Trace:
    """A sound document of the common layout."""
    try:
        document: Any = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(document, dict) or "traceEvents" not in document:
        raise InputError(f"{path}: not a trace (no traceEvents)")
    operations: list[tuple[Any, ...]] = []
    launches: list[tuple[Any, ...]] = []
    markers: list[tuple[Any, ...]] = []
    events = document["traceEvents"]
    for event in events:
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        args = event.get("args") or {}
        start = _ns(event["ts"])
        duration = _ns(event["dur"])
        if category in _KINDS:
            grid = args.get("grid") or (None, None, None)
            block = args.get("block") or (None, None, None)
            occupancy = args.get("est. achieved occupancy %")
            operations.append(
                (
                    event["name"], _KINDS[category], args.get("device", event["pid"]),
                    args.get("stream", event["tid"]), start, duration, args.get("correlation"),
                    args.get("graph id") or None, *grid, *block, args.get("registers per thread"),
                    args.get("shared memory"), None if occupancy is None else occupancy / 100,
                    args.get("blocks per SM"),
                )
            )  # fmt: skip
        elif category in ("cuda_runtime", "cuda_driver"):
            launches.append(
                (event["name"], start, duration, event["pid"], event["tid"], args.get("correlation"))
            )
        elif category == "user_annotation":
            markers.append((event["name"], start, duration, event["pid"], event["tid"]))
    if not operations:
        raise NothingToAnalyzeError(f"{path}: a trace without GPU activity")
    return Trace(
        path=path,
        source="kineto",
        document=0,
        operations=pl.DataFrame(operations, schema=OPERATION_SCHEMA, orient="row").sort("start_ns"),
        rejected=empty(REJECTED_SCHEMA),
        launches=pl.DataFrame(launches, schema=LAUNCH_SCHEMA, orient="row").sort("start_ns"),
        markers=pl.DataFrame(markers, schema=MARKER_SCHEMA, orient="row").sort(
            ["start_ns", "duration_ns"], descending=[False, True]
        ),
        devices=tuple(_device(entry) for entry in document.get("deviceProperties", [])),
        events_read=len(events),
        rank=(document.get("distributedInfo") or {}).get("rank"),
    )


def _ns(us: float) -> int:
    return int(np.rint(float(us) * 1000))


def _device(entry: dict[str, Any]) -> DeviceProperties:
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    return DeviceProperties(
        id=entry["id"],
        name=entry.get("name"),
        compute_capability=None if major is None else f"{major}.{minor}",
        sm_count=entry.get("numSms"),
        warp_size=entry.get("warpSize"),
        max_threads_per_cta=entry.get("maxThreadsPerBlock"),
        max_threads_per_sm=entry.get("maxThreadsPerMultiprocessor"),
        registers_per_sm=entry.get("regsPerMultiprocessor"),
        shared_memory_per_sm=entry.get("sharedMemPerMultiprocessor"),
        shared_memory_per_cta=entry.get("sharedMemPerBlock"),
        shared_memory_per_cta_optin=entry.get("sharedMemPerBlockOptin"),
        memory_bytes=entry.get("totalGlobalMem"),
    )
