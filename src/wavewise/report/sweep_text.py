"""What a sweep found: drafts to confirm, conflicts with both sources, and passages without a verdict."""

from wavewise.levers.sweep import Draft, DraftConflict, Swept
from wavewise.report.section import Cell, Column, Section, Table
from wavewise.report.words import plural


def sections(found: Swept, *, passages: bool = False) -> tuple[Section, ...]:
    """The answer of `wavewise sweep`.

    Args:
        found: what was found.
        passages: whether every passage is listed, also those that give no verdict.
    """
    read = plural(len(found.documents), "document")
    mentions = plural(len(found.passages), "passage")
    levers = len({p.lever for p in found.passages})
    sentences = (
        f"{read} read: {mentions} on {plural(levers, 'lever')}, {plural(len(found.drafts), 'draft')} to confirm, "
        f"{plural(len(found.conflicts), 'conflict')}.",
        "A draft counts for nothing until a person has read its source.",
        *(_conflict(conflict) for conflict in found.conflicts),
    )
    tables = [_drafts(found.drafts)] if found.drafts else []
    if passages and found.passages:
        tables.append(_passages(found))
    return (Section("sweep", "What the documents say of the levers", sentences, tuple(tables)),)


def _conflict(conflict: DraftConflict) -> str:
    sides = "; ".join(
        f'{side.verdict}{f" ({side.ground})" if side.ground else ""} by {side.place}: "{_short(side.quote, 160)}"'
        for side in conflict.sides
    )
    return f"Conflict on {conflict.lever}, {conflict.why}: {sides}."


def _drafts(drafts: tuple[Draft, ...]) -> Table:
    return Table(
        "drafts",
        "Drafts, by document",
        (
            Column("lever"),
            Column("verdict"),
            Column("ground", essential=False),
            Column("figure"),
            Column("place"),
            Column("quote"),
        ),
        tuple(
            (
                Cell(d.lever),
                Cell(d.verdict),
                Cell(d.ground or "-"),
                Cell(d.figure or "-"),
                Cell(_place(d.place)),
                Cell(_short(d.quote, 90), hover=d.quote),
            )
            for d in drafts
        ),
        brief=len(drafts),
        filterable=True,
    )


def _passages(found: Swept) -> Table:
    return Table(
        "passages",
        "All passages; without a verdict, why",
        (
            Column("lever"),
            Column("place"),
            Column("verdict"),
            Column("why none", essential=False),
            Column("quote"),
        ),
        tuple(
            (
                Cell(p.lever),
                Cell(_place(p.place)),
                Cell(p.verdict or "-"),
                Cell(p.why_not or ("-" if p.verdict else "no words of a verdict")),
                Cell(_short(p.quote, 90), hover=p.quote),
            )
            for p in found.passages
        ),
        brief=len(found.passages),
        filterable=True,
    )


def _place(place: str) -> str:
    return place.rsplit("/", 1)[-1]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 4].rstrip()} ..."
