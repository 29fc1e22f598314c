"""Renders Findings: terminal, markdown, JSON, HTML and charts. Every renderer is `value -> str`.

Importing this package loads neither the charting library nor the template engine; `render_html` and
`render_charts` do so when called.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wavewise.findings import Findings

if TYPE_CHECKING:
    from rich.console import Console


def render_terminal(findings: Findings, console: "Console") -> None:
    """Print the terminal report on `console`; see `wavewise.report.terminal`."""
    from wavewise.report.terminal import render_terminal as render

    render(findings, console)


def render_markdown(findings: Findings, charts: Mapping[str, str] | None = None) -> str:
    """The text of `PROFILE_FINDINGS.md`; `charts` maps chart names to relative SVG paths."""
    from wavewise.report.markdown import render_markdown as render

    return render(findings, charts)


def render_json(findings: Findings) -> bytes:
    """The bytes of `findings.json`."""
    from wavewise.report.json import render_json as render

    return render(findings)


def render_charts(findings: Findings) -> dict[str, str]:
    """Chart name to SVG text, for every chart that has something to show."""
    from wavewise.report.charts import pictures, svg

    return {name: svg(picture) for name, picture in pictures(findings).items()}


def render_html(findings: Findings) -> str:
    """One self-contained HTML page that needs no network."""
    from wavewise.report.html import render_html as render

    return render(findings)
