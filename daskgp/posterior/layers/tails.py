"""Tails of standardised residuals that are heavier, or lighter, than those of a normal one."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.posterior.layers.base import Distribution, Layer, register

LEVELS = (*(k / 20 for k in range(1, 20)), 0.98, 0.99, 0.995, 0.998, 0.999)
"""Levels of central intervals whose half widths are kept."""
FEWEST, BEYOND = 200, 10
"""Fewest residuals that tell tails, and fewest of them outside the widest interval."""
CRITICAL = 2.25
"""Anderson-Darling statistic that one in 100 normal samples exceeds, their mean square known to
be 1."""
FLATTEST = 1e-3
"""Least slope of the half width in normal scores, where residuals repeat."""


@register
@dataclass(frozen=True)
class Tails(Layer):
    """Half widths of central intervals of a new observation, in its standard deviations.

    A normal residual u has the same distribution function as one of z(u), which is odd, linear
    between the levels, and continued beyond the last of them.

    Parameters
    ----------
    levels : tuple of float
        Levels of central intervals, increasing.
    widths : tuple of float
        Half width of each.

    Examples
    --------
    >>> tails = Tails((0.5, 0.95), (0.5, 2.2))
    >>> float(tails.residual(ndtri(0.975)).round(3)), float(tails.normal_score(-0.5).round(3))
    (2.2, -0.674)
    """

    levels: tuple[float, ...]
    widths: tuple[float, ...]

    name = "tails"
    of_tails = True
    of_observations = True

    @classmethod
    def of(cls, z: np.ndarray, targets: int = 1) -> Tails | None:
        """Return the tails of residuals z (n,) of mean square 1; None if they may be normal.

        Those of several ``targets`` of a row may tell the same.  Half widths are order statistics
        of abs(z), so they do not move the median.
        """
        size = np.sort(np.abs(z))
        if len(size) < FEWEST * targets or _anderson_darling(size) <= CRITICAL * targets:
            return None
        levels = tuple(level for level in LEVELS if len(size) * (1.0 - level) >= BEYOND - 1e-9)
        widths = np.quantile(size, levels, method="weibull")  # inside which the share is expected
        floor = FLATTEST * _scores(levels)  # so that there is an inverse
        widths = floor + np.maximum.accumulate(np.maximum(widths - floor, 0.0))
        return cls(levels, tuple(widths.tolist()))

    def residual(self, score: Any) -> np.ndarray:
        """Return the standardised residuals at normal scores."""
        return _odd(score, _scores(self.levels), np.array(self.widths))

    def normal_score(self, residual: Any) -> np.ndarray:
        """Return the normal scores at standardised residuals."""
        return _odd(residual, np.array(self.widths), _scores(self.levels))

    def wider(self, level: float) -> float:
        """Return the width of the central interval of a level relative to that of a normal one."""
        score = float(ndtri(0.5 + level / 2))
        return float(self.residual(score)) / score

    def over(self, inner: Distribution) -> Distribution:
        return _Tailed(inner.mean, inner.std, self)

    @property
    def described(self) -> dict[str, list[float]]:
        return {"levels": list(self.levels), "widths": list(self.widths)}

    @classmethod
    def restored(cls, described: Any, arrays: dict[str, np.ndarray]) -> Tails:
        return cls(*(tuple(map(float, described[name])) for name in ("levels", "widths")))


@dataclass(frozen=True, eq=False)
class _Tailed(Distribution):
    """Distributions whose standardised residuals have other tails than normal ones."""

    tails: Tails

    def below(self, score: Any) -> np.ndarray:
        return np.asarray(ndtr(self.tails.normal_score(score)))

    def residual(self, score: float) -> float:
        return float(self.tails.residual(score))


def _scores(levels: tuple[float, ...]) -> np.ndarray:
    return np.asarray(ndtri(0.5 + np.array(levels) / 2))


def _odd(x: Any, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the odd function through (0, 0) and ``values`` at ``known`` > 0, linear between."""
    size, known, values = np.abs(x), np.append(0.0, known), np.append(0.0, values)
    slope = (values[-1] - values[-2]) / (known[-1] - known[-2])
    beyond = slope * np.maximum(size - known[-1], 0.0)
    return np.asarray(np.copysign(np.interp(size, known, values) + beyond, x))


def _anderson_darling(size: np.ndarray) -> float:
    """Return the Anderson-Darling statistic of sorted sizes of residuals, if they were normal."""
    n, above = len(size), 2.0 * ndtr(-size)
    within = np.clip(1.0 - above, np.finfo(float).tiny, 1.0)
    above = np.maximum(above, np.finfo(float).tiny)
    odd = 2.0 * np.arange(n) + 1.0
    return float(-n - np.mean(odd * (np.log(within) + np.log(above[::-1]))))
