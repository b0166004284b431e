"""The collapsed sparse GP of Titsias (2009): statistics of rows, their bound and its gradient.

Common to the methods with shared inducing inputs.  Letters: Z inducing inputs (m, d);
K = K(X, Z) tile (n, m); L L' = K(Z, Z) + jitter; A = L^-1 K' (m, n), stored by rows as
A' = K L^-T, the features of a regression; others as in regression.py: S = A A'; b = A y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.errors import NumericalError
from daskgp.models import inducing, regression, values
from daskgp.models.additive import Additive
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.values import (
    Block,
    Footprint,
    Objective,
    Scaled,
    Shape,
    Theta,
    ThetaBar,
    add,
)
from daskgp.typing import Array

TILE_ROWS = 1024
"""Rows per tile of the kernel."""
DEVICE_TILES = 64
"""Factor for the rows per tile on a device, which a small tile would leave idle."""


class Stats(NamedTuple):
    """Whitened statistics of a set of rows; sums, so they combine by adding."""

    gram: Array
    """S = A A' (m, m), lower triangle only."""
    projection: Array
    """b = A y (m, p)."""
    trace: float
    """Sum of k(x, x)."""
    square: Array
    """y'y (p, p)."""
    rows: float
    """Number of rows."""
    logs: float = 0.0
    """Sum of log(d / s) of rows whose noise variance d is not s; they are scaled by sqrt(s / d)."""


class Cotangent(NamedTuple):
    """Terms of a tile's gradient: dF/dK = K @ gram + y @ projection', dF/dtrace, dF/dsquare.

    ``targets`` is their number, trend functions not counted.
    """

    gram: Array
    projection: Array
    trace: float
    square: Array
    targets: int


def value(s: float, total: Stats) -> float:
    """Return Titsias' bound alone."""
    S, factor, _, products = regression.posterior(s, total)
    p = len(products)
    evidence = regression.log_evidence(s, total, factor, number(products.trace()), p)
    return evidence - 0.5 * p * _trace_gap(total, S, s) / s


def _tile_rows(xp: Any, rows: int) -> int:
    return rows if xp is np else DEVICE_TILES * rows


def _trace_gap(total: Stats, S: Array, s: float) -> float:
    """Return tr(K - Q) >= 0; raise NumericalError if rounding spoils the bound through it."""
    gap = total.trace - number(S.trace())
    if gap < -max(1e-3 * s * total.rows, 1e-7 * total.trace):
        raise NumericalError(
            f"tr(K - Q) = {gap:.3g} is negative beyond rounding at noise variance {s:.3g}: use "
            "dtype='float64', a larger noise_variance or fewer inducing inputs"
        )
    return gap


def footprint(shape: Shape, tile_rows: int = TILE_ROWS) -> Footprint:
    """Return the footprint of the sums: 4 n m^2 operations.

    A task has the kernel's tiles and two in float64, L and two summaries.  The solve has S, the
    factors of prediction and what its gradient takes besides the tiles of K(Z, Z): ten
    matrices.  L and the cotangent go to all tasks.  A store holds half of S and of both factors, as
    zeros take no space in it.
    """
    m, p = shape.inputs, shape.targets
    tile = min(tile_rows * (DEVICE_TILES if shape.device else 1), shape.block_rows) * m
    stats = 8 * (m * m + m * p + p + 2)
    return Footprint(
        task=(shape.kernel_tiles * shape.itemsize + 2 * 8) * tile + 2 * stats + 8 * m * m,
        stats=stats,
        solve=(shape.kernel_tiles + 10) * 8 * m * m,
        state=8 * (m * m // 2 + m * p) + stats,
        operations=4.0 * shape.rows * m * m,
        predict=8 * m * (2 * m + p + values.TILE_ROWS),
        shared=2 * 8 * m * m,
    )


class Collapsed(Additive):
    """Base of methods that reduce to these sums; they add ``posterior`` and ``predict``."""

    jitter: float
    tile_rows: int
    trend: int = 0

    stats_type: ClassVar[Any] = Stats
    takes_noise: ClassVar[bool] = True

    def prepare(self, theta: Theta) -> Prepared:
        """Compute the Cholesky factor of K(Z, Z)."""
        return inducing.prepare(theta, self.jitter)

    def local(self, prepared: Prepared, block: Block, near: Sequence[Block] = ()) -> Stats:
        """Return whitened sums over one block's rows: n m^2 operations for A and n m^2 for A A'."""
        X, xp, theta, dtype = block.X, namespace(block.X), prepared.theta, block.X.dtype
        tile_rows = _tile_rows(xp, self.tile_rows)
        Z, L = inputs_of(theta).astype(dtype), prepared.factor
        tile = xp.empty((min(tile_rows, len(X)), len(Z)), dtype)
        # a device solves for many rows at a third of the rate at which it multiplies
        inverse = None if xp is np else linalg.inverse_lower_t(L)

        def whitened(rows: slice, root: Any) -> Array:
            K = theta.kernel(X[rows], Z, out=tile[: rows.stop - rows.start])
            if root is not None:
                K *= root
            if inverse is None:
                return linalg.whiten_rows(L, wide(K), overwrite=True)
            return wide(K) @ inverse

        gram, projection, square, scaled = regression.sums(
            block, theta.noise_variance, len(Z), tile_rows, whitened
        )
        prior, logs = theta.kernel.diag(X), 0.0
        if scaled is not None:
            prior, logs = prior * scaled.root**2, scaled.logs
        trace = number(prior.sum(dtype=np.float64))
        return Stats(gram, projection, trace, square, float(len(X)), logs)

    def combine(self, a: Stats, b: Stats) -> Stats:
        """Return the statistics of both sets of rows."""
        return add(a, b)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Return Titsias' bound, [OPT] eq. 11 (Titsias 2009), and its adjoint in closed form.

        It is the evidence less p tr(K - Q) / 2s, so dF/dS gains p I / 2s.  F depends on K(Z, Z)
        through A alone, so dF/dK(Z, Z) = -L^-T N L^-1 / 2 with the symmetric N = 2 (dF/dS) S +
        (dF/db) b' = p (I - B^-1) S / s + β W β' / s^2, which is p S / s - 2 s dF/dS since
        (I - B^-1) S / s = S / s - (I - B^-1).
        """
        s = prepared.theta.noise_variance
        known = regression.posterior(s, total)
        value, noise, S_bar, b_bar, W, p = regression.evidence(s, total, known, self.trend)
        lost = 0.5 * p * _trace_gap(total, known.gram, s) / s
        linalg.add_to_diagonal(S_bar, 0.5 * p / s)
        N = known.gram  # from here on, in its memory
        N *= p / s
        N -= 2 * s * S_bar
        L = prepared.factor
        gram = 2 * linalg.between_inverses(L, S_bar)
        cotangent = Cotangent(gram, linalg.solve_lower_t(L, b_bar), -0.5 * p / s, -0.5 / s * W, p)
        direct = inducing.inputs_vjp(prepared, -0.5 * linalg.between_inverses(L, N))
        assert direct.inputs is not None
        direct = direct._replace(noise=noise + lost, inputs=to_host(direct.inputs))
        return Objective(value - lost, direct, cotangent)

    def local_vjp(
        self, prepared: Prepared, block: Block, cotangent: Cotangent, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """Return the gradient through one block's sums: 2 n m^2 operations for the cotangent."""
        X, y, _ = block
        xp = namespace(X)
        tile_rows = _tile_rows(xp, self.tile_rows)
        kernel, dtype = prepared.theta.kernel, X.dtype
        scaled, noise = Scaled.of(prepared.theta.noise_variance, block), 0.0
        y = y if scaled is None else scaled.y
        Z = inputs_of(prepared.theta).astype(dtype)
        W, V = cotangent.gram, cotangent.projection
        parameters, Z_bar = np.zeros(len(kernel.log_parameters)), xp.zeros(Z.shape)
        shape = min(tile_rows, len(X)), len(Z)
        work, tile = xp.empty((kernel.tiles, *shape), dtype), xp.empty(shape)
        for rows in regression.tiles(len(X), tile_rows):
            size = rows.stop - rows.start
            K, through = kernel.pullback(X[rows], Z, work[:, :size])
            if scaled is None:
                K_bar = xp.matmul(wide(K), W, out=tile[:size])
                K_bar += y[rows] @ V.T
            else:
                K_bar, more = scaled.pulled(wide(K), cotangent, rows)
                noise += more
            gradient = through(K_bar.astype(dtype, copy=False))
            parameters += gradient.log_parameters
            Z_bar += gradient.Z
        weights = xp.full(len(X), cotangent.trace, dtype)
        if scaled is not None:
            weights *= (scaled.root**2).astype(dtype, copy=False)
            noise += number((scaled.share * (weights * kernel.diag(X))).sum(dtype=np.float64))
            noise += 0.5 * cotangent.targets * number(scaled.share.sum())
        parameters += kernel.diag_vjp(X, weights).log_parameters
        return ThetaBar(parameters, noise, to_host(Z_bar))

    def misfit(self, prepared: Prepared, total: Stats) -> float | None:
        """Return y' (Q + s I)^-1 y."""
        return regression.misfit(prepared.theta.noise_variance, total)
