"""Which lever to pull next: savings with their basis, ledger verdicts, what was tried, what cannot be judged."""

from wavewise.findings import Findings, LedgerMatch, Lever
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, capital, family_words, percent, us

_EXPLAINED = 5
"""How many savings are spelled out in sentences; the table of bases has them all."""

_DEAD = frozenset({"no gain", "worse", "blocked", "unsafe", "rejected"})

_HOLDS = {"here": "here", "expired": "expired", "elsewhere": "elsewhere"}


def sections(findings: Findings) -> tuple[Section, ...]:
    """The ranking, then what the ledger knows, then what cannot be judged."""
    levers = findings.levers
    if not levers:
        reason = findings.levers_reason
        return (Section("levers", "Which lever to pull next", (f"Not ranked: {reason}.",)),) if reason else ()
    saving = [lever for lever in levers if lever.predicted_saving_us_per_step]
    none = (
        ()
        if saving
        else ("No lever of the catalogue has a predicted saving here: the tables say why of each.",)
    )
    sentences = (
        *none,
        *(_explained(place, lever) for place, lever in enumerate(saving[:_EXPLAINED], 1)),
        *_overlaps(saving),
        *tried_sentences(levers),
        *_ledger_sentences(levers),
    )
    tables = [
        t for t in (_ranking(saving), _bases(saving), _idle(levers), _open(levers), _ledger(levers)) if t
    ]
    return (Section("levers", "Which lever to pull next", sentences, tuple(tables), ("levers",)),)


def headlines(findings: Findings) -> tuple[str, ...]:
    """The first lever in one sentence."""
    first = next((lever for lever in findings.levers or () if lever.predicted_saving_us_per_step), None)
    if first is None:
        return ()
    return (
        f"First lever: {first.title[0].lower()}{first.title[1:]}, predicted to save "
        f"{_saving(first)} "
        f"({first.confidence or 'unknown'} confidence, {first.risk} risk).",
    )


def tried_sentences(levers: tuple[Lever, ...]) -> tuple[str, ...]:
    """What each tried lever could at most have bought."""
    return tuple(
        f"Tried: {lever.tried.name}. {capital(lever.tried.sentence)}"
        + (f"; the ledger says {lever.verdict_in_ledger} here." if lever.verdict_in_ledger else ".")
        for lever in levers
        if lever.tried is not None
    )


def _saving(lever: Lever) -> str:
    where = "over the recorded steps" if lever.batch_size is None else f"at batch {lever.batch_size}"
    share = (
        "" if lever.saving_share_of_step is None else f", {percent(lever.saving_share_of_step)} of the step"
    )
    return f"{us(lever.predicted_saving_us_per_step or 0.0)} per step {where}{share}"


def _explained(place: int, lever: Lever) -> str:
    verdict = f" The ledger says: {lever.verdict_in_ledger}." if lever.verdict_in_ledger else ""
    return f"{place}. {lever.title}: {_saving(lever)}. Basis: {lever.basis}.{verdict}"


def _overlaps(saving: list[Lever]) -> tuple[str, ...]:
    """Savings that act on the same time do not add up; the sentence names the pairs that are both predicted."""
    ids = {lever.id for lever in saving}
    pairs = sorted(
        {
            tuple(sorted((lever.id, other)))
            for lever in saving
            for other in lever.overlaps_with
            if other in ids
        }
    )
    if not pairs:
        return ()
    named = "; ".join(" and ".join(pair) for pair in pairs)
    return (f"Savings that act on the same time and do not add up: {named}.",)


def _ledger_sentences(levers: tuple[Lever, ...]) -> tuple[str, ...]:
    said = {
        "Proven on this platform": [v.id for v in levers if v.verdict_in_ledger == "works"],
        "Known dead ends on this platform": [
            f"{v.id} ({v.verdict_in_ledger})" for v in levers if v.verdict_in_ledger in _DEAD
        ],
        "The ledger contradicts itself, both sides below, on": [
            v.id for v in levers if v.verdict_in_ledger == "contradicted"
        ],
    }
    return tuple(f"{what}: {listing(ids)}." for what, ids in said.items() if ids)


def _ranking(saving: list[Lever]) -> Table | None:
    if not saving:
        return None
    rows = tuple(
        (
            Cell(code(lever.id), hover=lever.title),
            Cell("host, step" if lever.family is None else family_words(lever.family)),
            number(
                lever.batch_size, str(lever.batch_size) if lever.batch_size is not None else None, "all steps"
            ),
            number(
                lever.predicted_saving_us_per_step, amount(lever.predicted_saving_us_per_step or 0.0, "us")
            ),
            number(
                lever.saving_share_of_step,
                None if lever.saving_share_of_step is None else percent(lever.saving_share_of_step),
            ),
            number(
                lever.ceiling_us_per_step,
                None if lever.ceiling_us_per_step is None else amount(lever.ceiling_us_per_step, "us"),
                "no family bounds it",
            ),
            Cell(lever.confidence or "-"),
            Cell(lever.risk),
            Cell(lever.verdict_in_ledger or "-"),
        )
        for lever in saving
    )
    return Table(
        "levers",
        "Levers by predicted saving (those at the largest batch size first)",
        (
            Column("lever", whole=True),
            Column("acts on", essential=False),
            Column("batch", right=True),
            Column("saving, us/step", right=True),
            Column("of step", right=True),
            Column("ceiling, us", right=True, term="ceiling", essential=False),
            Column("confidence", essential=False),
            Column("risk"),
            Column("ledger", term="ledger"),
        ),
        rows,
        filterable=True,
    )


def _bases(saving: list[Lever]) -> Table | None:
    if not saving:
        return None
    return Table(
        "lever-bases",
        "How each saving was computed, and on what evidence",
        (Column("lever", whole=True), Column("basis"), Column("evidence", essential=False)),
        tuple((Cell(code(lever.id)), Cell(lever.basis), Cell(lever.evidence)) for lever in saving),
        brief=20,
        detail=True,
    )


def _idle(levers: tuple[Lever, ...]) -> Table | None:
    rows = tuple(
        (Cell(code(lever.id), hover=lever.title), Cell(lever.basis))
        for lever in levers
        if lever.predicted_saving_us_per_step == 0.0
    )
    if not rows:
        return None
    return Table(
        "levers-idle",
        "Levers with nothing to save here",
        (Column("lever", whole=True), Column("why")),
        rows,
        brief=6,
    )


def _open(levers: tuple[Lever, ...]) -> Table | None:
    rows = tuple(
        (Cell(code(lever.id), hover=lever.title), Cell(lever.needs or "-"), Cell(lever.basis))
        for lever in levers
        if lever.predicted_saving_us_per_step is None
        and (lever.tried is None or lever.tried.sentence != lever.basis)
    )
    if not rows:
        return None
    return Table(
        "levers-open",
        "Levers that this input cannot judge",
        (Column("lever", whole=True), Column("needs"), Column("what is known", essential=False)),
        rows,
    )


def _ledger(levers: tuple[Lever, ...]) -> Table | None:
    """Entries that hold here or have expired; of the others only their number."""
    matches = [(lever, match) for lever in levers for match in lever.ledger if match.holds != "elsewhere"]
    if not matches:
        return None
    return Table(
        "lever-ledger",
        "What the ledger holds for this platform",
        (
            Column("lever", whole=True),
            Column("verdict"),
            Column("figure"),
            Column("holds"),
            Column("source", essential=False),
        ),
        tuple((Cell(code(lever.id)), *_match(match)) for lever, match in matches),
    )


def _match(match: LedgerMatch) -> tuple[Cell, Cell, Cell, Cell]:
    return (
        Cell(match.verdict),
        Cell(match.figure or "-"),
        Cell(_HOLDS[match.holds], hover=match.why),
        Cell(match.source or "-"),
    )
