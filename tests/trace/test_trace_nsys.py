"""What an Nsight Systems export says, by schema version: every one is read as SQLite and as Parquet."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trace_samples import codes

from support.nsys_export import GRAPHS, KERNEL, NVTX, RUNTIME, NsysExport, pid
from wavewise.errors import NothingToAnalyzeError


@pytest.fixture
def export(tmp_path: Path) -> NsysExport:
    return NsysExport(tmp_path / "trace.sqlite")


def test_kernels_copies_launches_and_markers(export: NsysExport) -> None:
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


@pytest.mark.parametrize("version", ["1.7", "2.7.1", "3.28.1", None])
def test_what_an_older_schema_lacks_is_null(tmp_path: Path, version: str | None) -> None:
    export = NsysExport(tmp_path / "old.sqlite", version)
    export.kernels([{}], without=("graphNodeId", "graphId", "globalPid"))
    (trace,) = export.read()
    assert trace.operations["graph_id"].to_list() == [None]
    assert trace.operations["correlation"].to_list() == [11]
    assert trace.launches.is_empty()
    assert trace.devices == ()
    assert trace.warnings == ()


def test_a_newer_major_version_is_said(tmp_path: Path) -> None:
    export = NsysExport(tmp_path / "new.sqlite", "4.0.0")
    export.kernels([{}])
    (trace,) = export.read()
    assert codes(trace) == {"unknown_schema_version": 1}


@pytest.mark.parametrize("suffix", ["_V2", "_V3"])
def test_the_newest_table_with_rows_is_read(export: NsysExport, suffix: str) -> None:
    export.kernels([{"start": 5, "end": 6}])
    export.kernels([{}, {"start": 2000, "end": 2100}], table=f"CUPTI_ACTIVITY_KIND_KERNEL{suffix}")
    export.kernels([], table="CUPTI_ACTIVITY_KIND_KERNEL_V9")
    (trace,) = export.read()
    assert trace.operations["start_ns"].to_list() == [1000, 2000]


def test_processes_keep_their_correlation_ids_apart(export: NsysExport) -> None:
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


def test_markers_of_another_process_serve_the_only_one_that_works_the_gpu(export: NsysExport) -> None:
    export.kernels([{}])
    export.table("NVTX_EVENTS", NVTX, [(50, 900, 59, "step", pid(70) + 1, None)])
    (trace,) = export.read()
    assert len(trace.markers) == 1


def test_several_gpus_of_one_process_are_one_trace(export: NsysExport) -> None:
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


def test_graphs_recorded_as_wholes_beside_other_work(export: NsysExport) -> None:
    export.kernels([{}])
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, [(2000, 9000, 0, 4, 5, 7, 21, pid(80))])
    (trace,) = export.read()
    assert len(trace.operations) == 1
    assert trace.whole_graphs.rows() == [(0, 7, 2000, 7000, 21, 4)]
    (warning,) = trace.warnings
    assert warning.code == "graphs_as_wholes"
    assert "--cuda-graph-trace=node" in warning.message
    assert set(warning.unsafe) == {"idle", "steps", "kernels"}


def test_graphs_recorded_as_wholes_and_nothing_else(export: NsysExport) -> None:
    graphs = [
        (2000, 9000, 0, 4, 5, 7, 21, pid(80)),
        (9500, 9400, 0, 4, 5, 7, 22, pid(80)),
        (9600, None, 0, 4, 5, 7, 23, pid(80)),
    ]
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, graphs)
    (trace,) = export.read()
    assert trace.operations.is_empty()
    assert trace.device_ids() == [0]
    assert trace.whole_graphs.rows() == [(0, 7, 2000, 7000, 21, 4)]
    assert codes(trace) == {"graphs_as_wholes": 1}


def test_an_export_without_gpu_work(export: NsysExport) -> None:
    export.kernels([])
    with pytest.raises(NothingToAnalyzeError, match="without GPU activity"):
        export.read()


def test_rows_that_cannot_be_true_are_set_aside(export: NsysExport) -> None:
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


def test_values_of_the_wrong_type_are_read_as_missing(export: NsysExport) -> None:
    export.kernels([{"gridX": "wide", "registersPerThread": 2.5, "demangledName": None, "shortName": None}])
    (trace,) = export.read()
    assert trace.operations["grid_x"].to_list() == [None]
    assert trace.operations["registers_per_thread"].to_list() == [None]
    assert trace.operations["name"].to_list() == ["(unnamed kernel)"]


def test_what_nsight_says_it_lost_is_a_warning(export: NsysExport) -> None:
    export.kernels([{}])
    export.table(
        "DIAGNOSTIC_EVENT",
        ("timestamp", "severity", "text"),
        [(0, 2, "Not all CUDA events might have been collected."), (0, 2, "Dropped 10 CUDA events"),
         (0, 1, "No NVTX events collected. Does the process use NVTX?")],
    )  # fmt: skip
    (trace,) = export.read()
    assert codes(trace) == {"lost_records": 1, "possibly_incomplete": 1}


def test_ids_that_use_all_64_bits(export: NsysExport) -> None:
    high = ((0xFE << 56) | (80 << 24)) - (1 << 64)  # SQLite holds it as signed, Parquet as unsigned
    export.kernels([{"globalPid": high}, {"start": 2000, "end": 2100, "globalPid": pid(80)}])
    export.table("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, [(100, 110, 0, high + 81, 11, 4, 0)])
    first, second = export.read()
    assert first.launches.select("pid", "tid").rows() == [(80, 81)]
    assert len(second.launches) == 0


@pytest.mark.parametrize(("kind", "name"), [(1, "HtoD"), (10, "PtoP"), (13, "UVM DtoD"), (99, "unknown")])
def test_copies_by_their_direction(export: NsysExport, kind: int, name: str) -> None:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "copyKind")
    export.table("CUPTI_ACTIVITY_KIND_MEMCPY", columns, [(3000, 3100, 0, 7, 12, kind)])
    (trace,) = export.read()
    assert trace.operations["name"].to_list() == [f"Memcpy {name}"]


def test_kernels_whose_names_are_lost_stay_apart(export: NsysExport) -> None:
    export.table("StringIds", ("id", "value"), [(1, "a second string of the same id")])
    kernels: list[dict[str, Any]] = [
        {"demangledName": 1},
        {"demangledName": 901, "shortName": 2},
        {"demangledName": 901, "shortName": 902},
        {"demangledName": 903, "shortName": 902},
        {"demangledName": None, "shortName": None},
    ]
    export.kernels(
        [{"start": 1000 * i, "end": 1000 * i + 9, **kernel} for i, kernel in enumerate(kernels, 1)]
    )
    (trace,) = export.read()
    assert trace.operations["name"].to_list() == [
        "void gemm<4>(int)", "gemm", "(unnamed kernel 901)", "(unnamed kernel 903)", "(unnamed kernel)",
    ]  # fmt: skip


def test_ranges_of_an_export_without_event_types(export: NsysExport) -> None:
    export.kernels([{}])
    columns = ("start", "end", "text", "globalTid")
    export.table("NVTX_EVENTS", columns, [(50, 900, "step", pid(80) + 81), (80, None, "mark", pid(80) + 81)])
    (trace,) = export.read()
    assert trace.markers["name"].to_list() == ["step"]


def test_an_empty_text_gives_way_to_the_string_of_its_id(export: NsysExport) -> None:
    export.kernels([{}])
    export.table("NVTX_EVENTS", NVTX, [(50, 900, 59, "", pid(80) + 81, 5)])
    (trace,) = export.read()
    assert trace.markers["name"].to_list() == ["step"]


def test_a_process_numbers_the_gpus_that_it_sees(export: NsysExport) -> None:
    export.kernels([{"globalPid": pid(80)}, {"globalPid": pid(90)}, {"globalPid": pid(70), "deviceId": 1}])
    export.table(
        "TARGET_INFO_GPU",
        ("id", "name", "smCount", "cuDevice"),
        [(0, "NVIDIA H200", 132, 0), (1, "NVIDIA B200", 148, 1)],
    )
    columns = ("gpuId", "cudaId", "pid", "numMultiprocessors")
    export.table("TARGET_INFO_CUDA_DEVICE", columns, [(0, 0, 80, 132), (1, 0, 90, 70), (7, 0, 70, 1)])
    seen = [
        (gpu.name, gpu.sm_count)
        for trace in export.read()
        if (gpu := trace.properties_of(trace.device_ids()[0]))
    ]
    assert seen == [("NVIDIA H200", 132), ("NVIDIA B200", 70), ("NVIDIA B200", 148)]


def test_each_process_tells_its_own_whole_graphs(export: NsysExport) -> None:
    export.kernels([{"globalPid": pid(80)}, {"globalPid": pid(90), "deviceId": 1}])
    graphs = [(2000, 9000, 0, 4, 5, 7, 21, pid(80)), (9100, 9900, 0, 4, 5, 7, 22, pid(80))]
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, graphs)
    first, second = export.read()
    assert codes(first) == {"graphs_as_wholes": 2}
    assert codes(second) == {}


def test_an_export_of_which_no_record_can_be_true(export: NsysExport) -> None:
    export.kernels([{"start": 1000.5}, {"end": None}])
    with pytest.raises(NothingToAnalyzeError, match="none of its 2 GPU records has times that can be true"):
        export.read()


FULL = (
    "StringIds", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_GPU",
)  # fmt: skip


@pytest.mark.parametrize("lost", FULL)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_table_that_is_missing_or_empty_costs_what_it_held(export: NsysExport, lost: str, how: str) -> None:
    export.kernels([{}])
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "copyKind")
    export.table("CUPTI_ACTIVITY_KIND_MEMCPY", columns, [(3000, 3100, 0, 7, 12, 1)])
    export.table("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, [(100, 110, 0, pid(80) + 1, 11, 4, 0)])
    export.table("NVTX_EVENTS", NVTX, [(50, 900, 59, "step", pid(80) + 81, None)])
    export.table("TARGET_INFO_GPU", ("id", "name", "cuDevice"), [(0, "NVIDIA H200", 0)])
    export.run(f'DROP TABLE "{lost}"' if how == "missing" else f'DELETE FROM "{lost}"')
    (trace,) = export.read()
    kept = {
        "StringIds": "(unnamed kernel 1)" not in trace.operations["name"],
        "META_DATA_EXPORT": trace.metadata != {},
        "CUPTI_ACTIVITY_KIND_KERNEL": "kernel" in trace.operations["kind"],
        "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy" in trace.operations["kind"],
        "CUPTI_ACTIVITY_KIND_RUNTIME": len(trace.launches) == 1,
        "NVTX_EVENTS": len(trace.markers) == 1,
        "TARGET_INFO_GPU": len(trace.devices) == 1,
    }
    assert [name for name, there in kept.items() if not there] == [lost]


def test_records_that_do_not_say_their_process_belong_to_the_only_one(export: NsysExport) -> None:
    export.kernels([{}])
    export.table("CUPTI_ACTIVITY_KIND_MEMSET", ("start", "end", "globalPid"), [(3000, 3100, None)])
    (trace,) = export.read()
    assert len(trace.operations) == 2


@pytest.mark.parametrize("column", KERNEL)
def test_any_column_may_be_missing(export: NsysExport, column: str) -> None:
    export.kernels([{}], without=(column,))
    export.table("CUPTI_ACTIVITY_KIND_MEMSET", ("start", "end"), [(3000, 3100)])
    (trace,) = export.read()
    assert len(trace.operations) == (1 if column in ("start", "end") else 2)


def test_a_table_with_none_of_the_columns_still_has_its_rows(export: NsysExport) -> None:
    export.kernels([{}])
    export.table("CUPTI_ACTIVITY_KIND_MEMSET", ("value",), [(0,), (1,)])
    (trace,) = export.read()
    assert codes(trace) == {"missing_time": 2}
