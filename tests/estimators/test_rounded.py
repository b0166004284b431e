"""Columns that a narrow type has rounded are told; those that it holds as they are, not."""

import logging
import warnings

import numpy as np
import pytest
from logs import warnings_in

import daskgp
from daskgp.errors import InputError

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (60, 2))
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
SETTINGS = {"n_inducing": 5, "optimizer": None, "progress": False}
NORTH = np.add(X, [0, 5e6])
DAYS = np.column_stack([2_459_000.5 + np.arange(60.0) // 4, X[:, 1]])
ROUNDED = {
    "northings": (NORTH.astype("f4"), Y, "feature 'x1' (steps of 0.5, standard deviation "),
    "seconds": (X * [1, 300] + [0, 1.6e9], Y, ""),
    "seconds in float32": ((X * [1, 300] + [0, 1.6e9]).astype("f4"), Y, "'x1' (steps of 128,"),
    "pressures": (X, (1000 + Y).astype("f2"), "target 'y' (steps of 0.5, standard deviation 0."),
    "levels": (X, (1e5 + 0.01 * Y).astype("f4"), "target 'y' (steps of 0.00781, standard dev"),
    "northings in float64": (NORTH, Y, ""),
    "whole metres": (NORTH.round().astype("f4"), Y, ""),
    "days": (DAYS.astype("f4"), Y, ""),
    "years": (np.column_stack([2000 + np.arange(60) // 3, X[:, 1]]).astype("f2"), Y, ""),
    "counts": (X, np.round(1500 + 20 * Y).astype("f2"), ""),
    "small numbers": (X.astype("f2"), Y.astype("f2"), ""),
    "temperatures": ((280 + X).astype("f4"), (280 + Y).astype("f4"), ""),
    "a missing value": (np.where(X > 9.5, np.nan, X).astype("f2"), Y.astype("f4"), ""),
}


def told(caplog):
    return [line for line in warnings_in(caplog) if "rounds such values" in line]


@pytest.mark.parametrize("case", ROUNDED)
def test_values_that_their_type_has_rounded_are_told(case, caplog):
    inputs, y, says = ROUNDED[case]
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.SGPR(**SETTINGS).fit(inputs, y)
    lines = told(caplog)
    assert len(lines) == bool(says)
    assert all(says in line for line in lines)


def test_places_that_their_type_has_rounded_are_told():
    model = daskgp.SGPR(**SETTINGS).fit(NORTH, Y)
    model.predict(NORTH.round().astype("f4"))
    says = r"feature 'x1' of places \(steps of 0.5, .* float32 rounds such values to these steps"
    with pytest.warns(UserWarning, match=says):
        model.predict(NORTH.astype("f4"))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("y", "says"),
    [
        ((1e7 + Y).astype("f4"), "distinct values in 60 rows (float32 holds values of 1e+07 in s"),
        ((1e8 + Y).astype("f4"), "in all 60 rows (float32 holds values of 1e+08 in steps of 8: "),
        (np.round(Y).astype("f4"), "distinct values in 60 rows: for classes or counts choose"),
        (2_000_000.0 + 100 * np.round(Y), "distinct values in 60 rows: for classes or counts"),
        (np.full(60, 15.5, "f4"), "is the same in all 60 rows: there is nothing to learn"),
    ],
)
def test_few_values_that_a_type_has_left_are_told_as_such(y, says, caplog):
    daskgp.SGPR(**SETTINGS).fit(X, y)
    (line,) = warnings_in(caplog)
    assert says in line
    assert ("or subtract an offset before they are rounded" in line) == ("float32" in says)


def test_numbers_of_float16_are_compared_and_refused_without_other_warnings():
    large = np.r_[Y[:-1] * 1e4, np.inf].astype("f2")
    with pytest.raises(InputError, match=r"'y' has 1 infinite .* float16 holds none beyond 65,504"):
        daskgp.SGPR(**SETTINGS).fit(X, large)
    with pytest.raises(InputError, match=r"'x0' \(1e\+09\), .* \(float32 holds values of 1e\+09"):
        daskgp.SGPR(**SETTINGS).fit((X + 1e9).astype("f4"), Y)
    model = daskgp.SGPR(**SETTINGS).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict((1.1 * X).astype("f2"))
