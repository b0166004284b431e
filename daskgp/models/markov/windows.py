"""Windows: blocks with the rows that they are conditioned on, factored together.

Letters as in ``lma``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays import batched, linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.arrays.batched import stacked
from daskgp.kernels.base import Pullback
from daskgp.models import inducing
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.values import Block, Theta, ThetaBar, by_log_noise, variances
from daskgp.typing import Array

Given: TypeAlias = tuple[Block, Sequence[Block]]
"""A block and those near it."""


class Stats(NamedTuple):
    """Whitened statistics of blocks; sums, so they combine by adding."""

    gram: Array
    """G = E' C^-1 E (m, m)."""
    projection: Array
    """g = E' C^-1 e (m, p)."""
    square: Array
    """e' C^-1 e (p, p)."""
    logdet: float
    """log|C|."""
    rows: float
    """Number of rows."""


class Cotangent(NamedTuple):
    """Derivatives with respect to [E, e]' C^-1 [E, e], symmetric (m + p, m + p), and log|C|."""

    moments: Array
    logdet: float


class Window(NamedTuple):
    """A block and those near it, factored; near rows come first, ``c`` of them.

    On a device, several of one shape have their arrays stacked along a first axis.
    """

    c: int
    noise: Array | None
    """``Block.noise`` of the rows (w, 2)."""
    features: Array
    """A (w, m)."""
    factor: Array
    """L_R (w, w)."""
    whitened: Array
    """(L_R^-1 [A, y])' (m + p, w)."""


class Part(NamedTuple):
    """Sum of the summaries of some windows, and each window with its number among all."""

    stats: Stats
    windows: list[tuple[int, Window]]


def rows_of(block: Block, near: Sequence[Block]) -> Block:
    """Return the rows near a block, then its own."""
    return Block.join([*near, block])


def _columns(A: Array, y: Array) -> Array:
    """Return [A, y]' (m + p, w) in C order."""
    return namespace(A).concatenate([A.T, y.T.astype(np.float64)])


def shape_of(window: Given) -> tuple[int, int]:
    """Return the number of rows near a block, and of its own."""
    block, near = window
    return sum(len(b.X) for b in near), len(block.X)


def side_by_side(prepared: Prepared, windows: Sequence[Given]) -> Window:
    """Return the windows of one shape, factored and stacked."""
    c, _ = shape_of(windows[0])
    rows = [rows_of(*window) for window in windows]
    X, y, noise, _ = Block.join(rows)
    xp, g, w = namespace(X), len(rows), len(rows[0].X)
    if noise is not None:
        noise = noise.reshape(g, w, 2)
    kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(X.dtype)
    # a device solves for many rows at a third of the rate at which it multiplies
    A = wide(kernel(X, Z)) @ linalg.inverse_lower_t(prepared.factor)
    A, R, diagonal = A.reshape(g, w, A.shape[1]), xp.empty((g, w, w)), xp.arange(w)
    for into, own in zip(R, rows, strict=True):
        into[...] = kernel(own.X)
    R -= xp.matmul(A, A.transpose(0, 2, 1))
    R[:, diagonal, diagonal] += variances(prepared.theta.noise_variance, noise)
    L = batched.cholesky_stack(R)
    both = xp.concatenate([A, y.reshape(g, w, y.shape[1]).astype(np.float64)], axis=2)
    whitened = batched.whiten_stack(L, both.transpose(0, 2, 1), overwrite=True)
    return Window(c, noise, A, L, whitened)


def each_of(several: Window) -> Iterator[Window]:
    """Yield each of several stacked windows."""
    noise = itertools.repeat(None) if several.noise is None else several.noise
    return (Window(several.c, *each) for each in zip(noise, *several[2:]))  # noqa: B905


def joined(windows: Sequence[Window]) -> Window:
    """Return windows of one shape, stacked."""
    each = zip(*(w[1:] for w in windows), strict=True)
    return Window(windows[0].c, *(None if own[0] is None else stacked(own) for own in each))


def summary_of(window: Window, targets: int) -> Stats:
    """Return the sums over the rows of a block, or over those of several."""
    factor, own = window.factor[..., window.c :, window.c :], window.whitened[..., window.c :]
    if own.ndim == 3:
        rows = own.shape[0] * own.shape[2]
        own = own.transpose(1, 0, 2).reshape(own.shape[1], rows)
        logdet = number(batched.logdet_stack(factor).sum())
    else:
        logdet = linalg.logdet_factor(factor)
    m = len(own) - targets
    E, e = own[:m], own[m:]
    return Stats(E @ E.T, E @ e.T, e @ e.T, logdet, float(own.shape[1]))


def window_of(prepared: Prepared, block: Block, near: Sequence[Block]) -> Window:
    """Return the window of a block and those near it."""
    theta = prepared.theta
    own, rows = theta.around(block.X), theta.scaled(rows_of(block, near))
    A = features_of(own, prepared.factor, rows.X)
    noise = variances(own.noise_variance, rows.noise)
    L = linalg.cholesky_less(wide(own.kernel(rows.X)), A, noise, overwrite=True)
    return factored_window(L, A, rows, len(rows.X) - len(block.X))


def features_of(theta: Theta, factor: Array, X: Array) -> Array:
    """Return A (n, m) of rows X (n, d); (n, 0) without support inputs, or if theta varies."""
    if theta.inputs is None or theta.varying is not None:
        return namespace(X).zeros((len(X), 0))
    K = wide(theta.kernel(X, theta.inputs.astype(X.dtype)))
    return linalg.whiten_rows(factor, K, overwrite=True)


def factored_window(L: Array, A: Array, rows: Block, c: int) -> Window:
    """Return the window of rows with a residual of factor L (w, w)."""
    whitened = linalg.whiten_rows(L, _columns(A, rows.y), overwrite=True)
    return Window(c, rows.noise, A, L, whitened)


def window_gradient(
    prepared: Prepared,
    window: Window,
    cotangent: Cotangent,
    pulls: Iterable[Pullback],
    pull_S: Pullback,
    dtype: Any,
) -> ThetaBar:
    """Return the gradient through the summary of a window, or of several that are stacked.

    ``pulls`` are those of the windows' own tiles K(X, X) one after another, ``pull_S`` that of
    K(X, S) of all their rows.
    """
    xp, adjoint = namespace(window.factor), _adjoint(prepared, window, cotangent)
    R_bar = adjoint.residual
    by_noise = by_log_noise(
        prepared.theta.noise_variance, window.noise, xp.diagonal(R_bar, 0, -2, -1)
    )
    through = inducing.inputs_vjp(prepared, -0.25 * adjoint.inputs)
    K_bar = adjoint.features.reshape(-1, adjoint.features.shape[-1])
    by_S = pull_S(K_bar.astype(dtype, copy=False), overwrite=True)
    bars = R_bar if R_bar.ndim == 3 else [R_bar]
    by_R = [
        pull(bar.astype(dtype, copy=False), overwrite=True).log_parameters
        for pull, bar in zip(pulls, bars, strict=True)
    ]
    parameters = reduce(np.add, by_R) + by_S.log_parameters + through.kernel
    assert by_S.Z is not None
    assert through.inputs is not None
    return ThetaBar(parameters, number(by_noise.sum()), to_host(by_S.Z + through.inputs))


class Adjoint(NamedTuple):
    """Derivatives with respect to a window's kernels, or to those of several, stacked."""

    residual: Array
    """R_bar (w, w), to be symmetrised."""
    features: Array
    """A_bar L^-1 (w, m), that with respect to K(X, S)."""
    inputs: Array
    """L^-T (A_bar' A + A' A_bar) L^-1 (m, m), summed over the windows."""


def _adjoint(prepared: Prepared, window: Window, cotangent: Cotangent) -> Adjoint:
    """Return the derivatives with respect to a window's kernels.

    P minimises C, so dC = H dR H' and dE = H dA - H dR[:, c] U', U = [A_c, y_c]' R_cc^-1.  With the
    derivatives C_bar and E_bar with respect to C and [E, e], and B = C_bar P + E_bar U, R_bar is
    H' [-B, C_bar].  With V = E_bar U A_c - C_bar E and D = V + E_bar[:, :m], the near rows of A_bar
    are B' E - P' D, its own rows D - C_bar E, and A_bar' A + A' A_bar is E' (D + V) + (D + V)' E.
    """
    xp, c, L, T = namespace(window.factor), window.c, window.factor, window.whitened
    m, L_bb = window.features.shape[-1], L[..., c:, c:]
    w, b = L.shape[-1], L_bb.shape[-1]
    stack = L.ndim == 3
    unwhiten: Callable[..., Array] = batched.unwhiten_stack if stack else linalg.unwhiten_rows
    inverse = batched.inverse_stack if stack else linalg.inverse_from_factor
    # rows of P and of U in one solve
    both = xp.concatenate([L[..., c:, :c], T[..., :c]], axis=-2)
    both = unwhiten(L[..., :c, :c], both, overwrite=True)
    P, U = both[..., :b, :], both[..., b:, :]
    W = unwhiten(L_bb, T[..., c:])  # (C^-1 [E, e])'
    E_bar = _turned(W) @ cotangent.moments
    C_bar = cotangent.logdet * inverse(L_bb)
    C_bar -= E_bar @ W
    E_bar *= 2.0
    CP, B = C_bar @ P, E_bar @ U
    B += CP
    R_bar = xp.empty(L.shape)
    linalg.product(_turned(P), B, R_bar[..., :c, :c])
    R_bar[..., c:, :c] = -(B + CP)  # with what belongs above the diagonal
    R_bar[..., :c, c:] = 0.0
    R_bar[..., c:, c:] = C_bar
    rows = xp.empty((*L.shape[:-2], 4, b, m))
    E, D, DV, F = (rows[..., i, :, :] for i in range(4))  # F = D - C_bar E
    linalg.product(L_bb, _turned(T[..., :m, c:]), E)
    linalg.product(C_bar, E, F)
    linalg.product(E_bar, (T[..., :c] @ _turned(T[..., :c]))[..., :m], DV)  # U A_c, all columns
    DV -= F
    xp.add(DV, E_bar[..., :m], out=D)
    DV += D
    xp.subtract(D, F, out=F)
    rows = linalg.unwhiten_rows(prepared.factor, rows.reshape(-1, m), overwrite=True)
    rows = rows.reshape(*L.shape[:-2], 4 * b, m)
    K_bar = xp.empty((*L.shape[:-2], w, m))
    BP = _turned(xp.concatenate([B, -P], axis=-2))
    linalg.product(BP, rows[..., : 2 * b, :], K_bar[..., :c, :])
    K_bar[..., c:, :] = rows[..., 3 * b :, :]
    N = _turned(rows[..., :b, :]) @ rows[..., 2 * b : 3 * b, :]
    N = N.sum(axis=0) if stack else N
    return Adjoint(R_bar, K_bar, N + N.T)


def _turned(A: Array) -> Array:
    """Return A' of a matrix, or of each of a stack."""
    return namespace(A).moveaxis(A, -1, -2)
