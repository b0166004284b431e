"""Distributions of what is predicted: Gaussian ones, and what layers make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtr, ndtri


@dataclass(frozen=True, eq=False)
class Distribution:
    """Gaussian distributions at some places.

    Parameters
    ----------
    mean, std : ndarray (...)
        Means and standard deviations.
    """

    mean: Any
    std: Any

    def quantile(self, level: float) -> np.ndarray:
        """Return the quantiles (...) at a level."""
        return self.mean + _away(self.std, self.residual(float(ndtri(level))))

    def exceedance(self, limit: Any) -> np.ndarray:
        """Return the probabilities (...) of exceeding a number; without any spread 0 or 1."""
        away = self.mean - limit
        with np.errstate(divide="ignore", invalid="ignore"):
            certain = np.where(self.std > 0, 0.0, -np.inf)
            return self.below(np.where(away == 0.0, certain, away / self.std))

    def score(self, y: Any) -> np.ndarray:
        """Return the standardised residuals of values y (...), or what stands for them."""
        return np.asarray((y - self.mean) / self.std)

    def below(self, score: Any) -> np.ndarray:
        """Return the distribution function (...) at values with these standardised residuals."""
        return np.asarray(ndtr(score))

    def log_density(self, y: Any) -> np.ndarray:
        """Return the log density of values y (...); that of the Gaussian, whatever the tails."""
        return -0.5 * (np.log(2 * np.pi * self.std**2) + self.score(y) ** 2)

    def residual(self, score: float) -> float:
        """Return the standardised residual at a normal score."""
        return score


def _away(std: np.ndarray, residual: float) -> np.ndarray:
    """Return the distance of a quantile from the mean, none for the median of any spread."""
    return np.asarray(std * residual if residual else np.where(np.isnan(std), np.nan, 0.0))


class Increasing(Protocol):
    """An increasing function of values, ``outward``, and its inverse, ``inward``."""

    def outward(self, values: Any) -> Any:
        """Return the function."""

    def inward(self, values: Any) -> Any:
        """Return the inverse; below all values of the function it is -inf."""

    def log_slope(self, values: Any) -> Any:
        """Return the logarithm of the derivative of the inverse."""


@dataclass(frozen=True, eq=False)
class Mapped(Distribution):
    """Distributions of an increasing function of values.

    Parameters
    ----------
    inner : Distribution
        Those of the values.
    layer : Increasing
    """

    inner: Distribution
    layer: Increasing

    def quantile(self, level: float) -> np.ndarray:
        """Return the quantiles (...) at a level."""
        return np.asarray(self.layer.outward(self.inner.quantile(level)))

    def exceedance(self, limit: Any) -> np.ndarray:
        """Return the probabilities (...) of exceeding a number."""
        inside = self.layer.inward(limit)
        missing = np.where(np.isnan(self.mean) | np.isnan(self.std), np.nan, 1.0)
        return np.where(inside == -np.inf, missing, self.inner.exceedance(inside))

    def score(self, y: Any) -> np.ndarray:
        """Return the standardised residuals of the values inside."""
        return self.inner.score(self.layer.inward(y))

    def below(self, score: Any) -> np.ndarray:
        """Return the distribution function (...) at values with these standardised residuals."""
        return self.inner.below(score)

    def log_density(self, y: Any) -> np.ndarray:
        """Return the log density of values y (...), with the slope as Jacobian."""
        return np.asarray(self.inner.log_density(self.layer.inward(y)) + self.layer.log_slope(y))
