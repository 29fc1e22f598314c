"""What a recording adds: the server's speed without the profiler, and its telemetry."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wavewise.analysis.files import Source
from wavewise.findings import RecordedPoint, TraceFindings
from wavewise.levers import Known
from wavewise.record import Batch


def recorded_points(found: Iterable[Source], traces: Sequence[TraceFindings]) -> tuple[RecordedPoint, ...]:
    """One point for each batch of each recording whose traces are analysed, batches without a trace included."""
    points: list[RecordedPoint] = []
    seen: set[Path] = set()
    for source in found:
        folder = source.file.parent
        if source.run is None or folder in seen:
            continue
        seen.add(folder)
        points += [_point(folder, batch, traces) for batch in source.run.batches]
    return tuple(points)


@dataclass(frozen=True)
class RecordedTelemetry:
    """A recording's telemetry file, and when (Unix seconds) its largest batch decoded without the profiler."""

    file: Path
    decoding: tuple[tuple[float, float], ...]


def telemetry_of(found: Iterable[Source]) -> RecordedTelemetry | None:
    """The telemetry of the one recording that the files come from; None without one, or with several."""
    files = {
        source.file.parent / source.run.telemetry.file: source.run.decode_windows
        for source in found
        if source.run is not None and source.run.telemetry.file is not None
    }
    return RecordedTelemetry(*files.popitem()) if len(files) == 1 else None


def known_with(known: Known, found: Iterable[Source]) -> Known:
    """What is known, completed by what the recordings say of their server; what the user said stands."""
    servers = [source.run.server for source in found if source.run is not None]
    versions = {server.version for server in servers if server.version}
    if known.engine_version is None and len(versions) == 1:
        return replace(known, engine_version=versions.pop())
    return known


def _point(folder: Path, batch: Batch, traces: Sequence[TraceFindings]) -> RecordedPoint:
    names = {str(folder / trace.file) for trace in batch.traces}
    steps = [
        row.step_ms.median
        for trace in traces
        for row in trace.decode
        if trace.path in names and row.batch_size in (batch.batch_size, None)
    ]
    quiet = batch.unprofiled
    return RecordedPoint(
        run=str(folder),
        batch_size=batch.batch_size,
        context_tokens=batch.context_tokens,
        unprofiled_step_ms=quiet.step_ms,
        unprofiled_tokens_per_s=quiet.tokens_per_s,
        inter_token_ms_p50=quiet.inter_token_ms_p50,
        inter_token_ms_p90=quiet.inter_token_ms_p90,
        inter_token_ms_p99=quiet.inter_token_ms_p99,
        profiler_slowdown=batch.slowdown,
        traced_step_ms=steps[0] if steps else None,
        reason=None if steps else (batch.profile_reason or "its traces hold no clean decode step"),
    )
