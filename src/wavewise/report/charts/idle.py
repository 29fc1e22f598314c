"""Each window divided into busy time and the parts of idle time."""

import re

import altair as alt

from wavewise.findings import Findings
from wavewise.report.charts.chart import REST, Picture, Series, color, hidden_parameter, hideable
from wavewise.report.idle_text import PARTS
from wavewise.report.safety import idle_unsafe
from wavewise.report.words import percent, short_path
from wavewise.units import NS_PER_MS

MOST_WINDOWS = 40

SUFFIXES = re.compile(r"(\.json|\.sqlite|\.gz|\.zst)+$")
"""What a label can do without."""

SERIES = (
    Series("busy", "#2b9a63"),
    Series("inside replays", "#7a6fe0"),
    Series("inside other steps", "#1496a8"),
    Series("step boundary", "#d5691c"),
    Series("between bursts", "#8f8420"),
    Series("unrecorded", REST),
)


def idle(findings: Findings) -> Picture | None:
    """One bar for each window, as shares of it."""
    traces = [trace for trace in findings.traces if trace.window_ns > 0][:MOST_WINDOWS]
    if not traces:
        return None
    names = _labels([SUFFIXES.sub("", short_path(trace.path)) for trace in traces])
    values: list[dict[str, object]] = []
    for name, trace in zip(names, traces, strict=True):
        parts = {"busy": trace.busy_ns} | {title: getattr(trace.idle, part) for part, title, _ in PARTS}
        values += [
            {
                "window": name,
                "part": part,
                "share": length / trace.window_ns,
                "ms": length / NS_PER_MS,
                "order": order,
                "note": idle_unsafe(trace) or "",
            }
            for order, (part, length) in enumerate(parts.items())
            if length
        ]
    present = {str(value["part"]) for value in values}
    series = tuple(each for each in SERIES if each.label in present)
    chart = (
        hideable(alt.Chart(alt.Data(values=values)), "part")
        .mark_bar()
        .encode(
            y=alt.Y("window:N", sort=names, title=None, scale=alt.Scale(domain=names, paddingInner=0.25)),
            x=alt.X(
                "share:Q",
                title="share of the window",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=color("part", series),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("window:N"),
                alt.Tooltip("part:N"),
                alt.Tooltip("ms:Q", title="ms", format=",.3f"),
                alt.Tooltip("share:Q", title="share of window", format=".2%"),
                alt.Tooltip("note:N"),
            ],
        )
        .properties(height=max(90, 28 * len(traces)))
        .add_params(hidden_parameter())
    )
    window = sum(trace.window_ns for trace in traces)
    boundary = sum(trace.idle.step_boundary_ns for trace in traces)
    busy = sum(trace.busy_ns for trace in traces)
    left = len(findings.traces) - len(traces)
    return Picture(
        name="idle",
        title="Busy time and idle parts of each window",
        alt=(
            f"Bars of {len(traces)} windows. Together they are busy for {percent(busy / window)} and idle at "
            f"step boundaries for {percent(boundary / window)}."
        ),
        chart=chart,
        series=series,
        caption=f"{left} further windows are in the table." if left else None,
    )


def _labels(names: list[str]) -> list[str]:
    """The names, numbered where one occurs twice (several devices or documents of a file)."""
    labels: list[str] = []
    for index, name in enumerate(names):
        twice = names[:index].count(name)
        labels.append(f"{name} ({twice + 1})" if twice else name)
    return labels
