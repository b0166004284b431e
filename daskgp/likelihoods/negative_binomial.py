"""Counts that scatter more than those of a Poisson distribution."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, expit, psi

from daskgp.arrays.backend import namespace, special
from daskgp.likelihoods.base import Expectation, LogDensity
from daskgp.likelihoods.counts import LARGEST_LOG_COUNT, Counts
from daskgp.likelihoods.quadrature import (
    arguments,
    averages,
    log_integral,
    logistic,
    probability_below,
)
from daskgp.typing import Array

SIZE_BOUNDS = (1e-3, 1e6)
BEGIN = 1e3
"""Size to begin with, nearly a Poisson's: f would leave its own variation to a lesser one."""
REACH = 8.0
"""Standard deviations within which quantiles are looked for."""


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts with the mean mu = e^f and the variance mu + mu^2 / size.

    ``size`` is that of R's ``dnbinom(size=, mu=)`` and theta of its ``MASS::glm.nb``, n of
    ``scipy.stats.nbinom`` with p = size / (size + mu), and 1 / alpha of statsmodels.  Rows may have
    an ``exposure``, which multiplies e^f, and an ``offset``, which is added to f.

    Raises
    ------
    SettingError
        If the size is not positive and finite.

    Examples
    --------
    >>> NegativeBinomial(size=2.0).response(np.array([[0.0]]), np.array([0.0]))
    (array([[1.]]), array([[1.5]]))
    """

    size: float = 3.0

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"size": SIZE_BOUNDS}

    @property
    def name(self) -> str:
        return "negative-binomial"

    def start(
        self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None
    ) -> NegativeBinomial:
        return self._with(size=BEGIN)

    def with_scatter(self, variance: float) -> NegativeBinomial:
        # rates of the relative variance 1 / size; log-normal ones have expm1(variance)
        size = 1.0 / (1.0 / self.size + math.expm1(min(variance, LARGEST_LOG_COUNT)))
        return self._with(size=float(np.clip(size, *SIZE_BOUNDS)))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp = namespace(f)
        share, softplus = logistic(f - math.log(self.size), xp)
        total = y + self.size
        value = self._ways(y, xp) + y * (f - math.log(self.size)) - total * softplus
        return LogDensity(value, y - total * share, -total * share * (1 - share))

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        share, softplus = logistic(f - math.log(self.size), namespace(f))
        return ((y + self.size) * share - self.size * softplus + self._by_ways(y),)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        count, left = np.maximum(np.floor(y), 0.0) + 1.0, expit(math.log(self.size) - f)
        return np.where(y < 0, 0.0, betainc(self.size, count, left))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rate = np.exp(np.minimum(f, LARGEST_LOG_COUNT)) * rng.gamma(self.size, size=np.shape(f))
        largest = math.exp(LARGEST_LOG_COUNT)
        return np.asarray(rng.poisson(np.minimum(rate / self.size, largest)), float)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        # log p is linear in f but for (y + size) log(1 + e^f / size), so that is averaged alone
        xp, y, mean, variance = arguments(y, mean, variance)
        odds = mean - math.log(self.size)
        share, by_variance, (softplus,) = averages(lambda f: logistic(f, xp), xp, odds, variance)
        total = y + self.size
        value = self._ways(y, xp) + y * odds - total * softplus
        by_log = total * share - self.size * softplus + self._by_ways(y)
        by_variance = xp.minimum(-total * by_variance, 0)  # rounding, in the tails
        return Expectation(value, y - total * share, by_variance, (by_log,))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        ways, log_size = self._ways(y, xp), math.log(self.size)

        def value(f: Array) -> np.ndarray:
            odds = f - log_size
            return y * odds - (y + self.size) * logistic(odds, xp)[1]

        return ways + log_integral(lambda f: self.log_p(y, f), value, mean, variance)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # y' <= y if f <= t, where expit(log size - t) has the Beta(size, y + 1) distribution
        count, size = np.maximum(np.floor(y), 0.0) + 1.0, self.size
        log_size = math.log(size)
        width = np.sqrt((count + size) / (count * size))
        found = probability_below(
            lambda f: self.below(y, f),
            lambda t: count * (t - log_size) - (count + size) * np.logaddexp(0.0, t - log_size),
            np.log(count),
            width,
            9 * width + 40 / np.minimum(count, size),
            mean,
            std,
        )
        return np.where(y < 0, 0.0, found)

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        most = (self.size + 10 * math.sqrt(self.size) + 40) / self.size
        rate = np.exp(np.minimum(mean + REACH * std, LARGEST_LOG_COUNT)) * most
        high = np.ceil(rate + 10 * np.sqrt(rate) + 30)
        return self._bisected(level, mean, std, np.full(mean.shape, -1.0), high)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        rate, variance = xp.exp(xp.minimum(mean + 0.5 * variance, 200)), xp.minimum(variance, 200)
        return rate, rate + rate**2 * (xp.expm1(variance) + xp.exp(variance) / self.size)

    def _ways(self, y: Array, xp: Any) -> np.ndarray:
        gammaln = special(xp).gammaln
        return gammaln(y + self.size) - math.lgamma(self.size) - gammaln(y + 1)

    def _by_ways(self, y: Array) -> np.ndarray:
        """Return the derivative by the log of the size of what does not depend on mu."""
        digamma = special(namespace(y)).psi
        return self.size * (digamma(y + self.size) - float(psi(self.size))) - y
