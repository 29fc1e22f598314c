"""What headings, lead-ins, lists and the sentences before say of the levers in a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wavewise.levers.catalogue import Catalogue
from wavewise.levers.sweep.documents import Block
from wavewise.levers.sweep.judge import Context, Found
from wavewise.levers.sweep.mentions import Mention, find_mentions
from wavewise.levers.sweep.rules import Rules
from wavewise.levers.sweep.sentences import parentheses, sentences

_HEAD = re.compile(r"[^.;]{0,40}?(?:[:—–]|\s-{1,2}\s)")
"""What follows the lever that a list member is headed by: a few words, then a colon or dash."""
_OPENING = 60
"""A list member's lever is named within this many characters of its beginning."""


@dataclass(frozen=True)
class BlockContext:
    """Context as it stands before a sentence of a block.

    Attributes:
        label: what the list's lead-in or heading says of its members ("rejected", "promising").
        running: what an earlier sentence of this paragraph said of the ones that follow.
        topic: the lever that an elliptic sentence speaks of.
        fixed: whether the topic was introduced as such ("the first lever is ...") and outlasts other mentions.
        fresh: True before the first sentence.
        listed: whether the block is a list item or a table row.
        supposed: whether the sentence before was a supposition.
        told: whether the topic's outcome has been told, so that a bare figure that follows need not be its.
    """

    label: str | None = None
    running: str | None = None
    topic: str | None = None
    fixed: bool = False
    fresh: bool = True
    listed: bool = False
    told: bool = False
    supposed: bool = False

    def at(self, sentence: str, mentions: Sequence[Mention], rules: Rules) -> Context:
        """The context of a sentence that names `mentions`."""
        topic = self.topic if not _subjects(mentions) else None
        if self.told and not self.fixed and rules.shape["metric"].match(sentence):
            topic = None
        return Context(label=self.label, topic=topic, supposed=self.supposed)

    def labelled(
        self, sentence: str, mentions: Sequence[Mention], settled: dict[str, Found], rules: Rules
    ) -> dict[str, Found]:
        """Adds what the list or lead-in says of its members, and brings facts in line with it."""
        members, label = self._members(sentence, mentions, rules)
        outcome = dict(settled)
        for lever in members:
            found = settled.get(lever)
            position = next(m.start for m in mentions if m.lever == lever)
            stated = Found(lever, label, "label", 2, "", position)
            if label is None:
                continue
            if found is None or found.verdict is None:
                if found is None or found.why_not not in ("a question", "hearsay", "others' verdict"):
                    outcome[lever] = stated
            elif label == "promising" and found.verdict == "works":
                outcome[lever] = replace(found, verdict="promising", kind="estimate", strength=3)
            elif label == "rejected" and found.verdict in ("works", "promising"):
                outcome[lever] = replace(found, verdict=None, why_not="a gain on a list of dead ends")
        return outcome

    def _members(
        self, sentence: str, mentions: Sequence[Mention], rules: Rules
    ) -> tuple[tuple[str, ...], str | None]:
        own = label_of(sentence, rules)
        if self.listed and self.label is not None:
            first = next((m for m in mentions if m.role == "subject"), None)
            if self.fresh and first is not None and first.start <= _OPENING:
                return (first.lever,), self.label
            return (), None
        if own is not None:
            phrase = rules.context[own].search(sentence)
            assert phrase is not None
            listed = _enumerated(sentence, mentions, phrase.end(), rules)
            if listed:
                return listed, own
        if self.running is not None:
            if rules.context["enumerates"].search(sentence):
                listed = _enumerated(sentence, mentions, 0, rules)
                if listed:
                    return listed, self.running
            first = next((m for m in mentions if m.role == "subject"), None)
            if self.running == "rejected" and first is not None and first.start <= 4:
                return (first.lever,), self.running
        return (), None

    def after(
        self, sentence: str, mentions: Sequence[Mention], settled: dict[str, Found], rules: Rules
    ) -> "BlockContext":
        """The context for the next sentence."""
        subjects = _subjects(mentions)
        topic, fixed = self.topic, self.fixed
        heads = self.listed and self.fresh and mentions and _HEAD.match(sentence[mentions[0].end :])
        if heads and mentions[0].role == "subject" and mentions[0].start <= _OPENING:
            topic, fixed = mentions[0].lever, True
        elif len(subjects) == 1 and rules.shape["introduces"].search(sentence[: mentions[0].start + 1] + "."):
            topic, fixed = subjects[0], True
        elif subjects and not fixed:
            topic = subjects[0] if len(subjects) == 1 else None
        running = label_of(sentence, rules) or self.running
        supposed = any(rules.modality[name].search(sentence) for name in ("hypothetical", "conditional"))
        told = self.told and topic == self.topic
        outcome = settled.get(topic) if topic is not None else None
        told = told or (outcome is not None and (outcome.verdict is not None or outcome.why_not is not None))
        return replace(
            self, topic=topic, fixed=fixed, running=running, fresh=False, told=told, supposed=supposed
        )


def heading_context(block: Block, catalogue: Catalogue, rules: Rules) -> BlockContext:
    """The context in which a block begins."""
    listed = block.kind in ("item", "row")
    label = None
    if listed:
        lead = sentences(block.lead)
        label = label_of(lead[-1].of(block.lead), rules) if lead else None
        label = label or next(
            (found for h in reversed(block.headings) if (found := label_of(h, rules))), None
        )
    topic = None
    if block.headings and block.kind != "heading":
        named = {m.lever for m in find_mentions(block.headings[-1], catalogue, rules)}
        topic = named.pop() if len(named) == 1 else None
    return BlockContext(label=label, topic=topic, listed=listed)


def label_of(text: str, rules: Rules) -> str | None:
    """What a heading or sentence says of what it introduces: "rejected", "promising" or None."""
    text = text.replace("'", "’")
    if rules.context["neither"].search(text) or text.rstrip().endswith("?"):
        return None
    found = [label for label in ("rejected", "promising") if rules.context[label].search(text)]
    return found[0] if len(found) == 1 else None


def _subjects(mentions: Sequence[Mention]) -> list[str]:
    return list(dict.fromkeys(m.lever for m in mentions if m.role == "subject"))


def _enumerated(sentence: str, mentions: Sequence[Mention], start: int, rules: Rules) -> tuple[str, ...]:
    """Levers that follow one another as an enumeration of at least two after `start`; brackets are passed over."""
    members: list[Mention] = []
    runs: list[list[Mention]] = []
    named = [m for m in mentions if m.start >= start and m.role == "subject"]
    holes = parentheses(sentence)
    outside = [m for m in named if not any(hole.holds(m.start) for hole in holes)]
    # Names in brackets are aliases or comments, unless the brackets hold the enumeration itself.
    for mention in outside if len({m.lever for m in outside}) > 1 else named:
        if members and not _joined(sentence, members[-1], mention, rules):
            runs.append(members)
            members = []
        members.append(mention)
    runs.append(members)
    best = max(runs, key=lambda run: len({m.lever for m in run}))
    levers = tuple(dict.fromkeys(m.lever for m in best))
    return levers if len(levers) >= 2 else ()


def _joined(sentence: str, one: Mention, other: Mention, rules: Rules) -> bool:
    """Whether nothing but separators, brackets and a few words without a verdict stand between two mentions."""
    between = re.sub(r"\([^()]*\)?", " ", sentence[one.end : other.start])
    if other.start > one.end and _inside_bracket(sentence, one.end, other.start):
        return True
    words = re.findall(r"\w+", between)
    if len(words) > 5 or any(cue.pattern.search(between) for cue in rules.cues):
        return False
    return one.lever == other.lever or bool(re.search(r"[,;/&+]|\band\b|\bor\b|\bplus\b|—|–", between))


def _inside_bracket(sentence: str, start: int, end: int) -> bool:
    """Whether a bracket opened in [start, end) is still open at `end`: an alias or comment, not a member."""
    between = sentence[start:end]
    return between.count("(") > between.count(")")
