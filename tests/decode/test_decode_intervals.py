"""Interval arithmetic and shares against brute force, nanosecond by nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wavewise.decode.intervals import gaps, grouped_union, inside_any, merge, outside_length, union_length
from wavewise.decode.shares import family_time

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=12,
)


def arrays(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in intervals], np.int64), np.array([b for _, b in intervals], np.int64)


def cells(intervals: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in intervals for t in range(a, b)}


@given(INTERVALS)
def test_union_and_merge_cover_the_same_cells(intervals: list[tuple[int, int]]) -> None:
    start, end = arrays(intervals)
    assert union_length(start, end) == len(cells(intervals))
    lo, hi = merge(start, end)
    assert cells(list(zip(lo.tolist(), hi.tolist(), strict=True))) == cells(intervals)
    assert (lo[1:] > hi[:-1]).all()


@given(INTERVALS)
def test_gaps_are_the_uncovered_cells_of_the_window(intervals: list[tuple[int, int]]) -> None:
    start, end = arrays(intervals)
    lo, hi = gaps(start, end)
    window = set(range(int(start.min()), int(end.max())))
    assert cells(list(zip(lo.tolist(), hi.tolist(), strict=True))) == window - cells(intervals)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 15)), max_size=15))
def test_grouped_union_equals_the_union_of_each_group(rows: list[tuple[int, int, int]]) -> None:
    group = np.array([g for g, _, _ in rows], np.int64)
    start = np.array([s for _, s, _ in rows], np.int64)
    end = start + np.array([d for _, _, d in rows], np.int64)
    expected = [len(cells([(s, s + d) for g, s, d in rows if g == wanted])) for wanted in range(4)]
    assert grouped_union(group, start, end, 4).tolist() == expected


@given(INTERVALS, INTERVALS)
def test_containment_and_outside(gap: list[tuple[int, int]], intervals: list[tuple[int, int]]) -> None:
    lo, hi = arrays(gap)
    start, end = arrays(intervals)
    expected = [any(a <= g and h <= b for a, b in intervals) for g, h in gap]
    assert inside_any(lo, hi, start, end).tolist() == expected
    merged = merge(start, end)
    for a, b in gap:
        assert outside_length(a, b, *merged) == len(set(range(a, b)) - cells(intervals))


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)),
        min_size=1,
        max_size=14,
    )
)
def test_shares_split_every_cell_among_the_families_that_run(rows: list[tuple[int, int, int, int]]) -> None:
    group, family = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    start = np.array([r[2] for r in rows], np.int64)
    end = start + np.array([r[3] for r in rows], np.int64)
    time = family_time(group, family, start, end, 3, 4)
    for g in range(3):
        busy, alone, shared = [0] * 4, [0] * 4, [0.0] * 4
        total = 0
        for t in range(60):
            running = {f for gg, f, s, d in rows if gg == g and s <= t < s + d}
            total += bool(running)
            for f in running:
                busy[f] += 1
                shared[f] += 1 / len(running)
                alone[f] += len(running) == 1
        assert time.busy_ns[g].tolist() == busy
        assert time.exclusive_ns[g].tolist() == alone
        # Thirds and quarters are not exact in binary; sums of at most 60 of them.
        assert np.allclose(time.shared_ns[g], shared, rtol=0, atol=1e-9)
        assert time.total_busy_ns[g] == total
        assert np.isclose(time.shared_ns[g].sum(), total, rtol=0, atol=1e-9)
    assert time.sum_ns.sum() == (end - start).sum()


def test_shares_do_not_depend_on_how_steps_fall_into_chunks(monkeypatch) -> None:
    generator = np.random.default_rng(7)
    group = np.sort(generator.integers(0, 50, 2_000))
    family = generator.integers(0, 5, 2_000)
    start = generator.integers(0, 10_000, 2_000)
    end = start + generator.integers(1, 300, 2_000)
    whole = family_time(group, family, start, end, 50, 5)
    monkeypatch.setattr("wavewise.decode.shares._CHUNK_POINTS", 64)
    parts = family_time(group, family, start, end, 50, 5)
    assert (whole.busy_ns == parts.busy_ns).all()
    assert np.allclose(whole.shared_ns, parts.shared_ns)
