"""Fallback kernels: Triton, SIMT or weight-only where a fused tensor-core kernel runs on other GPUs."""

import re
import tomllib
from functools import lru_cache
from importlib import resources

import msgspec

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.view import View


class Fallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel that stands in for a better one.

    Attributes:
        name: regular expression, searched in the kernel's name.
        families: the families it is looked for in.
        kind: "Triton", "SIMT" or "weight-only".
        replacement: the kernel that runs elsewhere.
        runs_on: compute capabilities that the replacement is built for.
        source: where that is documented.
        hardware: what the replacement needs of the GPU; no port helps where it is missing.
    """

    name: str
    families: tuple[str, ...]
    kind: str
    replacement: str
    runs_on: tuple[str, ...]
    source: str
    hardware: str | None = None


@lru_cache(maxsize=1)
def fallbacks() -> tuple[Fallback, ...]:
    """The packaged list."""
    text = resources.files("wavewise.levers").joinpath("fallbacks.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["fallback"], tuple[Fallback, ...])


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Recognises them and bounds the saving by their time; how fast a replacement is, a trace cannot say."""
    kernels = view.kernels_of(spec.families)
    found = [
        (kernel, fallback)
        for kernel in kernels
        if (fallback := _match(kernel.name, kernel.family)) is not None
    ]
    if not found:
        return nothing(f"no kernel at {view.where} is a known fallback")
    bound = sum(kernel.sum_us_per_step for kernel, _ in found)
    capability = view.gpu.compute_capability
    notes: list[str] = []
    for kernel, fallback in found:
        verdict = _verdict(fallback, capability)
        notes.append(
            f"{short_name(kernel.name)} ({kernel.sum_us_per_step:.1f} us, {fallback.kind}): {fallback.replacement} "
            f"{verdict}"
        )
    floors = _floors(view, {kernel.family for kernel, _ in found})
    above = "" if floors is None else f", less a roofline floor of {floors:.1f} us"
    return unknown(
        "the replacement's time on this GPU, measured"
        + ("" if floors is not None else "; the model's shape would give a roofline floor"),
        basis=f"at most {max(0.0, bound - (floors or 0.0)):.1f} us: all of the fallback kernels, "
        + " + ".join(f"{kernel.sum_us_per_step:.1f}" for kernel, _ in found)
        + above,
        evidence="; ".join(notes),
        upper_bound_us=max(0.0, bound - (floors or 0.0)),
    )


def _verdict(fallback: Fallback, capability: str | None) -> str:
    """What stands between this GPU and the replacement."""
    built = ", ".join(fallback.runs_on)
    if capability is None:
        return f"runs on {built}"
    if capability in fallback.runs_on:
        return "is built for this GPU: a matter of configuration"
    if fallback.hardware is not None:
        return f"needs {fallback.hardware}, which {capability} does not have"
    return f"is built for {built}, not for {capability}: a port"


def _floors(view: View, families: set[str]) -> float | None:
    """Roofline floors of the families together, us; None where one is not known."""
    ceilings = [view.ceiling(family, "kernel_sum") for family in sorted(families)]
    floors = [None if c is None else c.floor_ms for c in ceilings]
    return None if None in floors else sum(f * 1e3 for f in floors if f is not None)


def _match(name: str, family: str) -> Fallback | None:
    return next((f for f in fallbacks() if family in f.families and re.search(f.name, name)), None)
