"""The GPU catalogue: packaged TOML with a source for each figure; a user's file adds and overrides."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import msgspec

from wavewise.errors import InputError, UsageError
from wavewise.hardware.spec import GpuSpec

_SPEC_FIELDS = frozenset(f.name for f in fields(GpuSpec))
_GPU_KEYS = _SPEC_FIELDS - {"compute_capability"} | {"architecture"}
_ARCHITECTURE_KEYS = _SPEC_FIELDS - {"id", "name", "aliases", "sm_count"} | {"label", "source"}
_TOP_KEYS = frozenset({"architectures", "gpus", "references"})
_FIGURES = _SPEC_FIELDS - {
    "id",
    "name",
    "vendor",
    "aliases",
    "features",
    "sources",
    "notes",
    "compute_capability",
}
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All known GPUs, and the figures that belong to an architecture rather than to a product."""

    specs: tuple[GpuSpec, ...]
    architectures: Mapping[str, Mapping[str, Any]]

    def __iter__(self) -> Iterator[GpuSpec]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def find(self, name: str) -> GpuSpec:
        """The GPU that a user names by id or by the name its driver prints.

        Raises:
            UsageError: no such GPU, or several; the message names the candidates.
        """
        wanted = _normal(name)
        for spec in self.specs:
            if wanted in _names(spec):
                return spec
        longer = [spec.id for spec in self.specs if wanted and spec.id.startswith(wanted + "-")]
        if longer:
            raise UsageError(f"GPU {name!r} is ambiguous: name one of {', '.join(longer)}")
        by_name = {known: spec.id for spec in self.specs for known in _names(spec)}
        near = difflib.get_close_matches(wanted, by_name, n=5, cutoff=0.5)
        nearest = list(dict.fromkeys(by_name[n] for n in near))[:3]
        hint = (
            f"nearest: {', '.join(nearest)}" if nearest else f"known: {', '.join(s.id for s in self.specs)}"
        )
        raise UsageError(f"unknown GPU {name!r}; {hint}")

    def match(
        self,
        device_name: str | None,
        compute_capability: str | None,
        sm_count: int | None,
        memory_bytes: int | None = None,
    ) -> GpuSpec | None:
        """The entry of a device that a trace describes, or None where that is not certain.

        The driver's name decides (without the maker's prefix and trade mark signs); capability and SM count
        must not contradict it, so that a MIG slice or a cut-down part is no match. Memory, where given,
        separates entries that share a name.
        """
        if not device_name:
            return None
        wanted = _normal(device_name)
        found = [spec for spec in self.specs if wanted in _names(spec)]
        if compute_capability is not None:
            found = [s for s in found if s.compute_capability in (None, compute_capability)]
        if sm_count is not None:
            found = [s for s in found if s.sm_count in (None, sm_count)]
        if len(found) > 1 and memory_bytes is not None:
            found = [s for s in found if s.memory_bytes and abs(memory_bytes / s.memory_bytes - 1) < 0.12]
        return found[0] if len(found) == 1 else None

    def from_figures(
        self,
        *,
        name: str | None = None,
        compute_capability: str | None = None,
        sm_count: int | None = None,
        warp_size: int | None = None,
        max_threads_per_cta: int | None = None,
        max_threads_per_sm: int | None = None,
        registers_per_sm: int | None = None,
        shared_memory_per_sm: int | None = None,
        shared_memory_per_cta: int | None = None,
        shared_memory_per_cta_optin: int | None = None,
        memory_bytes: int | None = None,
    ) -> GpuSpec:
        """A GPU that is not in the catalogue, from a trace's own `deviceProperties`.

        What a trace does not record (granularities, CTA slots) comes from the architecture of that exact
        capability, if it is known; else it stays None, and so does the residency.
        A warp of 64 is AMD's, whatever the capability reads: gfx90a calls itself "9.0" as well.
        """
        amd = warp_size == 64
        architecture: Mapping[str, Any] = self.architectures.get(compute_capability or "", _EMPTY)
        if architecture.get("vendor") != ("amd" if amd else "nvidia"):
            architecture = _EMPTY
        recorded = {
            "sm_count": sm_count,
            "warp_size": warp_size,
            "max_threads_per_cta": max_threads_per_cta,
            "max_threads_per_sm": max_threads_per_sm,
            "registers_per_sm": registers_per_sm,
            "shared_memory_per_sm": shared_memory_per_sm,
            "shared_memory_per_cta_default": shared_memory_per_cta,
            "shared_memory_per_cta": shared_memory_per_cta_optin,
            "memory_bytes": memory_bytes,
        }
        figures = {key: value for key, value in recorded.items() if value is not None and value > 0}
        merged: dict[str, Any] = {**architecture, **figures}
        if "max_warps_per_sm" not in merged or "max_threads_per_sm" in figures:
            threads, warp = merged.get("max_threads_per_sm"), merged.get("warp_size")
            merged["max_warps_per_sm"] = threads // warp if threads and warp else None
        merged |= {
            "id": "trace",
            "name": name or "unnamed GPU",
            "vendor": "amd" if amd else architecture.get("vendor", "unknown"),
            "compute_capability": compute_capability,
            "sources": {**architecture.get("sources", _EMPTY)}
            | dict.fromkeys(figures, "the trace's own deviceProperties"),
        }
        return _convert(merged, "the trace's figures")


def catalogue(extra: Path | None = None) -> Catalogue:
    """The packaged catalogue, with the entries of `extra` added or overridden key by key.

    Raises:
        InputError: `extra` cannot be read or is no TOML.
        UsageError: it holds a key or a value that means nothing here.
    """
    if extra is None:
        return _packaged()
    return _build(_merge(_packaged_tables(), _read(extra), str(extra)), str(extra))


def _normal(name: str) -> str:
    """Lower case, without maker, trade mark signs and doubled separators: "NVIDIA H200" -> "h200"."""
    lowered = re.sub(r"\((r|tm|c)\)|[®™]", " ", name.lower())
    lowered = re.sub(r"[\s_/-]+", "-", lowered).strip("-")
    return re.sub(r"^((nvidia|amd|tesla|geforce|instinct|quadro)-)+", "", lowered)


def _names(spec: GpuSpec) -> frozenset[str]:
    return frozenset(_normal(name) for name in (spec.id, spec.name, *spec.aliases))


@lru_cache(maxsize=1)
def _packaged() -> Catalogue:
    return _build(_packaged_tables(), "the packaged catalogue")


def _packaged_tables() -> dict[str, Any]:
    here = resources.files("wavewise.hardware")
    tables: dict[str, Any] = {}
    for file in ("architectures.toml", "gpus.toml"):
        tables = _overlay(tables, tomllib.loads(here.joinpath(file).read_text(encoding="utf-8")))
    return tables


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"GPU catalogue {path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"GPU catalogue {path}: not TOML ({error})") from error


def _merge(base: dict[str, Any], extra: dict[str, Any], where: str) -> dict[str, Any]:
    """`extra` over `base`: same architecture or same id overrides the keys it names, anything else adds."""
    if unknown := set(extra) - _TOP_KEYS:
        raise UsageError(
            f"{where}: unknown table {sorted(unknown)[0]!r}; a catalogue holds architectures and gpus"
        )
    for key, kind in (("architectures", dict), ("gpus", list), ("references", dict)):
        if not isinstance(extra.get(key, kind()), kind):
            raise UsageError(f"{where}: {key!r} has the wrong form; see docs/occupancy.md")
    architectures = dict(base["architectures"])
    for capability, table in extra.get("architectures", {}).items():
        architectures[capability] = _overlay(architectures.get(capability, _EMPTY), _sourced(table, where))
    gpus = {entry["id"]: entry for entry in base["gpus"]}
    for entry in extra.get("gpus", []):
        named = cast("dict[str, Any]", entry) if isinstance(entry, dict) else _EMPTY
        if not isinstance(named.get("id"), str):
            raise UsageError(f"{where}: every [[gpus]] entry needs an id")
        gpus[named["id"]] = _overlay(gpus.get(named["id"], _EMPTY), _sourced(named, where))
    references = {**base.get("references", _EMPTY), **extra.get("references", _EMPTY)}
    return {"architectures": architectures, "gpus": list(gpus.values()), "references": references}


def _sourced(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A user's entry with its file as the source of every figure for which it names none."""
    own = dict.fromkeys((key for key in table if key in _FIGURES), where)
    return {**table, "sources": {**own, **table.get("sources", _EMPTY)}}


def _cited(table: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """The table with reference names ("guide; cccl") written out, a common `source` spread over its figures."""
    named: dict[str, str] = {}
    if "source" in table:
        named = dict.fromkeys((key for key in table if key in _FIGURES), str(table["source"]))
    named |= table.get("sources", _EMPTY)
    spelt = {
        key: "; ".join(references.get(part.strip(), part.strip()) for part in text.split(";"))
        for key, text in named.items()
    }
    return {key: value for key, value in table.items() if key not in ("source", "label")} | {"sources": spelt}


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, tables (rates, sources) key by key."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = {**cast("Mapping[str, Any]", old), **cast("Mapping[str, Any]", value)}
        merged[key] = value
    return merged


def _build(tables: dict[str, Any], where: str) -> Catalogue:
    references: Mapping[str, str] = tables.get("references", _EMPTY)
    architectures: dict[str, Mapping[str, Any]] = {}
    for capability, table in tables["architectures"].items():
        _only(table, _ARCHITECTURE_KEYS, f"{where}: architecture {capability!r}")
        architectures[capability] = _cited(table, references)
    specs: list[GpuSpec] = []
    for entry in tables["gpus"]:
        place = f"{where}: GPU {entry.get('id')!r}"
        _only(entry, _GPU_KEYS, place)
        architecture = _EMPTY
        if "architecture" in entry:
            if entry["architecture"] not in architectures:
                raise UsageError(f"{place}: architecture {entry['architecture']!r} is not described")
            architecture = architectures[entry["architecture"]]
        figures = _overlay(architecture, _cited(entry, references))
        figures["features"] = [*architecture.get("features", ()), *entry.get("features", ())]
        figures["compute_capability"] = figures.pop("architecture", None)
        specs.append(_convert(figures, place))
    return Catalogue(tuple(specs), MappingProxyType(architectures))


def _only(table: Mapping[str, Any], allowed: frozenset[str], place: str) -> None:
    if unknown := sorted(set(table) - allowed):
        near = difflib.get_close_matches(unknown[0], allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{place}: unknown key {unknown[0]!r}{hint}")


def _convert(figures: dict[str, Any], place: str) -> GpuSpec:
    for key, value in figures.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
            raise UsageError(f"{place}: {key} is negative")
    try:
        return msgspec.convert(figures, GpuSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {error}") from error
