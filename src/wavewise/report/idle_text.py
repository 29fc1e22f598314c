"""Where the GPU waits: the idle split of every window, the answer in words, and stalls that stand out."""

from collections import Counter

from wavewise.findings import Findings, TraceFindings
from wavewise.report.pauses import NAME, clause, empty_ns, stalls
from wavewise.report.safety import idle_unsafe
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.verdict import NO_STEPS
from wavewise.report.words import amount, ms, percent, plural, short_path
from wavewise.units import NS_PER_MS

PARTS = (
    ("intra_replay_ns", "inside replays", "gaps between kernels inside graph replays"),
    ("intra_step_ns", "inside other steps", "gaps inside steps without a replay (prefill, mixed, eager)"),
    ("step_boundary_ns", "step boundary", "step boundaries (host time)"),
    ("inter_burst_ns", "between bursts", NAME),
    ("unrecorded_ns", "unrecorded", "holes where records were lost"),
)
"""Field of `Idle`, column title, words of a sentence."""


ANSWERS = {
    "hardly waits": "nothing (it hardly waits)",
    "replay gaps": "the next kernel, inside graph replays,",
    "eager gaps": "the next kernel, inside steps without a replay,",
    "host": "the host, at step boundaries,",
    "requests": "requests",
    "next burst": "the next burst of steps",
    "unknown": "unknown",
}
"""What `answer` says, as a sentence says it."""


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section on idle time."""
    sentences = [
        *_overall(findings),
        *stall_sentences(findings),
        *_unsafe(findings),
    ]
    return (
        Section(
            name="idle",
            title="Where the GPU waits",
            sentences=tuple(sentences),
            tables=(_table(findings),),
            charts=("idle",),
        ),
    )


def answer(trace: TraceFindings) -> str:
    """What the GPU of one trace waits for, in a word or two for a table."""
    if idle_unsafe(trace):
        return "not safe"
    if trace.window_ns <= 0 or trace.idle.total_ns < 0.03 * trace.window_ns:
        return "hardly waits"
    stalled = stalls(trace)
    if sum(step.stall_ns or 0 for step in stalled) > trace.idle.total_ns / 2:
        return f"host ({plural(len(stalled), 'stall')})"
    words = {
        "intra_replay_ns": "replay gaps",
        "intra_step_ns": "eager gaps",
        "step_boundary_ns": "host",
        "inter_burst_ns": "requests" if 2 * empty_ns(trace) > trace.idle.inter_burst_ns else "next burst",
        "unrecorded_ns": "unknown",
    }
    if not trace.steps:
        return "unknown"
    largest = max(words, key=lambda part: getattr(trace.idle, part))
    return words[largest]


def stall_sentences(findings: Findings) -> tuple[str, ...]:
    """One sentence for each stall, longest first; the rest are counted."""
    found = sorted(
        ((step, trace) for trace in findings.traces for step in stalls(trace)),
        key=lambda item: -(item[0].stall_ns or 0),
    )
    sentences = [
        f"{code(short_path(trace.path))}: step {step.index} ({step.kind}) left the GPU empty for "
        f"{ms((step.stall_ns or 0) / NS_PER_MS)} in one stretch while the step was under way on the host "
        f"(a kernel compile, an allocation or a blocked engine); it is kept out of every statistic."
        for step, trace in found[:5]
        if not step.clean
    ]
    sentences += [
        f"{code(short_path(trace.path))}: clean step {step.index} left the GPU empty for "
        f"{ms((step.stall_ns or 0) / NS_PER_MS)} in one stretch; it is part of the statistics."
        for step, trace in found[:5]
        if step.clean
    ]
    if len(found) > 5:
        sentences.append(f"{plural(len(found) - 5, 'further step')} stalled as conspicuously.")
    return tuple(sentences)


def _overall(findings: Findings) -> list[str]:
    safe = [trace for trace in findings.traces if not idle_unsafe(trace) and trace.window_ns > 0]
    if len(safe) <= 3:
        return [f"{_window(trace, safe)}: {_split([trace])}" for trace in safe]
    waits = Counter(answer(trace) for trace in safe)
    counted = [
        f"{ANSWERS.get(name, f'the {name}')} in {plural(count, 'window')}"
        for name, count in waits.most_common()
    ]
    return [
        f"Over {len(safe)} windows together, {_split(safe)}",
        f"What the GPU waits for most is {listing(counted)}.",
    ]


def _window(trace: TraceFindings, among: list[TraceFindings]) -> str:
    """The file of a window, with its device where the file holds several."""
    shared = sum(other.path == trace.path for other in among) > 1
    return code(short_path(trace.path)) + (f", device {trace.device}" if shared else "")


def _split(traces: list[TraceFindings]) -> str:
    """The windows' division in words. Stalls are left out: one of them would drown everything else."""
    lost = [(step.graph_replays > 0, step.stall_ns or 0) for trace in traces for step in stalls(trace)]
    stalled = sum(length for _, length in lost)
    window_ns = sum(trace.window_ns for trace in traces) - stalled
    busy_ns = sum(trace.busy_ns for trace in traces)
    totals = {part: sum(getattr(trace.idle, part) for trace in traces) for part, _, _ in PARTS}
    for replayed, length in lost:
        part = "step_boundary_ns" if replayed else "intra_step_ns"
        totals[part] = max(0, totals[part] - length)
    words_of = {part: words for part, _, words in PARTS}
    words_of["inter_burst_ns"] += clause(traces)
    if not any(trace.steps for trace in traces):
        words_of["step_boundary_ns"] = NO_STEPS
    named = [(totals[part], words) for part, words in words_of.items() if totals[part]]
    shares = [f"{percent(total / window_ns)} in {words}" for total, words in sorted(named, reverse=True)]
    idle = f", idle {listing(shares)}" if shares else ""
    without = f"without {ms(stalled / NS_PER_MS)} of stalls, " if stalled else ""
    return f"{without}of {ms(window_ns / NS_PER_MS)} the GPU was busy {percent(busy_ns / window_ns)}{idle}."


def _unsafe(findings: Findings) -> list[str]:
    return [
        f"{code(short_path(trace.path))}: the split is not safe to conclude from, because {reason}; "
        "its figures only add up."
        for trace in findings.traces
        if (reason := idle_unsafe(trace))
    ]


def _table(findings: Findings) -> Table:
    several = len({(trace.device, trace.rank) for trace in findings.traces}) > 1
    lost = any(trace.idle.unrecorded_ns for trace in findings.traces)
    parts = [part for part in PARTS if lost or part[0] != "unrecorded_ns"]
    columns = (
        Column("trace"),
        *((Column("device", right=True),) if several else ()),
        Column("window", right=True, term="window"),
        Column("busy", right=True, term="busy time"),
        *(Column(title, right=True, term=title) for _, title, _ in parts),
        Column("waits for"),
    )
    rows: list[tuple[Cell, ...]] = []
    for trace in findings.traces:
        device = (number(trace.device, str(trace.device)),) if several else ()
        cells = [Cell(code(short_path(trace.path)), hover=trace.path), *device]
        cells += [_cell(trace.window_ns), _cell(trace.busy_ns)]
        cells += [_cell(getattr(trace.idle, part)) for part, _, _ in parts]
        cells.append(Cell(answer(trace), hover=idle_unsafe(trace)))
        rows.append(tuple(cells))
    return Table(
        name="idle",
        title="Busy time and idle parts of each window, in ms; they add up to the window exactly",
        columns=columns,
        rows=tuple(rows),
        brief=40,
    )


def _cell(value_ns: int) -> Cell:
    return number(value_ns, amount(value_ns / NS_PER_MS))
