"""Transforms of targets against SciPy's log-normal, Box-Cox and integrals."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from daskgp.models import transform
from daskgp.models.transform import Transform

quick = settings(max_examples=20, deadline=None)
KINDS = {"log": 0.0, "sqrt": 0.5, "boxcox": 0.3}
each = pytest.mark.parametrize("kind", KINDS)


def make(kind, power=None):
    return Transform(kind, np.array([KINDS[kind] if power is None else power]))


@each
@quick
@given(y=st.floats(1e-6, 1e6))
def test_the_inverse_undoes_the_transform(kind, y):
    one = make(kind)
    np.testing.assert_allclose(one.inverse(one.forward(np.array([y]))), [y], rtol=1e-9)
    step = 1e-6 * y
    slope = (one.forward(y + step) - one.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(one.log_slope(np.array([y]))), slope, rtol=1e-5)


@quick
@given(m=st.floats(-3, 3), s=st.floats(0.01, 2))
def test_the_logarithm_gives_the_log_normal(m, s):
    law, one = stats.lognorm(s, scale=np.exp(m)), make("log")
    mean, variance = one.moments(np.array([[m]]), np.array([[s**2]]))
    np.testing.assert_allclose([mean[0, 0], variance[0, 0]], [law.mean(), law.var()], rtol=1e-9)
    y = law.ppf([0.1, 0.5, 0.99])
    np.testing.assert_allclose(one.log_density(y, m, s**2), law.logpdf(y), rtol=1e-9)


@pytest.mark.parametrize(("kind", "power"), [("sqrt", 0.5), ("boxcox", 0.3), ("boxcox", 1.4)])
@quick
@given(m=st.floats(-1, 6), s=st.floats(0.05, 1))
@example(m=0.5, s=1.0)  # a kink within a standard deviation or two
@example(m=1.9829114303928628, s=0.8727948736136051)
def test_moments_are_those_of_the_integral(kind, power, m, s):
    one = make(kind, power)
    mean, variance = (a[0, 0] for a in one.moments(np.array([[m]]), np.array([[s**2]])))
    kink = np.clip((one.forward(np.zeros(1)) - m) / s, -9, 9)

    def average(of):
        inside = lambda x: stats.norm.pdf(x) * of(float(one.inverse(np.array([m + s * x]))[0]))  # noqa: E731
        return integrate.quad(inside, -9, 9, limit=500, points=kink)[0]

    wanted = average(lambda y: y)
    assert mean == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    spread = average(lambda y: (y - wanted) ** 2)
    assert variance == pytest.approx(spread, rel=1e-4, abs=1e-6)


def test_zero_has_the_probability_of_all_that_is_below():
    one = make("sqrt")
    assert one.log_density(np.array([0.0]), 0.5, 4.0)[0] == pytest.approx(
        stats.norm.logcdf(-0.25), rel=1e-12
    )
    total = integrate.quad(lambda y: np.exp(one.log_density(np.array([y]), 0.5, 4.0)[0]), 1e-12, 90)
    assert total[0] == pytest.approx(stats.norm.cdf(0.25), rel=1e-4)


@pytest.mark.parametrize("power", [0.0, 0.25, 0.7, 1.5])
def test_the_power_is_the_likeliest_of_scipy(power):
    z = np.random.default_rng(0).normal(4, 0.6, 3_000)
    y = np.column_stack([Transform("boxcox", np.array([power])).inverse(z), np.exp(z)])
    parts = [transform.local("boxcox", part) for part in np.array_split(y, [100, 100, 1_500])]
    total = parts[0]
    for part in parts[1:]:
        total = transform.combine(total, part)
    found = transform.fitted("boxcox", total)
    for j in range(2):
        wanted = stats.boxcox_normmax(y[:, j], brack=(-0.5, 2.5), method="mle")
        assert found.powers[j] == pytest.approx(max(wanted, 0.0), abs=2e-3)
    assert found.log_slopes == pytest.approx(found.log_slope(y).sum(), rel=1e-9)


def test_bad_values_are_counted():
    y = np.array([[1.0, 0.0], [-2.0, 3.0], [5.0, 1.0]])
    np.testing.assert_array_equal(transform.local("log", y).bad, [1, 1])
    np.testing.assert_array_equal(transform.local("sqrt", y).bad, [1, 0])
