"""The first sentences of a report, computed once and used by every rendering.

Three make the verdict: what a decode step costs, which family is behind it, and what the GPU waits for. The second
is the premise check where it revises one: that the family which one profile shows as the dearest is not the one that
makes the step grow decides where work pays, so it stands before any share of time.
"""

from dataclasses import dataclass

from wavewise.findings import FamilyRow, Findings
from wavewise.report.pauses import NAME, clause, stalls
from wavewise.report.points import PointView, labels_in_short, main_point, points, thinned
from wavewise.report.safety import idle_unsafe
from wavewise.report.section import code, listing
from wavewise.report.words import (
    capital,
    families_in_words,
    family_words,
    ms,
    percent,
    plural,
    short_kernel,
    short_path,
    us,
)
from wavewise.units import NS_PER_MS

LITTLE_WAITING = 0.03
"""Below this share of the step the GPU "hardly waits": a saving of that size drowns in step-to-step noise."""

MOST_REASONS = 2
"""Traces without a decode row that the verdict names; the section on decode steps names all."""

HELPERS = (
    ("attention_schedule", ("attention_split", "attention"), "computes the schedule for"),
    ("attention_combine", ("attention_split",), "combines the partial results of"),
    ("indexer", ("attention_split", "attention"), "selects the keys for"),
    ("moe_route", ("moe_gemm",), "routes tokens for"),
    ("quant", ("dense_gemm",), "quantises the inputs of"),
)
"""Families that exist only to prepare or finish the work of another one: (helper, helped, what it does)."""

NO_STEPS = "gaps between operations, of which the steps are not known"
"""What step-boundary idle is called where no step was found: nothing says that the host is to blame."""

HOST = "the host: the GPU is empty at step boundaries while the engine samples, schedules and launches"
INSIDE = "work inside the graph replays: gaps between dependent kernels"


@dataclass(frozen=True)
class DearHelper:
    """A helper family that takes more time than the family it helps, at one operating point."""

    point: PointView
    helper: FamilyRow
    helped: FamilyRow
    does: str


def verdict(findings: Findings) -> tuple[str, ...]:
    """The three sentences of the first screen; fewer, with the reason, when there is no clean decode step."""
    views = points(findings)
    main = main_point(views)
    if main is None:
        reasons = no_decode(findings)
        left = len(reasons) - MOST_REASONS
        further = (f"{plural(left, 'further trace has', 'further traces have')} no decode row either.",)
        return (*reasons[:MOST_REASONS], *(further if left > 0 else ()), *_waiting_of_windows(findings))
    revised = revision(findings)
    second = dominant(main, findings) if revised is None else revised
    return (cost(main, alone=len(views) == 1), second, waiting(main, findings))


def revision(findings: Findings) -> str | None:
    """The premise check where it revises the premise that one profile suggests."""
    premise = findings.premise
    return families_in_words(premise.headline) if premise is not None and premise.differ else None


def displaced(findings: Findings) -> tuple[str, ...]:
    """What dominates the GPU time, for the summary, where the premise check stands in its place."""
    main = main_point(points(findings))
    return () if main is None or revision(findings) is None else (dominant(main, findings),)


def cost(point: PointView, alone: bool) -> str:
    """What a decode step takes, how it divides, and on what basis."""
    figures = point.figures
    kind = "batch size" if figures.batch_size is not None else "bucket"
    largest = "" if alone else f", the largest clean {kind},"
    if figures.batch_size is None:
        largest += " (no marker says the batch size; it is assumed constant)"
    opening = f"At {point.label}{largest} a decode step takes {ms(figures.step_ms.median)} ({point.basis})"
    busy = percent(point.busy_share)
    span = ms(figures.gpu_span_ms.median)
    if not point.replay:
        return f"{opening}; its GPU work spans {span} without a graph replay and keeps the GPU {busy} busy."
    return (
        f"{opening}: {span} of graph replay, which is {busy} busy, "
        f"and {ms(max(0.0, point.boundary_ms))} of step boundary."
    )


def dominant(point: PointView, findings: Findings) -> str:
    """Which families take the replay's kernel time."""
    total = point.family_sum_us
    ranked = sorted(point.figures.families, key=lambda row: -row.sum_us_per_step)
    if not ranked or total <= 0:
        return f"No kernel time could be assigned to families at {point.label}."
    first, *rest = ranked[:3]
    parts = [f"{family_words(row.family)} {percent(row.sum_us_per_step / total)}" for row in rest]
    behind = f", followed by {listing(parts)}" if parts else ""
    sentence = (
        f"{capital(family_words(first.family))} is {percent(first.sum_us_per_step / total)} of the "
        f"{point.unit}'s summed kernel time ({us(first.sum_us_per_step)} of {us(total)}){behind}"
    )
    dear = [item for item in dear_helpers(findings) if item.point.label == point.label]
    if dear:
        item = dear[0]
        sentence += (
            f"; {family_words(item.helper.family)} costs more ({us(item.helper.sum_us_per_step)}) than "
            f"the {family_words(item.helped.family)} it helps ({us(item.helped.sum_us_per_step)})"
        )
    return f"{sentence}."


def waiting(point: PointView, findings: Findings) -> str:
    """Where the GPU waits within a clean step, in words; and between bursts, over the recorded windows."""
    figures = point.figures
    step = figures.step_ms.median
    boundary = max(0.0, point.boundary_ms)
    inside = max(0.0, figures.gpu_span_ms.median - figures.busy_ms.median)
    unsafe = [reason for index in point.traces if (reason := idle_unsafe(findings.traces[index]))]
    if unsafe:
        return f"Where the GPU waits cannot be said safely at {point.label}: {unsafe[0]}."
    figures_text = (
        f"step boundaries take {_share(boundary, step)} of a step at {point.label} ({ms(boundary)}), "
        f"gaps inside the {point.unit} {_share(inside, step)} ({ms(inside)})"
    )
    pauses = _between_bursts(findings)
    if boundary + inside < LITTLE_WAITING * step:
        return f"The GPU hardly waits: {figures_text}{pauses}."
    answer = HOST if boundary >= inside else INSIDE
    return f"When the GPU waits, it is mostly for {answer}; {figures_text}{pauses}."


def _between_bursts(findings: Findings) -> str:
    safe = [trace for trace in findings.traces if not idle_unsafe(trace) and trace.window_ns > 0]
    burst = sum(trace.idle.inter_burst_ns for trace in safe)
    if not burst:
        return ", and none of the recorded idle is between bursts of steps"
    stalled = sum(step.stall_ns or 0 for trace in safe for step in stalls(trace))
    window = sum(trace.window_ns for trace in safe) - stalled
    time = "the recorded time without stalls" if stalled else "all recorded time"
    return f", and {percent(burst / window)} of {time} is idle between bursts of steps{clause(safe)}"


def _waiting_of_windows(findings: Findings) -> tuple[str, ...]:
    safe = [trace for trace in findings.traces if not idle_unsafe(trace) and trace.window_ns > 0]
    window = sum(trace.window_ns for trace in safe)
    if not window:
        return ()
    boundary = "step boundaries (host time)" if any(trace.steps for trace in safe) else NO_STEPS
    parts = {
        boundary: sum(trace.idle.step_boundary_ns for trace in safe),
        "gaps inside graph replays": sum(trace.idle.intra_replay_ns for trace in safe),
        "gaps inside steps without a replay": sum(trace.idle.intra_step_ns for trace in safe),
        f"{NAME}{clause(safe)}": sum(trace.idle.inter_burst_ns for trace in safe),
    }
    busy = sum(trace.busy_ns for trace in safe)
    shares = [f"{name} {percent(value / window)}" for name, value in parts.items() if value > 0]
    together = f" ({len(safe)} windows together)" if len(safe) > 1 else ""
    idle = f"; {listing(shares)}" if shares else ""
    return (
        f"Of the recorded {ms(window / NS_PER_MS)}{together} the GPU is busy {percent(busy / window)}{idle}.",
    )


def no_decode(findings: Findings) -> tuple[str, ...]:
    """One sentence for each trace that has no decode row, saying why; devices of one file together."""
    groups: dict[tuple[str, str], list[int]] = {}
    for trace in findings.traces:
        if not trace.decode:
            reason = trace.decode_reason or "It holds no clean decode step"
            groups.setdefault((trace.path, reason.rstrip(".")), []).append(trace.device)
    return tuple(
        f"{code(short_path(path))} has no decode row{_on(devices)}. {capital(reason)}."
        for (path, reason), devices in groups.items()
    )


def _on(devices: list[int]) -> str:
    return f" on devices {listing([str(device) for device in devices])}" if len(devices) > 1 else ""


def dear_helpers(findings: Findings) -> tuple[DearHelper, ...]:
    """Helper families that cost more than what they help, dearest first within the report's order."""
    found: list[DearHelper] = []
    for point in points(findings):
        rows = {row.family: row for row in point.figures.families}
        for helper, helped, does in HELPERS:
            target = next((rows[name] for name in helped if name in rows), None)
            row = rows.get(helper)
            if row and target and row.sum_us_per_step > target.sum_us_per_step > 0:
                found.append(DearHelper(point, row, target, does))
    return tuple(found)


def helper_sentences(findings: Findings) -> tuple[str, ...]:
    """One sentence for each kind of dear helper, with the figures of the largest point where it holds."""
    groups: dict[tuple[str, str], list[DearHelper]] = {}
    for item in dear_helpers(findings):
        groups.setdefault((item.helper.family, item.helped.family), []).append(item)
    sentences: list[str] = []
    for items in groups.values():
        item = max(items, key=lambda each: each.point.size)
        name = costliest_kernel(item.point, item.helper.family)
        kernel = f" ({code(short_kernel(name))})" if name else ""
        also = labels_in_short([each.point for each in items if each is not item])
        elsewhere = f"; the same holds at {also}" if also else ""
        sentences.append(
            f"A helper costs more than what it helps: {family_words(item.helper.family)}{kernel} "
            f"{item.does} {family_words(item.helped.family)} and takes "
            f"{us(item.helper.sum_us_per_step)} per step against {us(item.helped.sum_us_per_step)} "
            f"at {item.point.label} ({item.point.basis}){elsewhere}."
        )
    return tuple(sentences)


def costliest_kernel(point: PointView, family: str) -> str | None:
    """The name of the kernel that takes most of a family's time at an operating point."""
    sums: dict[str, float] = {}
    for kernel in point.kernels:
        if kernel.family == family:
            sums[kernel.name] = sums.get(kernel.name, 0.0) + kernel.sum_us_per_step
    return max(sums, key=lambda name: sums[name]) if sums else None


def per_point(findings: Findings) -> tuple[str, ...]:
    """One sentence for each operating point (of many: for eight spread over all of them)."""
    views = points(findings)
    main = main_point(views)
    return tuple(point_sentence(point) for point in (thinned(views, main) if main else ()))


def point_sentence(point: PointView) -> str:
    """What a replay takes, how busy it is, and its three largest families, for one operating point."""
    figures = point.figures
    total = point.family_sum_us
    ranked = sorted(figures.families, key=lambda row: -row.sum_us_per_step)[:3]
    busy = percent(point.busy_share)
    sentence = (
        f"At {point.label} a {point.unit} takes {ms(figures.gpu_span_ms.median)} ({point.basis}) "
        f"and is {busy} busy"
    )
    if total > 0 and ranked:
        first, *rest = ranked
        others = "".join(
            f", {family_words(row.family)} {percent(row.sum_us_per_step / total)}" for row in rest
        )
        sentence += (
            f"; {family_words(first.family)} is {percent(first.sum_us_per_step / total)} of its summed "
            f"kernel time ({us(first.sum_us_per_step)}){others}"
        )
    return f"{sentence}; the whole step takes {ms(figures.step_ms.median)}."


def _share(part: float, whole: float) -> str:
    return percent(part / whole if whole else 0.0)
