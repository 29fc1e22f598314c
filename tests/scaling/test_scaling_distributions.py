"""Student's t and F against SciPy."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from wavewise.scaling.distributions import f_survival, incomplete_beta, student_975

SHAPES = st.floats(0.25, 400.0)


@given(a=SHAPES, b=SHAPES, x=st.floats(0.0, 0.999))
@settings(max_examples=400)
def test_incomplete_beta_agrees_with_scipy(a: float, b: float, x: float) -> None:
    # 1e-10: both sides lose digits to log-gamma differences of large shapes.
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-10)


def test_incomplete_beta_at_its_end() -> None:
    assert incomplete_beta(2.0, 3.0, 1.0) == 1.0


@pytest.mark.parametrize("dof", [1.0, 1.3, 2.0, 3.7, 5.0, 10.0, 29.5, 100.0, 1e4])
def test_student_quantile_agrees_with_scipy(dof: float) -> None:
    assert student_975(dof) == pytest.approx(stats.t.ppf(0.975, dof), rel=1e-9)


def test_student_quantile_tends_to_the_normal_one() -> None:
    assert student_975(math.inf) == pytest.approx(stats.norm.ppf(0.975), rel=1e-12)
    assert student_975(1e9) == pytest.approx(student_975(math.inf), rel=1e-6)


@given(f=st.floats(0.0, 1e6), d1=st.floats(0.5, 60.0), d2=st.floats(1.0, 200.0))
@settings(max_examples=300)
def test_f_survival_agrees_with_scipy(f: float, d1: float, d2: float) -> None:
    assert f_survival(f, d1, d2) == pytest.approx(stats.f.sf(f, d1, d2), abs=1e-10)


def test_f_survival_at_its_ends() -> None:
    assert f_survival(0.0, 2.0, 3.0) == 1.0
    assert f_survival(math.inf, 2.0, 3.0) == 0.0
