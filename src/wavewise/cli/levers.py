"""`wavewise levers`: what to pull next, what it would save, and what is known not to work here."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import options, output
from wavewise.cli.json_option import STDOUT, JsonCommand, JsonOption
from wavewise.cli.labels import LabelOption, labels_of
from wavewise.errors import NothingToAnalyzeError, UsageError

if TYPE_CHECKING:
    from wavewise.analysis import Settings
    from wavewise.ceilings import ModelShape
    from wavewise.findings import Findings
    from wavewise.levers import Catalogue

_SCHEMA = b'"schema":"wavewise.findings/'


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("levers", cls=JsonCommand, no_args_is_help=True)(levers)


def levers(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...", help="Traces, folders of them, or one findings.json.", show_default=False
        ),
    ] = None,
    tried: options.TriedOption = None,
    ledger: options.LedgerOption = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Judge at this batch size (default: the largest).")
    ] = None,
    model: options.ModelOption = None,
    experts: options.ExpertsOption = None,
    tensor_parallel: options.TensorParallelOption = None,
    engine_version: options.EngineVersionOption = None,
    interconnect: options.InterconnectOption = None,
    heads_per_gpu: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Query heads of this GPU's shard.")
    ] = None,
    kernel_heads: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Heads that the attention kernel computes, padding included."),
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Levers (TOML) to add to the packaged ones.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Print the catalogue and exit.")] = False,
    json: JsonOption = None,
    gpu: options.GpuOption = None,
    gpus: options.GpusOption = None,
    rules: options.RulesOption = None,
    label: LabelOption = None,  # noqa: ARG001 - JsonCommand reads it
    recursive: options.RecursiveOption = False,
    force: options.ForceOption = False,
) -> None:
    """Rank the levers by predicted saving, with basis, risk and what the ledger knows of each."""
    from msgspec.structs import replace

    from wavewise.analysis import Settings
    from wavewise.levers import Known, load_catalogue, load_ledger, rank

    known_levers = load_catalogue(catalogue)
    if list_all:
        _print_catalogue(known_levers)
        return
    if not paths:
        raise UsageError("give traces, a folder of them, or a findings.json")
    names = options.names(tried)
    for name in names:
        known_levers.find(name)
    if json is not None and json != STDOUT:
        output.refuse_existing([json], force)
    book = load_ledger(ledger)
    settings = Settings(
        gpu=gpu,
        gpus=gpus,
        rules=rules,
        labels=labels_of(ctx),
        recursive=recursive,
        model=model,
        experts=options.experts(experts),
        tensor_parallel=tensor_parallel,
    )
    findings = _findings(paths, settings)
    known = Known(
        engine_version=engine_version,
        interconnect=interconnect,
        gpus=tensor_parallel,
        heads_per_gpu=heads_per_gpu,
        kernel_heads=kernel_heads,
    )
    found = rank(
        findings,
        ledger=book,
        tried=names,
        known=known,
        shape=_shape(findings, model),
        catalogue=known_levers,
        batch_size=batch_size,
    )
    if not found:
        raise NothingToAnalyzeError("no clean decode steps: no lever can be judged")
    _show(replace(findings, levers=found, levers_reason=None), json)


def _findings(paths: list[Path], settings: "Settings") -> "Findings":
    """What was measured: read from a findings.json, or analysed from traces."""
    if len(paths) == 1 and _is_stored(paths[0]):
        from wavewise.findings import load_findings

        return load_findings(paths[0])
    from wavewise.analysis import analyze

    with output.progress_on_stderr() as progress:
        return analyze(paths, settings=settings, progress=progress, unreadable=output.name_left_out)


def _is_stored(path: Path) -> bool:
    """Whether the file is a findings.json rather than a trace."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _SCHEMA in file.read(512).replace(b" ", b"")
    except OSError:
        return False


def _shape(findings: "Findings", model: str | None) -> "ModelShape | None":
    """The shape that `--model` names, cut to the layers that ran; None leaves it to the kernels' names."""
    if model is None:
        return None
    from wavewise.ceilings import cut_to_layers, load_shape

    return cut_to_layers(load_shape(model), [trace.kernels for trace in findings.traces])


def _show(findings: "Findings", json: Path | None) -> None:
    if json is not None:
        import msgspec

        data = msgspec.json.format(msgspec.json.encode({"levers": findings.levers}), indent=1) + b"\n"
        if json == STDOUT:
            sys.stdout.write(data.decode())
        else:
            output.write_files({json: data})
            typer.echo(str(json))
        return

    from wavewise.report.levers_text import sections
    from wavewise.report.terminal import print_section

    console = output.console()
    for section in sections(findings):
        print_section(section, console)


def _print_catalogue(catalogue: "Catalogue") -> None:
    width = max(len(lever.id) for lever in catalogue)
    for lever in catalogue:
        judged = "" if lever.evaluator is not None else " (by name only)"
        typer.echo(f"{lever.id:{width}}  {lever.title}{judged}")
