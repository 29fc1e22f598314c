"""What a sweep found: drafts to confirm, conflicts with both sources, and passages without a verdict."""

from itertools import groupby

from wavewise.levers.sweep import Draft, DraftConflict, Passage, Swept
from wavewise.report.section import Section
from wavewise.report.words import plural, short_path

_QUOTE = 220
"""Characters of a quotation in a sentence; the JSON and the drafts hold all of it."""


def sections(found: Swept, *, passages: bool = False) -> tuple[Section, ...]:
    """The answer of `wavewise sweep`: conflicts, then the drafts of each document with the quoted line.

    Args:
        found: what was found.
        passages: whether every passage is listed, also those that give no verdict, with why.
    """
    read = plural(len(found.documents), "document")
    spoken = plural(len({p.lever for p in found.passages}), "lever")
    first = (
        f"{read} read: {plural(len(found.passages), 'passage')} on {spoken}, "
        f"{plural(len(found.drafts), 'draft')} to confirm, {plural(len(found.conflicts), 'conflict')}. "
        "A draft counts for nothing until a person has read its source.",
    )
    parts = [Section("sweep", "What the documents say of the levers", first)]
    if found.conflicts:
        parts.append(
            Section(
                "sweep-conflicts", "Conflicts", tuple(line for c in found.conflicts for line in _conflict(c))
            )
        )
    drafts = sorted(found.drafts, key=lambda d: d.document)
    for number, (document, group) in enumerate(groupby(drafts, key=lambda d: d.document)):
        lines = tuple(_draft(draft) for draft in group)
        parts.append(Section(f"sweep-drafts-{number}", f"Drafts from {short_path(document)}", lines))
    if passages:
        lines = tuple(_passage(p) for p in found.passages)
        parts.append(Section("sweep-passages", "All passages", lines))
    return tuple(parts)


def _conflict(conflict: DraftConflict) -> tuple[str, ...]:
    return (
        f"{conflict.lever}: {conflict.why}.",
        *(
            f"{conflict.lever}, {_verdict(side)}: {_quoted(side.quote)} ({side.place})"
            for side in conflict.sides
        ),
    )


def _draft(draft: Draft) -> str:
    figure = f", {draft.figure}" if draft.figure else ""
    about = ", ".join(part for part in (draft.model, draft.gpu) if part)
    return (
        f"{draft.lever}: {_verdict(draft)}{figure}{f' [{about}]' if about else ''}. "
        f"{_quoted(draft.quote)} {_short_place(draft.place)}"
    )


def _passage(passage: Passage) -> str:
    said = passage.verdict or f"no verdict ({passage.why_not or 'no words of one'})"
    return f"{passage.lever}: {said}. {_quoted(passage.quote)} {_short_place(passage.place)}"


def _verdict(draft: Draft) -> str:
    return f"{draft.verdict} ({draft.ground})" if draft.ground else draft.verdict


def _quoted(text: str) -> str:
    cleaned = text.replace("`", "'")
    short = cleaned if len(cleaned) <= _QUOTE else f"{cleaned[:_QUOTE].rsplit(' ', 1)[0]} ..."
    return f'"{short}"'


def _short_place(place: str) -> str:
    return f"({place.rsplit('/', 1)[-1]})"
