"""CTAs placed on SMs, wave by wave, for the kernels that take the time."""

from collections.abc import Sequence

import altair as alt

from wavewise.findings import Findings
from wavewise.report.charts.chart import REST, Picture, Series, color, hidden_parameter, hideable
from wavewise.report.fill_text import Filler, ranked
from wavewise.report.points import main_point, points
from wavewise.report.words import middle, percent, plural, short_kernel

DEAREST = 3
MOST_WASTEFUL = 3
"""Kernels drawn: the dearest, and those among the rest whose unfilled slots waste most time."""

MOST_WAVES = 6
"""Lanes drawn for one kernel; of more waves the first ones and the last are drawn."""

SERIES = (
    Series("all slots filled", "#3d7fd9"),
    Series("some slots filled", "#d5691c"),
    Series("empty", REST),
)


def waves(findings: Findings) -> Picture | None:
    """One block of lanes for each kernel: a lane is a wave, a cell an SM."""
    view = main_point(tuple(view for view in points(findings) if view.kernels))
    if view is None:
        return None
    sms = findings.traces[view.traces[0]].gpu.sm_count
    chosen = _chosen(ranked(view))
    if not chosen or not sms:
        return None
    lanes: list[dict[str, object]] = []
    headings: list[dict[str, object]] = []
    for index, filler in enumerate(chosen):
        heading, rows = _lanes(index, filler, sms)
        headings.append(heading)
        lanes += rows
    order: list[str] = []
    for index in range(len(chosen)):
        order.append(f"{index}|")
        order += [str(lane["lane"]) for lane in lanes if str(lane["lane"]).startswith(f"{index}|")]
    y = alt.Y(
        "lane:N",
        sort=order,
        title=None,
        scale=alt.Scale(domain=order, paddingInner=0.15),
        axis=alt.Axis(labelExpr="split(datum.label, '|')[1]", ticks=False, domain=False),
    )
    cells = hideable(
        alt.Chart(alt.Data(values=lanes))
        .transform_calculate(sm="sequence(0, datum.sms)")
        .transform_flatten(["sm"])
        .transform_calculate(
            resident="floor(datum.ctas / datum.sms) + (datum.sm < datum.ctas % datum.sms ? 1 : 0)",
            right="datum.sm + 0.82",
        )
        .transform_calculate(
            state="datum.resident >= datum.slots ? 'all slots filled' : "
            "datum.resident > 0 ? 'some slots filled' : 'empty'"
        ),
        "state",
    ).mark_bar()
    drawn = cells.encode(
        x=alt.X(
            "sm:Q",
            title="SM",
            scale=alt.Scale(domain=[0, sms], nice=False),
            axis=alt.Axis(grid=False, tickMinStep=1),
        ),
        x2="right:Q",
        y=y,
        color=color("state", SERIES),
        opacity=alt.condition("datum.resident == 0", alt.value(0.25), alt.value(1.0)),
        tooltip=[
            alt.Tooltip("kernel:N"),
            alt.Tooltip("wave:N"),
            alt.Tooltip("sm:Q", title="SM"),
            alt.Tooltip("resident:Q", title="CTAs on this SM"),
            alt.Tooltip("slots:Q", title="CTAs that fit"),
        ],
    )
    titles = (
        alt.Chart(alt.Data(values=headings))
        .mark_text(align="left", baseline="middle", fontSize=11.5, color="currentColor")
        .encode(x=alt.datum(0), y=y, text="text:N")
    )
    worst = min(chosen, key=lambda filler: filler.main.wave_efficiency or 1.0)
    return Picture(
        name="waves",
        title=f"CTAs on {sms} SMs, wave by wave, at {view.label}",
        alt=(
            f"Wave diagrams of {plural(len(chosen), 'kernel')}. {short_kernel(worst.main.name)} uses "
            f"its slots least: {plural(worst.main.waves or 0, 'wave')} at "
            f"{percent(worst.main.wave_efficiency or 0.0)} wave efficiency."
        ),
        chart=alt.layer(drawn, titles).properties(height=24 * len(order) + 10).add_params(hidden_parameter()),
        series=SERIES,
        caption="The dearest kernels, then those whose empty slots waste most time; of each the launch shape "
        "that takes most of it. Drawn breadth first; the "
        "hardware's own order of placement is not recorded.",
    )


def _chosen(fillers: Sequence[Filler]) -> list[Filler]:
    drawable = [filler for filler in fillers if _drawable(filler)]
    rest = sorted(drawable[DEAREST:], key=lambda filler: -_wasted_us(filler))
    wasteful = [filler for filler in rest[:MOST_WASTEFUL] if _wasted_us(filler) > 0]
    return [*drawable[:DEAREST], *wasteful]


def _wasted_us(filler: Filler) -> float:
    """Time times the share of slots that stay empty; a persistent kernel wastes none."""
    efficiency = filler.main.wave_efficiency
    return 0.0 if filler.main.persistent or efficiency is None else filler.sum_us * (1 - efficiency)


def _drawable(filler: Filler) -> bool:
    row = filler.main
    return bool(row.grid and row.ctas_per_sm and row.waves)


def _lanes(index: int, filler: Filler, sms: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The heading of one kernel and its lanes, one for each wave that is drawn."""
    row = filler.main
    assert row.grid is not None
    assert row.ctas_per_sm is not None
    assert row.waves is not None
    total = row.grid[0] * row.grid[1] * row.grid[2]
    slots = sms * row.ctas_per_sm
    name = middle(short_kernel(row.name).split("::")[-1], 24)
    heading: dict[str, object] = {
        "lane": f"{index}|",
        "text": f"{name}: {plural(total, 'CTA')}, {row.ctas_per_sm} per SM",
    }
    drawn = range(row.waves)
    if row.waves > MOST_WAVES:
        drawn = [*range(MOST_WAVES - 1), row.waves - 1]
    lanes: list[dict[str, object]] = [
        {
            "lane": f"{index}|wave {wave + 1:,}",
            "wave": f"{wave + 1:,} of {row.waves:,}",
            "kernel": short_kernel(row.name),
            "ctas": min(slots, total - wave * slots),
            "slots": row.ctas_per_sm,
            "sms": sms,
        }
        for wave in drawn
    ]
    return heading, lanes
