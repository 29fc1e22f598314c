"""Clean steps -> decode rows: step time, gaps, families and launches per batch size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from wavewise.decode.intervals import IntArray, inside_any
from wavewise.decode.shares import FamilyTime, family_time
from wavewise.decode.steps import Segmentation
from wavewise.findings import DecodeRow, FamilyRow, GapSummary, Samples, StepRow, Summary, Timeline
from wavewise.units import NS_PER_MS, NS_PER_US

TIMELINE_LIMIT = 6_000
"""Most operations kept for the timeline of a step; a report drawn from more could not show them apart."""


@dataclass(frozen=True, slots=True)
class Point:
    """The clean steps of one batch size (of one bucket, where no marker tells the batch size).

    Attributes:
        batch_size: None when only structure is known.
        bucket: the most frequent captured size among the steps.
        steps: indices of the clean steps.
        inside: positions of the operations that count: the replays', or all own ones without replay.
        owned: positions of all operations of these steps.
        ordinal: int64 per operation of `inside`, which of `steps` it belongs to.
        owned_ordinal: likewise for `owned`.
        eager: the steps hold no replay.
    """

    batch_size: int | None
    bucket: int | None
    steps: tuple[StepRow, ...]
    inside: IntArray
    owned: IntArray
    ordinal: IntArray
    owned_ordinal: IntArray
    eager: bool


def points(segmentation: Segmentation) -> list[Point]:
    """Groups the clean steps by batch size, ascending; by bucket where the batch size is unknown."""
    groups: dict[tuple[int, int], list[StepRow]] = {}
    for row in segmentation.rows:
        if row.clean:
            key = (row.batch_size, -1) if row.batch_size is not None else (-1, row.bucket or -1)
            groups.setdefault(key, []).append(row)
    return [_point(segmentation, rows) for _, rows in sorted(groups.items())]


def _point(segmentation: Segmentation, rows: list[StepRow]) -> Point:
    ordinal_of = np.full(len(segmentation.rows) + 1, -1, np.int64)
    ordinal_of[[row.index for row in rows]] = np.arange(len(rows))
    ordinal = ordinal_of[segmentation.step]
    owned = np.flatnonzero(ordinal >= 0)
    eager = not any(row.graph_replays for row in rows)
    inside = owned if eager else owned[segmentation.operations.replay[owned] >= 0]
    buckets = [row.bucket for row in rows if row.bucket is not None]
    return Point(
        batch_size=rows[0].batch_size,
        bucket=max(set(buckets), key=lambda b: (buckets.count(b), -b)) if buckets else None,
        steps=tuple(rows),
        inside=inside,
        owned=owned,
        ordinal=ordinal[inside],
        owned_ordinal=ordinal[owned],
        eager=eager,
    )


def summary(values: Sequence[float] | np.ndarray, unit_ns: int = 1) -> Summary:
    """Median, 10th and 90th percentile with linear interpolation."""
    low, median, high = np.percentile(np.asarray(values, float), [10, 50, 90]) / unit_ns
    return Summary(median=float(median), p10=float(low), p90=float(high))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The figures of each clean step of a point: what medians, samples and pooled points are made of.

    Attributes:
        step_ns, span_ns: int64 per step.
        batch_size: None where no marker tells it.
        tokens: tokens run through the model in each step; empty where no marker tells it.
        launch_ns: time in graph launch calls per step; empty where they are not recorded.
        time: the families' times per step.
        families: their names.
    """

    batch_size: int | None
    step_ns: IntArray
    span_ns: IntArray
    tokens: tuple[int, ...]
    launch_ns: IntArray
    time: FamilyTime
    families: tuple[str, ...]

    @classmethod
    def pooled(cls, parts: Sequence["StepTimes"]) -> "StepTimes":
        """The steps of several traces as one set."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            batch_size=parts[0].batch_size,
            step_ns=np.concatenate([part.step_ns for part in parts]),
            span_ns=np.concatenate([part.span_ns for part in parts]),
            tokens=tuple(tokens for part in parts for tokens in part.tokens),
            launch_ns=np.concatenate([part.launch_ns for part in parts]),
            time=FamilyTime.concatenate([part.time for part in parts]),
            families=parts[0].families,
        )

    def summaries(self) -> dict[str, Any]:
        """The fields that a DecodeRow and an OperatingPoint share."""
        total = self.time.sum_ns.sum(axis=1)
        return {
            "clean_steps": len(self.step_ns),
            "tokens_per_step": None if self.batch_size is None else float(self.batch_size),
            "verified_tokens_per_step": float(np.median(self.tokens)) if self.tokens else None,
            "step_ms": summary(self.step_ns, NS_PER_MS),
            "gpu_span_ms": summary(self.span_ns, NS_PER_MS),
            "busy_ms": summary(self.time.total_busy_ns, NS_PER_MS),
            "sum_ms": summary(total, NS_PER_MS),
            "boundary_ms": summary(self.step_ns - self.span_ns, NS_PER_MS),
            "launch_ms": float(np.median(self.launch_ns)) / NS_PER_MS if len(self.launch_ns) else None,
            "families": _family_rows(self.time, self.families),
            "samples": Samples(
                step_ns=tuple(self.step_ns.tolist()),
                span_ns=tuple(self.span_ns.tolist()),
                busy_ns=tuple(self.time.total_busy_ns.tolist()),
                sum_ns=tuple(total.tolist()),
                boundary_ns=tuple((self.step_ns - self.span_ns).tolist()),
                families={
                    name: tuple(self.time.sum_ns[:, i].tolist())
                    for i, name in enumerate(self.families)
                    if self.time.launches[:, i].any()
                },
            ),
        }


def step_times(
    segmentation: Segmentation, point: Point, families: Sequence[str], family: IntArray
) -> StepTimes:
    """The figures of the clean steps of one point.

    Args:
        segmentation: of the device.
        point: one of `points(segmentation)`.
        families: names of the families.
        family: int64 per operation of the device, index into `families`.
    """
    operations = segmentation.operations
    start, end = operations.start_ns[point.inside], operations.end_ns[point.inside]
    span = (
        _extent(point, start, end)
        if point.eager
        else np.array([row.span_ns for row in point.steps], np.int64)
    )
    return StepTimes(
        batch_size=point.batch_size,
        step_ns=np.array([row.step_ns for row in point.steps], np.int64),
        span_ns=span,
        tokens=tuple(row.generation_tokens for row in point.steps if row.generation_tokens is not None),
        launch_ns=_launch_ns(segmentation, point),
        time=family_time(point.ordinal, family[point.inside], start, end, len(point.steps), len(families)),
        families=tuple(families),
    )


def decode_row(
    segmentation: Segmentation, point: Point, times: StepTimes, family: IntArray, context_length: int | None
) -> DecodeRow:
    """The decode row of one point.

    Args:
        segmentation, point: the steps.
        times: `step_times` of the point.
        family: int64 per operation of the device, index into `times.families`.
        context_length: key/value tokens per request, where a marker or the caller knows it.
    """
    count = len(point.steps)
    shared = times.summaries()
    busy_us = shared["busy_ms"].median * NS_PER_MS / NS_PER_US
    rows: tuple[FamilyRow, ...] = shared["families"]
    return DecodeRow(
        batch_size=point.batch_size,
        bucket=point.bucket,
        context_length=context_length,
        intra_replay_gap_us=_gaps(segmentation, point),
        operations_per_step=float(np.median(np.bincount(point.owned_ordinal, minlength=count))),
        replay_operations_per_step=0.0
        if point.eager
        else float(np.median(np.bincount(point.ordinal, minlength=count))),
        # From the reported medians, so that the identity holds on the reported figures, not only per step.
        overlap_us_per_step=sum(row.busy_us_per_step for row in rows) - busy_us,
        coverage=1 - sum(row.share_of_busy for row in rows if row.family == "other"),
        timeline=_timeline(segmentation, point, times.span_ns, times.families, family),
        **shared,
    )


def _extent(point: Point, start: IntArray, end: IntArray) -> IntArray:
    """First start to last end of each step's own operations, for steps without replay."""
    lo = np.full(len(point.steps), np.iinfo(np.int64).max)
    hi = np.zeros(len(point.steps), np.int64)
    np.minimum.at(lo, point.ordinal, start)
    np.maximum.at(hi, point.ordinal, end)
    return hi - lo


def _family_rows(time: FamilyTime, families: Sequence[str]) -> tuple[FamilyRow, ...]:
    whole = time.total_busy_ns.sum()
    rows = [
        FamilyRow(
            family=name,
            launches_per_step=float(np.median(time.launches[:, i])),
            sum_us_per_step=float(np.median(time.sum_ns[:, i])) / NS_PER_US,
            busy_us_per_step=float(np.median(time.busy_ns[:, i])) / NS_PER_US,
            share_of_busy=float(time.shared_ns[:, i].sum() / whole) if whole else 0.0,
            exclusive_us_per_step=float(np.median(time.exclusive_ns[:, i])) / NS_PER_US,
        )
        for i, name in enumerate(families)
        if time.launches[:, i].any()
    ]
    return tuple(sorted(rows, key=lambda row: -row.sum_us_per_step))


def _launch_ns(segmentation: Segmentation, point: Point) -> IntArray:
    """Time in the graph launch calls of each step, for the steps where it is recorded."""
    wanted = np.zeros(len(segmentation.rows) + 1, bool)
    wanted[[row.index for row in point.steps]] = True
    replays = segmentation.replays
    mine = wanted[segmentation.replay_step] & (replays.launch_duration_ns >= 0)
    per_step = np.zeros(len(segmentation.rows), np.int64)
    np.add.at(per_step, segmentation.replay_step[mine], replays.launch_duration_ns[mine])
    return per_step[np.unique(segmentation.replay_step[mine])]


def _gaps(segmentation: Segmentation, point: Point) -> GapSummary:
    if point.eager:
        return GapSummary(median=None, p90=None, count_per_step=0.0, reason="no graph replay in these steps")
    wanted = np.zeros(len(segmentation.rows) + 1, bool)
    wanted[[row.index for row in point.steps]] = True
    replays = segmentation.replays
    mine = wanted[segmentation.replay_step]
    idle = segmentation.idle
    inner = idle.gap_kind == "intra_replay"
    lo, hi = idle.gap_start_ns[inner], idle.gap_end_ns[inner]
    found = inside_any(lo, hi, replays.start_ns[mine], replays.end_ns[mine])
    length = (hi - lo)[found]
    if not len(length):
        return GapSummary(median=None, p90=None, count_per_step=0.0, reason="no gap inside the replays")
    median, p90 = np.percentile(length, [50, 90]) / NS_PER_US
    return GapSummary(median=float(median), p90=float(p90), count_per_step=len(length) / len(point.steps))


def _timeline(
    segmentation: Segmentation, point: Point, span: IntArray, families: Sequence[str], family: IntArray
) -> Timeline | None:
    nearest = int(np.abs(span - np.median(span)).argmin())
    mine = point.owned[point.owned_ordinal == nearest]
    if not len(mine) or len(mine) > TIMELINE_LIMIT:
        return None
    operations = segmentation.operations
    names = operations.frame["name"].gather(mine).cast(pl.String).to_list()
    table = {name: i for i, name in enumerate(dict.fromkeys(names))}
    family_of = dict(zip(names, family[mine].tolist(), strict=True))
    replayed = operations.replay[mine] >= 0
    origin = int(operations.start_ns[mine[replayed] if replayed.any() else mine].min())
    return Timeline(
        step_index=point.steps[nearest].index,
        names=tuple(table),
        families=tuple(str(families[int(family_of[name])]) for name in table),
        start_ns=tuple((operations.start_ns[mine] - origin).tolist()),
        duration_ns=tuple((operations.end_ns[mine] - operations.start_ns[mine]).tolist()),
        stream=tuple(operations.frame["stream"].gather(mine).to_list()),
        kernel=tuple(table[name] for name in names),
        in_replay=tuple(replayed.tolist()),
    )
