"""Counts."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammaln, ndtr

from daskgp.arrays.backend import namespace, special
from daskgp.likelihoods.base import Expectation, LogDensity
from daskgp.likelihoods.counts import LARGEST_LOG_COUNT, Counts
from daskgp.likelihoods.quadrature import arguments, expected_exp, hermite, log_sum_exp
from daskgp.typing import Array

NODES = 160
"""Nodes of the trapezoidal rule."""
REACH = 8.0
"""Standard deviations within which quantiles are looked for."""


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts, y ~ Poisson(e^f).

    Rows may have an ``exposure``, which multiplies e^f, and an ``offset``, which is added to f: the
    log of an exposure, as ``offset`` of R's glm.

    Examples
    --------
    >>> Poisson().response(np.array([[0.0]]), np.array([2.0]))[0].round(4)
    array([[2.7183]])
    """

    @property
    def name(self) -> str:
        return "poisson"

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp = namespace(f)
        rate = xp.exp(xp.minimum(f, 700))
        return LogDensity(y * f - rate - special(xp).gammaln(y + 1), y - rate, -rate)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        shape = np.maximum(np.floor(y), 0.0) + 1.0
        return np.where(y < 0, 0.0, gammaincc(shape, np.exp(np.minimum(f, 700.0))))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(rng.poisson(np.exp(np.minimum(f, LARGEST_LOG_COUNT))), float)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        rate, slope = expected_exp(mean + 0.5 * variance, xp)
        values = y * mean - rate - special(xp).gammaln(y + 1)
        return Expectation(values, y - slope, -0.5 * slope)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        # p(y | f) of a large count can be far narrower than q, so the nodes are those of the
        # Gaussian at the mode of p(y | f) q(f).  With e^l = variance e^f the mode has
        # l + e^l = mean + variance y + log variance, convex in l and solved by Newton's method.
        xp, y, mean, variance = arguments(y, mean, variance)
        log_variance = xp.log(variance)
        right = mean + variance * y + log_variance
        root = xp.where(right > 1, xp.log(xp.maximum(right, 1)), right)
        for _ in range(6):
            grown = xp.exp(root)
            root = root - (root + grown - right) / (1 + grown)
        shrink = 1 / xp.sqrt(1 + xp.exp(root))
        spread = xp.sqrt(2 * variance)
        shift = (root - log_variance - mean) / spread

        def terms() -> Iterable[Array]:
            for x, w in hermite():
                z = shift + x * shrink
                f = mean + z * spread
                yield math.log(w) + x**2 - z**2 + y * f - xp.exp(xp.minimum(f, 700))

        return log_sum_exp(terms(), xp) + xp.log(shrink) - special(xp).gammaln(y + 1)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        rate = xp.exp(xp.minimum(mean + 0.5 * variance, 200))  # its square is finite too
        return rate, rate + rate**2 * xp.expm1(xp.minimum(variance, 200))

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # P(log G > f) for G ~ Gamma(y + 1), over whichever of log G and f is the narrower one
        count = np.floor(y)
        below, shape = np.zeros(mean.shape), np.maximum(count, 0.0) + 1.0
        width = 1.0 / np.sqrt(shape)
        low, high = np.log(shape) - 9 * width - 30 / shape, np.log(shape) + 9 * width
        step, total = (high - low) / (NODES - 1), np.zeros(mean.shape)
        with np.errstate(divide="ignore", over="ignore"):
            for i in range(NODES):
                t = low + i * step
                w = np.exp(shape * t - np.exp(t) - gammaln(shape))
                total += w
                below += w * ndtr((t - mean) / std)
            return np.where(std > width, below / total, super().cdf(count, mean, std)) * (
                count >= 0
            )

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        rate = np.exp(np.minimum(mean + REACH * std, LARGEST_LOG_COUNT))
        high = np.ceil(rate + 10 * np.sqrt(rate) + 30)
        return self._bisected(level, mean, std, np.full(mean.shape, -1.0), high)
