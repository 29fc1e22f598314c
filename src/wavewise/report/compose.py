"""Puts a report together from its sections. The only place that knows their order."""

from collections import Counter
from dataclasses import replace

from wavewise.findings import Findings
from wavewise.report import (
    ceilings_text,
    decode_text,
    fill_text,
    idle_text,
    kernels_text,
    levers_text,
    quality_text,
    ranks_text,
    recorded_text,
    scaling_text,
    steps_text,
)
from wavewise.report.safety import cautions
from wavewise.report.section import Cell, Report, Section, listing
from wavewise.report.verdict import helper_sentences, no_decode, per_point, verdict
from wavewise.report.words import engine_words, families_in_words, plural, printable

SUBJECTS = (
    decode_text,
    idle_text,
    ranks_text,
    recorded_text,
    scaling_text,
    ceilings_text,
    levers_text,
    fill_text,
    kernels_text,
    steps_text,
    quality_text,
)
"""Modules with `sections(findings)`, in the order in which a report speaks of their subjects."""

WITHOUT_TRACE = (recorded_text, scaling_text, ceilings_text, levers_text)
"""Those that speak of a recording without a trace: the others read what is not there."""

LEVELS = ("stop", "caution", "info")


def compose(findings: Findings) -> Report:
    """The report of `findings`: notes, verdict, summary, then sections in reading order."""
    opening = verdict(findings) if findings.traces else recorded_text.verdict(findings)
    said = tuple(map(families_in_words, summary(findings)))
    subjects = SUBJECTS if findings.traces else WITHOUT_TRACE
    found = [in_words(section) for subject in subjects for section in subject.sections(findings)]
    return Report(
        title=title(findings),
        notes=notes(findings),
        verdict=opening,
        summary=said,
        sections=_once([_without(section, (*opening, *said)) for section in found]),
    )


def in_words(section: Section) -> Section:
    """The section with its families called by their words everywhere; tables keep the key on hover."""
    tables = tuple(
        replace(table, rows=tuple(tuple(map(_cell_in_words, row)) for row in table.rows))
        for table in section.tables
    )
    return replace(section, sentences=tuple(map(families_in_words, section.sentences)), tables=tables)


def _cell_in_words(cell: Cell) -> Cell:
    # A cell is no sentence: what it names stays lower case.
    words = families_in_words(f" {cell.text}")[1:]
    return cell if words == cell.text else replace(cell, text=words, hover=cell.hover or cell.text.strip("`"))


def _once(sections: list[Section]) -> tuple[Section, ...]:
    """The sections that say something, each chart in the first of them that asks for it."""
    placed: set[str] = set()
    kept: list[Section] = []
    for section in sections:
        kept.append(replace(section, charts=tuple(name for name in section.charts if name not in placed)))
        placed.update(section.charts)
    return tuple(section for section in kept if section.sentences or section.tables or section.charts)


def _without(section: Section, said: tuple[str, ...]) -> Section:
    """The section without what the summary has said already, unless that is all it opens with."""
    if section.name == "fill":
        return section
    return replace(section, sentences=tuple(line for line in section.sentences if line not in said))


def title(findings: Findings) -> str:
    """What was analysed: "8 traces of vLLM on NVIDIA H200 (132 SMs)"."""
    if not findings.traces:
        return recorded_text.title(findings)
    gpus = Counter(
        f"{printable(trace.gpu.name or 'unknown GPU')}"
        + (f" ({trace.gpu.sm_count} SMs)" if trace.gpu.sm_count else "")
        for trace in findings.traces
    )
    engines = Counter(engine_words(trace.engine) for trace in findings.traces)
    files = len({trace.path for trace in findings.traces})
    return f"{plural(files, 'trace')} of {listing(list(engines))} on {listing(list(gpus))}"


def notes(findings: Findings) -> tuple[str, ...]:
    """What must be known before the numbers, most severe first; what damage makes unsafe among it."""
    words = {"stop": "Stop", "caution": "Caution", "info": "Note"}
    ranked = sorted(
        findings.notes, key=lambda note: LEVELS.index(note.level) if note.level in LEVELS else len(LEVELS)
    )
    lines = [f"{words.get(note.level, 'Note')}: {families_in_words(note.message)}" for note in ranked]
    stops = sum(line.startswith(f"{words['stop']}:") for line in lines)
    return (*lines[:stops], *cautions(findings), *lines[stops:])


def summary(findings: Findings) -> tuple[str, ...]:
    """First lines after the verdict, each with its numbers."""
    missing = no_decode(findings) if any(trace.decode for trace in findings.traces) else ()
    return (
        *scaling_text.headlines(findings),
        *levers_text.headlines(findings),
        *helper_sentences(findings),
        *fill_text.headlines(findings),
        *ranks_text.headlines(findings),
        *idle_text.stall_sentences(findings),
        *missing,
        *per_point(findings),
    )
