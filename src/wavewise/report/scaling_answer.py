"""The answer of `wavewise scale` alone: the sections on growth and ceilings, or their part of findings.json."""

import msgspec
from rich.console import Console

from wavewise.findings import Findings
from wavewise.report import ceilings_text, scaling_text
from wavewise.report.compose import in_words, notes
from wavewise.report.terminal import print_section

PARTS = (
    "schema",
    "wavewise",
    "notes",
    "scaling",
    "scaling_reason",
    "premise",
    "context_scaling",
    "latency_target",
    "throughput_target",
    "targets_reason",
    "ceilings",
    "ceilings_reason",
    "what_ifs",
    "signature",
)
"""Keys of findings.json that belong to the answer, under their own names."""


def print_answer(findings: Findings, console: Console) -> None:
    """Prints what stands against the numbers first, then how the step grows and what could be left."""
    for note in notes(findings):
        console.print(note, markup=False)
    sections = (*scaling_text.sections(findings), *ceilings_text.sections(findings))
    for at, section in enumerate(sections):
        if at or findings.notes:
            console.print()
        print_section(in_words(section), console)


def answer_json(findings: Findings) -> bytes:
    """The answer's part of findings.json."""
    whole = msgspec.to_builtins(findings)
    return msgspec.json.format(msgspec.json.encode({key: whole[key] for key in PARTS}), indent=1)
