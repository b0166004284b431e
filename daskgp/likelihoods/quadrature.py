"""Gauss-Hermite quadrature over Gaussians of f, one node at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.typing import Array

NODES = 32
"""Nodes of Gauss-Hermite quadrature."""
LEAST_VARIANCE = 1e-12
"""Smaller variances of f count as this one: derivatives divide by its square root."""
LOG_2PI = math.log(2 * math.pi)


def arguments(y: Array, mean: Array, variance: Array) -> tuple[Any, Array, Array, Array]:
    """Return the array module and the arguments in float64, variances broadcast to the means."""
    xp = namespace(y, mean, variance)
    y, mean, variance = (a.astype(np.float64, copy=False) for a in (y, mean, variance))
    if variance.ndim < mean.ndim:
        variance = variance[:, None]
    return xp, y, mean, xp.broadcast_to(xp.maximum(variance, LEAST_VARIANCE), mean.shape)


@cache
def hermite() -> tuple[tuple[float, float], ...]:
    """Return nodes and weights of Gauss-Hermite quadrature, the weights adding up to 1."""
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    return tuple(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))


def averages(
    terms: Callable[[Array], tuple[Array, ...]], xp: Any, mean: Array, variance: Array
) -> tuple[Array, Array, list[Array]]:
    """Average terms of f under q by quadrature; the first is the slope of a function of f.

    Returned are that function's derivatives with respect to mean and variance, and the averages of
    the other terms.  The nodes are taken one at a time, so that no array is larger than the
    arguments.
    """
    spread = xp.sqrt(2 * variance)
    totals: list[Array] = []
    by_spread: Array = 0.0
    for x, w in hermite():
        values = terms(mean + x * spread)
        by_spread = by_spread + w * x * values[0]
        weighted = [w * term for term in values]
        totals = [t + u for t, u in zip(totals, weighted, strict=True)] if totals else weighted
    return totals[0], by_spread / spread, totals[1:]


def log_sum_exp(terms: Iterable[Array], xp: Any) -> Array:
    """Return the log of the sum of exponentials, taking the terms one at a time."""
    rest = iter(terms)
    top = next(rest)
    total = xp.ones_like(top)
    for term in rest:
        above = xp.maximum(top, term)
        total = total * xp.exp(top - above) + xp.exp(term - above)
        top = above
    return top + xp.log(total)
