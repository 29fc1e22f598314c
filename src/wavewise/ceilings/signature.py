"""What telemetry says of the bottleneck: a few comparisons, each with its reason in `thresholds.toml`."""

import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from statistics import median

import msgspec

from wavewise.ceilings.telemetry import TelemetrySample
from wavewise.errors import InputError, UsageError
from wavewise.findings import Signature
from wavewise.units import format_share

COMPUTE = "compute-bound"
BANDWIDTH = "bandwidth-bound"
LATENCY = "latency-bound at low occupancy"
HOST = "host-bound"
IDLE = "idle"
MIXED = "mixed"

_UNDER_LOAD = 0.05
"""Samples with less SM activity lie before or after the load, and are left out."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The comparisons' limits, as shares; see thresholds.toml for the reasoning."""

    idle_below: float
    host_bound_below: float
    bandwidth_bound_from: float
    bandwidth_free_below: float
    compute_bound_power_from: float
    waiting_power_below: float
    compute_bound_tensor_from: float
    low_occupancy_below: float

    @staticmethod
    def load(path: Path | None = None) -> "Thresholds":
        """The packaged thresholds, or those of a file.

        Raises:
            InputError: the file cannot be read.
            UsageError: it is not a full set of thresholds.
        """
        where = "thresholds" if path is None else f"thresholds {path}"
        try:
            source = resources.files("wavewise.ceilings") / "thresholds.toml" if path is None else path
            return msgspec.convert(tomllib.loads(source.read_text(encoding="utf-8")), Thresholds)
        except OSError as error:
            raise InputError(f"{where}: cannot be read ({error})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{where}: {error}; see docs/models.md") from error


def signature(
    samples: Sequence[TelemetrySample],
    *,
    power_limit_w: float | None = None,
    thresholds: Thresholds | None = None,
) -> Signature:
    """The bottleneck that the medians of the samples under load point to.

    Args:
        samples: of one or more GPUs; those that are idle throughout are left out if another is not.
        power_limit_w: the board's limit, where the samples do not hold it (`dmon` does not).
        thresholds: see thresholds.toml.
    """
    limits = thresholds or Thresholds.load()
    used = _loaded_gpus(samples, limits)
    under_load = [s for s in used if s.sm is not None and s.sm >= _UNDER_LOAD]
    chosen = under_load or used
    sm = _median(chosen, lambda s: s.sm)
    dram = _median(chosen, lambda s: s.dram)
    memory = dram if dram is not None else _median(chosen, lambda s: s.memory)
    power = _median(chosen, lambda s: _power_share(s, power_limit_w))
    verdict, because, reason = _judge(chosen, sm, memory, power, limits)
    return Signature(
        verdict=verdict,
        sm_activity=sm,
        memory_activity=memory,
        power_share=power,
        kind="nvml" if dram is None else "nvml and counters",
        samples=len(chosen),
        samples_left_out=len(samples) - len(chosen),
        because=tuple(because),
        sentence=_sentence(verdict, sm, memory, power, reason),
        reason=reason,
    )


def _loaded_gpus(samples: Sequence[TelemetrySample], limits: Thresholds) -> list[TelemetrySample]:
    """The samples of GPUs that do something; all of them where none does."""
    by_gpu: dict[str, list[TelemetrySample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.gpu, []).append(sample)
    loaded = [
        sample
        for group in by_gpu.values()
        if max((s.sm for s in group if s.sm is not None), default=0.0) >= limits.idle_below
        for sample in group
    ]
    return loaded or list(samples)


def _power_share(sample: TelemetrySample, limit_w: float | None) -> float | None:
    limit = sample.power_limit_w or limit_w
    return sample.power_w / limit if sample.power_w is not None and limit else None


def _median(
    samples: Sequence[TelemetrySample], figure: Callable[[TelemetrySample], float | None]
) -> float | None:
    values = [value for sample in samples if (value := figure(sample)) is not None]
    return median(values) if values else None


def _judge(
    samples: Sequence[TelemetrySample],
    sm: float | None,
    memory: float | None,
    power: float | None,
    limits: Thresholds,
) -> tuple[str | None, list[str], str | None]:
    """(verdict, the comparisons that led to it, why there is no verdict)."""
    if sm is None:
        return None, [], "SM activity was not measured"
    if sm < limits.idle_below:
        return IDLE, [_said("SM activity", sm, "<", limits.idle_below)], None
    if sm < limits.host_bound_below:
        return HOST, [_said("SM activity", sm, "<", limits.host_bound_below)], None
    because = [_said("SM activity", sm, ">=", limits.host_bound_below)]
    if memory is None:
        return None, because, "memory activity was not measured"
    if memory >= limits.bandwidth_bound_from:
        return (
            BANDWIDTH,
            [*because, _said("memory activity", memory, ">=", limits.bandwidth_bound_from)],
            None,
        )
    tensor = _median(samples, lambda s: s.tensor)
    if tensor is not None and tensor >= limits.compute_bound_tensor_from:
        return (
            COMPUTE,
            [*because, _said("tensor activity", tensor, ">=", limits.compute_bound_tensor_from)],
            None,
        )
    if power is None:
        return None, because, "power over its limit was not measured; give the limit (dmon does not hold it)"
    because.append(_said("memory activity", memory, "<", limits.bandwidth_bound_from))
    if power >= limits.compute_bound_power_from:
        return COMPUTE, [*because, _said("power", power, ">=", limits.compute_bound_power_from)], None
    if memory < limits.bandwidth_free_below and power < limits.waiting_power_below:
        because[-1] = _said("memory activity", memory, "<", limits.bandwidth_free_below)
        because.append(_said("power", power, "<", limits.waiting_power_below))
        return _waiting(samples, because, limits)
    because.append(_said("power", power, "<", limits.compute_bound_power_from))
    return MIXED, because, None


def _waiting(
    samples: Sequence[TelemetrySample], because: list[str], limits: Thresholds
) -> tuple[str | None, list[str], str | None]:
    """SMs hold warps, and neither memory nor arithmetic is busy: few warps, unless counters say otherwise."""
    occupancy = _median(samples, lambda s: s.occupancy)
    active = _median(samples, lambda s: s.sm_active)
    if active is not None and active < limits.host_bound_below:
        because.append(f"only {format_share(active)} of the SMs' cycles hold a warp: grids leave SMs empty")
    if occupancy is not None and occupancy >= limits.low_occupancy_below:
        because.append(_said("occupancy", occupancy, ">=", limits.low_occupancy_below))
        return MIXED, because, None
    if occupancy is not None:
        because.append(_said("occupancy", occupancy, "<", limits.low_occupancy_below))
    return LATENCY, because, None


def _said(what: str, value: float, relation: str, limit: float) -> str:
    return f"{what} {format_share(value)} {relation} {format_share(limit)}"


def _sentence(
    verdict: str | None, sm: float | None, memory: float | None, power: float | None, reason: str | None
) -> str:
    figures = ", ".join(
        f"{name} {format_share(value)}"
        for name, value in (("SM activity", sm), ("memory", memory), ("power over limit", power))
        if value is not None
    )
    if verdict is None:
        return f"Telemetry allows no verdict: {reason}{f' ({figures})' if figures else ''}."
    meaning = {
        COMPUTE: "arithmetic takes the time",
        BANDWIDTH: "reading memory takes the time",
        LATENCY: "warps are resident but wait, too few of them to hide the waiting",
        HOST: "the GPU waits for the host",
        IDLE: "next to nothing runs",
        MIXED: "no single limit stands out",
    }[verdict]
    return f"Telemetry says {verdict}: {meaning} ({figures})."
