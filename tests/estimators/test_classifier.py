"""GPClassifier: scikit-learn's checks, labels of any kind, and dense oracles."""

import pickle

import dask.array as da
import numpy as np
import pytest
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
from daskgp.errors import InputError, SettingError

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
    "check_dtype_object": "numbers kept as Python objects are refused with one line",
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


@pytest.mark.parametrize("kind", ["exact", pytest.param("vecchia", marks=pytest.mark.slow)])
def test_three_classes_are_those_of_a_dense_oracle(kind):
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
    samples = np.random.default_rng(0).standard_normal((20_000, 1, 3))
    f = mean + std * samples
    p = np.exp(f - logsumexp(f, axis=2, keepdims=True))
    seen = p.mean(axis=0)
    # where the bound is largest, means are K (1[y = c] - E p_c), variances have E p (1 - p)
    np.testing.assert_allclose(mean, K @ ((y[:, None] == np.arange(3)) - seen), atol=0.1)
    for c in range(3):
        root = np.sqrt((p * (1 - p)).mean(axis=0)[:, c])
        B = np.eye(40) + root[:, None] * K * root
        variance = np.diag(K - K * root @ np.linalg.solve(B, root[:, None] * K))
        np.testing.assert_allclose(std[:, c] ** 2, variance, rtol=0.02)
    np.testing.assert_allclose(model.predict_proba(X), seen, atol=0.01)
    assert np.isfinite(model.objective_)
    assert model.objective_ < 0


def test_scores_come_near_to_those_of_scikit_learn():
    X, y = make_moons(160, noise=0.25, random_state=0)
    train, rest = slice(0, 100), slice(100, None)
    ours = GPClassifier(daskgp.ExactGP("rbf", progress=False)).fit(X[train], y[train])
    kernel = peers.ConstantKernel() * peers.RBF()
    theirs = GaussianProcessClassifier(kernel).fit(X[train], y[train])
    scores = [log_loss(y[rest], m.predict_proba(X[rest])) for m in (ours, theirs)]
    assert scores[0] < scores[1] + 0.03


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
def test_labels_may_be_anything(names):
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
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), p)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_decision_is_positive_for_the_second_class(link):
    X, y = blobs(60, 2)
    model = GPClassifier(fixed(), link=link).fit(X, y)
    f, p = model.decision_function(X), model.predict_proba(X)[:, 1]
    assert ((f > 0) == (p > 0.5)).all()
    assert (np.argsort(f, kind="stable") == np.argsort(p, kind="stable")).all()


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


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: np.full(len(y), "a"), "y has only one class, 'a': GPClassifier needs rows of"),
        (lambda y: np.where(y == 0, np.nan, y), "Input y contains NaN: leave out the rows"),
        (lambda y: np.where(y == 0, None, "a"), "missing ones such as None: leave rows"),
        (lambda y: np.stack([y, y], axis=1), "several labels a row: GPClassifier takes one"),
        (lambda y: y + 0.5 * np.arange(len(y)) / len(y), "Unknown label type"),
        (lambda y: "label", "y='label' is a name: give GPClassifier the labels as an array"),
    ],
)
def test_labels_that_are_none_are_refused(change, said):
    X, y = blobs(30)
    with pytest.raises(ValueError, match=said) as error:
        GPClassifier(fixed()).fit(X, change(y))
    assert said.startswith("Unknown") or "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base": "vecchia"}, "base='vecchia': give an estimator with likelihood="),
        ({"base": daskgp.SGPR(likelihood="poisson")}, "base has likelihood='poisson', which link="),
        ({"link": "log"}, "link='log'"),
        ({"link": "probit"}, "link='probit' is for two classes and y has 3: choose 'logit'"),
        ({"base": daskgp.SVGP()}, "y has 3 classes, and SVGP takes two"),
        ({"base": daskgp.OptiComGP()}, "takes a noise variance per row"),
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
    with pytest.raises(InputError, match="1 rows miss a feature and have no class"):
        model.predict(missing)
    with pytest.raises(SettingError, match="has no model store: pickle it"):
        model.save("model.zarr")
