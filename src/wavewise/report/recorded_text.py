"""The server without a profiler, where a recording measured it: how far the traced steps are from real ones."""

from wavewise.findings import Findings, RecordedPoint
from wavewise.report.section import Cell, Column, Section, Table, number
from wavewise.report.words import amount, ms, percent


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section; none without a recording."""
    points = findings.recorded
    if not points:
        return ()
    largest = max(points, key=lambda point: point.batch_size)
    return (
        Section(
            name="recorded",
            title="What the profiler costs",
            sentences=(_sentence(largest),),
            tables=(_table(points),),
        ),
    )


def _sentence(point: RecordedPoint) -> str:
    text = (
        f"Without the profiler a step at batch {point.batch_size} takes {ms(point.unprofiled_step_ms)} "
        f"({amount(point.unprofiled_tokens_per_s)} tokens/s, by the recording)"
    )
    if point.traced_step_ms is not None:
        longer = point.traced_step_ms / point.unprofiled_step_ms - 1
        text += f"; the traced steps take {ms(point.traced_step_ms)}"
        if longer > 0:
            text += f", {percent(longer)} longer: that much of the host time above is the profiler's"
    elif point.reason:
        text += f"; {point.reason.rstrip('.')}"
    return f"{text}."


def _table(points: tuple[RecordedPoint, ...]) -> Table:
    return Table(
        name="recorded",
        title="Each batch size of the recording with the profiler off, and its traced step beside it",
        columns=(
            Column("batch size", right=True, term="batch size"),
            Column("context, tokens", right=True, term="context"),
            Column("step, ms", right=True, term="step time"),
            Column("tokens/s", right=True),
            Column("between tokens p50, ms", right=True),
            Column("p90, ms", right=True),
            Column("p99, ms", right=True),
            Column("traced step, ms", right=True),
            Column("slowdown by profiler", right=True),
        ),
        rows=tuple(_cells(point) for point in points),
        brief=32,
    )


def _cells(point: RecordedPoint) -> tuple[Cell, ...]:
    slowdown = point.profiler_slowdown
    return (
        number(point.batch_size, str(point.batch_size), point.run),
        number(point.context_tokens, None if point.context_tokens is None else f"{point.context_tokens:,}"),
        number(point.unprofiled_step_ms, amount(point.unprofiled_step_ms)),
        number(point.unprofiled_tokens_per_s, amount(point.unprofiled_tokens_per_s)),
        number(point.inter_token_ms_p50, amount(point.inter_token_ms_p50)),
        number(point.inter_token_ms_p90, amount(point.inter_token_ms_p90)),
        number(point.inter_token_ms_p99, amount(point.inter_token_ms_p99)),
        number(
            point.traced_step_ms,
            None if point.traced_step_ms is None else amount(point.traced_step_ms),
            point.reason,
        ),
        number(slowdown, None if slowdown is None else f"{slowdown:.2f}x"),
    )
