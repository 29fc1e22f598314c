"""Which GPU records cannot be true; and that no legitimate overlap is ever among them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wavewise.trace.plausible import MISSING, REASONS, GpuRecords, judge
from wavewise.units import NS_PER_S

BASE = 5 * 10**15


def reasons(rows: list[tuple[int, int, int, int]], host: tuple[int, int] | None = None) -> list[str | None]:
    """Of (lane, start, duration, correlation)."""
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    found = judge(GpuRecords(*columns), *(host or ()))
    return [REASONS[number - 1] if number else None for number in found.tolist()]


def stream(count: int, gap: int = 100, length: int = 2000, lane: int = 0) -> list[tuple[int, int, int, int]]:
    """Operations one after another, each with a launch of its own."""
    return [(lane, BASE + i * (length + gap), length, i + 1) for i in range(count)]


def test_a_sound_stream_is_sound() -> None:
    assert set(reasons(stream(100))) == {None}


def test_overlap_by_dependent_launch_is_legitimate() -> None:
    rows = stream(50)
    # Each starts early, right behind its predecessor's start: the most that dependent launch can do.
    early = [(lane, BASE + i * 200, 2000 + 200 * i, i + 1) for i, (lane, *_) in enumerate(rows)]
    assert set(reasons(early)) == {None}


def test_a_long_kernel_is_legitimate_whatever_its_length() -> None:
    rows = stream(20)
    last = rows[-1][1] + 10_000
    long = (0, last, 600 * NS_PER_S, 99)
    after = [(0, last + 600 * NS_PER_S + i * 100, 50, 200 + i) for i in range(20)]
    beside = stream(2000, lane=1)
    assert set(reasons([*rows, long, *after, *beside])) == {None}


def test_branches_of_one_graph_on_one_stream_are_legitimate() -> None:
    rows = [(0, BASE, 50_000, 7), *[(0, BASE + 100 + 10 * i, 5, 7) for i in range(100)], *stream(3)]
    rows[-3:] = [(0, BASE + 60_000 + 10 * i, 5, 8 + i) for i in range(3)]
    assert set(reasons(rows)) == {None}


def test_a_record_that_covers_later_work_of_its_stream_is_impossible() -> None:
    for duration in (20_000, 41 * NS_PER_S, 3600 * NS_PER_S, 2**62):
        rows = stream(100)
        rows[40] = (*rows[40][:2], duration, rows[40][3])
        got = reasons(rows)
        assert got[40] == "impossible_duration"
        assert [i for i, reason in enumerate(got) if reason] == [40]


def test_two_impossible_records_do_not_hide_each_other() -> None:
    rows = stream(100)
    for at in (10, 11, 60):
        rows[at] = (*rows[at][:2], 3600 * NS_PER_S, rows[at][3])
    assert [i for i, reason in enumerate(reasons(rows)) if reason] == [10, 11, 60]


def test_an_impossible_record_in_a_graph_is_told_by_later_launches() -> None:
    rows = [(0, BASE + 1000 * i, 900, 1 + i // 30) for i in range(300)]
    rows[35] = (0, rows[35][1], 3600 * NS_PER_S, 2)
    assert [i for i, reason in enumerate(reasons(rows)) if reason] == [35]


def test_the_last_record_of_a_stream_cannot_outlast_the_recording_a_hundredfold() -> None:
    rows = stream(50)
    rows[-1] = (*rows[-1][:2], 3600 * NS_PER_S, 50)
    assert reasons(rows)[-1] == "impossible_duration"
    # Unless the host was there all the while.
    assert reasons(rows, (BASE, BASE + 3600 * NS_PER_S))[-1] is None
    # Nine seconds are a long kernel, and nothing contradicts it.
    rows[-1] = (*rows[-1][:2], 9 * NS_PER_S, 50)
    assert reasons(rows)[-1] is None


def test_absent_and_negative_numbers() -> None:
    rows = [*stream(3), (0, MISSING, 5, 9), (0, BASE, MISSING, 9), (0, BASE, -1, 9), (0, MISSING, MISSING, 9)]
    assert reasons(rows)[3:] == ["missing_time", "missing_duration", "negative_duration", "missing_time"]


def test_time_zero_counts_only_where_the_rest_is_far_away() -> None:
    assert reasons([*stream(5), (0, 0, 0, 9), (0, 0, 7, 9), (0, -5, 7, 9)])[5:] == ["zero_timestamp"] * 3
    # A trace whose clock starts at zero.
    assert reasons([(0, 0, 900, 1), (0, 1000, 900, 2), (0, 2000, 900, 3)]) == [None] * 3
    assert reasons([(0, 0, 0, 1), (0, 1000, 900, 2)]) == ["zero_timestamp", None]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.integers(1, 10**9)), min_size=1, max_size=60
    ),
    st.integers(0, 500),
)
def test_no_stream_order_is_ever_called_impossible(parts: list[tuple[int, int, int]], overlap: int) -> None:
    """Any lengths and gaps, several streams, each next operation starting up to `overlap` ns early and ending late."""
    ends = dict.fromkeys(range(4), BASE)
    rows: list[tuple[int, int, int, int]] = []
    for i, (lane, gap, length) in enumerate(parts):
        start = max(ends[lane] + gap - overlap, BASE)
        end = max(start + length, ends[lane])
        rows.append((lane, start, end - start, i + 1))
        ends[lane] = end
    assert set(reasons(rows)) == {None}


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 30_000), st.integers(1, 9)),
        max_size=40,
    )
)
def test_the_fast_search_agrees_with_the_rule_as_written(rows: list[tuple[int, int, int, int]]) -> None:
    rows = [(lane, BASE + start, duration, correlation) for lane, start, duration, correlation in rows]
    if not rows:
        return
    want: list[bool] = []
    for i, (lane, start, duration, correlation) in enumerate(rows):
        inside = [
            other
            for j, other in enumerate(rows)
            if j != i and other[0] == lane and start < other[1] and other[1] + other[2] < start + duration
            and other[3] != correlation
        ]  # fmt: skip
        want.append(len(inside) >= 3)
    assert [reason == "impossible_duration" for reason in reasons(rows)] == want
