"""What a sentence says of the levers it names: one proposed verdict each, or why none.

Precision first. A cue counts only for the lever its clause is about; feared, hoped, conditional, reported and
negated cues count for nothing; a sentence that says two opposite things of a lever says nothing.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from wavewise.levers.sweep.figures import figure_near, pair_direction
from wavewise.levers.sweep.mentions import Mention
from wavewise.levers.sweep.rules import Cue, Rules
from wavewise.levers.sweep.sentences import Clause, Span, clauses, parentheses

POSITIVE = frozenset({"works", "promising"})
FACTUAL = frozenset({"fact", "infinitive"})

_GRAVE = frozenset({"unsafe", "worse"})
"""Of two readings as strong, these stand: "did not help and hurt p99" is worse."""

_UNPAIRED = ("attitude", "hypothetical", "conditional", "superseded", "hedge", "grows")
"""Where one of these stands, two figures are no before and after."""

_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”")
"""Words in quotation marks: somebody else's."""

_ANTECEDENT = re.compile(r"\s*(?:support\b)?\s*,?\s*(?:which|that)\b[^,;]*$", re.I)
"""What stands between a lever and what a relative clause says of it: "GDC support, which is broken"."""

_EMPHATIC = re.compile(r"\b(?:did|does|do)\W*$", re.I)
"""What makes an infinitive a fact: "it did help"."""


@dataclass(frozen=True)
class Found:
    """A cue at work in a sentence, for one lever.

    Attributes:
        verdict: None where `why_not` says why the cue counts for nothing.
    """

    lever: str
    verdict: str | None
    kind: str
    strength: int
    cue: str
    position: int
    why_not: str | None = None
    figure: str | None = None
    cause: bool = False


@dataclass(frozen=True)
class Context:
    """What stands around a sentence.

    Attributes:
        label: "rejected" or "promising" when a list, heading or lead-in says so of its members.
        member: the lever that is the list's member here, which `label` speaks of.
        topic: the lever that an elliptic sentence speaks of.
        supposed: the sentence before was a supposition.
    """

    label: str | None = None
    member: str | None = None
    topic: str | None = None
    supposed: bool = False


def judge(text: str, mentions: Sequence[Mention], context: Context, rules: Rules) -> list[Found]:
    """Every cue of a sentence with the lever it is about.

    Args:
        text: the sentence, apostrophes typographic.
        mentions: levers named in it, positions in `text`.
        context: what stands around it.
        rules: the language rules.
    """
    blanket = _blanket(text, rules)
    holes = parentheses(text)
    outer = _blank(text, holes)
    found: list[Found] = []
    # The topic of the sentences before; what a colon or dash explains must have been spoken of in this one.
    carried: tuple[str, ...] = (context.topic,) if context.topic else ()
    spoken = bool(rules.shape["elliptic"].match(text) or rules.shape["early_pronoun"].match(text))
    # A lever that is named in brackets alone is the sentence's own, by its other name.
    outside = [m for m in mentions if not _in(m, holes)] or list(mentions)
    for clause in clauses(text, holes):
        inside = [m for m in outside if clause.holds(m.start)]
        words = clause.of(outer)
        about = _about(inside, words, clause, carried, spoken, rules)
        hits = _hits(words, rules)
        if not hits and blanket is None:
            found += _paired(words, clause.start, about, rules)
        for hit in hits:
            levers = about(hit.start)
            # "If it were free ... that yields 60 tok/s": the supposition goes on where no word of the past ends it.
            supposed = context.supposed and not inside and not rules.modality["past"].search(words)
            stop = blanket or ("hypothetical: follows from a supposition" if supposed else None)
            found += [_found(lever, hit, words, clause, text, rules, stop) for lever in levers]
        found = _estimated(found, clause, rules)
        if inside:
            subjects = [m.lever for m in inside if m.role == "subject"]
            carried, spoken = tuple(dict.fromkeys(subjects)) or carried, spoken or bool(subjects)
    for hole in holes:
        owners = _owner(hole, mentions, holes, text)
        words = hole.of(text)
        hits = _hits(words, rules)
        if not hits and blanket is None:
            found += _paired(words, hole.start, lambda _, owners=owners: owners, rules)
        inside = [m for m in mentions if hole.holds(m.start)]
        for hit in hits:
            own = _antecedent(hole.start + hit.start, inside, text)
            levers = dict.fromkeys((*owners, *own))
            found += [_found(lever, hit, words, hole, text, rules, blanket) for lever in levers]
    return _quoted_apart([*found, *_reverted(text, mentions, rules)], text, holes, rules)


def _antecedent(position: int, mentions: Sequence[Mention], text: str) -> tuple[str, ...]:
    """The lever that the relative clause of a cue is about: the one named right before it."""
    before = [m for m in mentions if m.end <= position]
    last = max(before, key=lambda m: m.end, default=None)
    return (last.lever,) if last is not None and _ANTECEDENT.match(text[last.end : position]) else ()


def _quoted_apart(found: list[Found], text: str, holes: Sequence[Span], rules: Rules) -> list[Found]:
    """Takes the verdict from levers of which one clause quotes two statements that are not the same.

    Whoever sets two quotations side by side reports what others said. Where those differ, in verdict or in
    ground, neither is what the sentence itself says. A quotation without words of a verdict counts as another
    statement where it is more than a name.
    """
    quotations = [Span(m.start(), m.end()) for m in _QUOTED.finditer(text)]
    apart: set[str] = set()
    for clause in clauses(text, list(holes)) if len(quotations) > 1 else ():
        inside = [span for span in quotations if clause.holds(span.start)]
        for lever in {one.lever for one in found}:
            said = [_quoted_verdict(span, lever, found, text, rules) for span in inside]
            statements = {one for one in said if one is not None}
            if len(statements) > 1 and any(verdict for verdict, _ in statements):
                apart.add(lever)
    why = "quotes statements that differ"
    return [replace(one, verdict=None, why_not=why) if one.lever in apart else one for one in found]


def _quoted_verdict(
    span: Span, lever: str, found: Sequence[Found], text: str, rules: Rules
) -> tuple[str | None, str | None] | None:
    """(verdict, ground) of a lever in a quotation, (None, its words) where it has no verdict, None for a name."""
    verdict = next(
        (f.verdict for f in found if f.lever == lever and f.verdict and span.holds(f.position)), None
    )
    words = span.of(text)
    if verdict is not None:
        return verdict, rules.ground(words)
    return (None, words) if len(words.split()) > 1 else None


@dataclass(frozen=True)
class _Hit:
    cue: Cue
    start: int
    end: int


def _hits(words: str, rules: Rules) -> list[_Hit]:
    """Cues in a clause, the strongest and longest first, none inside another."""
    hits = [_Hit(cue, m.start(), m.end()) for cue in rules.cues for m in cue.pattern.finditer(words)]
    hits.sort(key=lambda h: (-h.cue.strength, h.start - h.end, h.start))
    kept: list[_Hit] = []
    for hit in hits:
        if all(hit.end <= k.start or hit.start >= k.end for k in kept):
            kept.append(hit)
    return sorted(kept, key=lambda h: h.start)


def _about(
    inside: Sequence[Mention],
    words: str,
    clause: Clause,
    carried: tuple[str, ...],
    spoken: bool,
    rules: Rules,
) -> Callable[[int], tuple[str, ...]]:
    """A function of a cue's position: the levers it is about."""
    subjects = [m for m in inside if m.role == "subject"]
    scenery = [m for m in inside if m.role == "scenery"]
    contrast = [m for m in inside if m.role == "contrast"]
    distinct = tuple(dict.fromkeys(m.lever for m in subjects))

    def levers(position: int) -> tuple[str, ...]:
        if len(distinct) == 1:
            return distinct
        if len(distinct) > 1:
            return _coordinated(subjects, words, clause.start, position)
        if contrast:
            return ()
        continues = rules.shape["pronoun"].search(words[:position]) or (
            spoken and (clause.explains or rules.shape["elliptic"].match(words))
        )
        return carried if continues or scenery else ()

    return levers


def _coordinated(subjects: Sequence[Mention], words: str, offset: int, position: int) -> tuple[str, ...]:
    """Several levers in one clause: all of "X, Y and Z" before the cue; else nobody knows which."""
    before = [m for m in subjects if m.end - offset <= position]
    after = [m for m in subjects if m.end - offset > position]
    group = before or after
    if before and after:
        return ()
    for one, other in pairwise(group):
        between = words[one.end - offset : other.start - offset]
        if one.lever != other.lever and not re.fullmatch(
            r"[\s,/&+]*(?:and|or|nor|plus|as well as|both)?[\s,/&+]*(?:the |our )?", between
        ):
            return ()
    return tuple(dict.fromkeys(m.lever for m in group))


def _owner(hole: Span, mentions: Sequence[Mention], holes: Sequence[Span], text: str) -> tuple[str, ...]:
    """The lever that a bracket comments on: the last one named before it, with nothing but a few words between."""
    before = [m for m in mentions if m.end <= hole.start and not _in(m, holes)]
    if before:
        last = max(before, key=lambda m: m.end)
        between = text[last.end : hole.start - 1]
        if len(between) <= 60 and not re.search(r"[;:.—–()]|,", between):
            return (last.lever,)
    return ()


def _found(
    lever: str, hit: _Hit, words: str, span: Span, text: str, rules: Rules, blanket: str | None
) -> Found:
    verdict, why = _reading(hit, words, rules)
    if blanket is not None:
        verdict, why = None, blanket
    offset = span.start
    # What stands in brackets has its figure there; a clause may have it in the brackets behind it.
    where = text if isinstance(span, Clause) else " " * offset + words
    figure = figure_near(where, offset + hit.start, offset + hit.end) if verdict else None
    cause = bool(rules.modality["cause"].match(words.strip()))
    return Found(
        lever,
        verdict,
        hit.cue.kind,
        hit.cue.strength + (figure is not None and hit.cue.kind in FACTUAL and hit.cue.verdict != "rejected"),
        words[hit.start : hit.end].strip(),
        offset + hit.start,
        why,
        figure,
        cause,
    )


def _reading(hit: _Hit, words: str, rules: Rules) -> tuple[str | None, str | None]:
    """(verdict, None), or (None, why the cue counts for nothing), from the clause alone."""
    cue, modality = hit.cue, rules.modality
    before = words[: hit.start]
    # A negation reaches to the cue, but not past an "and" or "but" ("without a hiccup and gives 6 %").
    near = " ".join(re.split(r"\b(?:and|but)\b", before)[-1].split()[-6:])
    attitude = modality["attitude"].search(words)
    if attitude is not None and attitude.start() <= hit.start:
        return None, f"an attitude, not an outcome: {attitude.group().strip()!r}"
    if modality["conditional"].search(words):
        return None, "conditional"
    if modality["superseded"].search(words):
        return None, "superseded: how it was at first"
    if modality["hedge" if cue.kind in FACTUAL else "hedge_estimate"].search(near):
        return None, "hedged"
    if cue.kind == "estimate" and modality["on_paper"].search(words):
        return None, "hedged"
    if _inner_negation(hit, words, rules):
        return None, "negated"
    negated = _negated(near, rules) and not re.match(
        r"\W*(?:no|zero|none|without|not|never)\b", words[hit.start :], re.I
    )
    if negated:
        if modality["merit"].search(near):
            return None, "not about speed"
        denied = modality["denies"].search(near) and not modality["hypothetical"].search(before)
        if cue.negated != "drop" and cue.kind in FACTUAL and denied:
            return cue.negated, None
        return None, "negated"
    hypothetical = modality["hypothetical"].search(before)
    limited = modality["limiting"].search(words[max(0, hit.start - 25) : hit.end])
    if cue.kind == "infinitive" and not _EMPHATIC.search(before):
        return None, "no finite verb"
    if cue.kind in FACTUAL:
        if hypothetical is not None:
            return None, f"hypothetical: {hypothetical.group().strip()!r}"
        if cue.verdict == "works" and limited:
            return None, "limited: hardly a gain"
        return cue.verdict, None
    if limited:
        return None, "limited: hardly a gain"
    return cue.verdict, None


def _estimated(found: list[Found], clause: Clause, rules: Rules) -> list[Found]:
    """In a clause that estimates ("a clear path to a 2x improvement"), a gain without a past verb is no fact."""
    here = [f for f in found if clause.holds(f.position)]
    if not any(f.kind == "estimate" and f.verdict for f in here):
        return found
    return [
        replace(f, verdict="promising", kind="estimate", strength=2)
        if f in here and f.verdict == "works" and not rules.modality["past"].search(f.cue)
        else f
        for f in found
    ]


def _inner_negation(hit: _Hit, words: str, rules: Rules) -> bool:
    """A negation between the words of a cue that brings none of its own ("are not a dead end")."""
    cue = words[hit.start : hit.end]
    if hit.cue.verdict in ("no gain", "blocked") or (
        hit.cue.verdict == "rejected" and "dead" not in cue.lower()
    ):
        return False
    return bool(rules.modality["negation"].search(cue))


def _negated(near: str, rules: Rules) -> bool:
    exempt = rules.modality["negation_exempt"]
    return bool(rules.modality["negation"].search(exempt.sub(" ", near)))


def _blanket(text: str, rules: Rules) -> str | None:
    """Why a whole sentence gives no verdict, whatever it says."""
    modality = rules.modality
    if text.rstrip("\"'”’) ").endswith("?"):
        return "a question"
    if modality["caveat"].match(text.strip()):
        return "a caveat"
    if modality["moot"].search(text):
        return "a doubt that does not hold"
    if modality["denial"].search(text):
        return "denied"
    if modality["hearsay"].search(text):
        return "hearsay"
    if modality["others"].search(text) and not modality["own"].search(text):
        return "others' verdict"
    return None


def _paired(words: str, offset: int, levers: Callable[[int], tuple[str, ...]], rules: Rules) -> list[Found]:
    """The direction of "23 -> 14 tok/s" in a clause or bracket that has no other cue."""
    pair = pair_direction(words, rules)
    if pair is None:
        return []
    verdict, figure, position = pair
    if any(rules.modality[name].search(words[:position]) for name in _UNPAIRED):
        return []
    return [
        Found(lever, verdict, "fact", 6, figure, offset + position, None, figure)
        for lever in levers(position)
    ]


def _reverted(text: str, mentions: Sequence[Mention], rules: Rules) -> list[Found]:
    """A commit that reverts the one lever it names."""
    levers = {m.lever for m in mentions}
    if len(levers) != 1 or not rules.shape["reverts"].match(text):
        return []
    return [Found(levers.pop(), "rejected", "fact", 3, "Revert", 0)]


def settle(found: Iterable[Found]) -> dict[str, Found]:
    """One outcome per lever and sentence: the strongest reading, none where facts of opposite sense meet.

    A cue in a clause of reason ("because ... is broken") counts only where the main clause has none; an explicit
    rejection stands before its reasons, but for a measured one.
    """
    outcome: dict[str, Found] = {}
    by_lever: dict[str, list[Found]] = {}
    for one in found:
        by_lever.setdefault(one.lever, []).append(one)
    for lever, all_of in by_lever.items():
        said = [f for f in all_of if f.verdict is not None]
        facts = [f for f in said if f.kind in FACTUAL]
        main = [f for f in facts if not f.cause] or facts
        if len({f.verdict in POSITIVE for f in main}) > 1:
            outcome[lever] = replace(main[0], verdict=None, why_not="says two opposite things")
        elif main:
            outcome[lever] = max(main, key=lambda f: (f.strength, f.verdict in _GRAVE, -f.position))
        elif said:
            outcome[lever] = max(said, key=lambda f: (f.strength, -f.position))
        else:
            outcome[lever] = all_of[0]
    return outcome


def _blank(text: str, holes: Sequence[Span]) -> str:
    """The text with what stands in brackets blanked, positions kept."""
    for hole in holes:
        text = text[: hole.start] + " " * (hole.end - hole.start) + text[hole.end :]
    return text


def _in(mention: Mention, holes: Sequence[Span]) -> bool:
    return any(hole.holds(mention.start) for hole in holes)
