"""Sparse grids in the unit cube and the combination technique on them.

Letters ([OPT] section 3.1): d dimensions, level eta.  The partial grid of a multi-index
l = (l_1, ..., l_d), l_j >= 1, has the points (i_1 / 2^l_1, ..., i_d / 2^l_d) with
i_j = 1, ..., 2^l_j - 1; the g multi-indices with eta <= |l|_1 <= eta + d - 1 are combined.  All of
their points are in the sparse grid of level eta, the union of the partial grids with
|l|_1 = eta + d - 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import comb

import numpy as np


@dataclass(frozen=True, eq=False)
class SparseGrid:
    """Distinct points of a sparse grid and the partial grids that they form.

    Attributes
    ----------
    points : ndarray (m, d)
        Points in the unit cube, in lexicographic order.
    levels : ndarray of int (g, d)
        Multi-index of each partial grid.
    members : tuple of g integer ndarrays
        Points of each partial grid, by their numbers in ``points``.
    coefficients : ndarray (g,)
        Coefficients of the combination technique; they sum to 1.
    """

    points: np.ndarray
    levels: np.ndarray
    members: tuple[np.ndarray, ...]
    coefficients: np.ndarray


def build(d: int, level: int) -> SparseGrid:
    """Return the sparse grid of a level in d dimensions; ``n_points`` gives its size beforehand."""
    levels = multi_indices(d, level)
    # all coordinates are integer multiples of 2^-level, so equal points are exactly equal
    parts = [_partial(index, level) for index in levels.tolist()]
    points, places = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    members = tuple(np.split(places.ravel(), ends[:-1]))
    return SparseGrid(points / 2.0**level, levels, members, coefficients(levels, level))


def n_points(d: int, level: int) -> int:
    """Return the number m of points of a sparse grid, without building it.

    Examples
    --------
    >>> [n_points(2, level) for level in range(1, 6)]
    [1, 5, 17, 49, 129]
    >>> n_points(10, 4)
    2001
    """
    return sum(2**q * comb(d - 1 + q, q) for q in range(level))


def largest_level(d: int, most: int) -> int:
    """Return the highest level whose grid has at most ``most`` points (``most`` >= 1)."""
    level, size = 1, 1
    while (size := size + 2**level * comb(d - 1 + level, level)) <= most:
        level += 1
    return level


def multi_indices(d: int, level: int) -> np.ndarray:
    """Return the multi-indices (g, d) of the partial grids that are combined, by rising |l|_1.

    Examples
    --------
    >>> multi_indices(2, 2)
    array([[1, 1],
           [2, 1],
           [1, 2]])
    """
    return 1 + np.array([*_compositions(d, max(level - d, 0), level - 1)])


def coefficients(levels: np.ndarray, level: int) -> np.ndarray:
    """Return the coefficients (g,) of the combination technique, [OPT] eq. 27.

    Examples
    --------
    >>> coefficients(multi_indices(2, 2), 2)
    array([-1.,  1.,  1.])
    """
    d = levels.shape[1]
    sums = levels.sum(axis=1).tolist()
    return np.array([(-1.0) ** (level + d - 1 - q) * comb(d - 1, q - level) for q in sums])


def partial_sizes(levels: np.ndarray) -> np.ndarray:
    """Return the number of points (g,) of each partial grid."""
    sizes: np.ndarray = np.prod(2**levels - 1, axis=1)
    return sizes


def _compositions(d: int, least: int, most: int) -> Iterator[np.ndarray]:
    """Yield the vectors of d integers from 0 whose sum is ``least`` to ``most``."""
    for q in range(least, most + 1):
        for steps in combinations_with_replacement(range(d), q):
            yield np.bincount(np.array(steps, int), minlength=d)


def _partial(index: list[int], level: int) -> np.ndarray:
    """Return the points of one partial grid, as integer multiples of 2^-level."""
    axes = ([i << (level - l) for i in range(1, 1 << l)] for l in index)  # noqa: E741
    return np.array([*product(*axes)])
