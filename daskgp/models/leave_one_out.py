"""Predictions of training rows by a posterior without them, from the posterior with them.

Where y = g + e with e ~ N(0, d) and g has the posterior N(m, c) given all rows, the posterior
without y has precision 1 / c - 1 / d: with h = c / d, the share of y in its own prediction, y is
then predicted by

    y - (y - m) / (1 - h)   with variance   d / (1 - h),

for the exact GP the formula of Sundararajan & Keerthi (2001), where 1 - h = d [C^-1]_ii.  A trend
is without the row, too: with e = y - E y and a = h - E h of the row given the others, v its
variance, B and G of all rows and q = a' G a, it is M - [a, e] [a, e]' / v that B and G without the
row follow from, which predict

    y - (e - a' B) v / (v - q)   with variance   v^2 / (v - q).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskgp.arrays.backend import namespace, to_host
from daskgp.errors import InputError, NumericalError
from daskgp.models.trend import posterior
from daskgp.models.values import Moments
from daskgp.typing import Array

LEAST = 1e-12
"""Least 1 - h; below it nothing but rounding is left of a prediction without the row."""


def without(y: Array, mean: Array, spread: Array, noise: Any) -> Moments:
    """Return the prediction of each row without it.

    Parameters
    ----------
    y, mean : arrays (n, p)
        Observations, and the posterior means of g with them.
    spread : array (n,)
        Posterior variances of g with them.
    noise : float or array (n,)
        Variances of y given g.

    Raises
    ------
    NumericalError
        If rows have no noise, or are none that the posterior was given.
    """
    left = _left(spread / noise)
    return Moments(y - (y - mean) / left[:, None], noise / left, noisy=True)


def less_trend(y: Array, found: Moments, M: Any, trend: int) -> Moments:
    """Return predictions of targets from those of y (n, p + r), targets and ``trend`` functions.

    Parameters
    ----------
    y : array (n, p + r)
    found : Moments
        Predictions of each row without it.
    M : array (p + r, p + r)
        Products of all rows, see `daskgp.models.trend`.
    trend : int
        Number r of trend functions; the predictions are those of y where it is 0.

    Raises
    ------
    NumericalError
        If the other rows do not determine the trend.
    """
    if not trend:
        return found
    xp, v = namespace(found.mean), found.variance
    B, root = map(xp.asarray, posterior(to_host(M), trend))
    e, a = xp.split(y - found.mean, [len(M) - trend], axis=1)
    left = _left(((a @ root) ** 2).sum(axis=1) / v)
    return Moments(y[:, : len(M) - trend] - (e - a @ B) / left[:, None], v / left, noisy=True)


def _left(share: Array) -> Array:
    """Return what is left of rows (n,) beside their ``share`` in their own predictions."""
    left = 1.0 - share
    lost = int((~(left > LEAST)).sum())
    if lost:
        raise NumericalError(
            f"{lost} of {len(left)} rows have nothing left without themselves: give the rows that "
            "the model was fitted to, or take daskgp.cross_validate, which fits again without them"
        )
    return left


def places_of(X: Array, y: Array, known_X: Array, known_y: Array) -> np.ndarray:
    """Return the place (n,) of rows among known ones: of the same inputs, the nearest target.

    It is -1 for rows with other inputs; each of equal rows has a place of its own.
    """
    X, y, known_X, known_y = (
        np.ascontiguousarray(to_host(a), np.float64) for a in (X, y, known_X, known_y)
    )
    rows: dict[bytes, list[int]] = {}
    for i, row in enumerate(known_X + 0.0):
        rows.setdefault(row.tobytes(), []).append(i)
    found = np.full(len(X), -1)
    for i, row in enumerate(X + 0.0):
        same = rows.get(row.tobytes())
        if same:
            away = [float(np.abs(known_y[j] - y[i]).sum()) for j in same]
            found[i] = same[int(np.argmin(away))]
            if len(same) > 1:
                same.remove(int(found[i]))
    return found


def units(places: np.ndarray, number: int, like: Array) -> Array:
    """Return rows (n, number) that are 1 at their place and 0 elsewhere."""
    xp = namespace(like)
    made = xp.zeros((len(places), number))
    made[xp.arange(len(places)), xp.asarray(places)] = 1.0
    return made


def refuse_unknown(places: np.ndarray) -> None:
    """Raise InputError for rows that have no place among those of the fit."""
    unknown = int((places < 0).sum())
    if unknown:
        raise InputError(
            f"{unknown} of {len(places)} rows are not rows that the model was fitted to: "
            "leave-one-out predictions are of its training rows"
        )
