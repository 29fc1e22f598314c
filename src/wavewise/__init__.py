"""wavewise: where each millisecond of an LLM decode step goes, why, and which lever to pull next.

    import wavewise
    findings = wavewise.analyze(["traces/"])

Names are loaded when first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from wavewise._version import __version__ as __version__

if TYPE_CHECKING:
    from wavewise.analysis import analyze as analyze
    from wavewise.findings import Findings as Findings

_HOMES = {
    "analyze": "wavewise.analysis",
    "Findings": "wavewise.findings",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'wavewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
