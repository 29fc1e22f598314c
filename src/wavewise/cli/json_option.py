"""`--json [FILE]`: JSON to a file, or, without one behind it, to standard output."""

from pathlib import Path
from typing import Annotated, Any

import typer

from wavewise.cli.labels import LabelledCommand

STDOUT = Path("-")
_FLAG = "--json"

JsonOption = Annotated[
    Path | None,
    typer.Option(_FLAG, metavar="[FILE]", help="Write JSON to FILE; without FILE, to stdout."),
]


class JsonCommand(LabelledCommand):
    """Lets `--json` stand alone: without a FILE behind it, JSON goes to stdout."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Gives a bare `--json` the value "-"; a word behind it is its FILE if it is "-" or ends in .json."""
        rest = [word for word in args if word != _FLAG]
        words: list[str] = []
        for at, word in enumerate(args):
            behind = args[at + 1] if at + 1 < len(args) else ""
            takes = behind == "-" or (behind.endswith(".json") and _other_paths(rest, behind))
            words.append(f"{_FLAG}=-" if word == _FLAG and not takes else word)
        return super().parse_args(ctx, words)


def _other_paths(words: list[str], file: str) -> bool:
    """Whether a PATH is left when `file` is not one."""
    return any(word != file and not word.startswith("-") and Path(word).exists() for word in words)
