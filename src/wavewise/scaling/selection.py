"""Fits laws, and judges them by how well they predict a batch size they have not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from wavewise.scaling.laws import CONSTANT, LINEAR, Law
from wavewise.scaling.medians import Floats
from wavewise.scaling.sweep import RESOLUTION_MS, Sweep

_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class FittedLaw:
    """A law fitted to some of the sweep's quantities.

    Attributes:
        coefficients: [p, S].
        constants: [S] the chosen value of the unknown constant.
        active: [p, S] which columns carry weight (a coefficient held at 0 has none).
        residuals: [m, S] measured less fitted.
        left_out: [m, S] error at each size, predicted from the others; NaN where that cannot be done.
    """

    law: Law
    coefficients: Floats
    constants: Floats
    active: NDArray[np.bool_]
    residuals: Floats
    left_out: Floats

    def error(self, series: int) -> float | None:
        """Root mean square leave-one-size-out error, None where it cannot be had."""
        mean_square = float((self.left_out[:, series] ** 2).mean())
        return None if np.isnan(mean_square) else mean_square**0.5

    def parameters(self, series: int) -> dict[str, float]:
        """Coefficients and constants by name."""
        values = dict(zip(self.law.coefficients, self.coefficients[:, series].tolist(), strict=True))
        if self.law.constant is not None:
            values[self.law.constant] = float(self.constants[series])
        return values | dict(self.law.given)

    def design(self, series: int, x: Floats, bucket: Floats) -> Floats:
        """[n, p] design at other sizes; columns held at 0 are zeroed."""
        return self.law.design_of(x, bucket, float(self.constants[series])) * self.active[:, series]

    def hat(self, series: int, sweep: Sweep, x: Floats, bucket: Floats) -> Floats:
        """[n, m] matrix that maps the sweep's medians to predictions at `x`."""
        fitted = self.design(series, sweep.x, sweep.bucket)
        return self.design(series, x, bucket) @ np.linalg.pinv(fitted, rcond=_RANK_TOLERANCE)


def fit_law(law: Law, sweep: Sweep, columns: Sequence[int]) -> FittedLaw | None:
    """Least squares of every column's medians, and again without each size in turn.

    Non-negative laws are solved exactly: the optimum is the best unconstrained fit over all subsets of
    columns whose coefficients come out non-negative (there are at most eight subsets).

    Returns:
        None where the law's columns cannot be told apart at these sizes.
    """
    y = sweep.medians[:, list(columns)]
    designs, active, constants = _trials(law, sweep)
    if not _identifiable(law, sweep):
        return None
    best, coefficients = _solve(designs, active, y, law.nonnegative)
    fitted = np.einsum("smp,ps->ms", designs[best], coefficients)
    return FittedLaw(
        law=law,
        coefficients=coefficients,
        constants=constants[best],
        active=active[best].T,
        residuals=y - fitted,
        left_out=_left_out(law, designs, active, y),
    )


def _identifiable(law: Law, sweep: Sweep) -> bool:
    designs = law.designs(sweep.x, sweep.bucket)
    scale = np.abs(designs).max(axis=1, keepdims=True)
    ranks = np.linalg.matrix_rank(designs / np.where(scale > 0, scale, 1.0), tol=1e-9)
    return bool((ranks == len(law.coefficients)).any())


def _trials(law: Law, sweep: Sweep) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Every design to try: constants x subsets of columns. ([K, m, p], [K, p], [K])."""
    full = law.designs(sweep.x, sweep.bucket)
    p = full.shape[2]
    subsets = (
        np.asarray(sorted(product((True, False), repeat=p), key=lambda kept: -sum(kept)))
        if law.nonnegative
        else np.ones((1, p), dtype=bool)
    )
    designs = (full[:, None] * subsets[None, :, None, :]).reshape(-1, *full.shape[1:])
    return designs, np.tile(subsets, (len(full), 1)), np.repeat(np.asarray(law.tried), len(subsets))


def _solve(
    designs: Floats, active: NDArray[np.bool_], y: Floats, nonnegative: bool
) -> tuple[NDArray[np.int64], Floats]:
    """The best design of each series and its coefficients: ([S], [p, S])."""
    scale = np.abs(designs).max(axis=1, keepdims=True)
    scale = np.where(scale > 0.0, scale, 1.0)
    inverse = np.linalg.pinv(designs / scale, rcond=_RANK_TOLERANCE)
    coefficients = (inverse @ y) / scale.transpose(0, 2, 1)
    squares = ((designs @ coefficients - y) ** 2).sum(axis=1)
    if nonnegative:
        slack = 1e-12 * np.abs(y).max()
        infeasible = ((coefficients < -slack) & active[:, :, None]).any(axis=1)
        squares = np.where(infeasible, np.inf, squares)
    # Among equals (all columns, or fewer that do as well) the first wins: rounding must not decide.
    near = squares <= squares.min(axis=0) * (1 + 1e-9) + (RESOLUTION_MS * 1e-3) ** 2
    best = near.argmax(axis=0)
    return best, coefficients[best, :, np.arange(y.shape[1])].T


def _left_out(law: Law, designs: Floats, active: NDArray[np.bool_], y: Floats) -> Floats:
    m = y.shape[0]
    if m - 1 < law.parameters:
        return np.full_like(y, np.nan)
    errors = np.empty_like(y)
    for i in range(m):
        kept = [j for j in range(m) if j != i]
        best, coefficients = _solve(designs[:, kept], active, y[kept], law.nonnegative)
        errors[i] = y[i] - np.einsum("sp,ps->s", designs[best, i], coefficients)
    return errors


def choose(fits: Mapping[str, FittedLaw], series: Mapping[str, int]) -> str | None:
    """The model with the fewest parameters whose error is within one standard error of the least.

    Args:
        fits: candidate models by name.
        series: model -> index of the quantity within that fit.

    Returns:
        None where a line cannot be tested: two sizes.
    """
    mean_squares: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for name, fit in fits.items():
        squares = fit.left_out[:, series[name]] ** 2
        if not np.isnan(squares).any():
            mean_squares[name] = float(squares.mean())
            spreads[name] = float(squares.std(ddof=1)) / squares.size**0.5
    if LINEAR not in mean_squares:  # a curve was not put to the test
        return None
    best = min(mean_squares, key=lambda name: mean_squares[name])
    limit = mean_squares[best] + spreads[best] + RESOLUTION_MS**2
    within = [name for name in mean_squares if mean_squares[name] <= limit]
    order = {CONSTANT: 0, LINEAR: 1}
    return min(
        within,
        key=lambda name: (
            fits[name].law.parameters,
            # With equally many parameters the line yields only to a better prediction.
            round(mean_squares[name] / RESOLUTION_MS**2),
            order.get(name, 2),
        ),
    )


def standard_error(fit: FittedLaw, series: int) -> float | None:
    """What one standard error of the mean square makes of the error, in milliseconds."""
    squares = fit.left_out[:, series] ** 2
    if np.isnan(squares).any():
        return None
    mean = float(squares.mean())
    return (mean + float(squares.std(ddof=1)) / squares.size**0.5) ** 0.5 - mean**0.5
