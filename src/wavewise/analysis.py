"""The main job: traces in, Findings out. Composes the floors below and computes nothing itself."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from wavewise._version import __version__
from wavewise.ceilings import ModelShape, ceilings, load_shape, recognise, what_ifs
from wavewise.decode import Described, FamilyRules, describe
from wavewise.decode.pool import Context, operating_points
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError, WavewiseError
from wavewise.findings import Ceiling, ExpertShape, Findings, OperatingPoint, load_findings
from wavewise.hardware import Catalogue, GpuSpec, catalogue
from wavewise.levers import Known, load_ledger, rank
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
from wavewise.trace import Progress, Trace, find_traces, read

PathLike = str | os.PathLike[str]
Label = Mapping[str, str]
"""What the user says of one input: `context` is the context length, in tokens or with a k for 1,024."""


_NO_CLEAN_STEP = "no decode step is clean"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to analyse.

    Attributes:
        gpu: catalogue name of the GPU, overriding what the traces say.
        gpus: a GPU catalogue file to add.
        rules: a family rule file to add (or to use instead, if it says so).
        labels: what is known of a path given on the command line.
        recursive: search folders below the given ones.
        model: a shipped model shape by name, or a TOML file; recognised by kernel names where not given.
        experts: routed experts and active experts per token, for the expert-activation law.
        extrapolate: batch sizes to predict.
        latency_target_ms, throughput_target: the two questions people bring.
        baseline: an earlier findings.json whose premises to check.
        ledger: a team's ledger folder; the shipped entries take part in any case.
        tried: names of levers that somebody tried.
        known: facts that no trace holds, for the levers.
    """

    gpu: str | None = None
    gpus: Path | None = None
    rules: Path | None = None
    labels: Mapping[Path, Label] = field(default_factory=dict[Path, Label])
    recursive: bool = False
    model: str | None = None
    experts: tuple[int, int] | None = None
    extrapolate: tuple[int, ...] = ()
    latency_target_ms: float | None = None
    throughput_target: float | None = None
    baseline: Path | None = None
    ledger: Path | None = None
    tried: tuple[str, ...] = ()
    known: Known = field(default_factory=Known)


def analyze(
    paths: Sequence[PathLike] | PathLike,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    unreadable: Callable[[Path, WavewiseError], None] | None = None,
) -> Findings:
    """Analyses decode traces.

    Args:
        paths: trace files or folders of them; together they are one investigation.
        settings: see `Settings`.
        progress: called with what is being done and the share done.
        unreadable: called for each file of a *folder* that cannot be read; the rest is analysed. A file that
            was named itself and cannot be read raises.

    Returns:
        The findings, as `wavewise analyze --json` writes them.

    Raises:
        InputError: a path does not exist, cannot be read or is no trace; or nothing readable is left.
        NothingToAnalyzeError: traces without GPU activity.
        UsageError: an unknown GPU or a wrong rule file.
    """
    settings = settings or Settings()
    given = [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(path) for path in paths]
    if not given:
        raise UsageError("nothing to analyse: name a trace file or a folder of traces")
    gpus = catalogue(settings.gpus)
    gpu = gpus.find(settings.gpu) if settings.gpu else None
    rules = FamilyRules.load(settings.rules)
    described: list[Described] = []
    contexts: list[Context] = []
    for trace, label in _traces(given, settings, progress, unreadable):
        context = Context(tokens=_tokens(label.get("context")), label=label.get("context"))
        for one in _describe(trace, context, rules, gpus, gpu):
            described.append(one)
            contexts.append(Context(tokens=one.findings.context_length, label=context.label))
    points, notes = operating_points(described, contexts, [None] * len(described))
    measured = Findings(
        wavewise=__version__,
        traces=tuple(one.findings for one in described),
        notes=notes,
        operating_points=points,
    )
    return _conclude(measured, settings, gpus)


def _describe(
    trace: Trace, context: Context, rules: FamilyRules, gpus: Catalogue, gpu: GpuSpec | None
) -> list[Described]:
    return [
        describe(
            trace,
            device,
            rules=rules,
            gpus=gpus,
            gpu=gpu,
            context_length=context.tokens,
            context_source="label" if context.tokens is not None else None,
        )
        for device in trace.device_ids()
    ]


def _traces(
    given: Sequence[Path],
    settings: Settings,
    progress: Progress | None,
    unreadable: Callable[[Path, WavewiseError], None] | None,
) -> Iterator[tuple[Trace, Label]]:
    """Every readable trace with the label of the path that brought it, one at a time."""
    files = [(path, file) for path in given for file in find_traces([path])]
    last: WavewiseError | None = None
    none_yet = True
    for at, (path, file) in enumerate(files):
        if progress:
            progress(f"reading {file.name}", at / len(files))
        try:
            traces = read(file)
        except (InputError, NothingToAnalyzeError) as error:
            if not path.is_dir():
                raise
            last = error
            if unreadable:
                unreadable(file, error)
            continue
        for trace in traces:
            none_yet = False
            yield trace, settings.labels.get(path, {})
    if none_yet and last is not None:
        raise last


def _tokens(text: str | None) -> int | None:
    """A context length in tokens from "4096", "4k" or "12 K" (k = 1,024); None for free text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmM]?)\s*(?:tokens)?\s*", text or "")
    if not found:
        return None
    return round(float(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()])


def _conclude(measured: Findings, settings: Settings, gpus: Catalogue) -> Findings:
    """Adds what follows from the measurements: scaling, premise, ceilings, targets, levers."""
    shape = _shape(measured, settings)
    stop = next((note.message for note in measured.notes if note.level == "stop"), None)
    sweep = () if stop else next(iter(sweeps(measured.operating_points)), ())
    model, reason = (None, stop) if stop else _fit(measured, settings, shape, sweep)
    gpu = _gpu_of(measured, gpus)
    rows = measured.operating_points or tuple(row for trace in measured.traces for row in trace.decode)
    limits = ceilings(rows, shape, gpu)
    found = replace(
        measured,
        scaling=model.scaling if model else None,
        scaling_reason=reason,
        premise=premise(model.scaling, sweep, _baseline(settings)) if model else None,
        context_scaling=() if stop else fit_context(measured.operating_points),
        ceilings=limits or None,
        ceilings_reason=None if limits else _NO_CLEAN_STEP,
        what_ifs=what_ifs(rows, shape, gpu) or None,
        **_targets(settings, model, sweep, limits, reason),
    )
    levers = rank(found, ledger=load_ledger(settings.ledger), tried=settings.tried, known=settings.known)
    return replace(found, levers=levers or None, levers_reason=None if levers else _NO_CLEAN_STEP)


def _shape(measured: Findings, settings: Settings) -> ModelShape | None:
    if settings.model:
        return load_shape(settings.model)
    return recognise(row for trace in measured.traces for row in trace.kernels)


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
            of_sweep = [limit for limit in limits if limit.context_length == sweep[0].context_length]
            answers["throughput_target"] = throughput_target(
                model, sweep, settings.throughput_target, of_sweep
            )
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
