"""Floor and slope: exact on exact data, with intervals that hold what they promise."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_points import point, single

from wavewise.scaling.line import fit_line, lack_of_fit, line_weights
from wavewise.scaling.sweep import STEP, Sweep, sweep_of

SIZES = st.lists(st.integers(1, 2048), min_size=2, max_size=12, unique=True)


def sweep(points: list) -> Sweep:
    return sweep_of(points, [p.batch_size for p in points])


def sweep_of_draws(x: list[int], n: int, draw, truth) -> Sweep:
    """Every column is one simulated experiment."""
    columns = 1000
    tables = [truth(size) + draw(size, (n, columns)) for size in x]
    from wavewise.scaling.medians import median_variance

    return Sweep(
        x=np.asarray(x, dtype=float),
        bucket=np.asarray(x, dtype=float),
        known_buckets=tuple(x),
        names=tuple(f"draw {i}" for i in range(columns)),
        medians=np.stack([np.median(t, axis=0) for t in tables]),
        variance=np.stack([median_variance(t) for t in tables]),
        dof=np.full(len(x), float(n - 1)),
        counts=(n,) * len(x),
    )


@given(sizes=SIZES, floor=st.integers(10, 50_000_000), slope=st.integers(0, 2_000_000))
@settings(max_examples=200)
def test_exact_lines_are_reproduced(sizes: list[int], floor: int, slope: int) -> None:
    """Integer nanoseconds on a line: floor and slope to 1e-9 of the largest step."""
    points = single({size: [(floor + slope * size) / 1e6] * 3 for size in sizes})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = fit_line(sweep(points), 0)
    scale = (floor + slope * max(sizes)) / 1e6
    assert line.floor == pytest.approx(floor / 1e6, abs=1e-9 * scale)
    assert line.slope == pytest.approx(slope / 1e6, abs=1e-9 * scale)
    assert line.slope_95 is not None
    assert line.floor_95 is not None
    assert line.slope_95[0] <= slope / 1e6 <= line.slope_95[1]
    assert line.floor_95[0] <= floor / 1e6 <= line.floor_95[1]
    assert line.distinguishable is (slope > 0) or max(sizes) - min(sizes) < 4  # 1 ns over a few requests


def test_flat_data_have_slope_zero_and_say_so() -> None:
    line = fit_line(sweep(single({8: [0.287088] * 6, 16: [0.287088] * 6, 32: [0.287088] * 6})), 0)
    assert line.slope == 0.0
    assert line.distinguishable is False


def test_the_line_is_numpys() -> None:
    rng = np.random.default_rng(0)
    x = [1, 8, 16, 32, 64, 80]
    points = single({size: (1.0 + 0.05 * size + rng.normal(0, 0.1, 7)).tolist() for size in x})
    slope, floor = np.polyfit(x, [p.step_ms.median for p in points], 1)
    line = fit_line(sweep(points), 0)
    assert line.slope == pytest.approx(slope, rel=1e-9)
    assert line.floor == pytest.approx(floor, rel=1e-9)


NORMAL = np.random.default_rng(20).standard_normal
DESIGNS = [([32, 80], 6), ([8, 32, 64], 4), ([1, 8, 16, 32, 64, 80], 3), ([1, 8, 16, 32, 64, 80], 6)]
DESIGNS += [([8, 16, 32, 64], 12), ([1, 8, 16, 32, 64, 80], 20), ([32, 64, 96], 40)]


@pytest.mark.parametrize(("x", "n"), DESIGNS)
@pytest.mark.parametrize("scatter", ["alike", "growing with the batch"])
def test_intervals_cover_in_95_per_cent_of_draws(x: list[int], n: int, scatter: str) -> None:
    """1,000 simulated sweeps: the true floor and slope lie inside 92 to 98 % of the time."""
    rng = np.random.default_rng(1000 * len(x) + n)

    def noise(size: int, shape: tuple[int, int]) -> np.ndarray:
        return rng.standard_normal(shape) * (0.3 if scatter == "alike" else 0.01 * size)

    drawn = sweep_of_draws(x, n, noise, lambda size: 18.0 + 1.05 * size)
    lines = [fit_line(drawn, column) for column in range(1000)]
    for truth, found in (
        (1.05, [line.slope_95 for line in lines]),
        (18.0, [line.floor_95 for line in lines]),
    ):
        inside = sum(1 for interval in found if interval and interval[0] <= truth <= interval[1])
        assert 920 <= inside <= 980


@pytest.mark.parametrize(
    "tails", ["t with 3 degrees of freedom", "exponential", "one in ten six times as wide"]
)
def test_intervals_of_long_tails_never_promise_too_much(tails: str) -> None:
    rng = np.random.default_rng(7)

    def noise(_size: int, shape: tuple[int, int]) -> np.ndarray:
        if tails == "exponential":
            return rng.exponential(size=shape) - np.log(2)
        if tails.startswith("t"):
            return rng.standard_t(3, shape)
        return rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 6.0, 1.0)

    for n in (6, 20):
        drawn = sweep_of_draws([1, 8, 16, 32, 64, 80], n, noise, lambda size: 5.0 + 0.2 * size)
        lines = [fit_line(drawn, column) for column in range(1000)]
        inside = sum(1 for line in lines if line.slope_95 and line.slope_95[0] <= 0.2 <= line.slope_95[1])
        assert inside >= 920


def test_one_step_per_size_takes_the_scatter_from_the_residuals() -> None:
    """The textbook regression interval, against scipy's."""
    from scipy import stats

    x = [4, 8, 16, 32]
    y = [1.1, 1.4, 2.2, 3.3]
    line = fit_line(sweep(single({size: [value] for size, value in zip(x, y, strict=True)})), 0)
    reference = stats.linregress(x, y)
    half = stats.t.ppf(0.975, 2) * reference.stderr
    assert line.slope_95 == pytest.approx((reference.slope - half, reference.slope + half))
    assert line.interval_reason is not None


def test_two_sizes_with_one_step_each_have_no_interval() -> None:
    line = fit_line(sweep(single({4: [1.0], 8: [2.0]})), 0)
    assert line.slope == pytest.approx(0.25)
    assert line.slope_95 is None
    assert line.distinguishable is None
    assert line.interval_reason is not None


def test_a_single_step_borrows_the_other_sizes_scatter() -> None:
    points = single({4: [1.0], 8: [2.0, 2.2, 1.8], 16: [4.0, 4.2, 3.8]})
    found = sweep(points)
    assert np.isfinite(found.variance).all()
    assert found.variance[0, 0] == pytest.approx(0.04 * 0.448671 * 3, rel=1e-3)


def residual_operator(x: np.ndarray) -> np.ndarray:
    floor, slope = line_weights(x)
    return np.eye(x.size) - np.outer(np.ones_like(x), floor) - np.outer(x, slope)


def test_lack_of_fit_is_uniform_under_the_model_and_small_against_it() -> None:
    """Under a true line about 5 % of p-values fall below 0.05, also with unequal scatter; a curve is found."""
    rng = np.random.default_rng(3)
    x = [1, 8, 16, 32, 64, 80]

    def noise(size: int, shape: tuple[int, int]) -> np.ndarray:
        return rng.standard_normal(shape) * (0.1 + 0.01 * size)

    drawn = sweep_of_draws(x, 8, noise, lambda size: 5.0 + 0.2 * size)
    operator = residual_operator(drawn.x)
    p_values = np.asarray([lack_of_fit(operator, drawn, column)[1] for column in range(1000)])
    assert 0.02 <= (p_values < 0.05).mean() <= 0.08
    curved = sweep_of_draws(x, 8, noise, lambda size: 5.0 + 0.5 * size**0.7)
    assert np.mean([lack_of_fit(operator, curved, c)[1] < 0.05 for c in range(100)]) > 0.95


def test_lack_of_fit_of_exact_data_is_no_lack() -> None:
    found = sweep(single({size: [1.0 + 0.25 * size] * 6 for size in (4, 8, 16)}))
    statistic, p_value = lack_of_fit(residual_operator(found.x), found, 0)
    assert statistic == pytest.approx(0.0, abs=1e-6)
    assert p_value == pytest.approx(1.0)


def test_a_family_that_a_size_does_not_launch_takes_nothing_there() -> None:
    points = [
        point(1, {"a": [1.0, 1.0]}, [2.0, 2.0]),
        point(8, {"a": [1.0, 1.0], "b": [0.5, 0.5]}, [3.0, 3.0]),
    ]
    found = sweep(points)
    column = found.column("b")
    assert column is not None
    assert found.medians[:, column].tolist() == [0.0, 0.5]
    assert found.names[0] == STEP


def test_the_same_size_twice_is_refused() -> None:
    points = single({4: [1.0, 1.0]}) * 2
    with pytest.raises(ValueError, match="one operating point"):
        sweep(points)
