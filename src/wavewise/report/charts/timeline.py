"""One representative decode step: its operations by stream, the gaps between them marked."""

from dataclasses import dataclass

import altair as alt
import numpy as np
from numpy.typing import NDArray

from wavewise.findings import Findings, Timeline
from wavewise.report.charts.chart import REST, Picture, Series, color, hidden_parameter, hideable
from wavewise.report.charts.families import OTHERS, colored_families
from wavewise.report.points import PointView, main_point, points
from wavewise.report.words import family_words, percent, plural, short_kernel, us
from wavewise.units import NS_PER_US

MOST_BARS = 2500
"""Bars that a browser still draws and zooms without stuttering, at about 100 bytes each."""

MOST_GAPS = 400

GAPS = (Series("gap inside the replay", "#d9485f"), Series("gap at the step boundary", "#5a7290"))
"""What a gap counts as: intra-replay idle, or host time."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bars:
    """Operations, or runs of them, as columns [n]; times in ns from the step's first replay operation."""

    start: Ints
    end: Ints
    stream: Ints
    kernel: Ints
    count: Ints


def timeline(findings: Findings) -> Picture | None:
    """The step of the main operating point nearest its median span."""
    view = main_point(tuple(view for view in points(findings) if _of(view)))
    if view is None:
        return None
    step = _of(view)
    assert step is not None
    start, bars = _bars(step)
    end = start + np.asarray(step.duration_ns, np.int64)
    gaps = _gaps(start, end)
    series = _series(findings, step)
    gap_values = _gap_values(gaps, _replay(step, start, end))
    values = _operation_values(bars, step, series) + gap_values
    lanes = ["no kernel", *(f"stream {stream}" for stream in sorted(set(bars.stream.tolist())))]
    kinds = {value["family"] for value in gap_values}
    shown = (*series, *(each for each in GAPS if each.label in kinds))
    drawn = hideable(alt.Chart(alt.Data(values=values)), "family").mark_bar(clip=True)
    chart = drawn.encode(
        x=alt.X("start:Q", title="us from the first operation of the replay", scale=alt.Scale(nice=False)),
        x2="end:Q",
        y=alt.Y("lane:N", sort=lanes, title=None, scale=alt.Scale(domain=lanes, paddingInner=0.3)),
        color=color("family", shown),
        tooltip=[
            alt.Tooltip("what:N", title="operation"),
            alt.Tooltip("family:N"),
            alt.Tooltip("lane:N", title="lane"),
            alt.Tooltip("start:Q", title="start, us", format=",.2f"),
            alt.Tooltip("us:Q", title="length, us", format=",.2f"),
        ],
    )
    zoom = alt.selection_interval(
        name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.shiftKey || event.ctrlKey]"
    )
    total = len(step.start_ns)
    merged = (
        f" Neighbours closer than the eye can part are merged: {len(bars.start):,} bars."
        if (len(bars.start) < total)
        else ""
    )
    length = int((gaps[:, 1] - gaps[:, 0]).sum()) if len(gaps) else 0
    span = int(bars.end.max() - bars.start.min())
    return Picture(
        name="timeline",
        title=f"One decode step at {view.label}, by stream",
        alt=(
            f"Timeline of {plural(total, 'operation')} on {plural(len(lanes) - 1, 'stream')} over "
            f"{us(span / NS_PER_US)}; {plural(len(gaps), 'gap')} in which no operation runs add to "
            f"{us(length / NS_PER_US)}, {percent(length / span)} of it."
        ),
        chart=chart.properties(height=46 + 26 * len(lanes)).add_params(hidden_parameter(), zoom),
        series=shown,
        zoom="start",
        caption=(
            f"Step {step.step_index}, the clean step nearest the median span; "
            f"{plural(total, 'operation')}.{merged}{_gap_caption(len(gaps))}"
        ),
    )


def _of(view: PointView) -> Timeline | None:
    """The timeline of a point's decode row with the most clean steps that has one."""
    rows = [row for row in view.rows if row.timeline is not None and row.timeline.start_ns]
    return max(rows, key=lambda row: row.clean_steps).timeline if rows else None


def _gap_caption(count: int) -> str:
    return f" Of {count:,} gaps the {MOST_GAPS} longest are marked." if count > MOST_GAPS else ""


def _bars(step: Timeline) -> tuple[Ints, Bars]:
    """Every operation's start, and the bars to draw: operations, or runs of them when there are too many."""
    start = np.asarray(step.start_ns, np.int64)
    order = np.argsort(start, kind="stable")
    end = start + np.asarray(step.duration_ns, np.int64)
    stream = np.asarray(step.stream, np.int64)
    kernel = np.asarray(step.kernel, np.int64)
    bars = Bars(start[order], end[order], stream[order], kernel[order], np.ones(start.size, np.int64))
    span = int(end.max() - start.min())
    resolution = max(1, span // MOST_BARS)
    numbers = {family: number for number, family in enumerate(dict.fromkeys(step.families))}
    family_of = np.asarray([numbers[family] for family in step.families], np.int64)
    while bars.start.size > MOST_BARS and resolution <= span:
        bars = merged(bars, family_of, resolution)
        resolution *= 2
    return start, bars


def merged(bars: Bars, family_of: Ints, resolution_ns: int) -> Bars:
    """Runs of neighbours on one stream, no further apart than `resolution_ns`, as one bar each.

    A run ends where the family changes, unless both neighbours are shorter than the resolution: then the run
    carries the kernel of its longest member.
    """
    order = np.lexsort((bars.start, bars.stream))
    start, end, stream = bars.start[order], bars.end[order], bars.stream[order]
    kernel, count = bars.kernel[order], bars.count[order]
    family = family_of[kernel]
    length = end - start
    near = (stream[1:] == stream[:-1]) & (start[1:] - end[:-1] <= resolution_ns)
    alike = family[1:] == family[:-1]
    tiny = (length[1:] <= resolution_ns) & (length[:-1] <= resolution_ns)
    first = np.concatenate(([True], ~(near & (alike | tiny))))
    heads = np.flatnonzero(first)
    run = np.cumsum(first) - 1
    # Sorted by run, then length: the last of each run is its longest member.
    longest = np.lexsort((length, run))[np.append(heads[1:], start.size) - 1]
    return Bars(
        start=start[heads],
        end=np.maximum.reduceat(end, heads),
        stream=stream[heads],
        kernel=kernel[longest],
        count=np.add.reduceat(count, heads),
    )


def _gaps(start: Ints, end: Ints) -> Ints:
    """[g, 2] intervals between the first start and the last end in which no operation runs."""
    order = np.argsort(start, kind="stable")
    starts, reach = start[order], np.maximum.accumulate(end[order])
    holes = np.flatnonzero(starts[1:] > reach[:-1])
    return np.stack([reach[holes], starts[holes + 1]], axis=1)


def _replay(step: Timeline, start: Ints, end: Ints) -> tuple[int, int]:
    """First start and last end of the replay's operations; the whole step where there is no replay."""
    inside = np.asarray(step.in_replay, bool)
    if not inside.any():
        return int(start.min()), int(end.max())
    return int(start[inside].min()), int(end[inside].max())


def _series(findings: Findings, step: Timeline) -> tuple[Series, ...]:
    present = {family_words(family) for family in step.families}
    known = tuple(each for each in colored_families(findings) if each.label in present)
    rest = present - {each.label for each in known}
    return (*known, Series(OTHERS, REST)) if rest else known


def _operation_values(bars: Bars, step: Timeline, series: tuple[Series, ...]) -> list[dict[str, object]]:
    labels = {each.label for each in series}
    families = [family_words(family) for family in step.families]
    shown = [family if family in labels else OTHERS for family in families]
    names = [short_kernel(name) for name in step.names]
    return [
        {
            "start": round(first / NS_PER_US, 2),
            "end": round(last / NS_PER_US, 2),
            "us": round((last - first) / NS_PER_US, 2),
            "lane": f"stream {stream}",
            "family": shown[kernel],
            "what": names[kernel] if count == 1 else f"{count} operations, longest {names[kernel]}",
        }
        for first, last, stream, kernel, count in zip(
            bars.start.tolist(),
            bars.end.tolist(),
            bars.stream.tolist(),
            bars.kernel.tolist(),
            bars.count.tolist(),
            strict=True,
        )
    ]


def _gap_values(gaps: Ints, replay: tuple[int, int]) -> list[dict[str, object]]:
    longest = gaps[np.argsort(gaps[:, 0] - gaps[:, 1], kind="stable")[:MOST_GAPS]]
    inside, outside = (each.label for each in GAPS)
    return [
        {
            "start": round(first / NS_PER_US, 2),
            "end": round(last / NS_PER_US, 2),
            "us": round((last - first) / NS_PER_US, 2),
            "lane": "no kernel",
            "family": inside if replay[0] <= first and last <= replay[1] else outside,
            "what": "no operation",
        }
        for first, last in longest.tolist()
    ]
