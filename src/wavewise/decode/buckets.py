"""The captured batch size behind a replay, learned from the grids of its row-wise kernels.

Kernels that work row by row (norms, quantisation, embedding, cache stores) launch one CTA, or one grid row, per
token of the *captured* batch. So the captured size is the grid extent that most kernels of a replay share, once
extents that mean something else (1, the SM count of persistent kernels) are set aside.
"""

import polars as pl

_SUPPORT = 2
"""Distinct launches that must share an extent before it counts as evidence: one alone may be a coincidence."""

_LEAD = 1.5
"""Without a known batch size: how far the best extent must lead the next before it is believed."""


_SHARE = 0.15
"""Without a known batch size: the share of distinct launches that must have the extent."""


def extents(shapes: pl.DataFrame) -> tuple[dict[int, int], int]:
    """Grid extent -> distinct (name, grid) launches that have it in some dimension; and how many there are."""
    kernels = shapes.filter(pl.col("grid_x").is_not_null()).unique(["name", "grid_x", "grid_y", "grid_z"])
    counts: dict[int, int] = {}
    for row in kernels.select("grid_x", "grid_y", "grid_z").iter_rows():
        for extent in set(row):
            counts[extent] = counts.get(extent, 0) + 1
    return counts, kernels.height


def bucket_of(
    shapes: pl.DataFrame, batch_size: int | None, tokens: int | None, sm_count: int | None
) -> int | None:
    """The captured batch size of a replay, None where the grids do not tell.

    Args:
        shapes: the replay's operations with name, grid_x, grid_y, grid_z.
        batch_size: decoding requests, None when unknown.
        tokens: tokens that they decode in this step (more than batch_size with speculative decoding).
        sm_count: to set persistent kernels aside.
    """
    counts, distinct = extents(shapes)
    if not counts:
        return None
    if batch_size is None:
        return _without_batch(counts, distinct, sm_count)
    per_request = 1
    if tokens and batch_size and tokens > batch_size and tokens % batch_size == 0:
        per_request = tokens // batch_size
    best: tuple[int, int] | None = None
    for factor in sorted({per_request, 1}, reverse=True):
        rows = batch_size * factor
        # Captured sizes are at most a power of two apart; the constant covers the coarse steps of small sizes.
        # Persistent kernels launch one CTA per SM, whatever the batch.
        fits = {
            e: c
            for e, c in counts.items()
            if rows <= e <= 2 * rows + 8 * factor and e % factor == 0 and (e != sm_count or e == rows)
        }
        if not fits:
            continue
        ranked = sorted(fits, key=lambda e: (-fits[e], e))
        extent = ranked[0]
        tied = len(ranked) > 1 and fits[ranked[1]] == fits[extent] and extent != rows
        if not tied and fits[extent] >= _SUPPORT and (best is None or fits[extent] > best[1]):
            best = (extent // factor, fits[extent])
    return best[0] if best else None


def _without_batch(counts: dict[int, int], distinct: int, sm_count: int | None) -> int | None:
    ranked = sorted(
        ((c, e) for e, c in counts.items() if e > 1 and e != sm_count), key=lambda pair: (-pair[0], pair[1])
    )
    if not ranked or ranked[0][0] < _SUPPORT:
        return None
    if len(ranked) > 1 and ranked[0][0] < _LEAD * ranked[1][0]:
        return None
    count, extent = ranked[0]
    return extent if count >= _SHARE * distinct else None
