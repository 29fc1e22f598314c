"""`wavewise waves`: how well a family of launches fills the GPU as the batch size grows."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import output
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wavewise.hardware import GpuSpec
    from wavewise.occupancy import Waves

_BATCH = "B"
_BAR = 16
"""Characters of a full bar: the table stays within 80 columns."""

_ROWS_SHOWN = 40
"""Longer tables are cut to one row per number of waves; --all prints every batch size."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("waves", no_args_is_help=True)(waves)


def waves(
    grid: Annotated[
        str,
        typer.Option(
            metavar="FORMULA", help="CTAs of the grid: 'ceil(B*2*nsplit)', or dimensions 'B, 64, nsplit'."
        ),
    ],
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU by catalogue id or driver name.")
    ] = None,
    sms: Annotated[int | None, typer.Option(help="SMs, in place of --gpu.")] = None,
    ctas_per_sm: Annotated[int, typer.Option(help="Residency; `wavewise occupancy` computes it.")] = 1,
    batches: Annotated[
        str | None, typer.Option(metavar="LIST", help="Values of B: 1:128, or 32,48,64,80.")
    ] = None,
    let: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help="Values of another name in the formula: nsplit=1,2,4,8."),
    ] = None,
    cluster_size: Annotated[int | None, typer.Option(help="CTAs per cluster.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every batch size, however many.")] = False,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw efficiency over batch size as .svg, .png or .html."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing chart.")] = False,
) -> None:
    """Say how many waves a grid takes, and how full they are, as the batch size grows."""
    from wavewise.occupancy import numbers_of, variables_of

    spec, sm_count, name = _sm_count(gpu, sms, gpus)
    if ctas_per_sm < 1:
        raise UsageError(f"--ctas-per-sm {ctas_per_sm}: at least 1")
    if cluster_size is not None and not 1 <= cluster_size <= sm_count * ctas_per_sm:
        raise UsageError(f"--cluster-size {cluster_size}: between 1 and the {sm_count * ctas_per_sm:,} slots")
    needed = variables_of(grid)
    values = _values(let, needed)
    if batches is not None:
        if _BATCH not in needed:
            raise UsageError(f"--batches gives values to {_BATCH}, which --grid {grid!r} does not use")
        values[_BATCH] = numbers_of(batches, "--batches")
    elif _BATCH in needed and _BATCH not in values:
        raise UsageError(f"--grid {grid!r} uses {_BATCH}: give its values, for example --batches 1:128")
    if chart is not None:
        output.refuse_existing([chart], force)
    series = _series(grid, values, sm_count, ctas_per_sm, cluster_size, spec)
    if chart is not None:
        output.write_files({chart: _drawn(series, chart.suffix)})
    if json:
        _print_json(name, sm_count, ctas_per_sm, grid, series, cluster_size)
    else:
        _print(name, sm_count, ctas_per_sm, grid, series, every, cluster_size)


Series = dict[tuple[tuple[str, int], ...], "list[tuple[int | None, Waves]]"]
"""The other names' values -> (batch size, waves) by batch size."""


def _sm_count(gpu: str | None, sms: int | None, gpus: Path | None) -> "tuple[GpuSpec | None, int, str]":
    """The GPU if one is named, its SMs, and how to call it."""
    from wavewise.hardware import catalogue

    if (gpu is None) == (sms is None):
        raise UsageError("name the GPU with --gpu NAME, or its size with --sms N (one of them)")
    if sms is not None:
        if sms < 1:
            raise UsageError(f"--sms {sms}: at least 1")
        return None, sms, f"a GPU of {sms} SMs"
    spec: GpuSpec = catalogue(gpus).find(gpu or "")
    if spec.sm_count is None:
        raise UsageError(f"the SM count of {spec.name} is not in the catalogue; give --sms")
    return spec, spec.sm_count, spec.name


def _values(let: Sequence[str] | None, needed: frozenset[str]) -> dict[str, list[int]]:
    from wavewise.occupancy import numbers_of

    found: dict[str, list[int]] = {}
    for text in let or ():
        name, equals, numbers = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(f"--let {text!r}: write NAME=VALUES, for example --let nsplit=1,2,4")
        if name not in needed:
            raise UsageError(f"--let {text!r}: the formula does not use {name!r}")
        found[name] = numbers_of(numbers, f"--let {name}")
    return found


def _series(
    grid: str,
    values: Mapping[str, list[int]],
    sm_count: int,
    ctas_per_sm: int,
    cluster_size: int | None,
    spec: "GpuSpec | None",
) -> Series:
    from wavewise.occupancy import grid_of, impossible_cluster
    from wavewise.occupancy import waves as waves_of

    batches: list[int | None] = list(values.get(_BATCH, [])) or [None]
    others = {name: numbers for name, numbers in values.items() if name != _BATCH}
    if len(batches) * len(list(itertools.product(*others.values()))) > 100_000:
        raise UsageError("more than 100,000 grids; give fewer values")
    series: Series = {}
    for combination in itertools.product(*others.values()):
        key = tuple(zip(others, combination, strict=True))
        rows: list[tuple[int | None, Waves]] = []
        for batch in batches:
            names = dict(key) if batch is None else {_BATCH: batch, **dict(key)}
            x, y, z = grid_of(grid, names)
            if wrong := impossible_cluster(cluster_size, x * y * z, spec):
                at = f" (at {', '.join(f'{name}={value}' for name, value in names.items())})" if names else ""
                raise UsageError(f"{wrong}{at}")
            rows.append((batch, waves_of(x * y * z, sm_count, ctas_per_sm, cluster_size)))
        series[key] = rows
    return series


def _print_json(
    name: str, sm_count: int, ctas_per_sm: int, grid: str, series: Series, cluster_size: int | None
) -> None:
    import msgspec

    from wavewise.occupancy import cluster_note

    rows = [
        {
            **({} if batch is None else {"batch_size": batch}),
            **dict(key),
            "ctas": w.ctas,
            "waves": w.waves,
            "wave_efficiency": w.wave_efficiency,
            "tail_ctas": w.tail_ctas,
            "sm_coverage": w.sm_coverage,
            "persistent": w.persistent,
        }
        for key, found in series.items()
        for batch, w in found
    ]
    slots = next(iter(series.values()))[0][1].slots
    whole = {
        "gpu": name,
        "sm_count": sm_count,
        "ctas_per_sm": ctas_per_sm,
        "slots": slots,
        "grid": grid,
        "cluster_size": cluster_size,
        "rows": rows,
        "note": cluster_note(cluster_size),
    }
    typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())


def _print(
    name: str,
    sm_count: int,
    ctas_per_sm: int,
    grid: str,
    series: Series,
    every: bool,
    cluster_size: int | None,
) -> None:
    from rich.console import Console
    from rich.text import Text

    from wavewise.occupancy import cluster_note

    console = Console(highlight=False)
    slots = next(iter(series.values()))[0][1].slots
    note = cluster_note(cluster_size)
    whole = f" in whole clusters of {cluster_size}" if note else ""
    console.print(
        f"{name}: {sm_count} SMs x {ctas_per_sm} CTA{'s' if ctas_per_sm > 1 else ''}{whole} = {slots:,} slots"
    )
    console.print(f"grid {grid}", markup=False)
    for key, rows in series.items():
        if key:
            console.print("\n" + ", ".join(f"{k} = {v}" for k, v in key), style="bold")
        console.print(_table(rows, every or len(rows) <= _ROWS_SHOWN))
    if len(series) > 1 and next(iter(series.values()))[0][0] is not None:
        console.print(_best(series))
    if note:
        console.print(Text(f"Note: {note}"))


def _table(rows: "Sequence[tuple[int | None, Waves]]", every: bool) -> "RenderableType":
    """Every batch size, or one row per stretch of equal waves: where it starts, where it ends, how full."""
    from rich import box
    from rich.bar import Bar
    from rich.table import Table

    from wavewise.units import format_share

    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    titles = ["CTAs", "waves", "efficiency", "last wave"]
    for title in titles if rows[0][0] is None else ["batch", *titles]:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=_BAR, no_wrap=True)
    stretches = [[row] for row in rows] if every else _stretches(rows)
    for stretch in stretches:
        (first, low), (last, high) = stretch[0], stretch[-1]
        shares = [w.wave_efficiency for _, w in stretch]
        cells = [
            _span(f"{low.ctas:,}", f"{high.ctas:,}"),
            f"{low.waves:,}",
            _span(format_share(min(shares)), format_share(max(shares))),
            _span(f"{low.tail_ctas or low.slots:,}", f"{high.tail_ctas or high.slots:,}"),
        ]
        if first is not None:
            cells.insert(0, _span(str(first), str(last)))
        table.add_row(*cells, Bar(size=1.0, begin=0.0, end=max(shares), width=_BAR))
    return table


def _span(a: str, b: str) -> str:
    return a if a == b else f"{a} - {b}"


def _stretches(rows: "Sequence[tuple[int | None, Waves]]") -> "list[list[tuple[int | None, Waves]]]":
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[1].waves)]


def _best(series: Series) -> "RenderableType":
    """Which values fill the waves best at how many of the batch sizes."""
    from rich.text import Text

    wins: dict[tuple[tuple[str, int], ...], int] = {}
    count = len(next(iter(series.values())))
    for i in range(count):
        best = max(series, key=lambda key: series[key][i][1].wave_efficiency)
        wins[best] = wins.get(best, 0) + 1
    told = "; ".join(
        f"{', '.join(f'{k} = {v}' for k, v in key)} at {n} of {count}"
        for key, n in sorted(wins.items(), key=lambda item: -item[1])
    )
    return Text(
        f"Fullest waves (the first on a tie): {told}. Fuller waves are not fewer: compare the counts too."
    )


def _drawn(series: Series, suffix: str) -> bytes:
    import altair as alt

    rows = [
        {
            "batch": batch,
            "efficiency": w.wave_efficiency,
            "waves": w.waves,
            "CTAs": w.ctas,
            "for": _label(key),
        }
        for key, found in series.items()
        for batch, w in found
        if batch is not None
    ]
    if not rows:
        raise UsageError("--chart draws efficiency over batch sizes; give --batches")
    chart = (
        alt.Chart(alt.Data(values=rows), width=640, height=280)
        .mark_line(point=len(rows) <= 256)
        .encode(
            x=alt.X("batch:Q", title="batch size"),
            y=alt.Y(
                "efficiency:Q",
                title="wave efficiency",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            tooltip=["batch:Q", "CTAs:Q", "waves:Q", "efficiency:Q"],
        )
    )
    if len(series) > 1:
        chart = chart.encode(color=alt.Color("for:N", title=None))
    return rendered(chart, suffix)


def _label(key: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in key)


def rendered(chart: Any, suffix: str) -> bytes:
    """An altair chart as the bytes of a file.

    Raises:
        UsageError: no format that a chart can be written in.
    """
    import io

    kind = suffix.lower().lstrip(".")
    if kind not in ("svg", "png", "html"):
        raise UsageError(f"--chart: cannot draw a {suffix or 'nameless'} file; use .svg, .png or .html")
    if kind == "png":
        binary = io.BytesIO()
        chart.save(binary, format="png")
        return binary.getvalue()
    text = io.StringIO()
    chart.save(text, format=kind)
    return text.getvalue().encode()
