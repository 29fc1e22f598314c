"""One launch, one parameter varied: where residency steps, and which resource makes it step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wavewise.errors import UsageError
from wavewise.hardware import GpuSpec, Launch
from wavewise.occupancy.clusters import impossible_cluster
from wavewise.occupancy.residency import Residency, residency
from wavewise.occupancy.waves import Waves, waves

PARAMETERS: Mapping[str, str] = {
    "threads": "threads",
    "registers": "registers per thread",
    "shared-memory": "bytes of shared memory",
    "grid": "CTAs",
}
"""What can be swept, with the unit of its values."""

_FROM_ONE = ("threads", "grid")
"""Parameters of which a launch has at least one."""

MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The launch with the swept parameter at `value`; waves are None where nothing is resident."""

    value: int
    residency: Residency
    waves: Waves | None


def occupancy_of(gpu: GpuSpec, launch: Launch) -> tuple[Residency, Waves | None]:
    """Residency and, where the grid and the SM count are known and something fits, waves."""
    result = residency(gpu, launch)
    if launch.ctas is None or gpu.sm_count is None or not result.ctas_per_sm or launch.ctas < 1:
        return result, None
    return result, waves(launch.ctas, gpu.sm_count, result.ctas_per_sm, launch.cluster_size)


def sweep(gpu: GpuSpec, launch: Launch, parameter: str, values: Sequence[int]) -> tuple[SweepPoint, ...]:
    """Residency and waves of `launch` for each value of one of PARAMETERS.

    Raises:
        UsageError: unknown parameter, or a value that no launch can have.
    """
    if parameter in _FROM_ONE and values and min(values) < 1:
        raise UsageError(f"{parameter} {min(values)}: at least 1")
    points: list[SweepPoint] = []
    for value in values:
        if parameter == "grid" and (wrong := impossible_cluster(launch.cluster_size, value, gpu)):
            raise UsageError(wrong)
        match parameter:
            case "threads":
                changed = replace(launch, block=(value, 1, 1))
            case "registers":
                changed = replace(launch, registers_per_thread=value)
            case "shared-memory":
                changed = replace(launch, shared_memory_bytes=value)
            case "grid":
                changed = replace(launch, grid=(value, 1, 1))
            case _:
                raise UsageError(f"cannot sweep {parameter!r}; one of {', '.join(PARAMETERS)}")
        points.append(SweepPoint(value, *occupancy_of(gpu, changed)))
    return tuple(points)


def numbers_of(text: str, what: str) -> list[int]:
    """Whole numbers from "1,2,4", "1:128" (both ends included), "0:100000:1024", or a mixture.

    Raises:
        UsageError: no such list, one that is empty, holds a negative number or more than MOST_VALUES.
    """
    found: list[int] = []
    for part in text.split(","):
        pieces = part.strip().replace("_", "").split(":")
        try:
            whole = [int(piece) for piece in pieces]
        except ValueError:
            whole = []
        if not 1 <= len(whole) <= 3:
            raise UsageError(f"{what} {text!r}: write a list (1,2,4) or start:end[:step] (1:128)")
        if min(whole) < 0:
            raise UsageError(f"{what} {text!r}: negative")
        start, end, step = (*whole, *(whole[0], 1)[len(whole) - 1 :])[:3]
        if step < 1 or end < start:
            raise UsageError(f"{what} {text!r}: the range {part.strip()!r} is empty")
        if len(found) + (end - start) // step + 1 > MOST_VALUES:
            raise UsageError(f"{what} {text!r}: more than {MOST_VALUES:,} values")
        found.extend(range(start, end + 1, step))
    return found
