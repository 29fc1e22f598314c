"""Ranks of one run compared: who is slow, and who waits for whom. The reduce step; each rank is described apart."""

from collections.abc import Sequence

from wavewise.findings import DecodeRow, RankComparison, RankRow, TraceFindings
from wavewise.trace.ranks import RankGroup, rank_group
from wavewise.units import NS_PER_US, format_ns

_COLLECTIVES = ("all_reduce", "collective_other")

_NOTICEABLE = 0.01
"""A straggler must keep the others waiting for this share of the step; less is the jitter of any run."""


def compare_ranks(traces: Sequence[TraceFindings]) -> RankComparison | None:
    """Compares the ranks of one run, or the devices of one trace; None where there is nothing to compare."""
    group, by = rank_group((trace.rank, trace.world_size) for trace in traces), "rank"
    numbers = [trace.rank for trace in traces]
    if group is None:
        devices = {trace.device for trace in traces}
        one_file = len({(trace.path, trace.document) for trace in traces}) == 1
        if len(traces) < 2 or not one_file or len(devices) < len(traces):
            return None
        numbers, by = [trace.device for trace in traces], "device"
        group = RankGroup(tuple(sorted(devices)), None, ())
    rows = [
        _row(index, number, row)
        for index, (trace, number) in enumerate(zip(traces, numbers, strict=True))
        for row in trace.decode
        if number is not None
    ]
    shared = [
        size
        for size in {row.batch_size for row in rows}
        if sum(row.batch_size == size for row in rows) == len(traces)
    ]
    rows = [_with_wait(row, rows) if row.batch_size in shared else row for row in rows]
    at = max(shared, key=lambda size: size or 0) if shared else None
    compared = [row for row in rows if row.batch_size == at] if shared else []
    straggler = _straggler(compared)
    return RankComparison(
        by=by,
        world_size=group.world_size,
        ranks=group.ranks,
        missing=group.missing,
        rows=tuple(sorted(rows, key=lambda row: (row.batch_size or 0, row.rank))),
        straggler=straggler,
        sentence=_sentence(by, group, compared, straggler),
    )


def _row(index: int, rank: int, row: DecodeRow) -> RankRow:
    collective = sum(f.sum_us_per_step for f in row.families if f.family in _COLLECTIVES)
    alone = sum(f.busy_us_per_step for f in row.families if f.family in _COLLECTIVES)
    return RankRow(
        trace=index,
        rank=rank,
        batch_size=row.batch_size,
        clean_steps=row.clean_steps,
        step_ms=row.step_ms.median,
        gpu_span_ms=row.gpu_span_ms.median,
        own_ms=max(0.0, row.busy_ms.median - alone / 1e3),
        collective_us_per_step=collective,
        wait_us_per_step=None,
    )


def _with_wait(row: RankRow, rows: Sequence[RankRow]) -> RankRow:
    peers = [other.collective_us_per_step for other in rows if other.batch_size == row.batch_size]
    if not any(peers):
        return row
    return RankRow(
        **{name: getattr(row, name) for name in RankRow.__struct_fields__ if name != "wait_us_per_step"},
        wait_us_per_step=row.collective_us_per_step - min(peers),
    )


def _straggler(rows: Sequence[RankRow]) -> int | None:
    waits = [row.wait_us_per_step for row in rows if row.wait_us_per_step is not None]
    if len(waits) < 2:
        return None
    last = min(rows, key=lambda row: row.collective_us_per_step)
    others = sorted(wait for row, wait in zip(rows, waits, strict=True) if row is not last)
    # Every other rank must wait, not only one: a single long collective is that rank's own trouble.
    return last.rank if others[0] > _NOTICEABLE * last.step_ms * 1e3 else None


def _sentence(by: str, group: RankGroup, rows: Sequence[RankRow], straggler: int | None) -> str:
    known = f"{len(group.ranks)} {by}s"
    if group.missing:
        missing = ", ".join(str(rank) for rank in group.missing)
        known += f" of {group.world_size or max(group.missing) + 1} (no trace of {by} {missing})"
    if not rows:
        return f"{known}; no batch size is clean on all of them, so they are not compared."
    low, high = min(rows, key=lambda row: row.step_ms), max(rows, key=lambda row: row.step_ms)
    at = f"At batch {rows[0].batch_size}" if rows[0].batch_size is not None else "In their clean steps"
    steps = (
        f"{at} the step takes {low.step_ms:.2f} ms ({by} {low.rank}) to {high.step_ms:.2f} ms ({by} {high.rank})"
        if high.step_ms > low.step_ms
        else f"{at} the step takes {low.step_ms:.2f} ms on each"
    )
    if straggler is None:
        waited = (
            "no collective kernel tells who waits"
            if rows[0].wait_us_per_step is None
            else "none keeps the others waiting"
        )
        return f"{known}. {steps}; {waited}."
    wait = sum(row.wait_us_per_step or 0.0 for row in rows) / (len(rows) - 1)
    return (
        f"{known}. {steps}; the others wait for {by} {straggler}: {format_ns(wait * NS_PER_US)} per step on average, "
        "inside their collectives."
    )
