"""Which conclusions a damaged or incomplete recording does not carry, and why: asked before each is drawn."""

from wavewise.findings import Findings, TraceFindings
from wavewise.report.section import code, listing
from wavewise.report.words import short_path

CONCLUSIONS = {
    "idle": "where the GPU waits",
    "steps": "step times",
    "kernels": "kernel times",
    "occupancy": "residency and waves",
}
"""Keys of `Warning.unsafe`, in the words of a sentence."""

MOST_NAMED = 3


def idle_unsafe(trace: TraceFindings) -> str | None:
    """Why nothing may be concluded from a trace's idle split; None where it is sound."""
    if not trace.idle.safe:
        return (trace.idle.unsafe_reason or "records are missing").rstrip(".")
    reasons = [warning.message for warning in trace.events.warnings if "idle" in warning.unsafe]
    return reasons[0].rstrip(".") if reasons else None


def cautions(findings: Findings) -> tuple[str, ...]:
    """One sentence for each cause: which conclusions it makes unsafe, in which traces."""
    causes: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for trace in findings.traces:
        for warning in trace.events.warnings:
            if warning.unsafe:
                cause = (warning.code, warning.unsafe, warning.message.rstrip("."))
                causes.setdefault(cause, []).append(code(short_path(trace.path)))
    return tuple(
        f"Caution: {listing([CONCLUSIONS.get(name, name) for name in unsafe])} cannot be relied on in "
        f"{_named(paths)}: {message}."
        for (_, unsafe, message), paths in causes.items()
    )


def _named(paths: list[str]) -> str:
    unique = list(dict.fromkeys(paths))
    if len(unique) <= MOST_NAMED:
        return listing(unique)
    return f"{', '.join(unique[:MOST_NAMED])} and {len(unique) - MOST_NAMED} more"
