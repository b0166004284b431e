"""Layers that keep a Gaussian one, from the inside out.

They are trend, fading of a spread, noise, spread, units and regressor.
"""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.data.regressor import Known
from daskgp.errors import InputError
from daskgp.models.scaling import Scaling
from daskgp.models.trend import Trend, posterior
from daskgp.models.values import Moments
from daskgp.models.varying import Varying
from daskgp.posterior.layers.base import Layer, Parts, Places, register


@register
@dataclass(frozen=True, eq=False)
class TrendLayer(Layer):
    """Trend and the rest, from what a method predicts of targets and of trend functions.

    With a = h - E h, where E h is what the method predicts of the functions themselves, the mean
    gains a' B and the covariance a G a'.

    Parameters
    ----------
    trend : Trend
    y_scale : ndarray (p,)
    coefficients : tuple of ndarray (r, p) and (r, r), optional
        Posterior mean B of the coefficients of scaled targets, and a root of their covariance G.
    names : tuple of str
        Names of the columns of X.
    """

    trend: Trend
    y_scale: np.ndarray
    coefficients: tuple[np.ndarray, np.ndarray] | None = None
    names: tuple[str, ...] = ()

    name = "trend"

    @property
    def further(self) -> int:
        return 0 if self.coefficients is None else self.trend.n_functions

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        trend, p = self.trend, len(self.y_scale)
        given = np.asarray(at.given, np.float64)
        values = np.where(at.usable[:, None], given[:, trend.columns], 0.0)
        own, off = np.asarray(inner.mean, np.float64), trend.off(values) & at.usable
        mean = own[:, :p] + trend.fitted(values) / self.y_scale
        if at.left_out:
            return inner._replace(mean=mean)
        if off.any() and (inner.covariance is not None or self.coefficients is None):
            self.refuse_places(given[at.usable])
        if self.coefficients is None:
            return inner._replace(mean=mean)
        apart, (B, root) = trend.functions(values) - own[:, p:], self.coefficients
        spread, (variance, covariance) = apart @ root, inner[1:3]
        added = np.where(off, np.inf, (spread**2).sum(axis=1))  # the prior of coefficients is flat
        return inner._replace(
            mean=mean + apart @ B,
            variance=None if variance is None else variance + added,
            covariance=None if covariance is None else covariance + spread @ spread.T,
        )

    def refuse_places(self, X: np.ndarray) -> None:
        """Raise InputError for places off the plane that collinear columns lie in."""
        off = int(self.trend.off(X[:, self.trend.columns]).sum())
        if not off:
            return
        names = [repr(self.names[j]) for j in self.trend.columns]
        groups = "; ".join(", ".join(names[j] for j in g) for g in self.trend.collinear())
        raise InputError(
            f"columns of the trend are linear combinations of one another in the training rows "
            f"({groups}), but not at {off} of {len(X)} places, where nothing is known of the "
            "trend: leave one of them out of mean=, or ask for the standard deviation of each "
            "place, which is infinite there"
        )

    @property
    def described(self) -> Any:
        return list(self.trend.columns)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return self.trend.arrays

    @classmethod
    def of_fit(cls, parts: Parts) -> TrendLayer | None:
        trend, scale = parts.scaling.trend, parts.scaling.y_scale
        if trend is None:
            return None
        known = None
        if trend.n_functions:
            known = posterior(np.asarray(parts.products), trend.n_functions)
        return cls(trend, scale, known, parts.names)


@register
@dataclass(frozen=True, eq=False)
class Fade(Layer):
    """Fading of a learned ``factor`` s below 1 on standard deviations where f is little known.

    Rows that are left out one by one tell the spread at places as well known as they are.  With r =
    v / k, the share of the posterior variance v of f in its prior one k, the variance becomes

        s^(2 c) v   with   c = log(high / r) / log(high / low),   0 <= c <= 1,

    so that all of the factor acts up to the share ``low`` and nothing of it from ``high`` on.  This
    layer has what the factor s^2 of the spread, around it, is to be multiplied by.

    Parameters
    ----------
    factor, low, high : float
    """

    factor: float
    low: float
    high: float

    name = "fade"
    linear = False  # of an average places have weights, see ``predict.average``

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        if inner.variance is None and inner.covariance is None:
            return inner
        assert at is not None
        noisy = inner.noisy or at.left_out
        if inner.covariance is None:
            variance = np.asarray(inner.variance)
            quiet, share = of_f(variance, at, noisy)
            more = np.where(np.isinf(quiet), 0.0, quiet) * (self.stretch(share) - 1.0)
            return inner._replace(variance=variance + more)
        covariance = np.array(inner.covariance, np.float64)
        diagonal = np.diag_indices(len(covariance))
        quiet, share = of_f(covariance[diagonal], at, noisy)
        noise, root = covariance[diagonal] - quiet, np.sqrt(self.stretch(share))
        covariance[diagonal] = quiet
        covariance *= root[:, None] * root
        covariance[diagonal] += noise
        return inner._replace(covariance=covariance)

    def part(self, share: np.ndarray) -> np.ndarray:
        """Return the parts c (n,) of the factor that act at shares (n,) of the prior variance."""
        if not self.low < self.high:  # both 1, at rows that are alone
            return np.asarray(share < self.high, np.float64)
        share = np.maximum(share, np.finfo(float).tiny)
        c = np.log(self.high / share) / np.log(self.high / self.low)
        return np.clip(c, 0.0, 1.0)

    def stretch(self, share: np.ndarray) -> np.ndarray:
        """Return the factors (n,) on variances of f, given their shares of the prior ones."""
        return np.asarray(self.factor ** (2.0 * (self.part(share) - 1.0)))

    def of_paths(self, values: Any, mean: Callable[[], Any], stretch: Callable[[], Any]) -> Any:
        centre = mean()
        return centre + stretch() * (values - centre)


@dataclass(frozen=True, eq=False)
class Stretch(Fade):
    """Factors on variances of f by a fading in the place of these variances; in no store."""

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        factors = self.stretch(of_f(np.asarray(inner.variance), at, inner.noisy)[1])
        return inner._replace(variance=factors[:, None].repeat(inner.mean.shape[1], axis=1))


def of_f(variance: np.ndarray, at: Places, noisy: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of f in variances (n,), and their shares in those of the prior, at most 1.

    ``noisy`` says that the variances are those of new observations.
    """
    assert at.prior is not None
    assert at.noise is not None
    quiet, prior = np.maximum(variance - (at.noise() if noisy else 0.0), 0.0), at.prior()
    share = np.divide(quiet, prior, out=np.zeros_like(quiet), where=prior > 0)
    return quiet, np.minimum(share, 1.0)


@register
@dataclass(frozen=True, eq=False)
class Noise(Layer):
    """Gaussian noise of a ``variance`` that all new observations have, but for what varies."""

    variance: float
    varying: Varying | None = None

    name = "noise"
    of_observations = True

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        if inner.noisy or (at is not None and at.left_out):  # the method has added it
            return inner
        own: Any = self.variance
        if self.varying is not None:
            assert at is not None
            own = own * np.exp(self.varying.at(at.scaled)[:, -1])
        if inner.covariance is not None:
            covariance = np.array(inner.covariance, np.float64)
            covariance[np.diag_indices(len(covariance))] += own
            return inner._replace(covariance=covariance)
        return inner._replace(variance=None if inner.variance is None else inner.variance + own)

    @property
    def described(self) -> None:
        return None  # hyper-parameters have it

    @classmethod
    def of_fit(cls, parts: Parts) -> Noise | None:
        return cls(parts.noise_variance, parts.varying) if parts.likelihood is None else None


@register
@dataclass(frozen=True, eq=False)
class TargetNoise(Layer):
    """Gaussian noise of ``variances`` (p,) that new observations of each target have."""

    variances: np.ndarray

    name = "target_noise"
    of_observations = True

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        if inner.noisy or (at is not None and at.left_out):  # rows had it
            return inner
        own, (variance, covariance) = self.variances, inner[1:3]
        if covariance is not None:
            covariance = np.array(covariance, np.float64)
            covariance[np.diag_indices(len(covariance))] += np.tile(own, len(inner.mean))
        return inner._replace(
            variance=None if variance is None else variance + own, covariance=covariance
        )


@register
@dataclass(frozen=True, eq=False)
class Spread(Layer):
    """Learned ``factor`` on standard deviations."""

    factor: float

    name = "spread"

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        square, (variance, covariance) = self.factor**2, inner[1:3]
        return inner._replace(
            variance=None if variance is None else variance * square,
            covariance=None if covariance is None else covariance * square,
        )

    @property
    def spread(self) -> float:
        return self.factor

    def of_paths(self, values: Any, mean: Callable[[], Any], stretch: Callable[[], Any]) -> Any:
        centre = mean()
        return centre + self.factor * (values - centre)

    @property
    def described(self) -> float:
        return self.factor

    @classmethod
    def restored(cls, described: float, arrays: dict[str, np.ndarray]) -> Spread:
        return cls(float(described))


@register
@dataclass(frozen=True, eq=False)
class Units(Layer):
    """Units of (transformed) targets and their mean function, by the ``scaling`` of a fit."""

    scaling: Scaling

    name = "units"

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        return self.scaling.moments(inner, at.scaled)

    @property
    def unit(self) -> np.ndarray:
        return self.scaling.y_scale

    @property
    def described(self) -> Any:
        return None  # the scaling is beside the layers

    @classmethod
    def of_fit(cls, parts: Parts) -> Units:
        return cls(parts.scaling)


@register
@dataclass(frozen=True, eq=False)
class RegressorLayer(Layer):
    """Predictions of a ``known`` regressor, once for each of ``times`` columns of a target."""

    known: Known
    times: int = 1

    name = "regressor"
    linear = False
    stored = False

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        added = self.known.regressor(at.given).repeat(self.times, axis=1)
        return inner._replace(mean=inner.mean + added)

    def unpredicted(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y - self.known.regressor(X)

    @property
    def described(self) -> Any:
        return None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"places": self.known.places, "values": self.known.values}

    @property
    def identity(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {self.name: self.known.regressor.token}, {}

    @classmethod
    def of_fit(cls, parts: Parts) -> RegressorLayer | None:
        if parts.known is None:
            return None
        return cls(parts.known, len(parts.scaling.y_scale) // parts.known.regressor.n_targets)

    def check(self) -> None:
        self.known.check()
