"""The variance of a median of few samples."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from wavewise.scaling.medians import combined_dof, median_variance

# The samples of n normals whose sample variance is 1, so that the ratio itself comes back.


def ratio(n: int) -> float:
    samples = np.linspace(-1.0, 1.0, n)[:, None]
    samples /= samples.std(ddof=1)
    return float(median_variance(samples)[0])


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 13, 15])
def test_ratio_of_odd_samples_is_the_order_statistic_integral(n: int) -> None:
    k = (n - 1) // 2
    norm = math.factorial(n) / math.factorial(k) ** 2

    def density(x: float) -> float:
        return x * x * norm * (stats.norm.cdf(x) * stats.norm.sf(x)) ** k * stats.norm.pdf(x)

    assert ratio(n) == pytest.approx(integrate.quad(density, -10, 10)[0], rel=1e-5)


@pytest.mark.parametrize("n", [2, 4, 6, 8, 10, 12, 14])
def test_ratio_of_even_samples_against_simulation(n: int) -> None:
    draws = np.random.default_rng(n).standard_normal((400_000, n))
    # 400,000 draws know a variance to 0.22 %; four standard errors.
    assert ratio(n) == pytest.approx(np.median(draws, axis=1).var(), rel=0.009)


def test_two_samples_are_a_mean() -> None:
    assert median_variance(np.asarray([[1.0], [3.0]]))[0] == pytest.approx(1.0)  # (2 / 2) / 2 samples x 2


def test_one_sample_shows_no_scatter() -> None:
    assert np.isnan(median_variance(np.asarray([[1.0, 2.0]]))).all()


@pytest.mark.parametrize("n", [16, 20, 40, 101])
def test_many_samples_take_price_and_bonett(n: int) -> None:
    """Their estimate, written out for one sample; for long tails it errs on the wide side, less with more."""
    rng = np.random.default_rng(n)
    y = np.sort(rng.standard_t(3, n))
    c = max(1, round((n + 1) / 2 - math.sqrt(n)))
    quantile = stats.norm.ppf(1 - stats.binom.cdf(c - 1, n, 0.5))
    assert median_variance(y[:, None])[0] == pytest.approx(((y[n - c] - y[c - 1]) / (2 * quantile)) ** 2)
    draws = rng.standard_t(3, (n, 20_000))
    truth = np.median(draws, axis=0).var()
    assert 0.95 * truth <= median_variance(draws).mean() <= (1.0 + 10.0 / n) * truth


def test_degrees_of_freedom_follow_welch_and_satterthwaite() -> None:
    a, b = 4.0, 1.0
    expected = (a + b) ** 2 / (a * a / 5 + b * b / 9)
    assert combined_dof(np.asarray([a, b]), np.asarray([5.0, 9.0])) == pytest.approx(expected)
    # Nanosecond figures squared twice must not underflow.
    assert combined_dof(np.asarray([a, b]) * 1e-200, np.asarray([5.0, 9.0])) == pytest.approx(expected)
