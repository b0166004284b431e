"""Kernels of averages over areas: measurements that have a footprint around their place.

Letters: x the coordinates of a row and r its radius, xi_a (q, m) the nodes of a rule for averages
over the unit disc or box and w_a their weights, s_a = r xi_a the offsets of a row.  On a sphere
about the origin s_a lies in the tangent plane of x, and its node is as far from x along the sphere,
in the same direction: x cos(t) + s_a sin(t) / t for t = |s_a| / |x|.
"""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from daskgp.arrays.backend import namespace, number, to_host
from daskgp.checks import choice, shown, whole
from daskgp.errors import InputError, SettingError
from daskgp.kernels.base import Derived, Kernel, KernelGradient, Pullback, Unit
from daskgp.kernels.boxes import Factor, factors
from daskgp.kernels.checks import (
    Dims,
    Inputs,
    check_cotangent,
    check_dims,
    check_inputs,
    check_out,
    check_work,
    column_of,
    dimensions,
    read_only,
)
from daskgp.kernels.compose import codes_of, derived_of, of_class, united
from daskgp.kernels.radial import replaced
from daskgp.kernels.stationary import RBF, Matern32
from daskgp.typing import Array

SHAPES = ("disc", "box")
ORDERS, EXACT = {1: 8, 2: 4, 3: 3}, "exact"
"""Order of the rule for averages by default, by the directions of an area, and what
stands for none."""
FINEST = {1: 50, 2: 20, 3: 10}
"""Order of the rule whose error is not looked at, likewise."""
ORDER_BEFORE = 3
"""Order that ``None`` stands for in descriptions that name it."""
MANY, MOST_ORDER = 10, 50
MOST_NODES = MOST_ORDER**2
"""Most nodes of a rule: the variance of an average takes the square of their number."""
MOST_DISC, MOST_BOX = 2, 3
"""Most columns of a disc, and of a box."""
AT_POINTS = Matern32()
"""Kernel of the values at points by default."""
QUARTER = math.pi / 2
"""Largest angle that an area on a sphere extends from its centre."""
ALL = slice(None)
NODES_AT_ONCE = 128
"""Nodes of rows whose variances are found together."""


@dataclass(frozen=True)
class Averaged(Kernel):
    """Kernel of averages over areas, the mean of kernel(x + s, z + t) over s and t.

    A row with a footprint is the average of the function that ``kernel`` is the covariance of, over
    the interval, disc or box around its place, or over a set of points; a row without is the
    function's value there.  Both may be in the same data, and be predicted from one another.

    Averages are weighted sums over the nodes of a rule, which is exact for polynomials of degree
    ``2 order - 1``: Gauss-Legendre along an interval and the axes of a box, and on rings of a disc
    (eight nodes of order 8, 16 and 16 of order 4).  The averages of these nodes are the ones that
    count: their covariance is positive semi-definite for any order.  Their difference from the
    integrals should have a variance of less than a quarter of the noise variance.  At the orders by
    default, and for a Matérn-3/2 kernel and radii of up to the lengthscale, it has where noise is
    at least 0.1 % of the variance of points along an interval, and 0.3 % in a disc; where it has
    more, a fit names the order that is enough (the page on footprints has figures).

    Parameters
    ----------
    kernel : Kernel, optional
        Kernel of the function's values at points, default ``Matern32()``.
    footprint : int, str or sequence of int or str, default "radius"
        The column of the radius: half the length of an interval or the side of a box, in the unit
        of the coordinates; 0 for a point.  A sequence is of columns of offsets from the place to
        points that are averaged with equal weights, those of one point after another: ``("dx0",
        "dy0", "dx1", "dy1")`` for two points of two coordinates.
    columns : sequence of int or str, optional
        The coordinates, in one unit, which share a scale if data are standardised; by default all
        columns beside the footprint and codes of categories.
    shape : {"disc", "box"}, optional
        Shape of areas with a radius, default "disc"; in one column both are the interval.
    order : int or "exact", optional
        Order of the rule, of 50 at most, or 13 for a box of three columns; by default 8 for
        intervals, 4 for discs and boxes of two columns, and 3 for boxes of three.  Or "exact" for
        the closed form of an `RBF` over intervals and boxes; `VecchiaGP` is slower with it.
    sphere : bool, default False
        Whether the three coordinates are x, y and z on a sphere about the origin, north towards z,
        along which areas lie: discs, boxes towards east and north, or offsets to the east and the
        north, in one unit with x, y and z.  Fits set it for longitude and latitude, with
        footprints in km.

    Raises
    ------
    SettingError
        If a setting is of the wrong kind, or ``kernel`` is or has one of averages.

    Notes
    -----
    Footprints are given, not learned: derivatives by their columns are 0.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> kernel = Averaged(RBF(1.0), footprint=1)
    >>> kernel(np.array([[0.0, 0.0], [0.0, 2.0]])).round(3)  # a point, and an interval around it
    array([[1.   , 0.598],
           [0.598, 0.502]])
    """

    kernel: Kernel = AT_POINTS
    footprint: int | str | Sequence[int | str] = "radius"
    columns: Dims | None = None
    shape: str | None = None
    order: int | str | None = None
    sphere: bool = False

    name: ClassVar[str] = "averaged"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise SettingError(
                f"Averaged holds a kernel such as Matern32(), not {shown(self.kernel)}"
            )
        if next(averages(self.kernel), None) is not None:
            raise SettingError(
                "Averaged already holds a kernel of averages: give the columns of one footprint"
            )
        object.__setattr__(self, "footprint", _checked_footprint(self.footprint))
        object.__setattr__(self, "columns", _checked_columns(self.columns))
        if self.shape is not None:
            choice("shape of Averaged", self.shape, SHAPES)
        if not isinstance(self.sphere, bool | np.bool_):
            raise SettingError(f"sphere={shown(self.sphere)} of Averaged: choose True or False")
        object.__setattr__(self, "sphere", bool(self.sphere))
        self._check_order()
        for setting in ("shape", "order"):
            if self.of_points and getattr(self, setting) is not None:
                raise SettingError(
                    f"Averaged has columns of offsets, footprint={shown(self.footprint)}, which "
                    f"take no {setting}: leave it out, or give the column of a radius"
                )

    def _check_order(self) -> None:
        if isinstance(self.order, str):
            choice("order of Averaged", self.order, (EXACT,), "a whole number")
            if self.sphere:
                raise SettingError(
                    "order='exact' of Averaged is for intervals and boxes of a plane, not for "
                    "places on a sphere: give a number, such as order=6"
                )
            if type(self.kernel) is not RBF:
                raise SettingError(
                    f"order='exact' of Averaged is for RBF, which has a closed form, not for "
                    f"{type(self.kernel).__name__}: give a number, such as order=6"
                )
        elif self.order is not None:
            order = whole("order of Averaged", self.order, 1)
            if order > MOST_ORDER:
                raise SettingError(f"order={order} of Averaged: choose at most {MOST_ORDER}")
            object.__setattr__(self, "order", order)

    @property
    def is_exact(self) -> bool:
        """True if averages are integrals in closed form, not sums over nodes.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Averaged(RBF(), 1, order="exact").is_exact
        True
        """
        return self.order == EXACT

    @property
    def of_points(self) -> bool:
        """True if footprints are sets of points, by columns of their offsets.

        Examples
        --------
        >>> Averaged(footprint=(1, 2)).of_points, Averaged(footprint=1).of_points
        (True, False)
        """
        return isinstance(self.footprint, tuple)

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernel of values at points.

        Examples
        --------
        >>> Averaged().parts[0].name
        'matern32'
        """
        return (self.kernel,)

    def with_parts(self, parts: Sequence[Kernel]) -> Averaged:
        """Return averages of the same footprints of another function.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Averaged().with_parts([RBF()]).parts[0].name
        'rbf'
        """
        return replaced(self, kernel=parts[0])

    # -- columns -----------------------------------------------------------------------------

    def footprint_columns(self) -> tuple[int | str, ...]:
        """Return the columns of footprints, by number or name.

        Examples
        --------
        >>> Averaged().footprint_columns()
        ('radius',)
        """
        own = self.footprint
        return own if isinstance(own, tuple) else (own,)

    def coordinate_columns(self, d: int) -> tuple[int, ...]:
        """Return the numbers of the columns, of d, that are averaged over.

        Raises
        ------
        InputError
            If columns do not fit d, or their number the footprint.

        Examples
        --------
        >>> Averaged(footprint=1).coordinate_columns(3)
        (0, 2)
        """
        own = self._footprints(d)
        columns = self.columns
        if columns is None:
            others = {*own, *codes_of(self.kernel, d)}
            columns = tuple(j for j in range(d) if j not in others)
        if columns:
            check_dims(columns, d, "Averaged", "columns")
        if problem := self.problem_of(columns):
            raise InputError(problem)
        return tuple(columns)

    def problem_of(self, columns: Sequence[Any]) -> str:
        """Return what is wrong with the coordinates, by number or name; nothing if they fit.

        Examples
        --------
        >>> Averaged(footprint=2).problem_of((0, 1)), Averaged(footprint=2).problem_of((0, 2))[:32]
        ('', 'Averaged has 2 among its columns')
        """
        own, m = self.footprint_columns(), self.directions(len(columns))
        both = [one for one in columns if one in own]
        if both:
            return (
                f"Averaged has {shown(both[0])} among its columns and as its footprint: give the "
                "coordinates as columns"
            )
        named = f"({', '.join(map(str, columns))})"
        remedy = "name the coordinates that are averaged over, columns=..."
        if not m:
            return "Averaged has no coordinates beside its footprint: give them as columns"
        if self.sphere and len(columns) != 3:
            return (
                f"Averaged has sphere=True and {len(columns)} coordinates {named}: give columns of "
                "x, y and z"
            )
        if self.of_points:
            fits = len(own) % m == 0
            return (
                ""
                if fits
                else (
                    f"Averaged has {len(own)} columns of offsets for {m} coordinates {named}: give "
                    f"{m} for each point, or {remedy}"
                )
            )
        most = MOST_BOX if self.shape == "box" else MOST_DISC
        shape = self.shape or SHAPES[0]
        if self.order == EXACT and shape != "box" and m > 1:
            return "order='exact' of Averaged is for intervals and boxes: give shape='box'"
        if m > most:
            return f"Averaged has a {shape} in {m} coordinates {named}, of {most} at most: {remedy}"
        if isinstance(self.order, int) and self.order > most_order(m):
            return (
                f"order={self.order} of Averaged in {m} coordinates {named} makes "
                f"{self.order**m:,} nodes, of {MOST_NODES:,} at most: give an order of up to "
                f"{most_order(m)}"
            )
        return ""

    def order_of(self, m: int) -> int:
        """Return the order of the rule for areas that extend in m directions.

        Examples
        --------
        >>> Averaged().order_of(1), Averaged().order_of(2), Averaged(order=5).order_of(2)
        (8, 4, 5)
        """
        return self.order if isinstance(self.order, int) else ORDERS[m]

    def directions(self, m: int) -> int:
        """Return in how many directions areas of m coordinates extend: two on a sphere.

        Examples
        --------
        >>> Averaged().directions(3), Averaged(sphere=True).directions(3)
        (3, 2)
        """
        return 2 if self.sphere and m else m

    def _footprints(self, d: int) -> tuple[int, ...]:
        own: Any = self.footprint_columns()
        check_dims(own, d, "Averaged", "footprint")
        return own

    def extents(self, d: int) -> dict[int, tuple[int, ...]]:
        columns, own = self.coordinate_columns(d), self._footprints(d)
        if not self.of_points or self.sphere:
            return dict.fromkeys(own, columns)
        return {j: (columns[i % len(columns)],) for i, j in enumerate(own)}

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        own = set(self._footprints(d))
        groups = [tuple(j for j in group if j not in own) for group in self.kernel.tied_columns(d)]
        if not self.of_points:
            groups.append(self.coordinate_columns(d))
        return united([group for group in groups if len(group) > 1])

    def categories(self, d: int) -> tuple[int, ...]:
        codes = codes_of(self.kernel, d)
        for what, own in (
            ("columns", self.coordinate_columns(d)),
            ("footprint", self._footprints(d)),
        ):
            if not set(codes).isdisjoint(own):
                raise SettingError(
                    f"Averaged has {what}={shown(own)}, of which one holds codes of categories: "
                    "give coordinates and lengths"
                )
        return codes

    # -- nodes -------------------------------------------------------------------------------

    def nodes(self, X: Array) -> tuple[np.ndarray, Iterator[Array]]:
        """Return the weights (q,) of nodes, and nodes (..., d) of rows X, one of each at a time.

        The columns of footprints are 0 in them.  Exact averages have those of the default order.

        Examples
        --------
        >>> w, nodes = Averaged(footprint=1, order=2).nodes(np.array([[5.0, 3.0]]))
        >>> w, [node.round(3) for node in nodes]
        (array([0.5, 0.5]), [array([[3.268, 0.   ]]), array([[6.732, 0.   ]])])
        """
        columns = list(self.coordinate_columns(X.shape[-1]))
        weights, moves = self._moves(X)
        centres = X.copy()
        centres[..., list(self._footprints(X.shape[-1]))] = 0.0
        to = on_sphere if self.sphere else moved
        return weights, (to(centres, columns, move) for move in moves)

    def _moves(self, X: Array) -> tuple[np.ndarray, Iterator[Array]]:
        """Return the weights (q,) of nodes, and their offsets (..., m) from rows X (..., d)."""
        d, xp = X.shape[-1], namespace(X)
        m = self.directions(len(self.coordinate_columns(d)))
        own = list(self._footprints(d))
        lengths = X[..., own]
        if self.of_points:
            q = len(own) // m
            return np.full(q, 1.0 / q), (lengths[..., a * m : (a + 1) * m] for a in range(q))
        weights, places = rule(self.shape or SHAPES[0], m, self.order_of(m))
        return weights, (lengths * xp.asarray(place, dtype=X.dtype) for place in places)

    def unit_moves(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (q,) of nodes, and offsets (q, o, m) by the o columns of footprints.

        Examples
        --------
        >>> Averaged(footprint=1, order=1).unit_moves(2)
        (array([1.]), array([[[0.]]]))
        """
        weights, moves = self.by_nodes()._moves(np.eye(d)[list(self._footprints(d))])
        return weights, np.array(list(moves))

    def finer_orders(self, d: int) -> range:
        """Return the orders above that of itself, up to that of ``error_variance``'s finest rule.

        Examples
        --------
        >>> Averaged(footprint=1, order=3).finer_orders(2)
        range(4, 50)
        """
        m = self.directions(len(self.coordinate_columns(d)))
        return range(self.order_of(m) + 1, FINEST[m])

    def error_variance(self, X: Array) -> float:
        """Return the largest variance of the difference between averages by nodes and integrals.

        The integrals are those by the nodes of a much finer rule; 0 for finer ones than that.

        Parameters
        ----------
        X : (n, d) array
            A few rows.

        Examples
        --------
        >>> coarse = Averaged(Matern32(1.0), 1, order=3)
        >>> round(coarse.error_variance(np.array([[0.0, 1.0]])), 4)
        0.005
        """
        if self.of_points or self.is_exact or not self.finer_orders(X.shape[1]):
            return 0.0
        m = self.directions(len(self.coordinate_columns(X.shape[1])))
        errors = []
        for row in X:
            (w, own), (v, finest) = (
                one.nodes(row[None]) for one in (self, replaced(self, order=FINEST[m]))
            )
            places = namespace(X).concatenate([*own, *finest])
            a = namespace(X).asarray(np.concatenate([w, -v]))
            errors.append(number(a @ self.kernel(places) @ a))
        return max(errors)

    def by_nodes(self) -> Averaged:
        """Return itself, or many nodes for averages in closed form.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Averaged(RBF(), 1, order="exact").by_nodes().order
        10
        """
        return replaced(self, order=MANY) if self.is_exact else self

    def areas(self, X: Array) -> np.ndarray:
        """Return the mask (...) of rows X (..., d) that are averages, not points.

        Raises
        ------
        InputError
            If a radius is negative.

        Examples
        --------
        >>> Averaged(footprint=1).areas(np.array([[5.0, 3.0], [5.0, 0.0]]))
        array([ True, False])
        """
        own = to_host(X[..., list(self._footprints(X.shape[-1]))])
        if not self.of_points and (own < 0).any():
            # rows of a model are scaled, so that values would not be those of the user
            raise InputError(negative(f"column {self.footprint}", f"in {(own < 0).sum()} rows"))
        if self.sphere and not self.of_points:
            places = X[..., list(self.coordinate_columns(X.shape[-1]))]
            wide = own[..., 0] > QUARTER * to_host((places**2).sum(-1)) ** 0.5
            if wide.any():
                raise InputError(too_wide(f"column {self.footprint}", f"in {wide.sum()} rows"))
        return np.asarray((own != 0).any(-1))

    def _groups(self, X: Array) -> list[_Nodes]:
        """Return the nodes of rows, apart for those that are points: they have one."""
        areas = self.areas(X)
        if areas.all():
            return [self._nodes_of(None, X)]
        points, found = np.flatnonzero(~areas), []
        some = None if len(points) == len(X) else points
        plain = (X if some is None else X[namespace(X).asarray(some)]).copy()
        plain[:, list(self._footprints(X.shape[1]))] = 0.0
        found.append(_Nodes(some, np.ones(1), [plain]))
        if some is not None:
            rows = np.flatnonzero(areas)
            found.append(self._nodes_of(rows, X[namespace(X).asarray(rows)]))
        return found

    def _nodes_of(self, rows: np.ndarray | None, X: Array) -> _Nodes:
        """Return the nodes of areas X, with derivatives by their centres where these turn them."""
        weights, nodes = self.nodes(X)
        if not self.sphere:
            return _Nodes(rows, weights, list(nodes))
        columns = list(self.coordinate_columns(X.shape[-1]))
        pulls = [partial(pull_to_centres, X, columns, move) for move in self._moves(X)[1]]
        return _Nodes(rows, weights, list(nodes), pulls)

    # -- values ------------------------------------------------------------------------------

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        inputs = check_inputs(X, Z)
        out = check_out(inputs, out)
        if self.is_exact:
            out[...] = self._exactly(inputs)[1]
            return out
        for own, other in _pairs(self, inputs):
            if inputs.Z is None and own is other:
                own.put(out, own, own.symmetric(self.kernel))
                continue
            tile = own.average(self.kernel, other)
            own.put(out, other, tile)
            if inputs.Z is None:
                other.put(out, own, tile.T)
        if inputs.Z is None:
            i = inputs.xp.arange(len(out))
            out[i, i] = self.diag(inputs.X)
        return out

    def diag(self, X: Array) -> np.ndarray:
        inputs = check_inputs(X)
        if self.is_exact:
            return self._exact_variances(inputs.X)[1].astype(inputs.dtype)
        found = inputs.xp.empty(len(inputs.X), dtype=inputs.dtype)
        for own in self._groups(inputs.X):
            if len(own.nodes) == 1:
                found[own.at(found)] = self.kernel.diag(own.nodes[0])
                continue
            W = inputs.xp.asarray(np.outer(own.weights, own.weights), dtype=inputs.dtype)
            variances = []
            for rows in own.some():
                K, i = own.of_rows(self.kernel(own.side_by_side(rows)))
                variances.append((K[:, i, :, i] * W).sum((1, 2)))
            found[own.at(found)] = inputs.xp.concatenate(variances)
        return found

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        by_log, X_bar = np.zeros(len(self.parameter_names)), inputs.xp.zeros_like(inputs.X)
        if self.is_exact:
            found, K = self._exact_variances(inputs.X)
            bars = diag_bar.astype(np.float64) * K
            by_log[0] = number(bars.sum())
            for one in found:
                by_log[one.number] += number((bars * one.by_log / one.value).sum())
            return KernelGradient(by_log, X_bar, None)
        for own in self._groups(inputs.X):
            bar = diag_bar[own.at(diag_bar)].astype(inputs.dtype, copy=False)
            if len(own.nodes) == 1:
                gradient = self.kernel.diag_vjp(own.nodes[0], bar)
                by_log += gradient.log_parameters
                X_bar[own.at(X_bar)] += own.of_centre(0, gradient.X)
                continue
            W, by_rows = inputs.xp.asarray(np.outer(own.weights, own.weights)), []
            for rows in own.some():
                K, pull = self.kernel.pullback(own.side_by_side(rows))
                K_bar = inputs.xp.zeros_like(K)
                each, i = own.of_rows(K_bar)
                each[:, i, :, i] = bar[rows, None, None] * W
                gradient = pull(K_bar, overwrite=True)
                by_log += gradient.log_parameters
                by_nodes = gradient.X.reshape(len(own.nodes), -1, X.shape[1])
                by_rows.append(own.of_centres(by_nodes, rows))
            X_bar[own.at(X_bar)] += inputs.xp.concatenate(by_rows)
        return KernelGradient(by_log, self._of_places(X_bar), None)

    @property
    def tiles(self) -> int:
        return 2 + self.kernel.tiles

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)
        if self.is_exact:
            return self._exact_pullback(inputs, check_work(inputs, work, self.tiles)[0])
        K = self(inputs.X, inputs.Z, out=check_work(inputs, work, self.tiles)[0])

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            return self._pulled(inputs, check_cotangent(inputs, K_bar))

        return read_only(K), pull

    def _pulled(self, inputs: Inputs, K_bar: Array) -> KernelGradient:
        """Return the gradient, for which tiles of nodes are made again: keeping them takes more."""
        by_log, X_bar = np.zeros(len(self.parameter_names)), inputs.xp.zeros_like(inputs.X)
        Z_bar = X_bar if inputs.Z is None else inputs.xp.zeros_like(inputs.Z)
        alone = inputs.Z is None
        if alone:
            K_bar = 0.5 * (K_bar + K_bar.T)
        for own, other in _pairs(self, inputs):
            same = alone and own is other
            bar = own.take(K_bar, other)
            for a, b in own.pairs(other, same):
                weight = own.weights[a] * other.weights[b]
                twice = alone and not (same and a == b)
                _, pull = self.kernel.pullback(
                    own.nodes[a], None if same and a == b else other.nodes[b]
                )
                gradient = pull((2.0 if twice else 1.0) * float(weight) * bar, overwrite=True)
                by_log += gradient.log_parameters
                X_bar[own.at(X_bar)] += own.of_centre(a, gradient.X)
                if gradient.Z is not None:
                    Z_bar[other.at(Z_bar)] += other.of_centre(b, gradient.Z)
        X_bar = self._of_places(X_bar)
        return KernelGradient(by_log, X_bar, None if alone else self._of_places(Z_bar))

    def _split(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the centres (n, d) and the radii (n,) of rows in float64."""
        self.areas(X)
        centres, own = X.astype(np.float64), list(self._footprints(X.shape[1]))
        radii = centres[:, own[0]].copy()
        centres[:, own] = 0.0
        return centres, radii

    def _exactly(self, inputs: Inputs) -> tuple[list[Factor], Array]:
        """Return the factors of the closed form by columns, and the tile."""
        columns = self.coordinate_columns(inputs.X.shape[1])
        X, r = self._split(inputs.X)
        Z, s = (X, r) if inputs.Z is None else self._split(inputs.Z)
        rows = X[:, None], Z[None], columns, r[:, None], s[None]
        found = factors(cast(RBF, self.kernel), *rows)
        K = self._height * math.prod(one.value for one in found)
        if inputs.Z is None:
            K = 0.5 * (K + K.T)
            i = inputs.xp.arange(len(K))
            K[i, i] = self._exact_variances(inputs.X)[1]
        return found, K

    def _exact_variances(self, X: Array) -> tuple[list[Factor], Array]:
        centres, r = self._split(X)
        columns = self.coordinate_columns(X.shape[1])
        found = factors(cast(RBF, self.kernel), centres, centres, columns, r, r)
        return found, self._height * math.prod(one.value for one in found)

    @property
    def _height(self) -> float:
        return float(np.exp(self.kernel.log_parameters[0]))

    def _exact_pullback(self, inputs: Inputs, out: Array) -> tuple[np.ndarray, Pullback]:
        found, K = self._exactly(inputs)
        out[...] = K

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            bar = check_cotangent(inputs, K_bar).astype(np.float64)
            if inputs.Z is None:
                bar = 0.5 * (bar + bar.T)
            by_log = np.zeros(len(self.parameter_names))
            by_log[0] = number((bar * K).sum())
            X_bar = inputs.xp.zeros(inputs.X.shape)
            Z_bar = X_bar if inputs.Z is None else inputs.xp.zeros(inputs.Z.shape)
            for i, one in enumerate(found):
                others = (other.value for j, other in enumerate(found) if j != i)
                rest = bar * self._height * math.prod(others)
                by_log[one.number] += number((rest * one.by_log).sum())
                X_bar[:, one.column] += (rest * one.by_place).sum(1)
                Z_bar[:, one.column] -= (rest * one.by_place).sum(0)
            X_bar = self._of_places(X_bar.astype(inputs.dtype))
            if inputs.Z is None:
                return KernelGradient(by_log, X_bar, None)
            return KernelGradient(by_log, X_bar, self._of_places(Z_bar.astype(inputs.dtype)))

        return read_only(out), pull

    def _of_places(self, gradient: Array) -> np.ndarray:
        """Return the gradient by rows with none by the columns of footprints."""
        gradient[:, list(self._footprints(gradient.shape[1]))] = 0.0
        return gradient

    # -- hyper-parameters --------------------------------------------------------------------

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.kernel.parameter_names

    @property
    def log_parameters(self) -> np.ndarray:
        return self.kernel.log_parameters

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Averaged:
        return self.with_parts([self.kernel.with_log_parameters(values)])

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        return self.kernel.log_bounds(self._without(spread))

    def resolve(self, median: np.ndarray, distance: float) -> Averaged:
        made = self.with_parts([self.kernel.resolve(self._without(median), distance)])
        if self.of_points or self.order is not None:
            return made
        # a number, which models keep whatever later versions take by default
        order = self.order_of(self.directions(len(self.coordinate_columns(len(median)))))
        return replaced(made, order=order)

    def _without(self, sizes: np.ndarray) -> np.ndarray:
        """Return sizes of columns (d,), 0 of those of footprints."""
        sizes = np.array(sizes, np.float64)
        sizes[list(self._footprints(len(sizes)))] = 0.0
        return sizes

    def units(self, n_features: int) -> tuple[Unit, ...]:
        own = set(self._footprints(n_features))
        return tuple(
            unit._replace(columns=tuple(j for j in unit.columns if j not in own))
            for unit in self.kernel.units(n_features)
        )

    def coordinates(self, varies: np.ndarray | None = None) -> np.ndarray:
        return self.kernel.coordinates(varies)

    def derived(self) -> tuple[Derived, ...]:
        return derived_of(self.kernel)

    def to_dict(self) -> dict[str, Any]:
        self._check_registered()
        own, columns = self.footprint, self.columns
        return {
            "kernel": self.name,
            "parts": [self.kernel.to_dict()],
            "footprint": list(own) if isinstance(own, tuple) else own,
            "columns": None if columns is None else list(columns),
            "shape": self.shape,
            **({} if self.order is None else {"order": self.order}),
            **({"sphere": True} if self.sphere else {}),
        }


class _Nodes(NamedTuple):
    """Nodes (q of (n, d)) of some rows and their weights; ``rows`` is None for all rows.

    ``pulls`` make gradients by centres from those by each node, where these are not the same.
    """

    rows: np.ndarray | None
    weights: np.ndarray
    nodes: list[Array]
    pulls: Sequence[Callable[..., Array]] | None = None

    def of_centre(self, a: int, gradient: Array, rows: slice = ALL) -> np.ndarray:
        """Return the gradient (n, d) by centres of some rows from that by one of their nodes."""
        return gradient if self.pulls is None else self.pulls[a](gradient, rows)

    def of_centres(self, gradients: Array, rows: slice) -> np.ndarray:
        """Return the gradient (n, d) by centres of some rows from those (q, n, d) by all nodes."""
        if self.pulls is None:
            return gradients.sum(0)
        return _sum(self.of_centre(a, own, rows) for a, own in enumerate(gradients))

    def at(self, like: Array) -> Any:
        """Return the index of the rows in an array of all."""
        return slice(None) if self.rows is None else namespace(like).asarray(self.rows)

    def take(self, K: Array, other: _Nodes) -> np.ndarray:
        """Return the part of a tile that is of own rows and the other ones."""
        return K[self.at(K)][:, other.at(K)]

    def put(self, K: Array, other: _Nodes, tile: Array) -> None:
        """Put that part in a tile."""
        if self.rows is None or other.rows is None:
            K[self.at(K), other.at(K)] = tile
        else:
            K[self.at(K)[:, None], other.at(K)] = tile

    def pairs(self, other: _Nodes, same: bool) -> Iterator[tuple[int, int]]:
        """Yield pairs of nodes, each once where they are the same rows'."""
        a, b = range(len(self.nodes)), range(len(other.nodes))
        return itertools.combinations_with_replacement(a, 2) if same else itertools.product(a, b)

    def average(self, kernel: Kernel, other: _Nodes) -> np.ndarray:
        """Return the averages of tiles of nodes."""
        parts = (
            float(self.weights[a] * other.weights[b]) * kernel(self.nodes[a], other.nodes[b])
            for a, b in self.pairs(other, False)
        )
        return _sum(parts)

    def symmetric(self, kernel: Kernel) -> np.ndarray:
        """Return that of own rows with themselves, exactly symmetric."""

        def part(a: int, b: int) -> np.ndarray:
            weight = float(self.weights[a] * self.weights[b])
            if a == b:
                return weight * kernel(self.nodes[a])
            tile = weight * kernel(self.nodes[a], self.nodes[b])
            return tile + tile.T

        return _sum(part(a, b) for a, b in self.pairs(self, True))

    def some(self) -> Iterator[slice]:
        """Yield some rows at a time."""
        step = max(1, NODES_AT_ONCE // len(self.nodes))
        for i in range(0, max(len(self.nodes[0]), 1), step):
            yield slice(i, i + step)

    def side_by_side(self, rows: slice) -> np.ndarray:
        """Return the nodes (q n, d) of some rows."""
        return namespace(self.nodes[0]).concatenate([node[rows] for node in self.nodes])

    def of_rows(self, K: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the tile of nodes side by side as (q, n, q, n), and the numbers of the rows."""
        q = len(self.nodes)
        n = len(K) // q
        return K.reshape(q, n, q, n), namespace(K).arange(n)


def _pairs(kernel: Averaged, inputs: Inputs) -> Iterator[tuple[_Nodes, _Nodes]]:
    """Yield pairs of groups of rows that make up a tile; each once for K(X, X)."""
    own = kernel._groups(inputs.X)
    if inputs.Z is None:
        yield from itertools.combinations_with_replacement(own, 2)
    else:
        yield from itertools.product(own, kernel._groups(inputs.Z))


def _sum(parts: Iterator[Array]) -> np.ndarray:
    total = next(parts)
    for part in parts:
        total += part
    return total


def moved(centres: Array, columns: list[int], move: Array) -> np.ndarray:
    """Return rows (..., d) whose coordinates are moved by offsets (..., m).

    Examples
    --------
    >>> moved(np.array([[1.0, 0.0]]), [0], np.array([[0.5]]))
    array([[1.5, 0. ]])
    """
    made = centres.copy()
    made[..., columns] += move
    return made


def on_sphere(centres: Array, columns: list[int], move: Array) -> np.ndarray:
    """Return rows (..., d) moved along the sphere about the origin, by offsets (..., 2).

    Offsets are to the east and the north, in the tangent plane of each row; at a pole east is that
    of longitude 0.

    Examples
    --------
    >>> quarter = np.array([[0.0, np.pi / 2]])
    >>> on_sphere(np.array([[1.0, 0.0, 0.0]]), [0, 1, 2], quarter).round(3)  # to the north pole
    array([[0., 0., 1.]])
    """
    own = _Tangents.of(centres[..., columns], move)
    made = centres.copy()
    made[..., columns] = own.u * own.xp.cos(own.t) + own.step * own.s
    return made


def pull_to_centres(
    X: Array, columns: list[int], move: Array, gradient: Array, rows: slice
) -> np.ndarray:
    """Return the gradient (n, d) by centres from that by rows that ``on_sphere`` made of them."""
    own = _Tangents.of(X[rows][..., columns], move[rows])
    g, made = gradient[..., columns], gradient.copy()
    xp, u, t, s = own.xp, own.u, own.t, own.s

    def dot(a: Array, b: Array) -> np.ndarray:
        return (a * b).sum(-1, keepdims=True)

    # ds/dt, of which the difference loses all digits near 0
    slope = xp.where(t > 1e-3, (xp.cos(t) - s) / xp.where(t > 1e-3, t, 1.0), -t / 3.0)
    by_t = -xp.sin(t) * dot(g, u) + slope * dot(g, own.step)
    found = xp.cos(t) * g - by_t * t / own.radius**2 * u
    out = xp.stack([xp.cos(own.longitude), xp.sin(own.longitude), 0.0 * own.longitude], axis=-1)
    away = xp.where(own.axis > 0, own.axis, 1.0)  # east does not turn at a pole
    turn = xp.where(own.axis > 0, s / away, 0.0) * own.east
    east, north = move[rows][..., :1], move[rows][..., 1:]
    found = found - turn * (east * dot(g, out) + north * own.latitude_sine * dot(g, own.east))
    made[..., columns] = found - s * north * dot(g, u) / own.radius**2 * own.north
    return made


class _Tangents(NamedTuple):
    """Tangent planes of places u (..., 3) on a sphere, and steps in them.

    ``s`` is sin(t) / t of the angle t of a step; ``axis`` the distance from the axis to the north.
    """

    xp: Any
    u: Array
    radius: Array
    axis: Array
    longitude: Array
    latitude_sine: Array
    east: Array
    north: Array
    step: Array
    t: Array
    s: Array

    @classmethod
    def of(cls, u: Array, move: Array) -> _Tangents:
        """Return those at places u for steps ``move`` (..., 2) to the east and the north."""
        xp = namespace(u)
        x, y, z = (u[..., i] for i in range(3))
        axis = xp.sqrt(x**2 + y**2)
        radius = xp.sqrt(axis**2 + z**2)
        longitude, latitude = xp.arctan2(y, x), xp.arctan2(z, axis)
        c, s = xp.cos(longitude), xp.sin(longitude)
        rise, run = xp.sin(latitude), xp.cos(latitude)
        east = xp.stack([-s, c, xp.zeros_like(c)], axis=-1)
        north = xp.stack([-rise * c, -rise * s, run], axis=-1)
        step = move[..., :1] * east + move[..., 1:] * north
        # an origin is at no place of a sphere, and moves as in a plane
        t = (
            xp.sqrt((move**2).sum(-1, keepdims=True))
            / xp.where(radius > 0, radius, xp.inf)[..., None]
        )
        far = xp.where(radius > 0, radius, 1.0)[..., None]
        ratio = xp.where(t > 0, xp.sin(t) / xp.where(t > 0, t, 1.0), 1.0)
        return cls(
            *(xp, u, far, axis[..., None], longitude, rise[..., None]),
            *(east, north, step, t, ratio),
        )


def most_order(m: int) -> int:
    """Return the largest order of a rule for averages over m coordinates.

    Examples
    --------
    >>> [most_order(m) for m in (1, 2, 3)]
    [50, 50, 13]
    """
    return max(order for order in range(1, MOST_ORDER + 1) if order**m <= MOST_NODES)


@cache
def rule(shape: str, m: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (q,) and nodes (q, m) of averages over [-1, 1]^m or the unit disc.

    It is exact for polynomials of degree ``2 order - 1``: Gauss-Legendre along the axes, or
    Gauss or Gauss-Radau nodes in the square of the distance from the centre of a disc, with
    ``2 order`` equal angles on each ring (Stroud, 1971).

    Examples
    --------
    >>> weights, places = rule("disc", 2, 3)  # the centre, and a hexagon around it
    >>> weights.round(3), np.hypot(*places.T).round(3)
    (array([0.25 , 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]),
     array([0.   , 0.816, 0.816, 0.816, 0.816, 0.816, 0.816]))
    """
    from scipy.special import roots_jacobi, roots_legendre  # slow to import

    if shape == "box" or m == 1:
        x, w = roots_legendre(order)
        places = np.array(list(itertools.product(x, repeat=m)))
        return _fixed(np.prod(list(itertools.product(0.5 * w, repeat=m)), axis=1), places)
    rings, centre = divmod(order, 2)
    weights: list[float] = []
    rows: list[np.ndarray] = []
    if rings:
        t, w = roots_jacobi(rings, 0.0, float(centre))
        shares = 0.5 * w / (1.0 + t) if centre else 0.5 * w
        angles = np.pi / order * np.arange(2 * order)
        for square, share in zip(0.5 * (1.0 + t), shares, strict=True):
            weights += [share / len(angles)] * len(angles)
            rows += [np.sqrt(square) * np.stack([np.cos(angles), np.sin(angles)], axis=1)]
    if centre:
        weights, rows = [1.0 - sum(weights), *weights], [np.zeros((1, 2)), *rows]
    return _fixed(np.array(weights), np.concatenate(rows))


def _fixed(weights: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights.flags.writeable = places.flags.writeable = False
    return weights, places


def too_wide(what: str, seen: str) -> str:
    """Return the message for a radius of more than a quarter of the way round the sphere."""
    return (
        f"{what} is the radius of footprints on a sphere, in km for longitude and latitude, and "
        f"reaches more than a quarter of the way round it {seen}: give km, or coordinates of a "
        "plane"
    )


def negative(what: str, seen: str, fill: str = "") -> str:
    """Return the message for a radius that is negative, as ``seen`` tells.

    ``fill`` is a value among them that is known to stand for missing ones elsewhere.
    """
    missing = f", or fill_values=[{fill}] if {fill} stands for missing values" if fill else ""
    return (
        f"{what} is the radius of footprints and is negative, {seen}: give half the width of each "
        f"area, and 0 for a point{missing}"
    )


def averaged(kernel: Kernel, footprint: Any) -> Averaged:
    """Return the kernel of averages over footprints.

    Raises
    ------
    SettingError
        If it has other footprints already.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> averaged(RBF(), "radius") == Averaged(RBF())
    True
    """
    if next(averages(kernel), None) is not None:
        raise SettingError(
            f"footprint={shown(footprint)} and Averaged in the kernel both give footprints: "
            "leave one of them out"
        )
    return Averaged(kernel, footprint)


def of_before(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a description with the order that they had before there were others.

    Examples
    --------
    >>> of_before({"footprint": 1, "order": None}), of_before({"footprint": 1})
    ({'footprint': 1, 'order': 3}, {'footprint': 1})
    """
    of_points = isinstance(settings.get("footprint"), list | tuple)
    unset = "order" in settings and settings["order"] is None
    return settings | {"order": ORDER_BEFORE} if unset and not of_points else settings


averages = partial(of_class, Averaged)
"""Yields the parts of a kernel that are averages."""


def _checked_footprint(value: Any) -> int | str | tuple[int | str, ...]:
    """Return the column of a radius, or distinct ones of offsets."""
    several = isinstance(value, list | tuple | np.ndarray)
    each = [column_of(one) for one in (value if several else [value])]
    if not each or None in each or len(set(each)) < len(each):
        raise SettingError(
            f"footprint={shown(value)} of Averaged: give the column of a radius by number or name, "
            "or distinct columns of offsets"
        )
    own: Any = tuple(each) if several else each[0]
    checked: int | str | tuple[int | str, ...] = own
    return checked


def _checked_columns(value: Any) -> Dims | None:
    """Return distinct columns by number or name, or None."""
    columns = dimensions(value, "Averaged", "columns")
    if columns is not None and any(isinstance(one, tuple) for one in columns):
        raise SettingError(
            f"columns={shown(value)} of Averaged: give coordinates by number or name, such as "
            "(0, 1)"
        )
    return columns
