"""Batches of small problems of one size, solved together on a device: one alone leaves it idle.

Letters: g sets of n rows with p targets, C_i = K(X_i, X_i) + s I = L_i L_i', alpha_i = C_i^-1 y_i,
s the noise variance.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import namespace, number
from daskgp.arrays.linalg import (
    BLOCK,
    cholesky,
    common_type,
    inverse_from_factor,
    unwhiten_rows,
    whiten_rows,
)
from daskgp.typing import Array

T = TypeVar("T")
R = TypeVar("R")


def alike(items: Sequence[T], size: Callable[[T], Hashable]) -> list[list[int]]:
    """Return the indices of the items of each size, sizes in order of first appearance.

    Examples
    --------
    >>> alike(["ab", "c", "de"], len)
    [[0, 2], [1]]
    """
    groups: dict[Hashable, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(size(item), []).append(i)
    return list(groups.values())


def by_size(
    items: Sequence[T], size: Callable[[T], Hashable], work: Callable[[list[T]], Iterable[R]]
) -> list[R]:
    """Apply ``work`` to the items of each size and return its results in the order of the items."""
    results: dict[int, R] = {}
    for indices in alike(items, size):
        results |= zip(indices, work([items[i] for i in indices]), strict=True)
    return [results[i] for i in range(len(items))]


class Solved(NamedTuple):
    """Factors L_i (g, n, n), weights alpha_i (g, n, p) and log evidences (g,) of sets of rows."""

    factors: Array
    weights: Array
    values: Array


def solved(K: Array, noise: Any, y: Array) -> Solved:
    """Solve exact GPs of sets of rows from K(X_i, X_i) (g, n, n), overwritten, and y (g, n, p).

    ``noise`` is the noise variance of all rows, or those of each (g, n).
    """
    n, p = y.shape[1:]
    diagonal = namespace(K, y).arange(n)
    K[:, diagonal, diagonal] += noise
    L = cholesky_stack(K)
    half = whiten_stack(L, y.transpose(0, 2, 1))
    values = -0.5 * ((half * half).sum(axis=(1, 2)) + p * logdet_stack(L))
    alpha = unwhiten_stack(L, half, overwrite=True).transpose(0, 2, 1)
    return Solved(L, alpha, values - 0.5 * p * n * np.log(2 * np.pi))


def stacked(arrays: Iterable[Array]) -> Array:
    """Stack arrays of one shape into one, in float64."""
    parts = list(arrays)
    return namespace(*parts).stack(parts).astype(np.float64, copy=False)


def cholesky_stack(A: Array) -> Array:
    """Return factors (g, m, m) of stacked symmetric matrices; as ``cholesky``, jitter from 0.

    Here and below, a stack of one matrix is left to the routines for large ones.
    """
    xp = namespace(A)
    if len(A) == 1:
        return cholesky(A[0], jitter=0.0)[0][None]
    if xp is np or not A.size:
        return xp.stack([cholesky(one, jitter=0.0)[0] for one in A]) if len(A) else A.copy()
    try:
        L = backend.cholesky(xp)(A)
    except np.linalg.LinAlgError:
        L = None
    if L is not None and number(xp.isfinite(xp.diagonal(L, 0, 1, 2)).all()):
        return L
    return xp.stack([cholesky(one, jitter=0.0)[0] for one in A])


def whiten_stack(L: Array, K: Array, overwrite: bool = False) -> Array:
    """Return K_i L_i^-T for stacked factors (g, m, m) and rows (g, n, m).

    Works by column blocks, as ``whiten_rows`` does on the host: products of whole stacks keep a
    device busy, triangular solves of small matrices do not.
    """
    xp, m = namespace(L, K), L.shape[-1]
    if len(L) == 1:
        return whiten_rows(L[0], K[0], overwrite)[None]
    A = K.astype(common_type(L, K), copy=not overwrite)
    for j in range(0, m, BLOCK):
        stop = min(j + BLOCK, m)
        block = A[:, :, j:stop]
        if j:
            block = block - xp.matmul(A[:, :, :j], L[:, j:stop, :j].transpose(0, 2, 1))
        inverse = _inverse_triangles(L[:, j:stop, j:stop])
        A[:, :, j:stop] = xp.matmul(block, inverse.transpose(0, 2, 1))
    return A


def unwhiten_stack(L: Array, A: Array, overwrite: bool = False) -> Array:
    """Return A_i L_i^-1 for stacked factors (g, m, m) and rows (g, n, m), as ``whiten_stack``."""
    xp, m = namespace(L, A), L.shape[-1]
    if len(L) == 1:
        return unwhiten_rows(L[0], A[0], overwrite)[None]
    X = A.astype(common_type(L, A), copy=not overwrite)
    for j in reversed(range(0, m, BLOCK)):
        stop = min(j + BLOCK, m)
        block = X[:, :, j:stop]
        if stop < m:
            block = block - xp.matmul(X[:, :, stop:], L[:, stop:, j:stop])
        X[:, :, j:stop] = xp.matmul(block, _inverse_triangles(L[:, j:stop, j:stop]))
    return X


def inverse_stack(L: Array) -> Array:
    """Return (L_i L_i')^-1 for stacked factors (g, m, m)."""
    xp, m = namespace(L), L.shape[-1]
    if len(L) == 1:
        return inverse_from_factor(L[0])[None]
    eye = xp.broadcast_to(xp.eye(m, dtype=common_type(L)), L.shape)
    half = whiten_stack(L, eye)  # L^-T
    return xp.matmul(half, half.transpose(0, 2, 1))


def logdet_stack(L: Array) -> Array:
    """Return log |L_i L_i'| (g,) for stacked factors (g, m, m)."""
    xp = namespace(L)
    return 2.0 * xp.log(xp.diagonal(L, 0, 1, 2).astype(np.float64)).sum(axis=1)


def _inverse_triangles(L: Array) -> Array:
    """Invert stacked lower triangles (g, m, m), by blocks twice as large in each round.

    The inverse of [[A, 0], [C, B]] has -B^-1 C A^-1 below its diagonal.
    """
    xp, m = namespace(L), L.shape[-1]
    inverse, diagonal = xp.zeros_like(L), xp.arange(m)
    inverse[:, diagonal, diagonal] = 1.0 / L[:, diagonal, diagonal]
    half = 1
    while half < m:
        for left in ([*range(0, m - 2 * half + 1, 2 * half)], [m - m % (2 * half)]):
            low = min(half, m - left[0] - half) if left else 0  # the last one may be cut off
            if low <= 0:
                continue
            first = xp.asarray(np.add.outer(left, np.arange(half)))
            second = xp.asarray(np.add.outer(left, np.arange(half, half + low)))
            A = inverse[:, first[:, :, None], first[:, None, :]]
            C = L[:, second[:, :, None], first[:, None, :]]
            B = inverse[:, second[:, :, None], second[:, None, :]]
            inverse[:, second[:, :, None], first[:, None, :]] = -xp.matmul(B, xp.matmul(C, A))
        half *= 2
    return inverse
