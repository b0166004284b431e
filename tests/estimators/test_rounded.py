"""Columns that a narrow type has rounded are told; those that it holds as they are, not."""

import logging

import numpy as np
import pytest
from logs import warnings_in

import daskgp

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
