"""HurdleGP: moments and probabilities against draws of its two parts, and what it refuses."""

import errno
import logging
import pickle
from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from scipy import integrate, stats
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daskgp
from daskgp import HurdleGP, kernels, likelihoods
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.likelihoods.hurdle import Hurdle

KERNEL = kernels.RBF(lengthscale=0.3, variance=1.0)
FIXED = {"optimizer": None, "progress": False, "mean": "zero"}


def hurdle(likelihood="gamma"):
    parts = ("bernoulli-logit", likelihood)
    return HurdleGP(*(daskgp.ExactGP(KERNEL, likelihood=one, **FIXED) for one in parts))


def rows(n=40):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 1))
    wet = np.sin(8 * X[:, 0]) + 0.3 * rng.standard_normal(n) > 0
    return X, wet * np.exp(X[:, 0]) * rng.gamma(3.0, 1 / 3, n)


@pytest.mark.parametrize(("name", "shape"), [("gamma", 0.4), ("gamma", 9.0), ("lognormal", 1.5)])
def test_the_ranked_probability_score_is_its_integral(name, shape):
    amounts, at = likelihoods.by_name(name, [np.log(shape)]), (np.array([0.4]), np.array([0.3]))
    t = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, 40_001)])
    for p in (0.1, 0.7):
        one = Hurdle(np.array([p]), amounts, *at)
        below = 1.0 - p + p * amounts.cdf(t, *(np.broadcast_to(a, t.shape) for a in at))
        for y in (0.0, 0.3, 40.0):
            wanted = np.trapezoid((below - (t >= y)) ** 2, t)
            assert one.crps(np.array([y]))[0] == pytest.approx(wanted, rel=2e-4)


@pytest.mark.parametrize("shape", [0.005, 0.02, 0.1])
def test_the_score_is_its_integral_for_amounts_of_a_small_shape(shape):
    amounts, p, log_ends = likelihoods.by_name("gamma", [np.log(shape)]), 0.7, [-80, -20, -5, 0, 9]
    one = Hurdle(np.array([p]), amounts, np.array([0.4]), np.array([1e-3]))
    for y in (0.0, 1e-5, 0.3):

        def integrand(log_t, y=y):
            t = np.exp(log_t)
            below = 1.0 - p + p * stats.gamma.cdf(t, shape, scale=np.exp(0.4) / shape)
            return t * (below - (t >= y)) ** 2

        ends = sorted([*log_ends, *np.log([y] if y else [])])
        wanted = sum(integrate.quad(integrand, *pair)[0] for pair in pairwise(ends))
        assert one.crps(np.array([y]))[0] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("likelihood", ["gamma", "lognormal"])
def test_predictions_are_those_of_draws_of_the_parts(likelihood):
    X, y = rows()
    model = hurdle(likelihood).fit(X, y)
    T, levels = np.array([[0.1], [0.45], [0.8]]), [0.1, 0.6, 0.95]
    mean, std, quantiles = model.predict(T, return_std=True, quantiles=levels)
    rng, draws = np.random.default_rng(1), 200_000
    f, spread = model.amount_.predict(T, return_std=True)
    p = model.predict_proba(T)[:, 1]
    sampled = model.amount_.likelihood_.sample(
        f + spread * rng.standard_normal((draws, len(T))), rng
    )
    drawn = np.where(rng.uniform(size=sampled.shape) < p, sampled, 0.0)
    np.testing.assert_allclose(mean, drawn.mean(axis=0), rtol=0.03)
    np.testing.assert_allclose(std, drawn.std(axis=0), rtol=0.06)
    np.testing.assert_allclose(
        quantiles, np.quantile(drawn, levels, axis=0).T, rtol=0.04, atol=1e-2
    )
    np.testing.assert_allclose(
        model.predict_exceedance(T, 0.7), (drawn > 0.7).mean(axis=0), atol=0.01
    )
    np.testing.assert_allclose(model.predict_exceedance(T, 0.0), p, rtol=1e-12)


def test_rows_of_no_weight_are_left_out_of_both_parts():
    X, y = rows()
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    weighted, kept = hurdle().fit(X, y, sample_weight=weight), weight > 0
    others = hurdle().fit(X[kept], y[kept])
    assert weighted.n_rows_ == kept.sum()
    np.testing.assert_allclose(weighted.predict(X), others.predict(X), rtol=1e-6)
    halves = hurdle().fit(X, y, sample_weight=0.5).predict(X, return_std=True)
    wholes = hurdle().fit(X, y).predict(X, return_std=True)
    assert halves[1].mean() > wholes[1].mean()


@pytest.mark.parametrize("overwrite", [False, True])
def test_one_model_does_not_take_the_place_of_several(overwrite, tmp_path):
    model, url = hurdle().fit(*rows()), tmp_path / "h.zarr"
    model.save(url)
    with pytest.raises(StoreError, match="exists already: remove it or choose another path"):
        daskgp.ExactGP(KERNEL, **FIXED).fit(*rows()).save(url, overwrite=overwrite)
    assert isinstance(daskgp.load(url), HurdleGP)


def test_several_models_replace_several_and_loaded_ones_keep_predicting(tmp_path):
    X, y = rows(60)
    url, models = tmp_path / "h.zarr", [hurdle().fit(X[:n], y[:n]) for n in (40, 50, 60)]
    models[0].save(url)
    with pytest.raises(
        StoreError, match=r"save\(\.\.\., overwrite=True\) replaces the model there"
    ):
        models[1].save(url)
    loaded = daskgp.load(url)
    for model in (models[1], loaded, models[2]):  # a loaded one over the one that replaced it
        model.save(url, overwrite=True)
        np.testing.assert_array_equal(daskgp.load(url).predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict(X), models[0].predict(X))
    places = sorted(path.name for path in (url / "models").iterdir())
    assert len([name for name in places if name != "zarr.json"]) == 2, "the last and the one before"
    assert not (url / "occurrence").exists()
    labels = np.where(y > 0, "wet", "dry")
    classes = daskgp.GPClassifier(daskgp.ExactGP(KERNEL, **FIXED)).fit(X, labels)
    classes.save(url, overwrite=True)
    assert (daskgp.load(url).predict(X) == classes.predict(X)).all()
    with pytest.raises(SettingError, match="overwrite='no': choose one of True, False"):
        classes.save(url, overwrite="no")
    models[0].amount_.save(tmp_path / "one.zarr")
    with pytest.raises(StoreError, match="which several do not replace"):
        models[0].save(tmp_path / "one.zarr", overwrite=True)
    models[0].save(tmp_path / "new.zarr", overwrite=True)
    assert daskgp.load(tmp_path / "new.zarr").amount_.n_rows_ == models[0].amount_.n_rows_


def test_loaded_models_that_read_rows_of_a_store_replace_it_again_and_again(tmp_path):
    X, y = rows(60)
    field, url = daskgp.VecchiaGP(KERNEL, n_neighbours=10, **FIXED), tmp_path / "c.zarr"
    classes = daskgp.GPClassifier(field).fit(X, np.where(y > 0, "wet", "dry"))
    classes.save(url)
    loaded, expected = daskgp.load(url), classes.predict_proba(X)
    for _ in range(4):
        loaded.save(url, overwrite=True)
        for model in (loaded, daskgp.load(url)):
            np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-6)


@pytest.mark.parametrize("place", ["abc", "../x", 3])
def test_a_store_of_several_with_a_damaged_place_is_refused(place, tmp_path):
    model, url = hurdle().fit(*rows()), str(tmp_path / "h.zarr")
    model.save(url)
    zarr.open_group(url).attrs["place"] = place
    for act in (lambda: daskgp.load(url), lambda: model.save(url, overwrite=True)):
        with pytest.raises(StoreError, match="is damaged: it has no models at"):
            act()


def test_a_replacement_that_fails_leaves_the_models_there(tmp_path):
    X, y = rows()
    model, other, url = hurdle().fit(X, y), hurdle().fit(X[:40], y[:40]), tmp_path / "h.zarr"
    model.save(url)

    def failing(*_, **__):
        raise OSError(errno.ENOSPC, "no space")

    other.amount_.save = failing
    with pytest.raises(StoreError, match="the disk is full"):
        other.save(url, overwrite=True)
    np.testing.assert_array_equal(daskgp.load(url).predict(X), model.predict(X))
    del other.amount_.save
    other.save(url, overwrite=True)
    np.testing.assert_array_equal(daskgp.load(url).predict(X), other.predict(X))


def test_weights_of_a_store_are_those_of_its_rows(tmp_path, caplog):
    X, y = rows()
    weight = (np.arange(len(y)) % 3 > 0) * (1.0 + np.arange(len(y)) % 2)
    np.savez(tmp_path / "rows.npz", u=X[:, 0], y=y, w=weight, e=np.ones(len(y)))
    source, url = str(tmp_path / "rows.npz"), str(tmp_path / "rows.zarr")
    daskgp.convert(source, url, "y", ["u"], 13, weight="w", y_std="e")
    stored, kept = daskgp.open_dataset(url), weight > 0
    model = hurdle().fit(*stored)
    assert "the store of y has y_variance, which HurdleGP does not take" in caplog.text
    assert "changed copy" not in caplog.text
    wanted = hurdle().fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(model.predict(X), wanted.predict(X), rtol=1e-6)
    assert model.scores(*stored) == pytest.approx(model.scores(X[kept], y[kept]), rel=1e-9)
    given = model.score(X, y, sample_weight=weight)
    assert model.score(*stored) == pytest.approx(given)
    whole, plain = hurdle().fit(*stored, sample_weight=False), hurdle().fit(X, y)
    np.testing.assert_allclose(whole.predict(X), plain.predict(X), rtol=1e-6)


def test_scores_are_those_of_draws_of_both_parts():
    X, y = rows(60)
    model = hurdle().fit(X, y)
    T, seen = X[::7], y[::7]
    found = model.scores(T, seen)
    rng, draws = np.random.default_rng(1), 20_000
    f, spread = model.amount_.predict(T, return_std=True)
    p = model.predict_proba(T)[:, 1]
    sampled = model.amount_.likelihood_.sample(
        f + spread * rng.standard_normal((draws, len(T))), rng
    )
    drawn = np.sort(np.where(rng.uniform(size=sampled.shape) < p, sampled, 0.0), axis=0)
    weight = (2.0 * np.arange(1, draws + 1) - draws - 1)[:, None]  # of half the mean distance
    crps = np.abs(drawn - seen).mean(axis=0) - (weight * drawn).sum(axis=0) / draws**2
    assert found["crps"] == pytest.approx(crps.mean(), rel=0.02)
    error = seen - model.predict(T)
    assert found["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert (found["n"], found["bias"]) == (len(T), pytest.approx(error.mean()))
    assert found["brier"] == pytest.approx(((p - (seen > 0)) ** 2).mean())
    wet, moments = seen > 0, (f[:, None], spread[:, None] ** 2)
    amounts = model.amount_.likelihood_.log_density(np.maximum(seen, 0.1)[:, None], *moments)[:, 0]
    density = np.where(wet, np.log(p) + amounts, np.log1p(-p))[(seen > 0.1) | ~wet]
    own = np.flatnonzero((seen > 0.1) | ~wet)
    assert model.scores(T[own], seen[own])["nlpd"] == pytest.approx(-density.mean())


def test_scores_are_the_same_for_lazy_rows_and_on_grids():
    X, y = rows()
    model = hurdle().fit(X, y)
    wanted = model.scores(X, y)
    lazy = model.scores(da.from_array(X, chunks=(15, 1)), da.from_array(y, chunks=20))
    order = np.argsort(X[:, 0])
    grid = xr.DataArray(y[order], coords={"x": X[order, 0]}, dims="x")
    there = grid.coords.to_dataset()
    of_grid = hurdle().fit(there, grid)
    assert lazy == pytest.approx(wanted, rel=1e-9)
    assert of_grid.scores(there, grid) == pytest.approx(wanted, rel=1e-6)
    assert of_grid.scores(there.chunk(x=9), grid) == pytest.approx(wanted, rel=1e-6)
    gap = np.r_[np.nan, y[1:]]
    assert model.scores(X, gap)["n"] == len(y) - 1
    with pytest.raises(InputError, match="y has the value -1, and amounts are 0 or more"):
        model.scores(X, y - 1.0 * (y == 0))
    with pytest.raises(InputError, match="nothing to score"):
        model.scores(X, np.full(len(y), np.nan))
    with pytest.raises(InputError, match="y has 39 rows and X has 40"):
        model.scores(X, y[1:])


def test_noise_cannot_be_left_out():
    X, y = rows()
    model = hurdle().fit(X, y)
    np.testing.assert_array_equal(model.predict(X, include_noise=True), model.predict(X))
    for call in (model.predict, lambda *a, **k: model.predict_exceedance(*a, 0.5, **k)):
        with pytest.raises(SettingError, match="HurdleGP predicts only new observations"):
            call(X, include_noise=False)


def test_zeros_are_no_missing_values(caplog):
    X, y = rows()
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = hurdle().fit(X, y)
    assert "missing values" not in caplog.text
    assert (model.n_rows_, model.amount_.n_rows_) == (len(y), (y > 0).sum())


def test_rows_of_dask_and_of_a_grid_are_those_in_memory(tmp_path):
    X, y = rows()
    model = hurdle().fit(X, y)
    lazy = hurdle().fit(da.from_array(X, chunks=(15, 1)), da.from_array(y, chunks=15))
    wanted = model.predict(X, return_std=True, quantiles=[0.3, 0.9])
    found = lazy.predict(da.from_array(X, chunks=(15, 1)), return_std=True, quantiles=[0.3, 0.9])
    for one, other in zip(wanted, found, strict=True):
        assert isinstance(other, da.Array)
        assert other.shape == one.shape
        np.testing.assert_allclose(other.compute(), one, rtol=1e-6, atol=1e-9)
    order = np.argsort(X[:, 0])
    grid = xr.DataArray(y[order], coords={"x": X[order, 0]}, dims="x", name="rain")
    there = grid.coords.to_dataset()
    on_grid = hurdle().fit(there, grid)
    np.testing.assert_allclose(on_grid.predict(there).values, wanted[0][order], rtol=1e-6)
    assert on_grid.score(there, grid) == pytest.approx(model.score(X, y), rel=1e-6)
    _, levels = on_grid.predict(there, quantiles=[0.3, 0.9])
    assert levels.dims == ("x", "quantile")
    np.testing.assert_allclose(levels.sel(quantile=0.9), wanted[2][order, 1], rtol=1e-6, atol=1e-9)
    model.save(str(tmp_path / "model.zarr"))
    for again in (pickle.loads(pickle.dumps(model)), daskgp.load(tmp_path / "model.zarr")):
        np.testing.assert_array_equal(again.predict(X), wanted[0])
        assert repr(again) == repr(model)


def test_it_is_a_regressor_of_scikit_learn():
    X, y = rows()
    model = clone(hurdle()).set_params(amount__likelihood="lognormal")
    assert model.get_params()["amount__likelihood"] == "lognormal"
    scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=2)
    assert np.isfinite(scores).all()
    model.fit(X, y)
    weight = np.r_[0.0, np.ones(len(y) - 1)]
    wanted = model.score(X, y, sample_weight=weight)
    gap = np.r_[np.nan, y[1:]]
    assert model.score(X, gap) == pytest.approx(wanted)
    assert model.score(X, gap, sample_weight=weight) == pytest.approx(wanted)


def test_scores_take_weights_of_any_shape_and_refuse_others():
    X, y = rows()
    model, own = hurdle().fit(X, y), np.arange(1.0, len(y) + 1)
    wanted = model.score(X, y, sample_weight=own)
    assert wanted != model.score(X, y) == model.score(X, y, sample_weight=2.0)
    for given in (own[:, None], own.tolist(), da.from_array(own, chunks=7)):
        assert model.score(X, y, sample_weight=given) == pytest.approx(wanted)
    for weight, said in (
        (own[1:], "but one number per row is needed"),
        (-own, "sample_weight is missing, infinite or negative in"),
        (0 * own, "nothing to score: no row has all features and a known target, and a sample_w"),
    ):
        with pytest.raises(InputError, match=said):
            model.score(X, y, sample_weight=weight)
    with pytest.raises(InputError, match="y has 20 rows and X has"):
        model.score(X, y[:20])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y - 0.1, "negative values, and amounts are 0 or more"),
        (lambda y: y + 0.1, "no zeros, so there is no occurrence to learn: fit the estimator"),
        (lambda y: 0.0 * y, "no positive value"),
        (lambda y: np.where(y > 0, np.inf, y), "infinite values: correct them"),
        (lambda y: None, "HurdleGP requires y"),
        (lambda y: y.astype(str), "give HurdleGP amounts as numbers"),
    ],
)
def test_amounts_that_cannot_be_fitted_are_refused(change, message):
    X, y = rows()
    with pytest.raises(InputError, match=message):
        hurdle().fit(X, change(y))


@pytest.mark.parametrize("kind", [np.asarray, da.from_array])
def test_infinite_amounts_are_refused_by_scores_as_by_a_fit(kind):
    X, y = rows()
    model = hurdle().fit(X, y)
    for wrong in (np.inf, -np.inf):
        y[3] = wrong
        for scores in (model.scores, model.score):
            with pytest.raises(InputError, match="y has 1 infinite value: correct them, or set "):
                scores(kind(X), kind(y))
    with pytest.raises(InputError, match="give HurdleGP amounts as numbers"):
        model.scores(X, y.astype(str))


def test_settings_that_cannot_be_used_are_refused():
    X, y = rows()
    for settings in ({"amount": daskgp.ExactGP()}, {"occurrence": daskgp.ExactGP()}):
        with pytest.raises(SettingError, match="has likelihood='gaussian': HurdleGP takes"):
            HurdleGP(**settings).fit(X, y)
    with pytest.raises(SettingError, match="give an estimator, such as"):
        HurdleGP(amount="gamma").fit(X, y)
    model = hurdle().fit(X, y)
    with pytest.raises(SettingError, match="0 or more"):
        model.predict_exceedance(X, -1.0)
    with pytest.raises(SettingError, match="levels between 0 and 1"):
        model.predict(X, quantiles=[1.0])


def test_checks_and_cross_validation_say_to_take_its_parts():
    X, y = rows()
    model = hurdle().fit(X, y)
    for call, words in ((daskgp.check, "model.amount_ with X"), (daskgp.cross_validate, "both")):
        with pytest.raises(SettingError, match=words):
            call(model, X, y)
