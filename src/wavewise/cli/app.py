"""Puts the commands together and maps errors to stderr and the exit status, in this one place.

Command modules import only typer, the standard library and `wavewise.errors` at module level; whatever does
the work is imported inside the command's function, so that `wavewise --help` stays instant.
"""

import importlib
import importlib.util
import sys
from typing import Annotated

import typer

from wavewise._version import __version__
from wavewise.errors import WavewiseError

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

app = typer.Typer(
    name="wavewise",
    help="Say where each millisecond of an LLM decode step goes, why, and which lever to pull next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wavewise {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Say where each millisecond of an LLM decode step goes, why, and which lever to pull next."""


def build() -> typer.Typer:
    """The application with every command that is there."""
    for name in COMMANDS:
        if importlib.util.find_spec(f"wavewise.cli.{name}") is not None:
            importlib.import_module(f"wavewise.cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the `wavewise` script."""
    try:
        build()(standalone_mode=True)
    except WavewiseError as error:
        print(f"wavewise: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
