"""What follows from the measurements: scaling, premise, ceilings, targets, telemetry, levers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from wavewise.analysis.recordings import RecordedTelemetry
from wavewise.analysis.settings import Settings
from wavewise.ceilings import (
    ModelShape,
    Thresholds,
    ceilings,
    cut_to_layers,
    load_shape,
    read_telemetry,
    recognise,
    signature,
    what_ifs,
)
from wavewise.errors import InputError
from wavewise.findings import Ceiling, ExpertShape, Findings, OperatingPoint, Signature, load_findings
from wavewise.hardware import Catalogue, GpuSpec
from wavewise.levers import load_ledger, rank
from wavewise.scaling import (
    ScalingModel,
    family_waves,
    fit_context,
    latency_target,
    premise,
    scaling_model,
    sweeps,
    throughput_target,
)

_NO_CLEAN_STEP = "no decode step is clean"
_NO_TRACE = "there is no trace"


def conclude(
    measured: Findings, settings: Settings, gpus: Catalogue, telemetry: RecordedTelemetry | None
) -> Findings:
    """Adds the conclusions.

    Args:
        measured: traces, notes and operating points.
        settings: what was asked.
        gpus: the catalogue.
        telemetry: the telemetry of a recording, used where the settings name none.
    """
    shape = _shape(measured, settings)
    baseline = _baseline(settings)  # a file that cannot be read is an error, whether or not it is needed
    stop = next((note.message for note in measured.notes if note.level == "stop"), None)
    if not measured.traces:
        stop = f"{_NO_TRACE}, so no step to measure"
    nothing = _NO_CLEAN_STEP if measured.traces else _NO_TRACE
    sweep = () if stop else next(iter(sweeps(measured.operating_points)), ())
    model, reason = (None, stop) if stop else _fit(measured, settings, shape, sweep)
    gpu = _gpu_of(measured, gpus)
    rows = measured.operating_points or tuple(row for trace in measured.traces for row in trace.decode)
    limits = ceilings(rows, shape, gpu, tensor_parallel=settings.tensor_parallel)
    found = replace(
        measured,
        scaling=model.scaling if model else None,
        scaling_reason=reason,
        premise=premise(model.scaling, sweep, baseline) if model else None,
        context_scaling=() if stop else fit_context(measured.operating_points),
        ceilings=limits or None,
        ceilings_reason=None if limits else nothing,
        what_ifs=what_ifs(rows, shape, gpu, tensor_parallel=settings.tensor_parallel) or None,
        signature=_signature(settings, telemetry),
        **_targets(settings, model, sweep, limits, reason),
    )
    known = settings.known
    if known.gpus is None and settings.tensor_parallel is not None:
        known = dataclasses.replace(known, gpus=settings.tensor_parallel)
    ledger = load_ledger(settings.ledger)
    levers = rank(found, ledger=ledger, tried=settings.tried, known=known, shape=shape)
    return replace(found, levers=levers or None, levers_reason=None if levers else nothing)


def _shape(measured: Findings, settings: Settings) -> ModelShape | None:
    kernels = [trace.kernels for trace in measured.traces]
    return cut_to_layers(load_shape(settings.model), kernels) if settings.model else recognise(kernels)


def _fit(
    measured: Findings, settings: Settings, shape: ModelShape | None, sweep: Sequence[OperatingPoint]
) -> tuple[ScalingModel | None, str | None]:
    expert = shape.expert_shape if shape else None
    if settings.experts:
        experts, active = settings.experts
        expert = ExpertShape(experts=experts, active=active)
    traces = sorted({index for point in sweep for index in point.traces})
    waves = family_waves(row for index in traces for row in measured.traces[index].kernels)
    return scaling_model(sweep, expert=expert, waves=waves, extrapolate=settings.extrapolate)


def _targets(
    settings: Settings,
    model: ScalingModel | None,
    sweep: Sequence[OperatingPoint],
    limits: Sequence[Ceiling],
    reason: str | None,
) -> dict[str, Any]:
    """The answers to --latency-target and --throughput-target."""
    answers: dict[str, Any] = {}
    if settings.latency_target_ms is not None:
        if model:
            answers["latency_target"] = latency_target(model, settings.latency_target_ms)
        else:
            answers["targets_reason"] = reason
    if settings.throughput_target is not None:
        if sweep:
            answers["throughput_target"] = throughput_target(model, sweep, settings.throughput_target, limits)
        else:
            answers["targets_reason"] = reason or _NO_CLEAN_STEP
    return answers


def _gpu_of(measured: Findings, gpus: Catalogue) -> GpuSpec | None:
    """The catalogue entry of the one GPU that all traces come from, None otherwise."""
    ids = {trace.gpu.spec for trace in measured.traces}
    one = ids.pop() if len(ids) == 1 else None
    return next((spec for spec in gpus if spec.id == one), None)


def _baseline(settings: Settings) -> Findings | None:
    return load_findings(settings.baseline) if settings.baseline else None


def _signature(settings: Settings, recorded: RecordedTelemetry | None) -> Signature | None:
    """What telemetry says. A file that the user names must be readable; a recording's own may be lost."""
    limits, power_w = Thresholds.load(settings.thresholds), settings.power_limit_w
    if settings.telemetry is not None:
        return signature(read_telemetry(settings.telemetry), power_limit_w=power_w, thresholds=limits)
    if recorded is None:
        return None
    try:
        samples = read_telemetry(recorded.file, recorded.decoding)
        return signature(samples, power_limit_w=power_w, thresholds=limits)
    except InputError:
        return None
