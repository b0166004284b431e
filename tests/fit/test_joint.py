"""Joint targets against a dense coregionalisation, and what users see of them."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import kernels
from daskgp.errors import InputError, SettingError

METHODS = {
    "exact": lambda **kw: daskgp.ExactGP(**kw),
    "sgpr": lambda **kw: daskgp.SGPR(n_inducing=66, **kw),
    "lma": lambda **kw: daskgp.LMA(block_rows=20, n_support=16, markov_order=2, **kw),
    "vecchia": lambda **kw: daskgp.VecchiaGP(n_neighbours=60, **kw),
}


def pair(n=40, seed=0, gaps=True):
    """Rows with two targets of different units that go together, some missing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    K = kernels.Matern52(0.3)(X) + 1e-10 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal((n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    y = f * [1.0, 30.0] + [5.0, 100.0] + rng.standard_normal((n, 2)) * [0.1, 6.0]
    if gaps:
        y[rng.uniform(size=n) < 0.3, 1] = np.nan
        y[0] = np.nan
    return X, y


def dense(X, y, Z, kernel, B, noise):
    """Mean (t, p) and covariance (t p, t p) of targets about their means, in their spreads."""
    p, known = y.shape[1], np.isfinite(y)
    mean, scale = np.nanmean(y, axis=0), np.nanstd(y, axis=0)
    at, of = np.nonzero(known)
    values = ((y - mean) / scale)[known]
    C = kernel(X)[np.ix_(at, at)] * B[np.ix_(of, of)] + np.diag(noise[of])
    to, what = np.divmod(np.arange(len(Z) * p), p)
    cross = kernel(Z, X)[np.ix_(to, at)] * B[np.ix_(what, of)]
    found = cross @ np.linalg.solve(C, values)
    prior = kernel(Z)[np.ix_(to, to)] * B[np.ix_(what, what)]
    both = np.tile(scale, len(Z))
    covariance = (prior - cross @ np.linalg.solve(C, cross.T)) * np.outer(both, both)
    value = -0.5 * (values @ np.linalg.solve(C, values) + np.linalg.slogdet(C)[1])
    return (
        (found * both).reshape(-1, p) + mean,
        covariance,
        value - 0.5 * len(values) * np.log(2 * np.pi),
    )


@pytest.mark.parametrize("name", METHODS)
def test_joint_targets_are_the_dense_coregionalisation(name):
    X, y = pair()
    Z = np.random.default_rng(1).uniform(size=(7, 2))
    inner = kernels.Matern52(0.3, active_dims=(0, 1))
    mixed = kernels.Coregion("target", variance=(1.0, 1.2), angle=(0.6,))
    model = METHODS[name](kernel=mixed * inner, optimizer=None, targets="joint", progress=False)
    model.fit(X, y)
    mean, covariance, value = dense(X, y, Z, kernels.Matern52(0.3), mixed_of(), np.full(2, 0.1))
    atol = 1e-7 if name == "exact" else 2e-3
    found, std = model.predict(Z, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=atol)
    np.testing.assert_allclose(std.ravel() ** 2, covariance.diagonal(), rtol=10 * atol)
    if name == "exact":
        assert model.objective_ == pytest.approx(value, abs=1e-6)
        both = model.predict(Z, return_cov=True)[1]
        np.testing.assert_allclose(both.reshape(14, 14), covariance, rtol=1e-5, atol=1e-6)


def mixed_of():
    """B of the kernel above."""
    c = np.sqrt(1.2) * np.cos(0.6)
    return np.array([[1.0, c], [c, 1.2]])


def test_one_that_is_known_tells_of_the_other_which_has_a_noise_of_its_own(tmp_path):
    X, y = pair(150, gaps=False)
    gaps = y.copy()
    gaps[30:, 1] = np.nan
    model = daskgp.ExactGP("matern52()", targets="joint", progress=False).fit(X, gaps)
    alone = daskgp.ExactGP("matern52()", progress=False).fit(X[:30], y[:30, 1])
    assert model.n_rows_ == 180
    error = np.std(model.predict(X[30:])[:, 1] - y[30:, 1])
    assert error < 0.95 * np.std(alone.predict(X[30:]) - y[30:, 1])
    table = {one.name: one for one in model.hyperparameters_}
    noise = table["noise_variance[y0]"]
    assert abs(noise.value - 0.01) < 3 * noise.standard_error
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    for kwargs in ({"return_std": True}, {"return_cov": True, "include_noise": True}):
        for own, other in zip(
            model.predict(X[:5], **kwargs), loaded.predict(X[:5], **kwargs), strict=True
        ):
            np.testing.assert_array_equal(own, other)
    assert str(loaded.hyperparameters_) == str(model.hyperparameters_)
    assert loaded.sample_y(X[:4], 3).shape == (4, 2, 3)


def test_evidence_is_at_a_maximum_by_the_noise_of_each_target():
    X, y = pair(100)
    model = daskgp.ExactGP("matern52()", targets="joint", progress=False).fit(X, y)
    solved = model.solved_
    kernel = solved.theta.kernel

    def value(noise):
        X_, known = np.asarray(solved.scaled(X)), np.isfinite(y)
        at, of = np.nonzero(known)
        rows = np.column_stack([X_[at, :2], of])
        values = ((y - np.nanmean(y, axis=0)) / np.nanstd(y, axis=0))[known]
        C = kernel(rows) + np.diag(noise[of])
        return -0.5 * (values @ np.linalg.solve(C, values) + np.linalg.slogdet(C)[1])

    noise = model.noise_variance_
    best = value(noise)
    for step in np.vstack([np.eye(2), -np.eye(2)]):
        assert value(noise * np.exp(0.3 * step)) < best + 0.02


def test_what_does_not_go_with_joint_targets_is_refused():
    X, y = pair()
    cases = [
        (daskgp.ExactGP(targets="joint"), y[:, 0], {}, "several targets"),
        (daskgp.ExactGP(targets="joint"), y, {"y_variance": np.ones(len(y))}, "y_variance"),
        (daskgp.ExactGP(targets="joint", mean="linear"), y, {}, "mean='ols'"),
        (daskgp.ExactGP(targets="joint", fixed={"noise_variance": 0.1}), y, {}, "leave it out of"),
        (daskgp.VecchiaGP(targets="joint", varying=2), y, {}, "leave varying out"),
        (daskgp.CGGP(targets="joint"), y, {}, "choose VecchiaGP"),
        (daskgp.ExactGP(targets="both"), y, {}, "joint"),
        (daskgp.ExactGP('coregion("target")*rbf()'), y[:, 0], {}, "targets='joint'"),
    ]
    for model, given, kwargs, words in cases:
        with pytest.raises(InputError, match=words):
            model.set_params(progress=False).fit(X, given, **kwargs)
    model = daskgp.ExactGP(targets="joint", optimizer=None, progress=False).fit(X, y)
    for refused in (model.sample_paths, lambda: model.update(X, y)):
        with pytest.raises(SettingError, match="joint"):
            refused()


def test_targets_that_tell_of_no_other_are_refused_by_name():
    X, y = pair()
    for values, words in (
        (np.nan, "target 'y1' has 0 usable values"),
        (7.0, "target 'y1' is 7 in"),
    ):
        y[:, 1] = values
        with pytest.raises(InputError, match=words):
            daskgp.ExactGP(targets="joint", progress=False).fit(X, y)


def test_a_target_without_noise_settles(caplog):
    X, y = pair(60, gaps=False)
    y[:, 0] = np.sin(3 * X[:, 0])
    model = daskgp.ExactGP("rbf()", targets="joint", progress=False).fit(X, y)
    assert "settled" not in caplog.text
    with pytest.raises(SettingError, match="a check of joint targets"):
        daskgp.check(model, X, y)


def test_a_regressor_is_the_mean_and_fill_values_of_places_are_missing():
    X, y = pair(60, gaps=False)
    y[:, 0] += 50.0 * X[:, 0]
    regressor = LinearRegression().fit(X, y)
    y[::4, 1] = np.nan
    settings = {"kernel": "matern52()", "targets": "joint", "progress": False}
    model = daskgp.ExactGP(mean=regressor, **settings).fit(X, y)
    Z = X + 0.01
    np.testing.assert_allclose(model.predict(Z)[:, 0], y[:, 0], atol=2.0)
    plain = daskgp.ExactGP(**settings).fit(X, y)
    poisson = daskgp.ExactGP("rbf()", likelihood="poisson", progress=False)
    for one in (plain, poisson.fit(X, np.round(np.exp(X[:, 0])))):
        Z[0, 0] = -9999.0
        with pytest.warns(UserWarning, match="read as a missing value"):
            assert np.isnan(one.predict(Z)[0]).all()
