"""Two classes."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import special as host_special

from daskgp.arrays.backend import namespace, special
from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.likelihoods.base import Likelihood, LogDensity
from daskgp.likelihoods.quadrature import arguments, hermite
from daskgp.typing import Array

LEAST_SHARE = 1e-6
"""Lower limit of the share of ones, and of the share of zeros."""


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Two classes, y = 1 with probability Phi(f) ("probit") or 1 / (1 + e^-f) ("logit").

    Raises
    ------
    SettingError
        If the link is neither.

    Examples
    --------
    >>> Bernoulli().response(np.array([[1.0]]), np.array([0.0]))[0].round(4)
    array([[0.8413]])
    """

    link: Literal["probit", "logit"] = "probit"

    discrete: ClassVar[bool] = True
    classes: ClassVar[bool] = True
    interval: ClassVar[tuple[float, float]] = (0.0, 1.0)
    _takes: ClassVar[str] = "only 0 and 1: code the two classes as 0 and 1, or take GPClassifier"

    def __post_init__(self) -> None:
        if self.link not in ("probit", "logit"):
            raise SettingError(
                f"link of Bernoulli must be 'probit' or 'logit', not {shown(self.link)}"
            )

    @property
    def name(self) -> str:
        return "bernoulli" if self.link == "probit" else "bernoulli-logit"

    def log_p(self, y: Array, f: Array) -> LogDensity:
        xp, sign = namespace(f), 2 * y - 1
        functions, f = special(xp), sign * f
        if self.link == "logit":
            other = functions.expit(-f)
            return LogDensity(_log_expit(f, xp), sign * other, -functions.expit(f) * other)
        # density over distribution function, without underflow of either in the tails
        slope = math.sqrt(2 / math.pi) / functions.erfcx(-math.sqrt(0.5) * f)
        return LogDensity(functions.log_ndtr(f), sign * slope, -slope * (slope + f))

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        zero = host_special.ndtr(-f) if self.link == "probit" else host_special.expit(-f)
        return np.where(y < 0, 0.0, np.where(y < 1, zero, 1.0))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(rng.random(np.shape(f)) >= self.below(np.zeros(np.shape(f)), f), float)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        xp, y, mean, variance = arguments(y, mean, variance)
        if self.link == "logit":
            return super().log_density(y, mean, variance)
        return special(xp).log_ndtr((2 * y - 1) * mean / xp.sqrt(1 + variance))

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        xp, mean, _, variance = arguments(mean, mean, variance)
        if self.link == "probit":
            scaled, ndtr = mean / xp.sqrt(1 + variance), special(xp).ndtr
            one, zero = ndtr(scaled), ndtr(-scaled)
        else:
            expit, spread = special(xp).expit, xp.sqrt(2 * variance)
            one = sum(w * expit(mean + x * spread) for x, w in hermite())
            zero = sum(w * expit(x * spread - mean) for x, w in hermite())
        return one, one * zero

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        share = np.clip(y_mean, LEAST_SHARE, 1 - LEAST_SHARE).astype(np.float64)
        return host_special.ndtri(share) if self.link == "probit" else host_special.logit(share)


def _log_expit(f: Array, xp: Any) -> np.ndarray:
    return xp.minimum(f, 0) - xp.log1p(xp.exp(-xp.abs(f)))
