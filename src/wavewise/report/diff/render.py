"""A diff in each medium: terminal, markdown for a pull request, JSON, HTML."""

from typing import TYPE_CHECKING

import msgspec

from wavewise.report.diff.result import Diff
from wavewise.report.diff.text import report
from wavewise.report.markdown import bullets, inline, table_markdown

if TYPE_CHECKING:
    from rich.console import Console

_OPEN_TABLES = ("step-",)
"""Tables that a pull request comment shows at once; the others fold away."""


def render_terminal(diff: Diff, console: "Console") -> None:
    """Prints the diff."""
    from wavewise.report.terminal import print_report

    print_report(report(diff), console)


def render_markdown(diff: Diff) -> str:
    """Markdown that reads as a comment on a pull request: verdict first, long tables folded."""
    said = report(diff)
    lines = [f"### wavewise diff: {inline(said.title)}", ""]
    for note in said.notes:
        lines += [f"> {inline(note)}", ""]
    lines += [*(f"**{inline(line)}**" for line in said.verdict), ""]
    lines += bullets(said.summary)
    for section in said.sections:
        for table in section.tables:
            body = table_markdown(table)
            if table.name.startswith(_OPEN_TABLES):
                lines += body
            else:
                # The blank lines let GitHub read markdown inside HTML.
                lines += [
                    "<details>",
                    f"<summary>{inline(table.title)}</summary>",
                    "",
                    *body[2:],
                    "</details>",
                    "",
                ]
    lines.append(f"<sub>wavewise {diff.wavewise}; changes within noise are called so.</sub>")
    return "\n".join(lines) + "\n"


def render_json(diff: Diff) -> bytes:
    """UTF-8 JSON with a final newline, keys as docs/commands/diff.md names them."""
    return msgspec.json.encode(diff) + b"\n"


def render_html(diff: Diff) -> str:
    """One self-contained page with a chart of the changes."""
    from wavewise.report.diff.chart import pictures
    from wavewise.report.html.page import render_page

    return render_page(report(diff), pictures(diff), version=diff.wavewise, schema=diff.schema)
