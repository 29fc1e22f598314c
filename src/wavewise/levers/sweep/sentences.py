"""Sentences and clauses, with their place in the block."""

import re
from dataclasses import dataclass

_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|ca|fig|figs|sec|no|eq|resp|al|incl|max|min|avg|est)|\b[A-Z]|^\d{1,3})\.$",
    re.I,
)
_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)")
_CLAUSE = re.compile(
    r"""\s*(?:;|:(?=\s)|\s[—–]\s|—|\s--?\s|\s(?:->|→|=>)\s(?=[A-Za-z]))\s*
    |,?\s+(?=(?:but|yet|however|although|though|whereas|because|since|so\ that|until|unless)\b)
    |,\s+(?=(?:nothing|none|zero|and|so|which|while|where|as|then|or|even)\b)
    |\s+(?=(?:due\ to|thanks\ to|after|once|even\ if|if)\b)""",
    re.X | re.I,
)


_EXPLAINS = frozenset({":", "—", "–", "-", "--", "->", "→", "=>"})


@dataclass(frozen=True)
class Span:
    """A stretch of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The stretch itself."""
        return text[self.start : self.end]

    def holds(self, position: int) -> bool:
        """Whether a position lies in it."""
        return self.start <= position < self.end


def sentences(text: str) -> list[Span]:
    """Sentences of a block, abbreviations and decimal points respected."""
    spans: list[Span] = []
    start = 0
    for match in _END.finditer(text):
        if match.group().startswith(".") and _ABBREVIATION.search(text[start : match.start() + 1]):
            continue
        if _depth(text[start : match.start()]) > 0:
            continue
        spans.append(Span(start, match.end()))
        start = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
    if start < len(text):
        spans.append(Span(start, len(text)))
    return [s for s in spans if s.of(text).strip()]


def _depth(text: str) -> int:
    return text.count("(") - text.count(")")


def parentheses(text: str) -> list[Span]:
    """Contents of outermost round brackets (an unclosed one holds nothing)."""
    found: list[Span] = []
    depth, start = 0, 0
    for i, char in enumerate(text):
        if char == "(":
            if depth == 0:
                start = i + 1
            depth += 1
        elif char == ")" and depth:
            depth -= 1
            if depth == 0:
                found.append(Span(start, i))
    return found


@dataclass(frozen=True)
class Clause(Span):
    """A clause.

    Attributes:
        explains: it stands behind a colon or dash, and so speaks of what stands before it.
    """

    explains: bool = False


def clauses(text: str, holes: list[Span]) -> list[Clause]:
    """Clauses of a sentence; boundaries inside `holes` (brackets) do not count."""
    cuts = [
        m
        for m in _CLAUSE.finditer(text)
        if m.start() > 0 and not any(h.holds(m.start()) or h.holds(m.end() - 1) for h in holes)
    ]
    spans: list[Clause] = []
    start, explains = 0, False
    for match in cuts:
        spans.append(Clause(start, match.start(), explains))
        start = match.end()
        explains = match.group().strip() in _EXPLAINS
    spans.append(Clause(start, len(text), explains))
    return [s for s in spans if s.of(text).strip()]
