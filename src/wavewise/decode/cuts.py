"""Stretches of time that `wavewise trim` took out of a trace, as markers that tell a reader so.

What a cut took out is not idle: nobody knows any more what ran there. A trimmed trace therefore carries one
marker per cut and device, from the last operation kept before it to the first kept behind it, on the clock of
the operations. As a marker it moves with everything else when a trace is scrubbed, and other viewers show it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from wavewise.decode.intervals import IntArray, merge
from wavewise.trace import Trace
from wavewise.trace.schema import MARKER_SCHEMA

_NAME = "wavewise trim: cut (device {device})"
_PATTERN = re.compile(r"^wavewise trim: cut \(device (\d+)\)$")


def cuts_of(trace: Trace, device: int) -> tuple[IntArray, IntArray]:
    """The cuts that a trace's markers tell of one device: starts and ends, disjoint, in time order."""
    rows = trace.markers.filter(pl.col("name") == _NAME.format(device=device))
    start = rows["start_ns"].to_numpy()
    return merge(start, start + rows["duration_ns"].fill_null(0).to_numpy())


def is_cut(name: str) -> bool:
    """Whether a marker of that name tells of a cut."""
    return _PATTERN.match(name) is not None


def between(step: IntArray, start: IntArray, end: IntArray, kept: Sequence[int]) -> list[tuple[int, int]]:
    """Where a device's time is cut when only some steps are kept.

    Args:
        step: the step that owns each operation.
        start, end: when each operation ran, in ns.
        kept: steps to keep, ascending; where two of them do not follow one another, the time between is cut.

    Returns:
        (start, end) of each cut in ns, in time order.
    """
    found: list[tuple[int, int]] = []
    mine = np.isin(step, kept)
    for before, behind in pairwise(kept):
        if behind == before + 1:
            continue
        earlier, later = mine & (step <= before), mine & (step >= behind)
        if earlier.any() and later.any():
            lo, hi = int(end[earlier].max()), int(start[later].min())
            found += [(lo, hi)] if lo < hi else []
    return found


def with_cuts(trace: Trace, whole: Trace, cuts: Mapping[int, Sequence[tuple[int, int]]]) -> Trace:
    """A trimmed trace with the markers of its cuts, those that the whole trace had already among them.

    Args:
        trace: what is left.
        whole: what it was cut from.
        cuts: device -> new cuts (start, end) in ns.
    """
    rows: list[tuple[str, int, int, int, int]] = []
    for device in trace.device_ids():
        kept = trace.operations.filter(pl.col("device") == device)
        if kept.is_empty():  # nothing but graphs that were recorded as wholes
            continue
        lo, hi = int(kept["start_ns"].to_numpy().min()), int(kept["start_ns"].to_numpy().max())
        old_start, old_end = cuts_of(whole, device)
        inside = (old_start >= lo) & (old_end <= hi)
        new = cuts.get(device, ())
        start, end = merge(
            np.array([*(one[0] for one in new), *old_start[inside].tolist()], np.int64),
            np.array([*(one[1] for one in new), *old_end[inside].tolist()], np.int64),
        )
        name = _NAME.format(device=device)
        rows += [
            (name, one, other - one, device, 0)
            for one, other in zip(start.tolist(), end.tolist(), strict=True)
        ]
    others = trace.markers.filter(~pl.col("name").map_elements(is_cut, return_dtype=pl.Boolean))
    marks = pl.DataFrame(rows, schema=MARKER_SCHEMA, orient="row")
    return replace(trace, markers=pl.concat([others, marks]).sort("start_ns", maintain_order=True))
