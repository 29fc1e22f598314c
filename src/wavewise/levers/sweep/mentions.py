"""Where levers are named in a sentence, and which of them the sentence is about."""

import re
from dataclasses import dataclass

from wavewise.levers.catalogue import Catalogue

# A lever behind one of these is scenery ("under CUDA graph capture"), or what the subject is compared with.
_SCENERY = re.compile(
    r"\b(?:under|inside|within|during|on top of|alongside|besides?|in addition to|despite|regardless of)\s+(?:the\s+|a\s+|our\s+)?$",
    re.I,
)
_CONTRAST = re.compile(
    r"\b(?:than|instead of|rather than|unlike|without|versus|vs\.?|over|compared (?:to|with)|not|no longer|before|until|"
    r"away from|similar to|as with|except|apart from|other than|in place of|like)\s+(?:the\s+|a\s+|our\s+|plain\s+|default\s+)?$",
    re.I,
)


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


def find_mentions(text: str, catalogue: Catalogue) -> list[Mention]:
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
    return sorted((_with_role(m, text) for m in kept), key=lambda m: m.start)


def _with_role(mention: Mention, text: str) -> Mention:
    before = text[: mention.start]
    if _CONTRAST.search(before):
        return Mention(mention.lever, mention.start, mention.end, "contrast")
    if _SCENERY.search(before):
        return Mention(mention.lever, mention.start, mention.end, "scenery")
    return mention
