"""One side of a diff: findings that were written before, or traces that are analysed now."""

import mmap
import re
from collections.abc import Callable
from pathlib import Path

from wavewise.analysis import Settings, analyze
from wavewise.errors import InputError, WavewiseError
from wavewise.findings import Findings, load_findings
from wavewise.trace import Progress

_FINDINGS_FILE = "findings.json"
"""What `analyze --out` calls the findings in the folder that it writes."""

_STATES_SCHEMA = re.compile(rb'"schema"\s*:\s*"wavewise\.')


def load(
    path: Path,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    unreadable: Callable[[Path, WavewiseError], None] | None = None,
) -> Findings:
    """Findings from a findings file, a folder that `analyze --out` wrote, a trace or a folder of traces.

    Raises:
        InputError: nothing there, unreadable, or written by a newer wavewise.
        NothingToAnalyzeError: traces without GPU activity.
    """
    file = path / _FINDINGS_FILE if (path / _FINDINGS_FILE).is_file() else path
    if holds_findings(file):
        return load_findings(file)
    return analyze([path], settings=settings, progress=progress, unreadable=unreadable)


def holds_findings(file: Path) -> bool:
    """Whether a file is one of wavewise's own JSON files rather than a trace."""
    if not file.is_file() or file.suffix != ".json":
        return False
    try:
        with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _STATES_SCHEMA.search(data) is not None
    except ValueError:
        return False  # an empty file cannot be mapped: the trace reader says what it is
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
