"""Rows of joint targets that come and go, against dense answers for all of them."""

import dask.array as da
import numpy as np
import pytest
import zarr
from commands import invoke, succeed
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import daskgp
from daskgp import kernels, metrics
from daskgp.errors import InputError, SettingError, StoreError
from tests.fit.test_joint import pair

assert_close = np.testing.assert_allclose

X, Y = pair(60)
T = np.random.default_rng(1).uniform(size=(7, 2))
KNOWN = {"optimizer": None, "targets": "joint", "progress": False}


def kernel():
    inner = kernels.Matern52(0.3, active_dims=(0, 1))
    return kernels.Coregion("target", variance=(1.0, 1.2), angle=(0.6,)) * inner


def sgpr(**more):
    return daskgp.SGPR(kernel=kernel(), n_inducing=40, **KNOWN, **more)


def in_units(model, X, y):
    """Values in the model's units and their rows and targets."""
    scale = model.solved_.scaling
    inputs = model.solved_.scaled(X)
    at, of = np.nonzero(np.isfinite(y))
    values = (y - scale.mean_function(inputs)) / scale.y_scale
    return np.column_stack([inputs[at, :2], of]), values[at, of], at, of


def test_update_is_the_dense_answer_for_all_rows():
    model = daskgp.VecchiaGP(kernel(), n_neighbours=200, **KNOWN).fit(X[:40], Y[:40])
    model.update(X[40:], Y[40:])
    rows, values, _, _ = in_units(model, X, Y)
    assert model.n_rows_ == len(values) == np.isfinite(Y).sum()
    learned = model.solved_.theta.kernel
    C = learned(rows) + 0.1 * np.eye(len(values))
    new = np.column_stack([np.repeat(model.solved_.scaled(T)[:, :2], 2, 0), np.tile([0, 1], 7)])
    cross, scale = learned(new, rows), model.solved_.scaling
    mean = (cross @ np.linalg.solve(C, values)).reshape(7, 2) * scale.y_scale + scale.intercept
    variance = learned.diag(new) - (cross * np.linalg.solve(C, cross.T).T).sum(axis=1)
    found, std = model.predict(T, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-3)
    np.testing.assert_allclose(std**2, variance.reshape(7, 2) * scale.y_scale**2, rtol=1e-3)


def titsias(model, X, y, errors, weight):
    """Mean and variance (t, 2) of SGPR in the model's units, from all rows at once."""
    rows, values, at, of = in_units(model, X, y)
    own, Z, unit = model.solved_.theta.kernel, model.solved_.theta.inputs, model.solved_.scaling
    d = 0.1 / weight[at] + errors[at, of] / unit.y_scale[of] ** 2
    new = np.column_stack([np.repeat(model.solved_.scaled(T)[:, :2], 2, 0), np.tile([0, 1], 7)])
    K, U, S = own(Z), own(Z, rows), own(Z, new)
    A = K + (U / d) @ U.T
    mean = S.T @ np.linalg.solve(A, (U / d) @ values)
    reduced = np.linalg.solve(A, S) - np.linalg.solve(K, S)
    return mean.reshape(7, 2), (own.diag(new) + (S * reduced).sum(axis=0)).reshape(7, 2)


def noisy(seed=3):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 1.0, Y.shape) * [0.05, 40.0], rng.uniform(0.5, 2.0, len(Y))


@pytest.mark.parametrize("mean", ["constant", "ols"])
def test_sums_of_sgpr_take_rows_with_their_noise(mean):
    errors, weight = noisy()
    first, more = slice(0, 40), slice(40, 60)

    def rows(part):
        return (X[part], Y[part]), {"y_variance": errors[part], "sample_weight": weight[part]}

    def called(method, part):
        (own, y), noise = rows(part)
        return method(own, y, **noise)

    model = called(sgpr(mean=mean).fit, first)
    before = model.predict(T, return_std=True)
    called(model.update, more)
    m, v = titsias(model, X, Y, errors, weight)
    scale = model.solved_.scaling
    found, std = model.predict(T, return_std=True)
    centre = scale.mean_function(model.solved_.scaled(T))
    np.testing.assert_allclose((found - centre) / scale.y_scale, m, atol=1e-5)
    np.testing.assert_allclose((std / scale.y_scale) ** 2, v, atol=1e-5)
    called(model.forget, more)
    for own, other in zip(model.predict(T, return_std=True), before, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-7)


@given(st.integers(2, 59), st.integers(0, 2))
@settings(max_examples=10, deadline=None)
def test_it_does_not_matter_in_which_calls_rows_came(cut, missing):
    y = Y.copy()
    if missing < 2:
        y[cut:, missing] = np.nan
    model = sgpr().fit(X, Y)
    parts = sgpr().fit(X, Y).update(X[:cut], y[:cut])
    if np.isfinite(y[cut:]).any():
        parts.update(X[cut:], y[cut:])
    model.update(X, y)
    np.testing.assert_allclose(parts.predict(T), model.predict(T), rtol=1e-8)
    assert parts.n_rows_ == model.n_rows_


def test_a_stored_model_takes_rows_of_a_store_that_grows(tmp_path, make_store):
    for name, model in (("sgpr", sgpr()), ("vecchia", daskgp.VecchiaGP(kernel(), **KNOWN))):
        url = make_store(X[:40], Y[:40], 20, url=tmp_path / name)
        stored = str(tmp_path / f"{name}-model")
        model.fit(*daskgp.open_dataset(url)).save(stored)
        group = zarr.open_group(url, mode="r+")
        for array, values in (("X", X), ("y", Y)):
            group[array].resize((60, 2))
            group[array][40:] = values[40:]
        said = succeed("update", stored, url)
        assert (said["rows"], said["skipped"], said["total"]) == (20, 40, np.isfinite(Y).sum())
        model.update(X[40:], Y[40:])
        loaded = daskgp.load(stored)
        np.testing.assert_allclose(loaded.predict(T), model.predict(T), rtol=1e-9)
        assert loaded.solved_.joint
        assert str(loaded.hyperparameters_) == str(model.hyperparameters_)
        assert invoke("update", stored, url).exit_code == 0


def test_a_window_forgets_the_oldest_rows(tmp_path, make_store):
    model = sgpr().fit(*daskgp.open_dataset(make_store(X[:40], Y[:40], 20)))
    group = zarr.open_group(tmp_path / "data.zarr", mode="r+")
    for array, values in (("X", X), ("y", Y)):
        group[array].resize((60, 2))
        group[array][40:] = values[40:]
    before = np.isfinite(Y[20:]).sum()
    model.update(*daskgp.open_dataset(str(tmp_path / "data.zarr")), window=40)
    assert model.n_rows_ == before


def test_rows_that_cannot_come_or_go_are_refused():
    model, other = sgpr().fit(X[:40], Y[:40]), daskgp.VecchiaGP(kernel(), **KNOWN)
    infinite, none = Y[40:].copy(), np.full((5, 2), np.nan)
    infinite[3, 1] = np.inf
    for error, call, words in (
        (InputError, lambda: model.update(X[40:], infinite), "target 'y1' has 1 infinite"),
        (InputError, lambda: model.update(X[:5], none), "none of 5 has all features"),
        (InputError, lambda: model.update(X[:5], Y[:5, :1]), "has 1 targets"),
        (SettingError, lambda: model.update(X, Y, y_variance=np.ones(60)), r"\(60, 2\)"),
        (InputError, lambda: model.forget(X[:5] + 9.0, Y[:5]), "not rows of the model"),
        (SettingError, lambda: other.fit(X, Y).forget(X, Y), "fit the rows that stay"),
        (SettingError, lambda: daskgp.ExactGP(**KNOWN).fit(X, Y).update(X, Y), "no update here"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_values_of_an_earlier_store_that_cannot_be_told_are_not_left_out():
    model = sgpr().fit(X, Y)
    assert np.isfinite(model.loo(X, Y)[0]).any()
    for note in model._fitted.seen:
        del note["values"]
    with pytest.raises(StoreError, match=r"stored by an earlier version .*: fit it again"):
        model.loo(X, Y)


LOOED = {
    "exact": lambda **kw: daskgp.ExactGP(kernel(), **KNOWN, **kw),
    "vecchia": lambda **kw: daskgp.VecchiaGP(kernel(), n_neighbours=200, **KNOWN, **kw),
    "lma": lambda **kw: daskgp.LMA(kernel(), block_rows=40, markov_order=2, **KNOWN, **kw),
}


@pytest.mark.parametrize("mean", ["constant", "ols"])
@pytest.mark.parametrize("name", LOOED)
def test_each_value_is_predicted_from_all_others(name, mean):
    errors, weight = noisy()
    noise = {"y_variance": errors, "sample_weight": weight}
    model = LOOED[name](mean=mean).fit(X, Y, **noise)
    found, std = model.loo(X, Y, **noise)
    lazy = [da.from_array(a, chunks=(20, 2)) for a in (X, Y)]
    assert_close(model.loo(*lazy, **noise)[0].compute(), found, rtol=1e-10)
    rows, values, at, of = in_units(model, X, Y)
    scale = model.solved_.scaling
    C = model.solved_.theta.kernel(rows)
    C += np.diag(0.1 / weight[at] + errors[at, of] / scale.y_scale[of] ** 2)
    precision = np.linalg.inv(C)
    left, variance = values - precision @ values / precision.diagonal(), 1 / precision.diagonal()
    centre = np.broadcast_to(scale.mean_function(model.solved_.scaled(X)), Y.shape)
    assert_close(((found - centre) / scale.y_scale)[at, of], left, atol=2e-3)
    assert_close(((std / scale.y_scale) ** 2)[at, of], variance, rtol=2e-3)
    assert np.isnan(found[np.isnan(Y)]).all()
    with pytest.raises(InputError, match="have another y"):
        model.loo(X, Y * 1.1, **noise)


def test_each_value_of_sums_is_predicted_as_if_it_were_forgotten(tmp_path):
    model = sgpr(mean="ols").fit(X, Y)
    found, std = model.loo(X, Y)
    assert_close(model.loo(X[::-1], Y[::-1])[0], found[::-1], rtol=1e-10)
    for i, j in ((3, 0), (10, 1), (20, 1)):
        alone = np.full((1, 2), np.nan)
        alone[0, j] = Y[i, j]
        other = sgpr(mean="ols").fit(X, Y)
        if np.isfinite(Y[i, j]):
            other.forget(X[[i]], alone)
            mean, spread = other.predict(X[[i]], return_std=True, include_noise=True)
            assert_close(found[i, j], mean[0, j], rtol=1e-8)
            assert_close(std[i, j], spread[0, j], rtol=1e-8)
    model.save(f"{tmp_path}/m")
    assert_close(daskgp.load(f"{tmp_path}/m").loo(X, Y)[0], found, rtol=1e-12)
    with pytest.raises(InputError, match="rows are not those"):
        model.loo(X[:-1], Y[:-1])
    model.update(X, Y)
    twice = np.concatenate([X, X]), np.concatenate([Y, Y])
    assert model.loo(*twice)[0].shape == (120, 2)


def test_models_of_the_same_rows_in_other_units_are_not_taken_for_one_another():
    first, other = (LOOED["vecchia"](mean=mean).fit(X, Y) for mean in ("constant", "ols"))
    a, b = first.loo(X, Y)[0], other.loo(X, Y)[0]
    assert np.nanmax(np.abs(a - b)) > 1e-3


def test_loo_scores_are_those_of_the_values():
    found = daskgp.cross_validate(LOOED["exact"](), X, Y, folds="loo")
    mean, std = LOOED["exact"]().fit(X, Y).loo(X, Y)
    each = metrics.summary(Y, mean, std**2, multioutput="raw_values")
    for j, own in enumerate(found.targets.values()):
        assert_close(own.pooled["rmse"], each["rmse"][j])
        assert_close(own.pooled["nlpd"], each["nlpd"][j])


@pytest.mark.parametrize("gaps", ["some", "all"])
def test_a_check_has_scores_by_target_region_and_distance(gaps):
    errors, y = noisy()[0], Y.copy()
    if gaps == "all":  # no row has both targets
        y[::2, 0], y[1::2, 1] = np.nan, np.nan
    model = LOOED["exact"]().fit(X[:40], y[:40], y_variance=errors[:40])
    test = X[40:] + 0.02, y[40:]
    found = daskgp.check(model, *test, y_variance=errors[40:], regions=2, distances=2)
    mean = model.predict(test[0])
    for j, own in enumerate(found.targets.values()):
        assert own["n"] == np.isfinite(test[1][:, j]).sum()
        assert own["rmse"] == pytest.approx(metrics.rmse(test[1][:, j], mean[:, j]))
    assert sum(row["n"] for row in found.regions) == found.n
    assert sum(row["n"] for row in found.distances) == found.n
    for rows in (found.regions, found.distances):
        for j, name in enumerate(found.targets):
            own = [row for row in rows if row["target"] == name]
            squares = sum(row["n"] * row["rmse"] ** 2 for row in own)
            assert sum(row["n"] for row in own) == found.targets[name]["n"]
            wanted = np.nansum((test[1][:, j] - mean[:, j]) ** 2)
            assert squares == pytest.approx(wanted)
    text = str(found)
    assert text.startswith("by target:")
    assert "all targets together, each in its own unit:" in text
    axes = daskgp.plot.distances(found, axes=Figure().subplots(1, 2))
    assert len(axes[1].lines) == 3  # two targets, and 1
    assert "in units of x0, x1" in found.distance
    assert found.sample.y.shape[1] == 2


def test_targets_in_another_unit_are_told(caplog):
    model = sgpr().fit(X[:40], Y[:40])
    model.update(X[40:], Y[40:])
    assert "left out" not in caplog.text
    model.update(X[40:], Y[40:] * [1.0, 1000.0])
    assert "'y1'" in caplog.text


def test_evidence_is_in_the_units_of_the_targets(tmp_path):
    model = LOOED["exact"]().fit(X, Y)
    rows, values, _, of = in_units(model, X, Y)
    scale = model.solved_.scaling.y_scale[of]
    C = (model.solved_.theta.kernel(rows) + 0.1 * np.eye(len(values))) * np.outer(scale, scale)
    own = values * scale
    value = own @ np.linalg.solve(C, own) + np.linalg.slogdet(C)[1] + len(own) * np.log(2 * np.pi)
    assert model.log_marginal_likelihood() == pytest.approx(-0.5 * value, rel=1e-9)
    model.save(f"{tmp_path}/m")
    again = daskgp.load(f"{tmp_path}/m").log_marginal_likelihood()
    assert again == model.log_marginal_likelihood()
    parts = sgpr().fit(X[:40], Y[:40]).update(X[40:], Y[40:])
    counts = np.isfinite(Y).sum(axis=0)
    np.testing.assert_array_equal(parts._fitted.values, counts)
    np.testing.assert_array_equal(
        parts.forget(X[40:], Y[40:])._fitted.values, np.isfinite(Y[:40]).sum(axis=0)
    )
