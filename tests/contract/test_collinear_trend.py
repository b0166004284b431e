"""Columns of a trend that are linear combinations of one another."""

import numpy as np
import pytest

import daskgp
from daskgp.errors import InputError
from daskgp.kernels import Matern32
from tests.commands import invoke
from tests.logs import warnings_in

METHODS = {
    "sgpr": (daskgp.SGPR, {"n_inducing": 20}),
    "exact": (daskgp.ExactGP, {}),
    "lma": (daskgp.LMA, {"n_support": 10, "block_rows": 20}),
}


def made(name, mean, **more):
    kind, own = METHODS[name]
    # the kernel sees the first column alone, so that others are those of the trend
    settings = {"kernel": Matern32(0.5, 2.0, active_dims=0), "noise_variance": 0.05}
    return kind(mean=mean, optimizer=None, progress=False, **settings, **own, **more)


def rows(kind, n=90):
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(0, 3, n), rng.normal(5, 2, n), rng.normal(-1, 0.5, n)
    X = {
        "twice": np.column_stack([a, b, 1e3 * b - 40, c]),
        "sum": np.column_stack([a, b, c, 2 * b - 3 * c + 1]),
        "shares": np.column_stack([a, *np.eye(3)[rng.integers(0, 3, n)].T]),
    }[kind]
    y = np.sin(3 * a) + 0.5 * X[:, 1] + 2 * X[:, 2] / np.std(X[:, 2]) + 0.2 * rng.normal(size=n)
    return X, y


LAST = {"twice": [1, 2], "sum": [1, 2, 3], "shares": [1, 2, 3]}
LEFT = {"twice": ["x1", "x3"], "sum": ["x1", "x2"], "shares": ["x1", "x2"]}


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("name", METHODS)
def test_collinear_columns_are_named_and_predict_as_without_one(name, kind, tmp_path, caplog):
    X, y = rows(kind)
    group = LAST[kind]
    model = made(name, ["x1", "x2", "x3"]).fit(X, y)
    (said,) = [line for line in warnings_in(caplog) if "linear combinations" in line]
    named = [f"'x{j}'" for j in group]
    assert said.startswith(f"columns {', '.join(named[:-1])} and {named[-1]} are linear")
    model.save(tmp_path / "m.zarr")
    T = X[:5] + np.array([0.05, 0, 0, 0])
    fewer = made(name, LEFT[kind]).fit(X, y)
    for one in (model, daskgp.load(tmp_path / "m.zarr")):
        errors = {row.name: row.standard_error for row in one.trend_}
        assert [errors[f"x{j}"] for j in group] == [np.inf] * len(group)
        if kind == "twice":
            wanted = {row.name: row.standard_error for row in fewer.trend_}
            assert errors["x3"] == pytest.approx(wanted["x3"], rel=1e-5)
        assert any("do not tell their slopes apart" in remark for remark in one.trend_.remarks)
        for a, b in zip(one.predict(T, True), fewer.predict(T, True), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        away = T.copy()
        away[1:3, group[0]] += 0.5
        mean, std = one.predict(away, return_std=True)
        assert np.isfinite(mean).all()
        np.testing.assert_array_equal(np.isinf(std), [False, True, True, False, False])
        for ask in (
            lambda one, T: one.predict(T, return_cov=True),
            lambda one, T: one.predict_average(T),
            lambda one, T: one.sample_paths(2)(T),
        ):
            with pytest.raises(InputError, match="but not at 2 of 5 places"):
                ask(one, away)
        assert np.isfinite(one.sample_paths(2)(T)).all()
        assert np.isfinite(one.predict(T, return_cov=True)[1]).all()


def test_the_standard_deviation_grows_without_bound_with_that_of_the_slopes():
    """A flat prior is the limit of wide ones: at a place off the plane there is no finite value."""
    X, y = rows("twice")
    model = made("exact", ["x1", "x2"]).fit(X, y)
    scale, kernel = model.solved_.scaling, model.solved_.theta.kernel
    H = (X[:, 1:3] - X[:, 1:3].mean(axis=0)) / X[:, 1:3].std(axis=0)
    T = X[:2] + np.array([[0.1, 0, 0, 0], [0.1, 1, 0, 0]])
    t = (T[:, 1:3] - X[:, 1:3].mean(axis=0)) / X[:, 1:3].std(axis=0)
    U, V = scale.inputs(X), scale.inputs(T)
    found = []
    for wide in (1e2, 1e4):
        C = kernel(U) + 0.05 * np.eye(len(X)) + wide * (1 + H @ H.T)
        k = kernel(V, U) + wide * (1 + t @ H.T)
        prior = kernel.diag(V) + wide * (1 + (t**2).sum(axis=1))
        variance = prior - (k * np.linalg.solve(C, k.T).T).sum(axis=1)
        found.append(np.sqrt(variance) * scale.y_scale[0])
    _, std = model.predict(T, return_std=True)
    assert found[1][0] == pytest.approx(std[0], rel=1e-3)
    assert found[1][1] > 9 * found[0][1]
    assert np.isinf(std[1])


def test_columns_that_are_hardly_collinear_have_finite_errors(caplog):
    X, y = rows("twice")
    X[:, 2] += np.random.default_rng(3).normal(0, 2.0, len(X))  # one in a thousand
    model = made("exact", ["x1", "x2"]).fit(X, y)
    assert not [line for line in warnings_in(caplog) if "linear combinations" in line]
    assert all(np.isfinite(row.standard_error) for row in model.trend_)
    assert not model.trend_.remarks


def test_the_command_shows_them(tmp_path):
    X, y = rows("twice")
    made("sgpr", "linear").fit(X, y).save(tmp_path / "m.zarr")
    shown = " ".join(invoke("info", tmp_path / "m.zarr").output.split())
    assert "'x1' and 'x2' are linear combinations" in shown
    assert invoke("info", tmp_path / "m.zarr", "--json").exit_code == 0


@pytest.mark.parametrize("transform", [None, "log", "sqrt", "boxcox"])
def test_what_is_unknown_has_a_median_and_no_bounds(transform):
    X, y = rows("twice")
    y = np.exp(0.1 * y) if transform else y
    model = made("sgpr", ["x1", "x2"], target_transform=transform).fit(X, y)
    T = X[:2] + np.array([[0, 0, 0, 0], [0, 1, 0, 0]])
    _, std = model.predict(T, return_std=True)
    np.testing.assert_array_equal(np.isinf(std), [False, True])
    _, found = model.predict(T, quantiles=(0.05, 0.5, 0.95))
    assert np.isfinite(found[0]).all()
    assert np.isfinite(found[1, 1])
    assert found[1, 0] == (0.0 if transform else -np.inf)
    assert found[1, 2] > 1e300
    assert model.predict_exceedance(T, float(y.mean()))[1] == pytest.approx(0.5, abs=1e-9)
