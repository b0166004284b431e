"""Layers between the Gaussian of a method and what users see, one around another.

A chain begins with layers that keep a Gaussian one; from the first that does not, they act on
values alone, whatever the place, and ``over`` says what becomes of the distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.data.regressor import Known
from daskgp.likelihoods import Likelihood
from daskgp.models.scaling import Scaling
from daskgp.models.values import Moments
from daskgp.models.varying import Varying
from daskgp.registry import Registry


class Places(NamedTuple):
    """Rows to predict at: X (n, d) as users give them, ``scaled`` (n, d), and ``usable`` (n,).

    ``left_out`` says that they are training rows, which a method predicts without themselves as
    new observations: with the noise, and with the uncertainty of a trend.  ``prior`` and ``noise``
    return the prior variances of f and those of the noise (n,), in the model's units, for layers
    beside a method that has them.
    """

    given: np.ndarray
    scaled: np.ndarray
    usable: np.ndarray
    left_out: bool = False
    prior: Callable[[], np.ndarray] | None = None
    noise: Callable[[], np.ndarray] | None = None


class Parts(NamedTuple):
    """Parts of a fit, of which layers are made.

    ``likelihood`` is None if y is f and Gaussian noise, ``products`` are those of a trend,
    ``names`` those of the columns of X; ``varying`` hyper-parameters of which the noise variance is
    the common one.
    """

    scaling: Scaling
    noise_variance: float
    names: tuple[str, ...] = ()
    likelihood: Likelihood | None = None
    products: Any = None
    known: Known | None = None
    varying: Varying | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """Base of layers: one that changes nothing.  A store has its fields, by its name.

    Attributes
    ----------
    name : str
    gaussian : bool
        Whether a Gaussian stays one, but for its tails.
    of_tails : bool
        Whether it changes nothing but these.
    needs_variance : bool
        Whether the mean depends on the variance.
    of_observations : bool
        Whether it belongs to new observations y alone, and not to f.
    linear : bool
        Whether the mean that it adds is linear in X, so that it may be that of an average.
    increasing : bool
        Whether values are increasing functions of those inside.
    stored : bool
        Whether a model store has all of it; for others a loader has to be given something.
    """

    name: ClassVar[str]
    gaussian: ClassVar[bool] = True
    of_tails: ClassVar[bool] = False
    needs_variance: ClassVar[bool] = False
    of_observations: ClassVar[bool] = False
    linear: ClassVar[bool] = True
    increasing: ClassVar[bool] = True
    stored: ClassVar[bool] = True

    # -- moments ---------------------------------------------------------------------------------

    @property
    def further(self) -> int:
        """Number of columns of the mean inside, after those of the targets, that it takes off."""
        return 0

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        """Return mean and variance, or covariance, given those inside.

        From the first layer on that is not ``gaussian``, ``at`` may be None.
        """
        return inner

    @property
    def keeps_moments(self) -> bool:
        """True if mean and variance stay what they are."""
        return type(self).moments is Layer.moments

    @property
    def spread(self) -> float:
        """Factor on standard deviations about the same mean."""
        return 1.0

    @property
    def unit(self) -> Any:
        """Factor (p,) on values, and so on standard deviations too."""
        return 1.0

    # -- values ----------------------------------------------------------------------------------

    def of_rows(self, beside: Mapping[str, Any]) -> Layer:
        """Return the layer of rows with numbers (n,) that a likelihood takes beside y."""
        return self

    @property
    def graded(self) -> bool:
        """True if values are ordered, so that quantiles say something of them."""
        return True

    def over(self, inner: Distribution) -> Distribution:
        """Return the distribution, given that inside: by default of increasing functions."""
        return inner if self.keeps_moments else Mapped(inner.mean, inner.std, inner, self)

    def of_paths(self, values: Any, mean: Callable[[], Any], stretch: Callable[[], Any]) -> Any:
        """Return values (..., t) of functions drawn without the layer.

        ``mean`` returns theirs, and ``stretch`` the factors on deviations of a fading.
        """
        return values

    def outward(self, values: Any) -> Any:
        """Return values (..., p), or (...) of one target, given those inside."""
        return values

    def inward(self, values: Any) -> Any:
        """Return the values inside; below all that ``outward`` gives they are infinite."""
        return values

    def log_slope(self, values: Any) -> Any:
        """Return the logarithm of the derivative of ``inward``."""
        return 0.0

    def supports(self, y: Any) -> Any:
        """Return True for each value that can be observed, and for missing ones (NaN)."""
        return np.isfinite(y) | np.isnan(y)

    def wider(self, level: float) -> float:
        """Return the width of central intervals of a level relative to those inside."""
        return 1.0

    def unpredicted(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return targets y (n, p) of rows X (n, d) without what a ``Scaling`` does not take off."""
        return y

    # -- refusals --------------------------------------------------------------------------------

    @property
    def setting(self) -> str:
        """Setting that brings the layer, as an error names it."""
        return f"a layer {self.name!r}"

    def refuse(self, count: int) -> None:
        """Raise InputError if ``count`` values, more than 0, cannot be observed."""

    def refuse_ungraded(self, what: str) -> None:
        """Raise SettingError if the distribution has no ``what``, quantiles for example."""

    def refuse_places(self, X: np.ndarray) -> None:
        """Raise InputError for places X (n, d) that have no joint covariance."""

    # -- stores and paths ------------------------------------------------------------------------

    @property
    def described(self) -> Any:
        """Description for a store, as JSON has it; None for nothing."""
        return {k: v for k, v in self._own.items() if not isinstance(v, np.ndarray)} or None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of a store."""
        return {k: v for k, v in self._own.items() if isinstance(v, np.ndarray)}

    @property
    def _own(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def identity(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Description and arrays that tell the layer from others, beyond its ``Parts``."""
        told = {} if self.described is None else {self.name: self.described}
        return told, {f"{self.name}_{k}": array for k, array in self.arrays.items()}

    @classmethod
    def of_fit(cls, parts: Parts) -> Layer | None:
        """Return the layer of a fit; None where it has none, or learns it later."""
        return None

    @classmethod
    def restored(cls, described: Any, arrays: dict[str, np.ndarray]) -> Self:
        """Return the layer that a store notes."""
        return cls(**(described or {}), **arrays)

    def repeated(self, number: int) -> Layer:
        """Return the layer of columns that have each target ``number`` times."""
        return self

    def check(self) -> None:
        """Raise InputError if what a loader was given is not that of the fit."""


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

    def steps(self, y: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return P(y' < y) and P(y' <= y) at values y (...); None unless y is a whole number."""
        return None

    def ranked(self, y: Any) -> np.ndarray:
        """Return the ranked probability scores of values y (...), NaN unless they are whole."""
        return np.full(np.shape(y), np.nan)

    def crps(self, y: Any) -> np.ndarray:
        """Return the CRPS of values y (...), NaN where it is not known."""
        return self.ranked(y)

    def residual(self, score: float) -> float:
        """Return the standardised residual at a normal score."""
        return score


def _away(std: np.ndarray, residual: float) -> np.ndarray:
    """Return the distance of a quantile from the mean, none for the median of any spread."""
    return np.asarray(std * residual if residual else np.where(np.isnan(std), np.nan, 0.0))


@dataclass(frozen=True, eq=False)
class Mapped(Distribution):
    """Distributions of an increasing function of values, ``outward`` of a layer.

    Parameters
    ----------
    inner : Distribution
        Those of the values.
    layer : Layer
    """

    inner: Distribution
    layer: Layer

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


REGISTRY: Registry[type[Layer]] = Registry("layer", "daskgp.layers", {})
"""Kinds of layers by name, from the inside out."""


def register(kind: type[Layer]) -> type[Layer]:
    """Make a kind of layers known to stores; its layers lie around those of the kinds before it.

    Raises
    ------
    SettingError
        If the name is taken.
    """
    REGISTRY.add(kind.name, kind)
    return kind
