"""Grid formulas: exact, and nothing but arithmetic."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.errors import UsageError
from wavewise.occupancy import grid_of, numbers_of, variables_of


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 64))
def test_arithmetic_is_exact(b, split, tile):
    variables = {"B": b, "nsplit": split, "T": tile}
    assert grid_of("ceil(B*2*nsplit)", variables) == (2 * b * split, 1, 1)
    assert grid_of("ceil(B/T) + 1", variables) == (math.ceil(Fraction(b, tile)) + 1, 1, 1)
    assert grid_of("cdiv(B, T)", variables) == (-(-b // tile), 1, 1)
    assert grid_of("max(B, T) // min(B, T)", variables) == (max(b, tile) // min(b, tile), 1, 1)
    assert grid_of("B, T, nsplit if B >= T else 1", variables) == (b, tile, split if b >= tile else 1)


def test_a_division_that_floats_would_round_up_is_not():
    assert grid_of("ceil(B * 0.1 / 0.3)", {"B": 3}) == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "grid"),
    [("256", (256, 1, 1)), ("32x2x4", (32, 2, 4)), ("32,2,4", (32, 2, 4)), (" 8 X 2 ", (8, 2, 1))],
)
def test_plain_grids(text, grid):
    assert grid_of(text) == grid


def test_names_that_need_values():
    assert variables_of("ceil(B*2*nsplit) if H > 3 else cdiv(B, T)") == {"B", "nsplit", "H", "T"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__import__('os').system('true')", "not allowed"),
        ("B**B", "not allowed"),
        ("B.real", "not allowed"),
        ("[B]", "not allowed"),
        ("'a'", "not allowed"),
        ("f(B)", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("B << 3", "not allowed"),
        ("max(*B)", "max does not take 1"),
        ("x", "needs a value for 'x': --let x=..."),
        ("ceil(B, B)", "ceil does not take 2"),
        ("1/0", "divides by zero"),
        ("B/2", "gives 1.5 CTAs at B=3"),
        ("B-3", "gives 0 CTAs at B=3"),
        ("-4", "gives -4 CTAs"),
        ("-4x2", "gives -4 CTAs"),
        ("1,2,3,4", "one to three"),
        ("()", "one to three"),
        ("B if B else 1", "is no condition"),
        ("9999999999*9999999999", "too large"),
        ("", "no formula"),
        ("2 +", "no formula"),
        ("(" * 1500 + "1" + ")" * 400, "no formula"),
        ("1+" * 1500 + "1", "too long"),
    ],
)
def test_anything_else_is_refused_in_one_line(text, words):
    with pytest.raises(UsageError) as caught:
        grid_of(text, {"B": 3})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("5", [5]), ("1,2,4", [1, 2, 4]), ("1:4", [1, 2, 3, 4]), ("0:10:4,7", [0, 4, 8, 7]), ("1_000", [1000])],
)
def test_lists_of_numbers(text, numbers):
    assert numbers_of(text, "batches") == numbers


@pytest.mark.parametrize("text", ["", "a", "1:2:3:4", "4:1", "1:9:0", "-1", "0:9999999", "1.5", "1,,2"])
def test_lists_that_mean_nothing(text):
    with pytest.raises(UsageError, match="batches"):
        numbers_of(text, "batches")
