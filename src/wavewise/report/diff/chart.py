"""The picture of a diff: how much each family changed, with its interval."""

import altair as alt

from wavewise.report.charts.chart import PALETTE, REST, Picture, Series, color
from wavewise.report.diff.result import Diff, PointDiff
from wavewise.report.diff.text import report
from wavewise.report.words import family_words

_SERIES = (Series("slower", PALETTE[4]), Series("faster", PALETTE[2]), Series("within noise", REST))
_ROW_PX = 22


def pictures(diff: Diff) -> dict[str, Picture]:
    """One picture for each operating point that changed, by the name that its section uses."""
    if diff.empty:
        return {}
    names = [section.charts[0] for section in report(diff).sections]
    drawn = {name: _changes(name, point) for name, point in zip(names, diff.points, strict=True)}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _changes(name: str, point: PointDiff) -> Picture | None:
    values = [
        {
            "family": family_words(row.family),
            "us": (row.sum_us.after or 0.0) - (row.sum_us.before or 0.0),
            "low": row.sum_us.interval[0] if row.sum_us.interval else None,
            "high": row.sum_us.interval[1] if row.sum_us.interval else None,
            "verdict": {"up": "slower", "added": "slower", "down": "faster", "vanished": "faster"}.get(
                row.sum_us.verdict, "within noise"
            ),
        }
        for row in point.families
    ]
    if not any(value["us"] for value in values):
        return None
    order = [value["family"] for value in values]
    base = alt.Chart(alt.Data(values=values))
    family = alt.Y("family:N", sort=order, title=None)
    bars = base.mark_bar().encode(
        y=family,
        x=alt.X("us:Q", title="change per step, us"),
        color=color("verdict", _SERIES),
        tooltip=[
            alt.Tooltip("family:N"),
            alt.Tooltip("us:Q", title="change, us", format="+,.1f"),
            alt.Tooltip("low:Q", title="95 % from, us", format="+,.1f"),
            alt.Tooltip("high:Q", title="95 % to, us", format="+,.1f"),
            alt.Tooltip("verdict:N"),
        ],
    )
    whiskers = base.mark_rule(color="currentColor", opacity=0.7).encode(y=family, x="low:Q", x2="high:Q")
    largest = values[0]
    return Picture(
        name=name,
        title=f"Change of each family at {point.name}",
        alt=(
            f"Bars of the change of summed kernel time per step for {len(values)} families at {point.name}. "
            f"The largest is {largest['family']}: {largest['us']:+.1f} us."
        ),
        chart=alt.layer(bars, whiskers).properties(height=_ROW_PX * len(values)),
        caption="Whiskers: 95 % bootstrap interval of the change of the median. "
        "Red: slower, green: faster beyond noise; grey: within noise.",
    )
