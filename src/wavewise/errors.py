"""The errors a user can meet, and the exit status each one maps to.

`wavewise.cli` is the only place that turns one of these into a line on stderr and an exit status.
A message says which input, what is wrong with it, and what to do.
"""


class WavewiseError(Exception):
    """Base of every error that is the user's to see.

    Attributes:
        exit_status: what the command line returns for it.
    """

    exit_status: int = 2


class UsageError(WavewiseError):
    """The arguments contradict each other or name something that does not exist."""


class InputError(WavewiseError):
    """An input cannot be read, or is not what it should be."""


class NothingToAnalyzeError(WavewiseError):
    """The input is sound, but holds nothing that can be analysed (no GPU activity, say)."""

    exit_status = 3


class MissingExtraError(WavewiseError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class RegressionFound(WavewiseError):  # noqa: N818 - a verdict, not a fault
    """A stated limit was exceeded beyond noise."""

    exit_status = 1
