"""The terminal report: readable at 100 columns, and in a pipe without colour."""

import textwrap

from rich.box import Box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from wavewise.findings import Findings
from wavewise.report.compose import compose
from wavewise.report.section import Cell, Report, Section, Table, plain, spans
from wavewise.report.words import bound, middle

PIPE_WIDTH = 100
"""Columns in a pipe or file, where no terminal says how wide it is."""

NARROWEST_TEXT = 14
NARROWEST_NAME = 26
"""Text columns, and columns of names, are not squeezed below these."""

GUTTER = 2
"""Spaces between columns: one that rich draws as divider, one of padding."""

# Only a line of hyphens under the heading: nothing that a pipe, a pager or a bug tracker could garble.
_RULED = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)

# rich breaks lines at any whitespace; a private-use character keeps a number and its unit together until
# the text is laid out.
_GLUE = "\ue000"


def render_terminal(findings: Findings, console: Console) -> None:
    """Print the report on `console`.

    When the console is no terminal the text goes to its file without colour, 100 columns wide, and no line
    ends in spaces.
    """
    print_report(compose(findings), console)


def print_report(report: Report, console: Console) -> None:
    """Print any report on `console`, laid out as `render_terminal` says."""
    pen = console if console.is_terminal else Console(file=console.file, width=PIPE_WIDTH, color_system=None)
    with pen.capture() as captured:
        pen.print(_sentence(report.title, "bold"))
        for note in report.notes:
            _bullet(pen, note, "yellow")
        pen.print()
        for line in report.verdict:
            pen.print(_sentence(line))
        if report.summary:
            pen.print()
        for line in report.summary:
            _bullet(pen, line)
        for section in report.sections:
            _section(pen, section)
    pen.file.write(_laid_out(captured.get()))


def print_section(section: Section, console: Console) -> None:
    """Print one section, as in a whole report; for commands that show a part of one."""
    pen = console if console.is_terminal else Console(file=console.file, width=PIPE_WIDTH, color_system=None)
    with pen.capture() as captured:
        _section(pen, section)
    pen.file.write(_laid_out(captured.get()).lstrip("\n"))


def _laid_out(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.replace(_GLUE, " ").split("\n"))


def _section(pen: Console, section: Section) -> None:
    tables = [table for table in section.tables if not table.detail and table.rows and table.brief]
    if not section.sentences and not tables:
        return
    pen.print()
    pen.print(_sentence(section.title, "bold cyan"))
    for line in section.sentences:
        _bullet(pen, line)
    for table in tables:
        pen.print()
        _table(pen, table)


def _table(pen: Console, table: Table) -> None:
    """A table, its title above it, cut to its brief rows and to the columns that fit."""
    pen.print(_sentence(table.title, "italic"))
    shown = table.rows[: table.brief]
    widths = _widths(table, shown, pen.width)
    grid = RichTable(box=_RULED, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    headings = {
        index: textwrap.wrap(table.columns[index].title, width) or [" "] for index, width in widths.items()
    }
    height = max(map(len, headings.values()))
    for index, width in widths.items():
        # Headings stand on the rule; in rows the first lines are level, so that a row reads from its name on.
        raised = [""] * (height - len(headings[index]))
        grid.add_column(
            Text("\n".join([*raised, *headings[index]])),
            justify="right" if table.columns[index].right else "left",
            width=width,
            overflow="fold",
            vertical="top",
        )
    for row in shown:
        grid.add_row(*(_cell(row[index], width) for index, width in widths.items()))
    pen.print(grid)
    left = len(table.rows) - len(shown)
    if left:
        pen.print(Text(f"({left:,} more rows in the written reports)", style="dim"))


def _cell(cell: Cell, width: int) -> Text:
    """A cell; one that is nothing but a name is cut in its middle, where a sentence would wrap."""
    pieces = spans(cell.text)
    if len(pieces) == 1 and pieces[0][1]:
        return Text(middle(pieces[0][0], width), style="cyan")
    return _sentence(cell.text)


def _widths(table: Table, rows: tuple[tuple[Cell, ...], ...], width: int) -> dict[int, int]:
    """Width by column index: numbers get what they need, text shares the rest, optional columns go first."""
    needs: dict[int, int] = {}
    floors: dict[int, int] = {}
    for index, column in enumerate(table.columns):
        title = max((len(word) for word in column.title.split()), default=1)  # headings wrap at spaces
        needs[index] = max([title, *(len(plain(row[index].text)) for row in rows)])
        names = any(cell.text.startswith("`") for cell in (row[index] for row in rows))
        narrowest = max(title, NARROWEST_NAME if names else NARROWEST_TEXT)
        whole = column.right or column.whole
        floors[index] = needs[index] if whole else min(needs[index], narrowest)
    keep = list(needs)
    for index in reversed(list(needs)):
        optional = not table.columns[index].essential
        if optional and sum(floors[each] + GUTTER for each in keep) - GUTTER > width:
            keep.remove(index)
    widths = {index: floors[index] for index in keep}
    spare = width - sum(width + GUTTER for width in widths.values()) + GUTTER
    for (
        index
    ) in keep:  # still too wide: text gives way, numbers and names to type never: broken, they mislead
        if spare < 0 and not table.columns[index].right and not table.columns[index].whole:
            taken = min(-spare, max(0, widths[index] - NARROWEST_TEXT // 2))
            widths[index] -= taken
            spare += taken
    while spare < 0 and len(keep) > 1:
        spare += widths.pop(keep.pop()) + GUTTER
    # The narrowest wish first, so that short columns are whole and only long ones are squeezed.
    wishes = sorted((needs[index] - floors[index], index) for index in keep if needs[index] > floors[index])
    for position, (wish, index) in enumerate(wishes):
        given = max(0, min(wish, spare // (len(wishes) - position)))
        widths[index] += given
        spare -= given
    return widths


def _sentence(text: str, style: str = "") -> Text:
    line = Text(style=style)
    for piece, is_name in spans(text):
        if is_name:
            line.append(piece, style="cyan")
        else:
            line.append(bound(piece, _GLUE))
    return line


def _bullet(pen: Console, text: str, style: str = "") -> None:
    grid = RichTable.grid(padding=0)
    grid.add_column(width=2)
    grid.add_column(overflow="fold")
    grid.add_row("- ", _sentence(text, style))
    pen.print(grid)
