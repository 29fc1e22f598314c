"""The medians of a sweep as arrays: every quantity at once, so that a fit is one matrix product."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wavewise.findings import OperatingPoint, Samples
from wavewise.scaling.medians import Floats, median_variance
from wavewise.units import NS_PER_MS

RESOLUTION_MS = 1e-6
"""One nanosecond, the traces' resolution: a difference below it is not one."""

_ROUNDING_VARIANCE = RESOLUTION_MS**2 / 12.0
"""Of a figure rounded to the clock's nanosecond. It keeps intervals of exact data from having no width."""

STEP, SPAN, BUSY = "step", "span", "busy"


@dataclass(frozen=True)
class Sweep:
    """Medians of S quantities along an axis of m values (batch sizes or context lengths).

    Attributes:
        x: [m] ascending axis values.
        bucket: [m] replayed bucket; the batch size where it is not known.
        known_buckets: the bucket as recorded, None where it is not known.
        names: the S quantities: "step", "span" and "busy" where they are there, then the families.
        medians: [m, S] in milliseconds.
        variance: [m, S] of these medians, the clock's rounding included; NaN where every size has a single
            sample.
        dof: [m] degrees of freedom of the variances.
        counts: [m] samples behind each median.
    """

    x: Floats
    bucket: Floats
    known_buckets: tuple[int | None, ...]
    names: tuple[str, ...]
    medians: Floats
    variance: Floats
    dof: Floats
    counts: tuple[int, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The quantities that are kernel families."""
        return tuple(name for name in self.names if name not in (STEP, SPAN, BUSY))

    @property
    def has_scatter(self) -> bool:
        """Whether any size has two samples or more, from which scatter can be told."""
        return max(self.counts) > 1

    def column(self, name: str) -> int | None:
        """Index of a quantity, None where it is not in the sweep."""
        return self.names.index(name) if name in self.names else None


def sweep_of(points: Sequence[OperatingPoint], axis: Sequence[int]) -> Sweep:
    """The medians of `points` along `axis` (one value per point, all different), sorted.

    A family that a batch size does not launch takes 0 there: that is measured, since all operations of a
    clean step were. A single clean step shows no scatter: its variance is taken from the sizes with several,
    in proportion to the samples.
    """
    if len(set(axis)) != len(points):
        raise ValueError(f"one operating point per axis value, please: {sorted(axis)}")
    order = sorted(range(len(points)), key=lambda i: axis[i])
    ordered = [points[i] for i in order]
    families = _families(ordered)
    has_span = all(point.samples.span_ns for point in ordered)
    has_busy = all(point.samples.busy_ns for point in ordered)
    names = (STEP, *((SPAN,) if has_span else ()), *((BUSY,) if has_busy else ()), *families)
    tables = [_table(point.samples, names) for point in ordered]
    counts = tuple(len(table) for table in tables)
    dof = np.asarray([max(n - 1, 1) for n in counts], dtype=np.float64)
    variance = np.stack([median_variance(table) for table in tables]) + _ROUNDING_VARIANCE
    return Sweep(
        x=np.asarray([axis[i] for i in order], dtype=np.float64),
        bucket=np.asarray([float(point.bucket or point.batch_size) for point in ordered]),
        known_buckets=tuple(point.bucket for point in ordered),
        names=names,
        medians=np.stack([np.median(table, axis=0) for table in tables]),
        variance=_borrowed(variance, counts),
        dof=dof,
        counts=counts,
    )


def _families(points: Sequence[OperatingPoint]) -> tuple[str, ...]:
    """All families of the sweep, dearest at the largest size first."""
    order = [row.family for row in sorted(points[-1].families, key=lambda row: -row.sum_us_per_step)]
    found = {family for point in points for family in point.samples.families}
    return tuple(dict.fromkeys([f for f in order if f in found] + sorted(found)))


def _table(samples: Samples, names: Sequence[str]) -> Floats:
    """[n, S] samples of one point in milliseconds."""
    by_name: Mapping[str, tuple[int, ...]] = {
        STEP: samples.step_ns,
        SPAN: samples.span_ns,
        BUSY: samples.busy_ns,
        **samples.families,
    }
    n = len(samples.step_ns)
    columns = [by_name.get(name) or (0,) * n for name in names]
    return np.asarray(columns, dtype=np.float64).T / NS_PER_MS


def _borrowed(variance: Floats, counts: Sequence[int]) -> Floats:
    """Variances with those of single samples filled in from the sizes that have several."""
    single = np.asarray(counts) == 1
    if not single.any() or single.all():
        return variance
    # var(median of n) is close to proportional to 1/n, and exactly 1 x the scatter for n = 1.
    scatter = (variance[~single] * np.asarray(counts)[~single, None]).mean(axis=0)
    filled = variance.copy()
    filled[single] = scatter
    return filled
