"""Two findings -> Diff."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from wavewise._version import __version__
from wavewise.findings import Findings, Samples
from wavewise.report.diff import noise
from wavewise.report.diff.kernels import kernel_changes
from wavewise.report.diff.pairing import Spot, pair
from wavewise.report.diff.result import Change, Diff, FamilyChange, PointDiff, Side
from wavewise.units import NS_PER_MS, NS_PER_S, NS_PER_US

_STEP = {
    "step_ms": "step_ns",
    "span_ms": "span_ns",
    "busy_ms": "busy_ns",
    "sum_ms": "sum_ns",
    "boundary_ms": "boundary_ns",
}
"""Times of a step and the samples behind them."""

_ENDS = 2
"""A span between two time stamps is off by at most two ticks."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """One quantity of both sides, in its unit per step.

    Attributes:
        recordings: medians of the single recordings of each side.
    """

    name: str
    unit: str
    before: noise.Floats
    after: noise.Floats
    launches: float
    tick: float
    recordings: tuple[list[float], list[float]]

    def floor(self, share: float) -> float:
        """The least change that counts."""
        usual = noise.floor(
            max(float(np.median(self.before)), float(np.median(self.after))), self.launches, share, self.tick
        )
        return max(usual, noise.repeat_floor(*self.recordings) or 0.0)


def diff(
    before: Findings,
    after: Findings,
    *,
    paths: tuple[str, str] = ("before", "after"),
    share: float = noise.FLOOR_SHARE,
    anyway: bool = False,
) -> Diff:
    """Compares two findings.

    Args:
        before: one side.
        after: the other.
        paths: what the sides are called.
        share: recordings of equal work differ by up to this share; smaller changes are noise.
        anyway: compare other GPUs or models too, and say so first.

    Raises:
        UsageError: other GPUs or models, without `anyway`.
    """
    pairs, notes = pair(before, after, anyway=anyway)
    return Diff(
        wavewise=__version__,
        before=_side(paths[0], before),
        after=_side(paths[1], after),
        notes=tuple(notes),
        points=tuple(_point(one, other, share) for one, other in pairs),
    )


def _side(path: str, findings: Findings) -> Side:
    return Side(
        path=path,
        traces=len(findings.traces),
        gpus=tuple(sorted({trace.gpu.name or "unknown" for trace in findings.traces})),
        engines=tuple(sorted({trace.engine for trace in findings.traces})),
        batch_sizes=tuple(sorted({point.batch_size for point in findings.operating_points})),
    )


def _point(before: Spot, after: Spot, share: float) -> PointDiff:
    steps = _steps(before, after, share)
    return PointDiff(
        batch_before=before.batch,
        batch_after=after.batch,
        bucket_before=before.bucket,
        bucket_after=after.bucket,
        context_before=before.context,
        context_after=after.context,
        clean_steps_before=before.clean_steps,
        clean_steps_after=after.clean_steps,
        steps=steps,
        families=_families(before, after, share),
        kernels=kernel_changes(before, after, share),
        host_share=_host_share(steps),
    )


def _steps(before: Spot, after: Spot, share: float) -> tuple[Change, ...]:
    """Step, span, busy, sum and boundary time, and throughput."""
    operations = max(sum(f.launches_per_step for f in side.families) for side in (before, after))
    quantities = [
        _quantity(
            name,
            "ms",
            before,
            after,
            lambda samples, key=key: np.asarray(getattr(samples, key), float) / NS_PER_MS,
            launches=operations if name == "sum_ms" else _ENDS,
            tick=noise.TICK_NS / NS_PER_MS,
        )
        for name, key in _STEP.items()
    ]
    tokens = [side.tokens or side.batch for side in (before, after)]
    if tokens[0] and tokens[1]:
        rates = [
            count * NS_PER_S / np.asarray(side.samples.step_ns, float)
            for count, side in zip(tokens, (before, after), strict=True)
            if count is not None
        ]
        quantities.append(_Quantity("tokens_per_s", "tokens/s", rates[0], rates[1], 0.0, 0.0, ([], [])))
    return _changes(
        [quantity for quantity in quantities if quantity.before.size and quantity.after.size], share
    )


def _families(before: Spot, after: Spot, share: float) -> tuple[FamilyChange, ...]:
    """Summed kernel time of every family that either side runs, the largest change first."""
    launches = [{f.family: f.launches_per_step for f in side.families} for side in (before, after)]
    names = list(dict.fromkeys([*before.samples.families, *after.samples.families]))
    quantities = [
        _quantity(
            name,
            "us",
            before,
            after,
            lambda samples, name=name: np.asarray(samples.families.get(name, ()), float) / NS_PER_US,
            launches=max(side.get(name, 0.0) for side in launches),
            tick=noise.TICK_NS / NS_PER_US,
        )
        for name in names
    ]
    both = [quantity for quantity in quantities if quantity.before.size and quantity.after.size]
    changed = dict(zip((quantity.name for quantity in both), _changes(both, share), strict=True))
    rows = [
        FamilyChange(
            family=quantity.name,
            sum_us=msgspec.structs.replace(
                changed.get(quantity.name) or _one_sided(quantity), quantity="sum_us"
            ),
            launches_before=launches[0].get(quantity.name, 0.0),
            launches_after=launches[1].get(quantity.name, 0.0),
        )
        for quantity in quantities
    ]
    return tuple(sorted(rows, key=lambda row: -abs((row.sum_us.after or 0) - (row.sum_us.before or 0))))


def _quantity(
    name: str,
    unit: str,
    before: Spot,
    after: Spot,
    take: Callable[[Samples], noise.Floats],
    *,
    launches: float,
    tick: float,
) -> _Quantity:
    return _Quantity(
        name=name,
        unit=unit,
        before=take(before.samples),
        after=take(after.samples),
        launches=launches,
        tick=tick,
        recordings=(
            [float(np.median(values)) for values in map(take, before.recordings()) if values.size],
            [float(np.median(values)) for values in map(take, after.recordings()) if values.size],
        ),
    )


def _changes(quantities: Sequence[_Quantity], share: float) -> tuple[Change, ...]:
    """Tests quantities that have samples on both sides."""
    if not quantities:
        return ()
    results = noise.compare(
        np.stack([quantity.before for quantity in quantities]),
        np.stack([quantity.after for quantity in quantities]),
        np.array([quantity.floor(share) for quantity in quantities]),
    )
    return tuple(
        Change(
            quantity=quantity.name,
            unit=quantity.unit,
            before=result.before,
            after=result.after,
            change=result.change,
            relative=result.change / result.before if result.before else None,
            interval=result.interval,
            p_value=result.p_value,
            noise_floor=result.floor,
            verdict=result.verdict,
            reason=result.reason,
        )
        for quantity, result in zip(quantities, results, strict=True)
    )


def _one_sided(quantity: _Quantity) -> Change:
    """A family that only one side runs."""
    before, after = (
        float(np.median(side)) if side.size else None for side in (quantity.before, quantity.after)
    )
    return Change(
        quantity=quantity.name,
        unit=quantity.unit,
        before=before,
        after=after,
        change=None,
        relative=None,
        noise_floor=0.0,
        verdict="added" if before is None else "vanished",
    )


def _host_share(steps: Sequence[Change]) -> float | None:
    """Share of the change of step time that lies in step boundaries."""
    step, boundary = (
        next((s for s in steps if s.quantity == name), None) for name in ("step_ms", "boundary_ms")
    )
    if step is None or boundary is None or step.verdict not in ("up", "down"):
        return None
    return boundary.change / step.change if step.change and boundary.change is not None else None
