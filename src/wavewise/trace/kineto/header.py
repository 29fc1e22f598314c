"""What a document says around its list of events: the GPUs, the versions, the rank, the profiler's own log."""

import re
from typing import Any, cast

import msgspec

from wavewise.trace.kineto.repair import repair
from wavewise.trace.kineto.typed import UNREADABLE
from wavewise.trace.model import DeviceProperties
from wavewise.trace.notes import Notes

EVENT_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
"""The key of the list of events. Inside a string its quotes would be escaped."""

Header = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_DROPPED = re.compile(r"[Dd]ropped (\d+) (?:activity )?records?")
_STOPPED_EARLY = re.compile(r"CUPTI stopped early\? = 1")
_LOGS = ("INFO", "WARNING", "ERROR", "STAGE")


def read_header(text: bytes, notes: Notes) -> Header:
    """The keys of the object `text`; of a damaged one, those that matter and can still be read."""
    mending = Notes()
    for attempt in (lambda: text, lambda: repair(text, mending)):
        try:
            header = _decode(attempt())
        except UNREADABLE:
            continue
        notes.update(mending)
        found = cast(Header, header) if isinstance(header, dict) else {}
        found.pop("traceEvents", None)
        return found
    notes.add("damaged_header")
    return _pieces(text)


def _pieces(text: bytes) -> Header:
    header: Header = {}
    for key in (b"deviceProperties", b"distributedInfo"):
        found = re.search(rb'"%b"\s*:\s*' % key, text)
        closing = b"]" if key == b"deviceProperties" else b"}"
        end = text.find(closing, found.end()) if found else -1
        for _ in range(64):
            if found is None or end < 0:
                break
            try:
                header[key.decode()] = _decode(text[found.end() : end + 1])
                break
            except UNREADABLE:
                end = text.find(closing, end + 1)
    return header


def devices_of(header: Header) -> tuple[DeviceProperties, ...]:
    """The header's GPU descriptions."""
    entries = _items(header.get("deviceProperties"))
    return tuple(
        _device(cast(Header, entry), i) for i, entry in enumerate(entries) if isinstance(entry, dict)
    )


def _device(entry: dict[str, Any], position: int) -> DeviceProperties:
    def number(*keys: str) -> int | None:
        for key in keys:
            value = entry.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    identity = entry.get("id")
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    return DeviceProperties(
        id=identity if isinstance(identity, int) else position,
        name=entry["name"] if isinstance(entry.get("name"), str) and entry["name"] else None,
        compute_capability=f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else None,
        sm_count=number("numSms"),
        warp_size=number("warpSize"),
        max_threads_per_cta=number("maxThreadsPerBlock"),
        max_threads_per_sm=number("maxThreadsPerMultiprocessor"),
        registers_per_sm=number("regsPerMultiprocessor"),
        # ROCm builds of Kineto write the second name.
        shared_memory_per_sm=number("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
        shared_memory_per_cta=number("sharedMemPerBlock"),
        shared_memory_per_cta_optin=number("sharedMemPerBlockOptin"),
        memory_bytes=number("totalGlobalMem"),
    )


def rank_of(header: Header) -> int | None:
    """The rank that wrote the document."""
    rank = _distributed(header).get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None


def metadata_of(header: Header) -> dict[str, str | int | float]:
    """Versions, sizes of the run, and the time base: what is short and says where the trace comes from."""
    wanted = (
        "schemaVersion", "trace_id", "displayTimeUnit", "baseTimeNanoseconds", "cuda_driver_version",
        "cuda_runtime_version", "cupti_version", "hip_driver_version", "hip_runtime_version",
        "roctracer_version", "pytorch_version",
    )  # fmt: skip
    found = {key: value for key in wanted if isinstance(value := header.get(key), str | int | float)}
    distributed = _distributed(header)
    for key in ("backend", "world_size", "nccl_version"):
        value = distributed.get(key)
        if isinstance(value, str | int):
            found[key] = value
    return found


def note_losses(header: Header, notes: Notes) -> None:
    """What the profiler's own log, kept in the header, says about records it lost.

    The sentences are those of libkineto's CuptiActivityApi.cpp ("Dropped N activity records") and
    CuptiActivityProfiler.cpp ("Record counts: ... CUPTI stopped early? = 1").
    """
    for key in _LOGS:
        for line in _items(header.get(key)):
            if not isinstance(line, str):
                continue
            notes.add("lost_records", sum(int(count) for count in _DROPPED.findall(line)))
            if _STOPPED_EARLY.search(line):
                notes.add("collection_stopped_early")


def _distributed(header: Header) -> dict[str, Any]:
    info = header.get("distributedInfo")
    return cast(Header, info) if isinstance(info, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
