"""Tables of an Nsight Systems export to Traces, one per profiled process with GPU work.

Table and column names are those of NVIDIA's export reference (Nsight Systems user guide, "SQLite Schema
Reference"); what a version lacks is read as null, so that schema versions need no code of their own. Identifiers
serialise as its page on common SQLite examples says: a global thread id holds the process in bits 24 to 47 and
the thread in bits 0 to 23.
"""

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from wavewise.errors import NothingToAnalyzeError
from wavewise.trace.model import DeviceProperties, Trace
from wavewise.trace.notes import Notes
from wavewise.trace.nsys.devices import Devices
from wavewise.trace.nsys.parquet import parquet_tables
from wavewise.trace.nsys.sqlite import sqlite_tables
from wavewise.trace.nsys.tables import Among, Tables, integers, texts
from wavewise.trace.plausible import MISSING, REASONS, GpuRecords, judge
from wavewise.trace.progress import Progress
from wavewise.trace.schema import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    WHOLE_GRAPH_SCHEMA,
)

_KNOWN_MAJOR = 3  # 3.28 is that of Nsight Systems 2026.4
_RANGES = Among("eventType", (59, 60, 70, 71))
"""ENUM_NSYS_EVENT_TYPE: NVTX push/pop and start/end ranges, live and imported."""
_API_SUFFIX = r"(_ptsz|_ptds)?(_v\d{4,5})?(_ptsz|_ptds)?$"  # cudaGraphLaunch_v10000 is cudaGraphLaunch
_INCOMPLETE = re.compile(r"not all (?:cuda|gpu)\b.*collected", re.I)
_DROPPED = re.compile(r"\b(?:dropped|lost|discarded)\b.*\b(?:events?|records?|buffers?)\b|"
                      r"\b(?:events?|records?|buffers?)\b.*\b(?:dropped|lost|discarded)\b", re.I)  # fmt: skip
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
               10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD"}  # ENUM_CUDA_MEMCPY_OPER  # fmt: skip
_GPU_RECORD = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId",
               "graphId")  # fmt: skip
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")  # ids of StringIds, the best first
_PROCESS = 1 << 24


def read_nsys(path: str, progress: Progress | None = None) -> list[Trace]:
    """The traces of the export at `path`, by their lowest device.

    Args:
        path: a SQLite database, or a folder of Parquet tables.
        progress: called with what is being done and the share done.

    Raises:
        InputError: the export cannot be read or is none.
        NothingToAnalyzeError: it holds no GPU operation.
    """
    with (parquet_tables if os.path.isdir(path) else sqlite_tables)(path) as tables:
        return _Export(tables, path, progress).traces()


class _Export:
    """One open export."""

    def __init__(self, tables: Tables, path: str, progress: Progress | None) -> None:
        self._tables = tables
        self._path = path
        self._progress = progress
        self._notes = Notes()
        # Each id once: a string that came twice could not be looked up.
        strings = tables.read("StringIds", {**integers("id"), **texts("value")}).drop_nulls()
        self._strings = strings.unique("id", keep="first")

    def traces(self) -> list[Trace]:
        """One Trace per process with GPU operations."""
        meta = self._meta()
        self._note_losses()
        self._tell("reading GPU operations", 0.1)
        records = self._records()
        graphs = self._whole_graphs()
        work = pl.concat([frame.select("process", "device") for frame in (records, graphs)])
        if work.is_empty():
            raise NothingToAnalyzeError(f"{self._path}: {_nothing(records)}")
        self._tell("reading launches", 0.5)
        launches = self._launches()
        self._tell("reading markers", 0.8)
        markers = self._markers()
        devices = Devices(self._tables)
        by_device = work.group_by("process").agg(pl.col("device").min()).sort("device", "process")
        processes = by_device["process"].to_list()
        alone = len(processes) == 1
        traces: list[Trace] = []
        for process in processes:
            trace = self._trace(
                len(traces),
                _of(records, process),
                _of(launches, process, or_all=alone),
                _of(markers, process, or_all=alone),
                _of(graphs, process, or_all=alone),
                devices.of(process // _PROCESS % _PROCESS),
                meta,
            )
            if trace is not None:
                traces.append(trace)
        if not traces:
            raise NothingToAnalyzeError(f"{self._path}: {_nothing(records)}")
        return traces

    def _trace(
        self, number: int, records: pl.DataFrame, launches: pl.DataFrame, markers: pl.DataFrame,
        graphs: pl.DataFrame, devices: tuple[DeviceProperties, ...], meta: dict[str, str],
    ) -> Trace | None:  # fmt: skip
        notes = Notes(self._notes)
        notes.add("graphs_as_wholes", len(graphs))
        operations, rejected = _judged(records, launches, notes)
        if operations.is_empty() and graphs.is_empty():
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

    def _records(self) -> pl.DataFrame:
        """Kernels, copies and fills: OPERATION_SCHEMA, and `context`, `process`."""
        records = pl.concat([self._kernels(), self._copies(), self._fills()], how="diagonal")
        told = records["process"].unique().drop_nulls()
        told = told.filter(told != 0)
        # A row that does not tell its process is of the only one there is.
        return records.with_columns(process=pl.lit(told.item())) if len(told) == 1 else records

    def _kernels(self) -> pl.DataFrame:
        columns = integers(
            *_GPU_RECORD, *_KERNEL_NAMES, "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
            "staticSharedMemory", "dynamicSharedMemory",
        )  # fmt: skip
        frame = self._tables.read("CUPTI_ACTIVITY_KIND_KERNEL", columns)
        # Kernels that have lost their names stay apart by the ids of them.
        unnamed = pl.format("(unnamed kernel {})", pl.coalesce(_KERNEL_NAMES)).fill_null("(unnamed kernel)")
        name = pl.coalesce(*(self._string(column) for column in _KERNEL_NAMES), unnamed)
        shared = pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory").fill_null(0)
        return _with_name(frame, name, _KERNEL_NAMES).select(
            *_common(pl.col("name"), "kernel"),
            *[pl.col(f"grid{axis.upper()}").alias(f"grid_{axis}") for axis in "xyz"],
            *[_int32(pl.col(f"block{axis.upper()}")).alias(f"block_{axis}") for axis in "xyz"],
            _int32(pl.col("registersPerThread")).alias("registers_per_thread"),
            _int32(shared).alias("shared_memory_bytes"),
        )

    def _copies(self) -> pl.DataFrame:
        frame = self._tables.read("CUPTI_ACTIVITY_KIND_MEMCPY", integers(*_GPU_RECORD, "copyKind"))
        direction = pl.col("copyKind").replace_strict(_COPY_KINDS, default="unknown", return_dtype=pl.String)
        return frame.select(*_common(pl.format("Memcpy {}", direction), "memcpy"))

    def _fills(self) -> pl.DataFrame:
        frame = self._tables.read("CUPTI_ACTIVITY_KIND_MEMSET", integers(*_GPU_RECORD))
        return frame.select(*_common(pl.lit("Memset"), "memset"))

    def _whole_graphs(self) -> pl.DataFrame:
        """WHOLE_GRAPH_SCHEMA, and `process`: what has a start and an end that is not before it."""
        frame = self._tables.read("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", integers(*_GPU_RECORD))
        whole = frame.filter((pl.col("end") >= pl.col("start")).fill_null(value=False))
        return whole.select(
            _device().alias("device"),
            pl.col("streamId").alias("stream"),
            *_extent(),
            pl.col("correlationId").alias("correlation"),
            pl.col("graphId").alias("graph_id"),
            _process().alias("process"),
        )

    def _launches(self) -> pl.DataFrame:
        columns = integers("start", "end", "globalTid", "correlationId", "nameId")
        frame = self._tables.read("CUPTI_ACTIVITY_KIND_RUNTIME", columns)
        name = self._string("nameId").fill_null("(unnamed call)").str.replace(_API_SUFFIX, "")
        return _with_name(self._complete(frame), name, ["nameId"]).select(
            "name",
            *_host(),
            pl.col("correlationId").alias("correlation"),
            _process("globalTid").alias("process"),
        )

    def _markers(self) -> pl.DataFrame:
        columns = {**integers("start", "end", "globalTid", "textId"), **texts("text")}
        frame = self._tables.read("NVTX_EVENTS", columns, only=_RANGES)
        name = pl.coalesce(pl.when(pl.col("text") != "").then("text"), self._string("textId"))
        return (
            self._complete(frame)
            .select(name.alias("name"), *_host(), _process("globalTid").alias("process"))
            .drop_nulls("name")
        )

    def _string(self, column: str) -> pl.Expr:
        """The texts that a column of StringIds ids stands for, null for ids that are not there."""
        ids, values = self._strings["id"], self._strings["value"]
        return pl.col(column).replace_strict(ids, values, default=None, return_dtype=pl.String)

    def _complete(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Host ranges with a start and an end that is not before it."""
        whole = frame.filter((pl.col("end") >= pl.col("start")).fill_null(value=False))
        self._notes.add("incomplete_host_record", len(frame) - len(whole))
        return whole

    def _meta(self) -> dict[str, str]:
        meta = dict(self._tables.read("META_DATA_EXPORT", texts("name", "value")).drop_nulls().iter_rows())
        major = re.match(r"\d+", meta.get("EXPORT_SCHEMA_VERSION", ""))
        if major and int(major[0]) > _KNOWN_MAJOR:
            self._notes.add("unknown_schema_version")
        return meta

    def _note_losses(self) -> None:
        """What Nsight's own diagnostics say about lost records."""
        said = self._tables.read("DIAGNOSTIC_EVENT", texts("text"))["text"].drop_nulls().to_list()
        self._notes.add("possibly_incomplete", sum(bool(_INCOMPLETE.search(text)) for text in said))
        self._notes.add("lost_records", sum(bool(_DROPPED.search(text)) for text in said))

    def _tell(self, what: str, share: float) -> None:
        if self._progress:
            self._progress(what, share)


def _nothing(records: pl.DataFrame) -> str:
    """Why there is nothing to analyse."""
    if len(records):
        return f"none of its {len(records):,} GPU records has times that can be true; export it again"
    return "a trace without GPU activity; was CUDA traced (`nsys profile -t cuda,nvtx`)?"


def _with_name(frame: pl.DataFrame, name: pl.Expr, of: Sequence[str]) -> pl.DataFrame:
    """`frame` with the column `name`, found once for each distinct combination of the columns that it depends on."""
    names = frame.select(of).unique().with_columns(name.cast(pl.Categorical).alias("name"))
    return frame.join(names, on=of, how="left", nulls_equal=True, maintain_order="left")


def _int32(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.Int32, strict=False)


def _device() -> pl.Expr:
    return _int32(pl.col("deviceId")).fill_null(0)


def _process(column: str = "globalPid") -> pl.Expr:
    """The process of a global id as one number, 0 where the export does not say."""
    return pl.col(column).fill_null(0) // _PROCESS * _PROCESS


def _extent() -> tuple[pl.Expr, pl.Expr]:
    return pl.col("start").alias("start_ns"), (pl.col("end") - pl.col("start")).alias("duration_ns")


def _common(name: pl.Expr, kind: str) -> Iterable[pl.Expr]:
    graph = pl.when(pl.col("graphId") > 0).then("graphId").otherwise(pl.col("graphNodeId") // (1 << 32))
    return (
        name.cast(pl.Categorical).alias("name"),
        pl.lit(kind).cast(OPERATION_SCHEMA["kind"]).alias("kind"),
        _device().alias("device"),
        pl.col("streamId").fill_null(0).alias("stream"),
        *_extent(),
        pl.col("correlationId").alias("correlation"),
        pl.when(graph > 0).then(graph).alias("graph_id"),
        pl.col("contextId").fill_null(0).alias("context"),
        _process().alias("process"),
    )


def _host() -> Iterable[pl.Expr]:
    thread = pl.col("globalTid")
    return (
        *_extent(),
        (thread // _PROCESS % _PROCESS).alias("pid"),
        (thread % _PROCESS).alias("tid"),
    )


def _of(frame: pl.DataFrame, process: int, *, or_all: bool = False) -> pl.DataFrame:
    """The rows of one process. Correlation ids count per process, so those of another must not mix in.

    With `or_all`, all rows where the process has none: one process works the GPU, another one writes the markers.
    """
    own = frame.filter(pl.col("process") == process)
    return frame if or_all and own.is_empty() else own


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
