"""Stationary kernels of the scaled distance r = |(x - z) / lengthscale|."""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from daskgp.arrays.backend import number
from daskgp.checks import logs_of, parameter
from daskgp.errors import InputError, SettingError
from daskgp.kernels.base import ALPHA_BOUNDS, LENGTHSCALE_BOUNDS, VARIANCE_BOUNDS, Unit
from daskgp.kernels.checks import (
    Dims,
    all_tied,
    check_dims,
    column_sums,
    dimensions,
    exp_of_log,
    grouped,
    groups_of,
    indexed,
    members,
    named,
    positive_or_many,
    positive_or_open,
)
from daskgp.kernels.radial import Coincidence, Radial, replaced
from daskgp.typing import Array

Lengthscale: TypeAlias = float | Sequence[float] | np.ndarray | None


class Stationary(Radial):
    """Base class of the kernels with lengthscales.

    Parameters
    ----------
    lengthscale : float or sequence of float, optional
        One for all dimensions, which then share a scale if data are standardised, or one per
        dimension (ARD).  None counts as 1 when the kernel is called and is replaced by a value from
        the median distance of the data by ``fit``.
    variance : float, optional
        k(x, x).  None counts as 1 when the kernel is called, and is found by ``fit``.
    ard : bool, default False
        Give each dimension its own lengthscale once the data are known.
    active_dims : sequence of int or str, optional
        The columns the kernel acts on, by number or name; all by default.  A tuple among them is a
        group whose columns share a lengthscale: ``(("east", "north"), "time")``.

    Raises
    ------
    SettingError
        If a parameter is not positive and finite.

    Examples
    --------
    >>> from daskgp.kernels import Matern32
    >>> Matern32(ard=True, active_dims=(0, 1)).resolve(np.array([1.0, 2.0, 4.0]), 3.0).lengthscale
    (1.0, 2.0)
    """

    name: ClassVar[str]
    _smoothness: ClassVar[float] = 2.0
    """Order nu of a Matern kernel; smoother kernels have their ridge at about this value."""
    lengthscale: Lengthscale
    variance: float | None
    ard: bool

    def __post_init__(self) -> None:
        name = type(self).__name__
        dims = dimensions(self.active_dims, name)
        scale = self.lengthscale
        if scale is not None:
            scale = positive_or_many(scale, f"lengthscale of {name}")
        many = isinstance(scale, tuple)
        # only fit knows how many lengthscales columns with names have
        number = None if dims is None or named(dims) else len(dims)
        if isinstance(scale, tuple) and number not in (None, len(scale)):
            raise SettingError(
                f"{name} has {len(scale)} lengthscales for {number} active_dims: give one each"
            )
        values = {
            "lengthscale": scale,
            "variance": positive_or_open(self.variance, f"variance of {name}"),
            "ard": bool(self.ard) or many,
            "active_dims": dims,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("variance", *indexed("lengthscale", self.lengthscale))

    @property
    def log_parameters(self) -> np.ndarray:
        scale = 1.0 if self.lengthscale is None else self.lengthscale
        return np.log(np.append(self._height, scale))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Any:
        values = logs_of(self.parameter_names, values)
        scale = exp_of_log(values[1:], self.lengthscale)
        return replaced(self, variance=float(np.exp(values[0])), lengthscale=scale)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        groups = list(map(_usable, self._active(spread)))
        if not isinstance(self.lengthscale, tuple):
            groups = [np.concatenate(groups)]
        spread = np.array([group.max() for group in groups])
        return np.log(np.vstack([VARIANCE_BOUNDS, np.outer(spread, LENGTHSCALE_BOUNDS)]))

    def resolve(self, median: np.ndarray, distance: float) -> Any:
        medians = np.asarray(median, dtype=np.float64)
        groups = self._active(medians)
        scale: Any = self.lengthscale
        if isinstance(scale, tuple):
            return replaced(self, variance=self._height)
        if scale is None and self.ard:
            scale = _usable([_root_mean_square(group) for group in groups])
        elif scale is None:
            active = np.linalg.norm(np.concatenate(groups))
            share = active / max(np.linalg.norm(medians), np.finfo(float).tiny)
            scale = float(_usable(distance * share))
        if self.ard:
            scale = tuple(map(float, np.broadcast_to(scale, len(groups))))
        return replaced(self, lengthscale=scale, variance=self._height)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        groups = groups_of(self.active_dims, n_features)
        many = isinstance(self.lengthscale, tuple)
        lengths = groups if many else [tuple(j for group in groups for j in group)]
        return (Unit((), 0, 2), *(Unit(columns, 1, 0) for columns in lengths))

    def coordinates(self, varies: np.ndarray | None = None) -> np.ndarray:
        """Return coordinates in which the ridge is an axis.

        Rows within a lengthscale of one another determine v / l^(2 nu) well and v and l poorly
        (Zhang 2004), so the first coordinate is log v - 2 nu log l, with l the geometric mean of
        the lengthscales that vary.
        """
        T = np.eye(len(self.parameter_names))
        number = len(self.lengthscale) if isinstance(self.lengthscale, tuple) else 1
        share = np.ones(number) if varies is None else varies[1 : 1 + number].astype(float)
        if varies is None or varies[0]:
            T[0, 1 : 1 + number] = -2.0 * self._smoothness * share / max(share.sum(), 1.0)
        return T

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        tied = grouped if self.ard else all_tied
        return tied(self.active_dims, d, type(self).__name__)

    def _active(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the entries of each active dimension of one value per column."""
        values = np.asarray(values, dtype=np.float64)
        check_dims(self.active_dims, len(values), type(self).__name__)
        groups = groups_of(self.active_dims, len(values))
        self._check_lengthscales(sum(map(len, groups)))
        return [values[list(group)] for group in groups]

    @property
    def _sizes(self) -> list[int] | None:
        """Numbers of columns that share each lengthscale; None if each column has its own."""
        if not isinstance(self.lengthscale, tuple) or self.active_dims is None:
            return None
        sizes = [len(members(entry)) for entry in self.active_dims]
        return sizes if max(sizes) > 1 else None

    def per_column(self, count: int) -> np.ndarray:
        """Return the lengthscale of each of ``count`` active columns; 1 where it is open.

        Examples
        --------
        >>> RBF((1.0, 2.0), ard=True).per_column(2)
        array([1., 2.])
        """
        scale = np.asarray(1.0 if self.lengthscale is None else self.lengthscale)
        return np.repeat(scale, self._sizes) if self._sizes else np.broadcast_to(scale, count)

    def per_lengthscale(self, by_column: np.ndarray) -> np.ndarray:
        """Return sums over the columns of each lengthscale, of values (a,) per active column.

        Examples
        --------
        >>> RBF(1.0).per_lengthscale(np.array([1.0, 2.0]))
        array([3.])
        """
        if not isinstance(self.lengthscale, tuple):
            return np.asarray(by_column.sum(keepdims=True))
        if self._sizes is None:
            return by_column
        starts = np.cumsum([0, *self._sizes[:-1]])
        return np.asarray(np.add.reduceat(by_column, starts))

    def _check_lengthscales(self, count: int) -> None:
        scale = self.lengthscale
        needed = count if self._sizes is None else len(self._sizes)
        if isinstance(scale, tuple) and len(scale) != needed:
            raise InputError(
                f"{type(self).__name__} has {len(scale)} lengthscales, "
                f"but the inputs have {count} columns: give one each, or a single one"
            )

    def _units(self, xp: Any, X: Array) -> Any:
        """Return what to divide the columns of X by: a float, or an array on X's device."""
        self._check_lengthscales(X.shape[1])
        if isinstance(self.lengthscale, tuple):
            return xp.asarray(self.per_column(X.shape[1]), dtype=X.dtype)
        return 1.0 if self.lengthscale is None else self.lengthscale

    def _scales_vjp(self, squares: np.ndarray) -> np.ndarray:
        return self.per_lengthscale(-2.0 * squares)  # r^2 falls with the square of a scale

    def _features(self, xp: Any, X: Array) -> np.ndarray:
        return X / self._units(xp, X)

    def _features_vjp(self, xp: Any, X: Array, U: Array, U_bar: Array) -> tuple[Array, np.ndarray]:
        by_log = self.per_lengthscale(-column_sums(U, U_bar))
        return U_bar / self._units(xp, X), by_log


def _usable(values: Any) -> np.ndarray:
    """Return the values, 1 for those that are zero: a constant column has no scale of its own."""
    values = np.asarray(values, dtype=np.float64)
    return np.where(values > 0, values, 1.0)


def _root_mean_square(values: np.ndarray) -> float:
    return float(values[0] if len(values) == 1 else np.sqrt(np.mean(values**2)))


def times(array: Array, factor: float) -> None:
    """Multiply in place; a factor of 1, as in sums and products of kernels, costs nothing."""
    if factor != 1.0:
        array *= factor


@dataclass(frozen=True)
class RBF(Stationary):
    """Squared exponential kernel, k = v exp(-r^2 / 2).

    Examples
    --------
    >>> float(RBF()(np.array([[0.0]]), np.array([[1.0]]))[0, 0])  # exp(-1/2)
    0.606530659
    """

    lengthscale: Lengthscale = None
    variance: float | None = None
    ard: bool = field(default=False, kw_only=True)
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "rbf"
    _formula: ClassVar[str | None] = "rbf"
    _scale: ClassVar[float] = 0.5
    _slope: ClassVar[float] = -0.5
    _keeps_aside: ClassVar[bool] = False

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp.negative(q, out=q)
        xp.exp(q, out=q)
        times(q, self._height)


@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """Mixture of squared exponentials, k = v (1 + r^2 / (2 alpha))^-alpha.

    Parameters
    ----------
    alpha : float, default 1.0
        Shape; the kernel tends to the squared exponential as it grows.

    Examples
    --------
    >>> float(RationalQuadratic(alpha=2.0)(np.array([[0.0]]), np.array([[2.0]]))[0, 0])
    0.25
    """

    lengthscale: Lengthscale = None
    alpha: float = 1.0
    variance: float | None = None
    ard: bool = field(default=False, kw_only=True)
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "rational_quadratic"
    _formula: ClassVar[str | None] = "rational_quadratic"
    _scale: ClassVar[float] = 0.5
    _slope: ClassVar[float] = -0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", parameter(self.alpha, "alpha of RationalQuadratic"))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return (*super().parameter_names, "alpha")

    @property
    def log_parameters(self) -> np.ndarray:
        return np.append(super().log_parameters, np.log(self.alpha))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> RationalQuadratic:
        values = logs_of(self.parameter_names, values)
        scale = exp_of_log(values[1:-1], self.lengthscale)
        variance, alpha = float(np.exp(values[0])), float(np.exp(values[-1]))
        return replaced(self, lengthscale=scale, variance=variance, alpha=alpha)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        return np.vstack([super().log_bounds(spread), np.log([ALPHA_BOUNDS])])

    def units(self, n_features: int) -> tuple[Unit, ...]:
        return (*super().units(n_features), Unit())

    @property
    def _shape(self) -> float:
        return self.alpha

    def _farthest(self, most: float) -> float:
        # (1 + q / alpha)^-alpha = exp(-most)
        with np.errstate(over="ignore"):
            return float(self.alpha * np.expm1(most / self.alpha))

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        # aside = log b with b = 1 + r^2 / (2 alpha), k = v exp(-alpha log b)
        q *= 1.0 / self.alpha
        q += 1
        xp.log(q, out=aside)
        xp.multiply(aside, -self.alpha, out=q)
        xp.exp(q, out=q)
        times(q, self._height)

    def _weigh(self, xp: Any, K_bar: Array, K: Array, aside: Array, D: Array) -> float:
        # dk/dr^2 = -k / (2 b) and dk/dlog alpha = -alpha k (1/b - 1 + log b)
        inverse = xp.exp(xp.negative(aside))
        xp.multiply(K_bar, K, out=D)
        by_alpha = inverse + aside
        by_alpha -= 1
        share = -self.alpha * number(xp.vdot(D, by_alpha))
        D *= inverse
        return share

    def _gather(self, variance: float, features: np.ndarray, shape: float) -> np.ndarray:
        return np.concatenate([[variance], features, [shape]])


@dataclass(frozen=True)
class Matern12(Stationary):
    """Exponential kernel, k = v exp(-r); its derivative at r = 0 is taken as 0.

    Examples
    --------
    >>> float(Matern12()(np.array([[0.0]]), np.array([[2.0]]))[0, 0])  # exp(-2)
    0.135335283
    """

    lengthscale: Lengthscale = None
    variance: float | None = None
    ard: bool = field(default=False, kw_only=True)
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern12"
    _smoothness: ClassVar[float] = 0.5
    _formula: ClassVar[str | None] = "matern12"
    _scale: ClassVar[float] = 1.0
    _slope: ClassVar[float] = -0.5
    _root: ClassVar[int] = 2

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        coincident = q <= same.least
        needed = xp is not np or bool(coincident.any())
        xp.sqrt(q, out=aside)
        if needed and not same.exact:  # the root turns a zero's rounding into 1e-8
            aside[coincident] = 0
        xp.negative(aside, out=q)
        xp.exp(q, out=q)
        times(q, self._height)
        if needed:  # so that k / r is 0
            aside[coincident] = np.inf

    def _weigh(self, xp: Any, K_bar: Array, K: Array, aside: Array, D: Array) -> float:
        # dk/dr^2 = -k / (2 r)
        xp.multiply(K_bar, K, out=D)
        D /= aside
        return 0.0


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern kernel of order 3/2, k = v (1 + s) exp(-s) with s = sqrt(3) r.

    Examples
    --------
    >>> float(Matern32()(np.array([[0.0]]), np.array([[1.0]]))[0, 0])  # (1 + 3^.5) exp(-3^.5)
    0.483357725
    """

    lengthscale: Lengthscale = None
    variance: float | None = None
    ard: bool = field(default=False, kw_only=True)
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern32"
    _smoothness: ClassVar[float] = 1.5
    _formula: ClassVar[str | None] = "matern32"
    _scale: ClassVar[float] = 3.0
    _slope: ClassVar[float] = -1.5
    _root: ClassVar[int] = 2

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp.sqrt(q, out=q)
        xp.negative(q, out=aside)
        xp.exp(aside, out=aside)
        times(aside, self._height)
        q += 1
        q *= aside


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern kernel of order 5/2, k = v (1 + s + s^2 / 3) exp(-s) with s = sqrt(5) r.

    Examples
    --------
    >>> float(Matern52()(np.array([[0.0]]), np.array([[1.0]]))[0, 0])
    0.523994108
    """

    lengthscale: Lengthscale = None
    variance: float | None = None
    ard: bool = field(default=False, kw_only=True)
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern52"
    _smoothness: ClassVar[float] = 2.5
    _formula: ClassVar[str | None] = "matern52"
    _scale: ClassVar[float] = 5.0
    _slope: ClassVar[float] = -5.0 / 6.0
    _root: ClassVar[int] = 2

    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp.sqrt(q, out=aside)
        xp.negative(aside, out=work)
        xp.exp(work, out=work)
        times(work, self._height)
        aside += 1
        aside *= work  # v (1 + s) exp(-s)
        q *= work
        q *= 1.0 / 3.0
        q += aside
