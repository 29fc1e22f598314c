"""Operating points as a report speaks of them: one label each, with the kernels measured there.

`Findings.operating_points` pools clean steps over traces; decode rows whose batch size is unknown (no marker
said it) belong to no operating point, and stand here in their own right.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wavewise.findings import DecodeRow, Findings, KernelRow, OperatingPoint, Scaling, TraceFindings
from wavewise.report.section import listing
from wavewise.report.words import engine_words, plural, short_path


@dataclass(frozen=True)
class PointView:
    """One operating point.

    Attributes:
        label: unique in the report: "batch 64", "batch 64 at 12k context", "bucket 64" (no marker says the batch).
        slug: the label as an identifier.
        figures: where the medians are read.
        traces: indices of the traces whose clean steps it pools.
        rows: the decode rows behind it.
        kernels: launch inventory, of the one of these traces with the most clean steps.
    """

    label: str
    figures: OperatingPoint | DecodeRow
    traces: tuple[int, ...]
    rows: tuple[DecodeRow, ...]
    kernels: tuple[KernelRow, ...]

    @property
    def slug(self) -> str:
        """The label as an identifier."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.label.lower()).split())

    @property
    def size(self) -> int:
        """Batch size, or what is known instead of it: orders points by load."""
        return self.figures.batch_size or self.figures.bucket or 0

    @property
    def busy_share(self) -> float:
        """Share of the span in which an operation runs; an empty span (operations of no length) is all busy."""
        span = self.figures.gpu_span_ms.median
        return self.figures.busy_ms.median / span if span else 1.0

    @property
    def replay(self) -> bool:
        """Whether a step replays a graph (else "replay" figures are the whole step's)."""
        return any(row.replay_operations_per_step > 0 for row in self.rows)

    @property
    def unit(self) -> str:
        """What the GPU span covers: "replay", or "step" where no graph is replayed."""
        return "replay" if self.replay else "step"

    @property
    def basis(self) -> str:
        """The statistic and its sample: "median of 6 clean steps"."""
        steps = self.figures.clean_steps
        return f"median of {plural(steps, 'clean step')}" if steps > 1 else "1 clean step"

    @property
    def boundary_ms(self) -> float:
        """Median step boundary; step less span where it was not measured on its own."""
        measured = self.figures.boundary_ms
        if measured is not None:
            return measured.median
        return self.figures.step_ms.median - self.figures.gpu_span_ms.median

    @property
    def family_sum_us(self) -> float:
        """Summed kernel time of a replay, over its families."""
        return sum(row.sum_us_per_step for row in self.figures.families)


def points(findings: Findings) -> tuple[PointView, ...]:
    """All operating points, by context, then batch size (unknown batch sizes last)."""
    drafts: list[tuple[OperatingPoint | DecodeRow, tuple[int, ...]]] = [
        (point, point.traces) for point in findings.operating_points
    ]
    covered = {(trace, point.batch_size) for point in findings.operating_points for trace in point.traces}
    drafts += [
        (row, (index,))
        for index, trace in enumerate(findings.traces)
        for row in trace.decode
        if (index, row.batch_size) not in covered
    ]
    drafts.sort(key=lambda draft: _order(draft[0]))
    labels = _labels(findings, drafts)
    return tuple(
        _view(findings, figures, traces, label)
        for (figures, traces), label in zip(drafts, labels, strict=True)
    )


def main_point(views: tuple[PointView, ...]) -> PointView | None:
    """What the first sentence speaks of: the largest batch size of the commonest context."""
    if not views:
        return None
    contexts = Counter(_context(view.figures) for view in views)
    return max(
        views,
        key=lambda view: (
            contexts[_context(view.figures)],
            view.size,
            view.figures.clean_steps,
        ),
    )


def thinned(views: tuple[PointView, ...], main: PointView, most: int = 8) -> tuple[PointView, ...]:
    """At most about `most` operating points, spread over all of them, the main one always among them."""
    if len(views) <= most:
        return views
    keep = {round(index * (len(views) - 1) / (most - 1)) for index in range(most)}
    return tuple(view for index, view in enumerate(views) if index in keep or view.label == main.label)


def labels_in_short(views: Sequence[PointView]) -> str:
    """Several labels in a sentence: "batch 1, 8 and 16 at 4k context and batch 64 at 12k context"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for view in views:
        found = re.fullmatch(r"(batch|bucket) (\d+)(.*)", view.label)
        word, size, rest = found.groups() if found else (view.label, "", "")
        groups.setdefault((word, rest), []).append(size)
    return listing([f"{word} {listing(sizes)}".rstrip() + rest for (word, rest), sizes in groups.items()])


def context_words(figures: OperatingPoint | DecodeRow | Scaling) -> str | None:
    """The context of an operating point or of a fit in words, None where it is not known."""
    label = None if isinstance(figures, DecodeRow) else figures.context_label
    if label:
        return f"{label} context"
    if figures.context_length is not None:
        return f"{figures.context_length:,} tokens of context"
    return None


def _context(figures: OperatingPoint | DecodeRow) -> str:
    return context_words(figures) or ""


def _order(figures: OperatingPoint | DecodeRow) -> tuple[float, str, float, float]:
    context = figures.context_length
    return (
        -1.0 if context is None else float(context),
        _context(figures),
        float("inf") if figures.batch_size is None else float(figures.batch_size),
        float(figures.bucket or 0),
    )


def _size(figures: OperatingPoint | DecodeRow) -> str:
    if figures.batch_size is not None:
        return f"batch {figures.batch_size}"
    if figures.bucket is not None:
        return f"bucket {figures.bucket}"
    return "unknown batch size"


def _labels(
    findings: Findings, drafts: list[tuple[OperatingPoint | DecodeRow, tuple[int, ...]]]
) -> list[str]:
    """The shortest labels that tell all points apart: size, then context, device, GPU, engine, files."""
    labels = [_size(figures) for figures, _ in drafts]
    if len({_context(figures) for figures, _ in drafts}) > 1:
        labels = [
            f"{label} at {_context(figures) or 'unknown context'}"
            for label, (figures, _) in zip(labels, drafts, strict=True)
        ]
    firsts = [findings.traces[traces[0]] if traces else None for _, traces in drafts]
    for describe in (_device, _gpu, _engine, _file):
        if len(set(labels)) == len(labels):
            return labels
        told: dict[str, set[str]] = {}
        for label, trace in zip(labels, firsts, strict=True):
            told.setdefault(label, set()).add(describe(trace) if trace is not None else "")
        labels = [
            f"{label}, {describe(trace)}" if len(told[label]) > 1 and trace is not None else label
            for label, trace in zip(labels, firsts, strict=True)
        ]
    seen: Counter[str] = Counter()
    unique: list[str] = []
    for label in labels:
        seen[label] += 1
        unique.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return unique


def _device(trace: TraceFindings) -> str:
    return f"device {trace.device}" if trace.rank is None else f"rank {trace.rank}"


def _gpu(trace: TraceFindings) -> str:
    return trace.gpu.name or "unknown GPU"


def _engine(trace: TraceFindings) -> str:
    return engine_words(trace.engine)


def _file(trace: TraceFindings) -> str:
    return short_path(trace.path)


def _view(
    findings: Findings, figures: OperatingPoint | DecodeRow, traces: tuple[int, ...], label: str
) -> PointView:
    found = [
        (row.clean_steps, index, row)
        for index in traces
        for row in findings.traces[index].decode
        if row is figures or row.batch_size == figures.batch_size
    ]
    best = max(found, key=lambda item: item[0])[1] if found else None
    kernels = () if best is None else findings.traces[best].kernels
    return PointView(
        label=label,
        figures=figures,
        traces=traces,
        rows=tuple(row for _, _, row in found),
        kernels=tuple(kernel for kernel in kernels if _launched_at(kernel, figures)),
    )


def _launched_at(kernel: KernelRow, figures: OperatingPoint | DecodeRow) -> bool:
    """Whether a kernel row belongs to a point; where no marker says the batch size, by its bucket."""
    if kernel.batch_size is None and kernel.bucket is not None:
        return figures.batch_size is None and kernel.bucket == figures.bucket
    return kernel.batch_size == figures.batch_size


def mean_us(kernel: KernelRow) -> float:
    """Time per step for sums over kernels: the mean adds up where medians do not."""
    return kernel.sum_us_per_step if kernel.mean_us_per_step is None else kernel.mean_us_per_step
