"""Data quality: what was read, lost, excluded or assumed, and which conclusions that makes unsafe."""

import re
from collections import Counter

from wavewise.findings import Findings, TraceFindings
from wavewise.report.points import points
from wavewise.report.safety import CONCLUSIONS
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.steps_text import EVIDENCE
from wavewise.report.words import amount, engine_words, percent, plural, printable, short_path
from wavewise.units import NS_PER_MS, format_share


def sections(findings: Findings) -> tuple[Section, ...]:
    """The last section."""
    tables = (_inputs(findings), _warnings(findings), _excluded(findings), _unnamed(findings))
    return (
        Section(
            name="quality",
            title="Data quality",
            sentences=(
                *_losses(findings),
                *_coverage(findings),
                *_assumptions(findings),
            ),
            tables=tuple(table for table in tables if table is not None),
        ),
    )


def _losses(findings: Findings) -> list[str]:
    operations = sum(_operations(trace) for trace in findings.traces)
    warnings = [warning for trace in findings.traces for warning in trace.events.warnings]
    salvaged = [trace for trace in findings.traces if trace.events.salvaged]
    read = f"{plural(operations, 'GPU operation')} in {plural(len(findings.traces), 'window')} were read"
    if not warnings and not salvaged:
        return [f"{read}; nothing was lost, repaired or left out."]
    sentences = [f"{read}, with {plural(len(warnings), 'warning')} (below)."]
    if salvaged:
        names = [code(short_path(trace.path)) for trace in salvaged[:5]]
        more = f" and {len(salvaged) - 5} more" if len(salvaged) > 5 else ""
        sentences.append(f"Salvaged from damaged files: {listing(names)}{more}.")
    return sentences


def _coverage(findings: Findings) -> list[str]:
    known = [
        (row.coverage, view.label)
        for view in points(findings)
        for row in view.rows
        if row.coverage is not None
    ]
    if not known:
        return []
    lowest, label = min(known)
    if lowest >= 0.9995:
        return ["Kernel families cover all busy time of the clean steps."]
    return [f"Kernel families cover at least {percent(lowest)} of busy time (lowest at {label})."]


def _assumptions(findings: Findings) -> list[str]:
    structural = [trace for trace in findings.traces if trace.segmentation == "structure"]
    sentences: list[str] = []
    if structural:
        sentences.append(
            f"In {plural(len(structural), 'window')} without engine markers steps rest on "
            f"{EVIDENCE['structure']}: a constant batch size is assumed while one bucket is replayed."
        )
    unknown = [trace for trace in findings.traces if trace.gpu.sm_count is None]
    if unknown:
        reason = unknown[0].gpu.reason or "the trace does not describe its GPU"
        sentences.append(
            f"The GPU's size is unknown in {plural(len(unknown), 'window')}: {reason.rstrip('.')}."
        )
    return sentences


def _operations(trace: TraceFindings) -> int:
    return trace.events.kernels + trace.events.memcpys + trace.events.memsets


def _inputs(findings: Findings) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for trace in findings.traces:
        gpu = trace.gpu
        size = f"{gpu.sm_count} SMs" if gpu.sm_count else "unknown size"
        where = (
            f"device {trace.device}" if trace.rank is None else f"rank {trace.rank}, device {trace.device}"
        )
        context = "unknown"
        if trace.context_length is not None:
            context = f"{trace.context_length:,} ({trace.context_length_source or 'source not stated'})"
        rows.append(
            (
                Cell(code(short_path(trace.path)), hover=trace.path),
                Cell(f"{trace.source}, {engine_words(trace.engine)}"),
                Cell(f"{printable(gpu.name or 'unknown GPU')}, {size}", hover=gpu.source or gpu.reason),
                Cell(where),
                number(_operations(trace), f"{_operations(trace):,}"),
                number(trace.window_ns, amount(trace.window_ns / NS_PER_MS)),
                Cell(context),
                Cell(trace.segmentation),
            )
        )
    return Table(
        name="inputs",
        title="What was read",
        columns=(
            Column("trace"),
            Column("source, engine"),
            Column("GPU"),
            Column("device", essential=False),
            Column("GPU operations", right=True, term="GPU operation"),
            Column("window, ms", right=True, term="window"),
            Column("context, tokens", right=True, term="context", essential=False),
            Column("steps from", term="segmentation"),
        ),
        rows=tuple(rows),
        brief=40,
    )


def _warnings(findings: Findings) -> Table | None:
    rows = [
        (
            Cell(code(short_path(trace.path)), hover=trace.path),
            Cell(code(warning.code)),
            number(warning.count, f"{warning.count:,}"),
            Cell(printable(warning.message)),
            Cell(", ".join(CONCLUSIONS.get(name, name) for name in warning.unsafe) or "-"),
        )
        for trace in findings.traces
        for warning in trace.events.warnings
    ]
    if not rows:
        return None
    return Table(
        name="warnings",
        title="Warnings",
        columns=(
            Column("trace"),
            Column("code"),
            Column("count", right=True),
            Column("what it means"),
            Column("makes unsafe"),
        ),
        rows=tuple(rows),
        brief=20,
    )


def _excluded(findings: Findings) -> Table | None:
    reasons = Counter(
        # "the step before it has 94 requests" and "... 93 requests" are one reason.
        (step.kind, re.sub(r"\d+", "n", step.unclean_reason))
        for trace in findings.traces
        for step in trace.steps
        if step.kind == "decode" and not step.clean and step.unclean_reason
    )
    other = Counter(
        step.kind
        for trace in findings.traces
        for step in trace.steps
        if step.kind != "decode" and not step.clean
    )
    if not reasons and not other:
        return None
    rows = [
        (Cell(kind), number(count, f"{count:,}"), Cell(reason))
        for (kind, reason), count in reasons.most_common()
    ]
    rows += [
        (Cell(kind), number(count, f"{count:,}"), Cell("statistics are of decode steps only"))
        for kind, count in other.most_common()
    ]
    return Table(
        name="excluded",
        title="Steps kept out of every statistic, and why",
        columns=(Column("kind", term="step kind"), Column("steps", right=True), Column("reason")),
        rows=tuple(rows),
        brief=15,
    )


def _unnamed(findings: Findings) -> Table | None:
    """The largest kernels left in `other`, each with its largest share in any window."""
    shares: dict[str, float] = {}
    for trace in findings.traces:
        for name, share in trace.unexplained_names:
            shares[name] = max(shares.get(name, 0.0), share)
    if not shares:
        return None
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:10]
    return Table(
        name="unnamed",
        title="Largest kernels left in family `other` (share of busy time, the largest of any window)",
        columns=(Column("kernel"), Column("share of busy", right=True)),
        rows=tuple(
            (Cell(code(name[:90]), hover=name), number(share, format_share(share))) for name, share in ranked
        ),
        brief=10,
    )
