"""Which launch shape after stands for which before: by family, name and shape."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from wavewise.findings import KernelRow
from wavewise.report.diff import noise
from wavewise.report.diff.pairing import Spot
from wavewise.report.diff.result import Change, KernelChange
from wavewise.report.words import short_kernel
from wavewise.units import NS_PER_US

Shape = tuple[int, int, int]
Key = Callable[[KernelRow], object]


PASSES: tuple[tuple[str, Key], ...] = (
    ("exact", lambda row: (row.name, row.grid, row.block)),
    ("reshaped", lambda row: (row.family, row.name)),
    ("retuned", lambda row: (row.family, short_kernel(row.name, 400))),
)
"""What makes two kernels the same, strictest first; each pass takes what the one before it left."""


@dataclass(frozen=True, slots=True)
class Launches:
    """The rows of one key on one side, added; times in microseconds per step."""

    family: str
    names: tuple[str, ...]
    grids: tuple[Shape, ...]
    launches: float
    sum_us: float
    low_us: float | None
    high_us: float | None


def kernel_changes(before: Spot, after: Spot, share: float) -> tuple[KernelChange, ...]:
    """Matches the kernels of two operating points; the largest absolute change first."""
    left = {"before": _rows(before), "after": _rows(after)}
    found: list[KernelChange] = []
    for match, key in PASSES:
        groups = {side: _group(rows, key) for side, rows in left.items()}
        common = [value for value in groups["before"] if value in groups["after"]]
        found += [_changed(match, groups["before"][value], groups["after"][value], share) for value in common]
        matched = set(common)
        left = {side: [row for row in rows if key(row) not in matched] for side, rows in left.items()}
    found += [_changed("vanished", row, None, share) for row in _singly(left["before"])]
    found += [_changed("added", None, row, share) for row in _singly(left["after"])]
    return tuple(
        sorted(found, key=lambda kernel: -abs((kernel.sum_us.after or 0) - (kernel.sum_us.before or 0)))
    )


def _rows(spot: Spot) -> list[KernelRow]:
    """The kernel rows of an operating point; of several recordings, each at its share of clean steps."""
    traces = [spot.findings.traces[index] for index in spot.traces]
    steps = [
        next((row.clean_steps for row in trace.decode if row.batch_size == spot.batch), 0) for trace in traces
    ]
    total = sum(steps)
    return [
        row if count == total else _weighted(row, count / total)
        for trace, count in zip(traces, steps, strict=True)
        for row in trace.kernels
        if row.batch_size == spot.batch
    ]


def _weighted(row: KernelRow, weight: float) -> KernelRow:
    def scaled(value: float | None) -> float | None:
        return None if value is None else value * weight

    return replace(
        row,
        launches_per_step=row.launches_per_step * weight,
        sum_us_per_step=row.sum_us_per_step * weight,
        sum_us_per_step_p10=scaled(row.sum_us_per_step_p10),
        sum_us_per_step_p90=scaled(row.sum_us_per_step_p90),
    )


def _group(rows: Iterable[KernelRow], key: Key) -> dict[object, Launches]:
    groups: dict[object, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {value: _together(members) for value, members in groups.items()}


def _singly(rows: Sequence[KernelRow]) -> list[Launches]:
    return list(_group(rows, PASSES[0][1]).values())


def _together(rows: Sequence[KernelRow]) -> Launches:
    lows = [row.sum_us_per_step_p10 for row in rows]
    highs = [row.sum_us_per_step_p90 for row in rows]
    return Launches(
        family=rows[0].family,
        names=tuple(dict.fromkeys(row.name for row in rows)),
        grids=tuple(dict.fromkeys(row.grid for row in rows if row.grid is not None)),
        launches=sum(row.launches_per_step for row in rows),
        sum_us=sum(row.sum_us_per_step for row in rows),
        low_us=None if None in lows else sum(low for low in lows if low is not None),
        high_us=None if None in highs else sum(high for high in highs if high is not None),
    )


def _changed(match: str, before: Launches | None, after: Launches | None, share: float) -> KernelChange:
    one = before or after
    assert one is not None
    return KernelChange(
        family=one.family,
        match=match,
        names_before=before.names if before else (),
        names_after=after.names if after else (),
        grids_before=before.grids if before else (),
        grids_after=after.grids if after else (),
        launches_before=before.launches if before else 0.0,
        launches_after=after.launches if after else 0.0,
        sum_us=_time(match, before, after, share),
    )


def _time(match: str, before: Launches | None, after: Launches | None, share: float) -> Change:
    """The change of a kernel's time. Kernels carry no samples, only their 10th and 90th percentile."""
    old, new = (None if side is None else side.sum_us for side in (before, after))
    launches = max(side.launches for side in (before, after) if side is not None)
    floor = noise.floor(max(old or 0.0, new or 0.0), launches, share, noise.TICK_NS / NS_PER_US)
    if before is None or after is None or old is None or new is None:
        return Change(
            quantity="sum_us",
            unit="us",
            before=old,
            after=new,
            change=None,
            relative=None,
            noise_floor=floor,
            verdict=match,
        )
    change = new - old
    if change == 0 and before.launches == after.launches and match == "exact":
        verdict = "same"
    elif abs(change) <= floor or not _apart(before, after):
        verdict = "noise"
    else:
        verdict = "up" if change > 0 else "down"
    return Change(
        quantity="sum_us",
        unit="us",
        before=old,
        after=new,
        change=change,
        relative=change / old if old else None,
        noise_floor=floor,
        verdict=verdict,
    )


def _apart(before: Launches, after: Launches) -> bool:
    """Whether the ranges from the 10th to the 90th percentile have nothing in common."""
    if before.low_us is None or before.high_us is None or after.low_us is None or after.high_us is None:
        return True
    return before.high_us < after.low_us or after.high_us < before.low_us
