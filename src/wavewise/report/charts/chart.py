"""What a chart is before it is drawn, and how all of them look.

Every chart is one altair chart that fills the width it is given, so the same value becomes an SVG file for
markdown and an interactive picture in the HTML report. Text and axes are drawn in `currentColor`: a page
decides about light and dark, a file about its paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

HIDDEN = "hidden"
"""Name of the parameter that lists the series a reader has switched off."""

INK = "currentColor"

PALETTE = (
    "#3d7fd9",
    "#d5691c",
    "#2b9a63",
    "#b052c0",
    "#d9485f",
    "#1496a8",
    "#8f8420",
    "#7a6fe0",
    "#a8714a",
    "#5f8f3e",
)
"""Series colours: each has a contrast of at least 3:1 on white and on the dark page, the floor that WCAG 2.2
(success criterion 1.4.11) sets for graphical objects; a test computes it."""

REST = "#7f8792"
"""What is not told apart."""


@dataclass(frozen=True)
class Series:
    """One series of a chart: its label and colour, for a legend that can switch it off."""

    label: str
    color: str


@dataclass(frozen=True)
class Picture:
    """A chart with what a reader who does not see it needs.

    Attributes:
        name: as sections refer to it.
        title: what it shows.
        alt: what it says, with its main figures.
        chart: altair Chart or LayerChart (altair names no public common type) of fixed height, without
            width; `spec` gives it one.
        series: legend entries; the chart filters by the parameter `hidden` when there are several.
        zoom: name of the field along x whose scale the reader may zoom, None without zoom.
        caption: what to know when reading it (decimation, what is shaded).
    """

    name: str
    title: str
    alt: str
    chart: Any
    series: tuple[Series, ...] = ()
    zoom: str | None = None
    caption: str | None = None


def palette(labels: Sequence[str]) -> tuple[Series, ...]:
    """A colour for each label, in order; labels beyond the palette share the colour of the rest."""
    return tuple(
        Series(label, PALETTE[index] if index < len(PALETTE) else REST) for index, label in enumerate(labels)
    )


def color(field: str, series: Sequence[Series], legend: bool = True) -> alt.Color:
    """Encodes `field` by the colours of `series`."""
    scale = alt.Scale(domain=[each.label for each in series], range=[each.color for each in series])
    shown = alt.Legend(title=None, orient="bottom", columns=3, symbolType="square") if legend else None
    return alt.Color(field, type="nominal", scale=scale, legend=shown)


def hideable(chart: alt.Chart, field: str) -> alt.Chart:
    """The chart without the rows whose `field` the reader has switched off."""
    return chart.transform_filter(f"indexof({HIDDEN}, datum.{field}) < 0")


def hidden_parameter() -> Any:
    """The parameter that `hideable` reads; goes on the outermost chart."""
    return alt.param(name=HIDDEN, value=[])


def spec(picture: Picture, width: int | None) -> dict[str, Any]:
    """The Vega-Lite specification.

    Args:
        picture: what to draw.
        width: pixels for a file with a legend of its own; None to fill a container whose page draws the
            legend (and lets the reader switch series off).
    """
    chart = picture.chart.properties(width=width or "container")
    drawn = chart.configure(**_config())
    # The charts are built here, not by users: checking each against the schema again only costs time.
    value: dict[str, Any] = drawn.to_dict(validate=False)
    value["autosize"] = {"type": "fit-x" if width is None else "pad", "contains": "padding"}
    value["description"] = picture.alt
    value["background"] = "transparent"
    if width is None:
        _drop_legends(value)
    return value


def _drop_legends(value: Any) -> None:
    """Take the legend off every encoding, in place."""
    if isinstance(value, dict):
        for channel in ("color", "shape"):
            if channel in value.get("encoding", {}):
                value["encoding"][channel]["legend"] = None
        _drop_legends(value.get("layer"))
    elif isinstance(value, list):
        for each in value:
            _drop_legends(each)


def _config() -> dict[str, Any]:
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": INK,
            "gridOpacity": 0.12,
            "domainColor": INK,
            "domainOpacity": 0.4,
            "tickColor": INK,
            "tickOpacity": 0.4,
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            "labelLimit": 230,
        },
        "axisQuantitative": {"tickCount": 8},
        "legend": {**text, "labelLimit": 220},
        "title": {"color": INK},
        "text": {"color": INK},
        "view": {"stroke": None},
    }
