"""Averages of an RBF kernel over intervals and boxes, which have a closed form.

Letters: u the distance of two centres along a column, a >= b the half widths of their intervals,
all in lengthscales; G(u) = int int exp(-u^2 / 2) = sqrt(pi / 2) u erf(u / sqrt 2) + exp(-u^2 / 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays.backend import namespace, special
from daskgp.kernels.checks import groups_of
from daskgp.kernels.stationary import RBF
from daskgp.typing import Array

NARROW = 0.05
"""Half width, in lengthscales, below which differences of the closed form would lose digits."""
NODES, SHARES = np.polynomial.legendre.leggauss(4)
"""Nodes of averages over narrower intervals, to rounding, and twice their weights."""


Parts: TypeAlias = tuple[Array, Array, Array]
"""A value, and its derivatives by the logarithm of the unit of all lengths and by u."""


class Factor(NamedTuple):
    """Factor of one column in a tile (n, m) of averages, a product over columns.

    ``by_log`` and ``by_place`` are derivatives by the logarithm of the lengthscale, which is
    hyper-parameter ``number``, and by the first centre.
    """

    column: int
    number: int
    value: Array
    by_log: Array
    by_place: Array


def factors(
    kernel: RBF, X: Array, Z: Array, columns: tuple[int, ...], r: Array, s: Array
) -> list[Factor]:
    """Return the factors of centres X (n, 1, d) and Z (1, m, d), or rows of one size (n, d) each.

    ``r`` and ``s`` are half the widths along ``columns``, of the shapes without d.
    """
    found, values = [], np.exp(kernel.log_parameters)
    several = isinstance(kernel.lengthscale, tuple)
    for i, group in enumerate(groups_of(kernel.active_dims, X.shape[-1])):
        number = 1 + i * several
        length = float(values[number])
        for j in group:
            wide = j in columns
            away = (X[..., j] - Z[..., j]) / length
            widths = (r / length * wide, s / length * wide)
            value, by_log, by_u = averaged(away, *widths)
            found.append(Factor(j, number, value, by_log, by_u / length))
    return found


def averaged(u: Array, r: Array, s: Array) -> Parts:
    """Return averages of exp(-u^2 / 2) over intervals of half widths r and s around both ends.

    These may have fewer entries along some axes than u has.

    Returns
    -------
    value, by_log, by_u : arrays
        Averages, and derivatives by the logarithm of the unit of all lengths, and by u.

    Examples
    --------
    >>> averaged(np.zeros(1), np.array([2.0]), np.zeros(1))[0].round(4)
    array([0.5981])
    """
    xp = namespace(u)
    shape, u = u.shape, u.ravel()
    r, s = (xp.broadcast_to(one, shape).ravel() for one in (r, s))
    a, b = xp.maximum(r, s), xp.minimum(r, s)
    found = xp.empty((3, len(u)))
    for mask, function in (
        (a == 0.0, _points),
        ((a > 0.0) & (a < NARROW), _narrow),
        ((a >= NARROW) & (b < NARROW), _wide_and_narrow),
        (b >= NARROW, _wide),
    ):
        (at,) = xp.nonzero(mask)
        if len(at):
            found[:, at] = xp.stack(function(u[at], a[at], b[at]))
    value, by_log, by_u = found
    return value.reshape(shape), by_log.reshape(shape), by_u.reshape(shape)


def _points(u: Array, a: Array, b: Array) -> Parts:
    k = namespace(u).exp(-0.5 * u * u)
    return k, u * u * k, -u * k


def _narrow(u: Array, a: Array, b: Array) -> Parts:
    return _by_nodes(lambda v: _by_nodes(lambda w: _points(w, a, b), v, b), u, a)


def _wide_and_narrow(u: Array, a: Array, b: Array) -> Parts:
    """Return averages over the wide interval in closed form, and over the other by nodes."""
    return _by_nodes(lambda v: _once(v, a), u, b)


def _by_nodes(function: Callable[[Array], Parts], u: Array, width: Array) -> Parts:
    """Return the averages of what a function gives over an interval around u."""
    each = [function(u + t * width) for t in NODES]
    parts = (
        sum(0.5 * share * part for share, part in zip(SHARES, parts, strict=True))
        for parts in zip(*each, strict=True)
    )
    value, by_log, by_u = parts
    return value, by_log, by_u


def _once(u: Array, a: Array) -> Parts:
    xp = namespace(u)
    high, low, share = u + a, u - a, 0.5 / a
    value = share * (_slope(high) - _slope(low))
    left, right = xp.exp(-0.5 * low * low), xp.exp(-0.5 * high * high)
    return value, value + share * (low * left - high * right), share * (right - left)


def _wide(u: Array, a: Array, b: Array) -> Parts:
    """Return second differences of G; by the logarithm, G - u G' = exp(-u^2 / 2) remains."""
    xp, share = namespace(u), 0.25 / (a * b)
    value, by_log, by_u = (xp.zeros_like(u) for _ in range(3))
    for sign, end in ((1.0, u + a + b), (-1.0, u + a - b), (-1.0, u - a + b), (1.0, u - a - b)):
        k, slope = xp.exp(-0.5 * end * end), _slope(end)
        value = value + sign * (end * slope + k)
        by_log = by_log + sign * k
        by_u = by_u + sign * slope
    value = share * value
    return value, value + share * by_log, share * by_u


def _slope(u: Array) -> np.ndarray:
    """Return G'(u) = sqrt(pi / 2) erf(u / sqrt 2)."""
    erf = special(namespace(u)).erf
    found: Array = math.sqrt(0.5 * math.pi) * erf(math.sqrt(0.5) * u)
    return found
