"""Rows of joint targets that come and go, against dense answers for all of them."""

import numpy as np
import pytest
import zarr
from commands import invoke, succeed
from hypothesis import given, settings
from hypothesis import strategies as st

import daskgp
from daskgp import kernels
from daskgp.errors import InputError, SettingError
from tests.fit.test_joint import pair

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


def test_targets_in_another_unit_are_told(caplog):
    model = sgpr().fit(X[:40], Y[:40])
    model.update(X[40:], Y[40:])
    assert "left out" not in caplog.text
    model.update(X[40:], Y[40:] * [1.0, 1000.0])
    assert "'y1'" in caplog.text
