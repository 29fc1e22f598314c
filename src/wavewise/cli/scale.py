"""`wavewise scale`: how the step grows, and whether a latency or a throughput can be reached."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import NothingToAnalyzeError, UsageError, WavewiseError

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
    latency_target: Annotated[
        str | None, typer.Option(metavar="TIME", help="Largest batch whose step meets it: 30ms.")
    ] = None,
    throughput_target: Annotated[
        str | None, typer.Option(metavar="TOKENS/S", help="Can it be reached, and what forbids it: 1000.")
    ] = None,
    experts: Annotated[
        str | None, typer.Option(metavar="N,K", help="Routed experts, and active ones per token: 256,6.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Model shape: a shipped one, or a TOML file.")
    ] = None,
    extrapolate: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Batch sizes to predict: 96,128,160.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An earlier findings.json whose premises to check.")
    ] = None,
    telemetry: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="GPU telemetry: recorder's CSV, nvidia-smi CSV or dmon output."),
    ] = None,
    power_limit: Annotated[
        float | None, typer.Option(metavar="W", help="The board's power limit, which dmon does not hold.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(_JSON, metavar="[FILE]", help="Write JSON to FILE; without FILE, to stdout."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The GPU, where the trace does not say or is wrong.")
    ] = None,
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Kernel family rules (TOML), tried first.")
    ] = None,
    label: LabelOption = None,  # noqa: ARG001 - LabelledCommand reads it
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search folders below the given ones.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
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
        experts=_experts(experts),
        extrapolate=_sizes(extrapolate),
        latency_target_ms=_milliseconds(latency_target),
        throughput_target=_rate(throughput_target),
        baseline=baseline,
    )
    if json is not None and json != _STDOUT:
        output.refuse_existing([json], force)
    with output.progress_on_stderr() as progress:
        findings = run(paths or [], settings=settings, progress=progress, unreadable=_name_on_stderr)
    if telemetry is not None:
        findings = _with_signature(findings, telemetry, power_limit)
    if findings.scaling is None and not findings.context_scaling and findings.throughput_target is None:
        raise NothingToAnalyzeError(f"nothing to scale: {findings.scaling_reason or 'no clean decode steps'}")
    _show(findings, json)


def _with_signature(findings: "Findings", telemetry: Path, power_limit_w: float | None) -> "Findings":
    from msgspec.structs import replace

    from wavewise.ceilings import read_telemetry, signature

    return replace(findings, signature=signature(read_telemetry(telemetry), power_limit_w=power_limit_w))


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


def _experts(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+)\s*[,/x]\s*(\d+)\s*", text)
    if not found or not 0 < int(found[2]) <= int(found[1]):
        raise UsageError(f"--experts {text!r}: write N,K with 0 < K <= N, for example 256,6")
    return int(found[1]), int(found[2])


def _sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--extrapolate {text!r}: write batch sizes, for example 96,128,160")
    return tuple(int(part) for part in parts)


_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}


def _milliseconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s)?\s*", text)
    value = float(found[1]) * _MS[found[2] or ""] if found else 0.0
    if value <= 0.0:
        raise UsageError(f"--latency-target {text!r}: write a time, for example 30ms")
    return value


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(k?)\s*(?:tok(?:ens)?/s)?\s*", text.replace("_", ""))
    value = float(found[1]) * (1e3 if found[2] else 1.0) if found else 0.0
    if value <= 0.0:
        raise UsageError(f"--throughput-target {text!r}: write tokens per second, for example 1000")
    return value
