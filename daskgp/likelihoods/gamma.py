"""Positive amounts whose spread grows with their mean."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammainc, psi

from daskgp.arrays.backend import namespace
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.quadrature import (
    arguments,
    expected_exp,
    log_integral,
    probability_below,
)
from daskgp.typing import Array

LEAST = float(np.finfo(np.float64).tiny)
"""Least positive y."""
SHAPE_BOUNDS = (1e-2, 1e6)


@dataclass(frozen=True)
class Gamma(Likelihood):
    """Positive amounts with the mean mu = e^f and the variance mu^2 / shape.

    ``shape`` is that of R's ``dgamma(shape=, rate=)`` with rate = shape / mu, a of
    ``scipy.stats.gamma`` with scale = mu / shape, and the inverse of the dispersion of a glm.

    Raises
    ------
    SettingError
        If the shape is not positive and finite.

    Examples
    --------
    >>> Gamma(shape=4.0).response(np.array([[0.0]]), np.array([0.0]))
    (array([[1.]]), array([[0.25]]))
    """

    shape: float = 2.0

    interval: ClassVar[tuple[float, float]] = (LEAST, math.inf)
    _takes: ClassVar[str] = "positive numbers: leave zeros out, or take another likelihood"
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"shape": SHAPE_BOUNDS}

    @property
    def name(self) -> str:
        return "gamma"

    @property
    def standardised(self) -> bool:
        return False

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> Gamma:
        known = y[np.isfinite(y)]
        variance = 0.5 * known.var() if len(known) else 0.0  # the other half is left to f
        if not variance > 0:
            return self
        return self._with(shape=float(np.clip(known.mean() ** 2 / variance, 0.1, 1e3)))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp = namespace(f)
        log_ratio = xp.log(y) - f
        ratio = xp.exp(xp.minimum(log_ratio, 700))
        value = self._log_scale() + self.shape * (log_ratio - ratio) - xp.log(y)
        return LogDensity(value, self.shape * (ratio - 1), -self.shape * ratio)

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        xp = namespace(f)
        log_ratio = xp.log(y) - f
        return (self._by_shape(log_ratio, xp.exp(xp.minimum(log_ratio, 700))),)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        log_ratio = np.log(np.maximum(y, LEAST)) - f
        ratio = np.exp(np.minimum(log_ratio, 700.0))
        return np.where(y <= 0, 0.0, gammainc(self.shape, self.shape * ratio))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        drawn = rng.gamma(self.shape, 1.0 / self.shape, np.shape(f))
        return np.maximum(np.exp(np.clip(f, -700.0, 700.0)) * drawn, LEAST)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        log_y = xp.log(y)
        ratio, slope = expected_exp(log_y - mean + 0.5 * variance, xp)
        value = self._log_scale() + self.shape * (log_y - mean - ratio) - log_y
        by_log = self._by_shape(log_y - mean, ratio)
        by_mean, by_variance = self.shape * (slope - 1), -0.5 * self.shape * slope
        return Expectation(value, by_mean, by_variance, (by_log,))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        log_y = xp.log(y)

        def value(f: Array) -> np.ndarray:
            return self.shape * (log_y - f - xp.exp(xp.minimum(log_y - f, 700)))

        found = log_integral(lambda f: self.log_p(y, f), value, mean, variance)
        return found + self._log_scale() - log_y

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # y' <= y if f <= log(shape y / G), where G has the Gamma(shape) distribution
        log_y, width = np.log(np.maximum(y, LEAST)), 1.0 / math.sqrt(self.shape)
        found = probability_below(
            lambda f: self.below(y, f),
            lambda t: self.shape * (log_y - t - np.exp(log_y - t)),
            log_y,
            np.full(mean.shape, width),
            np.full(mean.shape, 9 * width + 40 / self.shape),
            mean,
            std,
        )
        return np.where(y <= 0, 0.0, found)

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        reach = 40 / self.shape + 10 / math.sqrt(self.shape)
        far = 9 * std + 1.0 - math.log(min(level, 1.0 - level))
        low, high = mean - far - reach, mean + far + math.log1p(reach)
        return self._inverted(level, mean, std, (low, high), np.exp)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        rate, variance = xp.exp(xp.minimum(mean + 0.5 * variance, 200)), xp.minimum(variance, 200)
        return rate, rate**2 * (xp.expm1(variance) + xp.exp(variance) / self.shape)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(y_mean, LEAST)).astype(np.float64)

    def _log_scale(self) -> float:
        return self.shape * math.log(self.shape) - math.lgamma(self.shape)

    def _by_shape(self, log_ratio: Array, ratio: Array) -> np.ndarray:
        """Return the derivative by the log of the shape, with log(y / mu) and y / mu."""
        constant = math.log(self.shape) + 1.0 - float(psi(self.shape))
        return self.shape * (constant + log_ratio - ratio)
