"""Bayesian linear regression from sums over rows, and the sparse GP of Titsias (2009) as one.

Common to random features and to methods with shared inducing inputs.  Letters: features Phi (n, m)
of rows, whose weights have the prior N(0, I); S = Phi' Phi; b = Phi' y; s the noise variance; B = I
+ S / s; β = B^-1 b; Q = Phi Phi'.  What grows with n is summed over tiles of rows, so the numbers
do not depend on how rows are cut into blocks.  Rows with noise variances d of their own are
multiplied by sqrt(s / d), which leaves all with s.

Of the sparse GP: Z inducing inputs (m, d); K = K(X, Z) tile (n, m); L L' = K(Z, Z) + jitter; Phi =
A' = K L^-T, so S = A A' and b = A y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.errors import NumericalError
from daskgp.models import inducing, values
from daskgp.models.additive import Additive
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.trend import contrasts
from daskgp.models.values import (
    Block,
    Footprint,
    Objective,
    Scaled,
    Shape,
    Theta,
    ThetaBar,
)
from daskgp.typing import Array

TILE_ROWS = 1024
"""Rows per tile of the kernel."""
DEVICE_TILES = 64
"""Factor for the rows per tile on a device, which a small tile would leave idle."""


# -- regression ---------------------------------------------------------------------------------


def sums(
    block: Block,
    noise_variance: float,
    m: int,
    tile_rows: int,
    features: Callable[[slice, Any], Array],
) -> tuple[Array, Array, Array, Scaled | None]:
    """Return S, its lower triangle only, b and y'y (p, p) of a block, and its rows as ``Scaled``.

    ``features(rows, root)`` returns Phi of some rows in float64, times ``root`` (rows, 1) unless
    that is None.  There are n m^2 operations beside it.
    """
    xp, scaled = namespace(block.X), Scaled.of(noise_variance, block)
    y = block.y if scaled is None else scaled.y
    gram, projection = xp.zeros((m, m)), xp.zeros((m, y.shape[1]))
    for rows in tiles(len(block.X), tile_rows):
        Phi = features(rows, None if scaled is None else scaled.root[rows, None])
        linalg.add_gram_lower(gram, Phi)
        projection += Phi.T @ y[rows]
    y = y.astype(np.float64, copy=False)
    return gram, projection, y.T @ y, scaled


def tiles(n: int, rows: int) -> Iterator[slice]:
    """Yield slices of at most so many of n rows."""
    return (slice(i, min(i + rows, n)) for i in range(0, n, rows))


class Posterior(NamedTuple):
    """S, both triangles; the factor of B; β; and Y' (Q + s I)^-1 Y of the right sides Y."""

    gram: Array
    factor: Array
    beta: Array
    products: Array


def posterior(s: float, total: Any) -> Posterior:
    """Return the posterior of the weights, N(β / s, B^-1), from the sums over all rows."""
    S = linalg.symmetrize(total.gram.copy())
    factor = inner_factor(S, s)
    beta = linalg.solve_from_factor(factor, total.projection)
    return Posterior(S, factor, beta, (total.square - total.projection.T @ beta / s) / s)


def inner_factor(S: Array, s: float) -> Array:
    """Return the Cholesky factor of B = I + S / s."""
    B = S / s
    linalg.add_to_diagonal(B, 1.0)
    return linalg.cholesky(B, jitter=0.0, overwrite=True)[0]


def misfit(s: float, total: Any) -> float:
    """Return y' (Q + s I)^-1 y."""
    return number(posterior(s, total).products.trace())


class Evidence(NamedTuple):
    """Log evidence log N(y | 0, Q + s I), summed over targets, and its derivatives.

    ``noise`` is dF/dlog s, ``gram`` dF/dS and ``projection`` dF/db; ``weights`` W and the number
    ``targets`` p are those of contrasts, I and all without a trend.
    """

    value: float
    noise: float
    gram: Array
    projection: Array
    weights: Array
    targets: int


def evidence(s: float, total: Any, known: Posterior, trend: int) -> Evidence:
    """Return the log evidence and its derivatives in closed form.

    dF/dS = -p B^-1 / 2s - β W β' / 2s^3 and dF/db = β W / s^2.
    """
    S, factor, beta, products = known
    seen, W, p = contrasts(products, trend, total.rows)
    square, xp = number((W * total.square).sum()), namespace(S)
    weighted = beta @ W
    inverse = linalg.inverse_from_factor(factor)
    explained = number((total.projection * weighted).sum())
    noise = 0.5 * (
        -p * total.rows
        + p * number(xp.vdot(inverse, S)) / s
        + (square - 2 * explained / s + number((weighted * (S @ beta)).sum()) / s**2) / s
    )
    inverse *= -0.5 * p / s
    inverse -= (0.5 / s**3 * weighted) @ beta.T
    value = log_evidence(s, total, factor, seen, p)
    return Evidence(value, float(noise), inverse, weighted / s**2, W, p)


def log_evidence(s: float, total: Any, factor: Array, seen: float, p: int) -> float:
    """Return the log evidence of p targets from the value ``seen`` of their contrasts."""
    rows = total.rows * np.log(2 * np.pi * s) + total.logs
    return float(-0.5 * (p * rows + p * linalg.logdet_factor(factor) + seen))


# -- the sparse GP --------------------------------------------------------------------------------


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


def bound(s: float, total: Stats) -> float:
    """Return Titsias' bound alone."""
    S, factor, _, products = posterior(s, total)
    p = len(products)
    found = log_evidence(s, total, factor, number(products.trace()), p)
    return found - 0.5 * p * _trace_gap(total, S, s) / s


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

        gram, projection, square, scaled = sums(
            block, theta.noise_variance, len(Z), tile_rows, whitened
        )
        prior, logs = theta.kernel.diag(X), 0.0
        if scaled is not None:
            prior, logs = prior * scaled.root**2, scaled.logs
        trace = number(prior.sum(dtype=np.float64))
        return Stats(gram, projection, trace, square, float(len(X)), logs)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Return Titsias' bound, [OPT] eq. 11 (Titsias 2009), and its adjoint in closed form.

        It is the evidence less p tr(K - Q) / 2s, so dF/dS gains p I / 2s.  F depends on K(Z, Z)
        through A alone, so dF/dK(Z, Z) = -L^-T N L^-1 / 2 with the symmetric N = 2 (dF/dS) S +
        (dF/db) b' = p (I - B^-1) S / s + β W β' / s^2, which is p S / s - 2 s dF/dS since
        (I - B^-1) S / s = S / s - (I - B^-1).
        """
        s = prepared.theta.noise_variance
        known = posterior(s, total)
        value, noise, S_bar, b_bar, W, p = evidence(s, total, known, self.trend)
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
        X, y = block.X, block.y
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
        for rows in tiles(len(X), tile_rows):
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
        return misfit(prepared.theta.noise_variance, total)
