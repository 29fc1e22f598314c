"""The server without a profiler, where a recording measured it: what traced steps leave out, or stand-in for them."""

from wavewise.findings import Findings, Fit, RecordedPoint, Recording
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, engine_words, ms, percent, plural, printable
from wavewise.units import significant

NOT_MEASURABLE = 0.01
"""Traced and un-profiled steps that differ by less are not told apart: a window holds a dozen steps."""


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section; none without a recording."""
    points = findings.recorded
    if not points:
        return ()
    traced = any(point.traced_step_ms is not None for point in points)
    largest = max(points, key=lambda point: point.batch_size)
    return (
        Section(
            name="recorded",
            title="What the profiler costs" if traced else "What the recording measured, profiler off",
            sentences=(_unprofiled(largest), *_cost(points), *_fits(findings), *_untraced(findings)),
            tables=(_table(points, traced),),
        ),
    )


def title(findings: Findings) -> str:
    """What was analysed where no trace was: "1 recording of vLLM on NVIDIA H200, without a trace"."""
    engines = list(dict.fromkeys(_engine(each) for each in findings.recordings))
    gpus = list(dict.fromkeys(printable(gpu) for each in findings.recordings for gpu in each.gpus))
    on = f" on {listing(gpus)}" if gpus else ""
    return f"{plural(len(findings.recordings), 'recording')} of {listing(engines)}{on}, without a trace"


def verdict(findings: Findings) -> tuple[str, ...]:
    """The first sentences where there is no trace: what cannot be said and why, and what can."""
    if findings.traces or not findings.recorded:
        return ()
    return (
        "Without a trace nothing here says where the time of a decode step goes, only how long a token takes.",
        _unprofiled(max(findings.recorded, key=lambda point: point.batch_size)),
        *_fits(findings),
        *_untraced(findings),
    )


def _unprofiled(point: RecordedPoint) -> str:
    return (
        f"At batch {point.batch_size}, the largest recorded, {ms(point.inter_token_ms_p50)} pass between two "
        f"tokens of a request (median; p99 {ms(point.inter_token_ms_p99)}), and the server makes "
        f"{amount(point.unprofiled_tokens_per_s)} tokens/s, both with the profiler off."
    )


def _cost(points: tuple[RecordedPoint, ...]) -> tuple[str, ...]:
    """Traced step against un-profiled tokens, at the largest batch that has both, and where they differ most."""
    both = [point for point in points if point.traced_over_unprofiled is not None]
    if not both:
        return ()
    largest = max(both, key=lambda point: point.batch_size)
    furthest = max(both, key=lambda point: abs((point.traced_over_unprofiled or 1.0) - 1.0))
    said = [
        f"The traced step at batch {largest.batch_size} takes {ms(largest.traced_step_ms or 0.0)}, the median time "
        f"between tokens just before and behind its profiler window {ms(largest.around_window_ms or 0.0)} "
        f"(mean of the two, since the context grows): {_difference(largest)}."
    ]
    if furthest is not largest and abs((furthest.traced_over_unprofiled or 1.0) - 1.0) >= NOT_MEASURABLE:
        said.append(f"They differ most at batch {furthest.batch_size}: {_difference(furthest)}.")
    if any(point.profiler_slowdown is not None for point in points):
        said.append(
            "The last column is another measure of the same, from the streams alone: the median time between the "
            "few tokens that came inside the window, over that around it. It scatters more than the traced step."
        )
    return tuple(said)


def _difference(point: RecordedPoint) -> str:
    longer = (point.traced_over_unprofiled or 1.0) - 1.0
    if abs(longer) < NOT_MEASURABLE:
        return "the profiler made no difference that a dozen steps could show"
    if longer > 0:
        return f"the traced step is {percent(longer)} longer, and the profiler costs at most that"
    return (
        f"the traced step is {percent(-longer)} shorter, which no profiler explains: record that batch again"
    )


def _fits(findings: Findings) -> tuple[str, ...]:
    """The law of the inter-token latency, where the step has none."""
    several = len(findings.recordings) > 1
    return tuple(
        f"{f'{code(each.run)}: t' if several else 'T'}he time between tokens is {_law(each.inter_token)}. This line is "
        "fitted to inter-token latencies, not to traced steps: where a step brings a request more or less than "
        "one token, it is not the step's."
        for each in findings.recordings
        if each.inter_token is not None and each.inter_token.slope_ms_per_request is not None
    )


def _law(fit: Fit) -> str:
    sizes = [point.batch_size for point in fit.points]
    interval = f"no interval: {fit.interval_reason}"
    if fit.slope_ms_per_request_95 is not None:
        low, high = fit.slope_ms_per_request_95
        interval = f"95 %: {significant(low)} to {significant(high)}, {fit.interval_reason}"
    verdict = f"; {fit.verdict}" if fit.verdict else ""
    miss = fit.line_max_abs_residual_ms
    missed = "" if miss is None or len(sizes) < 3 else f", which misses a size by up to {ms(miss)}"
    return (
        f"{significant(fit.floor_ms or 0.0)} ms + {significant(fit.slope_ms_per_request or 0.0)} ms per request "
        f"({interval}) by the line through the medians of {plural(len(sizes), 'batch size')}, "
        f"{sizes[0]} to {sizes[-1]}{missed}{verdict}"
    )


def _untraced(findings: Findings) -> tuple[str, ...]:
    """Why a recording has no trace, and how to get one."""
    return tuple(
        f"{code(each.run)} holds no trace: {(each.trace_reason or '').rstrip('.')}. "
        f"To get one, {(each.trace_remedy or '').rstrip('.')}."
        for each in findings.recordings
        if each.trace_reason is not None
    )


def _engine(recording: Recording) -> str:
    version = f" {printable(recording.engine_version)}" if recording.engine_version else ""
    return f"{engine_words(recording.engine)}{version}"


def _table(points: tuple[RecordedPoint, ...], traced: bool) -> Table:
    return Table(
        name="recorded",
        title="Each batch size of the recording with the profiler off"
        + (", and its traced step beside it" if traced else ""),
        columns=(
            Column("batch size", right=True, term="batch size"),
            Column("context, tokens", right=True, term="context"),
            Column("tokens/s", right=True),
            Column("between tokens p50, ms", right=True),
            Column("p90, ms", right=True),
            Column("p99, ms", right=True),
            *(_TRACED if traced else ()),
        ),
        rows=tuple(_cells(point, traced) for point in points),
        brief=32,
    )


_TRACED = (
    Column("p50 around window, ms", right=True),
    Column("traced step, ms", right=True),
    Column("traced step / around", right=True),
    Column("p50 in window / around", right=True),
)
"""What only a profiler window brings."""


def _cells(point: RecordedPoint, traced: bool) -> tuple[Cell, ...]:
    cells = (
        number(point.batch_size, str(point.batch_size), point.run),
        number(point.context_tokens, None if point.context_tokens is None else f"{point.context_tokens:,}"),
        number(point.unprofiled_tokens_per_s, amount(point.unprofiled_tokens_per_s)),
        _amount(point.inter_token_ms_p50),
        _amount(point.inter_token_ms_p90),
        _amount(point.inter_token_ms_p99),
    )
    if not traced:
        return cells
    return (
        *cells,
        _amount(point.around_window_ms),
        _amount(point.traced_step_ms, point.reason),
        _ratio(point.traced_over_unprofiled, point.reason),
        _ratio(point.profiler_slowdown),
    )


def _amount(value: float | None, reason: str | None = None) -> Cell:
    return number(value, None if value is None else amount(value), reason)


def _ratio(value: float | None, reason: str | None = None) -> Cell:
    return number(value, None if value is None else f"{value:.3f}x", reason)
