"""Figures in prose: the one nearest a cue, and which way "23 -> 14 tok/s" points."""

import re
from functools import lru_cache

from wavewise.levers.sweep.rules import Rules

_UNIT = (
    r"(?:\s?(?:%|×|x\b|percent\b|ms(?:/req(?:uest)?)?\b|us\b|µs\b|μs\b|ns\b|s\b|tps\b|tok/s|tokens per second"
    r"|tok(?:ens?)?\s?(?:/|per)\s?s(?:ec(?:ond)?)?\b|cycles\b|[GM]B(?:/s)?\b|points?\b|times\b))"
)
_SIGNED = r"[~≈]?[+\-−–±]?\d[\d,]*(?:\.\d+)?"
_REACH = 90
"""Characters between a cue and its figure: a longer way off, it is another statement's."""


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    joint = r"\s?(?:→|->|=>|–|-|\bto\b|\bvs\.?|\bversus\b|\bagainst\b)\s?"
    pair = re.compile(rf"(?<![\w.])({_SIGNED})({_UNIT})?{joint}({_SIGNED})({_UNIT})", re.I)
    single = re.compile(rf"(?<![\w.]){_SIGNED}{_UNIT}", re.I)
    return pair, single


def figure_near(text: str, start: int, end: int, reach: int = _REACH) -> str | None:
    """The figure with a unit nearest the cue at [start, end), after it first."""
    pair, single = _patterns()
    spans = [(m.start(), m.end()) for m in pair.finditer(text)]
    spans += [
        (m.start(), m.end()) for m in single.finditer(text) if not any(a <= m.start() < b for a, b in spans)
    ]

    def distance(span: tuple[int, int]) -> float:
        if span[0] < end and span[1] > start:
            return 0.0
        return span[0] - end if span[0] >= end else 1.5 * (start - span[1])

    nearest = min(spans, key=distance, default=None)
    if nearest is None or distance(nearest) > reach:
        return None
    return text[nearest[0] : nearest[1]].strip()


def pair_direction(text: str, rules: Rules) -> tuple[str, str, int] | None:
    """(verdict, figure, position) of a "from -> to" pair whose unit or metric says which way is better."""
    joint = r"(?P<forth>→|->|=>|\bto\b|\bbecame\b)|(?P<back>\binstead of\b|\brather than\b|\bdown from\b|\bup from\b)"
    arrow = re.compile(rf"(?<![\w.])({_SIGNED})({_UNIT})?\s?(?:{joint})\s?({_SIGNED})({_UNIT})", re.I)
    pairs = list(arrow.finditer(text))
    if len(pairs) != 1:
        return None
    match = pairs[0]
    unit = match.group(6).strip().lower()
    before, after = (float(re.sub(r"[^\d.]", "", match.group(i)).strip(".")) for i in (1, 5))
    if match.group("back"):
        before, after = after, before
    if before == after:
        return None
    if unit.startswith("tok") or unit == "tps":
        better = after > before
    elif unit.startswith(("ms", "us", "µs", "μs")):
        if rules.higher.search(text):
            return None
        better = after < before
    else:
        return None
    return ("works" if better else "worse"), match.group().strip(), match.start()
