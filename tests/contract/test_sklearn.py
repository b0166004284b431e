"""scikit-learn's own checks of estimators, and its tools around ours."""

import numpy as np
import pandas as pd
import pytest
from effective import effective
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import VotingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from daskgp import CGGP, SGPR, SVGP, ExactGP, kernels
from daskgp.errors import InputError, SettingError
from daskgp.estimators import ESTIMATORS
from tests.contract.cases import sized

COMMON = {"kernel": "rbf", "progress": False, "device": "cpu"}
SIZES = {
    "n_inducing": 10,
    "n_support": 4,
    "n_experts": 2,
    "level": 1,
    "n_actions": 5,
    "n_mean": 8,
    "n_covariance": 6,
    "n_spectral": 10,
    "n_subset": 60,
    "max_iter": 2,
}
"""Settings that make a method small, whichever has them."""
LONGER = {"sgpr": 15, "experts": 15, "cggp": 50, "decoupled": 10, "svgp": 10}
"""Iterations of methods that need more of them."""

EXPECTED = {
    "check_dtype_object": (
        "numbers kept as Python objects are refused with one line: they take many times the memory "
        "of an array, and in a store they would need pickle"
    ),
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 has half the noise variance; beside the same row twice, which tells the "
        "noise, training ends with other hyper-parameters"
    ),
    "check_regressors_train": (
        "a sparse grid is for a box of one to some four dimensions: that of level 1 has one point, "
        "which explains nothing of ten"
    ),
}
"""Checks that fail, and why that is meant."""
EVERYBODYS = ["check_dtype_object", "check_sample_weight_equivalence_on_dense_data"]
FAILING = dict.fromkeys(ESTIMATORS, EVERYBODYS) | {"opticom": list(EXPECTED)}

WHOLE = ("sgpr",)
"""Estimators of which every test run makes every check."""
OFTEN = {
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimators_unfitted",
    "check_estimators_pickle",
    "check_methods_subset_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
}
"""Checks that every test run makes of every estimator, of promises that are in no other test."""


def tiny(name):
    kind = ESTIMATORS[name]
    sizes = sized(kind, SIZES | {"max_iter": LONGER.get(name, SIZES["max_iter"])})
    return effective(kind, **COMMON, **sizes)


def name_of(check):
    return check.func.__name__


def cases():
    """Each estimator with each check; those that add little to the rest are slow ones."""
    for name in ESTIMATORS:
        for number, (estimator, check) in enumerate(
            estimator_checks_generator(tiny(name), legacy=True, mark=None)
        ):
            marks = [] if name in WHOLE or name_of(check) in OFTEN else [pytest.mark.slow]
            if name_of(check) == "check_array_api_input":
                continue  # of arrays beside NumPy's, for which scikit-learn wants a variable set
            label = f"{name}-{number}-{name_of(check)}"
            yield pytest.param(name, estimator, check, id=label, marks=marks)


@pytest.mark.filterwarnings("ignore")  # the checks fit without regard to what is warned of
@pytest.mark.parametrize(("name", "estimator", "check"), list(cases()))
def test_checks_of_scikit_learn(name, estimator, check):
    if name_of(check) in FAILING[name]:
        with pytest.raises((AssertionError, InputError)):
            check(estimator)
    else:
        check(estimator)


def test_every_failure_is_said_on_the_page():
    from docs_text import ROOT

    page = (ROOT / "docs" / "guides" / "pipelines.md").read_text()
    assert {check for checks in FAILING.values() for check in checks} == set(EXPECTED)
    for check, reason in EXPECTED.items():
        assert f"`{check}`" in page
        assert len(reason) > 40


# -- conventions -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (120, 2)) * [1.0, 100.0]
    return X, np.sin(X[:, 0]) + 0.01 * X[:, 1] + 0.05 * rng.standard_normal(120)


@pytest.mark.filterwarnings("ignore:some rows lie far from all training rows")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_far_row_leaves_the_rows_beside_it_alone(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (90, 3))
    model = tiny(name).fit(X, np.sin(3 * X).sum(axis=1))
    alone, places = model.predict(X), X.copy()
    places[7, 1], places[8], places[9, 2] = 2e36, -3e36, 1e200
    found = model.predict(places)
    near = np.setdiff1d(np.arange(90), [7, 8, 9])
    np.testing.assert_allclose(found[near], alone[near], rtol=1e-6, atol=1e-8)
    assert np.isfinite(found[:9]).all()
    assert np.isnan(found[9])


def test_tags_say_what_holds():
    tags = get_tags(SGPR())
    assert tags.input_tags.allow_nan
    assert tags.target_tags.multi_output
    assert not tags.input_tags.sparse


def test_iterations_are_counted(data):
    model = SGPR("rbf", n_inducing=10, max_iter=4, progress=False)
    with pytest.raises(NotFittedError):
        _ = model.n_iter_
    assert model.fit(*data).n_iter_ == len(model.history_) > 0
    assert CGGP("rbf", progress=False).fit(*data).n_iter_ > 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda X, y: (X[:, 0], y), r"Reshape your data: X.reshape\(-1, 1\)"),
        (lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
        (lambda X, y: (X + 0j, y), "Complex data not supported: X has type complex128"),
        (lambda X, y: (X, y + 0j), "Complex data not supported: y has type complex128"),
        (lambda X, y: (X, None), "SGPR requires y to be passed"),
    ],
)
def test_data_that_scikit_learn_has_a_line_for(given, says, data):
    with pytest.raises(InputError, match=says) as error:
        SGPR("rbf", n_inducing=10, progress=False).fit(*given(*data))
    assert "\n" not in str(error.value)


def test_a_sparse_matrix_is_refused_by_name(data):
    sparse = pytest.importorskip("scipy.sparse")
    X, y = data
    model = ExactGP("rbf", optimizer=None, progress=False).fit(X, y)
    for act in (lambda S: model.fit(S, y), model.predict):
        for S in (sparse.csr_array(X), sparse.csr_matrix(X)):
            with pytest.raises(InputError, match=r"a sparse matrix is not supported.*toarray"):
                act(S)


# -- parameters of kernels -------------------------------------------------------------------


def test_parameters_of_a_kernel_are_nested_settings():
    kernel = kernels.RBF(lengthscale=2.0)
    model = SGPR(kernel)
    assert model.get_params()["kernel__lengthscale"] == 2.0
    assert "kernel__lengthscale" not in model.get_params(deep=False)
    model.set_params(kernel__lengthscale=3.0, kernel__variance=0.5, n_inducing=7)
    assert (model.kernel, model.n_inducing) == (kernels.RBF(3.0, 0.5), 7)
    assert kernel == kernels.RBF(2.0)  # a value
    assert clone(model).kernel == model.kernel


def test_a_kernel_that_is_text_has_nested_settings_once_one_is_set():
    model = SGPR("matern52").set_params(kernel__lengthscale=0.5)
    assert model.kernel == kernels.Matern52(0.5)
    model.set_params(kernel="rbf", kernel__variance=2.0)  # the kernel first
    assert model.kernel == kernels.RBF(variance=2.0)


def test_a_setting_that_no_kernel_has_is_refused():
    model = SGPR(kernels.RBF(2.0))
    with pytest.raises(SettingError, match=r"did you mean .*RBF.* has lengthscale, variance"):
        model.set_params(kernel__length=1.0)
    assert model.kernel == kernels.RBF(2.0)
    with pytest.raises(ValueError, match="unknown setting 'n_induced' of SGPR: did you mean"):
        model.set_params(n_induced=1)


# -- tools -----------------------------------------------------------------------------------


def test_a_pipeline_gives_what_its_parts_give(data):
    X, y = data
    model = SGPR("rbf", n_inducing=20, max_iter=10, standardize=False, progress=False)
    pipe = make_pipeline(StandardScaler(), model).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    mean, std = clone(model).fit(scaled, y).predict(scaled, return_std=True)
    found = pipe.predict(X, return_std=True)
    np.testing.assert_array_equal(found[0], mean)
    np.testing.assert_array_equal(found[1], std)
    assert pipe.score(X, y) > 0.95


def test_a_grid_search_goes_over_kernels_their_parameters_and_settings(data):
    X, y = data
    model = SGPR(kernels.RBF(), optimizer=None, n_inducing=5, noise_variance=0.01, progress=False)
    pipe = make_pipeline(StandardScaler(), model)
    grid = {"sgpr__kernel__lengthscale": [0.01, 1.0], "sgpr__n_inducing": [5, 40]}
    search = GridSearchCV(pipe, grid, cv=3).fit(X, y)
    best = {"sgpr__kernel__lengthscale": 1.0, "sgpr__n_inducing": 40}
    assert search.best_params_ == best
    assert search.best_estimator_[-1].kernel_.lengthscale == pytest.approx(1.0)
    assert search.score(X, y) > 0.95
    kinds = GridSearchCV(pipe, {"sgpr__kernel": ["rbf", kernels.Linear()]}, cv=3).fit(X, y)
    assert kinds.best_params_ == {"sgpr__kernel": "rbf"}


def test_cross_validation_takes_rows_and_frames(data):
    X, y = data
    model = ExactGP("rbf(ard=true)", max_iter=10, progress=False)
    scores = cross_val_score(model, X, y, cv=3)
    assert scores.min() > 0.95
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    np.testing.assert_allclose(cross_val_score(model, frame, y, cv=3), scores, rtol=1e-9)


def test_meta_estimators_take_it(data):
    X, y = data
    model = ExactGP("rbf(ard=true)", max_iter=5, progress=False)
    logged = TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp).fit(X, np.exp(y))
    np.testing.assert_allclose(logged.predict(X), np.exp(model.fit(X, y).predict(X)), rtol=1e-6)
    both = VotingRegressor([("a", model), ("b", model)]).fit(X, y)
    np.testing.assert_allclose(both.predict(X), model.predict(X), rtol=1e-12)
    found = permutation_importance(model, X, y, n_repeats=2, random_state=0)
    assert (found.importances_mean > 0.3).all()


def test_classes_are_there_for_a_likelihood_of_classes_alone(data):
    assert not hasattr(SVGP(), "predict_proba")
    assert hasattr(SVGP(likelihood="bernoulli"), "predict_proba")
