"""The family of a kernel, by an ordered rule file that users can extend or replace.

The rules are data (families.toml beside this module); this module reads them and applies them to the unique
names of a trace. Kernel names reach 2 KB and a trace holds hundreds to thousands of them, so a rule's regular
expression is only tried on names that contain one of the literals without which it cannot match. One
Aho-Corasick pass finds those literals for all rules at once.
"""

import re
import tomllib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, cast

import polars as pl

from wavewise.errors import UsageError

FAMILIES: dict[str, str] = {
    "attention_split": "decode attention over one part of the keys and values, which a combine follows",
    "attention_combine": "merging the partial results of split attention",
    "attention_schedule": "planning attention on the device: split counts, tile schedules, index lists",
    "attention": "attention in one piece: prefill, unsplit decode, linear attention",
    "indexer": "choosing which keys sparse attention reads: scores, their top-k, its own cache",
    "moe_gemm": "matrix products of the experts",
    "moe_route": "choosing experts, sorting tokens to them and summing their results",
    "dense_gemm": "every other matrix product",
    "all_reduce": "all-reduce, also fused with what follows it",
    "collective_other": "every other exchange between GPUs: gather, scatter, all-to-all, dispatch",
    "norm": "RMS and layer norm, also fused with a residual addition or quantisation",
    "rope": "rotary position embedding",
    "quant": "quantising activations, laying out their scales, dequantising",
    "kv_cache": "writing, reading back, moving and addressing the key/value cache",
    "kv_compress": "compressing keys and values before they are cached",
    "residual_mix": "mixing residual streams: hyper-connections, Sinkhorn, attention residuals",
    "sampling": "from logits to tokens",
    "elementwise": "activations, casts, fills, gathers, concatenations, plain reductions",
    "memcpy": "copies",
    "memset": "sets",
    "other": "what no rule knows",
}
"""Every family of the findings contract with one line for a reader, in the order of the reports."""

_RULE_KEYS = frozenset({"pattern", "family", "note"})
_FILE_KEYS = frozenset({"rule", "replace"})
_MIN_LITERAL = 3
"""Shorter literals would be found in almost every name, so they would sift nothing out."""

_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})[?+]?")
_FLAGS = re.compile(r"\(\?[aiLmsu]+\)")
_TOKEN = re.compile(
    r"""
    \(\?[aiLmsu]+\)                              # flags for the whole pattern
    | \\.                                       # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]                  # a character class
    | \((?:\?(?:<[=!]|[:=!>]|P<\w+>|[\w-]+:))?   # the beginning of a group
    | (?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})[?+]?               # a quantifier
    | .                                         # anything else
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: kernels in whose name `pattern` is found belong to `family`."""

    pattern: str
    family: str
    note: str = ""


@dataclass(frozen=True)
class FamilyRules:
    """Ordered rules; the first that matches decides.

    Attributes:
        rules: in the order in which they are tried.
        source: the files they come from, for reports.
    """

    rules: tuple[Rule, ...]
    source: tuple[str, ...] = ()
    _known: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)

    @classmethod
    def load(cls, extra: Path | None = None, replace: bool = False) -> "FamilyRules":
        """The built-in rules, with those of a user's file before them.

        Args:
            extra: a TOML file of `[[rule]]` tables (pattern, family, note); its rules are tried first.
            replace: use the user's rules alone; the file can ask for it itself with `replace = true`.

        Raises:
            UsageError: the file cannot be read or one of its rules is wrong; the message names file and rule.
        """
        if extra is None:
            if replace:
                raise UsageError(
                    "replacing the family rules needs a file of rules: name one with --rules FILE"
                )
            return _builtin()
        try:
            text = extra.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{extra}: cannot read the family rules: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{extra}: the family rules are not UTF-8 text") from None
        rules, replace_asked = _parse(text, str(extra))
        for number, rule in enumerate(rules, start=1):  # the built-in ones are compiled by a test, and late
            try:
                re.compile(rule.pattern)
            except re.error as error:
                bad = f"bad regular expression {rule.pattern!r}: {error}"
                raise UsageError(f"{extra}: rule {number}: {bad}") from None
        if replace or replace_asked:
            return cls(rules, (str(extra),))
        return cls((*rules, *_builtin().rules), (str(extra), *_builtin().source))

    def classify(self, names: Iterable[str], kinds: Iterable[str] | None = None) -> list[str]:
        """The family of each name.

        Args:
            names: kernel names; meant for the unique names of a trace (repeats cost little).
            kinds: "kernel", "memcpy" or "memset" for each name; None takes all for kernels.

        Returns:
            One family for each name, in order.
        """
        listed = list(names)
        self._decide([name for name in dict.fromkeys(listed) if name not in self._known])
        families = [self._known[name] for name in listed]
        if kinds is None:
            return families
        return [family if kind == "kernel" else kind for family, kind in zip(families, kinds, strict=True)]

    def _decide(self, names: Sequence[str]) -> None:
        """Find and remember the family of names not met before."""
        if not names:
            return
        found = (
            pl.Series(names, dtype=pl.String)
            .str.to_lowercase()
            .str.extract_many(list(self._by_literal), overlapping=True)
            .list.unique()
            .to_list()
        )
        for name, literals in zip(names, found, strict=True):
            candidates = self._unsifted.union(*(self._by_literal[literal] for literal in literals))
            family = "other"
            for index in sorted(candidates):
                if self._compiled(index).search(name):
                    family = self.rules[index].family
                    break
            self._known[name] = family

    def _compiled(self, index: int) -> re.Pattern[str]:
        pattern = self._patterns[index]
        if pattern is None:
            pattern = self._patterns[index] = re.compile(self.rules[index].pattern)
        return pattern

    @cached_property
    def _patterns(self) -> list[re.Pattern[str] | None]:
        """Compiled on first use: a trace meets a third of the rules, and compiling all costs 10 ms."""
        return [None] * len(self.rules)

    @cached_property
    def _literals(self) -> list[frozenset[str] | None]:
        return [required_literals(rule.pattern) for rule in self.rules]

    @cached_property
    def _by_literal(self) -> dict[str, frozenset[int]]:
        """Rules that may match where a literal (lower case) occurs."""
        rules_of: dict[str, set[int]] = {}
        for index, literals in enumerate(self._literals):
            for literal in literals or ():
                rules_of.setdefault(literal, set()).add(index)
        return {literal: frozenset(indices) for literal, indices in rules_of.items()}

    @cached_property
    def _unsifted(self) -> frozenset[int]:
        """Rules for which no literal is known: tried on every name."""
        return frozenset(index for index, literals in enumerate(self._literals) if literals is None)


def required_literals(pattern: str) -> frozenset[str] | None:
    """Literals (lower case) of which every match of a regular expression contains at least one.

    Returns:
        None where no literal of at least three characters is certain to occur.
    """
    if re.search(r"\(\?([a-z]*x|#)", pattern, re.IGNORECASE):
        return None  # verbose patterns and comments: their characters are not what they seem
    return _alternation(deque(_TOKEN.findall(pattern)))


def _alternation(tokens: deque[str]) -> frozenset[str] | None:
    """What the alternatives up to the closing parenthesis or the end require together; takes their tokens."""
    required: list[frozenset[str] | None] = []
    parts: list[frozenset[str] | None] = []
    run = ""
    while True:
        token = tokens.popleft() if tokens else ""
        ends = token in ("", ")", "|")
        part: frozenset[str] | None = None
        if token.startswith("(") and not _FLAGS.fullmatch(token):
            part = _alternation(tokens)
            if token[1:3] in ("?=", "?!", "?<") and not token.endswith(">"):
                part = None  # looking around consumes nothing
        plain = "" if ends else _plain(token)
        quantified = not ends and bool(tokens) and _QUANTIFIER.fullmatch(tokens[0])
        quantifier = tokens.popleft() if quantified else ""
        if quantifier and not quantifier.startswith("+"):
            plain, part = "", None
        run += plain
        if not plain or quantifier:
            parts += [frozenset({run}) if len(run) >= _MIN_LITERAL else None, part]
            run = ""
        if ends:
            # The longest of what must occur sifts best.
            required.append(max(parts, key=lambda some: min(map(len, some)) if some else 0, default=None))
            parts = []
        if token in ("", ")"):
            known = [some for some in required if some is not None]
            return frozenset[str]().union(*known) if len(known) == len(required) else None


def _plain(token: str) -> str:
    """The one character that a token stands for, in lower case; empty where it stands for something else."""
    if len(token) == 1 and token not in ".^$*+?{}()[]|":
        return token.lower()
    return token[1].lower() if re.fullmatch(r"\\\W", token) else ""


@cache
def _builtin() -> FamilyRules:
    text = resources.files("wavewise.decode").joinpath("families.toml").read_text(encoding="utf-8")
    rules, _ = _parse(text, "families.toml")
    return FamilyRules(rules, ("built-in",))


def _parse(text: str, source: str) -> tuple[tuple[Rule, ...], bool]:
    """The rules of a file and whether it wants to replace the built-in ones.

    Raises:
        UsageError: naming the file, and the line or the rule that is wrong.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not valid TOML: {error}") from None
    unknown = sorted(set(data) - _FILE_KEYS)
    if unknown:
        raise UsageError(
            f"{source}: unknown key {unknown[0]!r}; a rule file holds [[rule]] tables and `replace`"
        )
    replace = data.get("replace", False)
    if not isinstance(replace, bool):
        raise UsageError(f"{source}: `replace` must be true or false, not {replace!r}")
    tables = data.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in cast(list[Any], tables)):
        raise UsageError(f"{source}: rules are written as [[rule]] tables")
    rules = tuple(
        _rule(table, f"{source}: rule {number}")
        for number, table in enumerate(cast(list[dict[str, Any]], tables), start=1)
    )
    if not rules:
        raise UsageError(f"{source}: holds no [[rule]]; each needs a pattern and a family")
    return rules, replace


def _rule(table: dict[str, Any], where: str) -> Rule:
    """One checked rule; `where` names it in messages."""
    unknown = sorted(set(table) - _RULE_KEYS)
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]!r}; a rule has pattern, family and note")
    for key in ("pattern", "family"):
        if not isinstance(table.get(key), str) or not table[key]:
            raise UsageError(f"{where}: needs a {key} (a text in quotes)")
    if not isinstance(table.get("note", ""), str):
        raise UsageError(f"{where}: the note must be a text in quotes")
    family = table["family"]
    if family not in FAMILIES:
        raise UsageError(f"{where}: unknown family {family!r}; one of {', '.join(FAMILIES)}")
    return Rule(table["pattern"], family, table.get("note", ""))
