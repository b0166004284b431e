"""Positive amounts whose logarithm has Gaussian noise."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.arrays.backend import namespace
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.quadrature import LOG_2PI, arguments
from daskgp.typing import Array

LEAST = float(np.finfo(np.float64).tiny)
"""Least positive y."""
SIGMA_BOUNDS = (1e-3, 1e2)


@dataclass(frozen=True)
class LogNormal(Likelihood):
    """Positive amounts, log y = f + N(0, sigma^2), with the mean e^(f + sigma^2 / 2).

    ``sigma`` is sdlog of R's ``dlnorm(meanlog=, sdlog=)`` with meanlog = f, and s of
    ``scipy.stats.lognorm`` with scale = e^f.

    Raises
    ------
    SettingError
        If sigma is not positive and finite.

    Examples
    --------
    >>> LogNormal(sigma=1.0).response(np.array([[0.0]]), np.array([0.0]))[0].round(4)
    array([[1.6487]])
    """

    sigma: float = 0.5

    interval: ClassVar[tuple[float, float]] = (LEAST, math.inf)
    _takes: ClassVar[str] = "positive numbers: leave zeros out, or take another likelihood"
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"sigma": SIGMA_BOUNDS}

    @property
    def name(self) -> str:
        return "lognormal"

    @property
    def standardised(self) -> bool:
        return False

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> LogNormal:
        logs = np.log(y[y > 0])
        spread = math.sqrt(0.5) * float(logs.std()) if len(logs) else 0.0  # the rest is left to f
        return self._with(sigma=float(np.clip(spread, 0.01, 10.0))) if spread > 0 else self

    def log_p(self, y: Array, f: Array) -> LogDensity:
        log_y, precision = namespace(f).log(y), self.sigma**-2
        residual = log_y - f
        constant = 0.5 * LOG_2PI + math.log(self.sigma)
        value = -constant - log_y - 0.5 * precision * residual**2
        return LogDensity(value, precision * residual, 0 * residual - precision)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        log_y = np.log(np.maximum(y, LEAST))
        return np.where(y <= 0, 0.0, ndtr((log_y - f) / self.sigma))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(np.exp(np.clip(rng.normal(f, self.sigma), -700.0, 700.0)))

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        log_y, precision = xp.log(y), self.sigma**-2
        residual = log_y - mean
        squares = precision * (residual**2 + variance)
        constant = LOG_2PI + 2 * math.log(self.sigma)
        values = -0.5 * (constant + 2 * log_y + squares)
        by_variance = xp.broadcast_to(-0.5 * precision, y.shape) + 0 * y
        return Expectation(values, precision * residual, by_variance, (squares - 1.0,))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        log_y, total = xp.log(y), variance + self.sigma**2
        return -0.5 * (LOG_2PI + xp.log(total) + (log_y - mean) ** 2 / total) - log_y

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        log_y, spread = np.log(np.maximum(y, LEAST)), np.sqrt(std**2 + self.sigma**2)
        return np.where(y <= 0, 0.0, ndtr((log_y - mean) / spread))

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(mean + np.sqrt(std**2 + self.sigma**2) * ndtri(level)))

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        total = variance + self.sigma**2
        rate = xp.exp(xp.minimum(mean + 0.5 * total, 200))  # its square is finite too
        return rate, rate**2 * xp.expm1(xp.minimum(total, 200))

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return (np.log(np.maximum(y_mean, LEAST)) - 0.5 * self.sigma**2).astype(np.float64)
