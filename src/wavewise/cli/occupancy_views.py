"""What `wavewise occupancy` shows: the summary of one launch, the table and the chart of a sweep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wavewise.findings import NextCta
    from wavewise.hardware import GpuSpec, Launch
    from wavewise.occupancy import Residency, SweepPoint, Waves

_BAR = 8
"""Characters of a full bar: the table stays within 80 columns."""

_STEPS_SHOWN = 3
"""Steps up from the present residency that are spelt out."""


def summary(
    spec: "GpuSpec", launch: "Launch", residency: "Residency", waves: "Waves | None"
) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from wavewise.occupancy import limiter_words, next_cta_words
    from wavewise.units import format_share

    ctas = residency.ctas_per_sm or 0
    facts: list[tuple[str, str]] = []
    if ctas == 0:
        facts.append(("Residency", residency.reason or "unknown"))
    else:
        by = limiter_words(residency.limiter or "")
        facts.append(("Residency", f"{ctas} CTA{'s' if ctas > 1 else ''} per SM, limited by {by}"))
        share = format_share(residency.occupancy or 0.0)
        facts.append(
            ("Warps", f"{residency.warps_per_sm} of {spec.max_warps_per_sm} per SM: occupancy {share}")
        )
    if waves is not None:
        facts.append(("Waves", _wave_words(waves)))
        facts.append(("SM coverage", format_share(waves.sm_coverage)))
    limits = " · ".join(f"{limiter_words(name)} {count}" for name, count in residency.limits.items())
    facts.append(("CTAs/SM by", limits))
    for step in _steps_up(spec, launch, ctas):
        title = "Next step" if step.ctas_per_sm == ctas + 1 else ""
        facts.append((title, next_cta_words(step, launch)))
    if residency.note:
        facts.append(("Note", residency.note))
    table = Table.grid(padding=(0, 2))
    for name, words in facts:
        table.add_row(Text(name, style="bold"), Text(words))
    return Group(Text(_launch_words(spec, launch)), Text(), table)


def _steps_up(spec: "GpuSpec", launch: "Launch", ctas: int) -> "list[NextCta]":
    """The next few steps that take something more: a budget that allows several CTAs more stands once."""
    from msgspec.structs import replace

    from wavewise.occupancy import cta_budget

    found: list[NextCta] = []
    count = ctas
    while len(found) < _STEPS_SHOWN and not (found and found[-1].impossible_reason):
        count += 1
        step = cta_budget(spec, launch, count)
        if not found or replace(step, ctas_per_sm=found[-1].ctas_per_sm) != found[-1]:
            found.append(step)
    return found


def _launch_words(spec: "GpuSpec", launch: "Launch") -> str:
    grid = ""
    if launch.grid is not None:
        dims = [size for i, size in enumerate(launch.grid) if i == 0 or max(launch.grid[i:]) > 1]
        grid = (
            f"grid {'x'.join(map(str, dims))} = {launch.ctas:,} CTAs of "
            if len(dims) > 1
            else f"{launch.ctas:,} CTAs of "
        )
    registers = (
        f"{launch.registers_per_thread} registers" if launch.registers_per_thread else "registers not given"
    )
    return (
        f"{spec.name}: {spec.sm_count} SMs, compute capability {spec.compute_capability}\n"
        f"{grid}{launch.threads:,} threads, {registers}, "
        f"{launch.shared_memory_bytes:,} B of shared memory"
    )


def _wave_words(waves: "Waves") -> str:
    from wavewise.units import format_share

    head = f"{waves.waves} of {waves.slots:,} slots: efficiency {format_share(waves.wave_efficiency)}"
    if waves.persistent:
        return f"{head}, the grid is exactly the slots (persistent by design)"
    if waves.tail_ctas == 0:
        return f"{head}, the last wave is full"
    return f"{head}, the last wave holds {waves.tail_ctas:,} CTAs"


def _runs(points: "Sequence[SweepPoint]") -> "list[tuple[SweepPoint, SweepPoint]]":
    """First and last point of each stretch over which residency and the number of waves do not change.

    Within one, efficiency only rises: more CTAs in as many waves of as many slots.
    """
    runs: list[tuple[SweepPoint, SweepPoint]] = []
    for point in points:
        if runs and _same(runs[-1][0], point):
            runs[-1] = (runs[-1][0], point)
        else:
            runs.append((point, point))
    return runs


def _same(a: "SweepPoint", b: "SweepPoint") -> bool:
    def seen(p: "SweepPoint") -> tuple[Any, ...]:
        r = p.residency
        return (r.ctas_per_sm, r.limiter, r.occupancy, p.waves and p.waves.waves)

    return seen(a) == seen(b)


def sweep_table(spec: "GpuSpec", points: "Sequence[SweepPoint]", parameter: str) -> "RenderableType":
    """A table whose last column is a bar chart of occupancy; equal neighbours share a row.

    A sweep of the grid has no bars: occupancy does not depend on it.
    """
    from rich import box
    from rich.bar import Bar
    from rich.table import Table
    from rich.text import Text

    from wavewise.occupancy import limiter_words
    from wavewise.occupancy.sweep import PARAMETERS
    from wavewise.units import format_share

    table = Table(
        box=box.SIMPLE,
        collapse_padding=True,
        pad_edge=False,
        title=f"{spec.name}: residency over {PARAMETERS[parameter]}",
        title_justify="left",
    )
    for name, justify in ((parameter, "right"), ("CTAs/SM", "right"), ("limited by", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "limited by")  # pyright: ignore[reportArgumentType] - rich's literal
    with_waves = any(point.waves for point in points)
    if with_waves:
        table.add_column("waves", justify="right", no_wrap=True)
        table.add_column("full", justify="right", no_wrap=True)
    table.add_column("occupancy", justify="right", no_wrap=True)
    with_bars = parameter != "grid"
    if with_bars:
        table.add_column("", width=_BAR, no_wrap=True)
    for first, last in _runs(points):
        value = f"{first.value:,}" if first is last else f"{first.value:,} - {last.value:,}"
        residency = first.residency
        share = residency.occupancy
        waves = ["-", "-"]
        if first.waves and last.waves:
            low, high = (format_share(w.wave_efficiency) for w in (first.waves, last.waves))
            waves = [str(first.waves.waves), high if low == high else f"{low.removesuffix(' %')} - {high}"]
        table.add_row(
            value,
            "-" if residency.ctas_per_sm is None else str(residency.ctas_per_sm),
            limiter_words(residency.limiter) if residency.limiter else Text(residency.reason or "-"),
            *(waves if with_waves else ()),
            "-" if share is None else format_share(share),
            *((Bar(size=1.0, begin=0.0, end=share or 0.0, width=_BAR),) if with_bars else ()),
        )
    return table


def drawn(points: "Sequence[SweepPoint]", parameter: str, suffix: str) -> bytes:
    """The sweep as a step chart of occupancy; the format follows the file name."""
    import altair as alt

    from wavewise.cli.waves import rendered
    from wavewise.occupancy.sweep import PARAMETERS

    rows = [
        {
            "value": p.value,
            "occupancy": p.residency.occupancy,
            "CTAs per SM": p.residency.ctas_per_sm,
            "limited by": p.residency.limiter,
        }
        for p in points
        if p.residency.occupancy is not None
    ]
    chart = (
        alt.Chart(alt.Data(values=rows), width=640, height=280)
        .mark_line(interpolate="step-after", point=len(rows) <= 64)
        .encode(
            x=alt.X("value:Q", title=PARAMETERS[parameter]),
            y=alt.Y(
                "occupancy:Q", title="occupancy", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
            ),
            tooltip=["value:Q", "CTAs per SM:Q", "limited by:N", "occupancy:Q"],
        )
    )
    return rendered(chart, suffix)
