"""A trace's clean decode steps with what wavewise knows of them, as named tracks of slices.

One process for each device: steps, graph replays, gaps, one track for each kernel family (the union of its
intervals), the streams with their kernels, and the waves of each kernel. Both trace formats write this value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import polars as pl

from wavewise.decode import FAMILIES, FamilyRules, Segmentation, describe, segment
from wavewise.decode.intervals import IntArray, gaps, inside_any, merge
from wavewise.findings import KernelRow, StepRow
from wavewise.hardware import Catalogue, GpuSpec
from wavewise.report.words import family_words, percent, plural, short_path
from wavewise.trace import Trace
from wavewise.units import NS_PER_MS, format_ns

WAVES_DRAWN = 32
"""A kernel of more waves is not cut into them: they could not be told apart."""

Arguments = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class Slice:
    """One interval on a track; slices of a track are nested or apart."""

    name: str
    start_ns: int
    duration_ns: int
    category: str
    arguments: Arguments = field(default_factory=dict[str, "str | int | float | bool | None"])


@dataclass(frozen=True, slots=True)
class Track:
    """Slices that belong on one line, by start, longer first."""

    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """All tracks of one device of one trace."""

    name: str
    tracks: tuple[Track, ...]


def process(
    trace: Trace, device: int, *, rules: FamilyRules, gpus: Catalogue, gpu: GpuSpec | None = None
) -> Process | str:
    """The clean decode steps of one device; the reason why there are none in place of a process without any."""
    findings = describe(trace, device, rules=rules, gpus=gpus, gpu=gpu).findings
    found = segment(trace, device, sm_count=findings.gpu.sm_count)
    clean = [row for row in found.rows if row.clean]
    if not clean:
        return findings.decode_reason or "no decode step is clean"
    picked = _pick(found, clean, rules, findings.kernels)
    tracks = [
        Track("decode steps", tuple(_step(row, picked.bounds[row.index]) for row in clean)),
        Track("graph replays", tuple(_replays(found, picked))),
        Track("gaps", tuple(_gaps(found, picked))),
        *_families(picked),
        *_streams(picked),
        *_waves(picked),
    ]
    name = f"{short_path(trace.path)}: {findings.gpu.name or 'GPU'} (device {device})"
    return Process(name, tuple(_from(track, picked.origin_ns) for track in tracks if track.slices))


@dataclass(frozen=True, slots=True)
class _Picked:
    """What belongs to the clean steps.

    Attributes:
        bounds: step index to [start, end) of its step time.
        origin_ns: what becomes time 0.
        start_ns, end_ns, streams: int64 per operation.
        names, families, in_replay: per operation.
        kernels: the inventory row of each operation, None where it has none.
    """

    bounds: Mapping[int, tuple[int, int]]
    origin_ns: int
    start_ns: IntArray
    end_ns: IntArray
    streams: IntArray
    names: Sequence[str]
    families: Sequence[str]
    kernels: Sequence[KernelRow | None]
    in_replay: Sequence[bool]


def _pick(
    found: Segmentation, clean: Sequence[StepRow], rules: FamilyRules, inventory: Sequence[KernelRow]
) -> _Picked:
    operations = found.operations
    at = np.flatnonzero(np.isin(found.step, [row.index for row in clean]))
    frame = operations.frame[at].with_columns(pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String))
    names = frame["name"].to_list()
    batches = {row.index: row.batch_size for row in clean}
    keys = zip(
        (batches[index] for index in found.step[at].tolist()),
        names,
        zip(frame["grid_x"], frame["grid_y"], frame["grid_z"], strict=True),
        zip(frame["block_x"], frame["block_y"], frame["block_z"], strict=True),
        frame["registers_per_thread"],
        frame["shared_memory_bytes"],
        strict=True,
    )
    known = {
        (
            row.batch_size,
            row.name,
            row.grid,
            row.block,
            row.registers_per_thread,
            row.shared_memory_bytes,
        ): row
        for row in inventory
    }
    bounds = {row.index: _bounds(found, row) for row in clean}
    return _Picked(
        bounds=bounds,
        origin_ns=min([*(start for start, _ in bounds.values()), *operations.start_ns[at].tolist()]),
        start_ns=operations.start_ns[at],
        end_ns=operations.end_ns[at],
        streams=frame["stream"].to_numpy(),
        names=names,
        families=rules.classify(names, frame["kind"].to_list()),
        kernels=[known.get(key) for key in keys],
        in_replay=(operations.replay[at] >= 0).tolist(),
    )


def _bounds(found: Segmentation, row: StepRow) -> tuple[int, int]:
    """A step from the first operation of its replay to the next step's, as step time is defined."""
    own = found.replays.start_ns[(found.replay_step == row.index) & (found.replays.operations > 0)]
    start = int(own.min()) if len(own) else row.start_ns or 0
    return start, start + (row.step_ns or row.span_ns or 0)


def _step(row: StepRow, bounds: tuple[int, int]) -> Slice:
    size = "" if row.batch_size is None else f", batch {row.batch_size}"
    return Slice(
        f"decode step {row.index}{size}",
        bounds[0],
        bounds[1] - bounds[0],
        "step",
        {
            "batch_size": row.batch_size,
            "bucket": row.bucket,
            "step_ms": _milliseconds(row.step_ns),
            "gpu_span_ms": _milliseconds(row.span_ns),
            "busy_ms": _milliseconds(row.busy_ns),
            "operations": row.operations,
            "marker": row.marker,
        },
    )


def _replays(found: Segmentation, picked: _Picked) -> list[Slice]:
    own = np.isin(found.replay_step, list(picked.bounds)) & (found.replays.operations > 0)
    return [
        Slice(
            f"replay of {plural(count, 'operation')}",
            int(start),
            int(end - start),
            "replay",
            {"operations": int(count)},
        )
        for start, end, count in zip(
            found.replays.start_ns[own], found.replays.end_ns[own], found.replays.operations[own], strict=True
        )
    ]


def _gaps(found: Segmentation, picked: _Picked) -> list[Slice]:
    """Stretches of clean steps in which the GPU ran nothing, whosever operations stand around them."""
    start, end = gaps(found.operations.start_ns, found.operations.end_ns)
    inside = inside_any(start, end, found.replays.start_ns, found.replays.end_ns)
    low = np.array([bounds[0] for bounds in picked.bounds.values()])
    high = np.array([bounds[1] for bounds in picked.bounds.values()])
    within = inside_any(start, end, low, high)
    return [
        Slice(
            f"{'intra-replay gap' if replayed else 'step boundary'} {format_ns(until - since)}",
            int(since),
            int(until - since),
            "gap",
            {"idle": "intra_replay" if replayed else "step_boundary"},
        )
        for since, until, replayed in zip(start[within], end[within], inside[within], strict=True)
    ]


def _families(picked: _Picked) -> list[Track]:
    """One track a family, in the order of the reports."""
    tracks: list[Track] = []
    own = np.array(picked.families)
    for family in FAMILIES:
        member = own == family
        start, end = merge(picked.start_ns[member], picked.end_ns[member])
        slices = [
            Slice(family_words(family), int(since), int(until - since), "family")
            for since, until in zip(start, end, strict=True)
        ]
        tracks.append(Track(f"family: {family_words(family)}", tuple(slices)))
    return tracks


def _streams(picked: _Picked) -> list[Track]:
    """The operations by stream; those that overlap on one stream get lines of their own."""
    tracks: list[Track] = []
    for stream in sorted(set(picked.streams.tolist())):
        at = np.flatnonzero(picked.streams == stream).tolist()
        slices = [
            Slice(
                picked.names[i],
                int(picked.start_ns[i]),
                int(picked.end_ns[i] - picked.start_ns[i]),
                picked.families[i],
                _kernel_arguments(picked.kernels[i], picked.families[i], picked.in_replay[i]),
            )
            for i in at
        ]
        tracks += _lanes(f"stream {stream}", slices)
    return tracks


def _kernel_arguments(kernel: KernelRow | None, family: str, in_replay: bool) -> Arguments:
    said: Arguments = {"family": family, "in_replay": in_replay}
    if kernel is not None and kernel.grid is not None:
        said |= {
            "grid": " x ".join(map(str, kernel.grid)),
            "block": " x ".join(map(str, kernel.block or ())),
            "registers_per_thread": kernel.registers_per_thread,
            "shared_memory_bytes": kernel.shared_memory_bytes,
            "ctas_per_sm": kernel.ctas_per_sm,
            "limiter": kernel.limiter,
            "occupancy": kernel.occupancy,
            "sm_coverage": kernel.sm_coverage,
            "waves": kernel.waves,
            "wave_efficiency": kernel.wave_efficiency,
        }
    return {key: value for key, value in said.items() if value is not None}


def _waves(picked: _Picked) -> list[Track]:
    """Each kernel as its waves of CTAs. Their number is computed, their equal length is a drawing's."""
    slices: list[Slice] = []
    for i, kernel in enumerate(picked.kernels):
        if kernel is None or kernel.waves is None or kernel.wave_efficiency is None:
            continue
        start, duration = int(picked.start_ns[i]), int(picked.end_ns[i] - picked.start_ns[i])
        said = f"{plural(kernel.waves, 'wave')}, {percent(kernel.wave_efficiency)} full"
        slices.append(Slice(said, start, duration, "waves", {"kernel": picked.names[i]}))
        if 2 <= kernel.waves <= WAVES_DRAWN:
            edges = np.linspace(0, duration, kernel.waves + 1).round().astype(int).tolist()
            slices += [
                Slice(
                    f"wave {number} of {kernel.waves}", start + low, high - low, "waves",
                    {"drawn": "waves are drawn equally long"},
                )
                for number, (low, high) in enumerate(pairwise(edges), start=1)
            ]  # fmt: skip
    return _lanes("waves", slices)


def _lanes(name: str, slices: Sequence[Slice]) -> list[Track]:
    """Spreads slices over as few lines as hold them nested or apart."""
    ordered = sorted(slices, key=lambda piece: (piece.start_ns, -piece.duration_ns))
    lanes: list[list[Slice]] = []
    open_until: list[list[int]] = []
    for piece in ordered:
        end = piece.start_ns + piece.duration_ns
        lane = _lane(piece.start_ns, end, open_until)
        if lane is None:
            lane = len(lanes)
            lanes.append([])
            open_until.append([])
        lanes[lane].append(piece)
        open_until[lane].append(end)
    return [
        Track(name if index == 0 else f"{name} ({index + 1})", tuple(lane))
        for index, lane in enumerate(lanes)
    ]


def _lane(start: int, end: int, open_until: list[list[int]]) -> int | None:
    """The first line on which a slice is apart from, or within, everything that is still open."""
    for index, ends in enumerate(open_until):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            return index
    return None


def _from(track: Track, origin_ns: int) -> Track:
    """The track with its times counted from `origin_ns`."""
    return Track(
        track.name,
        tuple(
            Slice(piece.name, piece.start_ns - origin_ns, piece.duration_ns, piece.category, piece.arguments)
            for piece in sorted(track.slices, key=lambda piece: (piece.start_ns, -piece.duration_ns))
        ),
    )


def _milliseconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS
