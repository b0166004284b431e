"""Hyper-parameters that vary over space: values at knots, blended in between.

A row conditioned on others may use hyper-parameters of its own: a product of conditional densities
is a joint density whatever they are.  With log theta those of all rows and delta_r the differences
of knot r, a row at x has log theta + sum_r w_r(x) delta_r.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from daskgp.arrays.backend import to_host
from daskgp.typing import Array

BLENDED = 8
"""Most knots that a place blends."""
TALLEST = 0.5
"""Distance over which weights fall, relative to that between neighbouring knots."""


class Blend(NamedTuple):
    """Knots (n, m) that places blend, and their weights (n, m), whose sums are 1."""

    knots: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Varying:
    """A field of hyper-parameters, relative to those that all rows have in common.

    With d_r the distance of knot r and h half the usual distance between knots, it has the weight
    (d_r^2 + h^2)^-2, less that of the first knot that is left out, so that weights are continuous;
    far from all knots they are about the same.

    Parameters
    ----------
    knots : ndarray (K, q)
        Scaled inputs, of some columns.
    logs : ndarray (K, k)
        Logarithms of the hyper-parameters of a kernel, and of the noise variance last, less the
        logarithms of the common ones.
    columns : ndarray (q,)
        Numbers of the columns.
    errors : ndarray (K, k)
        Standard errors of ``logs``; NaN where they are unknown.
    """

    knots: np.ndarray
    logs: np.ndarray
    columns: np.ndarray
    errors: np.ndarray

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Varying) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[tuple[tuple[int, ...], bytes], ...]:
        return tuple((array.shape, array.tobytes()) for array in self.arrays.values())

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: getattr(self, name) for name in ("knots", "logs", "columns", "errors")}

    @cached_property
    def _tree(self) -> tuple[cKDTree, float]:
        """The knots as a tree, and h squared."""
        tree = cKDTree(self.knots)
        if len(self.knots) < 2:
            return tree, 1.0
        between = np.median(np.asarray(tree.query(self.knots, 2)[0])[:, 1])
        return tree, float((TALLEST * between) ** 2) or 1.0

    def blend(self, X: Array) -> Blend:
        """Return the knots that rows X (n, d) of scaled inputs blend."""
        tree, squared = self._tree
        places = np.nan_to_num(np.asarray(to_host(X), np.float64)[:, self.columns])
        count = min(BLENDED + 1, len(self.knots))
        away, near = map(np.asarray, tree.query(places, np.arange(1, count + 1)))
        weights = (away**2 + squared) ** -2.0
        if count > BLENDED:
            weights, near = weights[:, :-1] - weights[:, -1:], near[:, :-1]
            weights += np.finfo(float).eps * weights.max(axis=1, initial=1e-300, keepdims=True)
        return Blend(near, weights / weights.sum(axis=1, keepdims=True))

    @property
    def spread(self) -> np.ndarray:
        """Differences (s, k) of logarithms like those of places: at knots, and halfway between."""
        count = min(BLENDED + 1, len(self.knots))
        near = np.asarray(self._tree[0].query(self.knots, np.arange(1, count + 1))[1])
        halfway: np.ndarray = 0.5 * (self.logs[:, None] + self.logs[near])
        return np.unique(halfway.reshape(-1, self.logs.shape[1]), axis=0)

    def at(self, X: Array) -> np.ndarray:
        """Return the differences (n, k) of logarithms at rows X (n, d) of scaled inputs."""
        return blended(self.blend(X), self.logs)


def blended(blend: Blend, values: np.ndarray) -> np.ndarray:
    """Return values (n, k) at places from those at knots (K, k)."""
    found = np.zeros((len(blend.knots), values.shape[1]))
    for knot, weight in zip(blend.knots.T, blend.weights.T, strict=True):
        found += weight[:, None] * values[knot]
    return found
