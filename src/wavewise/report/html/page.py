"""Fills the page's template: the same report as every other rendering, with interactive charts."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
import vl_convert
from markupsafe import Markup, escape

from wavewise.findings import Findings
from wavewise.report.charts import pictures
from wavewise.report.charts.chart import HIDDEN, Picture, spec
from wavewise.report.compose import compose
from wavewise.report.glossary import forms, glossary, pattern
from wavewise.report.section import Cell, Report, spans
from wavewise.report.words import bound, printable

FIRST_PICTURES = ("step-time", "families", "idle")
"""Which chart stands beside the verdict: the first of these that there is."""


def render_html(findings: Findings) -> str:
    """The whole page; it loads nothing from anywhere.

    Args:
        findings: what to render.

    Returns:
        HTML text, about 1 MB of it the chart runtime that altair's specifications need.
    """
    return render_page(
        compose(findings), pictures(findings), version=findings.wavewise, schema=findings.schema
    )


def render_page(report: Report, drawn: Mapping[str, Picture], *, version: str, schema: str) -> str:
    """A page from a report and its charts.

    Args:
        report: any report, of findings or of their difference.
        drawn: the charts that its sections name.
        version: of wavewise, for the footer.
        schema: of the value that was rendered, for the footer.
    """
    first = next((name for name in FIRST_PICTURES if name in drawn), None)
    # Every refusal stands open, else the most severe note: the verdict has to stay on the first screen.
    opening = max(1, sum(note.startswith("Stop:") for note in report.notes))
    template = _environment().get_template("page.html.j2")
    text = template.render(
        report=report,
        version=version,
        schema=schema,
        first=first,
        opening_notes=report.notes[:opening],
        further_notes=report.notes[opening:],
        pictures=drawn,
        placed=_placed(report, drawn, first),
        terms=glossary(),
        style=Markup(_resource("style.css")),
        script=Markup(_resource("page.js")),
        runtime=Markup(_runtime() if drawn else ""),
        data=Markup(_data(drawn)),
    )
    return text.lstrip()


def _placed(report: Report, drawn: Mapping[str, Picture], first: str | None) -> dict[str, list[str]]:
    """Section name to the charts it shows: those that exist and do not stand beside the verdict."""
    return {
        section.name: [name for name in section.charts if name in drawn and name != first]
        for section in report.sections
    }


def _data(drawn: Mapping[str, Picture]) -> str:
    """What the page's script reads: charts and terms, as JSON that cannot end the script element."""
    charts = {
        name: {"spec": spec(picture, None), "zoom": picture.zoom and f"zoom_{picture.zoom}"}
        for name, picture in drawn.items()
    }
    value: dict[str, Any] = {"charts": charts, "terms": glossary(), "hidden": HIDDEN}
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


@lru_cache(maxsize=1)
def _runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the package that also draws the SVG files."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("wavewise.report.html", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        sentence=_sentence, sentences=_sentences, sort_key=_sort_key, slug=_slug, printable=printable
    )
    return environment


def _resource(name: str) -> str:
    return files("wavewise.report.html").joinpath(name).read_text("utf-8")


def _sentence(text: str) -> Markup:
    """A sentence as HTML, names as code, without explained terms (for headings and cells)."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if is_name else _text(piece) for piece, is_name in spans(text)
    )


def _sentences(texts: tuple[str, ...]) -> list[Markup]:
    """Sentences as HTML; each term is explained where it occurs first among them."""
    explained: set[str] = set()
    return [_explained(text, explained) for text in texts]


def _explained(text: str, explained: set[str]) -> Markup:
    parts: list[Markup] = []
    for piece, is_name in spans(text):
        if is_name:
            parts.append(Markup("<code>{}</code>").format(piece))
            continue
        position = 0
        for found in pattern().finditer(piece):
            term = forms()[found.group(0).lower()]
            if term in explained:
                continue
            explained.add(term)
            parts.append(_text(piece[position : found.start()]))
            link = Markup('<a class="term" href="#term-{}" data-term="{}">{}</a>')
            parts.append(link.format(_slug(term), term, found.group(0)))
            position = found.end()
        parts.append(_text(piece[position:]))
    return Markup("").join(parts)


def _text(text: str) -> Markup:
    return escape(bound(text, "\N{NO-BREAK SPACE}"))


def _sort_key(cell: Cell) -> str:
    """What the page's script sorts by: a number as text; empty for what was not measured (sorts last)."""
    if cell.sort is None or cell.sort in (float("inf"), float("-inf")) or cell.sort != cell.sort:
        return ""
    return f"{cell.sort:.9g}"


def _slug(text: str) -> str:
    return "-".join("".join(char if char.isalnum() else " " for char in text.lower()).split())
