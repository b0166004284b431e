"""Quantiles and probabilities of new observations against integrals by SciPy."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import daskgp
from daskgp.likelihoods import Bernoulli, Poisson, StudentT
from daskgp.posterior.layers import Response
from daskgp.posterior.layers.chain import Outer

LEVELS = (0.01, 0.25, 0.5, 0.95)
quick = settings(max_examples=8, deadline=None)


def given_f(likelihood):
    """The distribution of observations, given the Gaussian of f."""
    return Outer([Response(likelihood)])


def below(likelihood, m, s, y):
    """P(y' <= y), integrated over f."""
    if isinstance(likelihood, StudentT):
        conditional = lambda f: stats.t.cdf((y - f) / likelihood.scale, likelihood.df)  # noqa: E731
    else:
        conditional = lambda f: stats.poisson.cdf(y, np.exp(f))  # noqa: E731
    found, _ = integrate.quad(
        lambda z: stats.norm.pdf(z) * conditional(m + s * z), -9, 9, limit=500, epsabs=1e-8
    )
    return found


@quick
@given(m=st.floats(-3, 3), s=st.floats(0.01, 5), scale=st.floats(0.05, 3), df=st.floats(2.1, 50))
def test_quantiles_of_heavy_tails_are_where_the_integral_says(m, s, scale, df):
    likelihood = StudentT(scale, df)
    found = given_f(likelihood).quantiles(np.array([m]), np.array([s]), LEVELS)[0]
    for level, y in zip(LEVELS, found, strict=True):
        assert below(likelihood, m, s, y) == pytest.approx(level, abs=2e-6)
    chance = given_f(likelihood).exceedance(np.array([m]), np.array([s]), 1.0)[0]
    assert chance == pytest.approx(1 - below(likelihood, m, s, 1.0), abs=2e-6)


@quick
@given(m=st.floats(-4, 7), s=st.floats(0.001, 2))
def test_quantiles_of_counts_are_the_least_that_are_enough(m, s):
    found = given_f(Poisson()).quantiles(np.array([m]), np.array([s]), LEVELS)[0]
    for level, count in zip(LEVELS, found, strict=True):
        assert below(Poisson(), m, s, count) >= level - 2e-4
        assert count == 0 or below(Poisson(), m, s, count - 1) <= level + 2e-4
    for limit in (-0.5, 0.0, 2.7):
        chance = given_f(Poisson()).exceedance(np.array([m]), np.array([s]), limit)[0]
        wanted = 1 - below(Poisson(), m, s, np.floor(limit))
        assert chance == pytest.approx(wanted, abs=2e-4)


def test_large_counts_and_missing_values():
    m, s = np.array([15.0, 20.0, np.nan, 3.0]), np.array([0.5, 1e-6, 0.1, np.nan])
    found = given_f(Poisson()).quantiles(m, s, (0.1, 0.9))
    np.testing.assert_allclose(found[0], stats.lognorm.ppf([0.1, 0.9], 0.5, scale=np.exp(15)), 1e-3)
    np.testing.assert_allclose(found[1], stats.poisson.ppf([0.1, 0.9], np.exp(20)), rtol=1e-6)
    assert np.isnan(found[2:]).all()
    assert np.isnan(given_f(Poisson()).exceedance(m, s, 1.0)[2:]).all()


def fitted(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (150, 2))
    y = 5 + 20 * np.sin(2 * X[:, 0]) + 2 * rng.standard_t(4, 150)
    if likelihood == "poisson":
        y = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0]))).astype(float)
    model = daskgp.SVGP(
        n_inducing=20, likelihood=likelihood, batch_rows=50, max_iter=30, progress=False
    )
    return model.fit(X, y), X, y


@pytest.mark.parametrize("likelihood", ["student-t", "poisson"])
def test_predictions_have_the_quantiles_of_their_likelihood(likelihood, tmp_path):
    model, X, y = fitted(likelihood)
    levels = (0.1, 0.9)
    mean, found = model.predict(X, quantiles=levels, include_noise=True)
    np.testing.assert_allclose(mean, model.predict(X, return_std=True, include_noise=True)[0])
    inside = ((y >= found[:, 0]) & (y <= found[:, 1])).mean()
    assert inside > 0.7
    latent, std = model.predict(X, return_std=True)
    unit = model.solved_.scaling.y_scale[0]
    draws = np.random.default_rng(1).normal(latent, std, (4_000, len(X)))
    if likelihood == "poisson":
        draws = np.random.default_rng(2).poisson(np.exp(draws))
    else:
        noise = np.random.default_rng(2).standard_t(model.likelihood_.df, draws.shape)
        draws = draws + unit * model.likelihood_.scale * noise
    share = (draws <= found[:, 1]).mean(axis=0), (draws < found[:, 1]).mean(axis=0)
    assert (share[0] > 0.9 - 0.02).all()
    assert (share[1] < 0.9 + 0.02).all()
    limit = float(np.median(y))
    chance = model.predict_exceedance(X, limit, include_noise=True)
    np.testing.assert_allclose(chance, (draws > limit).mean(axis=0), atol=0.04)
    lazy = model.predict(da.from_array(X, chunks=(40, 2)), quantiles=levels, include_noise=True)[1]
    assert lazy.chunks == ((40, 40, 40, 30), (2,))
    np.testing.assert_allclose(lazy.compute(), found, rtol=1e-6)
    axes = {"x0": np.linspace(0, 3, 5), "x1": np.linspace(0, 3, 4)}
    grid = xr.DataArray(np.zeros((5, 4)), axes)
    field = model.predict(grid, quantiles=levels, include_noise=True)[1]
    assert field.dims == ("x0", "x1", "quantile")
    model.predict_store(grid, str(tmp_path / "m.zarr"), quantiles=levels, exceedance=limit)
    stored = xr.open_zarr(tmp_path / "m.zarr")
    np.testing.assert_allclose(stored["quantiles"].values, field.values, rtol=1e-6)
    chances = model.predict_exceedance(grid, limit, include_noise=True)
    np.testing.assert_allclose(stored["exceedance"].values, chances.values, rtol=1e-6)


def test_gaussians_are_those_of_scipy():
    m, s = np.array([[0.0, 1.0]]), np.array([[2.0, 0.5]])
    found = Outer().quantiles(m, s, LEVELS)
    np.testing.assert_allclose(found, stats.norm.ppf(LEVELS, m[..., None], s[..., None]))
    np.testing.assert_allclose(Outer().exceedance(m, s, 1.0), stats.norm.sf(1.0, m, s))


def test_classes_say_what_they_have_instead():
    with pytest.raises(daskgp.errors.SettingError, match="predict_proba"):
        given_f(Bernoulli()).check("quantiles")
