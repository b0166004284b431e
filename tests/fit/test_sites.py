"""Likelihoods by Gaussian sites against the dense variational posterior, and what users meet."""

from functools import partial

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.stats import t as student
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.assess.loo import leave_one_out
from daskgp.errors import DaskgpError, InputError, NumericalError, SettingError
from daskgp.fit import sites
from daskgp.likelihoods import REGISTRY, by_name
from tests import oracle

KERNEL = kernels.Matern32(lengthscale=0.4, variance=1.3)
NAMES = ("bernoulli", "bernoulli-logit", "poisson")
COMMITTEE = {"aggregation": "poe", "noise_in_experts": True}
FIXED = {"optimizer": None, "mean": "zero", "progress": False}


def data(name, n=36, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    f = np.linalg.cholesky(KERNEL(X) + 1e-10 * np.eye(n)) @ rng.standard_normal(n)
    return X, np.asarray(by_name(name).sample(f, rng), np.float64)


def dense(likelihood, X, y, Z):
    K, across = KERNEL(X), KERNEL(Z, X)
    m, V, bound = oracle.gaussian_approximation(likelihood, K, y)
    A = np.linalg.solve(K, across.T).T
    variance = KERNEL.diag(Z) - np.einsum("ij,ij->i", A, across) + np.einsum("ij,jk,ik->i", A, V, A)
    return A @ m, np.sqrt(variance), bound


def methods(n):
    return {
        "exact": daskgp.ExactGP(KERNEL, **FIXED),
        "vecchia": daskgp.VecchiaGP(KERNEL, n_neighbours=n, predict_neighbours=n, **FIXED),
        "lma": daskgp.LMA(KERNEL, n_support=8, block_rows=12, markov_order=2, **FIXED),
        "sgpr": daskgp.SGPR(KERNEL, inducing=data("poisson", n)[0], **FIXED),
    }


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["exact", "vecchia", "lma", "sgpr"])
def test_posterior_and_bound_are_those_of_dense_variational_inference(name, method):
    X, y = data(name)
    Z = np.random.default_rng(1).uniform(size=(20, 2))
    model = methods(len(X))[method].set_params(likelihood=name, tol=1e-9)
    mean, std = model.fit(X, y).predict(Z, return_std=True)
    wanted = dense(by_name(name), X, y, Z)
    np.testing.assert_allclose(mean, wanted[0], atol=2e-5)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-4)
    np.testing.assert_allclose(model.objective_, wanted[2], atol=1e-4)


def dense_without_each(likelihood, K, y, rows):
    """Moments (r,) of f at some rows, from dense variational inference without each of them."""
    found = []
    for i in rows:
        others = np.arange(len(y)) != i
        inner, across = K[np.ix_(others, others)], K[others, i]
        m, V, _ = oracle.gaussian_approximation(likelihood, inner, y[others], steps=60)
        a = np.linalg.solve(inner, across)
        found.append((a @ m, K[i, i] - a @ across + a @ V @ a))
    return np.array(found).T


@pytest.mark.whole
@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
@pytest.mark.parametrize("method", ["exact", "vecchia", "lma", "sgpr"])
def test_rows_left_out_are_near_to_dense_fits_without_each(name, method):
    X, y = data(name)
    rows = np.arange(0, len(y), 4)
    m, v = dense_without_each(by_name(name), KERNEL(X), y, rows)
    model = methods(len(X))[method].set_params(likelihood=name).fit(X, y)
    f = leave_one_out(model.solved_, X[rows], y[rows, None])
    assert (np.abs(f.mean[:, 0] - m) < 0.1 * np.sqrt(v)).all()
    assert (np.abs(np.sqrt(f.variance[:, 0] / v) - 1.0) < 0.07).all()
    mean, std = model.loo(X, y)
    wanted = by_name(name).response(f.mean, f.variance[:, 0])
    np.testing.assert_allclose(mean[rows], wanted[0][:, 0], rtol=1e-8)
    np.testing.assert_allclose(std[rows], np.sqrt(wanted[1][:, 0]), rtol=1e-8)
    scores = daskgp.cross_validate(model, X, y, folds="loo").scores
    whole = leave_one_out(model.solved_, X, y[:, None])
    density = by_name(name).log_density(y[:, None], whole.mean, whole.variance[:, 0])
    assert scores["nlpd"] == pytest.approx(-density.mean(), rel=1e-6)


@pytest.mark.parametrize("kind", [daskgp.ExactGP, daskgp.VecchiaGP, daskgp.SGPR])
def test_rows_left_out_have_their_columns_and_weights(kind, tmp_path):
    X, y, own = with_columns("poisson")
    weight = np.where(np.arange(len(y)) % 7, 1.5, 0.0)
    own = {**own, "sample_weight": weight}
    model = kind(KERNEL, likelihood="poisson", **FIXED).fit(X, y, **own)
    mean, std = model.loo(X, y, **own)
    assert np.isnan(mean[::7]).all()
    known = weight > 0
    kept = {name: values[known] for name, values in own.items()}
    again = clone(model).fit(X[known], y[known], **kept).loo(X[known], y[known], **kept)
    np.testing.assert_allclose(mean[known], again[0], rtol=1e-3)
    rows = lambda a: da.from_array(a, chunks=(11, *a.shape[1:]))  # noqa: E731
    lazy = model.loo(rows(X), rows(y), **{name: rows(a) for name, a in own.items()})
    np.testing.assert_allclose(lazy[0].compute(), mean, rtol=1e-9)
    np.testing.assert_allclose(lazy[1].compute(), std, rtol=1e-9)
    with pytest.raises(InputError, match=r"fitted with exposure: give exposure="):
        model.loo(X, y, **{k: v for k, v in own.items() if k != "exposure"})
    for wrong in ({**own, "exposure": 2.0 * own["exposure"]}, own):
        with pytest.raises(InputError, match="not those of the fit"):
            model.loo(X, y + (wrong is own), **wrong)


def test_rows_left_out_may_lie_between_bounds():
    X, y, own = some("censored", np.random.default_rng(3))
    model = daskgp.ExactGP(KERNEL, likelihood="censored", **FIXED).fit(X, y, **own)
    mean, std = model.loo(X, y, **own)
    seen = model.predict(X, return_std=True, include_noise=True)
    measured = np.isfinite(own["lower"])
    error, less = np.abs(mean - y)[measured], np.abs(seen[0] - y)[measured]
    assert error.mean() > less.mean()
    assert (std > seen[1]).all()
    values = np.where(measured, y, np.nan)  # a missing y with a bound is censored
    np.testing.assert_allclose(model.loo(X, values, **own)[0][~measured], mean[~measured])


@pytest.mark.whole
@pytest.mark.parametrize("method", ["exact", "vecchia", "lma", "sgpr"])
def test_a_weight_multiplies_the_log_density_of_a_row(method):
    X, y = data("poisson")
    weight = np.random.default_rng(2).uniform(0.3, 3.0, len(y))
    Z, K = np.random.default_rng(1).uniform(size=(20, 2)), KERNEL(X)
    model = methods(len(X))[method].set_params(likelihood="poisson", tol=1e-9)
    mean, std = model.fit(X, y, sample_weight=weight).predict(Z, return_std=True)
    m, V, bound = oracle.gaussian_approximation(by_name("poisson"), K, y, weight=weight)
    A = np.linalg.solve(K, KERNEL(X, Z)).T
    np.testing.assert_allclose(mean, A @ m, atol=2e-5)
    variance = KERNEL.diag(Z) - ((A @ (K - V)) * A).sum(axis=1)
    np.testing.assert_allclose(std**2, variance, rtol=2e-4)
    np.testing.assert_allclose(model.objective_, bound, atol=1e-4)


@pytest.mark.parametrize("kind", [daskgp.ExactGP, daskgp.SGPR])
def test_rows_of_next_to_no_weight_tell_next_to_nothing(kind):
    X, y = data("bernoulli", 300)
    model = kind(KERNEL, likelihood="bernoulli", **FIXED).fit(X, y, sample_weight=1e-7)
    mean, std = model.predict(X[:20], return_std=True)
    np.testing.assert_allclose(std, np.sqrt(KERNEL.variance), rtol=1e-4)
    np.testing.assert_allclose(mean, 0.0, atol=1e-3)


@pytest.mark.parametrize("name", ["negative-binomial", "ordinal", "binomial"])
def test_a_weight_of_two_is_a_row_twice_and_one_of_zero_none(name):
    X, y, own = some(name, np.random.default_rng(4))  # counts that tell their size
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    weight[np.unique(y, return_index=True)[1][:3]] = 1  # every class is there
    model = daskgp.ExactGP(KERNEL, likelihood=name, tol=1e-6, standardize=False, **FIXED)
    weighted = clone(model).fit(X, y, sample_weight=weight, **own)
    copies = np.repeat(np.arange(len(y)), weight)
    repeated = clone(model).fit(X[copies], y[copies], **{k: v[copies] for k, v in own.items()})
    at = np.random.default_rng(1).uniform(size=(9, 2))
    for one, other in zip(
        weighted.predict(at, return_std=True), repeated.predict(at, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)
    assert weighted.objective_ == pytest.approx(repeated.objective_, abs=2e-3)
    parameters = (m.likelihood_.log_parameters for m in (weighted, repeated))
    np.testing.assert_allclose(*parameters, atol=0.02)


def test_rows_of_no_weight_are_left_out_whatever_their_bounds():
    X, y, own = some("censored", np.random.default_rng(3))
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    model = daskgp.ExactGP(KERNEL, likelihood="censored", **FIXED)
    weighted = clone(model).fit(X, y, sample_weight=weight, **own)
    kept = weight > 0
    others = clone(model).fit(X[kept], y[kept], **{k: v[kept] for k, v in own.items()})
    assert weighted.n_rows_ == kept.sum()
    np.testing.assert_allclose(weighted.predict(X), others.predict(X), rtol=1e-6, atol=1e-6)


def test_weights_go_with_stores_and_updates(tmp_path):
    X, y = data("poisson", 60)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 60)
    model = daskgp.VecchiaGP(KERNEL, likelihood="poisson", **FIXED)
    whole = clone(model).fit(X, y, sample_weight=weight)
    np.savez(tmp_path / "rows.npz", X=X, y=y, w=weight)
    store = str(tmp_path / "rows.zarr")
    daskgp.convert(str(tmp_path / "rows.npz"), store, target="y", weight="w", block_rows=25)
    of_store = clone(model).fit(*daskgp.open_dataset(store))
    np.testing.assert_allclose(of_store.predict(X), whole.predict(X), atol=0.01)
    grown = clone(model).fit(X[:50], y[:50], sample_weight=weight[:50])
    grown.update(X[50:], y[50:], sample_weight=weight[50:])
    wanted, std = whole.predict(X, return_std=True)
    assert (np.abs(grown.predict(X) - wanted) < 0.2 * std).all()
    with pytest.raises(SettingError, match="has no noise variance per row"):
        clone(model).fit(X, y, y_variance=0.1)


def in_units_of_y(model):
    """The likelihood of a model, whose first parameter is a spread of y."""
    own, unit = model.likelihood_, model.solved_.latent_unit
    return own.with_log_parameters([np.log(unit) + own.log_parameters[0], *own.log_parameters[1:]])


def some(name, rng, n=30):
    """Rows of a likelihood, and columns beside them."""
    X = rng.uniform(size=(n, 2))
    f = np.linalg.cholesky(KERNEL(X) + 1e-10 * np.eye(n)) @ rng.standard_normal(n)
    if name == "ordinal":
        return X, np.digitize(f + rng.standard_normal(n), [-0.7, 0.6]).astype(float), {}
    if name == "censored":
        y = f + 0.3 * rng.standard_normal(n)
        limit = np.quantile(y, 0.3)
        own = {"lower": np.where(y < limit, -np.inf, y), "upper": np.maximum(y, limit)}
        return X, own["upper"], own
    own = {"trials": np.full(n, 5.0)} if name == "binomial" else {}
    likelihood = by_name(name).with_columns(own) if own else by_name(name)
    return X, np.asarray(likelihood.sample(f, rng), np.float64), own


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*REGISTRY} - {"gaussian"}))
def test_the_posterior_is_near_the_true_one(name):
    X, y, own = some(name, np.random.default_rng(3))
    model = daskgp.ExactGP(KERNEL, likelihood=name, tol=1e-5, **FIXED).fit(X, y, **own)
    mean, std = model.predict(X, return_std=True)
    likelihood = in_units_of_y(model) if model.likelihood_.standardised else model.likelihood_
    likelihood = likelihood.with_columns(own) if own else likelihood
    true, spread = oracle.sampled_posterior(likelihood, KERNEL(X), y)
    assert np.sqrt(np.mean(((mean - true) / spread) ** 2)) < 0.12
    assert 0.9 < np.mean(std / spread) < 1.06


def test_values_at_a_limit_are_not_taken_for_classes(caplog):
    X, y, own = some("censored", np.random.default_rng(3))
    own = {**own, "upper": np.full(len(y), -0.5), "lower": np.full(len(y), -np.inf)}
    with caplog.at_level("WARNING", "daskgp"):
        daskgp.ExactGP(KERNEL, likelihood="censored", **FIXED).fit(X, own["upper"], **own)
    assert "distinct values" not in caplog.text


def test_parameters_of_a_likelihood_are_those_of_the_largest_bound():
    X, y = data("student-t", 80)
    model = daskgp.ExactGP(KERNEL, likelihood="student-t", tol=1e-6, **FIXED).fit(X, y)
    unit = model.solved_.latent_unit
    own = in_units_of_y(model)
    bounds = [
        oracle.gaussian_approximation(own.with_log_parameters(logs), KERNEL(X), y, share=0.2)[2]
        + len(y) * np.log(unit)
        for logs in own.log_parameters + 0.05 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    ]
    assert max(bounds[1:]) < bounds[0] + 1e-3
    np.testing.assert_allclose(model.objective_, bounds[0], atol=0.01)


def test_hyperparameters_are_those_of_the_largest_bound():
    X, y = data("poisson", 80)
    settings = {"mean": "zero", "progress": False, "tol": 1e-4}
    model = daskgp.ExactGP("matern32()", likelihood="poisson", **settings).fit(X, y)
    logs = model.kernel_.log_parameters
    bounds = [
        oracle.gaussian_approximation(
            by_name("poisson"), model.kernel_.with_log_parameters(logs + step)(X), y
        )[2]
        for step in 0.1 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    ]
    np.testing.assert_allclose(model.objective_, bounds[0], atol=1e-3)
    assert max(bounds[1:]) < bounds[0] + 2e-3
    assert [entry["bound"] for entry in model.history_ if "bound" in entry][-1] <= bounds[0] + 1e-3


def counts_of_years(seed, stations=60, years=25):
    rng = np.random.default_rng(seed)
    place = np.repeat(rng.uniform(size=stations), years)
    year = np.tile(np.arange(years, dtype=float), stations)
    apart = np.tile(0.35 * rng.standard_normal(years), stations) * np.cos(3 * place)
    X = np.column_stack([place, year])
    return X, rng.poisson(np.exp(2.5 + np.sin(4 * place) + apart)).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_a_rough_field_is_not_taken_for_scatter(seed):
    X, y = counts_of_years(seed)
    counts = daskgp.VecchiaGP("matern32(ard=true)", progress=False)
    smooth = clone(counts).set_params(likelihood="poisson").fit(X, y)
    scattered = clone(counts).set_params(likelihood="negative-binomial").fit(X, y)
    rough = kernels.Matern32(lengthscale=[1.0, 4.0], variance=2.0, ard=True)
    best = clone(counts).set_params(likelihood="poisson", kernel=rough).fit(X, y).objective_
    assert min(smooth.objective_, scattered.objective_) > best - 10
    assert scattered.likelihood_.size > 300


def test_scatter_is_not_taken_for_a_rough_field():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 12, (3_000, 2))
    f = np.sin(X).sum(axis=1)
    y = by_name("negative-binomial", np.log([2.0])).sample(f, rng)
    model = daskgp.VecchiaGP("matern32()", likelihood="negative-binomial", progress=False)
    model.fit(X, np.asarray(y, float))
    assert 1.7 < model.likelihood_.size < 2.4
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.25


def test_rows_of_a_store_in_ragged_chunks_give_what_rows_in_memory_do(tmp_path):
    X, y = data("poisson", 150)
    y[7] = np.nan
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    url = str(tmp_path / "rows.zarr")
    daskgp.convert(str(tmp_path / "rows.npz"), url, target="y", block_rows=64)
    for kind in (daskgp.VecchiaGP, daskgp.SGPR):
        here, there = (
            kind(KERNEL, likelihood="poisson", optimizer=None, progress=False).fit(*rows)
            for rows in ((X, y), daskgp.open_dataset(url))
        )
        assert here.n_rows_ == there.n_rows_ == 149
        for a, b in zip(*(m.predict(X[:9], return_std=True) for m in (here, there)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


COLUMNS = {
    "poisson": {"exposure": (0.5, 40.0), "offset": (-1.0, 1.0)},
    "negative-binomial": {"exposure": (0.5, 40.0)},
    "binomial": {"trials": (1.0, 30.0)},
}


def with_columns(name, seed=0, n=36):
    rng = np.random.default_rng(seed)
    X, _ = data("poisson", n, seed=seed)
    own = {k: rng.uniform(*ends, len(X)).round(2) for k, ends in COLUMNS[name].items()}
    if name == "binomial":
        own["trials"] = np.ceil(own["trials"])
    y = by_name(name).with_columns(own).sample(0.3 * np.sin(9 * X[:, :1]), rng)[:, 0]
    return X, y, own


@pytest.mark.parametrize(
    ("name", "method"), [("poisson", "vecchia"), ("binomial", "vecchia"), ("poisson", "sgpr")]
)
def test_columns_beside_y_go_with_the_rows(name, method):
    X, y, own = with_columns(name)
    Z = np.random.default_rng(1).uniform(size=(20, 2))
    wanted = dense(by_name(name).with_columns(own), X, y, Z)
    model = methods(len(X))[method].set_params(likelihood=name, tol=1e-9)
    mean, std = model.fit(X, y, **own).predict(Z, return_std=True)
    np.testing.assert_allclose(mean, wanted[0], atol=2e-5)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-4)
    np.testing.assert_allclose(model.objective_, wanted[2], atol=1e-4)


def test_values_between_bounds_are_those_of_dense_variational_inference():
    X = data("poisson")[0]
    y = np.sin(6 * X[:, 0])
    own = {"lower": np.where(y < 0, -np.inf, y), "upper": np.maximum(y, 0.0)}
    y = own["upper"]
    model = daskgp.ExactGP(KERNEL, likelihood="censored", tol=1e-4, **FIXED).fit(X, y, **own)
    likelihood = in_units_of_y(model).with_columns(own)
    wanted = dense(likelihood, X, y, X[:9])
    np.testing.assert_allclose(model.predict(X[:9]), wanted[0], atol=5e-3)
    assert model.predict(X)[y == 0].min() < -0.1
    with pytest.raises(SettingError, match="rows with lower and upper have densities"):
        model.log_marginal_likelihood()
    density = likelihood.log_density(y[:, None], *gaussian_of(model, X))
    found = daskgp.check(model, X, y, regions=1, **own).scores["nlpd"]
    np.testing.assert_allclose(found, -density.mean())


def test_missing_bounds_leave_a_side_open_and_one_alone_is_refused(tmp_path):
    X, y, own = some("censored", np.random.default_rng(3))
    measured = own["lower"] == own["upper"]
    blank = {"lower": np.full(len(y), np.nan), "upper": np.where(measured, np.nan, own["upper"])}
    one = daskgp.ExactGP(KERNEL, likelihood="censored", **FIXED)
    wanted = clone(one).fit(X, y, **own).predict(X)
    np.testing.assert_array_equal(clone(one).fit(X, y, **blank).predict(X), wanted)
    for name, column in own.items():
        with pytest.raises(SettingError, match=f"rows have {name} without"):
            clone(one).fit(X, y, **{name: column})


@pytest.mark.parametrize("kind", ["dask", "zarr", "number"])
def test_columns_of_rows_in_chunks_are_those_in_memory(kind, tmp_path):
    X, y, own = with_columns("negative-binomial")
    own["exposure"] = np.full(len(X), 2.0) if kind == "number" else own["exposure"]
    own["exposure"][5] = np.nan if kind != "number" else 2.0
    if kind == "zarr":
        model = daskgp.VecchiaGP(KERNEL, likelihood="negative-binomial", n_neighbours=40, **FIXED)
    else:
        model = daskgp.SGPR(KERNEL, likelihood="negative-binomial", inducing=X[:12], **FIXED)
    here = clone(model).fit(X, y, **own)
    rows, given = (da.from_array(X, (9, 2)), da.from_array(y, 9)), da.from_array(own["exposure"], 9)
    if kind == "zarr":
        group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
        for name, a in {"X": X, "y": y, "more": own["exposure"]}.items():
            group.create_array(name, data=a, chunks=(9, *a.shape[1:]))
        rows, given = daskgp.open_dataset(str(tmp_path / "rows.zarr")), group["more"]
    if kind == "number":
        given = 2.0
    there = clone(model).fit(*rows, exposure=given)
    assert here.n_rows_ == there.n_rows_ == len(X) - (kind != "number")
    np.testing.assert_allclose(there.predict(X), here.predict(X), atol=1e-3)


def stored(folder, X, y, own, step=13, name="rows"):
    np.savez(folder / f"{name}.npz", u=X[:, 0], v=X[:, 1], y=y, **{f"its_{k}": own[k] for k in own})
    names, url = {k: f"its_{k}" for k in own}, str(folder / f"{name}.zarr")
    daskgp.convert(str(folder / f"{name}.npz"), url, "y", ["u", "v"], step, **names)
    return url


@pytest.mark.parametrize(
    ("name", "kind"), [("poisson", "vecchia"), ("binomial", "exact"), ("censored", "exact")]
)
def test_a_store_keeps_columns(name, kind, tmp_path):
    if name == "censored":
        X, y, own = some(name, np.random.default_rng(1), 36)
    else:
        X, y, own = with_columns(name)
    model = methods(len(X))[kind].set_params(likelihood=name, tol=1e-9)
    url = stored(tmp_path, X, y, own)
    model.fit(*daskgp.open_dataset(url))
    assert {*own} <= {*model._fitted.seen[-1]["given"]}
    likelihood = in_units_of_y(model) if name == "censored" else model.likelihood_
    wanted = dense(likelihood.with_columns(own), X, y, X[:9])
    mean, std = model.predict(X[:9], return_std=True)
    np.testing.assert_allclose(mean, wanted[0], atol=2e-3)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-3)
    rows = daskgp.open_dataset(url)
    scores = [
        model.score(*rows),
        model.score(X, y, **own),
        model.score(str(tmp_path / "rows.npz"), "y", **{k: f"its_{k}" for k in own}),
    ]
    np.testing.assert_allclose(scores, scores[0])
    checks = daskgp.check(model, *rows, regions=1), daskgp.check(model, X, y, regions=1, **own)
    assert checks[0].scores.keys() == checks[1].scores.keys()
    np.testing.assert_allclose(*(list(one.scores.values()) for one in checks))


def test_a_store_that_grows_brings_its_columns(tmp_path, caplog):
    X, y, own = with_columns("poisson")
    first = {k: a[:20] for k, a in own.items()}
    url = stored(tmp_path, X[:20], y[:20], first)
    model = daskgp.SGPR(KERNEL, likelihood="poisson", inducing=X[:9], **FIXED)
    here = clone(model).fit(X[:20], y[:20], **first)
    model.fit(*daskgp.open_dataset(url))
    rest = {k: a[20:] for k, a in own.items()}
    stored(tmp_path, X[20:], y[20:], rest, name="more")
    daskgp.convert(str(tmp_path / "more.npz"), url, append=True)
    model.update(*daskgp.open_dataset(url))
    here.update(X[20:], y[20:], **rest)
    np.testing.assert_allclose(model.predict(X), here.predict(X))
    daskgp.prepare(url, str(tmp_path / "blocks.zarr"), block_rows=9)
    again = clone(model).fit(*daskgp.open_dataset(str(tmp_path / "blocks.zarr")))
    whole = again.score(*daskgp.open_dataset(url)), again.score(X, y, **own)
    np.testing.assert_allclose(*whole)
    assert not caplog.text
    plain = daskgp.SGPR(KERNEL, inducing=X[:9], **FIXED)
    rates = plain.fit(*daskgp.open_dataset(url)).predict(X)
    assert "the store of y has exposure, which likelihood='gaussian' does not take" in caplog.text
    foreign = zarr.open_group(stored(tmp_path, X, y, {}, name="foreign"))
    foreign.create_array("offset", data=np.zeros(3))  # of another meaning
    caplog.clear()
    rows = daskgp.open_dataset(str(tmp_path / "foreign.zarr"))
    np.testing.assert_allclose(clone(plain).fit(*rows).predict(X), rates, rtol=1e-6)
    clone(model).fit(*rows)
    assert not caplog.text


@pytest.mark.slow
def test_a_search_takes_the_columns_of_a_store(tmp_path):
    X, y, own = with_columns("poisson")
    model = daskgp.SGPR(KERNEL, likelihood="poisson", inducing=X[:9], **FIXED)
    auto = daskgp.AutoGP(candidates=[model], time_budget=60, progress=False)
    auto.fit(*daskgp.open_dataset(stored(tmp_path, X, y, own)))
    assert auto.findings_[0].startswith("the rows have exposure and offset: the target is cou")
    np.testing.assert_allclose(auto.predict(X), clone(model).fit(X, y, **own).predict(X), atol=1e-6)
    places = [np.flatnonzero((x == X).all(axis=1))[0] for x in auto.held_out_.X.tolist()]
    shift = np.log(own["exposure"]) + own["offset"]
    assert np.corrcoef(np.log(auto.held_out_.mean[:, 0]), shift[places])[0, 1] > 0.5


@pytest.mark.whole
@pytest.mark.parametrize(
    ("likelihood", "columns", "line"),
    [
        ("poisson", {"exposure": 0.0}, "exposure holds 0"),
        ("poisson", {"trials": 9.0}, "takes exposure, offset beside y, not 'trials'"),
        ("binomial", {"trials": 1.0}, "trials holds 1"),
        ("gaussian", {"exposure": 2.0}, "ExactGP with likelihood='gaussian' does not take it"),
        ("poisson", {"exposure": [1.0, 2.0]}, r"exposure has shape \(2,\)"),
        ("poisson", {"exposure": "area"}, "exposure goes with an array y"),
        ("censored", {"lower": 3.0, "upper": 2.0}, "lower"),
    ],
)
def test_columns_that_cannot_be_are_refused(likelihood, columns, line):
    X, y = data("poisson")
    with pytest.raises(DaskgpError, match=line):
        daskgp.ExactGP(KERNEL, likelihood=likelihood, **FIXED).fit(X, y + 2.0, **columns)


def test_rows_without_columns_that_those_of_the_fit_had_are_refused():
    X, y, own = with_columns("poisson")
    model = daskgp.SGPR(KERNEL, n_inducing=9, likelihood="poisson", **FIXED).fit(X, y, **own)
    for call in (model.update, model.score, partial(daskgp.check, model)):
        with pytest.raises(SettingError, match="the rows of the fit had exposure, and these have"):
            call(X, y)
        with pytest.raises(InputError, match=r"exposure holds 0.*, but the poisson"):
            call(X, y, exposure=0.0, offset=False)
    assert model.score(X, y, exposure=False, offset=False) < model.score(X, y, **own)


def test_batches_take_columns():
    X, y, own = with_columns("binomial", 3)
    more = {"inducing": X, "natural": 0.5, "batch_rows": 36, "validation": None, "max_iter": 30}
    model = daskgp.SVGP(KERNEL, likelihood="binomial", standardize=False, **more, **FIXED)
    mean, std = model.fit(X, y, **own).predict(X[:9], return_std=True)
    wanted = dense(by_name("binomial").with_columns(own), X, y, X[:9])
    np.testing.assert_allclose(mean, wanted[0], atol=0.02)
    np.testing.assert_allclose(std, wanted[1], rtol=0.02)
    np.testing.assert_allclose(model.objective_, wanted[2], atol=0.02)
    with pytest.raises(InputError, match="trials holds 1"):
        model.partial_fit(X[:5], 2.0 + y[:5], trials=1.0)


def test_columns_reach_scores_and_predictions():
    X, y, own = with_columns("poisson", 3)
    model = daskgp.VecchiaGP(KERNEL, likelihood="poisson", n_neighbours=36, **FIXED)
    model.fit(X, y, **own)
    Z, rate = X[:12], np.exp(own["offset"]) * own["exposure"]
    here = {name: values[:12] for name, values in own.items()}
    mean, std = model.predict(Z, return_std=True)
    of_rows = by_name("poisson").with_columns(here)
    found = model.predict(Z, return_std=True, include_noise=True, quantiles=(0.1, 0.9), **here)
    wanted = of_rows.response(mean[:, None], std**2)
    np.testing.assert_allclose(found[0], wanted[0][:, 0])
    np.testing.assert_allclose(found[1] ** 2, wanted[1][:, 0])
    for j, level in enumerate((0.1, 0.9)):
        np.testing.assert_array_equal(found[2][:, j], of_rows.quantile(level, mean, std))
    np.testing.assert_allclose(model.predict(Z, include_noise=True) * rate[:12], found[0])
    above = model.predict_exceedance(Z, 3.0, include_noise=True, **here)
    np.testing.assert_allclose(above, 1.0 - of_rows.cdf(np.full(12, 3.0), mean, std))
    lazy = {name: da.from_array(values, 5) for name, values in here.items()}
    there = model.predict(da.from_array(Z, (5, 2)), include_noise=True, **lazy)
    assert there.chunks == ((5, 5, 2),)
    np.testing.assert_allclose(there.compute(), found[0])
    error = y - model.predict(X, include_noise=True, **own)
    assert np.isclose(model.score(X, y, **own), 1.0 - (error**2).mean() / y.var())
    density = by_name("poisson").with_columns(own).log_density(y[:, None], *gaussian_of(model, X))
    checked = daskgp.check(model, X, y, regions=1, **own)
    np.testing.assert_allclose(checked.scores["nlpd"], -density.mean())
    assert np.isclose(checked.scores["rmse"], np.sqrt((error**2).mean()))


def test_grids_of_counts_become_maps_of_rates():
    xr = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    places = {"lat": np.linspace(0.0, 1.0, 6), "lon": np.linspace(0.0, 1.0, 7)}
    area = xr.DataArray(rng.uniform(1.0, 30.0, (6, 7)), places, ("lat", "lon"), "area")
    rate = np.exp(np.sin(4 * area.lat) + 0.0 * area.lon)
    counts = (0.0 * area + rng.poisson(area * rate)).rename("counts")
    model = daskgp.SGPR(KERNEL, n_inducing=12, likelihood="poisson", geographic=False, **FIXED)
    model.fit(counts, counts, exposure=area)
    rates = model.predict(counts, include_noise=True)
    found = model.predict(counts, include_noise=True, exposure=area)
    xr.testing.assert_allclose(found, (rates * area).rename(found.name))
    assert found.dims == ("lat", "lon")
    parts = counts.chunk({"lat": 2}), area.chunk({"lat": 2})
    lazy = model.predict(parts[0], include_noise=True, quantiles=(0.1, 0.9), exposure=parts[1])[1]
    assert lazy.chunks is not None
    here = model.predict(counts, include_noise=True, quantiles=(0.1, 0.9), exposure=area)[1]
    xr.testing.assert_equal(lazy.compute(), here)
    scores = (model.score(X, counts, exposure=area) for X in (parts[0], counts))
    np.testing.assert_allclose(*scores)
    with pytest.raises(InputError, match="exposure is not on the grid of X"):
        model.predict(counts, include_noise=True, exposure=area.assign_coords(lat=area.lat + 1.0))


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["pandas", "dask", "dataset", "coordinate", "other names"])
def test_columns_of_new_rows_are_named(kind):
    pd = pytest.importorskip("pandas")
    X, y, own = with_columns("poisson")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **own, "counts": y})
    model = daskgp.SGPR(KERNEL, inducing=X[:9], likelihood="poisson", **FIXED)
    model.fit(X if kind == "other names" else table[["a", "b"]], y, **own)
    names, plain = {name: name for name in own}, table[["a", "b"]]
    wanted = model.predict(plain, True, include_noise=True, **own)
    above = model.predict_exceedance(plain, 3.0, include_noise=True, **own)
    left_out = model.loo(plain, y, **own)
    if kind == "dask":
        given = pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=3)
    elif kind in ("dataset", "coordinate"):
        given = table.to_xarray()
        if kind == "coordinate":
            given = given[["a", "b"]].to_dataarray("feature").transpose("index", "feature")
            given = given.assign_coords({name: ("index", a) for name, a in own.items()})
    else:
        given = table.drop(columns="counts") if kind == "other names" else table
    of_rows = y
    if kind in ("dataset", "coordinate"):
        of_rows = (0.0 * given[next(iter(own))] + y).rename("counts")
    for there, here in (
        (model.predict(given, True, include_noise=True, **names), wanted),
        ([model.predict_exceedance(given, 3.0, include_noise=True, **names)], [above]),
        (model.loo(given, of_rows, **names), left_out),
    ):
        for a, b in zip(there, here, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b))


def test_names_that_new_rows_do_not_have_are_told():
    pd = pytest.importorskip("pandas")
    X, y, own = with_columns("poisson", 2)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **own})
    model = daskgp.CaGP(KERNEL, n_actions=9, likelihood="poisson", **FIXED)
    model.fit(table[["a", "b"]], y, **own)
    names = {name: name for name in own}
    found = model.predict(table, include_noise=True, return_computational=True, **names)
    assert [one.shape for one in found] == [(36,), (36,)]
    with pytest.raises(InputError, match="exposure names 'exposur', which X does not have: did"):
        model.predict(table, include_noise=True, exposure="exposur")
    with pytest.raises(SettingError, match="exposure='exposure' is a name and X has none"):
        model.predict_exceedance(X, 3.0, include_noise=True, exposure="exposure")
    with pytest.raises(SettingError, match="offset belongs to new observations"):
        model.predict(table, offset="offset")


def gaussian_of(model, X):
    mean, std = model.predict(X, return_std=True)
    return mean[:, None], std[:, None] ** 2


def test_a_missing_column_misses_the_row():
    X, y, own = with_columns("binomial")
    model = daskgp.SGPR(KERNEL, n_inducing=9, likelihood="binomial", **FIXED).fit(X, y, **own)
    some = {"trials": np.where(np.arange(len(y)) < 4, np.nan, own["trials"])}
    assert np.isnan(model.predict(X, include_noise=True, **some)).sum() == 4
    left = {"trials": own["trials"][4:]}
    assert np.isclose(model.score(X, y, **some), model.score(X[4:], y[4:], **left))
    with pytest.raises(InputError, match="1 targets are not possible observations"):
        model.score(X, np.where(np.arange(len(y)) == 7, 99.0, y), **own)
    for columns, line in [
        ({"exposure": 2.0}, "takes trials beside y, not 'exposure'"),
        ({"trials": 0.5}, "takes whole numbers of trials"),
        ({"trials": np.ones(3)}, r"trials has shape \(3,\)"),
    ]:
        with pytest.raises(DaskgpError, match=line):
            model.predict(X, include_noise=True, **columns)
    with pytest.raises(SettingError, match="trials belongs to new observations"):
        model.predict(X, **own)


def test_cross_validation_takes_columns():
    X, y, own = with_columns("poisson", 5)
    model = daskgp.SGPR(KERNEL, n_inducing=9, likelihood="poisson", **FIXED)
    found = daskgp.cross_validate(model, X, y, folds=1, **own)
    rate = daskgp.cross_validate(model, X, y, folds=1)
    assert found.pooled["nlpd"] < rate.pooled["nlpd"]


def test_a_store_keeps_the_likelihood(tmp_path):
    X, y = data("student-t", 60)
    model = daskgp.VecchiaGP(KERNEL, likelihood="student-t", optimizer=None, progress=False)
    model.fit(X, y).save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    assert loaded.likelihood_ == model.likelihood_ != by_name("student-t")
    pairs = (m.predict(X, return_std=True, include_noise=True) for m in (model, loaded))
    for a, b in zip(*pairs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["sgpr", "vecchia"])
def test_rows_that_are_added_come_near_to_a_fit_of_all(kind):
    X, y = data("poisson", 400, 3)
    whole, model = (
        (
            daskgp.SGPR(KERNEL, inducing=X[:60], likelihood="poisson", **FIXED)
            if kind == "sgpr"
            else daskgp.VecchiaGP(KERNEL, likelihood="poisson", **FIXED)
        )
        for _ in range(2)
    )
    whole.fit(X, y)
    model.fit(X[:300], y[:300])
    before, bound = model.predict(X[300:]), model.objective_
    model.update(X[300:], y[300:])
    wanted, std = whole.predict(X, return_std=True)
    found = model.predict(X)
    assert np.abs(found - wanted).max() < 0.1 * std.max()
    assert np.abs(before - wanted[300:]).max() > 5 * np.abs(found - wanted)[300:].max()
    assert abs(model.objective_ - whole.objective_) < 0.05 * abs(bound - whole.objective_)


def along_time(kind, **settings):
    """A model whose blocks follow the first column."""
    more = (
        {"markov_order": 3, "neighbours": "order"}
        if kind is daskgp.LMA
        else {"predict_neighbours": 60}
    )
    return kind(
        KERNEL, likelihood="poisson", block_rows=10, order="x0", **FIXED, **more, **settings
    )


@pytest.mark.parametrize("kind", [daskgp.LMA, daskgp.VecchiaGP])
def test_forgotten_rows_leave_the_sites_of_others(kind):
    X, y, own = with_columns("poisson", n=60)
    line = np.argsort(X[:, 0])
    X, y, own = X[line], y[line], {name: values[line] for name, values in own.items()}
    settings = {"n_neighbours": 59} if kind is daskgp.VecchiaGP else {}
    model = along_time(kind, **settings).fit(X, y, **own)
    before = model.objective_
    old = {name: values[:20] for name, values in own.items()}
    mixed = np.random.default_rng(0).permutation(20)
    model.forget(X[mixed], y[mixed], **{name: values[mixed] for name, values in old.items()})
    assert model.n_rows_ == 40
    assert model.objective_ != before
    nearby = model.solved_.nearby
    parts = [nearby.rows.read(*span) for span in nearby.layout.spans]
    inputs, sites = (np.concatenate(part) for part in zip(*parts, strict=True))
    K = KERNEL(inputs) + np.diag(sites[:, -1])
    Z = np.random.default_rng(1).uniform(size=(9, 2))
    mean, std = model.predict(Z, return_std=True)
    across = np.linalg.solve(K, KERNEL(inputs, Z)).T
    np.testing.assert_allclose(mean, across @ sites[:, 0], atol=1e-6)
    variance = KERNEL.diag(Z) - (across * KERNEL(Z, inputs)).sum(axis=1)
    np.testing.assert_allclose(std**2, variance, rtol=1e-5)
    fresh = along_time(kind, **settings).fit(
        X[20:], y[20:], **{name: values[20:] for name, values in own.items()}
    )
    wanted, spread = fresh.predict(Z, return_std=True)
    assert (np.abs(mean - wanted) < 0.1 * spread).all()
    assert model.objective_ == pytest.approx(fresh.objective_, abs=0.1)
    assert model.loo(X[20:], y[20:], **{k: v[20:] for k, v in own.items()})[0].shape == (40,)


@pytest.mark.parametrize("change", ["update", "forget"])
@pytest.mark.parametrize("kind", [daskgp.LMA, daskgp.VecchiaGP])
def test_rows_left_out_after_a_change_lack_the_sites_that_are_kept(kind, change):
    X, y = data("poisson", 59)
    X, y = (part[np.argsort(X[:, 0])] for part in (X, y))
    X = np.concatenate([X, X[40:41]])  # two rows at a place
    y = np.concatenate([y, y[40:41] + 2])
    line = np.argsort(X[:, 0], kind="stable")
    X, y = X[line], y[line]
    settings = {"n_neighbours": 60} if kind is daskgp.VecchiaGP else {}
    model = along_time(kind, **settings)
    if change == "update":
        model.fit(X[:40], y[:40]).update(X[40:], y[40:])
    else:
        model.fit(X, y).forget(X[:20], y[:20])
        X, y = X[20:], y[20:]
    nearby = model.solved_.nearby
    parts = [nearby.rows.read(*span) for span in nearby.layout.spans]
    inputs, sites = (np.concatenate(part) for part in zip(*parts, strict=True))
    inverse = np.linalg.inv(KERNEL(inputs) + np.diag(sites[:, -1]))
    variance = 1.0 / np.diag(inverse)
    wanted = sites[:, 0] - variance * (inverse @ sites[:, 0]), variance - sites[:, -1]
    found = leave_one_out(model.solved_, X, y[:, None])
    for one, other in zip((found.mean, found.variance), wanted, strict=True):
        np.testing.assert_allclose(np.sort(one[:, 0]), np.sort(other), rtol=1e-4, atol=1e-5)
    pieces = [da.from_array(part, chunks=(7, *part.shape[1:])) for part in (X, y)]
    mean, std = model.loo(X, y)
    np.testing.assert_allclose(model.loo(*pieces)[0].compute(), mean, rtol=1e-9)
    assert np.isfinite(std).all()


def test_rows_whose_sites_are_not_kept_are_not_left_out_after_a_change():
    X, y = data("poisson")
    model = daskgp.SGPR(KERNEL, inducing=X[:20], likelihood="poisson", **FIXED).fit(X[:30], y[:30])
    assert np.isfinite(model.loo(X[:30], y[:30])[0]).all()
    model.update(X[30:], y[30:])
    with pytest.raises(SettingError, match=r"no loo of sgpr .* after update .*cross_validate"):
        model.loo(X, y)


def test_forgetting_undoes_an_update_by_sites():
    X, y = data("poisson", 60)
    X, y = (part[np.argsort(X[:, 0])] for part in (X, y))
    model = along_time(daskgp.LMA).fit(X[:40], y[:40])
    wanted, before = model.predict(X, return_std=True), model.objective_
    model.update(X[40:], y[40:])
    assert np.abs(model.predict(X) - wanted[0]).max() > 0.01
    model.forget(X[40:], y[40:])
    found = model.predict(X, return_std=True)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert model.objective_ == pytest.approx(before, abs=1e-6)


def test_rows_that_cannot_be_forgotten_are_refused():
    X, y = data("poisson", 60)
    X, y = (part[np.argsort(X[:, 0])] for part in (X, y))
    model = along_time(daskgp.LMA).fit(X, y)
    before = model.predict(X)
    with pytest.raises(InputError, match="1 of 10 rows to forget are not rows of the model"):
        model.forget(np.where(np.arange(10)[:, None] == 3, X[:10] + 0.01, X[:10]), y[:10])
    with pytest.raises(InputError, match=r"have another y, .* in the model, first row 3"):
        model.forget(X[:10], y[:10] + 9 * (np.arange(10) == 2))
    with pytest.raises(InputError, match="given more often than it has them"):
        model.forget(np.repeat(X[:10], 2, axis=0), np.repeat(y[:10], 2))
    for span in (slice(20, 30), slice(0, 7)):
        with pytest.raises(InputError, match="not whole blocks at either end"):
            model.forget(X[span], y[span])
    np.testing.assert_array_equal(model.predict(X), before)
    weighted = along_time(daskgp.LMA).fit(X, y, sample_weight=2.0)
    with pytest.raises(InputError, match="have sample_weight and those to forget have none"):
        weighted.forget(X[:10], y[:10])
    assert weighted.forget(X[:10], y[:10], sample_weight=2.0).n_rows_ == 50


@pytest.mark.whole
@pytest.mark.parametrize("change", [1, -1, 4])
def test_other_counts_are_not_forgotten(change):
    X, rng = data("poisson", 60)[0], np.random.default_rng(5)
    X = X[np.argsort(X[:, 0])]
    y = rng.poisson(30.0 * np.exp(0.3 * np.sin(6 * X[:, 0]))).astype(float)
    model = along_time(daskgp.LMA).set_params(mean="constant")
    model.fit(X[:40], y[:40]).update(X[40:], y[40:])
    with pytest.raises(InputError, match=r"10 of 10 rows to forget have another y"):
        model.forget(X[:10], y[:10] + change)
    assert model.forget(X[:10], y[:10]).forget(X[50:], y[50:]).n_rows_ == 40


def test_a_start_begins_with_its_sites():
    X, y = data("poisson", 80)
    model = daskgp.ExactGP(likelihood="poisson", progress=False).fit(X, y)
    told = []
    again = daskgp.ExactGP(likelihood="poisson", progress=False)
    again.fit(X, y, start=model, callback=told.append)
    assert len(told) < len(model.history_)
    np.testing.assert_allclose(again.objective_, model.objective_, atol=0.2)


def test_a_trend_is_integrated_over():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = rng.poisson(np.exp(0.5 + 1.5 * X[:, 0])).astype(float)
    for kind in (daskgp.VecchiaGP, daskgp.SGPR):
        model = kind(likelihood="poisson", mean="linear", progress=False).fit(X, y)
        slope = next(row for row in model.trend_ if row.name == "x0")
        assert abs(slope.value - 1.5) < 3 * slope.standard_error
        assert slope.unit == "1/x0"  # f is the logarithm of a rate, whatever is counted


def test_classes_have_probabilities_that_are_lazy_for_lazy_rows():
    da = pytest.importorskip("dask.array")
    X, y = data("bernoulli", 100)
    model = daskgp.SGPR(KERNEL, n_inducing=20, likelihood="bernoulli", **FIXED).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    lazy = model.predict_proba(da.from_array(X, chunks=(40, 2)))
    np.testing.assert_allclose(lazy.compute(), p)
    assert model.score(X, y) == np.mean((p[:, 1] > 0.5) == y)
    assert not hasattr(daskgp.SGPR(likelihood="poisson"), "predict_proba")


def test_a_callback_ends_the_turns():
    X, y = data("poisson", 80)
    model = daskgp.ExactGP(likelihood="poisson", progress=False).fit(X, y, callback=lambda _: True)
    assert len(model.history_) == 1
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("settings", "arguments", "said"),
    [
        ({"noise_variance": 0.2}, {}, "noise_variance=0.2 has no effect with likelihood='poisson'"),
        ({"calibrate": "loo"}, {}, "calibrate='loo' has no effect with likelihood='poisson'"),
        ({"target_transform": "log"}, {}, "target_transform='log' has no effect"),
        ({"mean": "ols"}, {}, "choose 'constant' or 'zero', or a trend, 'linear' or names"),
        ({"fixed": {"noise_variance": 1.0}}, {}, "fixed names 'noise_variance', which is not a"),
        ({}, {"y_variance": 0.1}, "the poisson likelihood has no noise variance per row"),
        ({"likelihood": "poison"}, {}, "likelihood='poison': did you mean 'poisson'? Choose one"),
    ],
)
def test_settings_that_do_not_go_with_a_likelihood_are_refused(settings, arguments, said):
    X, y = data("poisson")
    model = daskgp.SGPR(**{"likelihood": "poisson", "progress": False, **settings})
    with pytest.raises(SettingError) as error:
        model.fit(X, y, **arguments)
    assert said in str(error.value)


def test_rows_that_sites_do_not_take_are_refused():
    X, y = data("poisson")
    model = daskgp.SGPR(likelihood="poisson", n_inducing=10, progress=False)
    with pytest.raises(InputError, match="target 'y' holds -1, but the poisson likelihood takes"):
        model.fit(X, np.where(np.arange(len(y)) == 3, -1.0, y))
    with pytest.raises(SettingError, match="fit each target on its own"):
        model.fit(X, np.column_stack([y, y]))
    model.fit(X, y)
    with pytest.raises(InputError, match=r"target 'y' holds .*5 and 2 others"):
        model.update(X[:3], y[:3] + 0.5)
    with pytest.raises(SettingError, match="has no forget with likelihood='poisson'"):
        model.forget(X[:3], y[:3])
    with pytest.raises(SettingError, match="likelihood='poisson' takes a noise variance per"):
        daskgp.ExpertsGP(**COMMITTEE, likelihood="poisson").fit(X, y)


@pytest.mark.parametrize("name", ["student-t", "censored"])
@pytest.mark.parametrize("unit", [1e-4, 1000.0])
def test_measured_targets_may_have_any_unit(name, unit, tmp_path):
    X, y = data("student-t", 40)
    below = y < np.quantile(y, 0.2)
    limits = {"lower": np.where(below, -np.inf, y), "upper": np.where(below, y[below].max(), y)}
    given = limits if name == "censored" else {}

    def fit(unit):
        kernel = kernels.Matern32(lengthscale=0.3, variance=unit**2)
        model = daskgp.SGPR(kernel, likelihood=name, inducing=X[::2], **FIXED)
        return model.fit(X, unit * y, **{side: unit * own for side, own in given.items()})

    one, other = fit(1.0), fit(unit)
    other.save(str(tmp_path / "model.zarr"))
    for model in (other, daskgp.load(tmp_path / "model.zarr")):
        for noisy in (False, True):
            asked = {"return_std": True, "quantiles": (0.1, 0.9), "include_noise": noisy}
            pairs = zip(one.predict(X, **asked), model.predict(X, **asked), strict=True)
            for here, there in pairs:
                np.testing.assert_allclose(there / unit, here, rtol=1e-5, atol=1e-6)
        there, here = model.predict_exceedance(X, unit, True), one.predict_exceedance(X, 1.0, True)
        np.testing.assert_allclose(there, here, atol=1e-6)
    np.testing.assert_allclose(
        other.likelihood_.log_parameters, one.likelihood_.log_parameters, atol=1e-5
    )
    if not given:
        for model, own in ((one, 1.0), (other, unit)):
            model.update(X[:5] + 0.01, own * y[:5])
        np.testing.assert_allclose(other.predict(X) / unit, one.predict(X), rtol=1e-5, atol=1e-6)


def test_outliers_are_noise_from_the_first_fit_on():
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 10, (80, 1)), axis=0)
    f = np.sin(X[:, 0])
    y = f + 0.1 * rng.standard_t(3, 80)
    y[::13] += 3.0
    model = daskgp.ExactGP("matern52()", likelihood="student-t", tol=2.0, progress=False)
    assert np.abs(model.fit(X, y).predict(X) - f).mean() < 0.12


def with_heavy_tails(n):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] / 10, 0.2 * rng.standard_t(3, n)


@pytest.mark.whole
@pytest.mark.parametrize("mean", ["constant", "zero"])
def test_heavy_tailed_noise_is_that_of_targets_at_any_level(mean):
    X, f, e = with_heavy_tails(100)
    model = daskgp.ExactGP("matern32()", likelihood="student-t", mean=mean, progress=False)
    for level in (0.0, 10.0, 1000.0):
        found = model.fit(X, f + level + e).predict(X) - level
        assert np.sqrt(((found - f) ** 2).mean()) < 0.25


def test_heavy_tailed_noise_goes_on_from_a_model_of_another_level():
    X, f, e = with_heavy_tails(100)
    model = daskgp.ExactGP("matern32()", likelihood="student-t", progress=False)
    before = model.fit(X, f + e)
    again = clone(model).fit(X, f + 5.0 + e, start=before)
    assert np.sqrt(((again.predict(X) - 5.0 - f) ** 2).mean()) < 0.25


def test_hyper_parameters_are_trained_with_the_sites_that_are_kept(monkeypatch):
    made, trained = [True], []
    following, fitted = sites.Stored.following, sites._Turns._fitted

    def noted(self, *given):
        made.append(given[3].cautious)
        return following(self, *given)

    def told(self, recipe, *given):
        trained.append(recipe.optimizer is not None)
        return fitted(self, recipe, *given)

    monkeypatch.setattr(sites, "STILL", np.inf)
    monkeypatch.setattr(sites.Stored, "following", noted)
    monkeypatch.setattr(sites._Turns, "_fitted", told)
    X, f, e = with_heavy_tails(100)
    daskgp.ExactGP("matern32()", likelihood="student-t", progress=False).fit(X, f + e)
    cautious = made[: len(trained)]
    assert not all(cautious)
    assert trained[cautious.index(False)]


@pytest.mark.whole
@pytest.mark.parametrize("what", ["step", "growth", "slope"])
def test_regions_far_from_the_median_do_not_throw_a_fit_of_heavy_tailed_noise(what):
    X, f, e = with_heavy_tails(150)
    shapes = {"step": f + 30 * (X[:, 0] > 6.5), "growth": np.exp(2 * f), "slope": f + 5 * X[:, 0]}
    f = shapes[what]
    model = daskgp.ExactGP("matern32()", likelihood="student-t", progress=False).fit(X, f + e)
    assert np.sqrt(((model.predict(X) - f) ** 2).mean()) < 0.3 * f.std()


def test_sites_that_go_astray_are_no_model():
    rng = np.random.default_rng(11)
    X = rng.uniform(0, 10, (200, 2))
    f = np.sin(X[:, 0]) + X[:, 1] / 10 + 30 * (X[:, 0] > 6)
    model = daskgp.ExactGP("matern32()", likelihood="gamma", progress=False)
    with pytest.raises(NumericalError, match=r"go astray.*choose another likelihood"):
        model.fit(X, rng.gamma(9, np.exp(f) / 9))


def test_the_scale_is_the_best_one_where_the_degrees_of_freedom_are_at_their_bound():
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(300, 2))
    y = np.sin(5 * X[:, 0]) + 0.02 * rng.standard_cauchy(300)
    model = daskgp.ExactGP(KERNEL, likelihood="student-t", tol=1e-3, **FIXED).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    x, w = np.polynomial.hermite_e.hermegauss(20)
    f = mean[:, None] + std[:, None] * x

    def expected(scale):
        return (student.logpdf(y[:, None], df, loc=f, scale=scale) @ w).sum()

    df, scale = model.likelihood_.df, model.likelihood_.scale * model.solved_.latent_unit
    assert df == pytest.approx(2.1)
    assert expected(scale) > max(expected(scale * factor) for factor in (0.9, 1.1))


def test_measured_values_have_the_kernel_of_gaussian_noise_whatever_their_spread():
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(300, 2))
    y = 0.4 * (np.sin(5 * X[:, 0]) + np.cos(4 * X[:, 1])) + 0.2 * rng.standard_normal(300)
    plain = daskgp.ExactGP(progress=False).fit(X, y)
    model = daskgp.ExactGP(likelihood="censored", progress=False).fit(X, y, lower=y, upper=y)
    assert type(model.kernel_) is type(plain.kernel_)
    assert abs(model.objective_ - plain.objective_) < 1.0
    mean, std = model.predict(X, return_std=True)
    wanted, spread = plain.predict(X, return_std=True)
    assert np.abs(mean - wanted).max() < 0.03
    np.testing.assert_allclose(std, spread, rtol=0.25)


def test_bounds_that_are_open_on_one_side_in_all_rows_are_told(caplog):
    X, upper = np.linspace(0, 1, 20)[:, None], np.full(20, 3.0)
    with caplog.at_level("WARNING", "daskgp"):
        model = daskgp.ExactGP(KERNEL, likelihood="censored", **FIXED)
        model.fit(X, upper, lower=np.full(20, -np.inf), upper=upper)
    assert "lower is infinite in all rows, so no row is measured" in caplog.text


def test_rows_without_a_value_but_with_bounds_are_censored_and_have_uniform_ranks():
    X, y, own = some("censored", np.random.default_rng(3), 200)
    below = np.isinf(own["lower"])
    model = daskgp.SGPR(KERNEL, n_inducing=30, likelihood="censored", **FIXED)
    gone = np.where(below, np.nan, y)
    whole = model.fit(X[:100], y[:100], **{k: a[:100] for k, a in own.items()}).predict(X)
    given = {k: a[:100] for k, a in own.items()}
    np.testing.assert_allclose(model.fit(X[:100], gone[:100], **given).predict(X), whole)
    assert model.n_rows_ == 100
    found = daskgp.check(model, X[100:], gone[100:], **{k: a[100:] for k, a in own.items()})
    assert found.n == 100
    assert 0.35 < found.ranks[: len(found.ranks) // 2].sum() < 0.65
    assert found.ranks.max() < 0.2  # not heaped at the bound, which a third of the rows have


def test_a_likelihood_begins_with_what_targets_say():
    X, _ = data("student-t", 80)
    classes = np.digitize(X[:, 0], [0.2, 0.5, 0.7, 0.99]).astype(float)
    model = daskgp.SGPR(n_inducing=15, likelihood="ordinal", progress=False).fit(X, classes)
    assert len(model.likelihood_.log_parameters) == int(classes.max()) - 1
    assert np.mean(np.abs(model.predict(X, include_noise=True) - classes)) < 0.3


def test_ordered_classes_with_a_gap_are_refused_but_folds_may_have_one():
    X, _ = data("student-t", 30)
    classes = np.arange(30) % 3.0
    model = daskgp.SGPR(KERNEL, n_inducing=9, likelihood="ordinal", **FIXED)
    with pytest.raises(InputError, match="no row of target 'y' has class 1 below 3, which then"):
        model.fit(X, np.where(classes > 0, classes + 1, 0.0))
    pd = pytest.importorskip("pandas")
    levels = pd.Series(
        pd.Categorical.from_codes(classes.astype(int), ["a", "b", "c"], ordered=True)
    )
    for y, name in ((levels, "unnamed column"), (levels.rename("soil"), "column 'soil'")):
        with pytest.raises(InputError, match=f"{name} holds text such as 'a', .*, .cat.codes, and"):
            model.fit(X, y)
    assert len(model.fit(X, levels.cat.codes).likelihood_.gaps) == 1
    one = np.where(np.arange(30) == 4, 1.0, np.where(classes == 1, 2.0, classes))
    assert len(daskgp.cross_validate(model, X, one, folds=3).rows) == 3


def test_one_value_in_all_rows_is_told(caplog):
    X, y = data("bernoulli")
    model = daskgp.SGPR(KERNEL, n_inducing=10, likelihood="bernoulli", **FIXED)
    model.fit(X, np.ones_like(y))
    assert "target 'y' is 1 in all 36 rows, which say nothing of how f varies" in caplog.text
    caplog.clear()
    model.fit(X, y)
    assert not caplog.text


def test_parameters_of_a_likelihood_have_standard_errors_and_are_kept(tmp_path):
    X = np.random.default_rng(0).uniform(size=(150, 2))
    rng, told = np.random.default_rng(1), {}
    y = by_name("negative-binomial").sample(1.0 + np.sin(6 * X[:, 0]), rng).astype(float)
    model = daskgp.SGPR(KERNEL, n_inducing=12, likelihood="negative-binomial", progress=False)
    model.fit(X, y)
    rows = {row.name: row for row in model.hyperparameters_}
    assert {name: row.unit for name, row in rows.items()} == {
        "variance": "1",
        "lengthscale": "x0, x1",
        "size": "1",
    }
    size = rows["size"]
    assert size.value == pytest.approx(model.likelihood_.size)
    # by differences of the expected log-likelihood under the f that was found
    m, s = model.predict(X, return_std=True)
    for step in (-0.1, 0.0, 0.1):
        own = model.likelihood_.with_log_parameters(model.likelihood_.log_parameters + step)
        told[step] = own.expected(y[:, None], m[:, None], s**2).value
    bend = (2 * told[0.0] - told[0.1] - told[-0.1]) / 0.01
    assert size.standard_error / size.value == pytest.approx(bend**-0.5, rel=0.05)
    assert model.noise_variance_ == 0.0
    assert "noise_variance" not in model.history_[-1]
    assert model.history_[-1]["size"] == pytest.approx(size.value, rel=0.1)
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    assert loaded.hyperparameters_ == model.hyperparameters_
    assert loaded.noise_variance_ == 0.0
    loaded.update(X[:5], y[:5])
    assert [row.name for row in loaded.hyperparameters_] == [*rows]


def test_parameters_of_a_measured_likelihood_are_in_the_unit_of_y():
    X, y = data("student-t", 80)
    model = daskgp.SVGP(likelihood="student-t", n_inducing=8, batch_rows=40, max_iter=3)
    rows = {row.name: row for row in model.fit(X, 100 * y).hyperparameters_}
    assert (rows["scale"].unit, rows["df"].unit, rows["variance"].unit) == ("y", "1", "y^2")
    spread = model.solved_.scaling.y_scale[0]
    assert rows["scale"].value == pytest.approx(spread * model.likelihood_.scale)
    assert np.isnan(rows["scale"].standard_error)
