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
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_supervised_y_2d",
}
"""Checks that every test run makes."""
EXPECTED = {"check_dtype_object": "numbers kept as Python objects are refused with one line"}


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
