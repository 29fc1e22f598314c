"""Charts of a report, by altair. Loaded only when a chart is wanted: altair costs a third of a second."""

from collections.abc import Callable, Mapping

import vl_convert

from wavewise.findings import Findings
from wavewise.report.charts.ceilings import ceilings
from wavewise.report.charts.chart import Picture, spec
from wavewise.report.charts.families import families
from wavewise.report.charts.idle import idle
from wavewise.report.charts.levers import levers
from wavewise.report.charts.step_time import step_time
from wavewise.report.charts.steps import steps
from wavewise.report.charts.timeline import timeline
from wavewise.report.charts.waves import waves

SVG_WIDTH = 760

INK_ON_PAPER = "#1f2329"

CHARTS: Mapping[str, Callable[[Findings], Picture | None]] = {
    "step-time": step_time,
    "families": families,
    "timeline": timeline,
    "idle": idle,
    "waves": waves,
    "ceilings": ceilings,
    "levers": levers,
    "steps": steps,
}
"""Every chart by name; one that has nothing to show for some findings returns None."""


def pictures(findings: Findings) -> dict[str, Picture]:
    """All charts that have something to show."""
    drawn = {name: draw(findings) for name, draw in CHARTS.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def svg(picture: Picture) -> str:
    """The picture as a self-contained SVG file on white paper."""
    drawing = spec(picture, SVG_WIDTH)
    drawing["background"] = "white"
    text: str = vl_convert.vegalite_to_svg(drawing)
    return text.replace("currentColor", INK_ON_PAPER)
