"""`wavewise plan-attention`: how many splits and which tile for each batch size, without a GPU."""

from typing import Annotated

import typer

from wavewise.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plan-attention", no_args_is_help=True)(plan_attention)


def plan_attention(
    gpu: Annotated[str, typer.Option(metavar="NAME", help="GPU by catalogue id or driver name.")],
    batch: Annotated[str, typer.Option(metavar="LIST", help="Batch sizes: 1:128, or 1,8,64.")] = "1:128",
    heads: Annotated[
        str, typer.Option(metavar="LIST", help="Query heads: 64,16 (8, 16, 32, 64, 128).")
    ] = "64",
    topk: Annotated[int, typer.Option(help="Keys that the indexer picks for each query.")] = 512,
    window: Annotated[
        int, typer.Option(help="Keys of the sliding window, attended beside them; 0 for none.")
    ] = 128,
    queries: Annotated[int, typer.Option(help="Queries a request: 2 to 4 for speculative verification.")] = 1,
    triton: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Footprints of this Triton (default: the measured one)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan split-KV decode attention: splits, tile, residency, waves and predicted time."""
    import sys

    import msgspec

    from wavewise.attention.configurations import footprints_for, shipped_footprints
    from wavewise.attention.plan import DecodeShape, plan_decode, shipped_coefficients
    from wavewise.hardware import catalogue
    from wavewise.occupancy import numbers_of

    spec = catalogue().find(gpu)
    batches, widths = numbers_of(batch, "--batch"), numbers_of(heads, "--heads")
    if 0 in batches:
        raise UsageError(f"--batch {batch!r}: a batch holds at least 1 request")
    if queries > 4:
        raise UsageError(f"--queries {queries}: at most 4")
    audited = sorted({f.compiler for f in shipped_footprints()})
    if triton is not None and triton not in audited:
        raise UsageError(f"--triton {triton}: audited are {', '.join(audited)}")
    footprints = footprints_for(spec, triton)
    # The first scope is the window where there is one, as the kernels count them.
    first, second = (window, topk) if window else (topk, 0)
    rows = [
        plan_decode(DecodeShape(b, h, first, second, queries), None, spec, footprints)
        for h in widths
        for b in batches
    ]
    if json:
        found = {
            "gpu": spec.id,
            "triton": footprints[0].compiler,
            "topk": topk,
            "window": window,
            "queries_per_request": queries,
            "model": shipped_coefficients().source,
            "rows": [
                {
                    "batch": plan.shape.batch,
                    "heads": plan.shape.heads,
                    "num_splits": plan.num_splits,
                    "tile": plan.config.tile,
                    "kernel": plan.config.id,
                    "grid": plan.grid,
                    "ctas_per_sm": plan.ctas_per_sm,
                    "limiter": plan.limiter,
                    "waves": plan.waves,
                    "wave_efficiency": plan.wave_efficiency,
                    "predicted_us": plan.predicted_us,
                }
                for plan in rows
            ],
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        return
    keys = f"{window} + {topk} keys" if window else f"{topk} keys"
    typer.echo(f"{spec.name}: {keys} a query, footprints of Triton {footprints[0].compiler}")
    typer.echo(f"{'heads':>5} {'batch':>5} {'splits':>6} {'tile':>7} {'CTAs':>6} {'CTAs/SM':>7} "
               f"{'waves':>5} {'efficiency':>10} {'predicted':>11}  kernel")  # fmt: skip
    for plan in rows:
        ctas = plan.grid[0] * plan.grid[1] * plan.grid[2]
        typer.echo(
            f"{plan.shape.heads:>5} {plan.shape.batch:>5} {plan.num_splits:>6} {plan.config.tile:>7} {ctas:>6,} "
            f"{plan.ctas_per_sm:>7} {plan.waves:>5} {plan.wave_efficiency:>10.1%} "
            f"{plan.predicted_us:>8,.1f} us  {plan.config.kernel}"
        )
    typer.echo(f"Time model: {shipped_coefficients().source}")
