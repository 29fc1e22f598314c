"""Floor and slope of inter-token latencies, one figure per batch size."""

import pytest

from wavewise.scaling import fit_latency


def test_linear_latencies_give_their_line_back() -> None:
    fit, reason = fit_latency({size: 5.0 + 0.25 * size for size in (64, 1, 8, 32)})
    assert reason is None
    assert fit is not None
    assert (fit.floor_ms, fit.slope_ms_per_request) == pytest.approx((5.0, 0.25))
    assert fit.model == "linear"
    assert [point.batch_size for point in fit.points] == [1, 8, 32, 64]
    assert fit.family is None


def test_scatter_is_known_only_from_what_the_line_misses() -> None:
    fit, _ = fit_latency({1: 5.0, 8: 7.2, 32: 12.9, 64: 21.3})
    assert fit is not None
    assert fit.slope_ms_per_request_95 is not None
    low, high = fit.slope_ms_per_request_95
    assert low < (fit.slope_ms_per_request or 0.0) < high
    assert fit.slope_distinguishable is True
    assert "from the residuals: a recording keeps one median per batch size" in (fit.interval_reason or "")
    assert fit.lack_of_fit is not None
    assert (fit.lack_of_fit.statistic, fit.lack_of_fit.p_value) == (None, None)
    assert "one median per batch size" in (fit.lack_of_fit.reason or "")


def test_two_sizes_draw_a_line_and_claim_nothing() -> None:
    fit, _ = fit_latency({1: 5.0, 9: 7.0})
    assert fit is not None
    assert (fit.floor_ms, fit.slope_ms_per_request) == pytest.approx((4.75, 0.25))
    assert (fit.floor_ms_95, fit.slope_ms_per_request_95, fit.slope_distinguishable) == (None, None, None)
    assert fit.verdict == "two sizes cannot test whether it is one"


@pytest.mark.parametrize("medians", [{}, {8: 5.0}])
def test_one_size_is_no_line(medians: dict[int, float]) -> None:
    assert fit_latency(medians) == (None, "floor and slope need two batch sizes")
