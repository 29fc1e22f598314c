"""What would be left of a step if families were free, one after the other."""

import altair as alt

from wavewise.findings import Ceiling, Findings
from wavewise.report.charts.chart import REST, Picture, Series, color, hidden_parameter, hideable
from wavewise.report.charts.families import OTHERS, colored_families
from wavewise.report.words import family_words, ms

BASES = ("step", "busy", "kernel_sum")
BASIS_WORDS = {"step": "step time", "busy": "busy time of the replay", "kernel_sum": "summed kernel time"}
MOST_FAMILIES = 10
WHOLE = "whole"


def ceilings(findings: Findings) -> Picture | None:
    """A waterfall at the largest batch size: the whole, each family's removable time, what is left."""
    rows = _rows(findings)
    if not rows:
        return None
    basis_ms = rows[0].basis_ms or 0.0
    basis = rows[0].basis
    known = {each.label: each for each in colored_families(findings)}
    values: list[dict[str, object]] = [_bar("now", WHOLE, 0.0, basis_ms)]
    left = basis_ms
    for row in rows[:MOST_FAMILIES]:
        label = family_words(row.family)
        removable = min(left, row.removable_ms or 0.0)
        shown = label if label in known else OTHERS
        values.append(_bar(label, shown, left - removable, left, row))
        left -= removable
    further = min(left, sum(row.removable_ms or 0.0 for row in rows[MOST_FAMILIES:]))
    if further > 0:
        values.append(_bar(f"{len(rows) - MOST_FAMILIES} smaller families", OTHERS, left - further, left))
        left -= further
    values.append(_bar("left", WHOLE, 0.0, left))
    order = [str(value["what"]) for value in values]
    present = {str(value["family"]) for value in values}
    series = tuple(each for label, each in known.items() if label in present)
    if OTHERS in present and OTHERS not in known:
        series = (*series, Series(OTHERS, REST))
    series = (*series, Series(WHOLE, "#5a7290"))
    bars = hideable(alt.Chart(alt.Data(values=values)), "family").mark_bar()
    drawn = bars.encode(
        y=alt.Y("what:N", sort=order, title=None, scale=alt.Scale(domain=order, paddingInner=0.2)),
        x=alt.X("from:Q", title=f"{BASIS_WORDS[basis]}, ms"),
        x2="to:Q",
        color=color("family", series),
        tooltip=[
            alt.Tooltip("what:N", title="family"),
            alt.Tooltip("ms:Q", title="removable, ms", format=",.3f"),
            alt.Tooltip("if_free:N", title="speed-up if free"),
            alt.Tooltip("if_2x:N", title="speed-up if twice as fast"),
            alt.Tooltip("tokens:N", title="tokens/s if free"),
        ],
    )
    host = rows[0].host_floor_ms if basis == "step" else None
    layers = [drawn]
    if host is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"host": host, "note": f"host floor, {ms(host)}"}]))
            .mark_rule(strokeDash=[5, 4], strokeWidth=2, color="currentColor")
            .encode(x="host:Q", tooltip=alt.Tooltip("note:N", title="bound"))
        )
    batch = rows[0].batch_size
    where = "the largest batch size" if batch is None else f"batch {batch}"
    best = rows[0]
    speed = f", {best.speedup_if_free:.2f} times as fast" if best.speedup_if_free else ""
    floor = f" The dashed line is the host floor, {ms(host)}: no step can be shorter." if host else ""
    return Picture(
        name="ceilings",
        title=f"What would be left of the {BASIS_WORDS[basis]} at {where} if families were free",
        alt=(
            f"Waterfall from {ms(basis_ms)}. Without {family_words(best.family)} it would be "
            f"{ms(basis_ms - (best.removable_ms or 0.0))}{speed}; without all families {ms(left)}."
        ),
        chart=alt.layer(*layers).properties(height=26 * len(order) + 10).add_params(hidden_parameter()),
        series=series,
        caption="Each bar is the time in which only that family runs; time in which families overlap stays "
        f"in what is left.{floor}",
    )


def _rows(findings: Findings) -> list[Ceiling]:
    """The ceilings of the largest batch size on the most telling basis, the most removable family first."""
    usable = [row for row in findings.ceilings or () if row.removable_ms is not None and row.basis_ms]
    for basis in BASES:
        rows = [row for row in usable if row.basis == basis]
        if rows:
            most = max(rows, key=lambda row: row.batch_size or 0)
            same = [
                row
                for row in rows
                if row.batch_size == most.batch_size and row.context_length == most.context_length
            ]
            return sorted(same, key=lambda row: -(row.removable_ms or 0.0))
    return []


def _bar(what: str, family: str, low: float, high: float, row: Ceiling | None = None) -> dict[str, object]:
    speeds = (None, None) if row is None else (row.speedup_if_free, row.speedup_if_2x)
    tokens = None if row is None else row.tokens_per_s_if_free
    return {
        "what": what,
        "family": family,
        "from": low,
        "to": high,
        "ms": high - low,
        "if_free": "-" if speeds[0] is None else f"{speeds[0]:.2f} x",
        "if_2x": "-" if speeds[1] is None else f"{speeds[1]:.2f} x",
        "tokens": "-" if tokens is None else f"{tokens:,.0f}",
    }
