"""Several traces -> operating points: repeats pooled, what does not belong together said first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavewise.decode.contexts import same_context
from wavewise.decode.describe import Described
from wavewise.decode.inventory import StepTimes
from wavewise.findings import DecodeRow, Note, OperatingPoint, TraceFindings

_REPEATS_DIFFER = 0.05
"""Repeats of one operating point whose summed family time differs by more get a caution ..."""

_REPEATS_MATTER_US = 10.0
"""... if it is also more than this many microseconds per step."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context length of a trace's decode steps, as far as it is known.

    Attributes:
        tokens: key/value tokens per request; None when unknown.
        label: what the user called it; None without a label.
    """

    tokens: int | None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    trace: int
    row: DecodeRow
    times: StepTimes
    findings: TraceFindings
    context: Context


def operating_points(
    described: Sequence[Described], contexts: Sequence[Context], models: Sequence[str | None]
) -> tuple[tuple[OperatingPoint, ...], tuple[Note, ...]]:
    """Pools the decode rows of all traces by GPU, engine, context length and batch size.

    Of several ranks or devices of one run only the lowest enters: they do the same steps together, so they are
    no repeats of each other.

    Args:
        described: one entry per trace and device, in order.
        contexts: context of each, from a marker, a run file or a label.
        models: name of each one's model, where a run file tells it.
    """
    leading, notes = _leading(described)
    entries = [
        _Entry(trace=i, row=row, times=times, findings=described[i].findings, context=contexts[i])
        for i in leading
        for row, times in zip(described[i].findings.decode, described[i].times, strict=True)
        if row.batch_size is not None
    ]
    notes += _mixed_inputs(entries, models) or _unlike_devices([described[i].findings for i in leading])
    keys = _context_keys(entries)
    groups: dict[tuple[str | None, str, int | str | None, int | None], list[_Entry]] = {}
    for entry, key in zip(entries, keys, strict=True):
        point = (entry.findings.gpu.name, entry.findings.engine, key, entry.row.batch_size)
        groups.setdefault(point, []).append(entry)
    notes += _context_notes(entries, keys)
    points: list[OperatingPoint] = []
    for (_, _, context, _), members in groups.items():
        points.append(_point(members, context))
        notes += _repeat_notes(members)
    points.sort(
        key=lambda p: (p.gpu or "", p.engine, p.context_length or 0, p.context_label or "", p.batch_size)
    )
    return tuple(points), tuple(notes)


def _leading(described: Sequence[Described]) -> tuple[list[int], list[Note]]:
    """Indices of the traces that stand for their run: the lowest device of a file, the lowest rank of a run."""
    by_file: dict[tuple[str, int], list[int]] = {}
    for i, one in enumerate(described):
        by_file.setdefault((one.findings.path, one.findings.document), []).append(i)
    chosen = [min(members, key=lambda i: described[i].findings.device) for members in by_file.values()]
    runs: dict[tuple[str | None, str, int | None], int] = {}
    for i in chosen:
        if (rank := described[i].findings.rank) is not None:
            run = _run_of(described[i].findings)
            runs[run] = min(rank, runs.get(run, rank))
    chosen = [
        i
        for i in chosen
        if described[i].findings.rank is None
        or described[i].findings.rank == runs[_run_of(described[i].findings)]
    ]
    left = len(described) - len(chosen)
    if not left:
        return chosen, []
    return chosen, [
        Note(
            level="info",
            code="one_rank_stands_for_all",
            message=f"{left} further device(s) or rank(s) of the same run are described each on their own; "
            "operating points and scaling rest on the lowest.",
        )
    ]


def _run_of(trace: TraceFindings) -> tuple[str | None, str, int | None]:
    """What the ranks of one run have in common; a rank of another run is nobody's stand-in."""
    return trace.gpu.name, trace.engine, trace.world_size


def _mixed_inputs(entries: Sequence[_Entry], models: Sequence[str | None]) -> list[Note]:
    notes: list[Note] = []
    for code, noun, values in (
        ("different_gpus", "GPUs", {e.findings.gpu.name for e in entries if e.findings.gpu.name}),
        (
            "different_engines",
            "engines",
            {e.findings.engine for e in entries if e.findings.engine != "unknown"},
        ),
        ("different_models", "models", {m for e in entries if (m := models[e.trace])}),
    ):
        if len(values) > 1:
            notes.append(
                Note(
                    level="stop",
                    code=code,
                    message=f"The traces come from different {noun} ({', '.join(sorted(values))}), so nothing is "
                    "fitted across them. Analyse each apart.",
                )
            )
    if not notes and (unlike := _unlike_models(entries)):
        notes.append(unlike)
    return notes


def _unlike_devices(traces: Sequence[TraceFindings]) -> list[Note]:
    """Traces of other GPUs or engines that have no clean step: nothing to fit, yet they do not belong together."""
    return [
        Note(
            level="caution",
            code=code,
            message=f"The traces come from different {noun} ({', '.join(sorted(values))}); those without clean steps "
            "are only described. Analyse each apart.",
        )
        for code, noun, values in (
            ("different_gpus", "GPUs", {t.gpu.name for t in traces if t.gpu.name}),
            ("different_engines", "engines", {t.engine for t in traces if t.engine != "unknown"}),
        )
        if len(values) > 1
    ]


def _unlike_models(entries: Sequence[_Entry]) -> Note | None:
    """Layers of a model show as attention launches per step; another count is another model (or depth)."""
    counts: dict[float, str] = {}
    for entry in entries:
        launches = sum(
            f.launches_per_step for f in entry.row.families if f.family in ("attention", "attention_split")
        )
        if launches:
            counts.setdefault(launches, entry.findings.path)
    if len(counts) < 2:
        return None
    shown = ", ".join(f"{count:g} in {path}" for count, path in sorted(counts.items()))
    return Note(
        level="stop",
        code="different_models",
        message=f"The traces do not look like one model: attention launches per step differ ({shown}). Nothing is "
        "fitted across them.",
    )


def _context_keys(entries: Sequence[_Entry]) -> list[int | str | None]:
    """A key per entry that is equal for equal contexts: a length that stands for all near it, a label, or None."""
    lengths = sorted({entry.context.tokens for entry in entries if entry.context.tokens is not None})
    standing: dict[int, int] = {}
    while lengths:
        near = [length for length in lengths if same_context(length, lengths[0])]
        standing |= dict.fromkeys(near, round(float(np.median(near))))
        lengths = lengths[len(near) :]
    return [
        entry.context.label if entry.context.tokens is None else standing[entry.context.tokens]
        for entry in entries
    ]


def _context_notes(entries: Sequence[_Entry], keys: Sequence[int | str | None]) -> list[Note]:
    if not entries:
        return []
    labels = {key: e.context.label for e, key in zip(entries, keys, strict=True)}
    ordered = sorted((key for key in labels if key is not None), key=lambda key: (isinstance(key, str), key))
    known = [labels[key] or f"{key:,} tokens" for key in ordered]
    unknown = sum(key is None for key in keys)
    notes: list[Note] = []
    if len(known) > 1 or (known and unknown):
        listed = ", ".join([*known, *(["unknown"] if unknown else [])])
        notes.append(
            Note(
                level="caution",
                code="different_contexts",
                message=f"The traces hold different context lengths ({listed}): they are not pooled, and scaling "
                "with the batch is fitted within one.",
            )
        )
    if unknown and len(entries) > 1 and not known:
        notes.append(
            Note(
                level="info",
                code="context_assumed",
                message="The traces do not say their context length, so one and the same is assumed for all. "
                "If it differs, say so: --label context=12k PATH.",
            )
        )
    return notes


def _point(members: Sequence[_Entry], context: int | str | None) -> OperatingPoint:
    first = members[0]
    times = StepTimes.pooled([entry.times for entry in members])
    assert first.row.batch_size is not None
    return OperatingPoint(
        batch_size=first.row.batch_size,
        bucket=first.row.bucket,
        context_length=context if isinstance(context, int) else None,
        context_label=first.context.label,
        gpu=first.findings.gpu.name,
        engine=first.findings.engine,
        device=first.findings.device,
        traces=tuple(entry.trace for entry in members),
        **times.summaries(),
    )


def _repeat_notes(members: Sequence[_Entry]) -> list[Note]:
    if len(members) < 2:
        return []
    batch, count = members[0].row.batch_size, len(members)
    notes = [
        Note(
            level="info",
            code="repeats_pooled",
            message=f"Batch {batch} was recorded {count} times under conditions that nothing tells apart; the clean "
            "steps are pooled.",
        )
    ]
    apart: list[str] = []
    for family in dict.fromkeys(f.family for entry in members for f in entry.row.families):
        values = [
            next((f.sum_us_per_step for f in entry.row.families if f.family == family), 0.0)
            for entry in members
        ]
        low, high = min(values), max(values)
        if high - low > max(_REPEATS_MATTER_US, _REPEATS_DIFFER * low):
            apart.append(f"`{family}` {low:,.0f} to {high:,.0f} us")
    if apart:
        notes.append(
            Note(
                level="caution",
                code="repeats_differ",
                message=f"The {count} recordings of batch {batch} differ by more than noise ({'; '.join(apart)}): "
                "different context lengths or settings? Label them (--label context=12k PATH) to keep them apart.",
            )
        )
    return notes
