"""Leave-one-out predictions from the fit to all rows, against fits without each row."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
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

KEEPS = cases.those(lambda name: cases.method(name).why_no_loo() is None)


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


@pytest.mark.parametrize("name", ["sgpr", "lma", "vecchia"])
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
@pytest.mark.parametrize("name", KEEPS)
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
    if name == "vecchia":
        settings |= {"n_neighbours": 60, "predict_neighbours": 60}
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


@pytest.mark.parametrize("name", ["sgpr", "lma", "vecchia"])
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


WEIGHTS = np.linspace(0.5, 2.0, 60)
ERRORS = np.linspace(0.01, 0.3, 60)


def told(name, **more):
    """Rows, and a model that was fitted to them with y_variance and sample_weight."""
    X, y = cases.rows(60)
    noise = {"y_variance": ERRORS, "sample_weight": WEIGHTS}
    return X, y, noise, cases.fixed(name, block_rows=30, **more).fit(X, y, **noise)


def given(noise, **others):
    return {k: v for k, v in (noise | others).items() if v is not None}


@pytest.mark.parametrize("name", KEEPS)
def test_rows_come_with_the_noise_of_the_fit(name, tmp_path):
    X, y, noise, model = told(name)
    model.save(tmp_path / "model.zarr")
    right = model.loo(X, y, **noise)
    for gp in (model, daskgp.load(tmp_path / "model.zarr")):
        np.testing.assert_allclose(gp.loo(X, y, **noise), right, rtol=1e-9)
        for missing in noise:
            with pytest.raises(InputError, match=f"fitted with {missing}: give {missing}="):
                gp.loo(X, y, **given(noise, **{missing: None}))
        for key in noise:
            changed = np.where(np.arange(60) == 7, 1.01, 1.0) * noise[key]
            with pytest.raises(InputError, match=r"rows have another y_v|the rows are not those"):
                gp.loo(X, y, **noise | {key: changed})
    plain = cases.fixed(name, block_rows=30).fit(X, y)
    for extra in noise:
        with pytest.raises(InputError, match=f"fitted without {extra}: leave it out"):
            plain.loo(X, y, **{extra: noise[extra]})


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(KEEPS))
def test_other_rows_are_refused_whoever_gives_them(name):
    X, y, noise, model = told(name)
    one = np.where(np.arange(60) == 11, 1e-3, 0.0)
    for rows in ((X + one[:, None], y), (X, y + one)):
        where = r"1 of \d+ rows (are not rows|have another y than)|rows are not those of the fit"
        with pytest.raises(InputError, match=where):
            model.loo(*rows, **noise)
        lazy = model.loo(*(da.from_array(a, chunks=(20, -1)[: a.ndim]) for a in rows), **noise)
        with pytest.raises(InputError, match=where):  # of whichever chunk
            dask.compute(lazy[0], scheduler="synchronous")
    some = slice(5, 25)
    part = {k: v[some] for k, v in noise.items()}
    if model.solved_.method.tells_rows:
        found = model.loo(X[some], y[some], **part)
        np.testing.assert_allclose(found, np.array(model.loo(X, y, **noise))[:, some], rtol=1e-9)
    else:
        with pytest.raises(InputError, match=r"20 rows of 60.*give all of them"):
            model.loo(X[some], y[some], **part)
    for order in (np.arange(60)[::-1], np.r_[30:60, 0:30]):
        found = model.loo(X[order], y[order], **{k: v[order] for k, v in noise.items()})
        np.testing.assert_allclose(found, np.array(model.loo(X, y, **noise))[:, order], rtol=1e-8)


@pytest.mark.parametrize("name", ["sgpr", "ssgp", "lma", "pic", "vecchia"])
def test_rows_that_were_added_are_rows_of_the_fit_and_those_taken_out_are_none(name):
    X, y = cases.rows(90)
    error = np.linspace(0.01, 0.3, 90)
    model = cases.fixed(name, block_rows=30).fit(X[:60], y[:60], y_variance=error[:60])
    model.update(X[60:], y[60:], y_variance=error[60:])
    assert np.isfinite(model.loo(X, y, y_variance=error)).all()
    if name in ("lma", "pic", "vecchia"):
        return
    model.forget(X[:30], y[:30], y_variance=error[:30])
    assert np.isfinite(model.loo(X[30:], y[30:], y_variance=error[30:])).all()
    with pytest.raises(InputError, match="90 rows of 60"):
        model.loo(X, y, y_variance=error)


@pytest.mark.parametrize("name", ["sgpr", "lma", "vecchia"])
def test_those_of_a_store_are_given_with_it(name, make_store):
    X, y = cases.rows(60)
    weight = WEIGHTS.copy()
    weight[[3, 40]] = 0.0
    url = make_store(X, y, 20)
    zarr.create_array(url, name="weight", data=weight, chunks=(20,))
    rows = daskgp.open_dataset(url)
    model = cases.fixed(name, block_rows=30, mean=LinearRegression().fit(X, y)).fit(*rows)
    found = np.array(dask.compute(model.loo(*rows))[0])
    assert np.isnan(found[0]).nonzero()[0].tolist() == [3, 40]  # a weight of 0 leaves a row out
    wanted = model.loo(X, y, sample_weight=weight)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    with pytest.raises(InputError, match="fitted with sample_weight"):
        model.loo(X, y)


def test_a_store_of_an_earlier_version_tells_what_it_cannot_check(caplog):
    X, y, noise, model = told("sgpr")
    right = model.loo(X, y, **noise)
    for note in model._fitted.seen:
        del note["checksum"], note["given"]
    np.testing.assert_array_equal(model.loo(X, y, **noise), right)
    assert "stored by an earlier version" in caplog.text


def test_equal_rows_with_other_errors_are_told_apart():
    X, y = cases.rows(60)
    X[20], y[20] = X[10], y[10]
    for name in ("exact", "lma", "vecchia"):
        model = cases.fixed(name, block_rows=60).fit(X, y, y_variance=ERRORS)
        mean, std = model.loo(X, y, y_variance=ERRORS)
        order = np.arange(60)[::-1]
        other = model.loo(X[order], y[order], y_variance=ERRORS[order])
        np.testing.assert_allclose(np.array(other)[:, order], [mean, std], rtol=1e-8)
        assert mean[10] != mean[20]


def test_what_rows_of_another_shape_are_told():
    X, y = cases.rows(60)
    with pytest.raises(InputError, match="y has shape"):
        cases.fixed("exact").fit(X, y).loo(X, y[:2])
    alone = daskgp.SGPR(inducing=X[:1], optimizer=None, noise_variance=1e-3).fit(X[:20], y[:20])
    alone.solved_.state.inner_factor[...] = 1e-3
    with pytest.raises(NumericalError, match="cross_validate"):
        alone.loo(X[:20], y[:20])
