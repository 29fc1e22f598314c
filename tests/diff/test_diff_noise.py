"""The tests behind "beyond noise", against scipy and by simulation."""

import time
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from wavewise.report.diff import noise


def one(before: list[float], after: list[float], floor: float = 0.0) -> noise.Comparison:
    return noise.compare(np.array([before], float), np.array([after], float), np.array([floor]))[0]


@pytest.mark.parametrize(("n", "m"), [(4, 4), (6, 6), (3, 7), (5, 4)])
def test_p_value_is_the_exact_permutation_test(n: int, m: int) -> None:
    rng = np.random.default_rng(n * 10 + m)
    before, after = rng.normal(100, 3, n), rng.normal(103, 3, m)
    expected = stats.permutation_test(
        (before, after), lambda x, y, axis: np.abs(np.mean(x, axis) - np.mean(y, axis)), vectorized=True,
        n_resamples=np.inf, alternative="greater",
    ).pvalue  # fmt: skip
    assert one(before.tolist(), after.tolist()).p_value == pytest.approx(expected, rel=1e-9)


def test_large_samples_are_sampled_and_agree_with_a_t_test() -> None:
    rng = np.random.default_rng(7)
    before, after = rng.normal(100, 3, 60), rng.normal(101.2, 3, 70)
    expected = stats.ttest_ind(before, after).pvalue
    # 20,000 permutations estimate a p-value of a few per cent to within a few tenths of a per cent.
    assert one(before.tolist(), after.tolist()).p_value == pytest.approx(expected, abs=0.006)


def test_equal_distributions_are_seldom_called_changed() -> None:
    rng = np.random.default_rng(3)
    draws = 2000
    results = noise.compare(rng.normal(100, 2, (draws, 6)), rng.normal(100, 2, (draws, 6)), np.zeros(draws))
    changed = sum(result.verdict in ("up", "down") for result in results) / draws
    # The test is exact: at most 5 % in the long run; 2,000 draws scatter by half a per cent.
    assert 0.03 < changed <= 0.065


def test_interval_covers_the_true_change() -> None:
    rng = np.random.default_rng(5)
    draws, true = 600, 4.0
    results = noise.compare(
        rng.normal(100, 2, (draws, 8)), rng.normal(100 + true, 2, (draws, 8)), np.zeros(draws)
    )
    covered = np.mean([result.interval[0] <= true <= result.interval[1] for result in results])
    # The percentile bootstrap of a median is known to be a little off on eight values; it must not be far off.
    assert 0.9 <= covered <= 1


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8])
def test_medians_of_resamples_are_distributed_as_if_drawn(n: int) -> None:
    values = np.random.default_rng(n).normal(100, 3, (1, n))
    drawn = np.median(values[0][np.array(list(product(range(n), repeat=n)))], axis=1) if n < 7 else None
    if drawn is None:
        drawn = np.median(np.random.default_rng(1).choice(values[0], (200_000, n)), axis=1)
    quick = noise._resampled_medians(values, np.random.default_rng(2))[0]
    assert set(np.round(quick, 9)) <= set(np.round(drawn, 9))
    grid = np.unique(drawn)
    shares = [np.searchsorted(np.sort(side), grid + 1e-9) / len(side) for side in (drawn, quick)]
    # 2,000 replicates: the greatest distance of the distributions is below 1.95/sqrt(2000) in 999 of 1000 cases.
    assert np.abs(shares[0] - shares[1]).max() < 0.044


def test_thousands_of_steps_take_neither_memory_nor_minutes() -> None:
    rng = np.random.default_rng(13)
    before, after = rng.normal(100, 3, (25, 5000)), rng.normal(100, 3, (25, 6000))
    after[0] += 2
    noise.compare(before[:, :9], after[:, :9], np.zeros(25))
    began = time.process_time()
    noise.compare(before, after, np.full(25, 1.0))
    assert time.process_time() - began < 15  # 1.6 s measured; drawing every resample took minutes
    tracemalloc.start()
    results = noise.compare(before, after, np.full(25, 1.0))
    assert tracemalloc.get_traced_memory()[1] < 500e6
    tracemalloc.stop()
    assert [result.verdict for result in results] == ["up"] + ["noise"] * 24


def test_verdicts() -> None:
    steady = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    slower = [value + 5 for value in steady]
    assert one(steady, slower).verdict == "up"
    assert one(slower, steady).verdict == "down"
    assert one(steady, steady[::-1]).verdict == "same"
    assert one(steady, slower, floor=6.0).verdict == "noise"
    assert one(steady, [value + 0.3 for value in steady]).verdict == "noise"
    few = one(steady[:2], slower[:2])
    assert few.verdict == "unclear"
    assert few.reason == "2 and 2 clean steps are too few to tell it from noise"
    assert few.change == 5
    assert one([100.0], [100.0]).verdict == "same"


def test_same_input_same_verdict() -> None:
    rng = np.random.default_rng(11)
    before, after = rng.normal(100, 3, (5, 30)), rng.normal(101, 3, (5, 30))
    assert noise.compare(before, after, np.zeros(5)) == noise.compare(before, after, np.zeros(5))


samples = st.lists(st.floats(1, 1e6, allow_nan=False), min_size=1, max_size=7)


@settings(max_examples=60)
@given(samples, samples, st.floats(0, 1e5))
@example([1.0], [1.0, 1.0, 1.00001], 0.0)  # equal sums that differ in their last digits
def test_turning_round_turns_the_sign(before: list[float], after: list[float], floor: float) -> None:
    forth, back = one(before, after, floor), one(after, before, floor)
    assert forth.change == pytest.approx(-back.change)
    opposite = {"up": "down", "down": "up"}
    assert opposite.get(forth.verdict, forth.verdict) == back.verdict
    assert forth.p_value == pytest.approx(back.p_value)
    if abs(forth.change) <= floor:
        assert forth.verdict in ("noise", "same")


def test_floor_is_a_share_and_a_tick_per_launch() -> None:
    assert noise.floor(4208.0, 16, 0.01, 0.032) == pytest.approx(42.08 + 0.512)


def test_repeats_raise_the_floor() -> None:
    assert noise.repeat_floor([100.0], [101.0, 102.0]) is None
    before, after = [100.0, 104.0, 102.0], [101.0, 105.0]
    pooled = (np.var(before, ddof=1) * 2 + np.var(after, ddof=1) * 1) / 3
    assert noise.repeat_floor(before, after) == pytest.approx(2 * np.sqrt(pooled * (1 / 3 + 1 / 2)))
