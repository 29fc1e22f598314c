"""A diff as a report: what must be known first, the verdict, then the tables."""

from wavewise.report.diff.result import Diff
from wavewise.report.diff.sentences import limit_sentences, summary, verdict
from wavewise.report.diff.tables import sections
from wavewise.report.section import Report, listing
from wavewise.report.words import engine_words, short_path


def report(diff: Diff) -> Report:
    """The report of a diff."""
    levels = {"stop": "Stop", "caution": "Caution", "info": "Note"}
    ranked = sorted(diff.notes, key=lambda note: list(levels).index(note.level))
    return Report(
        title=_title(diff),
        notes=tuple(f"{levels[note.level]}: {note.message}" for note in ranked),
        verdict=verdict(diff),
        summary=(*limit_sentences(diff.limits), *(line for point in diff.points for line in summary(point))),
        sections=() if diff.empty else tuple(section for point in diff.points for section in sections(point)),
    )


def _title(diff: Diff) -> str:
    gpus = dict.fromkeys(
        "an unknown GPU" if gpu == "unknown" else gpu for gpu in [*diff.before.gpus, *diff.after.gpus]
    )
    engines = dict.fromkeys(engine_words(engine) for engine in [*diff.before.engines, *diff.after.engines])
    sides = f"{short_path(diff.before.path)} -> {short_path(diff.after.path)}"
    return f"{sides}: {listing(list(engines))} on {listing(list(gpus))}"
