"""`wavewise export`: findings and timelines for other tools."""

import gzip
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from wavewise.analysis import Settings
    from wavewise.findings import Findings
    from wavewise.trace import Progress, Trace


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("export", cls=LabelledCommand, no_args_is_help=True)(export)


def export(
    ctx: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Trace files or folders of them; for tables also findings.json.",
            show_default=False,
        ),
    ],
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Clean steps with gaps, families and waves, for ui.perfetto.dev: .json, .json.gz or .pftrace.",
        ),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each table as parquet there.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each table as CSV there.")] = None,
    notebook: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a notebook over the tables; brings parquet with it."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The GPU, where the trace does not say or is wrong.")
    ] = None,
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Kernel family rules (TOML), tried before the built-in ones."),
    ] = None,
    label: LabelOption = None,  # noqa: ARG001 - LabelledCommand reads it
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search folders below the given ones.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write decode steps for Perfetto, tables for data frames, or a notebook over them."""
    from wavewise.analysis import Settings

    if notebook is not None and parquet is None and csv is None:
        parquet = notebook.with_name(f"{notebook.stem}-tables")
    if perfetto is None and parquet is None and csv is None:
        raise UsageError(
            "nothing to export: name --perfetto FILE, --parquet DIR, --csv DIR or --notebook FILE"
        )
    settings = Settings(gpu=gpu, gpus=gpus, rules=rules, labels=labels_of(ctx), recursive=recursive)
    output.refuse_existing([path for path in (perfetto, notebook) if path is not None], force)
    files: dict[Path, bytes] = {}
    with output.progress_on_stderr() as progress:
        if perfetto is not None:
            files[perfetto] = _timeline(perfetto, paths, settings, progress)
        if parquet is not None or csv is not None:
            files |= _tables(paths, parquet, csv, notebook, settings, progress)
    output.refuse_existing([path for path in files if path not in (perfetto, notebook)], force)
    output.write_files(files)
    for path in files:
        typer.echo(str(path))


def _timeline(file: Path, paths: Sequence[Path], settings: "Settings", progress: "Progress | None") -> bytes:
    """The clean steps of every device of every trace, in the format that the file's name asks for.

    Raises:
        UsageError: a name that tells no format.
        NothingToAnalyzeError: no trace has a clean decode step.
    """
    from wavewise.decode import FamilyRules
    from wavewise.hardware import catalogue
    from wavewise.report import export as room
    from wavewise.trace import find_traces

    name = file.name.lower()
    json, packed = name.endswith((".json", ".json.gz")), name.endswith(".gz")
    if not json and not name.endswith((".pftrace", ".perfetto-trace", ".pb")):
        raise UsageError(f"--perfetto {file}: end the name in .json, .json.gz or .pftrace")
    gpus, rules = catalogue(settings.gpus), FamilyRules.load(settings.rules)
    gpu = gpus.find(settings.gpu) if settings.gpu else None
    found = find_traces(list(paths), recursive=settings.recursive)
    processes: list[room.Process] = []
    reasons: list[str] = []
    for number, path in enumerate(found):
        if progress:
            progress(f"reading {path.name}", number / len(found))
        for trace in _read(path, named=path in paths):
            for device in trace.device_ids():
                made = room.process(trace, device, rules=rules, gpus=gpus, gpu=gpu)
                if isinstance(made, str):
                    reasons.append(f"{path.name}: {made}")
                else:
                    processes.append(made)
    if not processes:
        raise NothingToAnalyzeError(f"no clean decode step to export ({'; '.join(reasons[:3])})")
    for reason in reasons:
        print(f"wavewise: left out: {reason}", file=sys.stderr)
    data = room.chrome_trace(processes) if json else room.perfetto_trace(processes)
    return gzip.compress(data, mtime=0) if packed else data


def _read(path: Path, *, named: bool) -> "list[Trace]":
    """The traces of a file; none, said on stderr, of an unreadable one that only its folder named."""
    from wavewise.trace import read

    try:
        return list(read(path))
    except (InputError, NothingToAnalyzeError) as error:
        if named:
            raise
        output.name_left_out(path, error)
        return []


def _tables(
    paths: Sequence[Path],
    parquet: Path | None,
    csv: Path | None,
    notebook: Path | None,
    settings: "Settings",
    progress: "Progress | None",
) -> dict[Path, bytes]:
    """Every table in each wanted format, and the notebook over the first of them."""
    from wavewise.report import export as room

    findings = _findings(paths, settings, progress)
    frames = room.tables(findings)
    files: dict[Path, bytes] = {}
    for folder, suffix in ((parquet, "parquet"), (csv, "csv")):
        if folder is not None:
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"{folder}: is a file; name a folder")
            files |= {folder / f"{name}.{suffix}": _encoded(frame, suffix) for name, frame in frames.items()}
    if notebook is not None:
        folder, suffix = (parquet, "parquet") if parquet is not None else (csv, "csv")
        assert folder is not None
        files[notebook] = room.notebook(findings, _relative(folder, notebook.parent), suffix)
    return files


def _findings(paths: Sequence[Path], settings: "Settings", progress: "Progress | None") -> "Findings":
    """Findings from one findings.json, or from traces."""
    from wavewise.analysis import analyze
    from wavewise.report.diff import load

    if len(paths) == 1:
        return load(paths[0], settings=settings, progress=progress, unreadable=output.name_left_out)
    return analyze(paths, settings=settings, progress=progress, unreadable=output.name_left_out)


def _encoded(frame: "pl.DataFrame", suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == "parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer)
    return buffer.getvalue()


def _relative(folder: Path, start: Path) -> str:
    """`folder` as seen from `start`, with forward slashes."""
    import os

    return Path(os.path.relpath(folder, start)).as_posix()
