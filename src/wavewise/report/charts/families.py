"""Kernel families stacked by operating point."""

import altair as alt

from wavewise.findings import Findings
from wavewise.report.charts.chart import REST, Picture, Series, color, hidden_parameter, hideable, palette
from wavewise.report.points import main_point, points
from wavewise.report.words import family_words, percent, us

TOLD_APART = 9
"""Families with a colour of their own; more than that and colours stop telling them apart."""

OTHERS = "all others"


def colored_families(findings: Findings) -> tuple[Series, ...]:
    """The families that charts tell apart, largest first at the main operating point, and the rest.

    Every chart of a report uses this one assignment, so a family keeps its colour.
    """
    views = points(findings)
    largest: dict[str, float] = {}
    for view in views:
        for row in view.figures.families:
            share = row.sum_us_per_step / view.family_sum_us if view.family_sum_us else 0.0
            largest[row.family] = max(largest.get(row.family, 0.0), share)
    ranked = sorted(largest, key=lambda family: (-largest[family], family))[:TOLD_APART]
    main = main_point(views)
    if main is not None:
        sums = {row.family: row.sum_us_per_step for row in main.figures.families}
        ranked.sort(key=lambda family: -sums.get(family, 0.0))
    series = palette([family_words(family) for family in ranked])
    return (*series, Series(OTHERS, REST)) if len(largest) > len(ranked) else series


def families(findings: Findings) -> Picture | None:
    """Summed kernel time per step, one bar for each operating point."""
    views = points(findings)
    main = main_point(views)
    if main is None or not main.figures.families:
        return None
    series = colored_families(findings)
    order = {each.label: index for index, each in enumerate(series)}
    sums: dict[tuple[str, str], float] = {}
    for view in views:
        for row in view.figures.families:
            label = family_words(row.family)
            key = (view.label, label if label in order else OTHERS)
            sums[key] = sums.get(key, 0.0) + row.sum_us_per_step / 1000
    totals = {view.label: view.family_sum_us / 1000 for view in views}
    values = [
        {
            "point": point,
            "family": family,
            "ms": value,
            "share": value / totals[point],
            "order": order[family],
        }
        for (point, family), value in sums.items()
    ]
    base = hideable(alt.Chart(alt.Data(values=values)), "family").mark_bar(
        stroke="currentColor", strokeWidth=0
    )
    chart = base.encode(
        y=alt.Y(
            "point:N",
            sort=[view.label for view in views],
            title=None,
            scale=alt.Scale(domain=[view.label for view in views], paddingInner=0.25),
        ),
        x=alt.X("ms:Q", title="summed kernel time per step, ms"),
        color=color("family", series),
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("point:N", title="operating point"),
            alt.Tooltip("family:N"),
            alt.Tooltip("ms:Q", title="summed time, ms", format=",.3f"),
            alt.Tooltip("share:Q", title="share of summed time", format=".1%"),
        ],
    )
    top = max(main.figures.families, key=lambda row: row.sum_us_per_step)
    return Picture(
        name="families",
        title="Kernel families by operating point",
        alt=(
            f"Stacked bars of summed kernel time per step for {len(views)} operating points. At {main.label} "
            f"{family_words(top.family)} takes {us(top.sum_us_per_step)}, "
            f"{percent(top.sum_us_per_step / main.family_sum_us)} of the sum."
        ),
        chart=chart.properties(height=max(90, 34 * len(views))).add_params(hidden_parameter()),
        series=series,
        caption=f"Medians over clean steps; at {main.label}, {main.basis}.",
    )
