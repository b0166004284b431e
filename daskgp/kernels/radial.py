"""Kernels of the distance between features: the hot loops of the package.

A radial kernel is k(x, z) = v g(|u - w|^2) with features u = phi(x), w = phi(z).  Squared
distances come from one matrix product; the elementwise passes run in place over strips of rows
small enough to stay in the cache, so a value costs one tile and a pullback at most two.
"""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, number
from daskgp.arrays.linalg import product, symmetrize
from daskgp.kernels.base import Kernel, KernelGradient, Pullback
from daskgp.kernels.checks import (
    Dims,
    Inputs,
    check_cotangent,
    check_inputs,
    check_out,
    check_work,
    one_if_open,
    read_only,
    scatter_columns,
    select_columns,
)
from daskgp.kernels.fused import MOST_COLUMNS, Fused, fused
from daskgp.kernels.weights import Patch, WeightedGradient, Weights, checked_weights
from daskgp.typing import Array

_STRIP = 2**18  # bytes of one strip of a tile; three of them fit a second-level cache of 1 MB
# Up to this many features, by item size, differences are taken one by one, which is as fast as the
# product and has no cancellation; float32 needs it more and pays less.
_DIRECT = {4: 4, 8: 2}
# Distances from the centre in lengthscales, by item size.  If all rows are further away than the
# first, because one far from the others has moved the mean, products lose 1e-8 of a squared
# distance (1e-3 in float32); beyond the second, centred rows lose 1e-12 of a lengthscale (1e-3),
# and sums of squares in the gradients of lengthscales 1e-8.
_PRODUCTS = {4: 64.0, 8: 3e3}
_CENTRED = {4: 5e3, 8: 1e4}
# -log of the smallest value of a kernel with variance 1, by item size, far below rounding: smaller
# ones stay at it, as products of two or three of them would be subnormal, which many processors
# multiply ten times more slowly.
_FARTHEST = {4: 40.0, 8: 200.0}


class Strip(NamedTuple):
    """Rows of a tile worked on together, and the columns needed from them."""

    rows: slice
    cols: slice


def strips(inputs: Inputs, triangle: bool = False) -> Iterator[Strip]:
    """Cut a tile into strips; ``triangle`` leaves out the columns after a strip's last row."""
    n, m = inputs.shape
    step = n
    if inputs.xp is np:
        step = max(8, _STRIP // max(1, m * inputs.dtype.itemsize))
    for start in range(0, n, max(1, step)):
        stop = min(start + step, n)
        yield Strip(slice(start, stop), slice(0, stop if triangle else m))


class Scratch:
    """Memory for temporaries of one strip, reused for every strip.

    It is allocated on first use: on a device a strip is a whole tile.
    """

    def __init__(self, inputs: Inputs):
        self._inputs = inputs

    @cached_property
    def _flat(self) -> np.ndarray:
        first = next(strips(self._inputs), None)
        rows = 0 if first is None else first.rows.stop
        return self._inputs.xp.empty(rows * self._inputs.shape[1], dtype=self._inputs.dtype)

    def like(self, strip: Array) -> np.ndarray:
        """Return a contiguous, uninitialised array of the strip's shape."""
        return self._flat[: strip.shape[0] * strip.shape[1]].reshape(strip.shape)


class Coincidence(NamedTuple):
    """Threshold below which q = a |u - w|^2 is that of coincident rows, up to rounding.

    The direction between rows with q of ``least`` or less, one for each row of a strip, is lost in
    the sums of a gradient.  ``exact`` says that q itself is accurate however small it is.
    """

    least: Array | float
    exact: bool


class SquaredDistances:
    """Squared distances a |u - w|^2 for features U (n, q) and W (m, q), filled in by strips.

    Those at which the kernel all but vanishes are cut off.
    """

    def __init__(self, xp: Any, U: Array, W: Array, kernel: Radial):
        itemsize, scale = U.dtype.itemsize, kernel._scale
        self._xp, self._most = xp, kernel._farthest(_FARTHEST[itemsize])
        limits = np.finfo(U.dtype)
        eps = float(limits.eps)
        self._direct = 0 < U.shape[1] <= _DIRECT[itemsize]
        if not self._direct:
            u, w = (U * U).sum(axis=1), (W * W).sum(axis=1)
            nearest = [number(s.min()) for s in (u, w) if len(s)]
            self._direct = max(nearest, default=0.0) > _PRODUCTS[itemsize] ** 2
        if self._direct:
            root = abs(scale) ** 0.5
            self._left, self._right = U * root, (W * root).T.copy()
            # a direction has errors eps |u| / r; dropping it costs r
            lost = xp.minimum(eps ** (2 / 3) * xp.abs(U).max(axis=1), eps**0.25)
            self._least = abs(scale) * lost[:, None] ** 2
            return
        # [u, |u|^2, 1] . a [-2 w, 1, |w|^2]
        self._left = xp.concatenate([U, u[:, None], xp.ones_like(u)[:, None]], axis=1)
        self._right = xp.concatenate([-2 * W, xp.ones_like(w)[:, None], w[:, None]], axis=1).T
        self._right = self._right * scale
        # largest value that a true zero may come out as, kept finite
        self._least = xp.minimum((8 + U.shape[1]) * eps * scale * u[:, None], limits.max)

    def coincidence(self, strip: Strip) -> Coincidence:
        """Return the threshold for coincident rows in the strip."""
        return Coincidence(self._least[strip.rows], self._direct)

    def fill(self, strip: Strip, q: Array, work: Array) -> None:
        """Put the strip's values, never negative, in q; ``work`` is overwritten."""
        xp, left, right = self._xp, self._left[strip.rows], self._right[:, strip.cols]
        if self._direct:
            xp.subtract(left[:, :1], right[0], out=q)
            xp.multiply(q, q, out=q)
            for j in range(1, left.shape[1]):
                xp.subtract(left[:, j : j + 1], right[j], out=work)
                xp.multiply(work, work, out=work)
                xp.add(q, work, out=q)
        else:
            product(left, right, q)
            xp.abs(q, out=q)  # a negative value is zero up to rounding, and so is its magnitude
        if self._most < math.inf:
            xp.minimum(q, self._most, out=q)


class Radial(Kernel):
    """Base class of the kernels that depend only on distances between features.

    A subclass provides the features and, for a strip q = scale * r^2, the value in place together
    with whatever ``_weigh`` needs for the derivative.
    """

    variance: float | None
    active_dims: Dims | None

    _scale: ClassVar[float]
    """Factor a of the squared distance in q = a r^2."""
    _slope: ClassVar[float]
    """dk/dr^2 = _slope * (what ``_weigh`` multiplies by)."""
    _keeps_aside: ClassVar[bool] = True
    """True if ``_weigh`` needs what ``_evaluate`` leaves in ``aside``."""

    _formula: ClassVar[str | None] = None
    """Name in ``fused.FORMULAS``, if any."""

    @property
    def _shape(self) -> float:
        """Parameter of the formula besides the variance."""
        return 1.0

    def _fused(self, inputs: Inputs, U: Array) -> Fused | None:
        """Return what computes tiles and sums in one pass, if the device compiles the formula."""
        if inputs.xp is np:
            return None
        return fused(inputs.xp, self._formula, self._height, self._shape, U.shape[1])

    @property
    def _height(self) -> float:
        """The variance, 1 where it is left out."""
        return one_if_open(self.variance)

    _root: ClassVar[int] = 1
    """1 if the value falls like exp(-q) far away, 2 if like exp(-sqrt(q))."""
    _scales_vjp: ClassVar[Any] = None
    """Gradient with respect to the logarithms of the scales, if features are columns divided by
    scales: a function of the sums (q,) of K_bar dk/dr^2 (u - w)^2 of each feature."""

    @abstractmethod
    def _evaluate(self, xp: Any, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        """Turn q = a r^2 into k in place; leave what ``_weigh`` needs in ``aside``."""

    def _weigh(self, xp: Any, K_bar: Array, K: Array, aside: Array, D: Array) -> float:
        """Put K_bar * (dk/dr^2 / _slope) in D, which may be K_bar itself, for one strip.

        Return the strip's share of the gradient with respect to the logarithm of the shape
        parameter, if the kernel has one.
        """
        xp.multiply(K_bar, aside, out=D)
        return 0.0

    def _farthest(self, most: float) -> float:
        """Return the q at which the value is about exp(-most); infinite if it falls more slowly."""
        return float(most**self._root)

    @abstractmethod
    def _units(self, xp: Any, X: Array) -> Any:
        """Return the unit length in the columns of X: a float, or an array on X's device."""

    @abstractmethod
    def _features(self, xp: Any, X: Array) -> np.ndarray:
        """Return features (n, q) of centred active columns (n, a)."""

    @abstractmethod
    def _features_vjp(self, xp: Any, X: Array, U: Array, U_bar: Array) -> tuple[Array, np.ndarray]:
        """Return gradients with respect to X and the logarithms of the features' parameters."""

    def _gather(self, variance: float, features: np.ndarray, shape: float) -> np.ndarray:
        """Return the gradient in the order of ``parameter_names``."""
        return np.concatenate([[variance], features])

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        inputs = check_inputs(X, Z)
        out = check_out(inputs, out)
        U, W = self._both_features(inputs, *self._centred(inputs))
        return self._fill(inputs, self._fused(inputs, U), U, W, out, None)

    def diag(self, X: Array) -> np.ndarray:
        inputs = check_inputs(X)
        columns = select_columns(inputs.X[:0], self.active_dims, type(self).__name__)
        self._features(inputs.xp, columns)  # checks their number
        return inputs.xp.full(len(inputs.X), self._height, dtype=inputs.dtype)

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        namespace(inputs.X, diag_bar)
        by_log = np.zeros(len(self.parameter_names))
        by_log[0] = self._height * number(diag_bar.sum(dtype=np.float64))
        return KernelGradient(by_log, inputs.xp.zeros_like(inputs.X), None)

    @property
    def tiles(self) -> int:
        return 2 if self._keeps_aside else 1

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)
        centred = self._centred(inputs)
        U, W = self._both_features(inputs, *centred)
        device = self._fused(inputs, U)
        K, *rest = check_work(inputs, work, 1 if device else self.tiles)
        aside = rest[0] if rest else None
        self._fill(inputs, device, U, W, K, aside)

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            K_bar = check_cotangent(inputs, K_bar)
            if device:
                by_variance, by_shape, U_bar, W_bar = device.pull(U, W, K_bar)
            else:
                by_variance, by_shape, U_bar, W_bar = self._contract(inputs, K_bar, K, aside, U, W)
            X_bar, by_features = self._features_vjp(inputs.xp, centred[0], U, U_bar)
            Z_bar, also = self._features_vjp(inputs.xp, centred[1], W, W_bar)
            d = inputs.X.shape[1]
            X_bar = scatter_columns(X_bar, self.active_dims, d)
            Z_bar = scatter_columns(Z_bar, self.active_dims, d)
            by_log = self._gather(by_variance, by_features + also, by_shape)
            if inputs.Z is None:
                return KernelGradient(by_log, X_bar + Z_bar, None)
            return KernelGradient(by_log, X_bar, Z_bar)

        return read_only(K), pull

    def weighted(
        self, Z: Array, weights: Weights, X: Array, out: Array | None = None
    ) -> np.ndarray:
        inputs, weights = checked_weights(Z, weights, X)
        U, W = self._both_features(inputs, *self._centred(inputs))
        F = weights.functions(inputs.shape[1], out)
        device = self._fused(inputs, U)
        if device and weights.fits(MOST_COLUMNS):
            columns, starts = weights.runs()
            sums = device.contract(U, weights.beside(), starts, W)
            sums = sums[:, 0] if weights.owner is not None else sums.sum(axis=0)
            F[columns] += sums.astype(F.dtype, copy=False)
            return F
        for patch, K, _, _ in self._patches(inputs, weights, U, W):
            F[patch.columns, patch.rows] += patch.weights @ K
        return F

    def weighted_vjp(
        self, Z: Array, weights: Weights, X: Array, F_bar: Array, by_inputs: bool = True
    ) -> WeightedGradient:
        inputs, weights = checked_weights(Z, weights, X)
        centred = self._centred(inputs)
        U, W = self._both_features(inputs, *centred)
        by_parts = self._scales_vjp is None or by_inputs
        device = None if by_parts else self._fused(inputs, U)
        if device and weights.fits(MOST_COLUMNS):
            return self._learned(device, weights, U, W, F_bar)
        xp = inputs.xp
        U1, W1 = _with_ones(xp, U), _with_ones(xp, W)
        DW, DU, by_shape = xp.zeros(U1.shape, inputs.dtype), xp.zeros(W1.shape, inputs.dtype), 0.0
        by_weights = xp.zeros_like(weights.values)
        for patch, K, aside, D in self._patches(inputs, weights, U, W):
            f_bar = F_bar[patch.columns, patch.rows].astype(inputs.dtype, copy=False)
            weights.collect(patch, f_bar @ K.T, by_weights)
            xp.matmul(patch.weights.T, f_bar, out=D)  # K_bar, which _weigh overwrites
            by_shape += self._weigh(xp, D, K, K if aside is None else aside, D)
            DW[patch.points] += D @ W1[patch.rows]
            DU[patch.rows] += D.T @ U1[patch.points]
        by_points, by_features = self._features_vjp(xp, centred[0], U, self._pulled(DW, U))
        by_rows, also = self._features_vjp(xp, centred[1], W, self._pulled(DU, W))
        d = inputs.X.shape[1]
        by_points = scatter_columns(by_points, self.active_dims, d)
        by_rows = scatter_columns(by_rows, self.active_dims, d)
        # K is proportional to the variance, so this is the sum of K_bar * K
        by_variance = number(xp.vdot(by_weights, weights.values))
        by_log = self._gather(by_variance, by_features + also, by_shape)
        if not by_inputs:
            return WeightedGradient(by_log, by_weights, None, None)
        return WeightedGradient(by_log, by_weights, by_points, by_rows)

    def _learned(
        self, device: Fused, weights: Weights, U: Array, W: Array, F_bar: Array
    ) -> WeightedGradient:
        """Return the gradient of ``weighted`` by weights and parameters, in one pass."""
        S, F_bar = weights.beside(), F_bar.astype(U.dtype, copy=False)
        gradient = device.learn(U, S, weights.column(), W, F_bar)
        by_variance = number((gradient.weights * S).sum())
        by_log = self._gather(by_variance, self._scales_vjp(gradient.squares), gradient.shape)
        by_weights = gradient.weights.astype(U.dtype).reshape(weights.values.shape)
        return WeightedGradient(by_log, by_weights, None, None)

    def _patches(
        self, inputs: Inputs, weights: Weights, U: Array, W: Array
    ) -> Iterator[tuple[Patch, Array, Array | None, Array]]:
        """Yield patches of K(Z, X) with what the derivative needs and scratch, in reused memory."""
        xp, memory = inputs.xp, Tiles(inputs, 3)
        distances = SquaredDistances(xp, U, W, self)
        for patch in weights.patches(inputs.shape[1]):
            strip = Strip(patch.points, patch.rows)
            q, aside, work = memory.of(strip)
            distances.fill(strip, q, work)
            self._evaluate(xp, q, aside, work, distances.coincidence(strip))
            yield patch, q, aside if self._keeps_aside else None, work

    def _pulled(self, DW: Array, U: Array) -> np.ndarray:
        """Return U_bar from [D W, D 1]."""
        pulled: Array = 2 * self._slope * (DW[:, -1:] * U - DW[:, :-1])
        return pulled

    def _centred(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return active columns of X and Z less Z's mean: distances stay, cancellation goes.

        If that mean is far from all rows of X or of Z, the row nearest to the origin is subtracted
        instead.
        """
        xp, X, Z = inputs.xp, inputs.X, inputs.X if inputs.Z is None else inputs.Z
        if self.active_dims is not None:
            X, Z = (select_columns(A, self.active_dims, type(self).__name__) for A in (X, Z))
        if not len(Z):
            return X, Z
        centre = Z.mean(axis=0)
        # this is rare, so the first rows are checked first
        if xp is not np or self._far(xp, xp.concatenate([X[:1], Z[:1]]), centre).any():
            rows = xp.concatenate([X, Z])
            far, nearest = self._far(xp, rows, centre), self._steps(xp, rows, 0.0).argmin()
            n = len(X) or len(rows)
            lost = far[:n].all() | far[-len(Z) :].all()
            centre = xp.where(lost, xp.take(rows, nearest, axis=0), centre)
        return (X - centre, Z - centre) if inputs.Z is not None else (X - centre,) * 2

    def _both_features(self, inputs: Inputs, X: Array, Z: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of centred columns, computed once for K(X, X)."""
        U = self._features(inputs.xp, X)
        return U, U if inputs.Z is None else self._features(inputs.xp, Z)

    def _steps(self, xp: Any, X: Array, centre: Array | float) -> np.ndarray:
        """Return how far the rows of X (n, a) are from the centre in their furthest column (n,)."""
        return (xp.abs(X - centre) / self._units(xp, X)).max(axis=1)

    def _far(self, xp: Any, X: Array, centre: Array) -> np.ndarray:
        """Return which rows of X (n, a) lose digits by centring (n,)."""
        return self._steps(xp, X, centre) > _CENTRED[X.dtype.itemsize]

    def _fill(
        self,
        inputs: Inputs,
        device: Fused | None,
        U: Array,
        W: Array,
        K: Array,
        aside: Array | None,
    ) -> np.ndarray:
        """Fill the tile and, if given, ``aside`` with what the derivative needs, strip by strip."""
        if device:
            return device.tile(U, W, K)
        xp, square = inputs.xp, inputs.Z is None
        distances = SquaredDistances(xp, U, W, self)
        values, keeps, works = (Scratch(inputs) for _ in range(3))
        for strip in strips(inputs, triangle=square):
            # part of a row is slow to work on in place, so triangles are copied in
            q = values.like(K[strip]) if square else K[strip]
            keep = keeps.like(q) if square or aside is None else aside[strip]
            work = works.like(q)
            distances.fill(strip, q, work)
            self._evaluate(xp, q, keep, work, distances.coincidence(strip))
            if square:
                K[strip] = q
            if square and aside is not None:
                aside[strip] = keep
        if square:
            symmetrize(K)
            xp.fill_diagonal(K, self._height)
        if square and aside is not None:
            symmetrize(aside)
        return K

    def _contract(
        self, inputs: Inputs, K_bar: Array, K: Array, aside: Array | None, U: Array, W: Array
    ) -> tuple[float, float, Array, Array]:
        """Return gradients with respect to log variance, log shape and both features.

        With D = K_bar * dk/dr^2:  U_bar = 2 (diag(D 1) U - D W), W_bar = 2 (diag(D' 1) W - D' U).
        """
        xp, (n, m) = inputs.xp, inputs.shape
        U1, W1 = _with_ones(xp, U), _with_ones(xp, W)
        DW = xp.empty((n, U1.shape[1]), dtype=inputs.dtype)
        DU = xp.zeros((m, U1.shape[1]), dtype=inputs.dtype)
        scratch, by_shape = Scratch(inputs), 0.0
        by_variance = xp.zeros((), np.float64)
        for strip in strips(inputs):
            k_bar, k = K_bar[strip], K[strip]
            side = k if aside is None else aside[strip]
            D = scratch.like(k)
            by_variance += xp.vdot(k_bar, k)
            by_shape += self._weigh(xp, k_bar, k, side, D)
            xp.matmul(D, W1, out=DW[strip.rows])
            DU += D.T @ U1[strip.rows]
        return number(by_variance), by_shape, self._pulled(DW, U), self._pulled(DU, W)


class Tiles:
    """Memory for ``count`` parts of a tile at a time, reused for every part."""

    def __init__(self, inputs: Inputs, count: int):
        self._xp, self._dtype, self._count = inputs.xp, inputs.dtype, count
        self._flat = inputs.xp.empty((count, 0), inputs.dtype)

    def of(self, strip: Strip) -> list[Array]:
        """Return contiguous, uninitialised arrays of the strip's shape."""
        shape = strip.rows.stop - strip.rows.start, strip.cols.stop - strip.cols.start
        size = shape[0] * shape[1]
        if size > self._flat.shape[1]:
            self._flat = self._xp.empty((self._count, size), self._dtype)
        return [flat[:size].reshape(shape) for flat in self._flat]


def _with_ones(xp: Any, U: Array) -> np.ndarray:
    return xp.concatenate([U, xp.ones((len(U), 1), dtype=U.dtype)], axis=1)


def replaced(kernel: Any, /, **values: Any) -> Any:
    """Call ``dataclasses.replace`` on a kernel not known as a dataclass to the type checker."""
    return replace(kernel, **values)
