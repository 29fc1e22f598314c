"""Nsight Systems exports of several schema versions, built here table by table."""

import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trace_samples import codes

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace import Trace, read

KERNEL = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory",
    "dynamicSharedMemory", "graphNodeId", "graphId",
)  # fmt: skip
RUNTIME = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue")
NVTX = ("start", "end", "eventType", "text", "globalTid", "textId")
STRINGS = {
    1: "void gemm<4>(int)",
    2: "gemm",
    3: "cudaGraphLaunch_v10000",
    4: "cudaLaunchKernel_ptsz_v7000",
    5: "step",
}


def pid(process: int) -> int:
    """A global process id, as Nsight serialises it."""
    return (1 << 48) | (process << 24)


class Export:
    """An export under construction."""

    def __init__(self, path: Path, version: str | None = "3.24.14") -> None:
        self.path = path
        self._db = sqlite3.connect(path)
        self.table("StringIds", ("id", "value"), list(STRINGS.items()))
        if version:
            self.table("META_DATA_EXPORT", ("name", "value"), [("EXPORT_SCHEMA_VERSION", version)])

    def table(self, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self._db.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        self._db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def kernels(
        self,
        rows: list[dict[str, Any]],
        table: str = "CUPTI_ACTIVITY_KIND_KERNEL",
        without: tuple[str, ...] = (),
    ) -> None:
        default = {
            "start": 1000, "end": 1500, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 11,
            "globalPid": pid(80), "demangledName": 1, "shortName": 2, "registersPerThread": 32, "gridX": 64, "gridY": 2,
            "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1, "staticSharedMemory": 64, "dynamicSharedMemory": 1024,
            "graphNodeId": None, "graphId": None,
        }  # fmt: skip
        columns = tuple(name for name in KERNEL if name not in without)
        self.table(table, columns, [tuple((default | row)[name] for name in columns) for row in rows])

    def read(self) -> list[Trace]:
        self._db.commit()
        self._db.close()
        return read(self.path)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "trace.sqlite")


def test_kernels_copies_launches_and_markers(export: Export) -> None:
    node = (4 << 32) | 1
    export.kernels(
        [{"graphNodeId": node}, {"start": 2000, "end": 2600, "graphNodeId": node + 1, "graphId": 9}]
    )
    copies = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "copyKind")
    export.table("CUPTI_ACTIVITY_KIND_MEMCPY", copies, [(3000, 3100, 0, 1, 7, 12, pid(80), 8)])
    export.table("CUPTI_ACTIVITY_KIND_MEMSET", copies[:-1], [(4000, 4010, 0, 1, 7, 13, pid(80))])
    export.table(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        RUNTIME,
        [(100, 180, 0, pid(80) + 81, 11, 3, 0), (200, 210, 0, pid(80) + 82, 12, 4, 0)],
    )
    export.table(
        "NVTX_EVENTS",
        NVTX,
        [
            (50, 900, 59, "execute_context_0(0)_generation_8(8)", pid(80) + 81, None),
            (60, 800, 60, None, pid(80) + 81, 5),
            (70, None, 59, "never ended", pid(80) + 81, None),
            (80, 90, 34, "a mark", pid(80) + 81, None),
        ],
    )
    (trace,) = export.read()
    assert trace.source == "nsys"
    rows = trace.operations.with_columns(pl.col("name", "kind").cast(pl.String)).rows()
    none = (None,) * 10
    assert rows == [
        ("void gemm<4>(int)", "kernel", 0, 7, 1000, 500, 11, 4, 64, 2, 1, 256, 1, 1, 32, 1088, None, None),
        ("void gemm<4>(int)", "kernel", 0, 7, 2000, 600, 11, 9, 64, 2, 1, 256, 1, 1, 32, 1088, None, None),
        ("Memcpy DtoD", "memcpy", 0, 7, 3000, 100, 12, None, *none),
        ("Memset", "memset", 0, 7, 4000, 10, 13, None, *none),
    ]
    launches = trace.launches.with_columns(pl.col("name").cast(pl.String)).rows()
    assert launches == [("cudaGraphLaunch", 100, 80, 80, 81, 11), ("cudaLaunchKernel", 200, 10, 80, 82, 12)]
    assert trace.markers.rows() == [
        ("execute_context_0(0)_generation_8(8)", 50, 850, 80, 81), ("step", 60, 740, 80, 81),
    ]  # fmt: skip
    assert codes(trace) == {"incomplete_host_record": 1}
    assert trace.metadata == {"schema_version": "3.24.14"}


@pytest.mark.parametrize("version", ["1.7", "2.7.1", "3.25.0", None])
def test_what_an_older_schema_lacks_is_null(tmp_path: Path, version: str | None) -> None:
    export = Export(tmp_path / "old.sqlite", version)
    export.kernels([{}], without=("graphNodeId", "graphId", "globalPid"))
    (trace,) = export.read()
    assert trace.operations["graph_id"].to_list() == [None]
    assert trace.operations["correlation"].to_list() == [11]
    assert trace.launches.is_empty()
    assert trace.devices == ()
    assert trace.warnings == ()


def test_a_newer_major_version_is_said(tmp_path: Path) -> None:
    export = Export(tmp_path / "new.sqlite", "4.0.0")
    export.kernels([{}])
    (trace,) = export.read()
    assert codes(trace) == {"unknown_schema_version": 1}


@pytest.mark.parametrize("suffix", ["_V2", "_V3"])
def test_the_newest_table_with_rows_is_read(export: Export, suffix: str) -> None:
    export.kernels([{"start": 5, "end": 6}])
    export.kernels([{}, {"start": 2000, "end": 2100}], table=f"CUPTI_ACTIVITY_KIND_KERNEL{suffix}")
    export.kernels([], table="CUPTI_ACTIVITY_KIND_KERNEL_V9")
    (trace,) = export.read()
    assert trace.operations["start_ns"].to_list() == [1000, 2000]


def test_processes_keep_their_correlation_ids_apart(export: Export) -> None:
    export.kernels(
        [
            {"globalPid": pid(90), "deviceId": 1, "start": 3000, "end": 3500},
            {"globalPid": pid(80), "deviceId": 0},
            {"globalPid": pid(90), "deviceId": 1, "correlationId": 12, "start": 4000, "end": 4500},
        ]
    )
    export.table(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        RUNTIME,
        [(100, 110, 0, pid(80) + 1, 11, 3, 0), (200, 210, 0, pid(90) + 1, 11, 3, 0)],
    )
    export.table("NVTX_EVENTS", NVTX, [(50, 900, 59, "step", pid(90) + 1, None)])
    first, second = export.read()
    assert (first.document, first.device_ids(), second.document, second.device_ids()) == (0, [0], 1, [1])
    assert first.launches["start_ns"].to_list() == [100]
    assert second.launches["start_ns"].to_list() == [200]
    assert len(first.markers) == 0
    assert len(second.markers) == 1


def test_markers_of_another_process_serve_the_only_one_that_works_the_gpu(export: Export) -> None:
    export.kernels([{}])
    export.table("NVTX_EVENTS", NVTX, [(50, 900, 59, "step", pid(70) + 1, None)])
    (trace,) = export.read()
    assert len(trace.markers) == 1


def test_several_gpus_of_one_process_are_one_trace(export: Export) -> None:
    export.kernels([{"deviceId": 1}, {"deviceId": 0, "start": 2000, "end": 2500}])
    gpu = ("id", "name", "smCount", "computeMajor", "computeMinor", "threadsPerWarp", "maxWarpsPerSm", "totalMemory",
           "maxShmemPerSm", "maxRegistersPerSm", "cuDevice")  # fmt: skip
    rows = [(5, "NVIDIA H200", 132, 9, 0, 32, 64, 1 << 37, 233472, 65536, 0),
            (6, "NVIDIA B200", 148, 10, 0, 32, 64, 1 << 37, 233472, 65536, 1)]  # fmt: skip
    export.table("TARGET_INFO_GPU", gpu, rows)
    (trace,) = export.read()
    assert trace.device_ids() == [0, 1]
    described = [trace.properties_of(device) for device in (0, 1)]
    assert [(one.name, one.sm_count, one.compute_capability) for one in described if one] == [
        ("NVIDIA H200", 132, "9.0"), ("NVIDIA B200", 148, "10.0"),
    ]  # fmt: skip
    assert described[0] is not None
    assert described[0].max_threads_per_sm == 2048


GRAPHS = ("start", "end", "deviceId", "graphId", "graphExecId", "streamId", "correlationId", "globalPid")


def test_graphs_recorded_as_wholes_beside_other_work(export: Export) -> None:
    export.kernels([{}])
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, [(2000, 9000, 0, 4, 5, 7, 21, pid(80))])
    (trace,) = export.read()
    assert len(trace.operations) == 1
    assert trace.whole_graphs.rows() == [(0, 7, 2000, 7000, 21, 4)]
    (warning,) = trace.warnings
    assert warning.code == "graphs_as_wholes"
    assert "--cuda-graph-trace=node" in warning.message
    assert set(warning.unsafe) == {"idle", "steps", "kernels"}


def test_graphs_recorded_as_wholes_and_nothing_else(export: Export) -> None:
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, [(2000, 9000, 0, 4, 5, 7, 21, pid(80))])
    with pytest.raises(NothingToAnalyzeError, match="--cuda-graph-trace=node"):
        export.read()


def test_an_export_without_gpu_work(export: Export) -> None:
    export.kernels([])
    with pytest.raises(NothingToAnalyzeError, match="without GPU activity"):
        export.read()


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "notes.sqlite") as db:
        db.execute("CREATE TABLE notes (body TEXT)")
    with pytest.raises(InputError, match="not a trace"):
        read(tmp_path / "notes.sqlite")


@pytest.mark.parametrize("keep", [16, 100, 5000])
def test_a_damaged_database_is_refused_in_one_line(export: Export, keep: int) -> None:
    export.kernels([{"start": 1000 * i, "end": 1000 * i + 10} for i in range(500)])
    export.read()
    export.path.write_bytes(export.path.read_bytes()[:keep])
    with pytest.raises(InputError) as caught:
        read(export.path)
    assert "\n" not in str(caught.value)


def test_rows_that_cannot_be_true_are_set_aside(export: Export) -> None:
    rows: list[dict[str, Any]] = [
        {"start": 10_000 + 1000 * i, "end": 10_500 + 1000 * i, "correlationId": 100 + i} for i in range(20)
    ]
    rows[3] |= {"end": 5}
    rows[5] |= {"end": 10**15}
    rows[7] |= {"end": None}
    rows[9] |= {"start": 0, "end": 0}
    export.kernels(rows)
    (trace,) = export.read()
    want = {"negative_duration": 1, "impossible_duration": 1, "missing_duration": 1, "zero_timestamp": 1}
    assert codes(trace) == want
    assert sorted(trace.rejected["reason"].to_list()) == sorted(want)
    assert len(trace.operations) == 16


def test_values_of_the_wrong_type_are_read_as_missing(export: Export) -> None:
    export.kernels([{"gridX": "wide", "registersPerThread": 2.5, "demangledName": None, "shortName": None}])
    (trace,) = export.read()
    assert trace.operations["grid_x"].to_list() == [None]
    assert trace.operations["registers_per_thread"].to_list() == [None]
    assert trace.operations["name"].to_list() == ["(unnamed kernel)"]


def test_what_nsight_says_it_lost_is_a_warning(export: Export) -> None:
    export.kernels([{}])
    export.table(
        "DIAGNOSTIC_EVENT",
        ("timestamp", "severity", "text"),
        [(0, 2, "Not all CUDA events might have been collected."), (0, 2, "Dropped 10 CUDA events"),
         (0, 1, "No NVTX events collected. Does the process use NVTX?")],
    )  # fmt: skip
    (trace,) = export.read()
    assert codes(trace) == {"lost_records": 1, "possibly_incomplete": 1}


def test_a_path_with_characters_of_a_uri(tmp_path: Path) -> None:
    export = Export(tmp_path / "100% #1 ?mode=rw.sqlite")
    export.kernels([{}])
    assert len(export.read()) == 1
