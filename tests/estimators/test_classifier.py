"""GPClassifier: scikit-learn's checks, labels of any kind, and dense oracles."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.datasets import make_blobs, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as peers
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import daskgp
from daskgp import GPClassifier, kernels
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.estimators import load_one

KERNEL = kernels.RBF(lengthscale=1.0, variance=4.0)
FIXED = {"optimizer": None, "progress": False, "mean": "zero"}
OFTEN = {
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_estimators_unfitted",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_supervised_y_2d",
}
"""Checks that every test run makes."""
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 has one site, and the same row twice has two: turns end at other bits"
    ),
    "check_dtype_object": "numbers kept as Python objects are refused with one line",
    "check_decision_proba_consistency": (
        "decision_function is the latent mean, and a probability depends on its variance too"
    ),
    "check_estimators_pickle": "a row that misses a feature has no class, which predict refuses",
}


def fixed(kind=daskgp.ExactGP, **settings):
    return kind(KERNEL, **FIXED, **settings)


def blobs(n=90, classes=3):
    X, y = make_blobs(n, centers=classes, cluster_std=2.0, random_state=1)
    return X / 3.0, y


def checks():
    for number, (model, check) in enumerate(
        estimator_checks_generator(
            GPClassifier(daskgp.ExactGP("rbf", optimizer=None, progress=False)),
            legacy=True,
            mark=None,
        )
    ):
        name = check.func.__name__
        if name == "check_array_api_input":
            continue  # of arrays beside NumPy's, for which scikit-learn wants a variable set
        marks = [] if name in OFTEN else [pytest.mark.slow]
        yield pytest.param(model, check, id=f"{number}-{name}", marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "check"), list(checks()))
def test_checks_of_scikit_learn(model, check):
    if check.func.__name__ in EXPECTED:
        with pytest.raises((AssertionError, InputError)):
            check(model)
    else:
        check(model)


# -- against others --------------------------------------------------------------------------


def best_bound(K, y):
    """Means, variances (n, C) and the value of the largest bound, of any Gaussians per class.

    Those of the largest have precisions K^-1 + diag(r): it is maximised over means L b and log r,
    with expectations by a product of quadrature rules.
    """
    n, C = len(y), int(y.max()) + 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    grid = np.stack(np.meshgrid(*[nodes] * C, indexing="ij"), axis=-1).reshape(-1, C)
    w = np.prod(np.stack(np.meshgrid(*[weights] * C, indexing="ij"), axis=-1), axis=-1).ravel()
    L = np.linalg.cholesky(K + 1e-10 * np.eye(n))
    w, label = w / w.sum(), (y[:, None] == np.arange(C)).astype(float)

    def parts(z):
        b, log_r = z.reshape(2, n, C)
        r = np.exp(log_r)
        m = L @ b
        S = np.stack([K - K @ np.linalg.solve(np.diag(1 / r[:, c]) + K, K) for c in range(C)])
        return b, r, m, S, np.diagonal(S, axis1=1, axis2=2).T

    def minus_bound(z):
        b, r, m, S, s2 = parts(z)
        f = m[:, None] + np.sqrt(s2)[:, None] * grid
        total = logsumexp(f, axis=2)
        p = np.exp(f - total[:, :, None])
        mean, spread = w @ p, w @ (p * (1 - p))
        value = (label * m).sum() - (total @ w).sum()
        value -= 0.5 * (b**2).sum() - 0.5 * (r * s2).sum()
        value -= 0.5 * sum(np.linalg.slogdet(np.eye(n) + K * r[:, c])[1] for c in range(C))
        by_r = [0.5 * S[c] ** 2 @ (spread - r)[:, c] * r[:, c] for c in range(C)]
        return -value, -np.stack([L.T @ (label - mean) - b, np.transpose(by_r)]).ravel()

    start = np.stack([np.zeros((n, C)), np.full((n, C), np.log(0.2))]).ravel()
    found = minimize(minus_bound, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    _, _, m, _, s2 = parts(found.x)
    return m, s2, -found.fun


@pytest.mark.parametrize("kind", ["exact", pytest.param("vecchia", marks=pytest.mark.slow)])
def test_three_classes_have_the_largest_bound_of_a_dense_oracle(kind):
    X, y = blobs(40)
    base = fixed() if kind == "exact" else fixed(daskgp.VecchiaGP, n_neighbours=39)
    model = GPClassifier(base.set_params(tol=1e-4)).fit(X, y)
    mean, std = (
        np.column_stack(part)
        for part in zip(*(f.predict(X, return_std=True) for f in model.fields_), strict=True)
    )
    K = KERNEL.variance * np.exp(
        -0.5 * ((X[:, None] - X[None]) ** 2 / KERNEL.lengthscale**2).sum(axis=2)
    )
    wanted, variance, value = best_bound(K, y)
    np.testing.assert_allclose(mean, wanted, atol=0.02)
    np.testing.assert_allclose(std**2, variance, rtol=0.02)
    np.testing.assert_allclose(model.objective_, value, atol=0.05)
    np.testing.assert_array_equal(model.decision_function(X), mean)


def test_workers_change_no_bit_and_chunks_no_more_than_rounding():
    X, y = blobs(60)
    places, given = da.from_array(X, chunks=(7, 2)), []
    for workers in (1, 4):
        with dask.config.set(scheduler="threads", num_workers=workers):
            model = GPClassifier(fixed(daskgp.SGPR, n_inducing=5, tol=10.0, block_rows=20))
            model.fit(da.from_array(X, chunks=(20, 2)), da.from_array(y, chunks=20))
            given.append(model.predict_proba(places).compute())
    assert (given[0] == given[1]).all()
    np.testing.assert_allclose(given[0], model.predict_proba(X), rtol=1e-12)


def test_scores_come_near_to_those_of_scikit_learn():
    X, y = make_moons(160, noise=0.25, random_state=0)
    train, rest = slice(0, 100), slice(100, None)
    ours = GPClassifier(daskgp.ExactGP("rbf", progress=False)).fit(X[train], y[train])
    kernel = peers.ConstantKernel() * peers.RBF()
    theirs = GaussianProcessClassifier(kernel).fit(X[train], y[train])
    scores = [log_loss(y[rest], m.predict_proba(X[rest])) for m in (ours, theirs)]
    assert scores[0] < scores[1] + 0.03


@pytest.mark.parametrize("count", [2, 3])
def test_scores_of_probabilities_are_those_of_scikit_learn(count):
    X, codes = blobs(40, count)
    y = np.array(["b", "a", "c"])[codes]
    model = GPClassifier(fixed()).fit(X, y)
    p, found = model.predict_proba(X), model.scores(X, y)
    assert found["n"] == len(y)
    assert found["accuracy"] == pytest.approx(model.score(X, y))
    assert found["nlpd"] == pytest.approx(log_loss(y, p, labels=model.classes_))
    observed = np.searchsorted(model.classes_, y)
    assert found["brier"] == pytest.approx(daskgp.metrics.brier(observed.astype(float), p))
    lazy = model.scores(da.from_array(X, chunks=(15, 2)), da.from_array(y, chunks=11))
    assert lazy == pytest.approx(found, rel=1e-9)
    with pytest.raises(InputError, match="classes that the fit has not seen, 'd'"):
        model.scores(X[:1], ["d"])
    with pytest.raises(InputError, match="y has 39 rows and X has 40"):
        model.scores(X, y[1:])


@pytest.mark.parametrize("kind", [np.asarray, lambda a: da.from_array(a, chunks=7)])
@pytest.mark.parametrize(
    ("names", "none"), [(np.arange(3.0), np.nan), (np.array(["b", "a", "c"], object), None)]
)
def test_scores_leave_rows_without_a_label_out(names, none, kind):
    X, codes = blobs(40, 3)
    y = names[codes]
    model, gap = GPClassifier(fixed()).fit(X, y), y.copy()
    gap[[2, 5]] = none
    rest = np.delete(np.arange(40), [2, 5])
    assert model.scores(X, kind(gap)) == pytest.approx(model.scores(X[rest], y[rest]))
    with pytest.raises(InputError, match="y has no class in any row: give labels"):
        model.scores(X, np.full(40, none))


@pytest.mark.parametrize("count", [2, 3])
def test_a_weight_of_two_is_a_row_twice_and_one_of_zero_none(count):
    X, y = blobs(40, count)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    weight[np.unique(y, return_index=True)[1]] = 1
    base = fixed().set_params(tol=1e-5)
    weighted = GPClassifier(base).fit(X, y, sample_weight=weight.tolist())
    copies = np.repeat(np.arange(len(y)), weight)
    repeated = GPClassifier(base).fit(X[copies], y[copies])
    assert weighted.n_rows_ == (weight > 0).sum()
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=2e-3)
    assert weighted.objective_ == pytest.approx(repeated.objective_, abs=0.01)
    with pytest.raises(InputError, match="sample_weight has shape"):
        GPClassifier(base).fit(X, y, sample_weight=weight[1:])
    lazy = GPClassifier(base).fit(
        *(da.from_array(part, chunks=(20, *part.shape[1:])) for part in (X, y)),
        sample_weight=da.from_array(weight, chunks=20),
    )
    np.testing.assert_allclose(lazy.predict_proba(X), weighted.predict_proba(X), atol=1e-6)


@pytest.mark.whole
@pytest.mark.parametrize("count", [2, 3])
def test_weights_of_a_store_are_those_of_its_rows(count, tmp_path, caplog):
    X, y = blobs(40, count + 1)
    weight = np.where(y == count, 0.0, 1.0 + np.arange(40) % 2)
    np.savez(tmp_path / "rows.npz", u=X[:, 0], v=X[:, 1], y=y, w=weight)
    url = str(tmp_path / "rows.zarr")
    daskgp.convert(str(tmp_path / "rows.npz"), url, "y", ["u", "v"], 13, weight="w")
    rows, base = daskgp.open_dataset(url), fixed().set_params(tol=1e-2)
    model = GPClassifier(base).fit(*rows)
    kept = weight > 0
    wanted = GPClassifier(base).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert model.classes_.tolist() == list(range(count))  # the last one weighs nothing
    np.testing.assert_allclose(model.predict_proba(X), wanted.predict_proba(X), atol=1e-6)
    assert model.scores(*rows) == pytest.approx(model.scores(X[kept], y[kept]), rel=1e-9)
    given = model.score(X[kept], y[kept], sample_weight=weight[kept])
    assert model.score(*rows) == pytest.approx(given)
    base.set_params(tol=9.0)
    whole = GPClassifier(base).fit(*rows, sample_weight=False)
    assert len(whole.classes_) == count + 1
    assert "changed copy" not in caplog.text
    GPClassifier(base).fit(rows[0][:30], rows[1][:30])
    assert caplog.text.count("give sample_weight=, or False") == 1


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_hyper_parameters_are_trained(shared):
    X, y = blobs(50)
    base = daskgp.ExactGP("rbf", progress=False, max_iter=3, tol=1.0)
    model = GPClassifier(base, shared=shared).fit(X, y)
    lengths = {round(field.kernel_.lengthscale, 6) for field in model.fields_}
    assert (len(lengths) == 1) == shared
    assert model.score(X, y) > 0.8
    assert model.objective_ > GPClassifier(fixed()).fit(X, y).objective_


# -- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["low", "high"], [False, True], [2.0, -5.0], ["b", "a", "c"]])
def test_labels_may_be_anything(names, tmp_path):
    X, codes = blobs(40, len(names))
    y = np.array(names)[codes]
    model = GPClassifier(fixed()).fit(X, list(y))
    assert model.classes_.tolist() == sorted(names)
    found = model.predict(X)
    assert found.dtype == y.dtype
    assert model.score(X, y) == np.mean(found == y) > 0.8
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    places = da.from_array(X, chunks=(25, 2))
    lazy = GPClassifier(fixed()).fit(places, da.from_array(y, chunks=25))
    for act in ("predict", "predict_proba", "decision_function"):
        there = getattr(lazy, act)(places)
        assert isinstance(there, da.Array)
        wanted = getattr(model, act)(X)
        if act == "predict":
            assert (there.compute() == wanted).all()
        else:
            np.testing.assert_allclose(there.compute(), wanted, rtol=1e-6, atol=1e-8)
            assert there.shape == wanted.shape
    model.save(str(tmp_path / "model.zarr"))
    for again in (
        pickle.loads(pickle.dumps(model)),
        daskgp.load(tmp_path / "model.zarr"),
    ):
        np.testing.assert_array_equal(again.predict_proba(X), p)
        assert again.classes_.dtype == y.dtype
        assert repr(again) == repr(model)
        assert again.objective_ == model.objective_
    if len(model.classes_) == 2:
        ax = daskgp.plot.reliability(model, X, y, ax=Figure().subplots())
        assert ax.get_xlabel() == f"predicted probability of {model.classes_[1]}"
    with pytest.raises(StoreError, match="has several models, of a GPClassifier: take it in"):
        load_one(tmp_path / "model.zarr")


@pytest.mark.parametrize("count", [2, 3])
def test_classes_of_a_grid_are_labelled_and_lazy(count):
    x, t = np.linspace(0, 5, 8), np.linspace(0, 6, 7)
    f = np.sin(x)[:, None] + np.cos(t) + 2
    codes = np.minimum(f / 4 * count, count - 1).astype(int)
    names = np.array(["a", "b", "c"], dtype=object)[codes]
    names[0, 0] = np.nan
    grid = xr.DataArray(names, coords={"x": x, "t": t}, dims=("x", "t"), name="soil")
    model = GPClassifier(fixed()).fit(grid.coords.to_dataset(), grid)
    assert model.n_rows_ == grid.size - 1
    assert model.score(grid.coords.to_dataset(), grid) > 0.8
    points = np.stack(np.meshgrid(x, t, indexing="ij"), axis=-1).reshape(-1, 2)
    lazy = xr.zeros_like(grid, dtype=float).chunk({"x": 3})
    p = model.predict_proba(lazy)
    assert p.dims == ("x", "t", "class")
    assert p["class"].values.tolist() == model.classes_.tolist() == ["a", "b", "c"][:count]
    np.testing.assert_allclose(p.values.reshape(-1, count), model.predict_proba(points))
    decision = model.decision_function(lazy)
    assert decision.dims == p.dims[: 2 if count == 2 else 3]
    best = model.predict(lazy)
    assert all(isinstance(one.data, da.Array) for one in (p, best, decision))
    assert (best.values.ravel() == model.predict(points)).all()


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_decision_is_positive_for_the_second_class(link):
    X, y = blobs(60, 2)
    model = GPClassifier(fixed(), link=link).fit(X, y)
    f, p = model.decision_function(X), model.predict_proba(X)[:, 1]
    assert ((f > 0) == (p > 0.5)).all()
    np.testing.assert_array_equal(f, model.fields_[0].predict(X))


def test_a_base_may_have_mini_batches():
    X, y = blobs(60, 2)
    model = GPClassifier(daskgp.SVGP(KERNEL, n_inducing=10, max_iter=20, progress=False))
    assert model.fit(X, y).score(X, y) > 0.8


def test_settings_of_the_base_are_nested():
    X, y = blobs(30)
    pipe = make_pipeline(StandardScaler(), GPClassifier(fixed(daskgp.SGPR, n_inducing=5)))
    grid = {"gpclassifier__base__n_inducing": [1, 12]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X, np.array(["u", "v", "w"])[y])
    assert search.best_params_ == {"gpclassifier__base__n_inducing": 12}


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (np.ones(29), r"sample_weight has shape \(29,\), but one number per row is needed"),
        (-np.ones(30), "sample_weight is missing, infinite or negative in 30 rows"),
        (np.full(30, np.nan), "sample_weight is missing, infinite or negative in 30 rows"),
        (np.zeros(30), "sample_weight is zero in every row"),
        (0.0, "sample_weight is zero in every row"),
    ],
)
def test_scores_take_weights_of_any_shape_and_refuse_others(weight, said):
    X, y = blobs(30, 2)
    model, own = GPClassifier(fixed()).fit(X, y), np.arange(30.0)
    wanted = np.average(model.predict(X) == y, weights=own)
    for given in (own, own[:, None], own.tolist(), da.from_array(own, chunks=7)):
        assert model.score(X, y, sample_weight=given) == pytest.approx(wanted)
    assert model.score(X, y, sample_weight=2.0) == pytest.approx(model.score(X, y))
    with pytest.raises(InputError, match=said):
        model.score(X, y, sample_weight=weight)
    with pytest.raises(InputError, match="y has 20 rows and X has 30: give both of the same rows"):
        model.score(X, y[:20])


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: np.full(len(y), "a"), "y has only one class, 'a': GPClassifier needs rows of"),
        (lambda y: np.where(y == 0, np.nan, y), "Input y contains NaN: leave out the rows"),
        (lambda y: np.where(y == 0, None, "a"), "missing ones such as None: leave rows"),
        (lambda y: np.stack([y, y], axis=1), "several labels a row: GPClassifier takes one"),
        (lambda y: y + 0.5 * np.arange(len(y)) / len(y), "Unknown label type: y has numbers that"),
        (lambda y: np.where(y == 0, 0.5, y), "are no whole ones, such as 0.5: give the class"),
        (lambda y: y.astype(object), "labels of type int, such as 0: make them text or whole"),
        (lambda y: "label", "y='label' is a name: give GPClassifier the labels as an array"),
    ],
)
def test_labels_that_are_none_are_refused(change, said):
    X, y = blobs(30)
    with pytest.raises(ValueError, match=said) as error:
        GPClassifier(fixed()).fit(X, change(y))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base": "vecchia"}, "base='vecchia': give an estimator with likelihood="),
        ({"base": daskgp.SGPR(likelihood="poisson")}, "base has likelihood='poisson', which link="),
        ({"link": "log"}, "link='log'"),
        ({"link": "probit"}, "link='probit' is for two classes and y has 3: choose 'logit'"),
        ({"base": daskgp.SVGP()}, "y has 3 classes, and SVGP takes two"),
        ({"base": daskgp.CGGP()}, "unknown setting 'likelihood' of CGGP"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, said):
    X, y = blobs(30)
    with pytest.raises(SettingError) as error:
        GPClassifier(**{"base": fixed(), **settings}).fit(X, y)
    assert said in str(error.value)


def test_rows_that_have_no_class_are_refused():
    X, y = blobs(30)
    model = GPClassifier(fixed()).fit(X, y)
    with pytest.raises(InputError, match="classes that the fit has not seen, 3: it knows 0, 1, 2"):
        model.score(X[:2], [3, 0])
    missing = np.where(np.arange(30)[:, None] == 4, np.nan, X)
    assert np.isnan(model.predict_proba(missing)).any(axis=1).sum() == 1
    with pytest.raises(InputError, match="1 rows lack a feature and have no class"):
        model.predict(missing)
    labelled = GPClassifier(fixed()).fit(X, y.astype(np.datetime64(0, "D").dtype))
    with pytest.raises(SettingError, match="which a store has: fit with"):
        labelled.save("model.zarr")
