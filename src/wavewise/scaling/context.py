"""How a step grows with the context length, at one batch size."""

from collections.abc import Sequence

import numpy as np

from wavewise.findings import ContextFit, ContextPoint, ContextScaling, OperatingPoint
from wavewise.scaling.groups import contexts
from wavewise.scaling.line import fit_line
from wavewise.scaling.sweep import SPAN, STEP, Sweep, sweep_of


def fit_context(points: Sequence[OperatingPoint]) -> tuple[ContextScaling, ...]:
    """One ContextScaling for each GPU, engine and batch size with two or more known context lengths.

    A request's work grows linearly with its context (keys read, index scores), as far as the model attends to
    all of it, so a line is the only law fitted; its residuals say where that fails. Points whose context is
    not known take no part.
    """
    groups: dict[tuple[int, str, str], dict[float | str | None, OperatingPoint]] = {}
    for point, context in zip(points, contexts(points), strict=True):
        if point.context_length is not None:
            key = (point.batch_size, point.gpu or "", point.engine)
            groups.setdefault(key, {}).setdefault(context, point)
    return tuple(
        _context_scaling(
            size, sweep_of(list(found.values()), [p.context_length or 0 for p in found.values()])
        )
        for (size, _, _), found in sorted(groups.items())
        if len(found) >= 2
    )


def _context_scaling(batch_size: int, sweep: Sweep) -> ContextScaling:
    return ContextScaling(
        batch_size=batch_size,
        step=_fit(sweep, STEP),
        span=_fit(sweep, SPAN) if SPAN in sweep.names else None,
        families=tuple(_fit(sweep, family) for family in sweep.families),
    )


def _fit(sweep: Sweep, name: str) -> ContextFit:
    column = sweep.names.index(name)
    line = fit_line(sweep, column)
    return ContextFit(
        family=None if name in (STEP, SPAN) else name,
        at_zero_ms=line.floor,
        slope_ms_per_thousand_tokens=1000.0 * line.slope,
        slope_ms_per_thousand_tokens_95=None
        if line.slope_95 is None
        else (1000.0 * line.slope_95[0], 1000.0 * line.slope_95[1]),
        slope_distinguishable=line.distinguishable,
        interval_reason=line.interval_reason,
        max_abs_residual_ms=float(np.abs(line.residuals).max()),
        points=tuple(
            ContextPoint(context_length=int(x), value_ms=float(value), samples=count)
            for x, value, count in zip(sweep.x, sweep.medians[:, column], sweep.counts, strict=True)
        ),
    )
