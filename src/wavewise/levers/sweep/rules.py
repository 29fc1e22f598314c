"""The language rules of the sweep, compiled: cues, modality, contexts, grounds, names."""

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from wavewise.errors import InputError
from wavewise.levers.ledger import GROUNDS, VERDICTS

Pattern = re.Pattern[str]
_WORD = re.compile(r"(?<![A-Z])(?:NUM|HIGHER|LOWER|UP|DOWN)(?![A-Za-z])")


@dataclass(frozen=True)
class Cue:
    """Words that carry a verdict.

    Attributes:
        kind: "fact" (it happened), "infinitive" (a fact under "did", and its denial under "did not") or
            "estimate" (it may).
        strength: the strongest cue of a sentence wins.
        negated: what the cue says under a negation: "drop" (nothing), or another verdict.
        negative: the pattern brings its own negation ("no gain").
    """

    verdict: str
    kind: str
    strength: int
    pattern: Pattern
    negated: str


@dataclass(frozen=True)
class Rules:
    """All rules; `modality`, `context` and `shape` by name."""

    cues: tuple[Cue, ...]
    modality: dict[str, Pattern]
    context: dict[str, Pattern]
    shape: dict[str, Pattern]
    grounds: tuple[tuple[str, Pattern], ...]
    models: Pattern
    gpus: Pattern
    aliases: dict[str, str]
    number: str
    higher: Pattern
    lower: Pattern

    def ground(self, text: str) -> str | None:
        """The first ground whose words stand in the text."""
        return next((ground for ground, pattern in self.grounds if pattern.search(text)), None)

    def model(self, name: str) -> str:
        """A model's name brought to one form ("DSV4", "DeepSeek-V4-Flash-NVFP4" -> "deepseek-v4")."""
        plain = re.sub(r"[\s_]+", "-", name.strip().lower()).strip("-.")
        plain = self.aliases.get(plain, plain)
        match = re.match(r"[a-z]+(?:-[a-z]+)*-?[a-z]?\d+(?:\.\d+)?|[a-z]+", plain)
        return match.group() if match else plain


class _CueTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdict: str
    kind: str
    strength: int
    patterns: tuple[str, ...]
    negated: str = "drop"


class _GroundTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ground: str
    pattern: str


@lru_cache(maxsize=4)
def load_rules(path: Path | None = None) -> Rules:
    """The packaged rules, with the cues and grounds of `path` before them.

    Raises:
        InputError: the file cannot be read, or a rule is malformed.
    """
    packaged = resources.files("wavewise.levers.sweep").joinpath("cues.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(packaged)
    if path is not None:
        try:
            own = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{path}: cannot read the sweep's cues ({error})") from error
        strange = set(own) - {"cue", "ground"}
        if strange:
            raise InputError(f"{path}: unknown {sorted(strange)[0]!r}; [[cue]] and [[ground]] may be added")
        tables = {**tables, **{key: [*own.get(key, []), *tables[key]] for key in ("cue", "ground")}}
    try:
        return _compile(tables)
    except (msgspec.ValidationError, re.error, KeyError, ValueError) as error:
        raise InputError(f"{path or 'packaged cues'}: a rule is malformed ({error})") from error


def _compile(tables: dict[str, Any]) -> Rules:
    words: dict[str, str] = tables["words"]

    def compiled(pattern: str) -> Pattern:
        return re.compile(_WORD.sub(lambda m: f"(?:{words[m.group()]})", pattern), re.IGNORECASE)

    cues: list[Cue] = []
    for table in msgspec.convert(tables["cue"], list[_CueTable]):
        if table.verdict not in VERDICTS or table.kind not in ("fact", "infinitive", "estimate"):
            raise ValueError(f"unknown verdict or kind in {table.verdict!r}, {table.kind!r}")
        cues += [
            Cue(table.verdict, table.kind, table.strength, compiled(p), table.negated) for p in table.patterns
        ]
    grounds = msgspec.convert(tables["ground"], list[_GroundTable])
    unknown = [g.ground for g in grounds if g.ground not in GROUNDS]
    if unknown:
        raise ValueError(f"unknown ground {unknown[0]!r}")
    names = tables["names"]
    return Rules(
        cues=tuple(cues),
        modality={name: compiled(p) for name, p in tables["modality"].items()},
        context={name: compiled(p) for name, p in tables["context"].items()},
        shape={name: re.compile(p, re.IGNORECASE | re.VERBOSE) for name, p in tables["shape"].items()},
        grounds=tuple((g.ground, compiled(g.pattern)) for g in grounds),
        models=compiled(rf"(?<![\w-])(?:{names['models']})"),
        gpus=compiled(rf"(?<![\w-])(?:{names['gpus']})"),
        aliases=dict(names["aliases"]),
        number=words["NUM"],
        higher=compiled("HIGHER"),
        lower=compiled("LOWER"),
    )
