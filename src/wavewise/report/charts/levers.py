"""Predicted saving of each lever."""

import altair as alt

from wavewise.findings import Findings
from wavewise.report.charts.chart import Picture, color, hidden_parameter, hideable, palette
from wavewise.report.words import us

MOST_LEVERS = 12
NO_VERDICT = "not in the ledger"


def levers(findings: Findings) -> Picture | None:
    """One bar for each lever with a predicted saving, coloured by what the ledger knows."""
    judged = [lever for lever in findings.levers or () if lever.predicted_saving_us_per_step]
    if not judged:
        return None
    judged = sorted(judged, key=lambda lever: -(lever.predicted_saving_us_per_step or 0.0))[:MOST_LEVERS]
    values = [
        {
            "lever": lever.id,
            "title": lever.title,
            "saving": lever.predicted_saving_us_per_step,
            "verdict": lever.verdict_in_ledger or NO_VERDICT,
            "risk": lever.risk,
            "confidence": lever.confidence or "-",
        }
        for lever in judged
    ]
    order = list(dict.fromkeys(str(value["lever"]) for value in values))
    series = palette(list(dict.fromkeys(str(value["verdict"]) for value in values)))
    chart = (
        hideable(alt.Chart(alt.Data(values=values)), "verdict")
        .mark_bar()
        .encode(
            y=alt.Y("lever:N", sort=order, title=None, scale=alt.Scale(domain=order, paddingInner=0.2)),
            x=alt.X("saving:Q", title="predicted saving, us per step"),
            color=color("verdict", series),
            tooltip=[
                alt.Tooltip("title:N", title="lever"),
                alt.Tooltip("saving:Q", title="saving, us per step", format=",.1f"),
                alt.Tooltip("verdict:N", title="ledger"),
                alt.Tooltip("risk:N"),
                alt.Tooltip("confidence:N"),
            ],
        )
        .properties(height=max(80, 28 * len(order)))
        .add_params(hidden_parameter())
    )
    best = judged[0]
    return Picture(
        name="levers",
        title="Predicted saving of each lever",
        alt=(
            f"Bars of {len(judged)} levers. The largest: {best.title}, "
            f"{us(best.predicted_saving_us_per_step or 0.0)} per step."
        ),
        chart=chart,
        series=series,
        caption="Savings of levers that act on the same time do not add.",
    )
