"""A ledger read into memory: matching and contradictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from wavewise.findings import LedgerMatch
from wavewise.levers.ledger.entry import NEGATIVE, Claim, Entry, Platform
from wavewise.levers.ledger.setting import HERE, Setting

CONTRADICTED = "contradicted"
_HOLDS_ORDER = {"here": 0, "expired": 1, "elsewhere": 2}


@dataclass(frozen=True)
class Conflict:
    """Statements about one thing that cannot all be right, each with its source.

    Attributes:
        subject: lever id, or the question.
        statements: two or more, in the ledger's order.
        why: in what they differ.
    """

    subject: str
    statements: tuple[Entry | Claim, ...]
    why: str


@dataclass(frozen=True)
class Ledger:
    """All entries and claims. Drafts are kept, and never count."""

    entries: tuple[Entry, ...] = ()
    claims: tuple[Claim, ...] = ()

    def about(self, lever: str) -> tuple[Entry, ...]:
        """Confirmed entries about a lever."""
        return tuple(e for e in self.entries if e.lever == lever and e.status == "confirmed")

    @property
    def drafts(self) -> tuple[Entry, ...]:
        """Entries that nobody has confirmed."""
        return tuple(e for e in self.entries if e.status == "draft")

    def matches(self, lever: str, setting: Setting) -> tuple[LedgerMatch, ...]:
        """Every confirmed entry about the lever, those that hold here first."""
        found = [
            LedgerMatch(
                entry=e.id,
                verdict=e.verdict,
                holds=holds,
                why=why,
                figure=e.figure,
                source=e.source,
            )
            for e in self.about(lever)
            for holds, why in (setting.holds(e),)
        ]
        return tuple(sorted(found, key=lambda m: _HOLDS_ORDER[m.holds]))

    def verdict(self, lever: str, setting: Setting) -> str | None:
        """The verdict that holds here, "contradicted" where the entries disagree, None without one."""
        holding = [e for e in self.about(lever) if setting.holds(e)[0] == HERE]
        if not holding:
            return None
        return CONTRADICTED if _disagree(holding) else holding[0].verdict

    def conflicts(self, *, drafts: bool = False) -> tuple[Conflict, ...]:
        """Contradictions between statements whose platforms overlap.

        Args:
            drafts: whether drafts take part.
        """
        found: list[Conflict] = []
        entries = sorted(
            (e for e in self.entries if drafts or e.status == "confirmed"), key=lambda e: e.lever
        )
        for lever, group in groupby(entries, key=lambda e: e.lever):
            found.extend(
                Conflict(lever, tuple(members), _disagree(members) or "")
                for members in _quarrels(list(group))
            )
        claims = sorted(
            (c for c in self.claims if drafts or c.status == "confirmed"), key=lambda c: c.question
        )
        for question, group in groupby(claims, key=lambda c: c.question):
            held = list(group)
            if len({c.answer for c in held}) > 1:
                found.append(Conflict(question, tuple(held), "different answers"))
        return tuple(found)


def _disagree(entries: Sequence[Entry]) -> str | None:
    """In what entries about one lever on one platform disagree, None where they agree.

    Verdicts that differ disagree; so do different grounds of one negative verdict (dead for this reason,
    or for that). "works" after "promising" is progress, not disagreement.
    """
    verdicts = {e.verdict for e in entries}
    grounds = {e.ground for e in entries if e.ground is not None and e.verdict in NEGATIVE}
    if verdicts <= {"works", "promising"}:
        return None
    if len(verdicts) > 1:
        return f"verdicts differ: {', '.join(sorted(verdicts))}"
    if len(grounds) > 1:
        return f"both {verdicts.pop()}, on different grounds: {', '.join(sorted(grounds))}"
    return None


def _quarrels(entries: list[Entry]) -> list[list[Entry]]:
    """Entries that disagree with another on an overlapping platform, those that are linked so together."""
    groups: list[list[Entry]] = []
    for i, entry in enumerate(entries):
        rivals = [e for e in entries[:i] if _compatible(entry, e) and _disagree((entry, e))]
        if not rivals:
            continue
        joined = [g for g in groups if any(r in g for r in rivals)]
        members = {e.id for g in joined for e in g} | {e.id for e in rivals} | {entry.id}
        groups = [g for g in groups if g not in joined]
        groups.append([e for e in entries if e.id in members])
    return groups


def _compatible(one: Platform, other: Platform) -> bool:
    if one.gpu is not None and other.gpu is not None:
        a, b = one.gpu.lower().replace("-", " "), other.gpu.lower().replace("-", " ")
        if a not in b and b not in a:
            return False
    return all(
        getattr(one, name) is None
        or getattr(other, name) is None
        or str(getattr(one, name)).lower() == str(getattr(other, name)).lower()
        for name in ("compute_capability", "interconnect", "model", "engine")
    )
