"""`PROFILE_FINDINGS.md`: summary first, then the tables, every number with unit and basis."""

import html
from collections.abc import Mapping

from wavewise.findings import Findings
from wavewise.report.compose import compose
from wavewise.report.section import Column, Section, Table, spans

CHART_ALT = {
    "step-time": "Step time against batch size",
    "families": "Kernel families stacked by operating point",
    "timeline": "One decode step by stream",
    "idle": "Busy time and idle parts of each window",
    "waves": "CTAs on SMs, wave by wave",
    "ceilings": "What would be left if families were free",
    "steps": "Steps of each window by kind",
    "levers": "Predicted saving of each lever",
}
"""What each chart shows, for readers who do not see it."""


def render_markdown(findings: Findings, charts: Mapping[str, str] | None = None) -> str:
    """The markdown report.

    Args:
        findings: what to render.
        charts: chart name to the path of its SVG file, relative to where the report will lie; charts that
            are not in it are left out.
    """
    report = compose(findings)
    lines = ["# Profile findings", "", inline(report.title), ""]
    for note in report.notes:
        lines += [f"> {inline(note)}", ""]
    lines += ["## Summary", "", " ".join(inline(line) for line in report.verdict), ""]
    lines += bullets(report.summary)
    for section in report.sections:
        lines += section_markdown(section, charts or {})
    return "\n".join(lines).rstrip("\n") + "\n"


def section_markdown(section: Section, charts: Mapping[str, str]) -> list[str]:
    """The lines of one section."""
    lines = [f"## {inline(section.title)}", "", *bullets(section.sentences)]
    for name in section.charts:
        if name in charts:
            lines += [f"![{CHART_ALT.get(name, name)}]({charts[name]})", ""]
    for table in section.tables:
        lines += table_markdown(table)
    return lines


def table_markdown(table: Table) -> list[str]:
    """The lines of one table, cut to its brief rows; a detail is folded away where HTML is understood."""
    rows = table.rows[: table.brief]
    # Blank lines around the tags: without them the table between is not read as markdown.
    opening = [f"<details><summary>{_html(table.title)}</summary>", ""]
    lines = opening if table.detail else [f"**{inline(table.title)}**", ""]
    lines.append(_row([_cell(column.title) for column in table.columns]))
    lines.append(_row([_rule(column) for column in table.columns]))
    lines += [_row([_cell(cell.text) for cell in row]) for row in rows]
    if len(table.rows) > len(rows):
        lines += ["", f"{len(table.rows) - len(rows):,} more rows are in the HTML report and findings.json."]
    return [*lines, "", *(["</details>", ""] if table.detail else [])]


def bullets(sentences: tuple[str, ...]) -> list[str]:
    """Sentences as a list, with the blank line after it; nothing for none."""
    return [*(f"- {inline(line)}" for line in sentences), ""] if sentences else []


def inline(text: str) -> str:
    """A sentence as markdown: names as code, everything else without accidental markup."""
    pieces: list[str] = []
    for piece, is_name in spans(text):
        if is_name:
            pieces.append(f"`{piece}`")
        else:
            escaped = piece.replace("\\", "\\\\").replace("*", "\\*")
            pieces.append(escaped.replace("<", "&lt;").replace("[", "\\["))
    return "".join(pieces).replace("\n", " ")


def _html(text: str) -> str:
    """A title inside an HTML tag, where markdown is not read."""
    return "".join(
        f"<code>{html.escape(piece)}</code>" if is_name else html.escape(piece)
        for piece, is_name in spans(text)
    )


def _cell(text: str) -> str:
    # Inside a table a bar ends the cell even between backticks; GFM wants it escaped there too.
    return inline(text).replace("|", "\\|")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(column: Column) -> str:
    return "---:" if column.right else "---"
