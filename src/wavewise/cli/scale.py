"""`wavewise scale`: how the step grows, and whether a latency or a throughput can be reached."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import options, output
from wavewise.cli.json_option import STDOUT, JsonCommand, JsonOption
from wavewise.cli.labels import LabelOption, labels_of
from wavewise.errors import NothingToAnalyzeError

if TYPE_CHECKING:
    from wavewise.findings import Findings


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("scale", cls=JsonCommand, no_args_is_help=True)(scale)


def scale(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...", help="Traces at several batch sizes, or folders of them.", show_default=False
        ),
    ] = None,
    latency_target: options.LatencyTargetOption = None,
    throughput_target: options.ThroughputTargetOption = None,
    extrapolate: options.ExtrapolateOption = None,
    experts: options.ExpertsOption = None,
    model: options.ModelOption = None,
    tensor_parallel: options.TensorParallelOption = None,
    baseline: options.BaselineOption = None,
    telemetry: options.TelemetryOption = None,
    power_limit: options.PowerLimitOption = None,
    thresholds: options.ThresholdsOption = None,
    json: JsonOption = None,
    gpu: options.GpuOption = None,
    gpus: options.GpusOption = None,
    rules: options.RulesOption = None,
    label: LabelOption = None,  # noqa: ARG001 - LabelledCommand reads it
    recursive: options.RecursiveOption = False,
    force: options.ForceOption = False,
) -> None:
    """Say how the step grows with batch size and context, what carries the slope, and what can be reached."""
    from wavewise.analysis import Settings
    from wavewise.analysis import analyze as run

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
    )
    if json is not None and json != STDOUT:
        output.refuse_existing([json], force)
    with output.progress_on_stderr() as progress:
        findings = run(paths or [], settings=settings, progress=progress, unreadable=output.name_left_out)
    if findings.scaling is None and not findings.context_scaling and findings.throughput_target is None:
        raise NothingToAnalyzeError(f"nothing to scale: {findings.scaling_reason or 'no clean decode steps'}")
    _show(findings, json)


def _show(findings: "Findings", json: Path | None) -> None:
    from wavewise.report.scaling_answer import answer_json, print_answer

    if json == STDOUT:
        sys.stdout.write(answer_json(findings).decode() + "\n")
    elif json is not None:
        output.write_files({json: answer_json(findings)})
        typer.echo(str(json))
    else:
        print_answer(findings, output.console())
