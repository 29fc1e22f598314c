"""`wavewise sweep`: what local documents say of each lever, as draft ledger entries to confirm."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.cli.json_option import STDOUT, JsonCommand
from wavewise.errors import NothingToAnalyzeError, UsageError

if TYPE_CHECKING:
    from wavewise.levers.ledger import Entry
    from wavewise.levers.sweep import Swept


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("sweep", cls=JsonCommand, no_args_is_help=True)(sweep)


def sweep(
    documents: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DOCS...",
            help="Markdown, text, HTML or PDF files, or folders of them.",
            show_default=False,
        ),
    ] = None,
    git: Annotated[
        list[Path] | None, typer.Option(metavar="REPO", help="Read the commit messages of a repository too.")
    ] = None,
    drafts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the drafts as a ledger file (TOML) to confirm.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write everything found as JSON; - for standard output."),
    ] = None,
    lever: Annotated[str | None, typer.Option(metavar="NAME", help="Only this lever.")] = None,
    passages: Annotated[
        bool, typer.Option("--passages", help="Print every passage, also those without a verdict, with why.")
    ] = False,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the full-text index (SQLite FTS5).")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU of the drafts, where a text names none.")
    ] = None,
    interconnect: Annotated[
        str | None, typer.Option(metavar="LINK", help="Interconnect of the drafts.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model of the drafts.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Engine of the drafts.")] = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Levers (TOML) to add to the packaged ones.")
    ] = None,
    cues: Annotated[Path | None, typer.Option(metavar="FILE", help="Cues (TOML) to try first.")] = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search folders below the given ones.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Read documents, propose a verdict for each lever they speak of, and show where they disagree."""
    from wavewise.levers import load_catalogue
    from wavewise.levers.sweep import git_log, read_documents
    from wavewise.levers.sweep import sweep as run
    from wavewise.levers.sweep.drafting import as_entries
    from wavewise.levers.sweep.rules import load_rules

    if not documents and not git:
        raise UsageError("give documents or folders, or a repository with --git")
    output.refuse_existing([p for p in (drafts, json, index) if p is not None and p != STDOUT], force)
    known = load_catalogue(catalogue)
    wanted = known.find(lever).id if lever is not None else None
    rules = load_rules(cues)
    read, skipped = read_documents(documents or [], recursive=recursive)
    read += [git_log(repository) for repository in git or ()]
    if not read:
        raise NothingToAnalyzeError("no document to read" + (f": {skipped[0]}" if skipped else ""))
    found = run(read, known, rules=rules, index=index, skipped=skipped)
    if wanted is not None:
        found = _only(found, wanted)
    for line in skipped:
        print(f"wavewise: left out: {line}", file=sys.stderr)
    if drafts is not None:
        _write_drafts(
            drafts,
            as_entries(
                found.drafts, {"gpu": gpu, "interconnect": interconnect, "model": model, "engine": engine}
            ),
            force,
        )
    _show(found, json, passages)


def _only(found: "Swept", lever: str) -> "Swept":
    from msgspec.structs import replace

    return replace(
        found,
        passages=tuple(p for p in found.passages if p.lever == lever),
        drafts=tuple(d for d in found.drafts if d.lever == lever),
        conflicts=tuple(c for c in found.conflicts if c.lever == lever),
        unclear=tuple(u for u in found.unclear if u.startswith(f"{lever}: ")),
    )


def _write_drafts(path: Path, entries: "list[Entry]", force: bool) -> None:
    from wavewise.levers.ledger import write_entries

    header = (
        "Drafts by `wavewise sweep`: nothing counts until a person has read the source, completed the platform",
        'and set status = "confirmed".',
    )
    write_entries(path, entries, header, force=force)


def _show(found: "Swept", json: Path | None, passages: bool) -> None:
    if json is not None:
        import msgspec

        data = msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
        if json == STDOUT:
            sys.stdout.write(data.decode())
            return
        output.write_files({json: data})

    from wavewise.report.sweep_text import sections
    from wavewise.report.terminal import print_section

    console = output.console()
    for section in sections(found, passages=passages):
        print_section(section, console)
