"""Which operating points belong to one sweep, and what their launches say about waves."""

from collections.abc import Iterable, Sequence

from wavewise.decode.contexts import same_context
from wavewise.findings import KernelRow, OperatingPoint

Key = tuple[str | None, str, float | str | None]


def contexts(points: Sequence[OperatingPoint]) -> list[float | str | None]:
    """What tells the points' contexts apart: a representative length, a label in words, or None."""
    known = sorted({p.context_length for p in points if p.context_length is not None})
    representative: dict[int, float] = {}
    for length in known:
        near = next((r for r in representative.values() if same_context(length, r)), float(length))
        representative[length] = near
    return [
        representative[p.context_length] if p.context_length is not None else p.context_label for p in points
    ]


def sweeps(points: Sequence[OperatingPoint]) -> list[tuple[OperatingPoint, ...]]:
    """Points that may be fitted together, the sweep with the most batch sizes (then clean steps) first.

    GPU, engine and context must be the same.

    Several devices of one GPU type run the same step under tensor parallelism; the lowest device that has a
    batch size speaks for it.
    """
    groups: dict[Key, dict[int, OperatingPoint]] = {}
    named = sorted(
        zip(points, contexts(points), strict=True), key=lambda pair: (pair[0].device, pair[0].batch_size)
    )
    for point, context in named:
        groups.setdefault((point.gpu, point.engine, context), {}).setdefault(point.batch_size, point)
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
