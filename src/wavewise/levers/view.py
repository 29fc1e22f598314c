"""What an evaluator looks at: one operating point with its kernels, read out of the findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from wavewise.findings import (
    Ceiling,
    DecodeRow,
    FamilyRow,
    Findings,
    Fit,
    GpuRow,
    KernelRow,
    OperatingPoint,
    Timeline,
    TraceFindings,
)
from wavewise.levers.known import Known

US_PER_MS = 1_000.0


@dataclass(frozen=True)
class View:
    """One batch size of one GPU, engine and context; times in microseconds per step, medians of clean steps.

    Attributes:
        bucket: captured batch size that was replayed; None when unknown.
        verified_tokens: tokens computed per step, where the trace says so: over the batch size with speculation.
        step_us, span_us, busy_us, boundary_us, launch_us: as in the contract; None where not measured.
        families: by name.
        kernels: launch shapes of one trace that holds this batch size.
        trace: index of that trace in the findings.
        others: the views of the other batch sizes of the same investigation.
    """

    batch_size: int | None
    bucket: int | None
    context_length: int | None
    context_label: str | None
    clean_steps: int
    verified_tokens: float | None
    step_us: float
    span_us: float
    busy_us: float
    boundary_us: float | None
    launch_us: float | None
    families: dict[str, FamilyRow]
    kernels: tuple[KernelRow, ...]
    gpu: GpuRow
    engine: str
    trace: int
    timeline: Timeline | None
    findings: Findings
    known: Known

    @property
    def tokens(self) -> int | None:
        """Tokens that the replay computes, padding included: the bucket, else the batch size."""
        return self.bucket if self.bucket is not None else self.batch_size

    @property
    def speculates(self) -> bool:
        """Whether several tokens are verified per request, so that a bucket counts tokens and not requests."""
        return (
            self.verified_tokens is not None
            and self.batch_size is not None
            and self.verified_tokens > self.batch_size
        )

    @property
    def where(self) -> str:
        """Where the figures hold ("batch 64"), for sentences."""
        return "the recorded decode steps" if self.batch_size is None else f"batch {self.batch_size}"

    @property
    def replayed(self) -> bool:
        """Whether the decode steps replay a CUDA graph."""
        return any(k.in_replay for k in self.kernels) if self.kernels else self.bucket is not None

    @property
    def idle_share(self) -> float:
        """Share of step time in which the GPU runs nothing of the replay."""
        return max(0.0, 1.0 - self.busy_us / self.step_us)

    @cached_property
    def others(self) -> tuple["View", ...]:
        """All views of this GPU, engine and context, this one included, smallest batch first."""
        same = [v for v in views(self.findings, self.known) if v.comparable(self)]
        return tuple(sorted(same, key=lambda v: v.batch_size or 0))

    def comparable(self, other: "View") -> bool:
        """Same GPU, engine and context: only the batch size may differ."""
        mine = (self.gpu.name, self.engine, self.context_length, self.context_label)
        return mine == (other.gpu.name, other.engine, other.context_length, other.context_label)

    def sum_us(self, families: Sequence[str]) -> float:
        """Summed kernel time of the families, us per step."""
        return sum(self.families[f].sum_us_per_step for f in families if f in self.families)

    def kernels_of(self, families: Sequence[str]) -> tuple[KernelRow, ...]:
        """Kernel rows of the families, dearest first: the replay's, like `families` (all where none is)."""
        replayed = any(k.in_replay for k in self.kernels)
        rows = (
            k
            for k in self.kernels
            if k.family in families and k.kind == "kernel" and (k.in_replay or not replayed)
        )
        return tuple(sorted(rows, key=lambda k: -k.sum_us_per_step))

    def ceiling_us(self, families: Sequence[str]) -> float:
        """What vanishes from the step if the families were free, us: the ceilings' figure where it is there.

        Otherwise their exclusive time, or the union of their own intervals, which is never smaller.
        """
        rows = [self.families[f] for f in families if f in self.families]
        return sum(
            self._removable_us(row.family) or row.exclusive_us_per_step or row.busy_us_per_step
            for row in rows
        )

    def ceiling(self, family: str, basis: str) -> Ceiling | None:
        """The ceiling of a family here, if it was computed."""
        return next(
            (
                c
                for c in self.findings.ceilings or ()
                if (c.family, c.batch_size, c.basis) == (family, self.batch_size, basis)
                and (c.context_length, c.context_label) == (self.context_length, self.context_label)
            ),
            None,
        )

    def _removable_us(self, family: str) -> float | None:
        ceiling = self.ceiling(family, "busy")
        return None if ceiling is None or ceiling.removable_ms is None else ceiling.removable_ms * US_PER_MS

    def fit(self, family: str) -> Fit | None:
        """The scaling fit of a family, if there is one."""
        scaling = self.findings.scaling
        if scaling is None:
            return None
        return next((fit for fit in scaling.families if fit.family == family), None)


def views(findings: Findings, known: Known) -> tuple[View, ...]:
    """Every operating point (the decode rows where none was pooled), in the findings' order."""
    if findings.operating_points:
        return tuple(_of_point(findings, known, point) for point in findings.operating_points)
    return tuple(
        _of_row(findings, known, index, trace, row)
        for index, trace in enumerate(findings.traces)
        for row in trace.decode
    )


def _kernels(trace: TraceFindings, batch_size: int | None) -> tuple[KernelRow, ...]:
    return tuple(k for k in trace.kernels if k.batch_size == batch_size)


def _row(trace: TraceFindings, batch_size: int | None) -> DecodeRow | None:
    return next((row for row in trace.decode if row.batch_size == batch_size), None)


def _of_point(findings: Findings, known: Known, point: OperatingPoint) -> View:
    holding = [i for i in point.traces if _row(findings.traces[i], point.batch_size) is not None]
    index = max(
        holding or point.traces,
        key=lambda i: getattr(_row(findings.traces[i], point.batch_size), "clean_steps", 0),
    )
    trace = findings.traces[index]
    row = _row(trace, point.batch_size)
    return View(
        batch_size=point.batch_size,
        bucket=point.bucket,
        context_length=point.context_length,
        context_label=point.context_label,
        clean_steps=point.clean_steps,
        verified_tokens=point.verified_tokens_per_step,
        step_us=point.step_ms.median * US_PER_MS,
        span_us=point.gpu_span_ms.median * US_PER_MS,
        busy_us=point.busy_ms.median * US_PER_MS,
        boundary_us=None if point.boundary_ms is None else point.boundary_ms.median * US_PER_MS,
        launch_us=None if point.launch_ms is None else point.launch_ms * US_PER_MS,
        families={f.family: f for f in point.families},
        kernels=_kernels(trace, point.batch_size),
        gpu=trace.gpu,
        engine=point.engine,
        trace=index,
        timeline=None if row is None else row.timeline,
        findings=findings,
        known=known,
    )


def _of_row(findings: Findings, known: Known, index: int, trace: TraceFindings, row: DecodeRow) -> View:
    return View(
        batch_size=row.batch_size,
        bucket=row.bucket,
        context_length=row.context_length,
        context_label=None,
        clean_steps=row.clean_steps,
        verified_tokens=row.verified_tokens_per_step,
        step_us=row.step_ms.median * US_PER_MS,
        span_us=row.gpu_span_ms.median * US_PER_MS,
        busy_us=row.busy_ms.median * US_PER_MS,
        boundary_us=None if row.boundary_ms is None else row.boundary_ms.median * US_PER_MS,
        launch_us=None if row.launch_ms is None else row.launch_ms * US_PER_MS,
        families={f.family: f for f in row.families},
        kernels=_kernels(trace, row.batch_size),
        gpu=trace.gpu,
        engine=trace.engine,
        trace=index,
        timeline=row.timeline,
        findings=findings,
        known=known,
    )
