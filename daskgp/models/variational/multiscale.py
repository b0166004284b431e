"""Inducing functions with lengthscales of their own: the latent function, smoothed around points.

Letters as in ``basis``.
"""

# ruff: noqa: D102 - the base class documents what its kinds override

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, number, to_host
from daskgp.arrays.linalg import product
from daskgp.checks import shown
from daskgp.errors import InputError, SettingError
from daskgp.kernels import RBF
from daskgp.kernels.checks import (
    Inputs,
    check_cotangent,
    check_inputs,
    column_sums,
    flat,
    read_only,
)
from daskgp.kernels.radial import Scratch, Strip, Tiles, strips
from daskgp.kernels.weights import Patch, Weights, checked_weights
from daskgp.models.variational.inducing_functions import (
    Basis,
    Points,
    Pull,
    Through,
)
from daskgp.typing import Array

SQUARE, DEVICE_SQUARE = 128, 4_096
"""Points per side of a tile of C[P, P]: on the host a few such tiles fit in the cache."""


@dataclass(frozen=True)
class Multiscale(Basis):
    """The latent function smoothed around the points, each with scales of its own: for RBF.

    The covariance of two functions is, with unit amplitude ([DGP] eq. 19),

        prod_j sqrt(2 l_j l'_j / (l_j^2 + l'_j^2)) exp(-(z_j - z'_j)^2 / (l_j^2 + l'_j^2)),

    and f(x) is sqrt(variance) times the function of x whose scales c are 1.

    Raises
    ------
    SettingError
        If the kernel is not an RBF kernel of all columns.

    Examples
    --------
    >>> points = Points(np.array([[0.0]]), np.log([[2.0]]))
    >>> Multiscale(RBF()).values(points, np.array([[0.0]]))[0]  # sqrt(4 / 5)
    array([[0.89442719]])
    """

    kernel: RBF

    def __post_init__(self) -> None:
        kernel, needs = self.kernel, 'basis="generalized" needs an RBF kernel'
        if type(kernel) is not RBF:  # a class derived from it has another formula
            raise SettingError(
                f'{needs}: {type(kernel).__name__} is not one; basis="kernel" takes any kernel'
            )
        dims = kernel.active_dims
        # all columns in their order, some of them in groups, as those of a sphere are
        whole = dims is not None and flat(dims) == list(range(len(flat(dims))))
        if dims is not None and not (whole and any(isinstance(one, tuple) for one in dims)):
            raise SettingError(
                f"{needs}: this one has active_dims={shown(kernel.active_dims)}, leave them out"
            )

    def own(self, P: Points) -> Array:
        inputs = self._checked(P)
        return inputs.xp.ones(len(inputs.X), dtype=inputs.dtype)

    def values(self, P: Points, X: Array) -> tuple[Array, Pull]:
        self._checked(P)
        inputs = check_inputs(X, P.inputs)
        xp, near = inputs.xp, self._against_rows(inputs.Z, P, inputs.X)
        K = xp.empty(inputs.shape, dtype=inputs.dtype)
        for strip in strips(inputs):
            product(near.features[strip.rows], near.factors.T, K[strip])
            xp.exp(K[strip], out=K[strip])

        def pull(K_bar: Array, overwrite: bool = False) -> Through:
            K_bar = check_cotangent(inputs, K_bar)
            moments, scratch = xp.zeros_like(near.factors), Scratch(inputs)
            for strip in strips(inputs):
                D = scratch.like(K[strip])
                xp.multiply(K_bar[strip], K[strip], out=D)
                moments += D.T @ near.features[strip.rows]
            return self._from_moments(near, moments, None)

        return read_only(K), pull

    def gram(self, P: Points) -> tuple[Array, Pull]:
        inputs = self._checked(P)
        xp, size = inputs.xp, len(inputs.X)
        units = self._units(inputs.X)
        side = _side(units, inputs.X, P)
        K = xp.empty((size, size), dtype=inputs.dtype)
        memory = Tiles(inputs, 4)
        for strip in _triangle(xp, size):
            tile, v, r, _ = memory.of(strip)
            _put_covariances(side, side, strip, tile, v, r)
            K[strip] = tile
            K[strip.cols, strip.rows] = tile.T
        xp.fill_diagonal(K, 1.0)

        def pull(K_bar: Array, overwrite: bool = False) -> Through:
            K_bar = check_cotangent(inputs, K_bar)
            memory, into = Tiles(inputs, 4), _Sums(side)
            for strip in _triangle(xp, size):
                D, *work = memory.of(strip)
                D[...] = K_bar[strip]
                if strip.rows != strip.cols:
                    D += K_bar[strip.cols, strip.rows].T
                D *= K[strip]
                _add_sums(side, side, strip, D, work, into, into)
            by_log = self._by_log(0.0, into.by_lengths)
            return Through(by_log, into.gradient(side, units), None, None)

        return read_only(K), pull

    def mixed(self, P: Points, weights: Array, X: Array) -> Array:
        self._checked(P)
        inputs, of = checked_weights(P.inputs, Weights.dense(weights), X)
        near = self._against_rows(inputs.X, P, inputs.Z)
        F = of.functions(inputs.shape[1], None)
        for patch, K, _ in _patches(inputs, of, near):
            F[patch.columns, patch.rows] += patch.weights @ K
        return F

    def mixed_vjp(self, P: Points, weights: Array, X: Array, F_bar: Array) -> Through:
        self._checked(P)
        inputs, of = checked_weights(P.inputs, Weights.dense(weights), X)
        near = self._against_rows(inputs.X, P, inputs.Z)
        xp, moments = inputs.xp, inputs.xp.zeros_like(near.factors)
        by_weights = xp.zeros_like(of.values)
        for patch, K, D in _patches(inputs, of, near):
            f_bar = F_bar[patch.columns, patch.rows].astype(inputs.dtype, copy=False)
            of.collect(patch, f_bar @ K.T, by_weights)
            xp.matmul(patch.weights.T, f_bar, out=D)
            D *= K
            moments[patch.points] += D @ near.features[patch.rows]
        return self._from_moments(near, moments, by_weights)

    def among(self, P: Points, weights: Array, Q: Points) -> Array:
        inputs, of, _, first, second = self._pair(P, weights, Q)
        F, memory = of.functions(inputs.shape[1], None), Tiles(inputs, 3)
        for patch in of.patches(inputs.shape[1]):
            strip = Strip(patch.points, patch.rows)
            K, v, r = memory.of(strip)
            _put_covariances(first, second, strip, K, v, r)
            F[patch.columns, patch.rows] += patch.weights @ K
        return F

    def among_vjp(self, P: Points, weights: Array, Q: Points, F_bar: Array) -> Through:
        inputs, of, units, first, second = self._pair(P, weights, Q)
        xp, by_weights, memory = inputs.xp, inputs.xp.zeros_like(of.values), Tiles(inputs, 5)
        by_first, by_second = _Sums(first), _Sums(second)
        for patch in of.patches(inputs.shape[1]):
            strip = Strip(patch.points, patch.rows)
            K, D, *work = memory.of(strip)
            _put_covariances(first, second, strip, K, work[0], work[1])
            f_bar = F_bar[patch.columns, patch.rows].astype(inputs.dtype, copy=False)
            of.collect(patch, f_bar @ K.T, by_weights)
            xp.matmul(patch.weights.T, f_bar, out=D)
            D *= K
            _add_sums(first, second, strip, D, work, by_first, by_second)
        points, others = by_first.gradient(first, units), by_second.gradient(second, units)
        return Through(self._by_log(0.0, by_first.by_lengths), points, others, by_weights)

    def _checked(self, P: Points) -> Inputs:
        inputs = check_inputs(P.inputs)
        namespace(P.inputs, P.log_scales)  # raises on mixed devices
        if P.log_scales.shape != inputs.X.shape:
            raise InputError(
                f"log_scales has shape {P.log_scales.shape}, the points {inputs.X.shape}: "
                "give one scale per point and column"
            )
        return inputs

    def _units(self, Z: Array) -> _Units:
        d, dims, scale = Z.shape[1], self.kernel.active_dims, self.kernel.lengthscale
        number = (
            len(flat(dims)) if dims is not None else len(scale) if isinstance(scale, tuple) else 1
        )
        if number not in (d, 1 if dims is None else d):
            raise InputError(
                f"RBF has {number} lengthscales, the points have {d} columns: "
                "give one each, or a single one"
            )
        lengths = self.kernel.per_column(d)
        xp = namespace(Z)
        lengths = xp.asarray(lengths, dtype=Z.dtype)
        return _Units(Z.mean(axis=0) if len(Z) else xp.zeros_like(lengths), lengths)

    def _pair(
        self, P: Points, weights: Array, Q: Points
    ) -> tuple[Inputs, Weights, _Units, _Side, _Side]:
        for functions in (P, Q):
            self._checked(functions)
        inputs, of = checked_weights(P.inputs, Weights.dense(weights), Q.inputs)
        units = self._units(inputs.X)
        return inputs, of, units, _side(units, inputs.X, P), _side(units, inputs.Z, Q)

    def _against_rows(self, Z: Array, P: Points, X: Array) -> _AgainstRows:
        """Return the factors of log C[P, f(X)]: all rows have one length, so it is a product.

        log C = log rho + sum_j log(4 a_j (1 - a_j)) / 4 - a_j (u_j - w_j)^2, a = 1 / (1 + c^2).
        """
        xp, units = namespace(Z), self._units(Z)
        u, w = units.of(X), units.of(Z)
        log_scales = P.log_scales.astype(Z.dtype, copy=False)
        a = 1 / (1 + xp.exp(2 * log_scales))
        height = (xp.log(2 * a) + log_scales - 2 * a * w * w).sum(axis=1, keepdims=True) / 2
        height += 0.5 * float(self.kernel.log_parameters[0])
        features = xp.concatenate([u * u, u, xp.ones((len(u), 1), dtype=u.dtype)], axis=1)
        factors = xp.concatenate([-a, 2 * a * w, height], axis=1)
        return _AgainstRows(units, w, a, features, factors)

    def _from_moments(
        self, near: _AgainstRows, moments: Array, by_weights: Array | None
    ) -> Through:
        """Return the gradient from D [u^2, u, 1], D = K_bar * K.

        It is made of the sums of D, D (u - w) and D (u - w)^2.
        """
        w, a, d = near.at, near.share, near.at.shape[1]
        seconds, firsts, whole = moments[:, :d], moments[:, d:-1], moments[:, -1:]
        r = firsts - w * whole
        r2 = seconds - w * (firsts + r)
        by_scales = whole * (a - 0.5) + 2 * a * (1 - a) * r2
        points = Points(2 * a * r / near.units.lengths, by_scales)
        by_variance = 0.5 * number(whole.sum(dtype=np.float64))
        by_log = self._by_log(by_variance, 2 * column_sums(a, r2))
        return Through(by_log, points, None, by_weights)

    def _by_log(self, by_variance: float, by_lengths: Array) -> np.ndarray:
        """Return the gradient for the kernel's log-parameters from those for each length (d,)."""
        by_lengths = self.kernel.per_lengthscale(to_host(by_lengths))
        return np.concatenate([[by_variance], by_lengths])


class _Units(NamedTuple):
    """Origin that inputs are measured from, so that nothing cancels, and lengths: both (d,)."""

    centre: Array
    lengths: Array

    def of(self, X: Array) -> Array:
        return (X - self.centre) / self.lengths


class _AgainstRows(NamedTuple):
    """Factors of log C[P, f(X)] = factors features': (m, 2d + 1) and (n, 2d + 1)."""

    units: _Units
    at: Array
    share: Array
    features: Array
    factors: Array


def _patches(
    inputs: Inputs, of: Weights, near: _AgainstRows
) -> Iterator[tuple[Patch, Array, Array]]:
    """Yield parts of C[P, f(X)] and scratch, in the same memory."""
    memory = Tiles(inputs, 2)
    for patch in of.patches(inputs.shape[1]):
        K, D = memory.of(Strip(patch.points, patch.rows))
        inputs.xp.matmul(near.factors[patch.points], near.features[patch.rows].T, out=K)
        inputs.xp.exp(K, out=K)
        yield patch, K, D


class _Side(NamedTuple):
    """Functions as Gaussians, column by column: their covariance is a normalised product.

    ``at`` (d, m) are means and ``h`` (d, m) variances c^2 / 2 in the kernel's lengths; ``start``
    (m,) is -sum_j log c_j.
    """

    at: Array
    h: Array
    start: Array


def _side(units: _Units, Z: Array, P: Points) -> _Side:
    xp = namespace(Z)
    log_scales = P.log_scales.astype(Z.dtype, copy=False)
    h = xp.exp(2 * log_scales) / 2
    means, h = (xp.ascontiguousarray(A.T) for A in (units.of(Z), h))
    return _Side(means, h, -log_scales.sum(axis=1))


class _Sums:
    """Derivatives for the functions of one side, added up tile by tile."""

    def __init__(self, side: _Side):
        zeros = namespace(side.at).zeros_like
        self.by_at, self.by_h, self.whole = zeros(side.at), zeros(side.h), zeros(side.start)
        self.by_lengths = namespace(side.at).zeros(len(side.at), dtype=np.float64)

    def gradient(self, side: _Side, units: _Units) -> Points:
        by_at, by_scales = self.by_at.T / units.lengths, (0.5 * self.whole + side.h * self.by_h).T
        return Points(*(namespace(A).ascontiguousarray(A) for A in (by_at, by_scales)))


def _triangle(xp: object, size: int) -> Iterator[Strip]:
    """Yield the square parts of the lower triangle of a square tile."""
    step = SQUARE if xp is np else DEVICE_SQUARE
    starts = range(0, size, step)
    for i in starts:
        for j in starts[: i // step + 1]:
            yield Strip(slice(i, min(i + step, size)), slice(j, min(j + step, size)))


def _put_covariances(
    first: _Side, second: _Side, strip: Strip, K: Array, v: Array, r: Array
) -> None:
    """Write exp(-sum_j (r^2 / v + log v - log c - log c') / 2) to K, with v = h + h'.

    The arrays v and r are scratch.
    """
    xp, (rows, cols) = namespace(K), strip
    xp.add(first.start[rows][:, None], second.start[cols], out=K)
    for j in range(len(first.at)):
        xp.add(first.h[j, rows][:, None], second.h[j, cols], out=v)
        xp.subtract(first.at[j, rows][:, None], second.at[j, cols], out=r)
        xp.multiply(r, r, out=r)
        xp.divide(r, v, out=r)
        K += r
        xp.log(v, out=v)
        K += v
    K *= -0.5
    xp.exp(K, out=K)


def _add_sums(
    first: _Side,
    second: _Side,
    strip: Strip,
    D: Array,
    work: list[Array],
    by_first: _Sums,
    by_second: _Sums,
) -> None:
    """Add what D = K_bar * K gives to the sums of both sides, those for lengths to the first."""
    xp, (rows, cols) = namespace(D), strip
    inverse, r, T = work
    left, right = xp.ones(len(D), dtype=D.dtype), xp.ones(D.shape[1], dtype=D.dtype)
    by_first.whole[rows] += D @ right
    by_second.whole[cols] += left @ D
    for j in range(len(first.at)):
        xp.add(first.h[j, rows][:, None], second.h[j, cols], out=inverse)
        xp.divide(1.0, inverse, out=inverse)
        xp.subtract(second.at[j, cols], first.at[j, rows][:, None], out=r)
        xp.multiply(D, inverse, out=T)
        by_first.by_h[j, rows] -= T @ right
        by_second.by_h[j, cols] -= left @ T
        T *= r
        by_first.by_at[j, rows] += T @ right
        by_second.by_at[j, cols] -= left @ T
        T *= r
        by_first.by_lengths[j] += T.sum(dtype=np.float64)
        T *= inverse
        by_first.by_h[j, rows] += T @ right
        by_second.by_h[j, cols] += left @ T
