"""Numbers that stand for missing values: what every estimator promises of them."""

import logging

import numpy as np
import pytest

from tests.contract.cases import SETTINGS, fixed, moments

N = 120


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (N, 2))
    return X, 20.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N)


def filled(value):
    """The rows with a value in ten targets and in ten other rows of the second feature."""
    X, y = rows()
    y[5:45:4] = X[7:47:4, 1] = value
    return X, y


@pytest.mark.parametrize("name", SETTINGS)
def test_fill_values_are_missing(name, caplog):
    """The same bits as with NaN; rows to predict that have one miss the feature, too."""
    model = fixed(name).fit(*filled(-9999.0))
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    (line,) = [line for line in lines if "-9999" in line]
    assert line.startswith("-9999 in 10 rows of feature 'x1', far from all others (")
    assert line.endswith("fill_values=None (--fill none) keeps them")
    missing = fixed(name).fit(*filled(np.nan))
    assert model.n_rows_ == missing.n_rows_ == N - 20
    T = rows(1)[0][:20]
    for a, b in zip(moments(model, T), moments(missing, T), strict=True):
        np.testing.assert_array_equal(a, b)
    T[3, 1] = -9999.0
    (mean, *_) = moments(model, T)
    assert np.isnan(mean[3]).all()
    assert np.isfinite(np.delete(mean, 3, axis=0)).all()
