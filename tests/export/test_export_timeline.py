"""Timelines: both formats, against the raw trace and against each other."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.decode import FamilyRules
from wavewise.hardware import catalogue
from wavewise.report.export import Process, Slice, chrome_trace, perfetto_trace, process
from wavewise.report.export.tracks import _lanes
from wavewise.trace import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4" / "context4k" / "bs064.json.gz"


@pytest.fixture(scope="module")
def made() -> Process:
    trace = next(iter(read(EXAMPLE)))
    found = process(trace, 0, rules=FamilyRules.load(), gpus=catalogue(None))
    assert isinstance(found, Process)
    return found


def track(made: Process, name: str) -> list[Slice]:
    return [piece for each in made.tracks if each.name == name for piece in each.slices]


def kernels(made: Process) -> list[Slice]:
    return [piece for each in made.tracks if each.name.startswith("stream") for piece in each.slices]


def raw() -> tuple[list[dict], list[dict]]:
    """GPU operations and step markers of the trace file."""
    events = json.loads(gzip.decompress(EXAMPLE.read_bytes()))["traceEvents"]
    operations = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    steps = [
        e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("execute_context")
    ]
    return operations, sorted(steps, key=lambda e: e["ts"])


def test_six_clean_steps_with_their_times(made: Process) -> None:
    steps = track(made, "decode steps")
    assert [piece.name for piece in steps] == [f"decode step {i}, batch 64" for i in range(1, 7)]
    for one, following in pairwise(steps):
        # Step time runs to the next step's first replay operation, so clean neighbours touch.
        assert one.start_ns + one.duration_ns == following.start_ns
    assert all(piece.arguments["bucket"] == 64 for piece in steps)
    assert min(piece.start_ns for each in made.tracks for piece in each.slices) == 0


def test_operations_are_the_clean_steps_own(made: Process) -> None:
    operations, markers = raw()
    launches = {
        e["args"]["correlation"]: e["ts"]
        for e in json.loads(gzip.decompress(EXAMPLE.read_bytes()))["traceEvents"]
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    first, last = markers[1]["ts"], markers[7]["ts"]
    own = [e for e in operations if first <= launches[e["args"]["correlation"]] < last]
    drawn = kernels(made)
    assert len(drawn) == len(own)
    assert sum(piece.duration_ns for piece in drawn) == sum(round(e["dur"] * 1000) for e in own)
    assert {piece.name for piece in drawn} == {e["name"] for e in own}


def union(pieces: Iterable[tuple[int, int]]) -> int:
    total, reached = 0, None
    for start, end in sorted(pieces):
        total += max(0, end - max(start, reached if reached is not None else start))
        reached = max(end, reached if reached is not None else end)
    return total


def test_gaps_and_busy_time_make_up_each_step(made: Process) -> None:
    gaps, operations = track(made, "gaps"), kernels(made)
    steps = track(made, "decode steps")
    for step in steps[:-1]:  # operations of the step behind the last clean one are not drawn
        low, high = step.start_ns, step.start_ns + step.duration_ns
        busy = union(
            (max(o.start_ns, low), min(o.start_ns + o.duration_ns, high))
            for o in operations
            if o.start_ns < high and o.start_ns + o.duration_ns > low
        )
        idle = sum(g.duration_ns for g in gaps if low <= g.start_ns < high)
        assert busy + idle == step.duration_ns
    assert {piece.arguments["idle"] for piece in gaps} == {"intra_replay", "step_boundary"}


def test_families_are_unions_of_their_kernels(made: Process) -> None:
    drawn = [each for each in made.tracks if each.name.startswith("family")]
    assert len(drawn) >= 13
    intervals = defaultdict(list)
    for piece in kernels(made):
        intervals[piece.arguments["family"]].append((piece.start_ns, piece.start_ns + piece.duration_ns))
    lengths = {union(pieces) for pieces in intervals.values()}
    assert {sum(piece.duration_ns for piece in each.slices) for each in drawn} == lengths
    for each in drawn:
        for one, following in pairwise(each.slices):
            assert one.start_ns + one.duration_ns < following.start_ns


def test_waves_split_their_kernel(made: Process) -> None:
    waves = [piece for each in made.tracks if each.name.startswith("waves") for piece in each.slices]
    whole = [piece for piece in waves if "full" in piece.name]
    assert whole
    numbered = [piece for piece in waves if piece.name.startswith("wave ")]
    assert numbered
    for piece in whole:
        count = int(piece.name.split()[0])
        if not 2 <= count <= 32:
            continue
        inside = [
            n
            for n in numbered
            if n.name.endswith(f"of {count}")
            and piece.start_ns <= n.start_ns
            and n.start_ns + n.duration_ns <= piece.start_ns + piece.duration_ns
        ]
        assert sum(n.duration_ns for n in inside) >= piece.duration_ns


def well_formed(slices: list[tuple[int, int]]) -> bool:
    """Whether every two intervals are apart or one within the other."""
    open_until: list[int] = []
    for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if open_until and end > open_until[-1]:
            return False
        open_until.append(end)
    return True


def test_chrome_json_follows_the_format(made: Process) -> None:
    document = json.loads(chrome_trace([made, made]))
    assert document["displayTimeUnit"] == "ns"
    threads, lines, slices = set(), set(), defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            if event["name"] == "thread_name":
                threads.add((event["pid"], event["tid"]))
                lines.add(event["args"]["name"])
            continue
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert isinstance(event["args"], dict)
        start = round(event["ts"] * 1000)
        slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    assert set(slices) <= threads
    assert {"decode steps", "graph replays", "gaps", "family: MoE GEMM", "waves"} <= lines
    assert all(well_formed(each) for each in slices.values())


def test_protobuf_holds_the_same_slices(made: Process) -> None:
    pytest.importorskip("perfetto", reason="the perfetto package is not installed")
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    parsed = protos.Trace()
    parsed.ParseFromString(perfetto_trace([made]))
    names, keys, values, categories = {}, {}, {}, {}
    tracks, parents, open_slices = {}, {}, defaultdict(list)
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    said: dict[str, list[tuple[int, str, str, list[tuple[str, object]]]]] = defaultdict(list)
    reached: dict[int, int] = {}
    for packet in parsed.packet:
        assert packet.trusted_packet_sequence_id
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        for entry in packet.interned_data.event_categories:
            categories[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_names:
            keys[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            values[entry.iid] = entry.str.decode()
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
            parents[packet.track_descriptor.uuid] = packet.track_descriptor.parent_uuid
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= reached.get(event.track_uuid, 0), "events of a track are in order of time"
        reached[event.track_uuid] = packet.timestamp
        stack = open_slices[event.track_uuid]
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((names[event.name_iid], packet.timestamp))
            notes = [
                (keys[note.name_iid], values[note.string_value_iid])
                if note.WhichOneof("value") == "string_value_iid"
                else (keys[note.name_iid], getattr(note, note.WhichOneof("value")))
                for note in event.debug_annotations
            ]
            (category,) = [categories[iid] for iid in event.category_iids]
            said[tracks[event.track_uuid]].append((packet.timestamp, names[event.name_iid], category, notes))
        else:
            assert event.type == protos.TrackEvent.TYPE_SLICE_END
            name, start = stack.pop()
            found[tracks[event.track_uuid]].append((name, start, packet.timestamp - start))
    assert not any(open_slices.values())
    assert sum(parent == 0 for parent in parents.values()) == 1
    for each in made.tracks:
        assert sorted(found[each.name]) == sorted((p.name, p.start_ns, p.duration_ns) for p in each.slices)
        assert said[each.name] == [
            (
                p.start_ns,
                p.name,
                p.category,
                [(key, value) for key, value in p.arguments.items() if value is not None],
            )
            for p in each.slices
        ]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=25))
def test_lanes_hold_every_slice_once_and_are_well_formed(intervals: list[tuple[int, int]]) -> None:
    slices = [Slice(str(i), start, length, "x") for i, (start, length) in enumerate(intervals)]
    lanes = _lanes("stream 7", slices)
    assert sorted(p.name for lane in lanes for p in lane.slices) == sorted(p.name for p in slices)
    for lane in lanes:
        assert well_formed([(p.start_ns, p.start_ns + p.duration_ns) for p in lane.slices])
    assert [lane.name for lane in lanes] == [
        f"stream 7{f' ({i + 1})' if i else ''}" for i in range(len(lanes))
    ]
