"""`wavewise diff`: what changed between two recordings, and whether it is more than noise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.cli.labels import LabelledCommand, LabelOption, labels_of
from wavewise.errors import InputError, NothingToAnalyzeError, RegressionFound, UsageError

if TYPE_CHECKING:
    from wavewise.report.diff import Diff

_RENDERINGS = {"json": "diff.json", "markdown": "DIFF.md", "html": "diff.html"}
"""What `--out` writes."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("diff", cls=LabelledCommand, no_args_is_help=True)(diff)


def diff(
    ctx: typer.Context,
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            help="findings.json, a folder with one, a trace or a folder of traces.",
            show_default=False,
        ),
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="The same of the other side.", show_default=False)
    ],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="LIMIT",
            help="Exit with 1 when this comes true beyond noise: 'decode.64.step_ms > +3%'. May be repeated.",
        ),
    ] = None,
    noise: Annotated[
        str, typer.Option(metavar="SHARE", help="Recordings of equal work differ by up to this share.")
    ] = "1%",
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the diff as JSON.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as markdown, ready for a pull request.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as one HTML file.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help=f"Write all there: {', '.join(_RENDERINGS.values())}.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare other GPUs or models too.")] = False,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The GPU, where the traces do not say or are wrong.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Kernel family rules (TOML), tried before the built-in ones."),
    ] = None,
    label: LabelOption = None,  # noqa: ARG001 - LabelledCommand reads it
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Say what changed in a decode step between two recordings, and what is only noise.

    Exits with 1 when a limit is exceeded beyond noise.
    """
    from wavewise.analysis import Settings
    from wavewise.report import diff as room

    limits = [room.parse_limit(text) for text in fail_if or []]
    share = _share(noise)
    targets = _targets(out, json=json, markdown=markdown, html=html)
    output.refuse_existing(targets.values(), force)
    settings = Settings(gpu=gpu, rules=rules, labels=labels_of(ctx))
    with output.progress_on_stderr() as progress:
        sides = [
            room.load(path, settings=settings, progress=progress, unreadable=output.name_left_out)
            for path in (before, after)
        ]
    for path, side in zip((before, after), sides, strict=True):
        if not side.traces:
            raise NothingToAnalyzeError(f"{path}: a recording without a trace; a diff compares traced steps")
    found = room.diff(*sides, paths=(str(before), str(after)), share=share, anyway=anyway)
    found = room.judged(found, limits)
    _show(found, targets)
    _conclude(found)


def _targets(out: Path | None, **single: Path | None) -> dict[str, Path]:
    """Which rendering goes to which file."""
    targets = {kind: path for kind, path in single.items() if path is not None}
    if out is not None:
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {out}: is a file; name a folder")
        targets = {kind: out / name for kind, name in _RENDERINGS.items()} | targets
    return targets


def _share(text: str) -> float:
    """The share that "1%", "1 %" or "0.01" says."""
    number, per_cent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100 if per_cent else 1)
    except ValueError:
        raise UsageError(f"--noise {text!r}: write a share such as 1% or 0.01") from None
    if not 0 <= share < 1:
        raise UsageError(f"--noise {text!r}: write a share from 0 to below 100 %")
    return share


def _show(found: "Diff", targets: dict[str, Path]) -> None:
    """Writes the files that were asked for, else prints to the terminal."""
    from wavewise.report import diff as room

    if not targets:
        room.render_terminal(found, output.console())
        return
    renderers = {
        "json": room.render_json,
        "markdown": lambda value: room.render_markdown(value).encode(),
        "html": lambda value: room.render_html(value).encode(),
    }
    output.write_files({path: renderers[kind](found) for kind, path in targets.items()})
    for path in targets.values():
        typer.echo(str(path))


def _conclude(found: "Diff") -> None:
    """Ends with the exit status that the limits ask for.

    Raises:
        RegressionFound: a limit is exceeded beyond noise.
        InputError: a limit is exceeded, but there are too few clean steps to tell it from noise.
        NothingToAnalyzeError: no operating point is on both sides.
    """
    failed = [result for result in found.limits if result.outcome == "exceeded"]
    if failed:
        count = f"{len(failed)} limits" if len(failed) > 1 else "a limit"
        said = "; ".join(f"{result.limit!r}: {result.message}" for result in failed)
        raise RegressionFound(f"{count} exceeded beyond noise: {said}")
    unclear = [result for result in found.limits if result.outcome == "unclear"]
    if unclear:
        said = "; ".join(f"{result.limit!r}: {result.message}" for result in unclear)
        raise InputError(f"limits that cannot be judged; record more steps: {said}")
    if not found.points:
        stops = [note.message for note in found.notes if note.level == "stop"]
        raise NothingToAnalyzeError(
            f"nothing could be compared: {stops[0] if stops else 'no operating point is on both sides.'}"
        )
