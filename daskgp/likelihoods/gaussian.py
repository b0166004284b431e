"""Gaussian noise."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.checks import logs_of, parameter
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.quadrature import LOG_2PI, arguments
from daskgp.typing import Array

NOISE_BOUNDS = (1e-6, 1e2)


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian noise, y = f + N(0, variance).

    Raises
    ------
    SettingError
        If the variance is not positive and finite.

    Examples
    --------
    >>> y, mean, variance = np.array([[1.0]]), np.array([[0.5]]), np.array([0.2])
    >>> round(Gaussian(0.1).expected(y, mean, variance).value, 6)
    -2.017646
    """

    variance: float = 0.1

    columns: ClassVar[tuple[str, ...]] = ("noise",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", parameter(self.variance, "variance of Gaussian"))

    @property
    def name(self) -> str:
        return "gaussian"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("noise_variance",)

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self.variance])

    @property
    def log_bounds(self) -> np.ndarray:
        return np.log([NOISE_BOUNDS])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Gaussian:
        return replace(self, variance=float(np.exp(logs_of(self.parameter_names, values)[0])))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        residual = y - f
        value = -0.5 * (LOG_2PI + math.log(self.variance) + residual**2 / self.variance)
        return LogDensity(value, residual / self.variance, 0 * residual - 1 / self.variance)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr((y - f) / math.sqrt(self.variance)))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(rng.normal(f, math.sqrt(self.variance)))

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr((y - mean) / np.sqrt(std**2 + self.variance)))

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return np.asarray(mean + np.sqrt(std**2 + self.variance) * ndtri(level))

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        own, residual = xp.asarray(self._variances), y - mean
        squares = (residual**2 + variance) / own
        values = -0.5 * (LOG_2PI + xp.log(own) + squares)
        by_log = 0.5 * (self._shares * (squares - 1.0))
        by_variance = xp.broadcast_to(-0.5 / own, y.shape)
        return Expectation(values, residual / own, by_variance, (by_log,))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        total = variance + self._variances
        return -0.5 * (LOG_2PI + xp.log(total) + (y - mean) ** 2 / total)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        _, mean, _, variance = arguments(mean, mean, variance)
        return mean, variance + self.variance

    @property
    def _variances(self) -> Any:
        """Noise variances d of the rows, or that of all."""
        return self.variance

    @property
    def _shares(self) -> Any:
        """Derivative of log d with respect to that of the variance that is learned."""
        return 1.0

    def of_rows(self, noise: Array | None) -> Gaussian:
        return self if noise is None else _GaussianRows(self.variance, noise)


@dataclass(frozen=True, eq=False)
class _GaussianRows(Gaussian):
    """Gaussian noise of variance d = u s + e in each row, with (u, e) a row of ``noise`` (n, 2)."""

    noise: Any = None

    @property
    def _variances(self) -> np.ndarray:
        return self.variance * self.noise[:, :1] + self.noise[:, 1:]

    @property
    def _shares(self) -> np.ndarray:
        return self.variance * self.noise[:, :1] / self._variances
