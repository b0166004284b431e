"""More than two classes: y = c with probability e^(f_c) / sum_j e^(f_j), the softmax of f.

Here f_c is N(m_c, s_c^2) under q, each class apart from the others.  With Gumbel noise G_c, the
class of the largest f_c + G_c has the probabilities of the softmax (Maddison, Tarlow & Minka 2014),
so that integrals over C classes become integrals over t, the largest one.  Where L_c(t) =
E exp(-e^(f_c - t)) is the distribution function of f_c + G_c, P = prod_c L_c, r_c = L_c' / L_c and
R = sum_c r_c:

    E p_c = int P r_c dt,    E p_c (1 - p_c) = int P r_c (R - r_c) dt,
    E log sum_c e^(f_c) = E t - (Euler's constant).

L_c is by Gauss-Hermite quadrature, and what follows is the product of its rules over the classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskgp.likelihoods.quadrature import LEAST_VARIANCE, hermite

NODES = 80
"""Nodes of the trapezoidal rule over t, which is that exact for functions that end flat."""
BELOW, BEYOND = 4.0, 17.0
"""Distances below the largest f and beyond it that t may have."""
REACH = 5.0
"""Standard deviations of f from its mean that count for the ends of t."""
ROWS = 128
"""Rows of which arrays are made at a time, which stay in a processor's cache."""
SMALLEST = 1e-290


class Categories(NamedTuple):
    """Expectations of classes under q, by row and class (n, C).

    Attributes
    ----------
    probability : ndarray (n, C)
        E p_c.
    spread : ndarray (n, C)
        E p_c (1 - p_c), less by which log p(y | f) bends in f_c.
    log_total : ndarray (n,)
        E log sum_c e^(f_c).
    """

    probability: np.ndarray
    spread: np.ndarray
    log_total: np.ndarray


def expected(mean: np.ndarray, variance: np.ndarray) -> Categories:
    """Return what is expected of classes, for means and variances of f (n, C).

    Examples
    --------
    >>> found = expected(np.array([[0.0, 0.0, 0.0]]), np.array([[1.0, 1.0, 1.0]]))
    >>> found.probability.round(4)
    array([[0.3333, 0.3333, 0.3333]])
    """
    n = len(mean)
    parts = [
        _expected(mean[i : i + ROWS], np.maximum(variance[i : i + ROWS], LEAST_VARIANCE))
        for i in range(0, max(n, 1), ROWS)
    ]
    return Categories(*(np.concatenate(own) for own in zip(*parts, strict=True)))


def _expected(mean: np.ndarray, variance: np.ndarray) -> Categories:
    deviation = np.sqrt(variance)
    low = (mean - REACH * deviation).max(axis=1) - BELOW
    high = (mean + REACH * deviation).max(axis=1) + BEYOND
    step = (high - low) / (NODES - 1)
    nodes, weights = np.array(hermite()).T
    factors = np.exp(np.sqrt(2.0) * nodes * deviation[:, :, None])
    probability, spread = np.zeros(mean.shape), np.zeros(mean.shape)
    below, rates, parts = np.zeros(len(mean)), np.empty_like(factors), np.empty_like(factors)
    for k in range(NODES):
        # far beyond the ends of t all of these are 0 or 1
        base = np.exp(np.clip(mean - (low + k * step)[:, None], -300.0, 300.0))
        np.multiply(base[:, :, None], factors, out=rates)
        np.exp(np.negative(rates, out=parts), out=parts)
        parts *= weights
        rates *= parts
        # sums along rows of their own, whose bits do not depend on other rows
        distribution, density = parts.sum(axis=2), rates.sum(axis=2)
        distribution = np.maximum(distribution, SMALLEST)
        product = np.exp(np.log(distribution).sum(axis=1))
        ratio = density / distribution
        weighted = product[:, None] * ratio
        probability += weighted
        spread += weighted * (ratio.sum(axis=1)[:, None] - ratio)
        below += product * (0.5 if k == NODES - 1 else 1.0)
    log_total = high - step * below - np.euler_gamma
    total = probability.sum(axis=1, keepdims=True)
    return Categories(probability / total, spread * step[:, None], log_total)
