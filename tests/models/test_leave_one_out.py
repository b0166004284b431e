"""Leave-one-out predictions from the fit to all rows, against fits without each row."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import kernels
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.models.exact import Exact
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Theta
from tests.contract import cases

N, S = 300, 0.05
METHODS = {"sgpr": SGPR(), "ssgp": SparseSpectrum(), "exact": Exact()}


def problem(name, rows_differ, n=N):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (n, 2))
    X[7] = X[3]  # equal inputs with other targets
    y = np.stack([np.sin(2 * X[:, 0]), np.cos(X[:, 1])], axis=1) + 0.2 * rng.standard_normal((n, 2))
    noise = None
    if rows_differ:
        noise = np.column_stack([rng.uniform(0.5, 2, n), rng.uniform(0, 0.1, n)])
    kernel = kernels.RBF((0.9, 1.1), variance=1.3)
    inputs = None if name == "exact" else rng.uniform(0, 3, (12, 2))
    return Theta(kernel, S, inputs), Block(X, y, noise)


def fitted(model, theta, block):
    prepared = model.prepare(theta)
    return model.posterior(prepared, model.local(prepared, block))


def noise_of(block, i):
    return S if block.noise is None else S * block.noise[i, 0] + block.noise[i, 1]


SOME = np.unique([*range(0, N, 9), 3, 7])
"""Rows that fits are made without."""


def refitted(block, predict):
    """Means and variances of new observations by fits without each of some rows."""
    n, means, variances = len(block.X), [], []
    for i in SOME:
        found = predict(block.at(np.arange(n) != i), block.X[[i]], i)
        means.append(found.mean[0])
        variances.append(found.variance[0] + noise_of(block, i))
    return np.array(means), np.array(variances)


def equal(found, wanted):
    np.testing.assert_allclose(found.mean, wanted[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.variance, wanted[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows_differ", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_they_are_those_of_fits_without_each_row(name, rows_differ):
    theta, block = problem(name, rows_differ)
    model = METHODS[name]

    def predict(rest, x, i):
        return model.predict(theta, fitted(model, theta, rest), x, want="variance")

    found = model.loo(theta, fitted(model, theta, block), block.at(SOME))
    equal(found, refitted(block, predict))


@pytest.mark.parametrize("rows_differ", [False, True])
def test_those_of_a_full_band_are_those_of_the_exact_gp(rows_differ):
    theta, block = problem("sgpr", rows_differ)
    model, exact = LMA(), Exact()
    prepared = model.prepare(theta)
    cuts = [block.at(rows) for rows in np.array_split(np.arange(N), 4)]
    total = model.local(prepared, cuts[0])
    for i in range(1, 4):
        total = model.combine(total, model.local(prepared, cuts[i], cuts[:i]))
    state = model.posterior(prepared, total)
    near = model.condition(theta, state, cuts)
    wanted = exact.loo(theta, fitted(exact, theta, block), block)
    equal(model.loo(theta, state, block, near), (wanted.mean, wanted.variance))


def test_those_of_independent_blocks_are_those_of_fits_without_each_row():
    theta, block = problem("sgpr", False)
    model = LMA(markov_order=0)
    prepared = model.prepare(theta)
    owner = np.arange(N) // 30

    def state_of(rows, owner):
        parts = [model.local(prepared, rows.at(owner == b)) for b in range(10)]
        total = parts[0]
        for part in parts[1:]:
            total = model.combine(total, part)
        return model.posterior(prepared, total)

    def predict(rest, x, i):
        own = np.delete(owner, i)
        state = state_of(rest, own)
        near = model.condition(theta, state, [rest.at(own == owner[i])])
        return model.predict(theta, state, x, near, "variance")

    state = state_of(block, owner)
    found = [
        model.loo(theta, state, own, model.condition(theta, state, [own]))
        for own in (block.at(owner == b) for b in range(10))
    ]
    means, variances = refitted(block, predict)
    for name, wanted in (("mean", means), ("variance", variances)):
        values = np.concatenate([getattr(one, name) for one in found])
        np.testing.assert_allclose(values[SOME], wanted, rtol=1e-8, atol=1e-8)


# -- of estimators ---------------------------------------------------------------------------

KEEPS = {"sgpr", "lma", "pic", "ssgp", "exact"}


@pytest.mark.parametrize("name", cases.SETTINGS)
def test_a_method_gives_them_or_says_what_to_do(name):
    X, y = cases.rows(60)
    model = cases.fixed(name, block_rows=30).fit(X, y)
    if name not in KEEPS:
        with pytest.raises(SettingError, match=r"take daskgp\.cross_validate"):
            model.loo(X, y)
        return
    mean, std = model.loo(X, y)
    assert mean.shape == std.shape == y.shape
    inside = model.predict(X, return_std=True, include_noise=True)
    assert (np.abs(mean - y) > np.abs(inside[0] - y)).all()  # a row draws its own prediction
    assert (std >= inside[1] - 1e-12).all()


@pytest.mark.parametrize("name", ["sgpr", "exact", "ssgp"])
def test_estimators_give_them_in_the_units_of_y(name):
    X, y = cases.rows(60)
    plain = {"standardize": False, "mean": "zero"}
    if name == "sgpr":
        plain["inducing"] = X[::6]
    keep = cases.make(name).get_params(deep=False)
    keep = {k: v for k, v in keep.items() if k not in ("max_iter", "n_inducing")}
    model = type(cases.make(name))(**{**keep, **plain, "optimizer": None})
    error = np.linspace(0.01, 0.3, 60)
    mean, std = model.fit(X, 5 * y, y_variance=error).loo(X, 5 * y, y_variance=error)
    for i in (0, 13, 59):
        rest = np.arange(60) != i
        one = type(model)(**model.get_params(deep=False))
        one.fit(X[rest], 5 * y[rest], y_variance=error[rest])
        m, s = one.predict(X[[i]], True, include_noise=True, y_variance=error[[i]])
        np.testing.assert_allclose([mean[i], std[i]], [m[0], s[0]], rtol=1e-8)


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_lazy_rows_give_the_same_and_missing_ones_none(name, make_store, tmp_path):
    X, y = cases.rows(90)
    y[4] = np.nan
    url = make_store(X, y, 30)
    lazy = daskgp.open_dataset(url)
    model = cases.fixed(name, block_rows=30).fit(X, y)
    wanted = model.loo(X, y)
    found = model.loo(*lazy)
    assert found[0].chunks == ((30, 30, 30),)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.compute(), other, rtol=1e-9)
    assert np.isnan(wanted[0]).nonzero()[0].tolist() == [4]


@pytest.mark.parametrize("rows_differ", [False, True])
@pytest.mark.parametrize("name", ["sgpr", "ssgp", "exact", "lma", "pic"])
def test_a_trend_is_estimated_without_each_row_too(name, rows_differ):
    X, y = cases.rows(60)
    both = np.column_stack([y + 20 + X @ [5.0, -3.0], y * y])
    both = both[:, 0] if rows_differ else both  # known errors are those of one target
    settings = {"standardize": False, "mean": "linear"}
    if name == "sgpr":
        settings["inducing"] = X[::6]
    if name in ("lma", "pic"):  # windows that span all blocks, and a single block
        settings["block_rows"] = 60
        settings |= {"markov_order": 0} if name == "lma" else {}
    made = cases.fixed(name).get_params(deep=False)
    made.pop("n_inducing", None)
    model = type(cases.make(name))(**made | settings)
    error = {"y_variance": np.linspace(0.01, 0.3, 60)} if rows_differ else {}
    mean, std = model.fit(X, both, **error).loo(X, both, **error)
    for i in (0, 59):
        rest = np.arange(60) != i
        given, new = ({k: v[of] for k, v in error.items()} for of in (rest, [i]))
        one = type(model)(**model.get_params(deep=False)).fit(X[rest], both[rest], **given)
        m, s = one.predict(X[[i]], True, include_noise=True, **new)
        np.testing.assert_allclose([mean[i], std[i]], [m[0], s[0]], rtol=1e-6)
    found = daskgp.cross_validate(model, X, both, folds="loo", **error)
    assert found.pooled["rmse"] == pytest.approx(np.sqrt(((both - mean) ** 2).mean()))


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_a_regressor_stays_as_it_is(name):
    X, y = cases.rows(60)
    regressor = LinearRegression().fit(X[:20], y[:20])
    mean, std = cases.fixed(name, mean=regressor).fit(X, y).loo(X, y)
    left = y - regressor.predict(X)
    m, s = cases.fixed(name).fit(X, left).loo(X, left)
    np.testing.assert_allclose([mean - regressor.predict(X), std], [m, s], rtol=1e-9)


def test_they_are_on_the_scale_of_transformed_targets():
    X, y = cases.rows(60)
    model = cases.fixed("exact", target_transform="log").fit(X, np.exp(y))
    logs = cases.fixed("exact").fit(X, y)
    (mean, _), (m, s) = model.loo(X, np.exp(y)), logs.loo(X, y)
    np.testing.assert_allclose(mean, np.exp(m + s**2 / 2), rtol=1e-9)


def test_other_rows_are_refused():
    X, y = cases.rows(60)
    with pytest.raises(InputError, match="1 of 2 rows are not rows that the model was fitted to"):
        cases.fixed("exact").fit(X, y).loo(np.concatenate([X[:1], X[:1] + 0.1]), y[:2])
    with pytest.raises(InputError, match="y has shape"):
        cases.fixed("exact").fit(X, y).loo(X, y[:2])
    alone = daskgp.SGPR(inducing=X[:1], optimizer=None, noise_variance=1e-3).fit(X[:20], y[:20])
    alone.solved_.state.inner_factor[...] = 1e-3
    with pytest.raises(NumericalError, match="cross_validate"):
        alone.loo(X[:20], y[:20])
