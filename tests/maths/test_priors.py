"""Priors of hyper-parameters, against scipy.stats and by integration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from daskgp import priors

EVERY = (
    priors.LogNormal(3.0, 0.7),
    priors.InverseGamma(2.5, 4.0),
    priors.ShortRange(2.0, 0.1, dims=2),
    priors.ShortRange(2.0, 0.1, dims=3),
    priors.LargeDeviation(1.5, 0.02),
)


@pytest.mark.parametrize("prior", EVERY, ids=str)
def test_the_density_integrates_to_one(prior):
    total, _ = integrate.quad(lambda v: np.exp(prior.log_density(v)[0]), -60, 60, limit=500)
    assert total == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("prior", EVERY, ids=str)
@given(v=st.floats(-4, 4))
def test_the_derivative_is_that_of_differences(prior, v):
    step = 1e-5
    slope = (prior.log_density(v + step)[0] - prior.log_density(v - step)[0]) / (2 * step)
    assert prior.log_density(v)[1] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@given(v=st.floats(-5, 5))
def test_densities_are_those_of_scipy(v):
    x = np.exp(v)
    lognormal = stats.lognorm(0.7, scale=3.0).logpdf(x) + v
    assert priors.LogNormal(3.0, 0.7).log_density(v)[0] == pytest.approx(lognormal)
    inverse = stats.invgamma(2.5, scale=4.0).logpdf(x) + v
    assert priors.InverseGamma(2.5, 4.0).log_density(v)[0] == pytest.approx(inverse)


def test_tails_have_the_probability_asked_for():
    short, large = priors.ShortRange(2.0, 0.1, dims=2), priors.LargeDeviation(1.5, 0.02)
    below, _ = integrate.quad(lambda v: np.exp(short.log_density(v)[0]), -50, np.log(2.0))
    above, _ = integrate.quad(lambda v: np.exp(large.log_density(v)[0]), 2 * np.log(1.5), 50)
    assert below == pytest.approx(0.1, rel=1e-6)
    assert above == pytest.approx(0.02, rel=1e-6)


@pytest.mark.parametrize("prior", EVERY, ids=str)
def test_text_describes_a_prior(prior):
    assert priors.parse(str(prior)) == prior


@pytest.mark.parametrize("prior", EVERY, ids=str)
def test_values_far_away_have_finite_derivatives_or_none(prior):
    for v in (-300.0, 300.0):
        value, slope = prior.log_density(v)
        assert not np.isnan(value)
        assert not np.isnan(slope)
