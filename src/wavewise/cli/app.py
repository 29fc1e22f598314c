"""Puts the commands together and maps errors to stderr and the exit status, in this one place.

Command modules import only typer, the standard library and `wavewise.errors` at module level; whatever does
the work is imported inside the command's function, so that `wavewise --help` stays instant.
"""

import errno
import importlib
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from wavewise._version import __version__
from wavewise.errors import UsageError, WavewiseError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_ArgumentError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]  # type: ignore[assignment]
"""What the option parser raises for anything wrong on the command line; typer exports only this one kind."""

COMMANDS = (
    "analyze",
    "occupancy",
    "waves",
    "audit",
    "scale",
    "levers",
    "ledger",
    "sweep",
    "plan_attention",
    "bench",
    "record",
    "doctor",
    "diff",
    "export",
    "trim",
    "mcp",
)
"""Modules of this package that each bring `register(app: typer.Typer) -> None`, in the order of the help."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wavewise {__version__}")
        raise typer.Exit()


_INTERRUPTED = 130
"""128 + SIGINT, as shells report a program that Ctrl-C ended."""


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Say where each millisecond of an LLM decode step goes, why, and which lever to pull next."""


def build() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="wavewise",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in COMMANDS:
        importlib.import_module(f"wavewise.cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the `wavewise` script: every error becomes one line on stderr and an exit status."""
    _make_streams_usable()
    try:
        _refuse_empty(sys.argv[1:])
        status = build()(standalone_mode=False)
        sys.stdout.flush()  # a full disk or a reader that has gone shows here, not at exit with a traceback
    except WavewiseError as error:
        _end(str(error), error.exit_status)
    except _ArgumentError as error:
        # Without any argument the help has been printed, and the parser has no message of its own.
        message = error.format_message().rstrip(".") or "nothing to do without arguments"
        command = error.ctx.command_path if error.ctx else "wavewise"
        _end(f"{message}; see {command} --help", UsageError.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        _end("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (head, less).
        _drop_output()
        sys.exit(141)
    except Exception as error:
        if os.environ.get("WAVEWISE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            # Files are written by functions that name them; what is left is the stream that we print to.
            _drop_output()
            _end(f"standard output cannot be written ({error.strerror})", UsageError.exit_status)
        if isinstance(error, OSError) and error.filename is not None:
            _end(f"{error.filename}: {error.strerror}", UsageError.exit_status)
        _end(
            f"internal error ({type(error).__name__}: {error}); please report it with the traceback that "
            "WAVEWISE_DEBUG=1 shows",
            70,
        )
    if status == _INTERRUPTED:  # some releases of Typer make a status of Ctrl-C
        _end("interrupted", _INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _refuse_empty(words: list[str]) -> None:
    """Refuses an argument without a character, which as a path would mean the current folder.

    It is what a shell makes of a quoted variable that is not set, and no command has a use for it.
    """
    for before, word in zip(["", *words], words, strict=False):
        named = word[:-1] if word.startswith("--") and word.endswith("=") else before if not word else None
        if named is None:
            continue
        what = named if named.startswith("-") else "an argument"
        raise UsageError(f"{what} is empty: is a variable of your shell not set? Name a file or a value")


def _make_streams_usable() -> None:
    """Makes every print safe, wherever the process was started.

    A stream that is closed (`>&-`) becomes one that goes nowhere. What standard output cannot encode (bars under
    LC_ALL=POSIX, a file name that is not UTF-8) becomes "?"; standard error does so by itself.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Sends what is still buffered nowhere; Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(message: str, status: int) -> NoReturn:
    print(f"wavewise: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)
