"""Regression kriging: a fitted regressor as the mean function of every method."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from commands import dataset, invoke
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import daskgp
from daskgp.errors import InputError, SettingError
from tests.contract import cases

T = np.random.default_rng(5).uniform(-1, 4, (9, 2))


def rows():
    X, y = cases.rows()
    return X, y + 5 * X[:, 0]


@pytest.fixture(scope="module")
def forest():
    return RandomForestRegressor(8, max_depth=3, random_state=0).fit(*rows())


@pytest.mark.filterwarnings("ignore:conjugate gradients")
@pytest.mark.parametrize("name", cases.SETTINGS)
def test_it_is_kriging_of_what_the_regressor_leaves(name, forest, tmp_path):
    X, y = rows()
    model = cases.fixed(name, mean=forest).fit(X, y)
    wanted = cases.fixed(name).fit(X, y - forest.predict(X))
    found, by_hand = cases.moments(model, T), cases.moments(wanted, T)
    np.testing.assert_allclose(found[0], by_hand[0] + forest.predict(T), rtol=1e-12)
    for a, b in zip(found[1:], by_hand[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.objective_ == wanted.objective_
    assert np.isnan(model.predict(np.array([[np.nan, 1.0]]))).all()
    model.save(tmp_path / "model.zarr")
    loaded = daskgp.load(tmp_path / "model.zarr", mean=forest)
    assert loaded.solved_.token == model.solved_.token != wanted.solved_.token
    for one in (loaded, pickle.loads(pickle.dumps(model))):
        lazy = one.predict(da.from_array(T, chunks=(4, 2)))
        np.testing.assert_allclose(lazy.compute(), found[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["exact", "lma", "exact-experts"])
def test_rows_of_a_store_are_predicted_chunk_by_chunk_and_stay_as_they_are(name, tmp_path):
    X, y = rows()
    dataset(tmp_path / "data.zarr", X, y, step=40)
    seen = []

    class Regressor:
        def predict(self, X):
            seen.append(len(X))
            return da.from_array(5 * X[:, 0], chunks=20)

    regressor = Regressor()
    model = cases.fixed(name, mean=regressor, device="cpu").fit(
        *daskgp.open_dataset(tmp_path / "data.zarr")
    )
    assert sorted(seen)[-4:] == [30, 40, 40, 40]
    wanted = cases.fixed(name).fit(da.from_array(X, chunks=(40, 2)), da.from_array(y - 5 * X[:, 0]))
    np.testing.assert_allclose(model.predict(T), wanted.predict(T) + 5 * T[:, 0], rtol=1e-9)
    np.testing.assert_array_equal(daskgp.open_dataset(tmp_path / "data.zarr")[1].compute(), y)


def test_blocks_of_a_prepared_store_hold_what_the_regressor_leaves(forest, tmp_path):
    X, y = rows()
    dataset(tmp_path / "data.zarr", X, y, step=40)
    ready = str(tmp_path / "prepared.zarr")
    daskgp.prepare(str(tmp_path / "data.zarr"), ready, block_rows=30)
    settings = cases.fixed("lma", mean=forest).get_params(deep=False) | {"block_rows": None}
    model = daskgp.LMA(**settings).fit(*daskgp.open_dataset(ready))
    wanted = cases.fixed("lma", mean=forest).fit(X, y)
    np.testing.assert_allclose(model.predict(X), wanted.predict(X), rtol=0.05)
    model.save(tmp_path / "model.zarr")
    loaded = daskgp.load(tmp_path / "model.zarr", mean=forest)
    np.testing.assert_array_equal(loaded.predict(T), model.predict(T))


def test_everything_else_of_a_prediction_has_the_regressor_once(forest):
    X, y = rows()
    model = cases.fixed("sgpr", mean=forest).fit(X, y)
    plain = cases.fixed("sgpr").fit(X, y - forest.predict(X))
    less = forest.predict(T)
    mean, cov = model.predict(T, return_cov=True)
    wanted = plain.predict(T, return_cov=True)
    np.testing.assert_allclose(mean, wanted[0] + less, rtol=1e-12)
    np.testing.assert_array_equal(cov, wanted[1])
    paths, others = model.sample_paths(3)(T), plain.sample_paths(3)(T)
    np.testing.assert_allclose(paths, others + less[:, None], rtol=1e-12)
    average = model.predict_average(T)
    assert average == pytest.approx((mean.mean(), plain.predict_average(T)[1]), rel=1e-9)
    quantiles = model.predict(T, quantiles=(0.1, 0.9))[1]
    own = plain.predict(T, quantiles=(0.1, 0.9))[1]
    np.testing.assert_allclose(quantiles, own + less[:, None], rtol=1e-9)
    chance = plain.predict_exceedance(T[:1], 2.0 - less[0])
    assert model.predict_exceedance(T[:1], 2.0) == pytest.approx(chance, rel=1e-9)
    assert model.score(X, y) == pytest.approx(
        1 - ((y - model.predict(X)) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    )
    expected = daskgp.variogram(X, y, model).expected
    assert np.isfinite(expected).all()


def test_several_targets_and_data_frames_are_those_of_the_regressor():
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b"])
    both = np.column_stack([y, -y])
    regressor = make_pipeline(PolynomialFeatures(2), LinearRegression()).fit(frame, both)
    model = cases.fixed("lma", mean=regressor).fit(frame, both)
    plain = cases.fixed("lma").fit(frame, both - regressor.predict(frame))
    new = pd.DataFrame(T, columns=["a", "b"])
    wanted = plain.predict(new) + regressor.predict(new)
    np.testing.assert_allclose(model.predict(new), wanted, rtol=1e-10)
    one = LinearRegression().fit(frame[["b"]], y)  # a column by its name
    found = cases.fixed("exact", mean=one).fit(frame, y).predict(new)
    plain = cases.fixed("exact").fit(frame, y - one.predict(frame[["b"]]))
    np.testing.assert_allclose(found, plain.predict(new) + one.predict(new[["b"]]), rtol=1e-10)
    with pytest.raises(InputError, match=r"X has no column 'b'.*fitted to these columns") as said:
        cases.fixed("exact", mean=one).fit(X, y)
    assert "\n" not in str(said.value)


def test_copies_keep_the_regressor_fitted(forest):
    X, y = rows()
    model = cases.fixed("sgpr", mean=forest)
    assert clone(model).mean is forest
    assert clone(cases.make("sgpr")).mean == "constant"
    assert np.isfinite(cross_val_score(model, X, y, cv=3)).all()
    assert model.plan(X, y, measure=True).seconds > 0


def test_a_store_wants_the_regressor_of_the_fit_again(forest, tmp_path):
    X, y = rows()
    url = str(tmp_path / "model.zarr")
    cases.fixed("sgpr", mean=forest).fit(X, y).save(url)
    with pytest.raises(SettingError, match=r"residuals of a RandomForestRegressor.*mean=regressor"):
        daskgp.load(url)
    with pytest.raises(InputError, match="is not the regressor of the fit: at a training row"):
        daskgp.load(url, mean=LinearRegression().fit(X, y))
    shown = invoke("info", url)
    assert shown.exit_code == 0
    assert "RandomForestRegressor" in shown.output
    failed = invoke("predict", url, url, tmp_path / "out.zarr")
    assert failed.exit_code == 2
    assert "mean=regressor" in failed.output
    cases.fixed("sgpr").fit(X, y).save(tmp_path / "plain.zarr")
    with pytest.raises(SettingError, match="was fitted without a regressor, leave mean out"):
        daskgp.load(tmp_path / "plain.zarr", mean=forest)


def test_regressors_that_cannot_serve_are_refused(forest):
    X, y = rows()
    for mean, says in (
        (LinearRegression(), "is not fitted: fit it"),
        (LinearRegression, "is a class: give a fitted instance"),
        (LinearRegression().fit(X[:, :1], y), "cannot predict rows of x0, x1"),
        (LinearRegression().fit(X, np.column_stack([y, y])), "gives .* values for"),
    ):
        with pytest.raises(InputError, match=says) as refusal:
            cases.fixed("sgpr", mean=mean).fit(X, y)
        assert "\n" not in str(refusal.value)
    with pytest.raises(SettingError, match="target_transform='log' transforms its"):
        cases.fixed("sgpr", mean=forest, target_transform="log").fit(X, y)
    with pytest.raises(SettingError, match="is a mean of measured targets"):
        daskgp.SVGP(likelihood="poisson", mean=forest).fit(X, np.round(y))


def test_rows_that_arrive_later_are_less_the_regressor_too(forest):
    X, y = rows()
    model, plain = (cases.make("svgp", mean=mean) for mean in (forest, "constant"))
    for part in (slice(0, 75), slice(75, 150)):
        model.partial_fit(X[part], y[part])
        plain.partial_fit(X[part], y[part] - forest.predict(X[part]))
    found = plain.predict(T) + forest.predict(T)
    np.testing.assert_allclose(model.predict(T), found, rtol=1e-10)
