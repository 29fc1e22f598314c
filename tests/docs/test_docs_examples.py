"""What the pages say of commands holds: options are there, the outputs shown are what is printed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHIPPED = ROOT / "examples" / "h200-vllm-dsv4"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "skills" / "wavewise" / "SKILL.md"]


def commands_in(text: str) -> list[str]:
    """Every wavewise command line in a page, in code blocks or in the text, with continued lines joined."""
    joined = re.sub(r"\s*\\\n\s*|\n {12,}(?=\[)", " ", text)
    blocks = re.findall(r"^(?:    |\$ |\s+- )?(?:run: )?(wavewise [a-z-]+(?: .*)?)$", joined, re.MULTILINE)
    return [line.split("  #")[0] for line in blocks + re.findall(r"`(wavewise [a-z-]+(?: [^`]+)?)`", joined)]


@cache
def options_of() -> dict[str, set[str]]:
    """The options of every command, of its subcommands too."""
    from wavewise.cli.app import build

    group = typer.main.get_command(build())
    assert isinstance(group, typer.core.TyperGroup)
    return {name: set(options(command)) for name, command in group.commands.items()}


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for child in getattr(command, "commands", {}).values():
        yield from options(child)


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_commands_and_options_exist(page: Path) -> None:
    there = options_of()
    for line in commands_in(page.read_text(encoding="utf-8")):
        command = line.split()[1]
        assert command in there, line
        for option in re.findall(r"(?<![\w'-])(--[a-z][a-z-]*)", line):
            assert option in there[command], line


def test_commands_are_found() -> None:
    text = """
    wavewise diff A B [--json FILE]

```
$ wavewise waves --grid B \\
   --gpu x
```
use `wavewise trim A`
"""
    assert commands_in(text) == [
        "wavewise diff A B [--json FILE]",
        "wavewise waves --grid B --gpu x",
        "wavewise trim A",
    ]


def printed(*arguments: str) -> str:
    code = "import sys; sys.argv[0] = 'wavewise'; from wavewise.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=SHIPPED, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_diff_shown_is_what_is_printed() -> None:
    block = re.search(
        r"```\n\$ wavewise (diff .*)\n((?:.*\n)+?)```", (DOCS / "commands/diff.md").read_text("utf-8")
    )
    assert block
    assert printed(*block[1].split()).startswith(block[2])


def test_the_verdict_shown_is_what_is_printed() -> None:
    said = " ".join(printed("analyze", "--label", "context=4k", "context4k").split())
    quoted = re.findall(r"^> (.+)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)
    assert len(quoted) == 3
    assert " ".join(quoted) in said
