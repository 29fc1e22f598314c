"""Traces made for tests, in every layout, and a second, slow and independent reading of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import polars as pl

from wavewise.trace import Trace

HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32,
         "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472},
    ],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4},
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
}  # fmt: skip

BASE_US = 5121164779381


def us(ns: int) -> str:
    """Nanoseconds in the digits that Kineto writes."""
    return f"{ns // 1000}.{ns % 1000:03}"


@dataclass(frozen=True)
class Number:
    """A number that keeps its digits in every layout."""

    text: str


def event(category: str, name: str, start_ns: int, duration_ns: int, **fields: Any) -> dict[str, Any]:
    """An event in the order of Kineto's keys."""
    made: dict[str, Any] = {"ph": "X", "cat": category, "name": name, "pid": 4100, "tid": 4100, **fields}
    args = made.pop("args", None)
    made |= {"ts": Number(us(start_ns)), "dur": Number(us(duration_ns))}
    return made if args is None else made | {"args": args}


def kernel(index: int, start_ns: int, duration_ns: int, **changes: Any) -> dict[str, Any]:
    """A kernel of launch `index`."""
    args = {
        "External id": 5000 + index, "queued": 0, "device": 0, "context": 1, "stream": 7,
        "correlation": 90 + index, "registers per thread": 64, "shared memory": 1024,
        "blocks per SM": Number("1.000000"), "warps per SM": Number("8.000000"), "grid": [132, 1, 1],
        "block": [256, 1, 1], "est. achieved occupancy %": 12,
    } | changes  # fmt: skip
    name = ["void gemm<float, 4>(int const*)", "rms_norm", 'a\u00e9 \\ "q"'][index % 3]
    return event("kernel", name, start_ns, duration_ns, pid=0, tid=7, args=args)


def steps(count: int = 6, kernels: int = 5) -> list[dict[str, Any]]:
    """Engine steps: a marker, an operator, a launch, a copy, some kernels, and flows between them."""
    events: list[dict[str, Any]] = []
    correlation = 0
    for i in range(count):
        at = BASE_US * 1000 + 500_000 * i
        name = "execute_context_0(0)_generation_64(64)"
        events.append(event("user_annotation", name, at, 400_000, args={"External id": i}))
        events.append(
            event(
                "cpu_op",
                "aten::mm",
                at + 10_000,
                5_123,
                args={"Input Dims": [[1, 2], []], "Concrete Inputs": ["", "[nan, 1]"]},
            )
        )
        events.append(
            {
                "ph": "s",
                "id": 7,
                "pid": 4100,
                "tid": 4100,
                "ts": Number(us(at)),
                "cat": "ac2g",
                "name": "ac2g",
            }
        )
        events.append(
            event(
                "cuda_runtime",
                "cudaMemcpyAsync",
                at + 1_000,
                2_500,
                args={"cbid": 41, "correlation": 10_000_000 + i},
            )
        )
        copy = {"device": 0, "context": 1, "stream": 7, "correlation": 10_000_000 + i, "bytes": 64 + i,
                "memory bandwidth (GB/s)": Number(f"1.{i}23456789")}  # fmt: skip
        events.append(
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 5_001, 1_408, pid=0, tid=7, args=copy)
        )
        for k in range(kernels):
            correlation += 1
            events.append(
                event(
                    "cuda_runtime",
                    "cudaLaunchKernel",
                    at + 8_000 + 100 * k,
                    99,
                    args={"cbid": 211, "correlation": 90 + correlation},
                )
            )
            events.append(kernel(correlation, at + 20_000 + 3_000 * k + correlation, 2_000 + 7 * k))
    return events


# ---- layouts


def _text(value: Any, indent: int | None = None, compact: bool = False) -> str:
    """JSON with `Number`s as they stand."""
    numbers: list[str] = []

    def keep(item: Any) -> Any:
        if isinstance(item, Number):
            numbers.append(item.text)
            return f"@number{len(numbers) - 1}@"
        if isinstance(item, dict):
            return {key: keep(one) for key, one in item.items()}
        if isinstance(item, list):
            return [keep(one) for one in item]
        return item

    separators = (",", ":") if compact else None
    text = json.dumps(keep(value), indent=indent, separators=separators, ensure_ascii=False)
    for i, number in enumerate(numbers):
        text = text.replace(f'"@number{i}@"', number, 1)
    return text


def kineto(events: list[dict[str, Any]], header: dict[str, Any] | None = None) -> bytes:
    """Kineto's own line layout."""
    out: list[str] = []
    for one in events:
        rest = dict(one)
        args = rest.pop("args", None)
        times = {key: rest.pop(key) for key in ("ts", "dur") if key in rest}
        text = "  {\n    " + _text(rest)[1:-1]
        if times:
            text += ",\n    " + _text(times)[1:-1]
        if args is not None:
            text += ',\n    "args": {\n      ' + _text(args)[1:-1] + "\n    }"
        out.append(text + "\n  }")
    head = json.dumps(HEADER if header is None else header)[:-1]
    return (
        head + ',\n  "traceEvents": [\n' + ",\n".join(out) + '\n  ],\n  "traceName": "trace.json"\n}\n'
    ).encode()


def _document(events: list[dict[str, Any]], **style: Any) -> bytes:
    return _text(HEADER | {"traceEvents": events}, **style).encode()


def _head() -> str:
    return json.dumps(HEADER)[:-1] + ', "traceEvents": '


LAYOUTS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "kineto": kineto,
    "one_line": _document,
    "compact": lambda events: _document(events, compact=True),
    "indented": lambda events: _document(events, indent=4),
    "tabs": lambda events: _document(events, indent=1).replace(b"\n ", b"\r\n\t"),
    "event_per_line": lambda events: (_head() + "[\n" + ",\n".join(map(_text, events)) + "\n]}").encode(),
    "bare_list": lambda events: ("[" + ",\n".join(map(_text, events)) + "]").encode(),
    "lines_of_json": lambda events: "\n".join(map(_text, events)).encode(),
    "header_last": lambda events: (
        '{"traceEvents": [' + ", ".join(map(_text, events)) + "], " + json.dumps(HEADER)[1:]
    ).encode(),
}


# ---- the independent reading


def expected(text: bytes) -> dict[str, list[tuple[Any, ...]]]:
    """Operations, launches and markers of a sound document, by the standard library and Decimal alone."""
    try:
        document = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError:
        document = [json.loads(line, parse_float=Decimal) for line in text.decode().splitlines()]
    events = document if isinstance(document, list) else document["traceEvents"]
    kinds = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
    found: dict[str, list[tuple[Any, ...]]] = {"operations": [], "launches": [], "markers": []}
    for one in events:
        if one.get("ph") != "X":
            continue
        start, duration = (
            int((Decimal(str(one[key])) * 1000).to_integral_value(ROUND_HALF_EVEN)) for key in ("ts", "dur")
        )
        args = one.get("args", {})
        if one["cat"] in kinds:
            grid, block = args.get("grid", [None] * 3), args.get("block", [None] * 3)
            found["operations"].append(
                (one["name"], kinds[one["cat"]], args.get("device", one["pid"]), args.get("stream", one["tid"]), start,
                 duration, args.get("correlation"), *grid, *block, args.get("registers per thread"),
                 args.get("shared memory"))
            )  # fmt: skip
        elif one["cat"] in ("cuda_runtime", "cuda_driver"):
            found["launches"].append(
                (one["name"], start, duration, one["pid"], one["tid"], args.get("correlation"))
            )
        elif one["cat"] == "user_annotation":
            found["markers"].append((one["name"], start, duration, one["pid"], one["tid"]))
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def values(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    """The same of a Trace, for comparison."""
    operations = trace.operations.select(
        pl.col("name", "kind").cast(pl.String), "device", "stream", "start_ns", "duration_ns", "correlation", "grid_x",
        "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread", "shared_memory_bytes",
    )  # fmt: skip
    frames = {
        "operations": operations,
        "launches": trace.launches.with_columns(pl.col("name").cast(pl.String)),
        "markers": trace.markers,
    }
    return {name: sorted(frame.rows(), key=repr) for name, frame in frames.items()}


def codes(trace: Trace) -> dict[str, int]:
    """Warnings as counts by code."""
    return {warning.code: warning.count for warning in trace.warnings}
