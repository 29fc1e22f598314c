"""Kineto traces of decode steps, written event by event: files with known answers for the command line."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path


def write_trace(
    path: Path,
    batch_size: int,
    kernels: Sequence[tuple[str, float] | tuple[str, float, dict[str, object]]],
    boundary_us: float,
    steps: int = 6,
) -> None:
    """A Kineto trace of decode steps: one graph replay of back-to-back kernels each, then host time.

    Args:
        kernels: (name, duration in microseconds, launch arguments other than the usual ones).
        boundary_us: from the last kernel's end to the next replay's first kernel.
    """
    events: list[dict[str, object]] = []
    gpu_us = 1_000.0
    for step in range(steps):
        correlation = 10 + step
        host_us = gpu_us - 60.0
        host = {"ph": "X", "pid": 1, "tid": 1}
        name = f"execute_context_0(0)_generation_{batch_size}({batch_size})"
        events.append({**host, "cat": "user_annotation", "name": name, "ts": host_us, "dur": 50.0})
        events.append(
            {
                **host,
                "cat": "cuda_runtime",
                "name": "cudaGraphLaunch",
                "ts": host_us + 10.0,
                "dur": 20.0,
                "args": {"correlation": correlation},
            }
        )
        for kernel, duration_us, *launch in kernels:
            args = {"device": 0, "stream": 7, "correlation": correlation, "grid": [batch_size, 1, 1]}
            args |= {"block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}
            args |= launch[0] if launch else {}
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": kernel,
                    "pid": 0,
                    "tid": 7,
                    "ts": round(gpu_us, 3),
                    "dur": round(duration_us, 3),
                    "args": args,
                }
            )
            gpu_us += duration_us
        gpu_us += boundary_us
    properties = [
        {
            "id": 0,
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "computeMajor": 12,
            "computeMinor": 0,
            "numSms": 188,
            "warpSize": 32,
            "maxThreadsPerMultiprocessor": 1536,
            "regsPerMultiprocessor": 65536,
            "sharedMemPerMultiprocessor": 102400,
            "totalGlobalMem": 102_000_000_000,
        }
    ]
    document = {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        json.dump(document, file)
