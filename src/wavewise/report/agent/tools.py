"""The tools: one function each, from what it takes to what it gives."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from wavewise.analysis import Settings, analyze
from wavewise.audit import AuditReport
from wavewise.errors import UsageError
from wavewise.findings import Findings, TraceFindings
from wavewise.hardware import Launch, catalogue
from wavewise.report.agent import records as r
from wavewise.report.compose import compose
from wavewise.report.diff.text import report as diff_report
from wavewise.report.points import PointView, points
from wavewise.report.section import plain

_MOST_ROWS = 2_000
"""Rows of waves in one answer; more would fill an assistant's context."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        takes, gives: record types; their docstrings and field descriptions become the schemas.
        answer: the function.
    """

    name: str
    title: str
    takes: type[msgspec.Struct]
    gives: type[msgspec.Struct]
    answer: Callable[[Any], msgspec.Struct]


def analyse(asked: r.Analyse) -> r.Analysis:
    """Findings in short: sentences, points, traces, levers."""
    findings = analyze(asked.paths, settings=_settings(asked.gpu, asked.contexts))
    said = compose(findings)
    return r.Analysis(
        title=plain(said.title),
        notes=findings.notes,
        verdict=tuple(map(plain, said.verdict)),
        summary=tuple(map(plain, said.summary)),
        points=tuple(_point(view, asked.max_kernels) for view in points(findings)),
        traces=tuple(map(_trace, findings.traces)),
        levers=findings.levers,
        levers_reason=findings.levers_reason,
        scaling_reason=findings.scaling_reason,
    )


def _settings(gpu: str | None, contexts: Mapping[str, str], **more: Any) -> Settings:
    return Settings(
        gpu=gpu, labels={Path(path): {"context": text} for path, text in contexts.items()}, **more
    )


def _point(view: PointView, most: int) -> r.PointSummary:
    figures = view.figures
    length = figures.context_length
    return r.PointSummary(
        batch_size=figures.batch_size,
        bucket=figures.bucket,
        context=getattr(figures, "context_label", None) or (None if length is None else f"{length:,} tokens"),
        clean_steps=figures.clean_steps,
        step_ms=figures.step_ms,
        gpu_span_ms=figures.gpu_span_ms,
        busy_ms=figures.busy_ms,
        sum_ms=figures.sum_ms,
        boundary_ms=figures.boundary_ms,
        families=figures.families,
        kernels=view.kernels[:most],
    )


def _trace(trace: TraceFindings) -> r.TraceSummary:
    return r.TraceSummary(
        path=trace.path,
        device=trace.device,
        gpu=trace.gpu.name,
        engine=trace.engine,
        steps_by_kind=dict(Counter(step.kind for step in trace.steps)),
        clean_steps=sum(step.clean for step in trace.steps),
        unclean_reasons=dict(Counter(step.unclean_reason for step in trace.steps if step.unclean_reason)),
        window_ns=trace.window_ns,
        busy_ns=trace.busy_ns,
        idle=trace.idle,
        warnings=trace.events.warnings,
        unnamed_kernels=trace.unexplained_names,
    )


def occupancy(asked: r.Occupancy) -> r.OccupancyResult:
    """Residency of a launch, and its waves where the grid is given."""
    from wavewise.occupancy import grid_of, invalid_launch, occupancy_of

    spec = catalogue(None).find(asked.gpu)
    launch = Launch(
        grid=None if asked.grid is None else grid_of(asked.grid, asked.values),
        block=(asked.threads, 1, 1),
        registers_per_thread=asked.registers,
        shared_memory_bytes=asked.shared_memory_bytes,
        cluster_size=asked.cluster_size,
    )
    if wrong := invalid_launch(launch):
        raise UsageError(wrong)
    held, waves = occupancy_of(spec, launch)
    return r.OccupancyResult(
        gpu=spec.name,
        sm_count=spec.sm_count,
        ctas_per_sm=held.ctas_per_sm,
        limiter=held.limiter,
        warps_per_sm=held.warps_per_sm,
        occupancy=held.occupancy,
        ctas_allowed_by=dict(held.limits),
        next_cta=held.next_cta,
        waves=None if waves is None else _wave_row(asked.values, waves),
        reason=held.reason,
        note=held.note,
    )


def waves(asked: r.Waves) -> r.WavesResult:
    """Waves of a grid for every combination of values."""
    from wavewise.occupancy import grid_of, variables_of
    from wavewise.occupancy import waves as waves_of

    if (asked.gpu is None) == (asked.sm_count is None):
        raise UsageError("name the gpu or give sm_count, one of them")
    spec = catalogue(None).find(asked.gpu) if asked.gpu is not None else None
    sm_count = spec.sm_count if spec is not None else asked.sm_count
    if sm_count is None:
        raise UsageError(f"the SM count of {asked.gpu} is not in the catalogue; give sm_count")
    needed = variables_of(asked.grid)
    if needed != set(asked.values):
        raise UsageError(
            f"give values for exactly the names in the grid: {', '.join(sorted(needed)) or 'none'}"
        )
    combinations = prod(map(len, asked.values.values()))
    if combinations > _MOST_ROWS:
        raise UsageError(f"{combinations:,} combinations: at most {_MOST_ROWS:,}")
    rows: list[r.WaveRow] = []
    for values in product(*asked.values.values()):
        named = dict(zip(asked.values, values, strict=True))
        found = waves_of(prod(grid_of(asked.grid, named)), sm_count, asked.ctas_per_sm, asked.cluster_size)
        rows.append(_wave_row(named, found))
    return r.WavesResult(
        gpu=spec.name if spec is not None else None,
        sm_count=sm_count,
        ctas_per_sm=asked.ctas_per_sm,
        rows=tuple(rows),
    )


def _wave_row(values: Mapping[str, int], found: Any) -> r.WaveRow:
    return r.WaveRow(
        values=dict(values),
        ctas=found.ctas,
        slots=found.slots,
        waves=found.waves,
        wave_efficiency=found.wave_efficiency,
        tail_ctas=found.tail_ctas,
        sm_coverage=found.sm_coverage,
    )


def audit(asked: r.Audit) -> AuditReport:
    """Compiled footprints of a kernel for GPUs that need not be there."""
    from wavewise.audit import KernelConfig, audit_binary
    from wavewise.audit import audit as run

    if ":" not in asked.kernel or Path(asked.kernel).is_file():
        return audit_binary(Path(asked.kernel), asked.gpus, grid=asked.grid, let=asked.values)
    names = tuple(asked.constants)
    configs = [
        KernelConfig(constexprs=dict(zip(names, values, strict=True)), num_warps=warps, num_stages=stages)
        for values in product(*asked.constants.values())
        for warps, stages in product(asked.num_warps, asked.num_stages)
    ]
    return run(
        asked.kernel, configs, asked.gpus, signature=asked.signature, grid=asked.grid, let=asked.values
    )


def plan(asked: r.Plan) -> r.PlanResult:
    """The cheapest launch of the decode attention kernel by its time model."""
    from wavewise.attention.plan import DecodeShape, plan_decode, shipped_coefficients

    spec = catalogue(None).find(asked.gpu)
    # The window is the first scope where there is one, as the kernels count them.
    first, second = (asked.window, asked.topk) if asked.window else (asked.topk, 0)
    shape = DecodeShape(
        batch=asked.batch,
        heads=asked.heads,
        topk=first,
        extra_topk=second,
        queries_per_request=asked.queries,
    )
    found = plan_decode(shape, None, spec, num_splits=asked.num_splits)
    return r.PlanResult(
        gpu=spec.name,
        kernel=found.config.id,
        num_splits=found.num_splits,
        grid=found.grid,
        ctas_per_sm=found.ctas_per_sm,
        limiter=found.limiter,
        waves=found.waves,
        wave_efficiency=found.wave_efficiency,
        predicted_us=found.predicted_us,
        body_us=found.body_us,
        combine_us=found.combine_us,
        model=shipped_coefficients().source,
    )


def scale(asked: r.Scale) -> r.ScaleResult:
    """Floors, slopes, predictions and targets."""
    findings = analyze(
        asked.paths,
        settings=_settings(
            asked.gpu,
            asked.contexts,
            latency_target_ms=asked.latency_target_ms,
            throughput_target=asked.throughput_target,
            experts=asked.experts,
            extrapolate=asked.extrapolate,
        ),
    )
    return r.ScaleResult(
        notes=findings.notes,
        scaling=_without_curves(findings),
        scaling_reason=findings.scaling_reason,
        context_scaling=findings.context_scaling,
        latency_target=findings.latency_target,
        throughput_target=findings.throughput_target,
        targets_reason=findings.targets_reason,
    )


def _without_curves(findings: Findings) -> Any:
    """The scaling without the points of the drawn curve, which only a chart needs."""
    scaling = findings.scaling
    return None if scaling is None else msgspec.structs.replace(scaling, curve=())


def ledger(asked: r.AskLedger) -> r.LedgerResult:
    """Statements about levers, and contradictions among them."""
    from wavewise.levers import load_catalogue, load_ledger
    from wavewise.levers.ledger import Setting

    book = load_ledger(None if asked.folder is None else Path(asked.folder))
    lever = None if asked.lever is None else load_catalogue().find(asked.lever).id
    setting = Setting(gpu=asked.gpu)
    entries = [
        entry
        for entry in book.entries
        if lever in (None, entry.lever) and (asked.gpu is None or setting.holds(entry)[0] != "elsewhere")
    ]
    shown = {entry.id for entry in entries} | {claim.id for claim in book.claims}
    return r.LedgerResult(
        entries=tuple(entries),
        claims=() if lever is not None else book.claims,
        contradictions=tuple(
            r.Contradiction(
                subject=conflict.subject, ids=tuple(each.id for each in conflict.statements), why=conflict.why
            )
            for conflict in book.conflicts()
            if lever in (None, conflict.subject) and any(each.id in shown for each in conflict.statements)
        ),
    )


def compare(asked: r.Compare) -> r.Comparison:
    """The diff of two recordings."""
    from wavewise.report.diff import diff, judged, load, parse_limit

    limits = [parse_limit(text) for text in asked.limits]
    sides = [load(Path(path)) for path in (asked.before, asked.after)]
    found = diff(*sides, paths=(asked.before, asked.after), share=asked.noise, anyway=asked.anyway)
    found = judged(found, limits)
    said = diff_report(found)
    changed = tuple(
        msgspec.structs.replace(
            point,
            kernels=tuple(k for k in point.kernels if k.sum_us.verdict not in ("noise", "same")),
        )
        for point in found.points
    )
    return r.Comparison(
        verdict=tuple(map(plain, (*said.notes, *said.verdict))),
        summary=tuple(map(plain, said.summary)),
        failed=any(result.outcome == "exceeded" for result in found.limits),
        diff=msgspec.structs.replace(found, points=changed),
    )


TOOLS: tuple[Tool, ...] = (
    Tool("analyse", "Analyse decode traces", r.Analyse, r.Analysis, analyse),
    Tool("occupancy", "CTAs per SM of a launch", r.Occupancy, r.OccupancyResult, occupancy),
    Tool("waves", "Waves of a grid", r.Waves, r.WavesResult, waves),
    Tool("audit", "Audit a compiled kernel", r.Audit, AuditReport, audit),
    Tool("plan", "Plan decode attention", r.Plan, r.PlanResult, plan),
    Tool("scale", "Scaling with the batch size", r.Scale, r.ScaleResult, scale),
    Tool("ledger", "What was tried before", r.AskLedger, r.LedgerResult, ledger),
    Tool("diff", "Compare two recordings", r.Compare, r.Comparison, compare),
)
