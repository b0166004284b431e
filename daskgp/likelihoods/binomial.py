"""Successes of a number of trials."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, expit, logit

from daskgp.arrays.backend import namespace, special
from daskgp.errors import InputError
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity, beside
from daskgp.likelihoods.beta import shares
from daskgp.likelihoods.quadrature import (
    arguments,
    averages,
    log_integral,
    logistic,
    probability_below,
)
from daskgp.typing import Array

LEAST_SHARE = 1e-6
"""Lower limit of the share of successes, and of that of failures."""


@dataclass(frozen=True)
class Binomial(Likelihood):
    """Successes among the ``trials`` of a row, each of probability 1 / (1 + e^-f).

    The link is the logit, as the default of R's ``glm(cbind(y, trials - y) ~ ..., binomial)``.
    Rows without ``trials`` have one.

    Examples
    --------
    >>> rows = Binomial().with_columns({"trials": np.array([1.0, 20.0])})
    >>> rows.response(np.zeros((2, 1)), np.zeros(2))[0]
    array([[ 0.5],
           [10. ]])
    """

    discrete: ClassVar[bool] = True
    interval: ClassVar[tuple[float, float]] = (0.0, math.inf)
    columns: ClassVar[tuple[str, ...]] = ("trials",)
    _takes: ClassVar[str] = (
        "whole numbers from 0 to trials, which are 1 where none are given: give successes"
    )

    @property
    def name(self) -> str:
        return "binomial"

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp, trials = namespace(f), self._trials(f)
        share, softplus = logistic(f, xp)
        value = _ways(y, trials, xp) + y * f - trials * softplus
        return LogDensity(value, y - trials * share, -trials * share * (1 - share))

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        trials, count = self._trials(f), np.floor(y)
        inside = np.clip(count, 0.0, np.maximum(trials - 1.0, 0.0))
        left = betainc(np.maximum(trials - inside, 1.0), inside + 1.0, expit(-f))
        return np.where(y < 0, 0.0, np.where(count >= trials, 1.0, left))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        trials = np.asarray(self._trials(f), np.int64)
        return np.asarray(rng.binomial(trials, expit(f)), float)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        # log p is linear in f but for trials log(1 + e^f), so that is averaged alone
        xp, y, mean, variance = arguments(y, mean, variance)
        trials = self._trials(y)
        share, by_variance, (softplus,) = averages(lambda f: logistic(f, xp), xp, mean, variance)
        value = _ways(y, trials, xp) + y * mean - trials * softplus
        by_variance = xp.minimum(-trials * by_variance, 0)  # rounding, in the tails
        return Expectation(value, y - trials * share, by_variance)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        trials = self._trials(y)

        def value(f: Array) -> np.ndarray:
            return y * f - trials * logistic(f, xp)[1]

        found = log_integral(lambda f: self.log_p(y, f), value, mean, variance)
        return found + _ways(y, trials, xp)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # y' <= y if f <= t, where expit(-t) has the Beta(trials - y, y + 1) distribution
        trials = self._trials(mean)
        count = np.clip(np.floor(y), 0.0, np.maximum(trials - 1.0, 0.0)) + 1.0
        failures = np.maximum(trials + 1.0 - count, 1.0)
        width = np.sqrt((count + failures) / (count * failures))
        found = probability_below(
            lambda f: self.below(y, f),
            lambda t: count * t - (count + failures) * np.logaddexp(0.0, t),
            np.log(count / failures),
            width,
            9 * width + 40 / np.minimum(count, failures),
            mean,
            std,
        )
        return np.where(y < 0, 0.0, np.where(np.floor(y) >= trials, 1.0, found))

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        high = np.broadcast_to(self._trials(mean), mean.shape)
        return self._bisected(level, mean, std, np.full(mean.shape, -1.0), high)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        one, zero, both = shares(mean, variance, xp)
        trials = self._trials(mean)
        spread = trials * xp.maximum(trials * one * zero - (trials - 1) * both, 0)
        return trials * one, spread

    def supports(self, y: Any) -> Any:
        return super().supports(y) & ((y <= self._trials(y)) | np.isnan(y))

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        trials = np.mean(self._trials(np.zeros(1)))
        if trials == 0:
            raise InputError("trials are 0 in all rows: give rows with at least one trial")
        share = np.asarray(y_mean, np.float64) / trials
        return logit(np.clip(share, LEAST_SHARE, 1 - LEAST_SHARE))

    def _trials(self, like: Array) -> Any:
        """Return the trials of rows, for an array of rows."""
        return 1.0

    def _of_columns(self, values: Mapping[str, Array]) -> Binomial:
        return _BinomialRows(values["trials"])

    def _wrong(
        self, name: str, y: np.ndarray, given: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, str]:
        trials = given[name]
        whole = np.isfinite(trials) & (trials == np.rint(trials)) & (trials >= 0)
        if whole.all():
            return trials < y, "as many trials as y counts successes, or more"
        return ~whole, "whole numbers of trials"


@dataclass(frozen=True, eq=False)
class _BinomialRows(Binomial):
    """Successes of rows with their own ``trials`` (n,)."""

    trials: Any = None

    def _trials(self, like: Array) -> np.ndarray:
        return beside(self.trials, like)


def _ways(y: Array, trials: Any, xp: Any) -> np.ndarray:
    """Return the log of the number of ways to have y successes."""
    gammaln = special(xp).gammaln
    return gammaln(trials + 1 + 0 * y) - gammaln(y + 1) - gammaln(trials - y + 1)
