"""The measured rows as a table, smallest batch first. No torch here: a results file can be printed anywhere."""

from collections.abc import Iterable, Mapping
from typing import Any

_KERNELS = ("wavewise", "flashmla", "flashmla+schedule", "sglang_tiled", "baseline")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """One line per (heads, scopes, batch): microseconds of each kernel, and ours over the others and the floor.

    A kernel without a time (not there, or its answer was wrong) shows "-": no speed-up is told of it.
    """
    grouped: dict[tuple[int, tuple[int, ...], int], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        key = (row["heads"], tuple(row["scopes"]), row["batch"])
        best = grouped.setdefault(key, {})
        known = best.get(row["kernel"])
        if known is None or (row["median_us"] or 1e30) < (known["median_us"] or 1e30):
            best[row["kernel"]] = row
    header = (
        f"{'heads':>5} {'scopes':>9} {'batch':>5} {'wavewise':>9} {'splits':>6} {'FlashMLA':>9} {'speed-up':>8} "
        f"{'+schedule':>9} {'speed-up':>8} {'SGLang':>9} {'baseline':>9} {'floor':>6} {'x floor':>7}"
    )
    lines = [header]
    for (heads, scopes, batch), found in grouped.items():
        us = {name: found[name]["median_us"] if name in found else None for name in _KERNELS}
        ours, first = us["wavewise"], next(iter(found.values()))
        floor = first["floor_us"]

        def cell(value: float | None, width: int, digits: int = 1) -> str:
            return f"{'-':>{width}}" if value is None else f"{value:>{width},.{digits}f}"

        def ratio(other: float | None, mine: float | None = ours) -> float | None:
            return other / mine if other and mine else None

        splits = found["wavewise"].get("num_splits", "-") if "wavewise" in found else "-"
        lines.append(
            f"{heads:>5} {'+'.join(map(str, scopes)):>9} {batch:>5} {cell(ours, 9)} {splits:>6} "
            f"{cell(us['flashmla'], 9)} {cell(ratio(us['flashmla']), 8, 2)} "
            f"{cell(us['flashmla+schedule'], 9)} {cell(ratio(us['flashmla+schedule']), 8, 2)} "
            f"{cell(us['sglang_tiled'], 9)} {cell(us['baseline'], 9)} {cell(floor, 6)} "
            f"{cell(ours / floor if ours else None, 7)}"
        )
    return "\n".join(lines)
