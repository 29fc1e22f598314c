"""`wavewise ledger`: the team's memory of what was tried, where, and with what verdict."""

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from wavewise.levers.ledger import Claim, Entry, Ledger

_SHIPPED = Annotated[
    bool, typer.Option("--shipped/--own", help="With the packaged entries, or the folder's own alone.")
]
_FOLDER = Annotated[Path, typer.Argument(metavar="DIR", help="Ledger folder.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the command and its parts."""
    ledger = typer.Typer(
        no_args_is_help=True, help="Keep and check the ledger of what was tried, as TOML files."
    )
    ledger.command("init")(init)
    ledger.command("add")(add)
    ledger.command("list")(list_entries)
    ledger.command("check")(check)
    app.add_typer(ledger, name="ledger")


def init(folder: _FOLDER) -> None:
    """Make a ledger folder with one empty, explained file."""
    from wavewise.levers.ledger import init_ledger

    typer.echo(str(init_ledger(folder)))


def add(
    folder: _FOLDER,
    lever: Annotated[str, typer.Option(metavar="NAME", help="Lever, by id or any of its names.")],
    verdict: Annotated[
        str,
        typer.Option(
            metavar="VERDICT", help="works, promising, no gain, worse, blocked, unsafe or rejected."
        ),
    ],
    evidence: Annotated[str, typer.Option(metavar="TEXT", help="What was seen, or a short quotation.")],
    source: Annotated[str, typer.Option(metavar="TEXT", help="Where it stands: document, commit, trace.")],
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="GPU it holds for.")] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="How many.")] = None,
    compute_capability: Annotated[str | None, typer.Option(metavar="X.Y", help='Such as "12.0".')] = None,
    interconnect: Annotated[str | None, typer.Option(metavar="LINK", help="pcie, nvlink, xgmi, ...")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model it holds for.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="sglang, vllm, ...")] = None,
    engine_version: Annotated[str | None, typer.Option(metavar="V", help="Measured on.")] = None,
    reopens_at: Annotated[
        str | None, typer.Option(metavar="V", help="Engine version that reopens it.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="DATE", help="Day from which to try again.")] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="TEXT", help='Measured figure: "14 against 23 tok/s".')
    ] = None,
    ground: Annotated[
        str | None, typer.Option(metavar="GROUND", help="Why: measured, broken, incompatible, ...")
    ] = None,
    conditions: Annotated[str | None, typer.Option(metavar="TEXT", help="What narrows it.")] = None,
    date: Annotated[str | None, typer.Option(metavar="DATE", help="When measured (default: today).")] = None,
    entry_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Default: lever and date.")
    ] = None,
) -> None:
    """Add one entry, after checking it against the whole ledger."""
    from wavewise.levers import load_catalogue
    from wavewise.levers.ledger import Entry, add_entry, load_ledger

    known = load_catalogue().find(lever)
    day = _day("--date", date) or dt.date.today()
    taken = {entry.id for entry in load_ledger(folder).entries}
    entry = Entry(
        id=entry_id or _free_id(f"{known.id}-{day.isoformat()}", taken),
        lever=known.id,
        verdict=verdict.strip().lower().replace("-", " "),
        ground=ground,
        figure=figure,
        evidence=evidence,
        source=source,
        date=day,
        conditions=conditions,
        gpu=gpu,
        gpus=gpus,
        compute_capability=compute_capability,
        interconnect=interconnect,
        model=model,
        engine=engine,
        engine_version=engine_version,
        reopens_at=reopens_at,
        expires=_day("--expires", expires),
    )
    typer.echo(f"{add_entry(folder, entry)}: {entry.id}")
    _print_conflicts(load_ledger(folder), known.id)


def list_entries(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    lever: Annotated[str | None, typer.Option(metavar="NAME", help="Only this lever.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="Mark what holds on this GPU.")] = None,
    shipped: _SHIPPED = True,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List entries; without DIR, the packaged ones."""
    from wavewise.levers import load_catalogue
    from wavewise.levers.ledger import load_ledger

    book = load_ledger(folder, shipped=shipped or folder is None)
    wanted = load_catalogue().find(lever).id if lever is not None else None
    entries = [e for e in book.entries if wanted in (None, e.lever)]
    if gpu is not None:
        entries = [e for e in entries if _holds_on(e, gpu)]
    claims = [] if wanted is not None or gpu is not None else list(book.claims)
    if json:
        import msgspec

        data = msgspec.json.encode({"entries": entries, "claims": claims})
        typer.echo(msgspec.json.format(data, indent=1).decode())
        return
    _print_entries(entries)
    for claim in claims:
        typer.echo(f"{claim.question} {claim.answer} ({claim.source})")


def check(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    shipped: _SHIPPED = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when there are contradictions or drafts.")
    ] = False,
) -> None:
    """Read the whole ledger; show contradictions with both sources, drafts, expired and unknown entries."""
    from wavewise.levers import load_catalogue
    from wavewise.levers.ledger import load_ledger

    book = load_ledger(folder, shipped=shipped or folder is None)
    catalogue = load_catalogue()
    typer.echo(f"{len(book.entries)} entries, {len(book.claims)} claims")
    for name in sorted({e.lever for e in book.entries} - {lever.id for lever in catalogue}):
        typer.echo(f"unknown lever {name!r}: no lever of the catalogue has that id")
    today = dt.date.today()
    for entry in (e for e in book.entries if e.expires is not None and e.expires <= today):
        typer.echo(f"expired on {entry.expires}: {entry.id}")
    for entry in book.drafts:
        typer.echo(f'draft, counts for nothing until its status is "confirmed": {entry.id} ({entry.source})')
    conflicts = _print_conflicts(book, None)
    if strict and (conflicts or book.drafts):
        raise typer.Exit(1)


def _print_conflicts(book: "Ledger", lever: str | None) -> int:
    conflicts = [c for c in book.conflicts() if lever in (None, c.subject)]
    for conflict in conflicts:
        typer.echo(f"contradiction on {conflict.subject} ({conflict.why}):")
        for statement in conflict.statements:
            typer.echo(f"  {_statement(statement)}")
    return len(conflicts)


def _statement(statement: "Entry | Claim") -> str:
    from wavewise.levers.ledger import Entry

    if isinstance(statement, Entry):
        ground = f" ({statement.ground})" if statement.ground else ""
        return f"{statement.verdict}{ground}: {statement.evidence} [{statement.id}; {statement.source}]"
    return f"{statement.answer}: {statement.evidence} [{statement.id}; {statement.source}]"


def _print_entries(entries: Sequence["Entry"]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("lever", "verdict", "figure", "holds for", "source"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        verdict = entry.verdict if entry.status == "confirmed" else f"{entry.verdict} (draft)"
        platform = (entry.gpu, entry.interconnect, entry.model, entry.engine)
        holds = ", ".join(part for part in platform if part) or "not stated"
        table.add_row(entry.lever, verdict, entry.figure or "-", holds, entry.source)
    output.console(width=120).print(table, markup=False)


def _holds_on(entry: "Entry", gpu: str) -> bool:
    from wavewise.levers.ledger import Setting

    return Setting(gpu=gpu).holds(entry)[0] != "elsewhere"


def _day(option: str, text: str | None) -> dt.date | None:
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: write a date as 2026-11-29") from error


def _free_id(base: str, taken: set[str]) -> str:
    number = 1
    while (name := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)
