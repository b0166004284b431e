"""The periodic kernel: the squared exponential of points on circles."""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskgp.checks import logs_of
from daskgp.kernels.base import LENGTHSCALE_BOUNDS, PERIOD_BOUNDS, VARIANCE_BOUNDS, Unit
from daskgp.kernels.checks import (
    Dims,
    all_tied,
    check_dims,
    column_sums,
    dimensions,
    flat,
    groups_of,
    one_if_open,
    positive_or_open,
)
from daskgp.kernels.radial import Coincidence, Radial
from daskgp.typing import Array


@dataclass(frozen=True)
class Periodic(Radial):
    """Periodic kernel, k = v exp(-2 sum_d sin^2(pi (x_d - z_d) / p) / l^2).

    Computed as ``v exp(-|u - w|^2 / 2)`` of the features
    ``[cos(2 pi x / p), sin(2 pi x / p)] / l``.

    Parameters
    ----------
    lengthscale : float, optional
        Relative to the circle's radius, so dimensionless.
    period : float, optional
        In units of the inputs; ``fit`` looks for one that is left out in the spectrum of the data.
    variance : float, optional
        k(x, x).  What is None counts as 1 when the kernel is called, and is found by ``fit``.
    active_dims : sequence of int or str, optional
        The columns the kernel acts on, by number or name; all by default.

    Raises
    ------
    SettingError
        If a parameter is not positive and finite.

    Examples
    --------
    >>> k = Periodic(period=4.0)
    >>> k(np.array([[0.0]]), np.array([[1.0], [4.0]]))  # exp(-2 sin^2(pi / 4)), 1
    array([[0.36787944, 1.        ]])
    """

    lengthscale: float | None = None
    period: float | None = None
    variance: float | None = None
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "periodic"
    parameter_names: ClassVar[tuple[str, ...]] = (
        "variance",
        "lengthscale",
        "period",
    )
    _formula: ClassVar[str | None] = "rbf"
    _scale: ClassVar[float] = 0.5
    _slope: ClassVar[float] = -0.5
    _keeps_aside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for key in ("variance", "lengthscale", "period"):
            object.__setattr__(
                self, key, positive_or_open(getattr(self, key), f"{key} of Periodic")
            )
        object.__setattr__(self, "active_dims", dimensions(self.active_dims, "Periodic"))

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self._height, one_if_open(self.lengthscale), one_if_open(self.period)])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Periodic:
        v, scale, period = map(float, np.exp(logs_of(self.parameter_names, values)))
        return Periodic(scale, period, v, active_dims=self.active_dims)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        spread = np.asarray(spread, dtype=np.float64)
        check_dims(self.active_dims, len(spread), "Periodic")
        ranges = spread if self.active_dims is None else spread[flat(self.active_dims)]
        reach = float(ranges.max()) or 1.0
        period = (reach * PERIOD_BOUNDS[0], reach * PERIOD_BOUNDS[1])
        return np.log([VARIANCE_BOUNDS, LENGTHSCALE_BOUNDS, period])

    def resolve(self, median: np.ndarray, distance: float) -> Periodic:
        check_dims(self.active_dims, len(median), "Periodic")
        period = self.period
        if period is None:
            groups = groups_of(self.active_dims, len(median))
            longest = max(float(median[j]) for group in groups for j in group)
            period = longest if longest > 0 else 1.0
        scale = one_if_open(self.lengthscale)
        return Periodic(scale, period, self._height, active_dims=self.active_dims)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        active = tuple(j for group in groups_of(self.active_dims, n_features) for j in group)
        return (Unit((), 0, 2), Unit(), Unit(active, 1, 0))

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        return all_tied(self.active_dims, d, "Periodic")

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp.negative(q, out=q)
        xp.exp(q, out=q)
        if self._height != 1.0:
            q *= self._height

    def _units(self, xp: Any, X: Array) -> float:
        return one_if_open(self.period)

    def _features(self, xp: Any, X: Array) -> np.ndarray:
        turns = X / one_if_open(self.period)
        turns -= xp.rint(turns)  # small angles lose no digits
        turns *= 2 * math.pi
        return xp.concatenate([xp.cos(turns), xp.sin(turns)], axis=1) / one_if_open(
            self.lengthscale
        )

    def _features_vjp(self, xp: Any, X: Array, U: Array, U_bar: Array) -> tuple[Array, np.ndarray]:
        # d cos = -sin, d sin = cos; the angle falls with log p as it grows with x
        a = X.shape[1]
        cos, sin, cos_bar, sin_bar = U[:, :a], U[:, a:], U_bar[:, :a], U_bar[:, a:]
        X_bar = (cos * sin_bar - sin * cos_bar) * (2 * math.pi / one_if_open(self.period))
        by_lengthscale = -column_sums(U, U_bar).sum()
        by_period = -column_sums(X, X_bar).sum()
        return X_bar, np.array([by_lengthscale, by_period])
