"""Waves against the mission's numbers, a brute-force fill and the laws they have to obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.occupancy import wave_table, waves


def filled(ctas: int, slots: int) -> list[int]:
    """CTAs in each wave, by filling one wave after the other."""
    rounds = []
    while ctas > 0:
        rounds.append(min(ctas, slots))
        ctas -= rounds[-1]
    return rounds


@given(st.integers(1, 20_000), st.integers(1, 300), st.integers(1, 32))
def test_equals_filling_wave_after_wave(ctas, sms, resident):
    result, rounds = waves(ctas, sms, resident), filled(ctas, sms * resident)
    assert result.waves == len(rounds)
    assert result.tail_ctas == (rounds[-1] if rounds[-1] < sms * resident else 0)
    assert result.wave_efficiency == pytest.approx(ctas / (len(rounds) * sms * resident))
    assert result.waves * result.slots >= ctas
    assert (result.waves - 1) * result.slots < ctas
    assert 0 < result.wave_efficiency <= 1


@pytest.mark.parametrize(
    ("ctas", "count", "efficiency"), [(256, 2, 68.1), (384, 3, 68.1), (352, 2, 93.6), (376, 2, 100.0)]
)
def test_the_missions_waves_on_188_sms(ctas, count, efficiency):
    result = waves(ctas, 188, 1)
    assert result.waves == count
    assert round(100 * result.wave_efficiency, 1) == efficiency


def test_64_ctas_reach_a_third_of_188_sms():
    assert round(100 * waves(64, 188, 1).sm_coverage) == 34
    assert waves(188 * 3, 188, 1).sm_coverage == 1


def test_a_grid_of_exactly_the_slots_is_persistent():
    assert waves(132 * 3, 132, 3).persistent
    assert not waves(132 * 3 + 1, 132, 3).persistent
    assert not waves(132, 132, 3).persistent


def test_a_table_over_batches_and_splits_equals_single_answers():
    batches, splits = np.arange(1, 129)[:, None], np.array([1, 2, 4, 8])[None, :]
    table = wave_table(2 * batches * splits, 188, 1)
    assert table.waves.shape == (128, 4)
    for b, s in ((0, 0), (15, 2), (127, 3)):
        single = waves(int(2 * batches[b, 0] * splits[0, s]), 188, 1)
        assert table.waves[b, s] == single.waves
        assert table.wave_efficiency[b, s] == single.wave_efficiency
        assert table.tail_ctas[b, s] == single.tail_ctas


def test_clusters_take_whole_clusters_of_slots():
    assert waves(132, 132, 1, cluster_size=16).slots == 128
    assert waves(132, 132, 1, cluster_size=16).waves == 2


@pytest.mark.parametrize("arguments", [(0, 132, 1), (1, 0, 1), (1, 132, 0), (-4, 132, 1)])
def test_less_than_one_of_anything_is_refused(arguments):
    with pytest.raises(ValueError, match="at least 1"):
        waves(*arguments)


def test_a_cluster_larger_than_the_gpu_is_refused():
    with pytest.raises(ValueError, match="cluster of 16"):
        waves(16, 8, 1, cluster_size=16)
