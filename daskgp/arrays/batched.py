"""Small problems of one size, worked on side by side on a device: one alone leaves it idle.

Letters: g sets of n rows with p targets, C_i = K(X_i, X_i) + s I = L_i L_i', alpha_i = C_i^-1 y_i,
s the noise variance.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace
from daskgp.typing import Array

T = TypeVar("T")
R = TypeVar("R")


def alike(items: Sequence[T], size: Callable[[T], Hashable]) -> list[list[int]]:
    """Places of the items of each size, sizes in the order in which they first come.

    Examples
    --------
    >>> alike(["ab", "c", "de"], len)
    [[0, 2], [1]]
    """
    found: dict[Hashable, list[int]] = {}
    for i, item in enumerate(items):
        found.setdefault(size(item), []).append(i)
    return list(found.values())


def by_size(
    items: Sequence[T], size: Callable[[T], Hashable], work: Callable[[list[T]], Iterable[R]]
) -> list[R]:
    """What ``work`` makes of the items of each size, in the order of the items."""
    found: dict[int, R] = {}
    for places in alike(items, size):
        found |= zip(places, work([items[i] for i in places]), strict=True)
    return [found[i] for i in range(len(items))]


class Solved(NamedTuple):
    """Factors L_i (g, n, n), weights alpha_i (g, n, p) and log evidences (g,) of sets of rows."""

    factors: Array
    weights: Array
    values: Array


def solved(K: Array, noise_variance: float, y: Array) -> Solved:
    """Exact GPs of sets of rows, from K(X_i, X_i) (g, n, n), whose memory is used, and their y."""
    n, p = y.shape[1:]
    at = namespace(K, y).arange(n)
    K[:, at, at] += noise_variance
    L = linalg.cholesky_stack(K)
    half = linalg.whiten_stack(L, y.transpose(0, 2, 1))
    values = -0.5 * ((half * half).sum(axis=(1, 2)) + p * linalg.logdet_stack(L))
    alpha = linalg.unwhiten_stack(L, half, overwrite=True).transpose(0, 2, 1)
    return Solved(L, alpha, values - 0.5 * p * n * np.log(2 * np.pi))


def stacked(arrays: Iterable[Array]) -> Array:
    """Arrays of one shape in one of their own, in float64."""
    found = list(arrays)
    return namespace(*found).stack(found).astype(np.float64, copy=False)
