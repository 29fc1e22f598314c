"""A small part of a trace, as a trace: what people attach to a bug report.

`cut` keeps some operations and some stretches of host time, `scrub` takes out what says where the trace comes
from, `to_kineto` writes what is left in Kineto's format. Everything an analysis rests on stays to the nanosecond:
starts, durations, correlation and graph ids, streams, launch shapes, host launches, step markers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from wavewise.trace.model import DeviceProperties, Trace
from wavewise.units import NS_PER_S, NS_PER_US

_KINDS = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_SCRUBBED_START_NS = NS_PER_S
"""Where a scrubbed trace begins on its own clock: the true time stamps tell when a machine was started."""


def cut(trace: Trace, operations: npt.NDArray[np.bool_], host_ns: Sequence[tuple[int, int]]) -> Trace:
    """The operations chosen, and the launches and markers that begin within the stretches of host time.

    Args:
        trace: the trace.
        operations: which rows of `trace.operations` to keep.
        host_ns: stretches [start, end) of host time, in order and apart from each other.
    """
    launches = _beginning_within(trace.launches, host_ns)
    launched = launches["correlation"].drop_nulls().unique()
    return replace(
        trace,
        operations=trace.operations.filter(pl.Series(operations)),
        rejected=trace.rejected.filter(pl.col("correlation").is_in(launched.implode())),
        launches=launches,
        markers=_beginning_within(trace.markers, host_ns),
        whole_graphs=trace.whole_graphs.filter(pl.col("correlation").is_in(launched.implode())),
        warnings=(),
    )


def _beginning_within(frame: pl.DataFrame, host_ns: Sequence[tuple[int, int]]) -> pl.DataFrame:
    starts, ends = (np.array([stretch[i] for stretch in host_ns], np.int64) for i in (0, 1))
    start = frame["start_ns"].to_numpy()
    at = np.searchsorted(starts, start, side="right") - 1
    inside = (at >= 0) & (start < ends[np.maximum(at, 0)]) if len(starts) else np.zeros(len(start), np.bool_)
    return frame.filter(pl.Series(inside))


def scrub(trace: Trace, keep_marker: Callable[[str], bool]) -> Trace:
    """The trace without paths, host names, user strings, process ids and times of day.

    Markers stay where `keep_marker` says that their name is an engine's own. Kernel names stay: they are what
    the trace is about, and a rule file needs them to tell families; only paths within them are cut to their
    last part.

    Args:
        trace: the trace.
        keep_marker: whether a marker of that name may stay.
    """
    names = trace.markers["name"].unique().to_list()
    markers = trace.markers.filter(pl.col("name").is_in([name for name in names if keep_marker(name)]))
    frames = [trace.operations, trace.launches, markers]
    firsts = [frame["start_ns"].min() for frame in frames if len(frame)]
    shift = _SCRUBBED_START_NS - min((first for first in firsts if isinstance(first, int)), default=0)
    threads = _renumbered([trace.launches, markers])
    moved = (pl.col("start_ns") + shift).alias("start_ns")
    return replace(
        trace,
        path="",
        operations=trace.operations.with_columns(moved, _without_paths("name")),
        rejected=trace.rejected.with_columns(moved, _without_paths("name")),
        launches=_with_threads(trace.launches.with_columns(moved), threads),
        markers=_with_threads(markers.with_columns(moved), threads),
        whole_graphs=trace.whole_graphs.with_columns(moved),
        metadata={
            key: value
            for key, value in trace.metadata.items()
            if key.endswith(("_version", "schemaVersion")) or key in ("world_size", "backend", "nsys")
        },
    )


_PATH = r"(?:[A-Za-z]:)?(?:[/\\][\w.+@~-]+){2,}[/\\]"


def _without_paths(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String).str.replace_all(_PATH, "").cast(pl.Categorical).alias(column)


def _renumbered(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Processes and threads, numbered from 1 in the order of their own numbers."""
    both = pl.concat([frame.select("pid", "tid") for frame in frames]).unique()
    return both.with_columns(
        pl.col("pid").rank("dense").cast(pl.Int64).alias("new_pid"),
        pl.struct("pid", "tid").rank("dense").cast(pl.Int64).alias("new_tid"),
    )


def _with_threads(frame: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    joined = frame.join(threads, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pid=pl.col("new_pid"), tid=pl.col("new_tid")).select(frame.columns)


def to_kineto(trace: Trace) -> bytes:
    """The trace as Kineto JSON, in Kineto's own line layout."""
    header: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [_device(entry) for entry in trace.devices],
        "displayTimeUnit": "ms",
        **{
            key: value
            for key, value in trace.metadata.items()
            if key not in ("world_size", "backend", "nccl_version")
        },
    }
    distributed = {key: trace.metadata[key] for key in ("backend", "world_size") if key in trace.metadata}
    if trace.rank is not None or distributed:
        header["distributedInfo"] = {**distributed, **({} if trace.rank is None else {"rank": trace.rank})}
    events = [
        *_host_events("user_annotation", trace.markers),
        *_host_events("cuda_runtime", trace.launches),
        *_gpu_events(trace.operations),
        *_gpu_events(trace.rejected),
    ]
    head = msgspec.json.format(msgspec.json.encode(header), indent=2)[:-2]
    return b'%b,\n  "traceEvents": [\n%b\n  ]\n}\n' % (head, b",\n".join(events))


def _device(entry: DeviceProperties) -> dict[str, object]:
    major, _, minor = (entry.compute_capability or "").partition(".")
    values = {
        "id": entry.id,
        "name": entry.name,
        "totalGlobalMem": entry.memory_bytes,
        "computeMajor": int(major) if major.isdigit() else None,
        "computeMinor": int(minor) if minor.isdigit() else None,
        "maxThreadsPerBlock": entry.max_threads_per_cta,
        "maxThreadsPerMultiprocessor": entry.max_threads_per_sm,
        "regsPerMultiprocessor": entry.registers_per_sm,
        "warpSize": entry.warp_size,
        "sharedMemPerBlock": entry.shared_memory_per_cta,
        "sharedMemPerBlockOptin": entry.shared_memory_per_cta_optin,
        "sharedMemPerMultiprocessor": entry.shared_memory_per_sm,
        "numSms": entry.sm_count,
    }
    return {key: value for key, value in values.items() if value is not None}


def _host_events(category: str, frame: pl.DataFrame) -> list[bytes]:
    return [
        _event(
            category, row["name"], row["pid"], row["tid"], row["start_ns"], row["duration_ns"],
            {"correlation": row["correlation"]} if row.get("correlation") is not None else {},
        )
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip


def _gpu_events(frame: pl.DataFrame) -> list[bytes]:
    return [
        _event(
            _KINDS[row["kind"]], row["name"], row["device"], row["stream"], row["start_ns"], row["duration_ns"],
            _arguments(row),
        )
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip


def _arguments(row: dict[str, object]) -> dict[str, object]:
    values: dict[str, object] = {
        "device": row["device"],
        "stream": row["stream"],
        "correlation": row["correlation"],
        "graph id": row["graph_id"],
        "registers per thread": row["registers_per_thread"],
        "shared memory": row["shared_memory_bytes"],
        "blocks per SM": _shortest(row["recorded_blocks_per_sm"], 1.0),
        "est. achieved occupancy %": _shortest(row["recorded_occupancy"], 0.01),
    }
    if row["grid_x"] is not None:
        values["grid"] = [row[f"grid_{axis}"] for axis in "xyz"]
    if row["block_x"] is not None:
        values["block"] = [row[f"block_{axis}"] for axis in "xyz"]
    return {key: value for key, value in values.items() if value is not None}


def _shortest(value: object, unit: float) -> float | None:
    """A 32-bit float in units of `unit`, in the fewest digits that read back as the same 32 bits."""
    if not isinstance(value, float):
        return None
    for digits in range(6, 10):
        written = float(f"{value / unit:.{digits}g}")
        if np.float32(written * unit) == np.float32(value):
            return written
    return value / unit


def _event(
    category: str, name: str, pid: int | None, tid: int | None, start_ns: int | None, duration_ns: int | None,
    arguments: dict[str, object],
) -> bytes:  # fmt: skip
    encode = msgspec.json.encode
    first = b'"ph": "X", "cat": %b, "name": %b, "pid": %b, "tid": %b' % (
        encode(category), encode(name), encode(pid), encode(tid),
    )  # fmt: skip
    times = b", ".join(
        b'"%b": %b' % (key, _microseconds(value))
        for key, value in ((b"ts", start_ns), (b"dur", duration_ns))
        if value is not None
    )
    text = b"  {\n    %b" % first
    if times:
        text += b",\n    " + times
    if arguments:
        inner = b", ".join(b"%b: %b" % (encode(key), _spaced(value)) for key, value in arguments.items())
        text += b',\n    "args": {\n      %b\n    }' % inner
    return text + b"\n  }"


def _spaced(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=0)


def _microseconds(ns: int) -> bytes:
    """Nanoseconds as Kineto writes them: microseconds with three decimals."""
    sign = "-" if ns < 0 else ""
    us, rest = divmod(abs(ns), NS_PER_US)
    return f"{sign}{us}.{rest:03}".encode()
