"""Distribution of what is predicted at a place: its quantiles, and its probability of exceeding.

A method gives a Gaussian N(m, s^2) of f, or of y where y is f and Gaussian noise.  A new
observation of another likelihood is a mixture over that Gaussian; its distribution function is
integrated by the trapezoidal rule, or by quadrature, over whichever of f and the noise is the
narrower one, of which the other is then a smooth function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincc, gammaln, ndtr, ndtri

from daskgp.errors import SettingError
from daskgp.likelihoods import Bernoulli, Likelihood, Poisson, StudentT
from daskgp.models.transform import Transform
from daskgp.predict.tails import Tails

NODES = 160
"""Nodes of the trapezoidal rule."""
REACH = 8.0
"""Standard deviations within which quantiles are looked for."""
STEPS, SETTLED = 100, 1e-12
"""Most steps of the search for a quantile, and the step relative to the spread that ends it."""
TINY, EPS = np.finfo(np.float64).tiny, 2.0**-53
"""Least probability, and least distance from 1, of which there is a normal score."""
LARGEST_LOG_COUNT = 34.0
"""Counts beyond e^34 are not told from one another."""


@dataclass(frozen=True, eq=False)
class Law:
    """Law of f, or of a new observation y, given the means and standard deviations of a Gaussian.

    Parameters
    ----------
    likelihood : Likelihood, optional
        That of an observation where it is not Gaussian; the Gaussian is then that of f.
    unit : ndarray (p,), optional
        Units of the targets in which the likelihood was fitted.
    transform : Transform, optional
        That of the targets, where the Gaussian is of the transformed ones.
    tails : Tails, optional
        Those of a new observation whose residuals are not normal; the Gaussian then has its mean
        and standard deviation.
    """

    likelihood: Likelihood | None = None
    unit: Any = 1.0
    transform: Transform | None = None
    tails: Tails | None = None

    @property
    def is_gaussian(self) -> bool:
        """True if the mean and standard deviation of a prediction are those of the Gaussian."""
        return self.likelihood is None and self.transform is None

    def check(self, what: str) -> None:
        """Raise SettingError for a likelihood without ``what``."""
        if isinstance(self.likelihood, Bernoulli):
            raise SettingError(
                f"{what} of new observations of likelihood {self.likelihood.name!r} are not "
                "available, because they are 0 or 1: ask for predict_proba, or leave "
                f"include_noise out for {what} of f"
            )

    def quantiles(self, mean: Any, std: Any, levels: tuple[float, ...]) -> np.ndarray:
        """Return quantiles (..., q) at the levels, for means and standard deviations (...)."""
        mean, std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        if self.likelihood is None:
            residuals = ndtri(np.array(levels))
            if self.tails is not None:
                residuals = self.tails.residual(residuals)
            at = [mean + _away(std, z) for z in residuals]
            if self.transform is not None:
                at = [self.transform.inverse(values) for values in at]
            return np.stack(at, axis=-1)
        m, s = (np.nan_to_num(a / self.unit) for a in (mean, std))
        find = _count_quantile if isinstance(self.likelihood, Poisson) else self._quantile
        found = np.stack([find(m, s, level) for level in levels], axis=-1)
        found *= np.broadcast_to(self.unit, mean.shape)[..., None]
        found[np.isnan(mean) | np.isnan(std)] = np.nan
        return found

    def exceedance(self, mean: Any, std: Any, limit: float) -> np.ndarray:
        """Return the probabilities (...) of exceeding a number; without any spread 0 or 1."""
        mean, std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        if self.likelihood is None:
            away = mean - limit
            if self.transform is not None:
                if limit < 0.0:  # below all values of T^-1
                    return np.where(np.isnan(mean) | np.isnan(std), np.nan, 1.0)
                away = mean - self.transform.forward(limit)
            with np.errstate(divide="ignore", invalid="ignore"):
                certain = np.where(std > 0, 0.0, -np.inf)
                return self.below(np.where(away == 0.0, certain, away / std))
        m, s = (np.nan_to_num(a / self.unit) for a in (mean, std))
        if isinstance(self.likelihood, Poisson):
            below = _count_cdf(m, s, np.full(m.shape, math.floor(limit)))
        else:
            below = self._cdf(m, s, np.broadcast_to(limit / self.unit, m.shape))[0]
        return np.where(np.isnan(mean) | np.isnan(std), np.nan, 1.0 - below)

    def scores(self, mean: Any, std: Any, y: Any) -> np.ndarray:
        """Return the normal scores (...) of values y: Phi^-1 of their distribution functions.

        Those of a Gaussian are standardised residuals.  That of a count is of the middle of its
        step, (P(y' < y) + P(y' <= y)) / 2.
        """
        self.check("normal scores")
        mean, std, y = (np.asarray(a, np.float64) for a in (mean, std, y))
        if self.likelihood is None:
            z = y if self.transform is None else self.transform.forward(y)
            return np.asarray((z - mean) / std)
        m, s, at = (np.nan_to_num(a / self.unit) for a in (mean, std, y))
        if isinstance(self.likelihood, Poisson):
            below = 0.5 * (_count_cdf(m, s, at) + _count_cdf(m, s, at - 1.0))
        else:
            below = self._cdf(m, s, at)[0]
        return np.where(np.isnan(mean + std + y), np.nan, ndtri(np.clip(below, TINY, 1.0 - EPS)))

    def below(self, scores: Any) -> np.ndarray:
        """Return the distribution function (...) at normal scores, or standardised residuals."""
        return np.asarray(ndtr(scores if self.tails is None else self.tails.normal_score(scores)))

    def _cdf(self, m: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return P(y' <= y) and its density, of a Student-t about f.

        Given its precision e^t, Gamma distributed, it is Gaussian, and f is integrated exactly.
        """
        assert isinstance(self.likelihood, StudentT)
        half, below, density = 0.5 * self.likelihood.df, np.zeros(m.shape), np.zeros(m.shape)
        t = np.linspace(-30 / half - math.sqrt(40 / half), min(math.sqrt(40 / half), 4.0), NODES)
        weights = np.exp(half * (t - np.exp(t) + 1.0))
        for precision, w in zip(np.exp(t), weights / weights.sum(), strict=True):
            spread = np.sqrt(s**2 + self.likelihood.scale**2 / precision)
            z = (y - m) / spread
            below += w * ndtr(z)
            density += w * np.exp(-0.5 * z**2) / (spread * math.sqrt(2 * math.pi))
        return below, density

    def _quantile(self, m: np.ndarray, s: np.ndarray, level: float) -> np.ndarray:
        """Return the quantile of a continuous law: Newton's steps inside a shrinking bracket."""
        assert isinstance(self.likelihood, StudentT)
        spread = np.sqrt(s**2 + self.likelihood.scale**2)
        # P(|y - m| > reach) is far below any level that can be told from 0
        reach = spread * (REACH + np.abs(ndtri(level))) / min(level, 1.0 - level)
        low, high, at = m - reach, m + reach, m + spread * ndtri(level)
        for _ in range(STEPS):
            below, density = self._cdf(m, s, at)
            low, high = np.where(below < level, at, low), np.where(below < level, high, at)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = at - (below - level) / density
            inside = (step > low) & (step < high)
            following = np.where(inside, step, 0.5 * (low + high))
            moved, at = np.abs(following - at), following
            if (moved <= SETTLED * spread).all():
                break
        return at


def _away(std: np.ndarray, score: float) -> np.ndarray:
    """Return the distance of a quantile from the mean, none for the median of any spread."""
    return np.asarray(std * score if score else np.where(np.isnan(std), np.nan, 0.0))


def _count_cdf(m: np.ndarray, s: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return P(y <= count) of y ~ Poisson(e^f): P(log G > f) for G ~ Gamma(count + 1)."""
    below, shape = np.zeros(m.shape), np.maximum(count, 0.0) + 1.0
    width = 1.0 / np.sqrt(shape)
    low, high = np.log(shape) - 9 * width - 30 / shape, np.log(shape) + 9 * width
    step, total = (high - low) / (NODES - 1), np.zeros(m.shape)
    with np.errstate(divide="ignore", over="ignore"):
        for i in range(NODES):  # over log G, wide or not beside f
            t = low + i * step
            w = np.exp(shape * t - np.exp(t) - gammaln(shape))
            total += w
            below += w * ndtr((t - m) / s)
        below /= total
        exact, nodes = np.zeros(m.shape), np.polynomial.hermite.hermgauss(32)
        for x, w in zip(*nodes, strict=True):  # over f, which is the narrower one
            exact += w / math.sqrt(math.pi) * _upper(shape, m + math.sqrt(2.0) * s * x)
    below = np.where(s > width, below, exact)
    return np.where(count < 0, 0.0, below)


def _upper(shape: np.ndarray, log_rate: np.ndarray) -> np.ndarray:
    return np.asarray(gammaincc(shape, np.exp(np.minimum(log_rate, 700.0))))


def _count_quantile(m: np.ndarray, s: np.ndarray, level: float) -> np.ndarray:
    """Return the least count that is exceeded with a probability of at most 1 - level."""
    rate = np.exp(np.minimum(m + REACH * s, LARGEST_LOG_COUNT))
    low, high = np.full(m.shape, -1.0), np.ceil(rate + 10 * np.sqrt(rate) + 30)
    while ((high - low) > 1).any():
        middle = np.floor(0.5 * (low + high))
        enough = _count_cdf(m, s, middle) >= level
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
