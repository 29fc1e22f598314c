"""`wavewise bench`: measurements that need a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from wavewise.cli import output
from wavewise.errors import RegressionFound, UsageError


def register(app: typer.Typer) -> None:
    """Adds the command and what it measures."""
    bench = typer.Typer(no_args_is_help=True, help="Measure kernels on this machine's GPU.")
    bench.command("attention")(attention)
    app.add_typer(bench, name="bench")


def attention(
    batch: Annotated[
        str, typer.Option(metavar="LIST", help="Batch sizes.")
    ] = "1,2,4,8,16,32,48,64,80,96,128,256",
    heads: Annotated[str, typer.Option(metavar="LIST", help="Query heads.")] = "64,16,128",
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Every shipped kernel at several split counts, not the plan's alone."),
    ] = False,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="FlashMLA and SGLang too, where they are installed.")
    ] = True,
    check_only: Annotated[bool, typer.Option("--check-only", help="Correctness alone, no times.")] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all samples there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Decode attention: correctness first, then times against peers and the floor."""
    if json is not None:
        output.refuse_existing([json], force)
    from wavewise.attention.configurations import SUPPORTED_HEADS
    from wavewise.bench.gpu import require_gpu
    from wavewise.occupancy import numbers_of

    batches, widths = numbers_of(batch, "--batch"), numbers_of(heads, "--heads")
    if 0 in batches:
        raise UsageError(f"--batch {batch!r}: a batch holds at least 1 request")
    if unknown := sorted(set(widths) - set(SUPPORTED_HEADS)):
        raise UsageError(f"--heads {unknown[0]}: supported are {', '.join(map(str, SUPPORTED_HEADS))}")
    require_gpu()
    import msgspec

    from wavewise.bench.attention import SCOPES, Settings, check, measure
    from wavewise.bench.attention_table import table

    checks = check("cuda")
    red = [row for row in checks if row["faults"]]
    worst = max(row["relative_error"] for row in checks)
    typer.echo(f"{len(checks)} checks, {len(red)} red, largest relative error {worst:.2e}")
    if red:
        first = red[0]
        raise RegressionFound(
            f"{first['config']} at {first['heads']} heads, case {first['case']!r}: {first['faults'][0]}; "
            "nothing was timed"
        )
    if check_only:
        return
    settings = Settings(
        batches=batches, heads=widths, scopes=SCOPES[:1] if sweep else SCOPES, sweep=sweep, peers=peers
    )
    found = measure(settings, "cuda", lambda _: None)
    found["checks"] = checks
    typer.echo(table(found["rows"]))
    if json is not None:
        output.write_files({json: msgspec.json.format(msgspec.json.encode(found), indent=1)})
