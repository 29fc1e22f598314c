"""The command line: one module per command, nothing heavy imported before a command runs."""

from wavewise.cli.app import main as main
