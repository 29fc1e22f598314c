"""`--label KEY=VALUE PATH`: what the user knows of an input that the trace does not say."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from wavewise.errors import UsageError

_FLAG = "--label"
_META = "wavewise.labels"
_KEYS = ("context", "model")
_NO_LENGTH = re.compile(r"-\s*[\d.]+\s*[kKmM]?|0*\.?0+\s*[kKmM]?")
"""A number that is no context length; any other text is a name."""

LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        _FLAG,
        metavar="KEY=VALUE PATH",
        help="What the trace does not say of the PATH that follows: context=12k, model=NAME.",
    ),
]
"""Declares the option for the help; `LabelledCommand` reads it."""


class LabelledCommand(TyperCommand):
    """A command whose labels belong to the path right behind them, which stays a positional argument.

    Option parsers tell options and arguments, not which stood before which, so the labels are taken out first.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves the labels to the context and leaves the paths in place."""
        rest, labels = split_labels(args)
        ctx.meta[_META] = labels
        return super().parse_args(ctx, rest)


def labels_of(ctx: Any) -> dict[Path, dict[str, str]]:
    """The labels given on this command line: path -> {"context": "12k"}."""
    return ctx.meta.get(_META, {})


def split_labels(args: Sequence[str]) -> tuple[list[str], dict[Path, dict[str, str]]]:
    """Separates labels from all other words.

    Raises:
        UsageError: no KEY=VALUE, an unknown key, no path behind it, or two values for one path.
    """
    rest: list[str] = []
    labels: dict[Path, dict[str, str]] = {}
    pending: dict[str, str] = {}
    words = iter(args)
    for word in words:
        if word == _FLAG or word.startswith(_FLAG + "="):
            text = word.partition("=")[2] if word != _FLAG else next(words, "")
            key, equals, value = (part.strip() for part in text.partition("="))
            if not equals or not value:
                raise UsageError(
                    f"{_FLAG} {text!r}: write KEY=VALUE PATH, for example {_FLAG} context=12k PATH"
                )
            if key not in _KEYS:
                raise UsageError(f"{_FLAG} {text!r}: unknown key {key!r}; known: {', '.join(_KEYS)}")
            if key == "context" and _NO_LENGTH.fullmatch(value):
                raise UsageError(f"{_FLAG} {text!r}: a context holds at least one token")
            if pending.setdefault(key, value) != value:
                raise UsageError(f"{_FLAG} {key}: one path cannot be both {pending[key]} and {value}")
            continue
        if pending:
            if word.startswith("-"):
                break
            known = labels.setdefault(Path(word), {})
            for key, value in pending.items():
                if known.setdefault(key, value) != value:
                    raise UsageError(f"{_FLAG} {key}: {word} cannot be both {known[key]} and {value}")
            pending = {}
        rest.append(word)
    if pending:
        raise UsageError(
            f"{_FLAG} {'='.join(next(iter(pending.items())))}: the PATH it describes must follow it"
        )
    return rest, labels
