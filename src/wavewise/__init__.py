"""wavewise: where each millisecond of an LLM decode step goes, why, and which lever to pull next.

    import wavewise
    findings = wavewise.analyze(["traces/"])
    frames = wavewise.tables(findings)

Names are loaded when first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from wavewise._version import __version__ as __version__

if TYPE_CHECKING:
    from wavewise.analysis import Settings as Settings
    from wavewise.analysis import analyze as analyze
    from wavewise.findings import Findings as Findings
    from wavewise.findings import load_findings as load_findings
    from wavewise.report.export import tables as tables

_HOMES = {
    "Findings": "wavewise.findings",
    "Settings": "wavewise.analysis",
    "analyze": "wavewise.analysis",
    "load_findings": "wavewise.findings",
    "tables": "wavewise.report.export",
}

_ROOMS = ("attention", "audit")
"""Rooms that people use as `wavewise.audit(...)` without importing them by name."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"wavewise.{name}")
    raise AttributeError(f"module 'wavewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
