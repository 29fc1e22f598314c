"""`wavewise levers`: what to pull next, what it would save, and what is known not to work here."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError, WavewiseError

if TYPE_CHECKING:
    from wavewise.findings import Findings, Lever
    from wavewise.levers import Catalogue

_SCHEMA = b'"schema":"wavewise.findings/'


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("levers", cls=LabelledCommand, no_args_is_help=True)(levers)


def levers(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...", help="Traces, folders of them, or one findings.json.", show_default=False
        ),
    ] = None,
    tried: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Levers tried or asked about, by commas: nccl-tuning,cuda-graphs."
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Your ledger; the packaged entries count beside it.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Judge at this batch size (default: the largest).")
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option(metavar="V", help="The engine's version, to match and expire ledger entries."),
    ] = None,
    interconnect: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="pcie, nvlink or xgmi, where the GPU's name leaves it open."),
    ] = None,
    heads_per_gpu: Annotated[
        int | None, typer.Option(metavar="N", help="Query heads of this GPU's shard.")
    ] = None,
    kernel_heads: Annotated[
        int | None,
        typer.Option(metavar="N", help="Heads that the attention kernel computes, padding included."),
    ] = None,
    expert_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Weight bytes of one expert in one layer on this GPU.")
    ] = None,
    moe_layers: Annotated[int | None, typer.Option(metavar="N", help="Layers with routed experts.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Model shape: a shipped one, or a TOML file.")
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Levers (TOML) to add to the packaged ones.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Print the catalogue and exit.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JSON to FILE; - for standard output.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The GPU, where the trace does not say or is wrong.")
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
    """Rank the levers by predicted saving, with basis, risk and what the ledger knows of each."""
    from msgspec.structs import replace

    from wavewise.levers import Known, load_catalogue, load_ledger, rank

    known_levers = load_catalogue(catalogue)
    if list_all:
        _print_catalogue(known_levers)
        return
    if not paths:
        raise UsageError("give traces, a folder of them, or a findings.json")
    names = [name.strip() for name in (tried or "").split(",") if name.strip()]
    for name in names:
        known_levers.find(name)
    if json is not None and json != Path("-"):
        output.refuse_existing([json], force)
    book = load_ledger(ledger)
    findings = _findings(ctx, paths, gpu, rules, model, recursive)
    found = rank(
        findings,
        ledger=book,
        tried=names,
        known=Known(
            model=None if model is None else Path(model).stem,
            engine_version=engine_version,
            interconnect=interconnect,
            heads_per_gpu=heads_per_gpu,
            kernel_heads=kernel_heads,
            expert_bytes=expert_bytes,
            moe_layers=moe_layers,
        ),
        catalogue=known_levers,
        batch_size=batch_size,
    )
    if not found:
        raise NothingToAnalyzeError("no clean decode steps: no lever can be judged")
    _show(replace(findings, levers=found, levers_reason=None), found, json)


def _findings(
    ctx: typer.Context,
    paths: list[Path],
    gpu: str | None,
    rules: Path | None,
    model: str | None,
    recursive: bool,
) -> "Findings":
    """What was measured: read from a findings.json, or analysed from traces."""
    if len(paths) == 1 and (stored := _stored(paths[0])) is not None:
        return stored
    from wavewise.analysis import Settings, analyze

    settings = Settings(gpu=gpu, rules=rules, labels=labels_of(ctx), recursive=recursive, model=model)
    with output.progress_on_stderr() as progress:
        return analyze(paths, settings=settings, progress=progress, unreadable=_name_on_stderr)


def _stored(path: Path) -> "Findings | None":
    """The findings of a findings.json, None for any other file."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            if _SCHEMA not in file.read(512).replace(b" ", b""):
                return None
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read ({error.strerror or error})") from error
    import msgspec

    from wavewise.findings import SCHEMA, Findings

    try:
        found = msgspec.json.decode(data, type=Findings)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not findings that this version can read ({error})") from error
    if found.schema != SCHEMA:
        raise InputError(f"{path}: findings of schema {found.schema}; this version reads {SCHEMA}")
    return found


def _show(findings: "Findings", found: tuple["Lever", ...], json: Path | None) -> None:
    if json is not None:
        import msgspec

        data = msgspec.json.format(msgspec.json.encode({"levers": found}), indent=1) + b"\n"
        if json == Path("-"):
            sys.stdout.write(data.decode())
        else:
            output.write_files({json: data})
            typer.echo(str(json))
        return
    from rich.console import Console

    from wavewise.report.levers_text import sections
    from wavewise.report.terminal import print_section

    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    for section in sections(findings):
        print_section(section, console)


def _print_catalogue(catalogue: "Catalogue") -> None:
    width = max(len(lever.id) for lever in catalogue)
    for lever in catalogue:
        judged = "" if lever.evaluator is not None else " (by name only)"
        typer.echo(f"{lever.id:{width}}  {lever.title}{judged}")


def _name_on_stderr(_path: Path, error: WavewiseError) -> None:
    print(f"wavewise: left out: {error}", file=sys.stderr)
