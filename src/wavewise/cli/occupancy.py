"""`wavewise occupancy`: how many CTAs of a launch fit on an SM, what limits them, and waves."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import output
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wavewise.hardware import GpuSpec, Launch
    from wavewise.occupancy import Residency, SweepPoint, Waves

_BAR = 8
"""Characters of a full bar: the table stays within 80 columns."""

_STEPS_SHOWN = 3
"""Steps up from the present residency that are spelt out."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("occupancy", no_args_is_help=True)(occupancy)


def occupancy(
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="GPU by catalogue id or driver name: h200, rtx-pro-6000.")
    ],
    threads: Annotated[int, typer.Option(help="Threads per CTA.")],
    registers: Annotated[int, typer.Option(help="Registers per thread, as the compiler assigned them.")] = 0,
    shared_memory: Annotated[int, typer.Option(help="Bytes of shared memory per CTA, static + dynamic.")] = 0,
    grid: Annotated[
        str | None, typer.Option(metavar="XxYxZ", help="CTAs: 32x2x4, 256, or a formula of --let names.")
    ] = None,
    let: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A value for a name in --grid.", show_default=False),
    ] = None,
    cluster_size: Annotated[int | None, typer.Option(help="CTAs per cluster.")] = None,
    barriers: Annotated[int | None, typer.Option(help="Named barriers per CTA (1 unless given).")] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="PARAMETER=VALUES",
            help="Vary one of threads, registers, shared-memory, grid: shared-memory=0:100000:1024.",
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --sweep: draw it as .svg, .png or .html.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing chart.")] = False,
) -> None:
    """Say how many CTAs of a launch fit on one SM, what limits them, and what one more would take."""
    from wavewise.hardware import Launch, catalogue
    from wavewise.occupancy import grid_of, occupancy_of

    spec = catalogue(gpus).find(gpu)
    names = _values(let)
    if names and grid is None:
        raise UsageError("--let gives values to names in --grid, which was not given")
    launch = Launch(
        grid=None if grid is None else grid_of(grid, names),
        block=(threads, 1, 1),
        registers_per_thread=registers,
        shared_memory_bytes=shared_memory,
        cluster_size=cluster_size,
        barriers=barriers,
    )
    _check(spec, launch)
    if chart is not None:
        if sweep is None:
            raise UsageError(
                "--chart draws a --sweep; name one, for example --sweep shared-memory=0:100000:1024"
            )
        output.refuse_existing([chart], force)
    if sweep is not None:
        _run_sweep(spec, launch, sweep, chart, json)
        return
    residency, waves = occupancy_of(spec, launch)
    if residency.ctas_per_sm is None and not json:
        raise UsageError(f"{spec.name}: residency unknown: {residency.reason}")
    if json:
        _print_json(_record(spec, launch, residency, waves))
    else:
        _print(_summary(spec, launch, residency, waves))


def _values(let: Sequence[str] | None) -> dict[str, int]:
    """NAME=VALUE pairs, one whole number each."""
    found: dict[str, int] = {}
    for text in let or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier() or not value.strip().lstrip("-").isdigit():
            raise UsageError(
                f"--let {text!r}: write NAME=VALUE with a whole number, for example --let nsplit=4"
            )
        found[name.strip()] = int(value)
    return found


def _check(spec: "GpuSpec", launch: "Launch") -> None:
    """What no kernel of this GPU can ask for is a mistake of the command line, not an answer."""
    from wavewise.occupancy import invalid_launch

    if launch.threads < 1:
        raise UsageError(f"--threads {launch.threads}: a CTA has at least 1 thread")
    if wrong := invalid_launch(launch):
        raise UsageError(wrong)
    for option, value, most, what in (
        ("--threads", launch.threads, spec.max_threads_per_cta, "threads per CTA"),
        ("--registers", launch.registers_per_thread, spec.max_registers_per_thread, "registers per thread"),
    ):
        if value is not None and most is not None and value > most:
            raise UsageError(f"{option} {value}: {spec.name} takes at most {most:,} {what}")


def _run_sweep(spec: "GpuSpec", launch: "Launch", text: str, chart: Path | None, json: bool) -> None:
    from wavewise.occupancy import numbers_of
    from wavewise.occupancy import sweep as run

    parameter, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"--sweep {text!r}: write PARAMETER=VALUES, for example shared-memory=0:100000:1024")
    numbers = numbers_of(values, f"--sweep {parameter}")
    points = run(spec, launch, parameter, numbers)
    if all(point.residency.ctas_per_sm is None for point in points):
        raise UsageError(f"{spec.name}: residency unknown: {points[0].residency.reason}")
    if chart is not None:
        output.write_files({chart: _drawn(points, parameter, chart.suffix)})
    if json:
        rows = [{"value": p.value, **_figures(p.residency, p.waves)} for p in points]
        _print_json({"gpu": spec.id, "launch": _launch_record(launch), "parameter": parameter, "rows": rows})
    else:
        _print(_sweep_table(spec, points, parameter))


def _launch_record(launch: "Launch") -> dict[str, Any]:
    return {
        "grid": launch.grid,
        "threads": launch.threads,
        "registers_per_thread": launch.registers_per_thread,
        "shared_memory_bytes": launch.shared_memory_bytes,
        "cluster_size": launch.cluster_size,
        "barriers": launch.barriers,
    }


def _figures(residency: "Residency", waves: "Waves | None") -> dict[str, Any]:
    """The contract's names, in one flat record."""
    return {
        "ctas_per_sm": residency.ctas_per_sm,
        "limiter": residency.limiter,
        "warps_per_sm": residency.warps_per_sm,
        "occupancy": residency.occupancy,
        "sm_coverage": waves.sm_coverage if waves else None,
        "waves": waves.waves if waves else None,
        "wave_efficiency": waves.wave_efficiency if waves else None,
        "tail_ctas": waves.tail_ctas if waves else None,
        "slots": waves.slots if waves else None,
        "persistent": waves.persistent if waves else None,
        "limits": dict(residency.limits),
        "next_cta": residency.next_cta,
        "reason": residency.reason,
        "note": residency.note,
    }


def _record(
    spec: "GpuSpec", launch: "Launch", residency: "Residency", waves: "Waves | None"
) -> dict[str, Any]:
    reason = {} if waves or launch.grid else {"waves_reason": "no grid was given"}
    return {
        "gpu": {"id": spec.id, "name": spec.name, "sm_count": spec.sm_count},
        "launch": _launch_record(launch),
        **_figures(residency, waves),
        **reason,
    }


def _print_json(value: Any) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _print(what: "RenderableType") -> None:
    from rich.console import Console

    Console(soft_wrap=False, highlight=False).print(what)


def _summary(
    spec: "GpuSpec", launch: "Launch", residency: "Residency", waves: "Waves | None"
) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from wavewise.occupancy import cta_budget, limiter_words, next_cta_words
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
    for count in range(ctas + 1, ctas + 1 + _STEPS_SHOWN):
        step = cta_budget(spec, launch, count)
        facts.append(("Next step" if count == ctas + 1 else "", next_cta_words(step, launch)))
        if step.impossible_reason is not None:
            break
    if residency.note:
        facts.append(("Note", residency.note))
    table = Table.grid(padding=(0, 2))
    for name, words in facts:
        table.add_row(Text(name, style="bold"), Text(words))
    return Group(Text(_launch_words(spec, launch)), Text(), table)


def _launch_words(spec: "GpuSpec", launch: "Launch") -> str:
    grid = ""
    if launch.grid is not None:
        dims = [size for i, size in enumerate(launch.grid) if i == 0 or max(launch.grid[i:]) > 1]
        grid = (
            f"grid {'x'.join(map(str, dims))} = {launch.ctas:,} CTAs of "
            if len(dims) > 1
            else f"{launch.ctas:,} CTAs of "
        )
    return (
        f"{spec.name}: {spec.sm_count} SMs, compute capability {spec.compute_capability}\n"
        f"{grid}{launch.threads:,} threads, {launch.registers_per_thread} registers, "
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
    """First and last point of each stretch over which residency and waves do not change."""
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
        return (r.ctas_per_sm, r.limiter, r.occupancy, p.waves)

    return seen(a) == seen(b)


def _sweep_table(spec: "GpuSpec", points: "Sequence[SweepPoint]", parameter: str) -> "RenderableType":
    """A table whose last column is a bar chart of occupancy; equal neighbours share a row."""
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
    table.add_column("", width=_BAR, no_wrap=True)
    for first, last in _runs(points):
        value = f"{first.value:,}" if first is last else f"{first.value:,} - {last.value:,}"
        residency = first.residency
        share = residency.occupancy
        waves = (
            [str(first.waves.waves), format_share(first.waves.wave_efficiency)] if first.waves else ["-", "-"]
        )
        table.add_row(
            value,
            "-" if residency.ctas_per_sm is None else str(residency.ctas_per_sm),
            limiter_words(residency.limiter) if residency.limiter else Text(residency.reason or "-"),
            *(waves if with_waves else ()),
            "-" if share is None else format_share(share),
            Bar(size=1.0, begin=0.0, end=share or 0.0, width=_BAR),
        )
    return table


def _drawn(points: "Sequence[SweepPoint]", parameter: str, suffix: str) -> bytes:
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
