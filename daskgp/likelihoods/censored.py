"""Values of which some are known to lie between bounds alone."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.errors import SettingError
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity, beside
from daskgp.likelihoods.gaussian import Gaussian
from daskgp.likelihoods.intervals import OPEN, Interval, inside, interval
from daskgp.likelihoods.quadrature import arguments, averages
from daskgp.typing import Array

SIGMA_BOUNDS = (1e-6, 1e6)


@dataclass(frozen=True)
class Censored(Likelihood):
    """Gaussian noise, y = f + N(0, sigma^2), where y may be known by its bounds alone.

    Rows have a ``lower`` and an ``upper`` bound of y, in its units, such as 0 and a detection
    limit, a value less and more half of what it is rounded to, or -inf and inf where a side is
    open.  Where both are the same, and without bounds, y is the measured value; elsewhere y does
    not matter.  With values below a limit it is the Tobit model.  Predictions are those of values
    that could be measured anywhere.

    Raises
    ------
    SettingError
        If sigma is not positive and finite.

    Examples
    --------
    >>> bounds = {"lower": np.array([1.0, -np.inf]), "upper": np.array([1.0, 0.5])}
    >>> rows = Censored(sigma=1.0).with_columns(bounds)
    >>> y, mean, variance = np.array([[1.0], [0.0]]), np.array([[1.0], [0.5]]), np.zeros(2)
    >>> np.exp(rows.log_density(y, mean, variance)).round(4)
    array([[0.3989],
           [0.5   ]])
    """

    sigma: float = 0.3

    columns: ClassVar[tuple[str, ...]] = ("lower", "upper")
    in_units: ClassVar[tuple[str, ...]] = ("sigma",)
    columns_in_units: ClassVar[tuple[str, ...]] = ("lower", "upper")
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"sigma": SIGMA_BOUNDS}

    @property
    def name(self) -> str:
        return "censored"

    def spread(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> float:
        return super().spread(self.values(y, beside))

    @staticmethod
    def values(y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
        """Return y (n,), and values within the bounds where it is not measured.

        Examples
        --------
        >>> bounds = {"lower": np.array([1.0, 0.0]), "upper": np.array([1.0, 0.5])}
        >>> Censored.values(np.array([1.0, 9.0]), bounds)
        array([1.  , 0.25])
        """
        if not beside:
            return y
        low, high = (np.asarray(beside.get(name, y)) for name in ("lower", "upper"))
        found = inside(low, high)
        return np.where((low == high) | np.isnan(found), y, found)

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> Censored:
        spread = self.spread(y, beside)
        return self._with(sigma=self.sigma * spread) if spread > 0 else self

    def log_p(self, y: Array, f: Array) -> LogDensity:
        return self._gaussian.log_p(y, f)

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        return (((y - f) / self.sigma) ** 2 - 1,)

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return self._gaussian.below(y, f)

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._gaussian.sample(f, rng)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        found = self._gaussian.expected(y, mean, variance)
        (by_log,) = found.by_logs
        return found._replace(by_logs=(2.0 * by_log,))  # that of the variance is half of sigma's

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        return self._gaussian.log_density(y, mean, variance)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return self._gaussian.cdf(y, mean, std)

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return self._gaussian.quantile(level, mean, std)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        return self._gaussian.response(mean, variance)

    @property
    def _gaussian(self) -> Gaussian:
        return Gaussian(self.sigma**2)

    def _of_columns(self, values: Mapping[str, Array]) -> Censored:
        for name, other in (self.columns, self.columns[::-1]):
            if other not in values:
                raise SettingError(
                    f"rows have {name} without {other}, so none would be measured: give both; "
                    "they are y itself if it is measured, and -inf or inf on an open side"
                )
        return _CensoredRows(self.sigma, *(values[name] for name in self.columns))

    def _wrong(
        self, name: str, y: np.ndarray, given: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, str]:
        open_side = math.inf if name == "lower" else -math.inf
        wrong = np.isnan(given[name]) | (given[name] == open_side)
        if wrong.any():
            return wrong, f"numbers or {-open_side:g}"
        low, high = (given.get(one, np.full(len(y), end)) for one, end in _SIDES)
        if (low > high).any():
            return low > high, "a lower bound that is not above the upper one"
        return (low == high) & (low != y), "bounds that are both y where they are the same"


_SIDES = ("lower", -math.inf), ("upper", math.inf)


@dataclass(frozen=True, eq=False)
class _CensoredRows(Censored):
    """Values of rows with their own bounds (n,)."""

    lower: Any = None
    upper: Any = None

    def log_p(self, y: Array, f: Array) -> LogDensity:
        measured, found, low, high = self._standardised(y, f)
        slope = (found.at_low - found.at_high) / self.sigma
        bend = (low * found.at_low - high * found.at_high) / self.sigma**2 - slope**2
        own, xp = super().log_p(y, f), namespace(f)
        both = zip(own, (found.log_p, slope, bend), strict=True)
        return LogDensity(*(xp.where(measured, a, b) for a, b in both))

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        measured, found, low, high = self._standardised(y, f)
        by_sigma = low * found.at_low - high * found.at_high
        return (namespace(f).where(measured, super().by_parameters(y, f)[0], by_sigma),)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        # quadrature for rows alone that are not measured
        xp, y, mean, variance = arguments(y, mean, variance)
        low, high = self._bounds(y)
        measured = (low == high)[:, 0]
        between, sigma = ~measured, self.sigma
        found = super().expected(y[measured], mean[measured], variance[measured])
        low, high = low[between], high[between]

        def terms(f: Array) -> tuple[Array, ...]:
            z_low, z_high = (low - f) / sigma, (high - f) / sigma
            own = interval(z_low, z_high, xp)
            slope = (own.at_low - own.at_high) / sigma
            return slope, own.log_p, z_low * own.at_low - z_high * own.at_high

        own_mean, own_variance, (logs, by_sigma) = averages(
            terms, xp, mean[between], variance[between]
        )
        of_rows = (
            (found.values, logs),
            (found.by_mean, own_mean),
            (found.by_variance, xp.minimum(own_variance, 0)),
            (found.by_logs[0], by_sigma),
        )
        every = xp.zeros((len(of_rows), *y.shape))
        for whole, (one, other) in zip(every, of_rows, strict=True):
            whole[measured], whole[between] = one, other
        return Expectation(every[0], every[1], every[2], (every[3],))

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        measured, found, *_ = self._standardised(y, mean, xp.sqrt(self.sigma**2 + variance))
        log_p = xp.where(xp.isnan(y), xp.nan, found.log_p)
        return xp.where(measured, super().log_density(y, mean, variance), log_p)

    def is_density(self, y: np.ndarray) -> Any:
        low, high = self._bounds(y)
        return low == high

    def ends(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        return self._bounds(y)

    def _bounds(self, like: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds (n, 1), far ones where a side is open."""
        xp = namespace(like)
        low, high = (xp.clip(beside(own, like), -OPEN, OPEN) for own in (self.lower, self.upper))
        return low, high

    def _standardised(
        self, y: Array, f: Array, scale: Any = None
    ) -> tuple[Array, Interval, Array, Array]:
        """Return which rows are measured; for the others intervals, and their ends from f."""
        low, high = self._bounds(y)
        measured, scale = low == high, self.sigma if scale is None else scale
        xp = namespace(f)
        # any interval where y is measured
        low = (xp.where(measured, f - self.sigma, low) - f) / scale
        high = (xp.where(measured, f + self.sigma, high) - f) / scale
        return measured, interval(low, high, xp), low, high
