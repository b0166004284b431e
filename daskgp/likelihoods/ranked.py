"""Ranked probability scores of whole numbers: counts, and classes in their order."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.likelihoods.base import Likelihood

TERMS = 33
"""Values at which the distribution function is taken: all of them, or some with others between."""
REACH, SPREADS, BEYOND = 3.2, 4.5, 2.0
"""Standard deviations of f, and of y given f, and values, beyond which nothing is left of a sum."""
FAR, FINE = 4.5, 1.4
"""Standard deviations of f over which nodes reach, and their distance in widths of p(y | f)."""
FEWEST, MOST, NORMAL = 15, 33, 49
"""Least and most nodes over f, and those of normal distributions of y about each."""
PART = 0.2
"""Deviation of f about a node where y is taken for normal there, as a share of that of all f."""
LEAST = 1e-12
"""Probability below which there is no normal score, and slope of scores that counts as 0."""


def ranked_probability(
    likelihood: Likelihood, y: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> np.ndarray:
    """Return the sums over whole numbers k of (P(y' <= k) - 1{y <= k})^2, less being better.

    They are the continuous ranked probability scores of whole numbers (Czado, Gneiting & Held
    2009).  Where there are many, normal scores of the distribution function are linear between
    those at which it is taken.

    Parameters
    ----------
    likelihood : Likelihood
        A ``discrete`` one.
    y, mean, std : (n, p) array
        What was observed, and means and standard deviations of f; none missing.

    Examples
    --------
    >>> from daskgp.likelihoods import Poisson
    >>> y, mean, std = np.array([[0.0], [3.0]]), np.zeros((2, 1)), np.full((2, 1), 1e-3)
    >>> ranked_probability(Poisson(), y, mean, std).round(4)
    array([[0.4762],
           [1.5229]])
    """
    k, changes = _values(likelihood, mean, std)
    inside = np.clip(y, k[0], k[-1])  # all terms between the ends and y are 1
    k = np.sort(np.concatenate([k, inside[None]]), axis=0)
    below = _below(likelihood, k, mean, std, changes)
    above = k[:-1] >= inside  # of the part from each value to the next, in which y is not
    first, last = (np.where(above, 1.0 - part, part) for part in (below[:-1], below[1:]))
    parts = _sums(first, last, k[1:] - k[:-1])
    return np.asarray(np.abs(y - inside) + parts.sum(axis=0))


def _values(
    likelihood: Likelihood, mean: np.ndarray, std: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return values (TERMS, n, p) at which the distribution function is taken, and widths (n, p).

    The values are all of them where these are so few; widths are how often the standard deviation
    of f is that of p(y | f) in f, at most.
    """
    t = np.linspace(-1.0, 1.0, TERMS).reshape(-1, *[1] * mean.ndim)
    pairs = [likelihood.response(mean + one * REACH * std, np.zeros(mean.shape)) for one in t]
    centre, spread = np.array([a for a, _ in pairs]), np.sqrt([b for _, b in pairs])
    k = np.sort(np.rint(centre + t * (SPREADS * spread + BEYOND)), axis=0)
    k = np.clip(k, *likelihood.interval)
    few, each = k[-1] - k[0] < TERMS, k[0] + 0.5 * (TERMS - 1) * (t + 1.0)
    widths = np.diff(centre, axis=0) / np.maximum(spread[1:], LEAST)
    return np.where(few, np.rint(each), k), widths.max(axis=0) * (TERMS - 1) / (2.0 * REACH)


def _below(
    likelihood: Likelihood, k: np.ndarray, mean: np.ndarray, std: np.ndarray, changes: np.ndarray
) -> np.ndarray:
    """Return P(y' <= k) at k (m, n, p)."""
    number = 2.0 * FAR / FINE * changes
    wide = number <= MOST
    found, rest = np.zeros(k.shape), math.sqrt(1.0 - PART**2) * std
    inside = np.where(wide, k, 0.0)
    for x, w in zip(*_nodes(np.max(number, where=wide, initial=0.0)), strict=True):
        found += w * likelihood.below(inside, mean + std * x)
    if wide.all():
        return found
    narrow = np.zeros(k.shape)
    for x, w in zip(*_nodes(NORMAL), strict=True):
        centre, variance = likelihood.response(mean + rest * x, (PART * std) ** 2)
        narrow += w * ndtr((k + 0.5 - centre) / np.sqrt(variance))
    return np.where(wide, found, narrow)


def _nodes(number: float) -> tuple[np.ndarray, np.ndarray]:
    """Return so many nodes over a standard normal, or the fewest, and their weights."""
    z = np.linspace(-FAR, FAR, math.ceil(max(number, FEWEST)))
    weights = np.exp(-0.5 * z**2)
    return z, weights / weights.sum()


def _sums(first: np.ndarray, last: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return sums of p^2 from ``first`` to before ``last``, which comes so many steps later.

    The normal scores of p are linear between; a sum is an integral and half of what the ends differ
    by (Euler and Maclaurin).
    """
    z, other = (ndtri(np.clip(p, LEAST, 1.0 - LEAST)) for p in (first, last))
    slope = (other - z) / np.maximum(steps, 1.0)
    flat = np.abs(slope) < LEAST
    integral = (_integral(other) - _integral(z)) / np.where(flat, 1.0, slope)
    several = (steps > 1) & ~flat
    return np.where(several, integral + 0.5 * (first**2 - last**2), steps * first**2)


def _integral(z: np.ndarray) -> np.ndarray:
    """Return the integral of Phi^2 up to z."""
    below, density = ndtr(z), np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    over = z * below**2 + 2.0 * below * density
    return np.asarray(over - ndtr(math.sqrt(2.0) * z) / math.sqrt(math.pi))
