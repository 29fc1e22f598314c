"""`wavewise scale`: how the step grows, and whether a latency or a throughput can be reached."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import options, output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import NothingToAnalyzeError, WavewiseError

if TYPE_CHECKING:
    from wavewise.findings import Findings

_STDOUT = Path("-")
_JSON = "--json"


class _ScaleCommand(LabelledCommand):
    """Lets `--json` stand alone: without a FILE behind it, JSON goes to stdout."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Gives a bare `--json` the value "-"; a word behind it is its FILE if it is "-" or ends in .json."""
        rest = [word for word in args if word != _JSON]
        words: list[str] = []
        for at, word in enumerate(args):
            behind = args[at + 1] if at + 1 < len(args) else ""
            takes = behind == "-" or (behind.endswith(".json") and _other_paths(rest, behind))
            words.append(f"{_JSON}=-" if word == _JSON and not takes else word)
        return super().parse_args(ctx, words)


def _other_paths(words: list[str], file: str) -> bool:
    """Whether a PATH is left when `file` is not one."""
    return any(word != file and not word.startswith("-") and Path(word).exists() for word in words)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("scale", cls=_ScaleCommand, no_args_is_help=True)(scale)


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
    json: Annotated[
        Path | None,
        typer.Option(_JSON, metavar="[FILE]", help="Write JSON to FILE; without FILE, to stdout."),
    ] = None,
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
    )
    if json is not None and json != _STDOUT:
        output.refuse_existing([json], force)
    with output.progress_on_stderr() as progress:
        findings = run(paths or [], settings=settings, progress=progress, unreadable=_name_on_stderr)
    if findings.scaling is None and not findings.context_scaling and findings.throughput_target is None:
        raise NothingToAnalyzeError(f"nothing to scale: {findings.scaling_reason or 'no clean decode steps'}")
    _show(findings, json)


def _show(findings: "Findings", json: Path | None) -> None:
    from wavewise.report.scaling_answer import answer_json, print_answer

    if json == _STDOUT:
        sys.stdout.write(answer_json(findings).decode() + "\n")
    elif json is not None:
        output.write_files({json: answer_json(findings)})
        typer.echo(str(json))
    else:
        from rich.console import Console

        print_answer(findings, Console(width=None if sys.stdout.isatty() else 100, highlight=False))


def _name_on_stderr(_path: Path, error: WavewiseError) -> None:
    print(f"wavewise: left out: {error}", file=sys.stderr)
