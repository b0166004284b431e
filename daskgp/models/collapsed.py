"""The collapsed sparse GP of Titsias (2009): statistics of rows, their bound and its gradient.

Common to the methods with shared inducing inputs.  Letters: Z inducing inputs (m, d);
K = K(X, Z) tile (n, m); L L' = K(Z, Z) + jitter; A = L^-1 K' (m, n), stored by rows as
A' = K L^-T; S = A A'; b = A y; s the noise variance; B = I + S / s.  Everything that grows with
n is summed over tiles of rows, so the numbers do not depend on how rows are cut into blocks.
Rows with noise variances d of their own are multiplied by sqrt(s / d), which leaves all with s.
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
from daskgp.models.trend import Contrasts, contrasts
from daskgp.models.values import (
    Block,
    Footprint,
    Moments,
    Objective,
    Scaled,
    Shape,
    Theta,
    ThetaBar,
    Want,
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


def summarise(prepared: Prepared, block: Block, tile_rows: int = TILE_ROWS) -> Stats:
    """Return whitened sums over one block's rows: n m^2 operations for A and n m^2 for A A'."""
    X, y, _ = block
    xp = namespace(X)
    tile_rows = _tile_rows(xp, tile_rows)
    theta, dtype = prepared.theta, X.dtype
    scaled = Scaled.of(theta.noise_variance, block)
    y = y if scaled is None else scaled.y
    Z, L = inputs_of(theta).astype(dtype), prepared.factor
    m, p = len(Z), y.shape[1]
    gram, projection = xp.zeros((m, m)), xp.zeros((m, p))
    tile = xp.empty((min(tile_rows, len(X)), m), dtype)
    # a device solves for many rows at a third of the rate at which it multiplies
    inverse = None if xp is np else linalg.inverse_lower_t(L)
    for rows in _tiles(len(X), tile_rows):
        K = theta.kernel(X[rows], Z, out=tile[: rows.stop - rows.start])
        if scaled is not None:
            K *= scaled.root[rows, None]
        whiten = inverse is None
        A = linalg.whiten_rows(L, wide(K), overwrite=True) if whiten else wide(K) @ inverse
        linalg.add_gram_lower(gram, A)
        projection += A.T @ y[rows]
    prior, logs = theta.kernel.diag(X), 0.0
    if scaled is not None:
        prior, logs = prior * scaled.root**2, scaled.logs
    y = y.astype(np.float64, copy=False)
    square = y.T @ y
    trace = number(prior.sum(dtype=np.float64))
    return Stats(gram, projection, trace, square, float(len(X)), logs)


def bound(prepared: Prepared, total: Stats, trend: int = 0) -> Objective:
    """Return Titsias' bound, [OPT] eq. 11 (Titsias 2009), and its adjoint in closed form.

    With β = B^-1 b and W the weights of contrasts, I without a trend:  dF/dS = p (I - B^-1) / 2s -
    β W β' / 2s^3 and dF/db = β W / s^2.  F depends on K(Z, Z) through A alone, so dF/dK(Z, Z) =
    -L^-T N L^-1 / 2 with the symmetric N = 2 (dF/dS) S + (dF/db) b' = p (I - B^-1) S / s +
    β W β' / s^2, which is p S / s - 2 s dF/dS since (I - B^-1) S / s = S / s - (I - B^-1).
    """
    s, n = prepared.theta.noise_variance, total.rows
    S, inner, beta, trace_gap, value, (_, W, p) = _collapse(s, total, trend)
    square, xp = number((W * total.square).sum()), namespace(S)
    weighted = beta @ W
    inverse = linalg.inverse_from_factor(inner)
    explained = number((total.projection * weighted).sum())
    noise = 0.5 * (
        -p * n
        + p * number(xp.vdot(inverse, S)) / s
        + (square - 2 * explained / s + number((weighted * (S @ beta)).sum()) / s**2) / s
        + p * trace_gap / s
    )
    S_bar = inverse  # from here on, in its memory
    S_bar *= -0.5 * p / s
    linalg.add_to_diagonal(S_bar, 0.5 * p / s)
    S_bar -= (0.5 / s**3 * weighted) @ beta.T
    N = S
    N *= p / s
    N -= 2 * s * S_bar
    L = prepared.factor
    gram = 2 * linalg.between_inverses(L, S_bar)
    projection = linalg.solve_lower_t(L, weighted / s**2)
    cotangent = Cotangent(gram, projection, -0.5 * p / s, -0.5 / s * W, p)
    direct = inducing.inputs_vjp(prepared, -0.5 * linalg.between_inverses(L, N))
    assert direct.inputs is not None
    direct = direct._replace(noise=float(noise), inputs=to_host(direct.inputs))
    return Objective(value, direct, cotangent)


def value(noise_variance: float, total: Stats) -> float:
    """Return Titsias' bound alone."""
    return _collapse(noise_variance, total, 0)[4]


def misfit(noise_variance: float, total: Stats) -> float:
    """Return y' (Q + s I)^-1 y."""
    beta = _collapse(noise_variance, total, 0)[2]
    return number(products(noise_variance, total, beta).trace())


def _collapse(
    s: float, total: Stats, trend: int
) -> tuple[Array, Array, Array, float, float, Contrasts]:
    """Return S, the factor of B, B^-1 b, tr(K - Q), the bound and the contrasts."""
    S, b = linalg.symmetrize(total.gram.copy()), total.projection
    inner = inner_factor(S, s)
    beta = linalg.solve_lower_t(inner, linalg.solve_lower(inner, b))
    seen = contrasts(products(s, total, beta), trend, total.rows)
    p = seen.targets
    trace_gap = _trace_gap(total.trace - number(S.trace()), total, s)
    value = -0.5 * (
        p * (total.rows * np.log(2 * np.pi * s) + total.logs)
        + p * linalg.logdet_factor(inner)
        + seen.value
        + p * trace_gap / s
    )
    return S, inner, beta, trace_gap, float(value), seen


def inner_factor(S: Array, s: float) -> Array:
    """Return the Cholesky factor of B = I + S / s."""
    B = S / s
    linalg.add_to_diagonal(B, 1.0)
    return linalg.cholesky(B, jitter=0.0, overwrite=True)[0]


def products(s: float, total: Stats, beta: Array) -> Array:
    """Return Y' (Q + s I)^-1 Y of the right sides Y, with β = B^-1 b."""
    return (total.square - total.projection.T @ beta / s) / s


def pull(
    prepared: Prepared, block: Block, cotangent: Cotangent, tile_rows: int = TILE_ROWS
) -> ThetaBar:
    """Return the gradient through one block's sums: 2 n m^2 operations for the tile's cotangent."""
    X, y, _ = block
    xp = namespace(X)
    tile_rows = _tile_rows(xp, tile_rows)
    kernel, dtype = prepared.theta.kernel, X.dtype
    scaled, noise = Scaled.of(prepared.theta.noise_variance, block), 0.0
    y = y if scaled is None else scaled.y
    Z = inputs_of(prepared.theta).astype(dtype)
    W, V = cotangent.gram, cotangent.projection
    parameters, Z_bar = np.zeros(len(kernel.log_parameters)), xp.zeros(Z.shape)
    shape = min(tile_rows, len(X)), len(Z)
    work, tile = xp.empty((kernel.tiles, *shape), dtype), xp.empty(shape)
    for rows in _tiles(len(X), tile_rows):
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


def _tile_rows(xp: Any, rows: int) -> int:
    return rows if xp is np else DEVICE_TILES * rows


def _tiles(n: int, rows: int) -> Iterator[slice]:
    return (slice(i, min(i + rows, n)) for i in range(0, n, rows))


def _trace_gap(gap: float, total: Stats, s: float) -> float:
    """Return tr(K - Q) >= 0; raise NumericalError if rounding spoils the bound through it."""
    if gap < -max(1e-3 * s * total.rows, 1e-7 * total.trace):
        raise NumericalError(
            f"tr(K - Q) = {gap:.3g} is negative beyond rounding at noise variance {s:.3g}: use "
            "dtype='float64', a larger noise_variance or fewer inducing inputs"
        )
    return gap


def posterior(
    theta: Theta,
    factor: Array,
    weights: Array,
    spread: Callable[[Array], Array],
    X: Array,
    want: Want,
) -> Moments:
    """Return the mean k' weights and the variance k** - |a|^2 + |spread(a)|^2, a = L^-1 k.

    The terms of the variance are added in that order.  ``spread`` maps whitened rows A' (n, m),
    which it may overwrite, to rows (n, r).
    """
    dtype = X.dtype
    K = theta.kernel(X, inputs_of(theta).astype(dtype))
    mean = K @ weights.astype(dtype, copy=False)
    if want == "mean":
        return Moments(mean)
    A = linalg.whiten_rows(factor.astype(dtype, copy=False), K, overwrite=True)
    if want == "variance":
        variance = theta.kernel.diag(X)
        variance -= linalg.row_squares(A)
        variance += linalg.row_squares(spread(A))
        return Moments(mean, variance=variance)
    covariance = theta.kernel(X) - A @ A.T
    C = spread(A)
    covariance += C @ C.T
    return Moments(mean, covariance=covariance)


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
        return summarise(prepared, block, self.tile_rows)

    def combine(self, a: Stats, b: Stats) -> Stats:
        """Return the statistics of both sets of rows."""
        return add(a, b)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Return Titsias' bound, [OPT] eq. 11 (Titsias 2009), and its adjoint in closed form."""
        return bound(prepared, total, self.trend)

    def local_vjp(
        self, prepared: Prepared, block: Block, cotangent: Cotangent, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """Return the gradient through one block's sums: 2 n m^2 operations for the cotangent."""
        return pull(prepared, block, cotangent, self.tile_rows)

    def misfit(self, prepared: Prepared, total: Stats) -> float | None:
        """Return y' (Q + s I)^-1 y."""
        return misfit(prepared.theta.noise_variance, total)
