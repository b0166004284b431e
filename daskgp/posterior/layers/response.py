"""Likelihoods of new observations that are not f and Gaussian noise."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from daskgp import likelihoods
from daskgp.errors import SettingError
from daskgp.likelihoods import Likelihood
from daskgp.likelihoods.ranked import ranked_probability
from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Distribution, Layer, Parts, Places, register

TINY, EPS = np.finfo(np.float64).tiny, 2.0**-53
"""Least probability, and least distance from 1, of which there is a normal score."""


@register
@dataclass(frozen=True, eq=False)
class Response(Layer):
    """New observations y, given the Gaussian of f.

    Parameters
    ----------
    likelihood : Likelihood
    scale : ndarray (p,)
        Units of the targets in which the likelihood was fitted.
    of_method : bool
        Whether it is that of the method, with whose state a store keeps it.
    """

    likelihood: Likelihood
    scale: Any = 1.0
    of_method: bool = True

    name = "likelihood"
    gaussian = False
    needs_variance = True
    of_observations = True
    increasing = False

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert inner.variance is not None
        own = self.likelihood.response(inner.mean / self.scale, inner.variance / self.scale**2)
        return inner._replace(mean=own[0] * self.scale, variance=own[1] * self.scale**2)

    @property
    def graded(self) -> bool:
        return not self.likelihood.classes

    def of_rows(self, beside: Mapping[str, Any]) -> Response:
        scale = np.ravel(self.scale)[0]  # rows of several targets have no bounds
        bounds = self.likelihood.columns_in_units
        own = {name: a / scale if name in bounds else a for name, a in beside.items()}
        return replace(self, likelihood=self.likelihood.with_columns(own))

    def over(self, inner: Distribution) -> Distribution:
        return Mixture(inner.mean, inner.std, self.likelihood, self.scale)

    def supports(self, y: Any) -> Any:
        return self.likelihood.supports(y)

    def refuse(self, count: int) -> None:
        self.likelihood.refuse(count)

    def refuse_ungraded(self, what: str) -> None:
        if not self.graded:
            raise SettingError(
                f"{what} of new observations of likelihood {self.likelihood.name!r} are not "
                "available, because they are 0 or 1: ask for predict_proba, or leave "
                f"include_noise out for {what} of f"
            )

    @property
    def described(self) -> Any:
        if self.of_method:
            return None
        own, scale = self.likelihood, float(self.scale)
        units = {} if scale == 1.0 else {"scale": scale}
        return {"likelihood": own.name, "log_parameters": own.log_parameters.tolist(), **units}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @classmethod
    def of_fit(cls, parts: Parts) -> Response | None:
        return None if parts.likelihood is None else cls(parts.likelihood, parts.scaling.y_scale)

    @classmethod
    def restored(cls, described: Any, arrays: dict[str, np.ndarray]) -> Response:
        own = likelihoods.by_name(described["likelihood"], described["log_parameters"])
        return cls(own, described.get("scale", 1.0), of_method=False)


@dataclass(frozen=True, eq=False)
class Mixture(Distribution):
    """Distributions of y, mixtures over the Gaussian of f.

    Parameters
    ----------
    likelihood : Likelihood
    scale : ndarray (p,)
        Units of the targets in which the likelihood was fitted.
    """

    likelihood: Likelihood
    scale: Any

    def quantile(self, level: float) -> np.ndarray:
        """Return the quantiles (...) at a level."""
        return self._known(self.likelihood.quantile(level, *self._scaled()) * self.scale)

    def exceedance(self, limit: Any) -> np.ndarray:
        """Return the probabilities (...) of exceeding a number."""
        return self._known(1.0 - self._cdf(limit))

    def score(self, y: Any) -> np.ndarray:
        """Return the normal scores of values: Phi^-1 of their distribution functions.

        That of a count is of the middle of its step, (P(y' < y) + P(y' <= y)) / 2, and that of a
        value between bounds of the middle of theirs.
        """
        ends = self._ends(y)
        below = self._cdf(np.nan_to_num(y)) if ends is None else 0.5 * (ends[0] + ends[1])
        return self._known(ndtri(np.clip(below, TINY, 1.0 - EPS)), y)

    def log_density(self, y: Any) -> np.ndarray:
        """Return the log density of values y (...)."""
        mean, variance = self.mean / self.scale, (self.std / self.scale) ** 2
        density = self.likelihood.log_density(y / self.scale, mean, variance)
        return np.asarray(density - self.likelihood.is_density(y) * np.log(self.scale))

    def steps(self, y: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return P(y' < y) and P(y' <= y) at counts and ordered classes y (...).

        Those of values between bounds are at these.
        """
        ends = None if self.likelihood.classes else self._ends(y)
        return None if ends is None else (self._known(ends[0], y), self._known(ends[1], y))

    def _ends(self, y: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the distribution function at the ends that y is known to lie between, if any."""
        ends = self.likelihood.ends(np.nan_to_num(y) / self.scale)
        if ends is None:
            return None
        mean, std = self._scaled()
        low, high = (np.broadcast_to(end, mean.shape) for end in ends)
        return self.likelihood.cdf(low, mean, std), self.likelihood.cdf(high, mean, std)

    def ranked(self, y: Any) -> np.ndarray:
        """Return the ranked probability scores of counts and ordered classes y (...)."""
        if self.likelihood.classes or not self.likelihood.discrete:
            return super().ranked(y)
        found = ranked_probability(self.likelihood, np.nan_to_num(y), *self._scaled())
        return self._known(found, y)

    def crps(self, y: Any) -> np.ndarray:
        """Return the CRPS of values y (...), NaN for likelihoods that do not have it."""
        if self.likelihood.discrete:
            return self.ranked(y)
        found = self.likelihood.crps(np.nan_to_num(y) / self.scale, *self._scaled())
        return self._known(found * self.scale, y)

    def _cdf(self, y: Any) -> np.ndarray:
        mean, std = self._scaled()
        return self.likelihood.cdf(np.broadcast_to(y / self.scale, mean.shape), mean, std)

    def _scaled(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = (np.nan_to_num(a / self.scale) for a in (self.mean, self.std))
        return mean, std

    def _known(self, values: np.ndarray, y: Any = 0.0) -> np.ndarray:
        """Return values, NaN where a prediction or y is missing."""
        return np.where(np.isnan(self.mean + self.std + y), np.nan, values)
