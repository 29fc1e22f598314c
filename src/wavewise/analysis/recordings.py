"""What a recording adds: the server's speed without the profiler, its telemetry, and what stands in for traces."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wavewise.analysis.files import Source
from wavewise.errors import NothingToAnalyzeError
from wavewise.findings import Note, RecordedPoint, Recording, TraceFindings
from wavewise.levers import Known
from wavewise.record import Batch, Run, how_to_trace, profiled_over_http
from wavewise.scaling import fit_latency

Runs = Mapping[Path, Run]
"""Recordings by their folder."""


def runs_of(found: Iterable[Source], untraced: Runs) -> Runs:
    """Every recording that takes part: those of the trace files, then those that hold none.

    Raises:
        NothingToAnalyzeError: no trace anywhere, and no recording with a measured batch.
    """
    runs = {source.file.parent: source.run for source in found if source.run is not None}
    runs |= untraced
    if untraced and len(runs) == len(untraced) and not any(run.batches for run in untraced.values()):
        folder = next(iter(untraced))
        raise NothingToAnalyzeError(
            f"{folder}: a recording without a measured batch yet; the `wavewise record` that began it goes on there"
        )
    return runs


def recorded_points(runs: Runs, traces: Sequence[TraceFindings]) -> tuple[RecordedPoint, ...]:
    """One point for each batch of each recording, batches without a trace included."""
    return tuple(_point(folder, batch, traces) for folder, run in runs.items() for batch in run.batches)


def recordings(runs: Runs, points: Sequence[RecordedPoint], untraced: Runs) -> tuple[Recording, ...]:
    """One entry for each recording, with a fit of its inter-token latencies where its traces give none.

    Args:
        runs: all recordings.
        points: their batches.
        untraced: those of which no trace file was found.
    """
    found: list[Recording] = []
    for folder, run in runs.items():
        own = [point for point in points if point.run == str(folder)]
        traced = tuple(point.batch_size for point in own if point.traced_step_ms is not None)
        fit, reason = None, "its traces tell the step's own floor and slope"
        if len(traced) < 2:
            fit, reason = fit_latency({point.batch_size: point.inter_token_ms_p50 for point in own})
        why, remedy = _no_trace(folder, run) if folder in untraced else (None, None)
        found.append(
            Recording(
                run=str(folder),
                engine=run.server.engine,
                engine_version=run.server.version,
                model=run.server.model,
                gpus=tuple(gpu.name for gpu in run.telemetry.gpus),
                traced_batch_sizes=traced,
                trace_reason=why,
                trace_remedy=remedy,
                inter_token=fit,
                inter_token_reason=reason,
            )
        )
    return tuple(found)


def unfinished(runs: Runs) -> tuple[Note, ...]:
    """A note for each recording that ended before its last batch."""
    return tuple(
        Note(
            level="caution",
            code="recording_unfinished",
            message=f"{folder} is a recording that ended early ({run.reason or 'its recorder was killed'}); "
            f"{done} of {len(run.settings.batches)} batches are whole, and the same `wavewise record` goes on.",
        )
        for folder, run in runs.items()
        if run.state != "complete"
        for done in (sum(batch.profile != "missing" for batch in run.batches),)
    )


@dataclass(frozen=True)
class RecordedTelemetry:
    """A recording's telemetry file, and when (Unix seconds) its largest batch decoded without the profiler."""

    file: Path
    decoding: tuple[tuple[float, float], ...]


def telemetry_of(runs: Runs) -> RecordedTelemetry | None:
    """The telemetry of the one recording there is; None without one, or with several."""
    files = {
        folder / run.telemetry.file: run.decode_windows
        for folder, run in runs.items()
        if run.telemetry.file is not None
    }
    return RecordedTelemetry(*files.popitem()) if len(files) == 1 else None


def known_with(known: Known, runs: Iterable[Run]) -> Known:
    """What is known, completed by what the recordings say of their server; what the user said stands."""
    versions = {run.server.version for run in runs if run.server.version}
    if known.engine_version is None and len(versions) == 1:
        return replace(known, engine_version=versions.pop())
    return known


def _no_trace(folder: Path, run: Run) -> tuple[str, str]:
    """Why a recording has no trace to analyse, and what brings one."""
    named = [trace.file for batch in run.batches for trace in batch.traces]
    kinds = {batch.profile for batch in run.batches}
    engine = run.server.engine
    if named:
        more = f" and {len(named) - 1} more" if len(named) > 1 else ""
        return (
            f"run.json names {named[0]}{more}, which the folder does not hold",
            f"put its traces back beside {folder / 'run.json'}",
        )
    if "left_on_server" in kinds:
        return "its traces were left with the server", f"copy them into {folder} and analyse it again"
    missing = next((b.profile_reason for b in run.batches if b.profile == "missing"), None)
    if missing is not None:
        return (
            missing,
            "run the same `wavewise record` again; --trace-dir names the folder that the server writes to",
        )
    if not profiled_over_http(engine):
        return "its server has no profiler that HTTP could start", how_to_trace(engine)
    return "it was recorded with --no-profile", how_to_trace(engine)


def _point(folder: Path, batch: Batch, traces: Sequence[TraceFindings]) -> RecordedPoint:
    names = {str(folder / trace.file) for trace in batch.traces}
    steps = [
        row.step_ms.median
        for trace in traces
        for row in trace.decode
        if trace.path in names and row.batch_size in (batch.batch_size, None)
    ]
    here = any(trace.path in names for trace in traces)
    no_step = "its traces hold no clean decode step" if here else "its trace is not among those analysed"
    quiet, behind = batch.unprofiled, batch.after
    around = None if behind is None else (quiet.inter_token_ms_p50 + behind.inter_token_ms_p50) / 2
    return RecordedPoint(
        run=str(folder),
        batch_size=batch.batch_size,
        context_tokens=batch.context_tokens,
        unprofiled_step_ms=quiet.step_ms,
        unprofiled_tokens_per_s=quiet.tokens_per_s,
        inter_token_ms_p50=quiet.inter_token_ms_p50,
        inter_token_ms_p90=quiet.inter_token_ms_p90,
        inter_token_ms_p99=quiet.inter_token_ms_p99,
        around_window_ms=around,
        profiler_slowdown=batch.slowdown,
        traced_step_ms=steps[0] if steps else None,
        traced_over_unprofiled=steps[0] / around if steps and around else None,
        reason=None if steps else (batch.profile_reason or no_step),
    )
