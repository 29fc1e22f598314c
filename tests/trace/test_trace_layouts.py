"""Every layout and packing gives the same values, to the nanosecond, by every path through the reader."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from trace_samples import (
    BASE_US,
    HEADER,
    LAYOUTS,
    Number,
    codes,
    event,
    expected,
    kernel,
    kineto,
    steps,
    us,
    values,
)

from wavewise.errors import InputError
from wavewise.trace import Trace, read
from wavewise.trace.kineto import sharing, workers
from wavewise.trace.source import Limits

SMALL_BLOCKS = replace(Limits(), block_bytes=1500)
"""Smaller than an event and its neighbour together: nearly every cut there can be is made."""


def read_one(path: Path, limits: Limits | None = None) -> Trace:
    traces = read(path, limits=limits)
    assert len(traces) == 1
    return traces[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
def test_layouts_agree_with_an_independent_reading(tmp_path: Path, layout: str, packing: str) -> None:
    text = LAYOUTS[layout](steps())
    path = tmp_path / "anything"
    pack = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[packing]
    path.write_bytes(pack(text))
    for limits in (None, SMALL_BLOCKS):
        trace = read_one(path, limits)
        assert values(trace) == expected(text)
        assert set(codes(trace)) <= {"sm_count_inferred"}  # where the layout has no place for the header
        assert not trace.salvaged
        assert trace.events_read == len(steps())
        if layout not in ("bare_list", "lines_of_json"):
            assert trace.rank == 3
            assert trace.metadata["world_size"] == 4
            assert trace.devices[0].sm_count == 132
            assert trace.devices[0].compute_capability == "9.0"


def test_kinetos_own_layout_takes_the_fast_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs: list[str] = []
    one = workers.read_block

    def spy(*args: Any) -> Any:
        result = one(*args)
        rungs.append(result.rung)
        return result

    monkeypatch.setattr(workers, "read_block", spy)
    path = tmp_path / "trace.json"
    path.write_bytes(kineto(steps()))
    read_one(path, SMALL_BLOCKS)
    assert len(rungs) > 10
    assert rungs.count("scan") >= len(rungs) - 1  # the last block holds what follows the list, too
    assert set(rungs) <= {"scan", "typed"}


PACKINGS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gzip": gzip.compress}


@cache
def many_steps() -> bytes:
    """Text of many blocks."""
    return kineto(steps(800))


SHARED_BLOCKS = replace(Limits(), block_bytes=10_000)


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes files of any size pay for a number of processes."""

    def use(processes: int) -> None:
        monkeypatch.setattr(workers, "PAYS_FROM_BYTES", 1000)
        monkeypatch.setattr(workers, "PAYS_FROM_PACKED_BYTES", 1000)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processes)))

    return use


@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_several_processes_give_the_same_frames(
    tmp_path: Path,
    several: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    packing: str,
    processes: int,
) -> None:
    pack = {**PACKINGS, "zstd": zstandard.ZstdCompressor().compress}[packing]
    text = many_steps()
    path = tmp_path / "trace.json"
    path.write_bytes(pack(text))
    alone = read_one(path, SHARED_BLOCKS)
    started: list[int] = []
    fork = os.fork
    several(processes)
    monkeypatch.setattr(os, "fork", lambda: started.append(1) or fork())
    monkeypatch.setattr(workers, "_complete", lambda *_: pytest.fail("blocks were left unread"))
    together = read_one(path, SHARED_BLOCKS)
    assert len(started) == processes - 1
    for name in ("operations", "rejected", "launches", "markers"):
        assert getattr(alone, name).equals(getattr(together, name)), name
    assert alone.events_read == together.events_read
    assert alone.warnings == together.warnings


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_helper_that_dies_costs_time_not_the_result(
    tmp_path: Path, several: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    text = many_steps()
    path = tmp_path / "trace.json"
    path.write_bytes(PACKINGS[packing](text))
    several(2)
    parent = os.getpid()
    one = workers.read_block

    def dies(*args: Any) -> Any:
        if os.getpid() != parent:
            os._exit(9)
        return one(*args)

    monkeypatch.setattr(workers, "read_block", dies)
    assert values(read_one(path, SHARED_BLOCKS)) == expected(text)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("taken", [0, 3])
def test_a_helper_that_dies_with_a_number_in_its_hands_does_not_hang_the_parent(
    tmp_path: Path, several: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, packing: str, taken: int
) -> None:
    text = many_steps()
    path = tmp_path / "trace.json"
    # Damaged at its end: what is said of the packing must survive, too.
    path.write_bytes(PACKINGS[packing](text)[: -4 if packing == "gzip" else None])
    several(2)
    monkeypatch.setattr(sharing, "_PATIENCE_S", 0.5)
    parent = os.getpid()
    read_fd = os.read
    numbers: list[bytes] = []

    def takes_and_dies(fd: int, size: int) -> bytes:
        data = read_fd(fd, size)
        if os.getpid() != parent and size in (8, 24):
            numbers.append(data)
            if len(numbers) > taken:
                os._exit(9)
        return data

    monkeypatch.setattr(os, "read", takes_and_dies)
    trace = read_one(path, SHARED_BLOCKS)
    assert values(trace) == expected(text)
    assert [warning.code for warning in trace.warnings] == ["truncated_compression"] * (packing == "gzip")


def test_an_event_longer_than_the_ring_is_read_all_the_same(
    tmp_path: Path, several: Callable[[int], None]
) -> None:
    events = steps(1200)
    long = kernel(10**6, BASE_US * 1000 + 10**10, 5)
    long["name"] = "k" * 700_000
    text = kineto([*events[:4000], long, *events[4000:]])
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text))
    several(3)
    assert values(read_one(path, SHARED_BLOCKS)) == expected(text)


@pytest.mark.parametrize("pieces", [[1], [7, 100, 3], [64], [1000]])
@pytest.mark.parametrize("size", [100, 64])
def test_the_ring_holds_the_last_bytes_of_the_text(pieces: list[int], size: int) -> None:
    text = os.urandom(5000)
    cut: list[bytes] = []
    at = 0
    while at < len(text):
        for length in pieces:
            cut.append(text[at : at + length])
            at += length
    source = iter([piece for piece in cut if piece])
    ring = sharing._Ring(40, size)  # pyright: ignore[reportPrivateUsage]
    oldest = 0
    while not ring.ended:
        while ring.unpack(source, until=oldest + size) and not ring.ended:
            assert ring.unpacked <= oldest + size
        for start in range(oldest, ring.unpacked, 13):
            for length in (0, 1, 5, ring.unpacked - start):
                assert ring.at(40 + start, length) == text[start : start + length]
        if not ring.ended:
            with pytest.raises(sharing._NotInRingError):  # pyright: ignore[reportPrivateUsage]
                ring.at(40 + oldest, ring.unpacked - oldest + 1)
        oldest = ring.unpacked - 9
    assert ring.unpacked == len(text)
    assert ring.at(40 + 4990, 100) == text[4990:]


def test_no_process_and_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(kineto(steps(100)) + b" " * 3_000_000))
    monkeypatch.setattr(workers, "PAYS_FROM_PACKED_BYTES", 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    limits = SHARED_BLOCKS
    before = len(os.listdir("/proc/self/fd"))
    read_one(path, limits)
    for refused in (replace(limits, text_bytes=200_000), replace(limits, text_bytes=1_000_000)):
        with pytest.raises(InputError):
            read(path, limits=refused)
    assert len(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_reading_begins_before_polars_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kineto(steps(200)))
    code = """
import os, sys
from wavewise.trace import read
from wavewise.trace.kineto import workers
fork, loaded = os.fork, []
def counted():
    loaded.append("polars" in sys.modules)
    return fork()
os.fork, os.sched_getaffinity, workers.PAYS_FROM_BYTES = counted, lambda pid: {0, 1, 2}, 1000
print(len(read(sys.argv[1])[0].operations), loaded)
"""
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{len(read_one(path).operations)} [False, False]\n"


def test_small_traces_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> int:
        raise AssertionError("a process was started for a small trace")

    monkeypatch.setattr(os, "fork", forbidden)
    path = tmp_path / "trace.json"
    path.write_bytes(kineto(steps(200)))
    read_one(path)


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("1790857026000123.457", 1790857026000123457),  # more digits than a double holds
        ("1790857026000123", 1790857026000123000),
        ("1790857026000123.5", 1790857026000123500),
        ("12.0005", 12000), ("12.0015", 12002), ("12.00051", 12001),  # half to even, then above half
        ("1.5e3", 1500000), ("1E2", 100000), ("0.001", 1),
        ('"5121164781681.254"', 5121164781681254), ('" 12.5 "', 12500),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["kineto", "compact", "indented"])
def test_time_stamps_are_read_from_their_digits(
    tmp_path: Path, layout: str, written: str, nanoseconds: int
) -> None:
    one = kernel(1, BASE_US, 1000)
    one["ts"] = Number(written)
    path = tmp_path / "trace.json"
    path.write_bytes(LAYOUTS[layout]([one]))
    assert read_one(path).operations["start_ns"].to_list() == [nanoseconds]


def test_durations_of_any_width(tmp_path: Path) -> None:
    durations = [0, 1, 999, 1000, 99_999_999, 12_345_678_901_234]
    events = [kernel(i, BASE_US * 1000 + i * 10**14, ns, stream=i) for i, ns in enumerate(durations)]
    path = tmp_path / "trace.json"
    for layout in ("kineto", "compact"):
        path.write_bytes(LAYOUTS[layout](events))
        assert sorted(read_one(path).operations["duration_ns"].to_list()) == durations


def test_display_unit_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for unit in ("ms", "ns"):
        path.write_bytes(kineto([kernel(1, 5_000_000_000, 7)], HEADER | {"displayTimeUnit": unit}))
        assert read_one(path).operations["start_ns"].to_list() == [5_000_000_000]


def test_device_and_stream_come_from_pid_and_tid_where_arguments_lack_them(tmp_path: Path) -> None:
    bare = {
        key: value for key, value in kernel(1, 10**12, 5)["args"].items() if key not in ("device", "stream")
    }
    events = [
        event("kernel", "k", 10**12, 5, pid=3, tid=9, args=bare),
        event("kernel", "k", 10**12 + 100, 5, pid="GPU 3", tid="stream 11", args=bare),
    ]
    path = tmp_path / "trace.json"
    for layout in ("kineto", "compact"):
        path.write_bytes(LAYOUTS[layout](events))
        operations = read_one(path).operations
        assert operations["device"].to_list() == [3, 3]
        assert operations["stream"].to_list() == [9, 11]


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented"])
def test_arguments_are_told_apart_wherever_their_ids_stand(tmp_path: Path, layout: str) -> None:
    """The same arguments but for one of them, and ids at any place among them."""
    order = ["device", "External id", "stream", "correlation", "registers per thread"]
    events = []
    for i in range(48):
        args = {
            "device": i % 2,
            "External id": i,
            "stream": 7 + i % 3,
            "correlation": 50 + i,
            "registers per thread": i % 4,
        }
        turned = order[i % 5 :] + order[: i % 5]
        nested = {"note": {"correlation": 1}} if i % 7 == 0 else {}
        args = nested | {key: args[key] for key in turned}
        events.append(event("kernel", "k", 10**12 + 1000 * i, 900, pid=0, tid=7, args=args))
    text = LAYOUTS[layout](events)
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    for limits in (None, SMALL_BLOCKS):
        assert values(read_one(path, limits)) == expected(text)


def test_categories_of_old_releases(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime"}
    new = steps()
    renamed = [one | {"cat": old.get(one["cat"], one["cat"])} for one in new]
    renamed += [
        event("Operator", "ProfilerStep#2", BASE_US * 1000, 10),
        event("Operator", "aten::mm", BASE_US * 1000, 10),
    ]
    path = tmp_path / "trace.json"
    for layout in ("kineto", "one_line"):
        path.write_bytes(LAYOUTS[layout](renamed))
        trace = read_one(path)
        want = expected(kineto(new))
        got = values(trace)
        assert got["operations"] == want["operations"]
        assert got["launches"] == want["launches"]
        assert [row[0] for row in got["markers"]].count("ProfilerStep#2") == 1
        assert len(got["markers"]) == len(want["markers"]) + 1


def test_gpu_side_copies_of_markers_are_no_markers(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        kineto([*steps(2), event("gpu_user_annotation", "execute", BASE_US * 1000, 10, pid=0, tid=7)])
    )
    assert len(read_one(path).markers) == 2


@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize(
    "cat", ["cuda_runtme", "kernel2", "gpu_memcpy_peer", "user_annoyance", "cuda_sync", "", "Trace"]
)
def test_unknown_categories_are_not_kept(tmp_path: Path, layout: str, cat: str) -> None:
    text = LAYOUTS[layout]([*steps(2), event(cat, "x", BASE_US * 1000, 10, args={"device": 0, "stream": 7})])
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    trace = read_one(path)
    assert values(trace) == expected(text)
    assert trace.events_read == len(steps(2)) + 1


def test_rocm_launches_and_kernels_without_geometry(tmp_path: Path) -> None:
    args = {"device": 2, "stream": 0, "correlation": 5, "kind": "Dispatch Kernel"}
    events = [
        event("cuda_runtime", "hipGraphLaunch", 10**12, 100, args={"cid": 1, "correlation": 5}),
        *[event("kernel", "k", 10**12 + 1000 * i, 900, pid=2, tid=0, args=args) for i in range(3)],
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    for layout in ("kineto", "one_line"):
        path.write_bytes(LAYOUTS[layout](events))
        trace = read_one(path)
        assert trace.launches["name"].to_list() == ["hipGraphLaunch"]
        assert trace.operations["grid_x"].to_list() == [None] * 3
        assert trace.operations["registers_per_thread"].to_list() == [None] * 3
        assert trace.operations["correlation"].to_list() == [5] * 3


def test_sm_count_is_inferred_from_blocks_per_sm_and_said_so(tmp_path: Path) -> None:
    def sized(i: int, grid: int) -> dict[str, Any]:
        blocks = Number(f"{grid / 148:.6f}")
        return kernel(i, 10**12 + 10_000 * i, 100, grid=[grid, 1, 1], **{"blocks per SM": blocks})

    path = tmp_path / "trace.json"
    path.write_bytes(
        kineto([sized(i, grid) for i, grid in enumerate([1, 64, 148, 999])], {"schemaVersion": 1})
    )
    trace = read_one(path)
    assert [(entry.id, entry.sm_count, entry.name) for entry in trace.devices] == [(0, 148, None)]
    assert [(w.code, w.unsafe) for w in trace.warnings] == [("sm_count_inferred", ("occupancy",))]
    contradicting = [sized(0, 148), sized(1, 148) | {"args": sized(1, 148)["args"] | {"grid": [300, 1, 1]}}]
    path.write_bytes(kineto(contradicting, {"schemaVersion": 1}))
    assert read_one(path).devices == ()


def test_frames_have_the_documented_order_and_types(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kineto(list(reversed(steps()))))
    trace = read_one(path)
    assert trace.operations["start_ns"].is_sorted()
    assert trace.launches["start_ns"].is_sorted()
    assert trace.markers["start_ns"].is_sorted()
    assert trace.operations.schema["name"] == pl.Categorical
    assert trace.launches.schema["correlation"] == pl.Int64
    assert us(trace.operations["start_ns"][0]).startswith(str(BASE_US + 5))
