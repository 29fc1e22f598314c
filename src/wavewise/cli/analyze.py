"""`wavewise analyze`: traces in, findings out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import options, output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from wavewise.findings import Findings

REPORT = "PROFILE_FINDINGS.md"
_RENDERINGS = {"json": "findings.json", "markdown": REPORT, "html": "report.html"}
"""What `--out` writes, beside the charts."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("analyze", cls=LabelledCommand, no_args_is_help=True)(analyze)


def analyze(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...",
            help="Trace files, or folders of them; together one investigation.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the findings as JSON.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as markdown.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"Write every rendering there: {REPORT}, JSON, HTML, charts."),
    ] = None,
    gpu: options.GpuOption = None,
    gpus: options.GpusOption = None,
    rules: options.RulesOption = None,
    label: LabelOption = None,  # noqa: ARG001 - LabelledCommand reads it
    model: options.ModelOption = None,
    experts: options.ExpertsOption = None,
    tensor_parallel: options.TensorParallelOption = None,
    latency_target: options.LatencyTargetOption = None,
    throughput_target: options.ThroughputTargetOption = None,
    extrapolate: options.ExtrapolateOption = None,
    baseline: options.BaselineOption = None,
    telemetry: options.TelemetryOption = None,
    power_limit: options.PowerLimitOption = None,
    thresholds: options.ThresholdsOption = None,
    ledger: options.LedgerOption = None,
    engine_version: options.EngineVersionOption = None,
    interconnect: options.InterconnectOption = None,
    tried: options.TriedOption = None,
    recursive: options.RecursiveOption = False,
    force: options.ForceOption = False,
) -> None:
    """Say where each millisecond of the decode steps in these traces goes, and why."""
    from wavewise.analysis import Settings
    from wavewise.analysis import analyze as run
    from wavewise.levers import Known

    targets = _targets(json=json, markdown=markdown, html=html, out=out)
    output.refuse_existing([path for _, path in targets], force)
    settings = Settings(
        gpu=gpu,
        gpus=gpus,
        rules=rules,
        labels=labels_of(ctx),
        recursive=recursive,
        model=model,
        experts=options.experts(experts),
        tensor_parallel=tensor_parallel,
        extrapolate=options.sizes(extrapolate),
        latency_target_ms=options.milliseconds(latency_target),
        throughput_target=options.tokens_per_s(throughput_target),
        baseline=baseline,
        telemetry=telemetry,
        power_limit_w=power_limit,
        thresholds=thresholds,
        ledger=ledger,
        tried=options.names(tried),
        known=Known(engine_version=engine_version, interconnect=interconnect),
    )
    with output.progress_on_stderr() as progress:
        findings = run(paths or [], settings=settings, progress=progress, unreadable=output.name_left_out)
    for trace in findings.traces:
        for warning in trace.events.warnings:
            if warning.code == "graphs_as_wholes":
                print(f"wavewise: {trace.path}: {trace.decode_reason or warning.message}", file=sys.stderr)
    if targets:
        output.write_files(_render(findings, targets, out))
        for _, path in targets:
            typer.echo(str(path))
        return
    from wavewise.report import render_terminal

    render_terminal(findings, output.console())


def _targets(*, out: Path | None, **single: Path | None) -> list[tuple[str, Path]]:
    """Which rendering goes to which file."""
    targets = [(kind, path) for kind, path in single.items() if path is not None]
    if out is not None:
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {out}: is a file; name a folder")
        targets += [(kind, out / name) for kind, name in _RENDERINGS.items()]
    kinds: dict[Path, str] = {}
    for kind, path in targets:
        if kinds.setdefault(path.resolve(), kind) != kind:
            raise UsageError(f"{path}: is to hold both {kinds[path.resolve()]} and {kind}; name two files")
    return targets


def _render(findings: "Findings", targets: list[tuple[str, Path]], out: Path | None) -> dict[Path, bytes]:
    from wavewise import report

    charts = {} if out is None else report.render_charts(findings)
    drawn = {name: f"charts/{name}.svg" for name in charts}
    files = {out / drawn[name]: svg.encode() for name, svg in charts.items() if out is not None}
    for kind, path in targets:
        if kind == "json":
            files[path] = report.render_json(findings)
        elif kind == "html":
            files[path] = report.render_html(findings).encode()
        else:
            beside = out is not None and path == out / REPORT
            files[path] = report.render_markdown(findings, drawn if beside else None).encode()
    return files
