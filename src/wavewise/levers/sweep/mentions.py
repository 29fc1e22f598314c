"""Where levers are named in a sentence, and which of them the sentence is about."""

from dataclasses import dataclass

from wavewise.levers.catalogue import Catalogue
from wavewise.levers.sweep.rules import Rules


@dataclass(frozen=True)
class Mention:
    """One lever named in a text.

    Attributes:
        role: "subject", "scenery" or "contrast".
    """

    lever: str
    start: int
    end: int
    role: str = "subject"


def find_mentions(text: str, catalogue: Catalogue, rules: Rules) -> list[Mention]:
    """All mentions, longest names first, none inside another."""
    found = [
        Mention(lever.id, match.start(), match.end())
        for lever in catalogue
        for match in lever.pattern.finditer(text)
    ]
    found.sort(key=lambda m: (m.start - m.end, m.start))
    kept: list[Mention] = []
    for mention in found:
        if all(mention.end <= k.start or mention.start >= k.end for k in kept):
            kept.append(mention)
    return sorted((_with_role(m, text, rules) for m in kept), key=lambda m: m.start)


def _with_role(mention: Mention, text: str, rules: Rules) -> Mention:
    before = text[: mention.start]
    taken_away = rules.shape["removed_before"].search(before) or rules.shape["removed_after"].match(
        text[mention.end :]
    )
    if taken_away or rules.shape["contrast"].search(before):
        return Mention(mention.lever, mention.start, mention.end, "contrast")
    if rules.shape["scenery"].search(before):
        return Mention(mention.lever, mention.start, mention.end, "scenery")
    return mention
