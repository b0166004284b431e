"""Bayesian linear regression from sums over rows: what sparse GPs and random features share.

Letters: features Phi (n, m) of rows, whose weights have the prior N(0, I); S = Phi' Phi; b =
Phi' y; s the noise variance; B = I + S / s; β = B^-1 b; Q = Phi Phi'.  What grows with n is summed
over tiles of rows, so the numbers do not depend on how rows are cut into blocks.  Rows with noise
variances d of their own are multiplied by sqrt(s / d), which leaves all with s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number
from daskgp.models.trend import contrasts
from daskgp.models.values import Block, Scaled
from daskgp.typing import Array


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
