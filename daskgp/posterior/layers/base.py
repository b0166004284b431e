"""What lies between the Gaussian of a method and what users see, one layer around another.

A chain begins with layers that keep a Gaussian one; from the first that does not, they act on
values alone, whatever the place, and ``over`` says what becomes of the distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from daskgp.data.regressor import Known
from daskgp.errors import SettingError
from daskgp.likelihoods import Likelihood
from daskgp.models.scaling import Scaling
from daskgp.models.values import Moments
from daskgp.posterior.layers.distribution import Distribution, Mapped


class Places(NamedTuple):
    """Rows to predict at: X (n, d) as users give them, ``scaled`` (n, d), and ``usable`` (n,).

    ``left_out`` says that they are training rows, which a method predicts without themselves as
    new observations: with the noise, and with the uncertainty of a trend.
    """

    given: np.ndarray
    scaled: np.ndarray
    usable: np.ndarray
    left_out: bool = False


class Parts(NamedTuple):
    """What a fit has, of which layers are made.

    ``likelihood`` is None if y is f and Gaussian noise, ``products`` are those of a trend,
    ``names`` those of the columns of X.
    """

    scaling: Scaling
    noise_variance: float
    names: tuple[str, ...] = ()
    likelihood: Likelihood | None = None
    products: Any = None
    known: Known | None = None


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

    @property
    def graded(self) -> bool:
        """True if values are ordered, so that quantiles say something of them."""
        return True

    def over(self, inner: Distribution) -> Distribution:
        """Return the distribution, given that inside: by default of increasing functions."""
        return inner if self.keeps_moments else Mapped(inner.mean, inner.std, inner, self)

    def of_paths(self, values: Any, mean: Callable[[], Any]) -> Any:
        """Return values (..., t) of functions drawn without the layer; ``mean`` returns theirs."""
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
        """What a store notes, as JSON has it; None for nothing."""
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


REGISTRY: dict[str, type[Layer]] = {}
"""Kinds of layers by name, from the inside out."""


def register(kind: type[Layer]) -> type[Layer]:
    """Make a kind of layers known to stores; its layers lie around those of the kinds before it.

    Raises
    ------
    SettingError
        If the name is taken.
    """
    before = REGISTRY.get(kind.name)
    if before is not None and before.__qualname__ != kind.__qualname__:
        raise SettingError(f"the name {kind.name!r} is that of the layer {before.__name__}")
    REGISTRY[kind.name] = kind
    return kind
