"""Hurdle distributions: a probability of exactly zero, and positive amounts else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskgp.likelihoods.base import Likelihood

LEAST_LEVEL = 1e-10
"""Least level of a quantile of amounts."""
HALVINGS = 60
END = 1e-6
"""Probability of amounts beyond either end of an integral over their logarithm."""
LEAST_SHARE = 1e-13
"""Least lower end of an integral over amounts, as a share of its upper end."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
"""Gauss-Legendre nodes and weights of each side of an integral."""
AT_ONCE = 2_000
"""Rows whose distribution functions are taken at all nodes at a time."""


@dataclass(frozen=True, eq=False)
class Hurdle:
    """Distributions of y, which is positive with a probability and else 0.

    Parameters
    ----------
    positive : ndarray (n,)
        Probabilities that y > 0.
    likelihood : Likelihood
        That of positive amounts.
    mean, std : ndarray (n,)
        Means and standard deviations of their f.

    Examples
    --------
    >>> from daskgp.likelihoods import LogNormal
    >>> at = np.array([0.25]), LogNormal(1.0), np.zeros(1), np.zeros(1)
    >>> Hurdle(*at).log_density(np.zeros(1)).round(4)
    array([-0.2877])
    """

    positive: np.ndarray
    likelihood: Likelihood
    mean: np.ndarray
    std: np.ndarray

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the log of P(y = 0) at zeros, and the log density at positive values y (n,).

        Examples
        --------
        >>> from daskgp.likelihoods import LogNormal
        >>> one = Hurdle(np.array([0.25]), LogNormal(1.0), np.zeros(1), np.zeros(1))
        >>> one.log_density(np.ones(1)).round(4)
        array([-2.3052])
        """
        wet = y > 0
        with np.errstate(divide="ignore"):  # a probability may be 0 to the last bit
            found = np.where(wet, np.log(self.positive), np.log1p(-self.positive))
        own = (a[wet, None] for a in (y, self.mean, self.std**2))
        found[wet] += self.likelihood.log_density(*own)[:, 0]
        return found

    def quantile(self, level: float) -> np.ndarray:
        """Return the quantiles (n,) at a level, 0 up to the probability of zero.

        Examples
        --------
        >>> from daskgp.likelihoods import LogNormal
        >>> one = Hurdle(np.array([0.25]), LogNormal(1.0), np.zeros(1), np.zeros(1))
        >>> one.quantile(0.75), one.quantile(0.875).round(6)
        (array([0.]), array([1.]))
        """
        found = np.zeros(len(self.positive))
        wet = level > 1.0 - self.positive
        p = self.positive[wet]
        at = np.clip((level - (1.0 - p)) / p, LEAST_LEVEL, level)
        found[wet] = _at_levels(self.likelihood, at, self.mean[wet], self.std[wet])
        return found

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability scores of y (n,), less being better.

        They are the integral of (P(y' <= t) - 1{y <= t})^2 over t, in the unit of y.

        Examples
        --------
        >>> from daskgp.likelihoods import LogNormal
        >>> one = Hurdle(np.array([0.25]), LogNormal(1.0), np.zeros(1), np.zeros(1))
        >>> one.crps(np.zeros(1)).round(4)  # 0.25^2 times that of amounts against 0
        array([0.0494])
        """
        parts = np.array_split(np.arange(len(y)), -(-len(y) // AT_ONCE) or 1)
        return np.concatenate([self._at(rows)._crps(y[rows]) for rows in parts])

    def _at(self, rows: np.ndarray) -> Hurdle:
        """Return the distributions of some rows."""
        return Hurdle(self.positive[rows], self.likelihood, self.mean[rows], self.std[rows])

    def _crps(self, y: np.ndarray) -> np.ndarray:
        # amounts beyond the ends are left out: there the function is that of all or none of them
        low, high = (self.likelihood.quantile(a, self.mean, self.std) for a in (END, 1.0 - END))
        low = np.maximum(low, LEAST_SHARE * high)  # of small shapes the low end is 1e-300
        dry, inside = 1.0 - self.positive, np.clip(y, low, high)
        found = dry**2 * np.minimum(y, low) + np.maximum(y - high, 0.0)
        found += self.positive**2 * np.maximum(low - y, 0.0)
        for start, stop, passed in ((low, inside, True), (inside, high, False)):
            first, last = np.log(start), np.log(stop)
            half = 0.5 * (last - first)
            t = np.exp(first + half * (1.0 + NODES[:, None]))
            mean, std = (np.broadcast_to(a, t.shape) for a in (self.mean, self.std))
            below = dry + self.positive * self.likelihood.cdf(t, mean, std)
            squares = below**2 if passed else (1.0 - below) ** 2
            found += half * (WEIGHTS @ (t * squares))
        return found


def _at_levels(
    likelihood: Likelihood, levels: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> np.ndarray:
    """Return the quantiles (n,) of amounts, each at a level of its own.

    They are found by halving the log of a bracket.
    """
    if not len(levels):
        return np.empty(0)
    ends = (likelihood.quantile(float(a), mean, std) for a in (levels.min(), levels.max()))
    low, high = (np.log(end) for end in ends)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        under = likelihood.cdf(np.exp(middle), mean, std) < levels
        low, high = np.where(under, middle, low), np.where(under, high, middle)
        if (high - low).max() < 1e-12:
            break
    return np.asarray(np.exp(0.5 * (low + high)))
