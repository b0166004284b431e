"""Kernels of rotated columns: anisotropy along directions that are learned.

Letters: x the rotated columns of a row, u = R x their coordinates along the turned axes, R the
product of one rotation G for each pair of columns, the first pair first.
"""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag

from daskgp.arrays.backend import namespace
from daskgp.checks import is_number, logs_of, shown
from daskgp.errors import SettingError
from daskgp.kernels.averaged import averages
from daskgp.kernels.base import Derived, Kernel, KernelGradient, Pullback, Unit
from daskgp.kernels.checks import (
    Dims,
    Inputs,
    check_dims,
    check_inputs,
    column_sums,
    dimensions,
    exp_of_log,
    indexed,
)
from daskgp.kernels.compose import codes_of, numbered, united
from daskgp.kernels.radial import replaced
from daskgp.kernels.stationary import Matern32
from daskgp.kernels.weights import WeightedGradient, Weights, checked_weights
from daskgp.typing import Array

MOST_COLUMNS = 6
"""Most columns that are rotated together: each pair of them has an angle."""
STRETCH, TURNS = 2.0, (45.0, 90.0, 135.0)
"""Factor of lengthscales, and degrees beside none, that a search starts at."""
ALONG_AXES = Matern32(ard=True)
"""Kernel that is rotated by default."""
PROJECT = (
    "project them to metres east and north, with pyproj, or for a small region with "
    "east = 111.2 * cos(middle latitude) * longitude and north = 111.2 * latitude, in km"
)
"""Remedy where directions on the ground are wanted."""


@dataclass(frozen=True)
class Rotated(Kernel):
    """Kernel of rotated columns, k(x, z) = kernel(R x, R z).

    Two columns have one angle, by which the first axis is turned towards the second one:
    u_0 = cos a x_0 + sin a x_1 and u_1 = cos a x_1 - sin a x_0, so that the first lengthscale of
    ``kernel`` is along that direction and the second one across it.  More columns have an angle
    for each pair, (0, 1), (0, 2), (1, 2) and so on, in this order; with a lengthscale for each
    column that is any linear map.  Other columns stay as they are.

    Angles of two columns count modulo 180 degrees.  Hyper-parameters are positive, so that a fit
    looks for them between 90 and 450 degrees, and tells them from 0 to 180.

    Parameters
    ----------
    kernel : Kernel, optional
        Kernel of the rotated columns, default ``Matern32(ard=True)``.  One with a single
        lengthscale does not change by a rotation, and fits refuse it.
    columns : sequence of int or str, default (0, 1)
        The columns that are rotated, by number or name: coordinates of a plane or space in one
        unit.  They share a scale if data are standardised.
    angle : float or sequence of float, optional
        Degrees, one for each pair of columns.  None counts as no rotation when the kernel is
        called, and is found by ``fit``.

    Raises
    ------
    SettingError
        If a setting is of the wrong kind, or ``kernel`` is or has a rotated one.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> kernel = Rotated(RBF((5.0, 1.0)), angle=30.0)
    >>> along = np.array([[np.cos(np.pi / 6), np.sin(np.pi / 6)]])
    >>> kernel(np.zeros((1, 2)), 5.0 * along).round(4)  # exp(-1/2): one lengthscale away
    array([[0.6065]])
    """

    kernel: Kernel = ALONG_AXES
    columns: Dims = (0, 1)
    angle: float | Sequence[float] | None = None

    name: ClassVar[str] = "rotated"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise SettingError(
                f"Rotated holds a kernel such as Matern32(), not {shown(self.kernel)}"
            )
        if next(rotations(self.kernel), None) is not None:
            raise SettingError(
                "Rotated already holds a rotated kernel: add or multiply rotated kernels, or "
                "give more columns to one"
            )
        if next(averages(self.kernel), None) is not None:
            raise SettingError(
                "Rotated holds averages over areas, which would turn with it: rotate the "
                "kernel of points instead, Averaged(Rotated(...))"
            )
        columns = _checked_columns(self.columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "angle", _checked_angle(self.angle, len(columns)))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernel of the rotated columns.

        Examples
        --------
        >>> Rotated().parts[0].name
        'matern32'
        """
        return (self.kernel,)

    def with_parts(self, parts: Sequence[Kernel]) -> Rotated:
        """Return the same rotation of another kernel.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Rotated().with_parts([RBF(ard=True)]).parts[0].name
        'rbf'
        """
        return replaced(self, kernel=parts[0])

    # -- the rotation ------------------------------------------------------------------------

    @property
    def angles(self) -> np.ndarray:
        """Angles in degrees, one for each pair of columns; those of no rotation if open.

        Examples
        --------
        >>> Rotated(angle=30.0).angles
        array([30.])
        """
        if self.angle is None:
            return np.full(_pairs(len(self.columns)), self.period)
        return np.atleast_1d(np.asarray(self.angle, np.float64))

    @property
    def period(self) -> float:
        """Degrees after which an angle of two columns, or of more, is the same again.

        Examples
        --------
        >>> Rotated().period
        180.0
        """
        return 180.0 if len(self.columns) == 2 else 360.0

    def is_idle(self, d: int) -> bool:
        """Return whether the angles change nothing, whatever the other hyper-parameters.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Rotated(RBF()).is_idle(2), Rotated(RBF(ard=True)).is_idle(2)
        (True, False)
        """
        codes, rng = codes_of(self, d), np.random.default_rng(0)
        X = rng.standard_normal((8, d))
        X[:, list(codes)] = 0.0
        plain = self.kernel.resolve(np.ones(d), 1.0)
        odd = 0.3 * rng.standard_normal(len(plain.parameter_names))
        made = self.with_parts([plain.with_log_parameters(plain.log_parameters + odd)])
        one, other = (made.turned(made.angles + turn)(X) for turn in (0.0, 37.0))
        return bool(np.allclose(one, other, rtol=1e-9, atol=1e-12))

    def turned(self, angles: Sequence[float] | np.ndarray) -> Rotated:
        """Return the same kernel at other angles.

        Examples
        --------
        >>> Rotated().turned([30.0]).angle
        30.0
        """
        several = tuple(map(float, angles))
        return replaced(self, angle=several if len(several) > 1 else several[0])

    def within(self, least: float) -> Rotated:
        """Return the same kernel with set angles in the period that begins at ``least`` degrees.

        Examples
        --------
        >>> Rotated(angle=30.0).within(180.0).angle
        210.0
        """
        if self.angle is None:
            return self
        angles = self.angles
        inside = (angles >= least) & (angles < least + self.period)
        moved = np.where(inside, angles, least + np.mod(angles - least, self.period))
        return self if inside.all() else self.turned(moved)

    @property
    def rotation(self) -> np.ndarray:
        """Matrix R (m, m), whose rows are the turned axes.

        Examples
        --------
        >>> Rotated(angle=90.0).rotation.round(4) + 0.0
        array([[ 0.,  1.],
               [-1.,  0.]])
        """
        return _product(_givens(np.radians(self.angles), len(self.columns)))

    def axes(self, d: int) -> np.ndarray:
        """Return the turned axes of d columns as rows (d, d).

        Examples
        --------
        >>> Rotated(columns=(0, 2), angle=90.0).axes(3).round(4) + 0.0
        array([[ 0.,  0.,  1.],
               [ 0.,  1.,  0.],
               [-1.,  0.,  0.]])
        """
        made = np.eye(d)
        made[np.ix_(self._places(d), self._places(d))] = self.rotation
        return made

    def _places(self, d: int) -> list[int]:
        check_dims(self.columns, d, "Rotated", "columns")
        return list(self.columns)

    def _slopes(self) -> list[np.ndarray]:
        """Return the derivatives of R by the logarithms of the angles."""
        radians = np.radians(self.angles)
        steps, turns = _givens(radians, len(self.columns)), _slopes_of(radians, len(self.columns))
        return [
            angle * _product([*steps[:k], turns[k], *steps[k + 1 :]])
            for k, angle in enumerate(radians)
        ]

    def _turn(self, X: Array) -> np.ndarray:
        """Return rows with rotated columns."""
        return self._multiplied(X, self.rotation.T)

    def _turn_back(self, gradient: Array) -> np.ndarray:
        """Return the derivatives by rows from those by rotated ones."""
        return self._multiplied(gradient, self.rotation)

    def _multiplied(self, X: Array, matrix: np.ndarray) -> np.ndarray:
        places, made = self._places(X.shape[1]), X.copy()
        made[:, places] = X[:, places] @ namespace(X).asarray(matrix, dtype=X.dtype)
        return made

    def _by_angles(self, *pairs: tuple[Array, Array]) -> np.ndarray:
        """Return the derivatives by the logarithms of angles, from those by rotated rows."""
        found = []
        for slope in self._slopes():
            total = 0.0
            for X, gradient in pairs:
                places = self._places(X.shape[1])
                moved = X[:, places] @ namespace(X).asarray(slope.T, dtype=X.dtype)
                total += float(column_sums(moved, gradient[:, places]).sum())
            found.append(total)
        return np.array(found)

    # -- values ------------------------------------------------------------------------------

    def _inputs(self, X: Array, Z: Array | None = None) -> tuple[Inputs, Array, Array | None]:
        inputs = check_inputs(X, Z)
        turned = None if inputs.Z is None else self._turn(inputs.Z)
        return inputs, self._turn(inputs.X), turned

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        _, U, W = self._inputs(X, Z)
        return self.kernel(U, W, out=out)

    def diag(self, X: Array) -> np.ndarray:
        return self.kernel.diag(self._inputs(X)[1])

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs, U, _ = self._inputs(X)
        return self._pulled(self.kernel.diag_vjp(U, diag_bar), inputs.X, None)

    @property
    def tiles(self) -> int:
        return self.kernel.tiles

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs, U, W = self._inputs(X, Z)
        K, pull = self.kernel.pullback(U, W, work)

        def of_rows(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            return self._pulled(pull(K_bar, overwrite), inputs.X, inputs.Z)

        return K, of_rows

    def _pulled(self, gradient: KernelGradient, X: Array, Z: Array | None) -> KernelGradient:
        """Return the gradient from that of the kernel of rotated rows."""
        pairs, Z_bar = [(X, gradient.X)], None
        if Z is not None:
            pairs.append((Z, gradient.Z))
            Z_bar = self._turn_back(gradient.Z)
        by_log = np.append(gradient.log_parameters, self._by_angles(*pairs))
        return KernelGradient(by_log, self._turn_back(gradient.X), Z_bar)

    def weighted(
        self, Z: Array, weights: Weights, X: Array, out: Array | None = None
    ) -> np.ndarray:
        inputs, weights = checked_weights(Z, weights, X)
        return self.kernel.weighted(self._turn(inputs.X), weights, self._turn(inputs.Z), out)

    def weighted_vjp(
        self, Z: Array, weights: Weights, X: Array, F_bar: Array, by_inputs: bool = True
    ) -> WeightedGradient:
        inputs, weights = checked_weights(Z, weights, X)
        turned = self._turn(inputs.X), self._turn(inputs.Z)
        # angles are learned from the gradients by inputs
        found = self.kernel.weighted_vjp(turned[0], weights, turned[1], F_bar)
        by_angles = self._by_angles((inputs.X, found.points), (inputs.Z, found.rows))
        by_log = np.append(found.log_parameters, by_angles)
        if not by_inputs:
            return WeightedGradient(by_log, found.weights, None, None)
        rows = self._turn_back(found.points), self._turn_back(found.rows)
        return WeightedGradient(by_log, found.weights, *rows)

    # -- hyper-parameters --------------------------------------------------------------------

    @property
    def parameter_names(self) -> tuple[str, ...]:
        several = tuple(self.angles) if len(self.columns) > 2 else None
        return (*self.kernel.parameter_names, *indexed("angle", several))

    @property
    def log_parameters(self) -> np.ndarray:
        return np.append(self.kernel.log_parameters, np.log(self.angles))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Rotated:
        values = logs_of(self.parameter_names, values)
        own = len(self.kernel.parameter_names)
        several = tuple(self.angles) if len(self.columns) > 2 else None
        made = self.kernel.with_log_parameters(values[:own])
        return replaced(self, kernel=made, angle=exp_of_log(values[own:], several))

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        spread = np.array(spread, np.float64)
        places = self._places(len(spread))
        spread[places] = spread[places].max()
        bounds = np.log(self.period * np.array([[0.5, 2.5]]))
        return np.vstack([self.kernel.log_bounds(spread), np.repeat(bounds, len(self.angles), 0)])

    def resolve(self, median: np.ndarray, distance: float) -> Rotated:
        median = np.array(median, np.float64)
        places = self._places(len(median))
        if len(set(median[places])) > 1:
            median[places] = np.sqrt(np.mean(median[places] ** 2))
        made = self.with_parts([self.kernel.resolve(median, distance)])
        return made.turned(made.angles) if self.angle is None else made

    def units(self, n_features: int) -> tuple[Unit, ...]:
        places = set(self._places(n_features))
        own = [
            unit._replace(columns=tuple(sorted(places.union(unit.columns))))
            if places.intersection(unit.columns)
            else unit
            for unit in self.kernel.units(n_features)
        ]
        return (*own, *(Unit() for _ in self.angles))

    def coordinates(self, varies: np.ndarray | None = None) -> np.ndarray:
        own = None if varies is None else varies[: len(self.kernel.parameter_names)]
        return np.asarray(block_diag(self.kernel.coordinates(own), np.eye(len(self.angles))))

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        return united([tuple(self._places(d)), *self.kernel.tied_columns(d)])

    def categories(self, d: int) -> tuple[int, ...]:
        codes = codes_of(self.kernel, d)
        if not set(codes).isdisjoint(self._places(d)):
            raise SettingError(
                f"Rotated has columns={shown(self.columns)}, of which one holds codes of "
                "categories: give coordinates"
            )
        return codes

    def derived(self) -> tuple[Derived, ...]:
        """Return numbers of the kernel that is rotated, and the angles from 0 to their period."""
        own, count = len(self.kernel.parameter_names), len(self.parameter_names)
        found = [
            one._replace(gradient=np.append(one.gradient, np.zeros(count - own)))
            for one in self.kernel.derived()
        ]
        turned = np.atleast_1d(np.asarray(self.within(0.0).angle, np.float64))
        for j, (angle, least) in enumerate(zip(self.angles, turned, strict=True), start=own):
            gradient = np.zeros(count)
            gradient[j] = angle
            found.append(Derived(self.parameter_names[j], float(least), gradient, "degrees"))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        self._check_registered()
        angle = list(self.angle) if isinstance(self.angle, tuple) else self.angle
        columns = list(self.columns)
        return {
            "kernel": self.name,
            "parts": [self.kernel.to_dict()],
            "columns": columns,
            "angle": angle,
        }


rotations = partial(numbered, Rotated)
"""Yields the rotated parts of a kernel, each with the number of its first hyper-parameter."""


def angle_places(kernel: Kernel) -> list[int]:
    """Return the positions of the angles among the hyper-parameters of a kernel.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> angle_places(RBF(1.0) + Rotated(RBF((2.0, 1.0))))
    [5]
    """
    found: list[int] = []
    for first, part in rotations(kernel):
        start = first + len(part.kernel.parameter_names)
        found += range(start, start + len(part.angles))
    return found


def in_period(kernel: Kernel, periods: int) -> Kernel:
    """Return a kernel with its angles in the period that begins after a number of them.

    Examples
    --------
    >>> in_period(Rotated(angle=100.0), 1).angle, in_period(Rotated(angle=210.0), 0).angle
    (280.0, 30.0)
    """
    if isinstance(kernel, Rotated):
        return kernel.within(periods * kernel.period)
    if next(rotations(kernel), None) is None:
        return kernel
    made: Any = kernel
    return made.with_parts(tuple(in_period(part, periods) for part in made.parts))


def starts(kernel: Kernel, is_open: np.ndarray, d: int) -> list[Kernel]:
    """Return a resolved kernel of d columns at several angles, where some are left open (k,).

    With equal lengthscales no angle is better than another one, so those left open are stretched
    along the first axis.
    """
    logs = kernel.log_parameters.copy()
    tried: list[list[tuple[int, np.ndarray]]] = []
    for first, part in rotations(kernel):
        own, count = len(part.kernel.parameter_names), len(part.angles)
        if not is_open[first + own : first + own + count].any():
            continue
        for j, unit in enumerate(part.kernel.units(d)):
            alone = unit.of_inputs == 1 and len(unit.columns) == 1
            if alone and is_open[first + j] and unit.columns[0] in part.columns:
                ahead = unit.columns[0] == part.columns[0]
                logs[first + j] += np.log(STRETCH if ahead else 1.0 / STRETCH)
        turned = [turn * one for turn in TURNS for one in np.eye(count)]
        angles = [part.angles, *(part.angles + turn for turn in turned)]
        tried.append([(first + own, one) for one in angles])
    if not tried:
        return [kernel]
    found = []
    for i in range(max(map(len, tried))):  # parts of a sum begin at the same angles
        for place, angles_of_part in (each[i % len(each)] for each in tried):
            logs[place : place + len(angles_of_part)] = np.log(angles_of_part)
        found.append(kernel.with_log_parameters(logs))
    return found


def _checked_columns(value: Any) -> Dims:
    """Return two or more distinct columns by number or name."""
    several = isinstance(value, list | tuple | np.ndarray) and 2 <= len(value) <= MOST_COLUMNS
    columns = dimensions(value, "Rotated", "columns") if several else None
    if columns is None or any(isinstance(entry, tuple) for entry in columns):
        raise SettingError(
            f"Rotated has columns={shown(value)}: give 2 to {MOST_COLUMNS} by number or name, such "
            "as (0, 1)"
        )
    return columns


def _checked_angle(value: Any, m: int) -> float | tuple[float, ...] | None:
    """Return positive degrees for each pair of m columns, or None."""
    if value is None:
        return None
    count, period = _pairs(m), 180.0 if m == 2 else 360.0
    each = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
    if len(each) != count or not all(is_number(one) and np.isfinite(one) for one in each):
        what = "degrees" if count == 1 else f"degrees for each of the {count} pairs of columns"
        raise SettingError(
            f"Rotated has angle={shown(value)} for {m} columns: give {what}, or leave it out"
        )
    positive = tuple(float(one) if one > 0 else period + float(one) % -period for one in each)
    return positive if m > 2 else positive[0]


def _pairs(m: int) -> int:
    return m * (m - 1) // 2


def _givens(radians: np.ndarray, m: int) -> list[np.ndarray]:
    """Return the rotation G of each pair of m columns."""
    return [
        np.eye(m) + _in_plane(m, i, j, np.cos(a) - 1.0, np.sin(a))
        for (i, j), a in zip(itertools.combinations(range(m), 2), radians, strict=True)
    ]


def _slopes_of(radians: np.ndarray, m: int) -> list[np.ndarray]:
    """Return the derivatives of G of each pair by its angle."""
    return [
        _in_plane(m, i, j, -np.sin(a), np.cos(a))
        for (i, j), a in zip(itertools.combinations(range(m), 2), radians, strict=True)
    ]


def _in_plane(m: int, i: int, j: int, same: float, other: float) -> np.ndarray:
    made = np.zeros((m, m))
    made[i, i] = made[j, j] = same
    made[i, j], made[j, i] = other, -other
    return made


def _product(steps: Sequence[np.ndarray]) -> np.ndarray:
    """Return the product of rotations, the first one applied first."""
    made = steps[0]
    for step in steps[1:]:
        made = step @ made
    return made
