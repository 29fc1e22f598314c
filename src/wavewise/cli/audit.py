"""`wavewise audit`: compile a kernel for GPUs that are not there, and say what of it fits on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavewise.cli import output
from wavewise.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wavewise.audit import AuditReport, AuditRow, KernelConfig

_OPTIONS = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas", "maxnreg": "maxnreg"}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("audit", no_args_is_help=True)(audit)


def audit(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="path/to/module.py:kernel, or a .cubin, fatbinary or library with kernels."
        ),
    ],
    constants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUES]...", help="More constants, as for --constexpr.", show_default=False
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="GPUs: h200,rtx-pro-6000.", show_default=False)
    ] = None,
    signature: Annotated[
        str,
        typer.Option(
            metavar="TYPES",
            help="Types of the other parameters, in order or by name: '*bf16, *i32, i32:16' or 'q=*bf16, n=i32'. "
            "Pointers count as 16-byte aligned; ':16' says that a number is a multiple of 16, ':1' that it is 1.",
            show_default=False,
        ),
    ] = "",
    constexpr: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES", help="A constant, or values to try: BLOCK_T=16,32.", show_default=False
        ),
    ] = None,
    num_warps: Annotated[str, typer.Option(metavar="LIST", help="Warps per CTA: 4,8.")] = "4",
    num_stages: Annotated[str, typer.Option(metavar="LIST", help="Software pipelining stages: 1,2,3.")] = "3",
    num_ctas: Annotated[str, typer.Option(metavar="LIST", help="CTAs per cluster.")] = "1",
    maxnreg: Annotated[
        str | None, typer.Option(metavar="LIST", help="Caps on registers per thread: none,128.")
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help="Launch grid, of constants and --let names: 'B, cdiv(H, BLOCK_H)'.",
            show_default=False,
        ),
    ] = None,
    let: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A value for a name in --grid.", show_default=False),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of a binary: threads per CTA, where it does not record them.")
    ] = None,
    dynamic_shared_memory: Annotated[
        int, typer.Option(help="Of a binary: bytes of shared memory that the launch adds.")
    ] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Compiling processes (all cores unless given).")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="The longest that one compile may take; a configuration over it is a row."
        ),
    ] = 120,
    cache: Annotated[bool, typer.Option(help="Keep compile results, by content.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one.")
    ] = None,
) -> None:
    """Compile a kernel offline and rank its configurations: registers, spills, residency, waves."""
    from wavewise.audit import audit as run
    from wavewise.audit import audit_binary
    from wavewise.hardware import catalogue

    names = [name.strip() for text in gpu or () for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("name the GPUs to audit for, for example --gpu h200,rtx-pro-6000")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1")
    values = _whole_values(let)
    known = catalogue(gpus)
    if ":" not in kernel or Path(kernel).is_file():
        report = audit_binary(
            Path(kernel),
            names,
            threads=threads,
            dynamic_shared_memory=dynamic_shared_memory,
            grid=grid,
            let=values,
            known_gpus=known,
        )
    else:
        configs = _configs(
            [*(constexpr or ()), *(constants or ())],
            {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg},
        )
        with output.progress_on_stderr() as progress:
            report = run(
                kernel,
                configs,
                names,
                signature=signature,
                grid=grid,
                let=values,
                jobs=jobs,
                timeout_s=timeout,
                use_cache=cache,
                known_gpus=known,
                progress=progress,
            )
    if json:
        _print_json(report)
    else:
        _print(report)


def _whole_values(let: Sequence[str] | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in let or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value.lstrip("-").isdigit():
            raise UsageError(f"--let {text!r}: write NAME=VALUE with a whole number, for example --let B=32")
        found[name] = int(value)
    return found


def _configs(constants: Sequence[str], options: dict[str, str | None]) -> "list[KernelConfig]":
    """Every combination of the listed values."""
    from wavewise.audit.source import constant, expand

    constexprs: dict[str, list[Any]] = {}
    for text in constants:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not values:
            raise UsageError(
                f"{text!r}: write NAME=VALUE or NAME=VALUE,VALUE, for example --constexpr BLOCK_T=16,32"
            )
        if name in constexprs:
            raise UsageError(f"{name!r} is given twice; list its values: {name}=...,...")
        constexprs[name] = [constant(value) for value in values.split(",")]
    chosen: dict[str, list[int | None]] = {}
    for name, text in options.items():
        if text is not None:
            chosen[name] = [_option(name, word.strip()) for word in text.split(",")]
    return expand(constexprs, chosen)


def _option(name: str, word: str) -> int | None:
    if name == "maxnreg" and word.lower() == "none":
        return None
    try:
        return int(word)
    except ValueError:
        raise UsageError(
            f"--{name.replace('_', '-')} {word!r}: a list of whole numbers, for example 4,8"
        ) from None


def _print_json(report: "AuditReport") -> None:
    import msgspec

    # Constants may be types or layouts, which JSON does not have: they are written as Triton prints them.
    encoded = msgspec.json.encode(report, enc_hook=str)
    typer.echo(msgspec.json.format(encoded, indent=2).decode())


def _print(report: "AuditReport") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    varying = _varying(report)
    console.print(Text(_headline(report, varying)))
    for gpu in dict.fromkeys(row.gpu for row in report.rows):
        rows = [row for row in report.rows if row.gpu == gpu]
        console.print(Text(f"\n{gpu}", style="bold"))
        console.print(_table(rows, varying))
        for words in _remarks(rows):
            console.print(Text(words))


def _described(config: "KernelConfig") -> dict[str, Any]:
    own = {label: getattr(config, name) for name, label in _OPTIONS.items()}
    return {**config.constexprs, **own}


def _varying(report: "AuditReport") -> list[str]:
    """The names whose value differs between the rows."""
    configs = [_described(row.config) for row in report.rows if row.config is not None]
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({str(config.get(name)) for config in configs}) > 1]


def _headline(report: "AuditReport", varying: list[str]) -> str:
    head = f"{report.kernel}, {report.compiler.split(';')[0]}"
    config = report.rows[0].config
    if config is None:
        return head
    usual = {"ctas": 1, "maxnreg": None}
    fixed = {
        name: value
        for name, value in _described(config).items()
        if name not in varying and not (name in usual and value == usual[name])
    }
    constants = ", ".join(f"{name} {value}" for name, value in fixed.items())
    return f"{head}\n{constants}; compiled {report.compiled}, {report.cached} from the cache"


def _table(rows: "Sequence[AuditRow]", varying: list[str]) -> "RenderableType":
    from rich.table import Table

    from wavewise.units import format_share

    with_waves = any(row.waves is not None for row in rows)
    binary = rows[0].config is None
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    if binary:
        table.add_column("kernel", overflow="fold")
        table.add_column("for", no_wrap=True)
        table.add_column("threads", justify="right", no_wrap=True)
    for name in varying:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("regs", "stack" if binary else "spills", "shared", "CTAs/SM"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by")
    for name in ("occ.", *(("waves", "full") if with_waves else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        found = row.resources
        config = _described(row.config) if row.config else {}
        cells = ["-" if row.rank is None else str(row.rank)]
        if binary:
            cells += [found.kernel, found.arch, _count(found.threads_per_cta)]
        cells += [str(config.get(name)) for name in varying]
        lost = found.stack_bytes if binary else _spilled(row)
        cells += [
            _count(n) for n in (found.registers_per_thread, lost, found.shared_memory_bytes, row.ctas_per_sm)
        ]
        cells.append(_limited(row))
        cells.append("-" if row.occupancy is None else format_share(row.occupancy))
        if with_waves:
            cells.append(_count(row.waves))
            cells.append("-" if row.wave_efficiency is None else format_share(row.wave_efficiency))
        table.add_row(*cells)
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _spilled(row: "AuditRow") -> int | None:
    """Bytes spilt, stores and loads together."""
    stores, loads = row.resources.spill_store_bytes, row.resources.spill_load_bytes
    return None if stores is None or loads is None else stores + loads


def _limited(row: "AuditRow") -> str:
    """The limiter in a word, or what kind of trouble the remarks below the table explain."""
    if row.fits and row.limiter:
        return (
            row.limiter.replace("shared_memory", "shared")
            .replace("cta_slots", "slots")
            .replace("registers", "regs")
        )
    if row.fits is False:
        return "does not fit" if (row.reason or "").startswith("does not fit") else "does not run"
    if row.resources.timed_out:
        return "too slow"
    return "does not compile" if row.resources.error is not None else "unknown"


def _remarks(rows: "Sequence[AuditRow]") -> list[str]:
    """Below a table: the step up from the best row, cautions, and each compiler message once."""
    from wavewise.hardware import Launch
    from wavewise.occupancy import next_cta_words

    words: list[str] = []
    best = next((row for row in rows if row.rank == 1), None)
    if best is not None and best.next_cta is not None:
        found = best.resources
        launch = Launch(
            None, (found.threads_per_cta or 1, 1, 1), found.registers_per_thread, found.shared_memory_bytes
        )
        words.append(f"Next step of #1: {next_cta_words(best.next_cta, launch)}")
    words += dict.fromkeys(f"Note: {note}" for row in rows for note in row.notes)
    failed = [row.resources for row in rows if row.fits is None and row.resources.error]
    errors = dict.fromkeys(found.error for found in failed)
    slow = {found.error for found in failed if found.timed_out}
    words += [f"{'Too slow' if error in slow else 'Does not compile'}: {error}" for error in errors]
    reasons = dict.fromkeys(row.reason for row in rows if row.reason and row.reason not in errors)
    words += [f"{reason[0].upper()}{reason[1:]}" for reason in reasons]
    return words
