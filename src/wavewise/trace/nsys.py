"""Nsight Systems SQLite exports (`nsys export --type sqlite`) to Traces, one per profiled process with GPU work.

Table and column names are those of NVIDIA's export reference (Nsight Systems user guide, "SQLite Schema
Reference"); what a version lacks is read as null, so that schema versions need no code of their own. Identifiers
serialise as its page on common SQLite examples says: a global thread id holds the process in bits 24 to 47 and
the thread in bits 0 to 23.
"""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace.model import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    WHOLE_GRAPH_SCHEMA,
    DeviceProperties,
    Trace,
)
from wavewise.trace.notes import Notes
from wavewise.trace.plausible import MISSING, REASONS, GpuRecords, judge
from wavewise.trace.progress import Progress

MAGIC = b"SQLite format 3\0"
_KNOWN_MAJOR = 3
_RANGE_TYPES = (59, 60, 70, 71)  # ENUM_NSYS_EVENT_TYPE: NVTX push/pop and start/end ranges, live and imported
_API_SUFFIX = r"(_ptsz|_ptds)?(_v\d{4,5})?(_ptsz|_ptds)?$"  # cudaGraphLaunch_v10000 is cudaGraphLaunch
_INCOMPLETE = re.compile(r"not all (?:cuda|gpu)\b.*collected", re.I)
_DROPPED = re.compile(r"\b(?:dropped|lost|discarded)\b.*\b(?:events?|records?|buffers?)\b|"
                      r"\b(?:events?|records?|buffers?)\b.*\b(?:dropped|lost|discarded)\b", re.I)  # fmt: skip
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
               10: "PtoP"}  # CUpti_ActivityMemcpyKind  # fmt: skip


def read_nsys(path: str, progress: Progress | None = None) -> list[Trace]:
    """The traces of the export at `path`, by their lowest device.

    Raises:
        InputError: the database cannot be read or is no Nsight Systems export.
        NothingToAnalyzeError: it holds no GPU operation.
    """
    uri = f"file:{quote(path)}?mode=ro&immutable=1"  # immutable: no journal is looked for, nothing is written
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = _text
            return _Export(connection, path, progress).traces()
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: the SQLite database cannot be read ({error}); export it again") from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class _Export:
    """One open export."""

    def __init__(self, connection: sqlite3.Connection, path: str, progress: Progress | None) -> None:
        self._connection = connection
        self._path = path
        self._progress = progress
        self._notes = Notes()
        self._tables = {
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        if "StringIds" not in self._tables or not any(
            name.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "META_DATA_EXPORT"))
            for name in self._tables
        ):
            raise InputError(f"{path}: not a trace (a SQLite database, but no Nsight Systems export)")
        self._strings = self._select("StringIds", {"id": pl.Int64, "value": pl.String})

    def traces(self) -> list[Trace]:
        """One Trace per process with GPU operations."""
        meta = self._meta()
        self._note_losses()
        self._tell("reading GPU operations", 0.1)
        records = self._records()
        graphs = self._whole_graphs()
        if records.is_empty():
            raise NothingToAnalyzeError(f"{self._path}: {self._nothing(graphs)}")
        self._tell("reading launches", 0.5)
        launches = self._launches()
        self._tell("reading markers", 0.8)
        markers = self._markers()
        devices = self._devices()
        if len(graphs):
            self._notes.add("graphs_as_wholes", len(graphs))
        processes = records["process"].unique().to_list()
        traces: list[Trace] = []
        for process in sorted(processes, key=lambda one: _lowest_device(records, one)):
            alone = len(processes) == 1
            trace = self._trace(
                len(traces), _of(records, process), _of(launches, process, or_all=alone),
                _of(markers, process, or_all=alone), _of(graphs, process, or_all=alone), devices, meta,
            )  # fmt: skip
            if trace is not None:
                traces.append(trace)
        if not traces:
            raise NothingToAnalyzeError(f"{self._path}: {self._nothing(graphs)}")
        return traces

    def _nothing(self, graphs: pl.DataFrame) -> str:
        if len(graphs):
            return (
                f"no GPU operation of its own, only {len(graphs)} CUDA graph launches recorded as wholes; record "
                "again with `nsys profile --cuda-graph-trace=node`"
            )
        return "a trace without GPU activity; was CUDA traced (`nsys profile -t cuda,nvtx`)?"

    def _trace(
        self, number: int, records: pl.DataFrame, launches: pl.DataFrame, markers: pl.DataFrame,
        graphs: pl.DataFrame, devices: tuple[DeviceProperties, ...], meta: dict[str, str],
    ) -> Trace | None:  # fmt: skip
        notes = Notes(self._notes)
        operations, rejected = _judged(records, launches, notes)
        if operations.is_empty():
            return None
        return Trace(
            path=self._path,
            source="nsys",
            document=number,
            operations=operations,
            rejected=rejected,
            launches=launches.select(list(LAUNCH_SCHEMA)).sort("start_ns", "correlation"),
            markers=markers.select(list(MARKER_SCHEMA)).sort(
                "start_ns", "duration_ns", descending=[False, True], maintain_order=True
            ),
            devices=devices,
            warnings=notes.warnings(),
            events_read=len(records) + len(launches) + len(markers),
            salvaged=notes.salvaged,
            metadata={
                name: meta[key]
                for name, key in (
                    ("schema_version", "EXPORT_SCHEMA_VERSION"),
                    ("nsys", "EXPORT_PRODUCT_VERSION"),
                )
                if key in meta
            },
            whole_graphs=graphs.select(list(WHOLE_GRAPH_SCHEMA)).sort("start_ns"),
        )

    # ---- tables

    def _records(self) -> pl.DataFrame:
        """Kernels, copies and fills: OPERATION_SCHEMA, and `lane`, `process`."""
        frames = [self._kernels(), self._copies("MEMCPY"), self._copies("MEMSET")]
        return pl.concat(frames, how="diagonal")

    def _kernels(self) -> pl.DataFrame:
        columns = _integers(
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            "mangledName",
            "registersPerThread",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "graphNodeId",
            "graphId",
        )
        frame = self._select(self._newest("CUPTI_ACTIVITY_KIND_KERNEL"), columns)
        name = pl.coalesce("demangledName", "shortName", "mangledName")
        return (
            frame.with_columns(name.alias("id"))
            .join(self._strings, on="id", how="left", maintain_order="left")
            .select(
                *_common(pl.col("value").fill_null("(unnamed kernel)"), "kernel"),
                *[pl.col(f"grid{a.upper()}").alias(f"grid_{a}") for a in "xyz"],
                *[
                    pl.col(f"block{a.upper()}").cast(pl.Int32, strict=False).alias(f"block_{a}")
                    for a in "xyz"
                ],
                pl.col("registersPerThread").cast(pl.Int32, strict=False).alias("registers_per_thread"),
                (pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory").fill_null(0))
                .cast(pl.Int32, strict=False)
                .alias("shared_memory_bytes"),
            )
        )

    def _copies(self, kind: str) -> pl.DataFrame:
        columns = _integers(
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "copyKind",
        )
        frame = self._select(self._newest(f"CUPTI_ACTIVITY_KIND_{kind}"), columns)
        if kind == "MEMSET":
            return frame.select(*_common(pl.lit("Memset"), "memset"))
        direction = pl.col("copyKind").replace_strict(_COPY_KINDS, default="unknown", return_dtype=pl.String)
        return frame.select(*_common(pl.format("Memcpy {}", direction), "memcpy"))

    def _whole_graphs(self) -> pl.DataFrame:
        columns: dict[str, Any] = dict.fromkeys(
            ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"), pl.Int64
        )
        frame = self._select(self._newest("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"), columns)
        return frame.select(
            pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
            pl.col("streamId").alias("stream"),
            pl.col("start").alias("start_ns"),
            (pl.col("end") - pl.col("start")).alias("duration_ns"),
            pl.col("correlationId").alias("correlation"),
            pl.col("graphId").alias("graph_id"),
            _process().alias("process"),
        )

    def _launches(self) -> pl.DataFrame:
        columns: dict[str, Any] = dict.fromkeys(
            ("start", "end", "globalTid", "correlationId", "nameId"), pl.Int64
        )
        frame = self._select(self._newest("CUPTI_ACTIVITY_KIND_RUNTIME"), columns)
        frame = frame.join(self._strings, left_on="nameId", right_on="id", how="left", maintain_order="left")
        name = pl.col("value").fill_null("(unnamed call)").str.replace(_API_SUFFIX, "")
        return self._complete(frame).select(
            name.cast(pl.Categorical).alias("name"),
            *_host(),
            pl.col("correlationId").alias("correlation"),
            _process("globalTid").alias("process"),
        )

    def _markers(self) -> pl.DataFrame:
        columns: dict[str, Any] = {
            "start": pl.Int64, "end": pl.Int64, "eventType": pl.Int64, "text": pl.String, "globalTid": pl.Int64,
            "textId": pl.Int64,
        }  # fmt: skip
        where = f"eventType IN ({', '.join(map(str, _RANGE_TYPES))})"
        frame = self._select(self._newest("NVTX_EVENTS"), columns, where)
        frame = frame.join(self._strings, left_on="textId", right_on="id", how="left", maintain_order="left")
        return (
            self._complete(frame)
            .select(
                pl.coalesce("text", "value").alias("name"), *_host(), _process("globalTid").alias("process")
            )
            .drop_nulls("name")
        )

    def _complete(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Host ranges with a start and an end that is not before it."""
        whole = frame.filter((pl.col("end") >= pl.col("start")).fill_null(value=False))
        self._notes.add("incomplete_host_record", len(frame) - len(whole))
        return whole

    def _devices(self) -> tuple[DeviceProperties, ...]:
        numbers = (
            "id", "cuDevice", "smCount", "totalMemory", "maxShmemPerBlock", "maxShmemPerBlockOptin", "maxShmemPerSm",
            "maxRegistersPerSm", "threadsPerWarp", "maxWarpsPerSm", "maxThreadsPerBlock", "computeMajor",
            "computeMinor", "smMajor", "smMinor",
        )  # fmt: skip
        columns: dict[str, Any] = {"name": pl.String, **dict.fromkeys(numbers, pl.Int64)}
        rows = self._select(self._newest("TARGET_INFO_GPU"), columns).to_dicts()
        return tuple(_device(row) for row in rows)

    def _meta(self) -> dict[str, str]:
        frame = self._select("META_DATA_EXPORT", {"name": pl.String, "value": pl.String})
        meta = {str(name): str(value) for name, value in frame.iter_rows()}
        major = re.match(r"\d+", meta.get("EXPORT_SCHEMA_VERSION", ""))
        if major and int(major[0]) > _KNOWN_MAJOR:
            self._notes.add("unknown_schema_version")
        return meta

    def _note_losses(self) -> None:
        """What Nsight's own diagnostics say about lost records."""
        texts = self._select("DIAGNOSTIC_EVENT", {"text": pl.String})["text"].drop_nulls().to_list()
        self._notes.add("possibly_incomplete", sum(bool(_INCOMPLETE.search(text)) for text in texts))
        self._notes.add("lost_records", sum(bool(_DROPPED.search(text)) for text in texts))

    # ---- SQL

    def _newest(self, table: str) -> str:
        """`table` or the newest `_V2`, `_V3` ... of it that holds rows."""
        versions = sorted(
            (name for name in self._tables if re.fullmatch(rf"{table}(_V\d+)?", name)),
            key=lambda name: _version(name),
            reverse=True,
        )
        for name in versions:
            if self._connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone():
                return name
        return table

    def _select(self, table: str, columns: dict[str, Any], where: str = "1") -> pl.DataFrame:
        """The named columns of `table`, null where it lacks them; no rows where there is no such table."""
        if table not in self._tables:
            return pl.DataFrame(schema=columns)
        present = {row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")')}
        select = ", ".join(
            _typed_column(name, kind) if name in present else "NULL" for name, kind in columns.items()
        )
        rows = self._connection.execute(f'SELECT {select} FROM "{table}" WHERE {where}').fetchall()
        return pl.DataFrame(rows, schema=columns, orient="row")

    def _tell(self, what: str, share: float) -> None:
        if self._progress:
            self._progress(what, share)


def _version(table: str) -> int:
    number = re.search(r"_V(\d+)$", table)
    return int(number[1]) if number else 1


def _integers(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, pl.Int64)


def _typed_column(name: str, kind: object) -> str:
    # SQLite columns hold what they like. Anything but an integer (or text) of its type is read as null.
    wanted = "'integer'" if kind == pl.Int64 else "'text'"
    return f'CASE typeof("{name}") WHEN {wanted} THEN "{name}" END'


def _process(column: str = "globalPid") -> pl.Expr:
    """The process of a global id as one number, 0 where the export does not say."""
    return (pl.col(column).fill_null(0) // (1 << 24)) * (1 << 24)


def _common(name: pl.Expr, kind: str) -> Iterable[pl.Expr]:
    graph = pl.when(pl.col("graphId") > 0).then("graphId").otherwise(pl.col("graphNodeId") // (1 << 32))
    return (
        name.cast(pl.Categorical).alias("name"),
        pl.lit(kind).cast(OPERATION_SCHEMA["kind"]).alias("kind"),
        pl.col("deviceId").fill_null(0).cast(pl.Int32, strict=False).fill_null(0).alias("device"),
        pl.col("streamId").fill_null(0).alias("stream"),
        pl.col("start").alias("start_ns"),
        (pl.col("end") - pl.col("start")).alias("duration_ns"),
        pl.col("correlationId").alias("correlation"),
        pl.when(graph > 0).then(graph).alias("graph_id"),
        pl.col("contextId").fill_null(0).alias("context"),
        _process().alias("process"),
    )


def _host() -> Iterable[pl.Expr]:
    gid = pl.col("globalTid")
    return (
        pl.col("start").alias("start_ns"),
        (pl.col("end") - pl.col("start")).alias("duration_ns"),
        ((gid // (1 << 24)) % (1 << 24)).alias("pid"),
        (gid % (1 << 24)).alias("tid"),
    )


def _of(frame: pl.DataFrame, process: int, *, or_all: bool = False) -> pl.DataFrame:
    """The rows of one process. Correlation ids count per process, so those of another must not mix in.

    With `or_all`, all rows where the process has none: one process works the GPU, another one writes the markers.
    """
    own = frame.filter(pl.col("process") == process)
    return frame if or_all and own.is_empty() else own


def _lowest_device(records: pl.DataFrame, process: int) -> tuple[int, int]:
    devices = records.filter(pl.col("process") == process)["device"].to_list()
    return min(devices), process


def _judged(records: pl.DataFrame, launches: pl.DataFrame, notes: Notes) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parts valid operations from rejected ones."""
    lanes = records.select(pl.struct("device", "context", "stream").rank("dense")).to_series()
    bounds = ()
    if len(launches):
        ends = launches["start_ns"] + launches["duration_ns"]
        bounds = (int(launches["start_ns"].to_numpy().min()), int(ends.to_numpy().max()))
    columns = [
        records[name].fill_null(MISSING).to_numpy() for name in ("start_ns", "duration_ns", "correlation")
    ]
    reason = judge(GpuRecords(lanes.cast(pl.Int64).to_numpy(), *columns), *bounds)
    for number, code in enumerate(REASONS, 1):
        notes.add(code, int(np.count_nonzero(reason == number)))
    records = records.with_columns(
        pl.Series("reason", reason).replace_strict(
            dict(enumerate(REASONS, 1)), default=None, return_dtype=pl.String
        ),
        *[
            pl.lit(None, dtype).alias(name)
            for name, dtype in OPERATION_SCHEMA.items()
            if name not in records.columns
        ],
    ).sort("start_ns", "correlation")
    rejected = records.filter(pl.col("reason").is_not_null()).select(list(REJECTED_SCHEMA))
    return records.filter(pl.col("reason").is_null()).select(list(OPERATION_SCHEMA)), rejected


def _device(row: dict[str, Any]) -> DeviceProperties:
    major = row["computeMajor"] if row["computeMajor"] is not None else row["smMajor"]
    minor = row["computeMinor"] if row["computeMinor"] is not None else row["smMinor"]
    warps, width = row["maxWarpsPerSm"], row["threadsPerWarp"]
    return DeviceProperties(
        id=row["cuDevice"] if row["cuDevice"] is not None else (row["id"] or 0),
        name=row["name"] or None,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        sm_count=row["smCount"] or None,
        warp_size=width or None,
        max_threads_per_cta=row["maxThreadsPerBlock"] or None,
        max_threads_per_sm=warps * width if warps and width else None,
        registers_per_sm=row["maxRegistersPerSm"] or None,
        shared_memory_per_sm=row["maxShmemPerSm"] or None,
        shared_memory_per_cta=row["maxShmemPerBlock"] or None,
        shared_memory_per_cta_optin=row["maxShmemPerBlockOptin"] or None,
        memory_bytes=row["totalMemory"] or None,
    )
