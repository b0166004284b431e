"""Probabilities of intervals under the standard normal distribution."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays.backend import special
from daskgp.likelihoods.quadrature import LOG_2PI
from daskgp.typing import Array

OPEN = 1e30
"""End of an interval that has none."""


class Interval(NamedTuple):
    """log P(low < z <= high), and the densities at both ends relative to P."""

    log_p: Array
    at_low: Array
    at_high: Array


@np.errstate(invalid="ignore")  # inf - inf
def inside(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return numbers within bounds (n,): middles, a bound whose other side is open, else NaN.

    Examples
    --------
    >>> inside(np.array([0.0, -np.inf, -np.inf]), np.array([1.0, 3.0, np.inf]))
    array([0.5, 3. , nan])
    """
    middle = 0.5 * (np.where(np.isfinite(low), low, high) + np.where(np.isfinite(high), high, low))
    return np.where(np.isfinite(middle), middle, np.nan)


def interval(low: Array, high: Array, xp: Any) -> Interval:
    """Return the probabilities of intervals, also of narrow ones and in the tails.

    Examples
    --------
    >>> found = interval(np.array([-1.0, 40.0]), np.array([1.0, 41.0]), np)
    >>> np.exp(found.log_p[:1]).round(4), found.at_low[1:].round(3)
    (array([0.6827]), array([40.025]))
    """
    log_ndtr = special(xp).log_ndtr
    # the same interval on the side where its far end is the less likely one
    right = low + high > 0
    near, far = xp.where(right, -low, high), xp.where(right, -high, low)
    log_near = log_ndtr(near)
    log_p = log_near + xp.log(-xp.expm1(xp.minimum(log_ndtr(far) - log_near, -1e-300)))
    at_low, at_high = (xp.exp(-0.5 * (LOG_2PI + end**2) - log_p) for end in (low, high))
    return Interval(log_p, at_low, at_high)
