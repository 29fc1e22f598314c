"""The setting that ledger entries are matched with: platform, model, engine, version, today."""

import datetime as dt
import re
from dataclasses import dataclass, field

from wavewise.findings import GpuRow
from wavewise.levers.interconnect import interconnect
from wavewise.levers.known import Known
from wavewise.levers.ledger.entry import Platform

HERE, ELSEWHERE, EXPIRED = "here", "elsewhere", "expired"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a lever would be pulled. None: not known."""

    gpu: str | None = None
    gpu_id: str | None = None
    compute_capability: str | None = None
    interconnect: str | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    today: dt.date = field(default_factory=dt.date.today)

    @classmethod
    def of(cls, gpu: GpuRow, engine: str, known: Known) -> "Setting":
        """The setting of a trace, with what its owner knows besides."""
        return cls(
            gpu=gpu.name,
            gpu_id=gpu.spec,
            compute_capability=gpu.compute_capability,
            interconnect=interconnect(gpu.name, known),
            model=known.model,
            engine=None if engine == "unknown" else engine,
            engine_version=known.engine_version,
        )

    def holds(self, platform: Platform) -> tuple[str, str]:
        """Whether a statement holds here: ("here" | "elsewhere" | "expired", why).

        A statement about a GPU never holds where the GPU is unknown or another; an attribute that one side
        does not state does not decide, and is named.
        """
        differs = self._difference(platform)
        if differs is not None:
            return ELSEWHERE, differs
        expired = self._expiry(platform)
        if expired is not None:
            return EXPIRED, expired
        open_attributes = [
            name
            for name in ("interconnect", "model", "engine")
            if getattr(platform, name) is not None and getattr(self, name) is None
        ]
        if open_attributes:
            return HERE, f"GPU matches; {', '.join(open_attributes)} of this trace not known"
        return HERE, "platform, model and engine match as far as the entry states them"

    def _difference(self, platform: Platform) -> str | None:
        if platform.gpu is not None:
            if self.gpu is None and self.gpu_id is None:
                return f"holds for {platform.gpu}; the GPU here is not known"
            if not self._same_gpu(platform.gpu):
                return f"holds for {platform.gpu}, not for {self.gpu or self.gpu_id}"
        for name in ("compute_capability", "interconnect", "engine"):
            stated, here = getattr(platform, name), getattr(self, name)
            if stated is not None and here is not None and stated.lower() != here.lower():
                return f"holds for {name.replace('_', ' ')} {stated}, not {here}"
        if (
            platform.model is not None
            and self.model is not None
            and not _same_model(platform.model, self.model)
        ):
            return f"holds for {platform.model}, not for {self.model}"
        return None

    def _same_gpu(self, stated: str) -> bool:
        wanted = _words(stated)
        return any(_contains(_words(name), wanted) for name in (self.gpu, self.gpu_id) if name)

    def _expiry(self, platform: Platform) -> str | None:
        if platform.expires is not None and self.today >= platform.expires:
            return f"expired on {platform.expires.isoformat()}"
        here, reopens = self.engine_version, platform.reopens_at
        if here is not None and reopens is not None and version_key(here) >= version_key(reopens):
            return f"reopened by {platform.engine or 'engine'} {reopens} (here {here})"
        return None


def version_key(version: str) -> tuple[int, ...]:
    """The release numbers of a version ("0.26.0rc1" -> (0, 26, 0)), trailing zeros dropped."""
    release = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    numbers = [int(part) for part in release.group(1).split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _words(name: str) -> list[str]:
    return [w for w in re.split(r"[^a-z0-9]+", name.lower()) if w and w not in ("nvidia", "amd", "geforce")]


def _contains(name: list[str], wanted: list[str]) -> bool:
    """Whether the words of `wanted` stand in `name`, in order and together."""
    return any(name[i : i + len(wanted)] == wanted for i in range(len(name) - len(wanted) + 1))


def _same_model(one: str, other: str) -> bool:
    a, b = _words(one), _words(other)
    return a[: len(b)] == b or b[: len(a)] == a or _contains(a, b) or _contains(b, a)
