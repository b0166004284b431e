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

from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, number, to_host
from daskgp.errors import InputError, NumericalError
from daskgp.models.trend import posterior
from daskgp.models.values import Block, Moments, Theta, variances
from daskgp.typing import Array

LEAST = 1e-12
"""Least 1 - h; below it nothing but rounding is left of a prediction without the row."""
ROUNDING = 1e-5
"""Share of the sizes of y and of variances below which they are equal: a factor gives them back."""
NOISE = "y_variance or sample_weight"
GIVE = "leave-one-out predictions are of the rows of the fit, as they were given to it"


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
    lost = int(number((~(left > LEAST)).sum()))
    if lost:
        raise NumericalError(
            f"{lost} of {len(left)} rows have nothing left without themselves: give the rows that "
            "the model was fitted to, or take daskgp.cross_validate, which fits again without them"
        )
    return left


class Known(NamedTuple):
    """Rows of a fit in the model's units: X (w, d), y (w, p) and noise variances (w,)."""

    X: Array
    y: Array
    noise: Array


def places_of(theta: Theta, rows: Block, known: Known) -> np.ndarray:
    """Return the place (n,) of rows among known ones, -1 for those with other inputs.

    Each of several rows with the same inputs has a place of its own, by y and noise.

    Raises
    ------
    InputError
        If a row has another y or noise variance than the known ones with its inputs.
    """
    X, known_X = (np.ascontiguousarray(to_host(a), np.float64) for a in (rows.X, known.X))
    values, known_values = (
        np.column_stack([to_host(y), np.broadcast_to(to_host(noise), len(y))])
        for y, noise in (
            (rows.y, variances(theta.noise_variance, rows.noise)),
            (known.y, known.noise),
        )
    )
    at: dict[bytes, list[int]] = {}
    for i, row in enumerate(known_X + 0.0):
        at.setdefault(row.tobytes(), []).append(i)
    found = np.full(len(X), -1)
    for i, row in enumerate(X + 0.0):
        same = at.get(row.tobytes())
        if same:
            away = [float(np.abs(known_values[j] - values[i]).sum()) for j in same]
            found[i] = same[int(np.argmin(away))]
            if len(same) > 1:
                same.remove(int(found[i]))
    inside = found >= 0
    size = np.ones_like(values)
    size[:, -1] = to_host(theta.kernel.diag(rows.X))
    own = known_values[found[inside]]
    off = np.abs(own - values[inside]) > ROUNDING * (size[inside] + np.abs(own))
    for what, wrong in (("y", off[:, :-1].any(axis=1)), (NOISE, off[:, -1])):
        if wrong.any():
            raise InputError(
                f"{int(wrong.sum())} of {len(X)} rows have another {what} than in the fit: {GIVE}"
            )
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
            f"{unknown} of {len(places)} rows are not rows that the model was fitted to: {GIVE}"
        )
