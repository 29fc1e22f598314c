"""Which operating points belong to one sweep, and what their launches say about waves."""

from collections.abc import Iterable, Sequence

from wavewise.findings import KernelRow, OperatingPoint

Key = tuple[str | None, str, int | None, str | None]


def group_key(point: OperatingPoint) -> Key:
    """GPU, engine and context: points that differ in one of them are never fitted together."""
    return point.gpu, point.engine, point.context_length, point.context_label


def sweeps(points: Sequence[OperatingPoint]) -> list[tuple[OperatingPoint, ...]]:
    """Points that may be fitted together, the sweep with the most batch sizes (then clean steps) first.

    Several devices of one GPU type run the same step under tensor parallelism; the lowest device that has a
    batch size speaks for it.
    """
    groups: dict[Key, dict[int, OperatingPoint]] = {}
    for point in sorted(points, key=lambda p: (p.device, p.batch_size)):
        groups.setdefault(group_key(point), {}).setdefault(point.batch_size, point)
    found = [tuple(group[size] for size in sorted(group)) for group in groups.values()]
    return sorted(found, key=lambda group: (-len(group), -sum(p.clean_steps for p in group)))


def family_waves(kernels: Iterable[KernelRow]) -> dict[str, dict[int, float]]:
    """Family -> batch size -> waves of the kernel with the most summed time there.

    Families whose dearest launch has no known residency at some size are left out.
    """
    dearest: dict[tuple[str, int], KernelRow] = {}
    for row in kernels:
        if row.batch_size is None:
            continue
        key = (row.family, row.batch_size)
        if key not in dearest or row.sum_us_per_step > dearest[key].sum_us_per_step:
            dearest[key] = row
    waves: dict[str, dict[int, float]] = {}
    unknown: set[str] = set()
    for (family, size), row in dearest.items():
        if row.waves is None:
            unknown.add(family)
        else:
            waves.setdefault(family, {})[size] = float(row.waves)
    return {family: sizes for family, sizes in waves.items() if family not in unknown}
