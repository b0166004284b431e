"""Heavy-tailed noise."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri, psi, stdtr

from daskgp.arrays.backend import namespace
from daskgp.checks import logs_of, parameter
from daskgp.errors import SettingError
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.quadrature import LOG_2PI, arguments, averages, log_sum_exp
from daskgp.typing import Array

MIXTURE_NODES, CDF_NODES, CRPS_NODES = 128, 160, 64
"""Nodes over the log-precision, for densities, distribution functions and CRPS."""
SCALE_BOUNDS = (1e-3, 1e2)
DF_BOUNDS = (2.1, 1e3)
REACH = 8.0
"""Standard deviations within which quantiles are looked for."""
DEVIATION = 1.4826
"""Standard deviation of a normal number relative to its median absolute deviation."""
STEPS, SETTLED = 100, 1e-12
"""Most steps of the search for a quantile, and the step relative to the spread that ends it."""


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Heavy-tailed noise, robust to outliers: y = f + scale * t with df degrees of freedom.

    Raises
    ------
    SettingError
        If the scale is not positive and finite, or df is 2 or less, so without a variance.

    Examples
    --------
    >>> StudentT(scale=0.5, df=4.0).response(np.array([[1.0]]), np.array([0.1]))[1]
    array([[0.6]])
    """

    scale: float = 0.3
    df: float = 4.0

    log_concave: ClassVar[bool] = False
    in_units: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", parameter(self.scale, "scale of StudentT"))
        object.__setattr__(self, "df", parameter(self.df, "df of StudentT"))
        if self.df <= 2:
            raise SettingError(
                f"df of StudentT is {self.df:g}, but the variance is only finite above 2: "
                f"give {DF_BOUNDS[0]} or more"
            )

    @property
    def name(self) -> str:
        return "student-t"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("scale", "df")

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self.scale, self.df])

    @property
    def log_bounds(self) -> np.ndarray:
        return np.log([SCALE_BOUNDS, DF_BOUNDS])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> StudentT:
        scale, df = np.exp(logs_of(self.parameter_names, values))
        return replace(self, scale=float(scale), df=float(df))

    def spread(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> float:
        known = y[np.isfinite(y)]
        if not len(known):
            return 0.0
        return DEVIATION * float(np.median(np.abs(known - np.median(known)))) or float(known.std())

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> StudentT:
        spread = self.spread(y, beside)
        return replace(self, scale=self.scale * spread) if spread > 0 else self

    def log_p(self, y: Array, f: Array) -> LogDensity:
        residual, width = y - f, self.df * self.scale**2
        ratio, steep = residual**2 / width, (self.df + 1) / width
        value = self._log_peak() - 0.5 * (self.df + 1) * namespace(ratio).log1p(ratio)
        curvature = -steep * (1 - ratio) / (1 + ratio) ** 2
        return LogDensity(value, steep * residual / (1 + ratio), curvature)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.asarray(stdtr(self.df, (y - f) / self.scale))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(f + self.scale * rng.standard_t(self.df, np.shape(f)))

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        df, width = self.df, self.df * self.scale**2

        def terms(f: Array) -> tuple[Array, ...]:
            residual = y - f
            ratio = residual**2 / width
            return (df + 1) / width * residual / (1 + ratio), xp.log1p(ratio), ratio / (1 + ratio)

        by_mean, by_variance, (logs, shares) = averages(terms, xp, mean, variance)
        by_df = 0.5 * (df * float(psi((df + 1) / 2) - psi(df / 2)) - 1)
        by_df = by_df + 0.5 * ((df + 1) * shares - df * logs)
        values = self._log_peak() - 0.5 * (df + 1) * logs
        return Expectation(values, by_mean, by_variance, ((df + 1) * shares - 1, by_df))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        # Given its precision e^t, which is Gamma distributed, a Student-t is Gaussian: f is
        # integrated in closed form, at any scale and variance, and t by the trapezoidal rule.
        xp, y, mean, variance = arguments(y, mean, variance)
        half = 0.5 * self.df
        squares = (y - mean) ** 2
        # far beyond the prior's peak at 0 and the posterior's below it, on either side
        low = -xp.log1p(squares / (self.df * self.scale**2)) - 20 / half - math.sqrt(40 / half)
        high = min(math.sqrt(40 / half), 1 + math.log1p(20 / half))
        step = (high - low) / (MIXTURE_NODES - 1)

        def terms() -> Iterable[Array]:
            for i in range(MIXTURE_NODES):
                t = low + i * step
                total = variance + self.scale**2 * xp.exp(-t)
                yield half * (t - xp.exp(t)) - 0.5 * (xp.log(total) + squares / total)

        constant = half * math.log(half) - math.lgamma(half) - 0.5 * LOG_2PI
        return log_sum_exp(terms(), xp) + xp.log(step) + constant

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return self._cdf(y, mean, std)[0]

    def _cdf(self, y: np.ndarray, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return P(y' <= y) and its density.

        Given its precision e^t, Gamma distributed, y is Gaussian, and f is integrated exactly.
        """
        half, below, density = 0.5 * self.df, np.zeros(m.shape), np.zeros(m.shape)
        ends = -30 / half - math.sqrt(40 / half), min(math.sqrt(40 / half), 4.0)
        t = np.linspace(*ends, CDF_NODES)
        weights = np.exp(half * (t - np.exp(t) + 1.0))
        for precision, w in zip(np.exp(t), weights / weights.sum(), strict=True):
            spread = np.sqrt(s**2 + self.scale**2 / precision)
            z = (y - m) / spread
            below += w * ndtr(z)
            density += w * np.exp(-0.5 * z**2) / (spread * math.sqrt(2 * math.pi))
        return below, density

    def crps(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # E|y' - y| - E|y' - y''| / 2 of a mixture of Gaussians, as in ``_cdf``
        half = 0.5 * self.df
        t = np.linspace(-30 / half - math.sqrt(40 / half), math.sqrt(40 / half), CRPS_NODES)
        weights = np.exp(half * (t - np.exp(t) + 1.0))
        weights, own = weights / weights.sum(), self.scale**2 * np.exp(-t)
        size, found = np.abs(y - mean), np.zeros(np.shape(mean))
        for i, (w, variance) in enumerate(zip(weights, own, strict=True)):
            spread = np.sqrt(std**2 + variance)
            z = size / spread
            peak = np.exp(-0.5 * z**2) * math.sqrt(2 / math.pi)
            found += w * spread * (peak + z * (2 * ndtr(z) - 1))
            for other, beside in zip(weights[: i + 1], own[: i + 1], strict=True):
                pair = w * other * (1.0 if beside == variance else 2.0)
                found -= pair * np.sqrt((2 * std**2 + variance + beside) / (2 * math.pi))
        return found

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        # Newton's steps inside a shrinking bracket
        spread = np.sqrt(std**2 + self.scale**2)
        # P(|y - m| > reach) is far below any level that can be told from 0
        reach = spread * (REACH + np.abs(ndtri(level))) / min(level, 1.0 - level)
        low, high, at = mean - reach, mean + reach, mean + spread * ndtri(level)
        for _ in range(STEPS):
            below, density = self._cdf(at, mean, std)
            low, high = np.where(below < level, at, low), np.where(below < level, high, at)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = at - (below - level) / density
            inside = (step > low) & (step < high)
            following = np.where(inside, step, 0.5 * (low + high))
            moved, at = np.abs(following - at), following
            if (moved <= SETTLED * spread).all():
                break
        return np.asarray(at)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        _, mean, _, variance = arguments(mean, mean, variance)
        return mean, variance + self.scale**2 * self.df / (self.df - 2)

    def _log_peak(self) -> float:
        gammas = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2)
        return gammas - 0.5 * math.log(self.df * math.pi) - math.log(self.scale)
