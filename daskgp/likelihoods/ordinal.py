"""Classes that have an order."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.arrays.backend import namespace, special
from daskgp.checks import logs_of, parameter
from daskgp.errors import InputError
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.intervals import OPEN, interval
from daskgp.likelihoods.quadrature import arguments, averages
from daskgp.typing import Array

GAP_BOUNDS = (1e-4, 1e2)
MOST_CLASSES = 100
"""Most classes that targets are taken to be of."""
SMOOTHING = 0.5
"""Targets that every class is taken to have beside those that are seen."""
HALVINGS, FARTHEST = 60, 40.0
"""Halvings of a bracket of the latent constant of a mean, and its ends from the cut points."""


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Classes 0, 1, ... in their order: y <= k with probability Phi(c_k - f).

    The first cut point c_0 is 0, as the constant of f moves all of them, and the next follow at
    the distances ``gaps``, which are learned.  This is the probit form of R's
    ``MASS::polr(method="probit")``, whose zeta are ``cut_points`` less the constant, and of
    ``OrderedModel`` of statsmodels.  ``start`` finds the number of classes; larger y count as the
    last class.

    Raises
    ------
    SettingError
        If a gap is not positive and finite.

    Examples
    --------
    >>> Ordinal((0.5, 1.0)).cut_points
    array([0. , 0.5, 1.5])
    >>> round(float(Ordinal().cdf(np.array([0.0]), np.array([0.0]), np.array([1.0]))[0]), 6)
    0.5
    """

    gaps: tuple[float, ...] = (1.0,)

    discrete: ClassVar[bool] = True
    sized_by_data: ClassVar[bool] = True
    interval: ClassVar[tuple[float, float]] = (0.0, math.inf)
    _takes: ClassVar[str] = "classes 0, 1, 2, ...: code the classes in their order"

    def __post_init__(self) -> None:
        gaps = tuple(parameter(gap, "gap of Ordinal") for gap in self.gaps)
        object.__setattr__(self, "gaps", gaps)

    @property
    def name(self) -> str:
        return "ordinal"

    @property
    def n_classes(self) -> int:
        """Number of classes.

        Examples
        --------
        >>> Ordinal().n_classes
        3
        """
        return len(self.gaps) + 2

    @property
    def cut_points(self) -> np.ndarray:
        """Values (n_classes - 1,) of f + N(0, 1) at which one class ends and the next begins.

        Examples
        --------
        >>> Ordinal().cut_points
        array([0., 1.])
        """
        return np.concatenate([[0.0], np.cumsum(self.gaps)])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(f"gap_{k + 1}" for k in range(len(self.gaps)))

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log(np.array(self.gaps, np.float64))

    @property
    def log_bounds(self) -> np.ndarray:
        return np.log([GAP_BOUNDS] * len(self.gaps)).reshape(-1, 2)

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Ordinal:
        return replace(self, gaps=tuple(np.exp(logs_of(self.parameter_names, values)).tolist()))

    def with_n_parameters(self, count: int) -> Ordinal:
        return replace(self, gaps=(1.0,) * count)

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> Ordinal:
        known = y[np.isfinite(y)]
        if not len(known):
            return self
        largest = known.max(initial=1.0)
        if largest >= MOST_CLASSES:
            raise InputError(
                f"a target is {largest:g}, and the ordinal likelihood takes classes 0 "
                f"to {MOST_CLASSES - 1}: give NaN for missing values, or take another likelihood"
            )
        counts = np.bincount(known.astype(np.int64), minlength=int(largest) + 1) + SMOOTHING
        return replace(self, gaps=tuple(np.diff(ndtri(np.cumsum(counts)[:-1] / counts.sum()))))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp = namespace(f)
        low, high = (end - f for end in self._ends(y, xp))
        found = interval(low, high, xp)
        slope = found.at_low - found.at_high
        # an end that is open has no density
        curvature = low * found.at_low - high * found.at_high - slope**2
        return LogDensity(_known(found.log_p, y, xp), slope, curvature)

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        xp = namespace(f)
        low, high = self._ends(y, xp)
        found, cuts = interval(low - f, high - f, xp), self.cut_points[1:]
        return [
            gap * (found.at_high * (high >= cut) - found.at_low * (low >= cut))
            for gap, cut in zip(self.gaps, cuts, strict=True)
        ]

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(self._cut_above(y) - f))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        drawn = rng.normal(f)
        return np.asarray(np.searchsorted(self.cut_points, drawn.ravel()), float).reshape(f.shape)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = arguments(y, mean, variance)
        low, high = self._ends(y, xp)

        def terms(f: Array) -> tuple[Array, ...]:
            found = interval(low - f, high - f, xp)
            return found.at_low - found.at_high, found.log_p, found.at_high

        slope, by_variance, (logs, at_high) = averages(terms, xp, mean, variance)
        at_low = slope + at_high
        by_log = [
            gap * (at_high * (high >= cut) - at_low * (low >= cut))
            for gap, cut in zip(self.gaps, self.cut_points[1:].tolist(), strict=True)
        ]
        by_variance = xp.minimum(by_variance, 0)  # rounding, where log p is nearly linear
        return Expectation(logs, slope, by_variance, by_log)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        spread = xp.sqrt(1 + variance)
        low, high = ((end - mean) / spread for end in self._ends(y, xp))
        return _known(interval(low, high, xp).log_p, y, xp)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr((self._cut_above(y) - mean) / np.sqrt(1.0 + std**2)))

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        count = np.zeros(mean.shape)
        for k in range(self.n_classes - 1):
            count += self.cdf(np.full(mean.shape, float(k)), mean, std) < level
        return count

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        spread, ndtr = xp.sqrt(1 + variance), special(xp).ndtr
        # sums over k of P(y >= k), and of (2 k - 1) P(y >= k)
        first = second = 0.0 * mean
        for k, cut in enumerate(self.cut_points.tolist()):
            above = ndtr((mean - cut) / spread)
            first, second = first + above, second + (2 * k + 1) * above
        return first, xp.maximum(second - first**2, 0)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        cuts = self.cut_points
        low = np.full(len(y_mean), -FARTHEST)
        high = np.full(len(y_mean), cuts[-1] + FARTHEST)
        least = 1e-6 * (self.n_classes - 1)
        wanted = np.clip(np.asarray(y_mean, np.float64), least, self.n_classes - 1 - least)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            less = ndtr(middle[:, None] - cuts).sum(axis=1) < wanted
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        return 0.5 * (low + high)

    def _ends(self, y: Array, xp: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the cut points below and above classes."""
        ends = xp.asarray(np.concatenate([[-OPEN], self.cut_points, [OPEN]]))
        largest = float(self.n_classes - 1)
        k = xp.clip(xp.where(xp.isnan(y), 0.0, y), 0.0, largest).astype(np.int64)
        return xp.take(ends, k), xp.take(ends, k + 1)

    def _cut_above(self, y: np.ndarray) -> np.ndarray:
        ends = np.concatenate([[-np.inf], self.cut_points, [np.inf]])
        return np.asarray(ends[np.clip(np.floor(y) + 1, 0, self.n_classes).astype(np.int64)])


def _known(values: Array, y: Array, xp: Any) -> np.ndarray:
    return xp.where(xp.isnan(y), xp.nan, values)
