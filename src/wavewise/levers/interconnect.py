"""The interconnect that a GPU's form factor implies."""

import re
import tomllib
from functools import lru_cache
from importlib import resources

from wavewise.levers.known import Known


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[re.Pattern[str], str | None], ...]:
    text = resources.files("wavewise.levers").joinpath("interconnects.toml").read_text(encoding="utf-8")
    return tuple(
        (re.compile(rule["gpu"], re.IGNORECASE), None if rule["link"] == "none" else rule["link"])
        for rule in tomllib.loads(text)["interconnect"]
    )


def interconnect(gpu: str | None, known: Known) -> str | None:
    """What was stated, else what the product implies ("pcie", "nvlink", "xgmi"), else None."""
    if known.interconnect is not None:
        return known.interconnect.lower()
    if gpu is None:
        return None
    return next((link for pattern, link in _rules() if pattern.search(gpu)), None)
