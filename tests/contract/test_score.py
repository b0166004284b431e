"""Scores with weights and error variances of the rows, for every method."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import accuracy_score, r2_score

import daskgp
from daskgp.errors import InputError, SettingError
from tests.contract import cases

WEIGHTS = np.random.default_rng(2).uniform(0.0, 3.0, cases.N) * (np.arange(cases.N) % 7 > 0)
ERRORS = np.random.default_rng(1).uniform(0.0, 0.5, cases.N)


@pytest.mark.parametrize("name", cases.SETTINGS)
def test_rows_weigh_by_the_inverse_of_their_noise_variance(name):
    X, y = cases.rows()
    y[3] = np.nan
    model = cases.fixed(name, noise_variance=0.2).fit(X, y)
    mean, known = model.predict(X), ~np.isnan(y)

    def r2(weights):
        return r2_score(y[known], mean[known], sample_weight=weights[known])

    noise = model.noise_variance_ * model.solved_.scaling.y_scale[0] ** 2
    both = WEIGHTS / (noise + WEIGHTS * ERRORS)
    lazy = [da.from_array(a, chunks=(40, *a.shape[1:])) for a in (X, y, WEIGHTS, ERRORS)]
    assert model.score(X, y, WEIGHTS) == pytest.approx(r2(WEIGHTS), rel=1e-9)
    assert model.score(X, y, y_variance=ERRORS) == pytest.approx(r2(1 / (noise + ERRORS)), rel=1e-9)
    found = model.score(X, y, WEIGHTS[:, None], y_variance=ERRORS)
    assert found == pytest.approx(r2(both), rel=1e-9)
    lazily = model.score(*lazy[:2], sample_weight=lazy[2], y_variance=lazy[3])
    assert lazily == pytest.approx(found, rel=1e-6)
    assert model.score(X, y, 2.0) == pytest.approx(model.score(X[known], y[known]), rel=1e-9)


@pytest.mark.parametrize("what", ["sample_weight", "y_variance"])
def test_impossible_weights_are_refused(what):
    X, y = cases.rows()
    model = cases.fixed("exact").fit(X, y)
    for bad in (np.nan, np.inf, -1.0):
        given = np.where(np.arange(len(y)) == 3, bad, WEIGHTS)
        for each in (given, da.from_array(given)):
            with pytest.raises(
                InputError, match=f"{what} is missing, infinite or negative in 1 row:"
            ):
                model.score(X, y, **{what: each})
    with pytest.raises(
        InputError, match=rf"{what} has shape \(3,\), but one number per row is needed"
    ):
        model.score(X, y, **{what: WEIGHTS[:3]})
    with pytest.raises(InputError, match="no score: no row with a weight has all features"):
        model.score(X, y, sample_weight=0.0)


def test_several_targets_and_classes_have_weights():
    X, y = cases.rows()
    Y = np.stack([y, y**2], axis=1)
    model = cases.fixed("exact").fit(X, Y)
    wanted = r2_score(Y, model.predict(X), sample_weight=WEIGHTS)
    assert model.score(X, Y, WEIGHTS) == pytest.approx(wanted, rel=1e-9)
    classes = (y > 0).astype(float)
    model = cases.make("svgp", likelihood="bernoulli").fit(X, classes)
    likelier = model.predict_proba(X)[:, 1] > 0.5
    wanted = accuracy_score(classes, likelier, sample_weight=WEIGHTS)
    assert model.score(X, classes, WEIGHTS) == pytest.approx(wanted, rel=1e-9)
    with pytest.raises(SettingError, match="only Gaussian noise has known error variances"):
        model.score(X, classes, y_variance=ERRORS)


def test_weights_of_a_grid_are_on_it():
    coords = {"a": np.linspace(0, 3, 10), "b": np.linspace(0, 3, 15)}
    _, y = cases.rows()
    field = xr.DataArray(y.reshape(10, 15), coords, ("a", "b"), "y")
    weights = field.copy(data=WEIGHTS.reshape(10, 15))
    model = cases.fixed("exact").fit(field, field)
    wanted = r2_score(y, model.predict(field).values.ravel(), sample_weight=WEIGHTS)
    for given in (weights, weights.T, weights.chunk(a=4), weights.values):
        assert model.score(field, field, given) == pytest.approx(wanted, rel=1e-9)
    one = weights.isel(b=0, drop=True) + 0.1
    everywhere = (one + 0 * field).values.ravel()
    wanted = r2_score(y, model.predict(field).values.ravel(), sample_weight=everywhere)
    assert model.score(field, field, one) == pytest.approx(wanted, rel=1e-9)
    with pytest.raises(
        InputError, match="sample_weight is missing, infinite or negative in 10 row"
    ):
        model.score(field, field, weights.where(weights.b > 0))
    with pytest.raises(InputError, match="sample_weight is not on the grid of X"):
        model.score(field, field, weights.isel(a=slice(4)))
    assert isinstance(model, daskgp.ExactGP)
