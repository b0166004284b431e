"""Shares between 0 and 1."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special as host_special

from daskgp.arrays.backend import namespace, special
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.quadrature import arguments, average_near, averages, hermite, log_integral
from daskgp.typing import Array

LEAST, LARGEST = float(np.finfo(np.float64).tiny), 1.0 - float(np.finfo(np.float64).epsneg)
"""Least and largest y."""
PRECISION_BOUNDS = (1e-1, 1e6)
FARTHEST = 300.0
"""Values of f farther from 0 count as this one, so that no square of a share underflows."""


class _Shapes(NamedTuple):
    """mu, 1 - mu, the shapes mu phi and (1 - mu) phi, and their digamma functions."""

    one: Array
    zero: Array
    a: Array
    b: Array
    psi_a: Array
    psi_b: Array


@dataclass(frozen=True)
class Beta(Likelihood):
    """Shares with the mean mu = 1 / (1 + e^-f) and the variance mu (1 - mu) / (1 + precision).

    ``precision`` is phi of R's ``betareg`` and of beta regression in statsmodels; the shapes of
    ``dbeta`` and ``scipy.stats.beta`` are mu phi and (1 - mu) phi.

    Raises
    ------
    SettingError
        If the precision is not positive and finite.

    Examples
    --------
    >>> Beta(precision=4.0).response(np.array([[0.0]]), np.array([0.0]))
    (array([[0.5]]), array([[0.05]]))
    """

    precision: float = 10.0

    log_concave: ClassVar[bool] = False
    interval: ClassVar[tuple[float, float]] = (LEAST, LARGEST)
    _takes: ClassVar[str] = (
        "numbers between 0 and 1, both excluded: leave the others out, or give successes of trials "
        "to likelihood='binomial'"
    )
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"precision": PRECISION_BOUNDS}

    @property
    def name(self) -> str:
        return "beta"

    @property
    def standardised(self) -> bool:
        return False

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> Beta:
        known = y[np.isfinite(y)]
        variance = 0.5 * known.var() if len(known) else 0.0  # the other half is left to f
        if not variance > 0:
            return self
        precision = known.mean() * (1.0 - known.mean()) / variance - 1.0
        return self._with(precision=float(np.clip(precision, 1.0, 1e4)))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp, phi = namespace(f), self.precision
        own, log_odds = self._shapes(f, xp), xp.log(y) - xp.log1p(-y)
        # d mu / df = mu (1 - mu)
        share, pull = own.one * own.zero, log_odds - own.psi_a + own.psi_b
        zeta = special(xp).zeta
        bend = (share * phi) ** 2 * (zeta(2.0, own.a) + zeta(2.0, own.b))
        slope = phi * share * pull
        return LogDensity(self._value(y, own, xp), slope, slope * (own.zero - own.one) - bend)

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        xp = namespace(f)
        return (self._by_precision(y, self._shapes(f, xp), xp),)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        f, inside = np.clip(f, -FARTHEST, FARTHEST), np.clip(y, LEAST, LARGEST)
        a, b = self.precision * host_special.expit(f), self.precision * host_special.expit(-f)
        return np.where(y <= 0, 0.0, np.where(y >= 1, 1.0, host_special.betainc(a, b, inside)))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        f = np.clip(f, -FARTHEST, FARTHEST)
        a, b = self.precision * host_special.expit(f), self.precision * host_special.expit(-f)
        return np.clip(rng.beta(a, b), LEAST, LARGEST)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        log_y, log_rest, phi = xp.log(y), xp.log1p(-y), self.precision
        log_odds, gammaln = log_y - log_rest, special(xp).gammaln

        def terms(f: Array) -> tuple[Array, ...]:
            own = self._shapes(f, xp)
            slope = phi * own.one * own.zero * (log_odds - own.psi_a + own.psi_b)
            gammas, digammas = gammaln(own.a) + gammaln(own.b), own.a * own.psi_a
            return slope, own.a, gammas, digammas + own.b * own.psi_b

        by_mean, by_variance, (a, gammas, digammas) = averages(terms, xp, mean, variance)
        ways = a * log_odds + phi * log_rest
        value = math.lgamma(phi) - gammas + ways - log_y - log_rest
        by_log = phi * float(host_special.psi(phi)) - digammas + ways
        return Expectation(value, by_mean, by_variance, (by_log,))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        phi, log_odds, gammaln = self.precision, xp.log(y) - xp.log1p(-y), special(xp).gammaln

        def value(f: Array) -> np.ndarray:
            f = xp.clip(f, -FARTHEST, FARTHEST)
            a, b = phi * special(xp).expit(f), phi * special(xp).expit(-f)
            return a * log_odds - gammaln(a) - gammaln(b)

        found = log_integral(lambda f: self.log_p(y, f), value, mean, variance)
        return found + math.lgamma(phi) + (phi - 1) * xp.log1p(-y) - xp.log(y)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        inside = np.clip(y, LEAST, LARGEST)
        width = 1.0 / np.sqrt((1.0 + self.precision) * inside * (1.0 - inside))
        at = host_special.logit(inside)
        found = average_near(lambda f: self.below(inside, f), at, width, mean, std)
        return np.where(y <= 0, 0.0, np.where(y >= 1, 1.0, found))

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        low, high = math.log(LEAST), -math.log(1.0 - LARGEST)
        ends = np.full(mean.shape, low), np.full(mean.shape, high)
        return self._inverted(level, mean, std, ends, host_special.expit)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        one, zero, both = shares(mean, variance, xp)
        # the variance of mu and the mean of mu (1 - mu) / (1 + phi)
        return one, xp.maximum(one * zero - both * self.precision / (1 + self.precision), 0)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return host_special.logit(np.clip(y_mean, 1e-6, 1 - 1e-6).astype(np.float64))

    def _shapes(self, f: Array, xp: Any) -> _Shapes:
        f, functions = xp.clip(f, -FARTHEST, FARTHEST), special(xp)
        one, zero = functions.expit(f), functions.expit(-f)
        a, b = self.precision * one, self.precision * zero
        return _Shapes(one, zero, a, b, functions.psi(a), functions.psi(b))

    def _value(self, y: Array, own: _Shapes, xp: Any) -> np.ndarray:
        gammaln = special(xp).gammaln
        peaks = math.lgamma(self.precision) - gammaln(own.a) - gammaln(own.b)
        return peaks + (own.a - 1) * xp.log(y) + (own.b - 1) * xp.log1p(-y)

    def _by_precision(self, y: Array, own: _Shapes, xp: Any) -> np.ndarray:
        by_a, by_b = xp.log(y) - own.psi_a, xp.log1p(-y) - own.psi_b
        return (
            self.precision * float(host_special.psi(self.precision)) + own.a * by_a + own.b * by_b
        )


def shares(mean: Array, variance: Array, xp: Any) -> tuple[Array, Array, Array]:
    """Return the averages of mu = expit(f), of 1 - mu and of mu (1 - mu) over f."""
    expit, spread = special(xp).expit, xp.sqrt(2 * variance)
    one = zero = both = 0.0
    for x, w in hermite():
        f = mean + x * spread
        mu, rest = expit(f), expit(-f)
        one, zero, both = one + w * mu, zero + w * rest, both + w * mu * rest
    return one, zero, both
