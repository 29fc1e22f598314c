"""From passages to drafts: one per lever and document, none where a document contradicts itself."""

import re
from collections.abc import Sequence
from itertools import groupby

from wavewise.levers.ledger import Entry
from wavewise.levers.sweep.findings import Draft, DraftConflict, Passage
from wavewise.levers.sweep.judge import POSITIVE
from wavewise.levers.sweep.rules import Rules


def draft_documents(passages: Sequence[Passage], rules: Rules) -> tuple[list[Draft], list[DraftConflict]]:
    """Drafts, and the levers of which one document says opposite things."""
    drafts: list[Draft] = []
    unclear: list[DraftConflict] = []
    for _, group in groupby(sorted(passages, key=_subject), key=_subject):
        said = [p for p in group if p.verdict is not None]
        here = [p for p in said if not p.elsewhere] or said
        if not here:
            continue
        chosen = _choose(here, rules)
        if isinstance(chosen, Passage):
            drafts.append(_draft(chosen, [p for p in said if p is not chosen]))
        else:
            unclear.append(
                DraftConflict(
                    lever=here[0].lever,
                    why="one document says opposite things of it",
                    sides=tuple(_draft(p, ()) for p in chosen),
                )
            )
    return drafts, unclear


def _subject(passage: Passage) -> tuple[str, str]:
    return passage.document, passage.lever


def _lever(draft: Draft) -> str:
    return draft.lever


def _choose(said: Sequence[Passage], rules: Rules) -> Passage | tuple[Passage, Passage]:
    """The passage that speaks for a document, or two that contradict one another.

    Facts stand before estimates and list labels. Where facts disagree, a later one that says it revises ("after
    the fix", "now") stands; otherwise the document is not clear.
    """
    facts = [p for p in said if p.strength >= 4 or p.verdict not in ("promising", "rejected")]
    rejections = [p for p in said if p.verdict == "rejected" and p not in facts]
    pool = facts or rejections or list(said)
    positive = [p for p in pool if p.verdict in POSITIVE]
    negative = [p for p in pool if p.verdict not in POSITIVE]
    if positive and negative:
        last = pool[-1]
        if rules.modality["revision"].search(last.quote.replace("'", "’")):
            return last
        return positive[0], negative[0]
    if not facts and rejections and any(p.verdict == "promising" for p in said):
        return rejections[0], next(p for p in said if p.verdict == "promising")
    return max(pool, key=lambda p: (p.strength, p.figure is not None, -pool.index(p)))


def _draft(passage: Passage, others: Sequence[Passage]) -> Draft:
    assert passage.verdict is not None
    figure = passage.figure or next(
        (p.figure for p in others if p.figure is not None and p.verdict == passage.verdict), None
    )
    return Draft(
        lever=passage.lever,
        verdict=passage.verdict,
        ground=passage.ground,
        figure=figure,
        quote=passage.quote,
        place=passage.place,
        document=passage.document,
        model=passage.model,
        gpu=passage.gpu,
        also=tuple(f"{p.verdict} ({p.place})" for p in others),
    )


def conflicts_of(drafts: Sequence[Draft], unclear: Sequence[DraftConflict]) -> list[DraftConflict]:
    """Levers on which documents disagree, in verdict or in the ground of a negative one, then the unclear ones."""
    found: list[DraftConflict] = []
    for lever, group in groupby(sorted(drafts, key=_lever), key=_lever):
        sides = list(group)
        verdicts = {d.verdict for d in sides}
        grounds = {d.ground for d in sides if d.ground is not None and d.verdict not in POSITIVE}
        if len(sides) < 2 or verdicts <= POSITIVE:
            continue
        if len(verdicts) > 1:
            found.append(DraftConflict(lever=lever, why="verdicts differ", sides=tuple(sides)))
        elif len(grounds) > 1:
            found.append(
                DraftConflict(lever=lever, why="the same verdict on different grounds", sides=tuple(sides))
            )
    return [*found, *unclear]


def as_entries(drafts: Sequence[Draft], platform: dict[str, str | int | None]) -> list[Entry]:
    """Drafts as ledger entries with `status = "draft"`; what a draft names itself stands before `platform`."""
    entries: list[Entry] = []
    counts: dict[str, int] = {}
    for draft in drafts:
        stem = re.sub(r"[^a-z0-9]+", "-", draft.document.rsplit("/", 1)[-1].lower()).strip("-") or "document"
        base = f"draft-{draft.lever}-{stem}"
        counts[base] = counts.get(base, 0) + 1
        fields = {**platform}
        if draft.model is not None:
            fields["model"] = draft.model
        if draft.gpu is not None:
            fields["gpu"] = draft.gpu
        entries.append(
            Entry(
                id=base if counts[base] == 1 else f"{base}-{counts[base]}",
                lever=draft.lever,
                verdict=draft.verdict,
                ground=draft.ground,
                figure=draft.figure,
                evidence=draft.quote,
                source=draft.place,
                status="draft",
                **fields,  # type: ignore[arg-type]
            )
        )
    return entries
