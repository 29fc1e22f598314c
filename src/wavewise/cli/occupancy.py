"""`wavewise occupancy`: how many CTAs of a launch fit on an SM, what limits them, and waves."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import occupancy_views as views
from wavewise.cli import output
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wavewise.hardware import GpuSpec, Launch
    from wavewise.occupancy import Residency, Waves


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
        _print(views.summary(spec, launch, residency, waves))


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
    from wavewise.occupancy import impossible_cluster, invalid_launch

    if launch.threads < 1:
        raise UsageError(f"--threads {launch.threads}: a CTA has at least 1 thread")
    wrong = invalid_launch(launch) or impossible_cluster(launch.cluster_size, launch.ctas, spec)
    if wrong:
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
        output.write_files({chart: views.drawn(points, parameter, chart.suffix)})
    if json:
        rows = [{"value": p.value, **_figures(p.residency, p.waves)} for p in points]
        _print_json({"gpu": spec.id, "launch": _launch_record(launch), "parameter": parameter, "rows": rows})
    else:
        _print(views.sweep_table(spec, points, parameter))


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
