"""Weights of functions sum_a s_a k(z_a, .): dense, or each function on points of its own.

Letters: Z points (a, d); S weights (a, t), one column per function; F = S' K(Z, X) their values
(t, n) at rows X; bars are derivatives of some objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.errors import InputError
from daskgp.kernels.checks import Inputs, check_inputs
from daskgp.typing import Array

SPARSE_PATCH, DENSE_PATCH, DEVICE_PATCH = (128, 512), (256, 128), (4_096, 4_096)
"""Points and rows of a tile contracted as it is computed; on the host it fits the cache."""

RUN = 4_096
"""Points per run of dense functions, each run being summed separately."""


class Patch(NamedTuple):
    """Part of a tile K(Z, X), the functions that have weights on its points, and those weights.

    ``weights`` (t', points) are those of ``columns``.
    """

    points: slice
    rows: slice
    columns: slice
    weights: Array


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of t functions over a points.

    Parameters
    ----------
    values : (a, t) array, or (a,) where ``owner`` is given
    owner : (a,) int array, optional
        The function that a point belongs to, never decreasing; NumPy, on the host.
    count : int
        Number of functions t.
    """

    values: Array
    owner: np.ndarray | None
    count: int

    @classmethod
    def dense(cls, values: Array) -> Weights:
        """Return dense weights from values (a, t)."""
        return cls(values, None, values.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, i: int, places: np.ndarray) -> np.ndarray:
        """Return the values of some points."""
        return self.values[places]

    def astype(self, dtype: np.dtype) -> Weights:
        """Return the same weights in another dtype."""
        return Weights(self.values.astype(dtype, copy=False), self.owner, self.count)

    def patches(self, n: int) -> Iterator[Patch]:
        """Yield patches of the tile of all points and n rows; the same points share weights."""
        xp = namespace(self.values)
        height, width = SPARSE_PATCH if self.owner is not None else DENSE_PATCH
        if xp is not np:
            height, width = DEVICE_PATCH
        width = -(-n // max(1, -(-n // width)))  # nearly equal, so none is thin
        strips = [self._strip(slice(i, i + height)) for i in range(0, len(self), height)]
        for start in range(0, n, max(width, 1)):
            rows = slice(start, min(start + width, n))
            for points, columns, weights in strips:
                yield Patch(points, rows, columns, weights)

    def _strip(self, points: slice) -> tuple[slice, slice, Array]:
        points = slice(points.start, min(points.stop, len(self)))
        if self.owner is None:
            return points, slice(0, self.count), self.values[points].T
        owner = self.owner[points]
        columns = slice(int(owner[0]), int(owner[-1]) + 1)
        xp = namespace(self.values)
        weights = xp.zeros((columns.stop - columns.start, len(owner)), self.values.dtype)
        weights[xp.asarray(owner - owner[0]), xp.arange(len(owner))] = self.values[points]
        return points, columns, weights

    def fits(self, most: int) -> bool:
        """Return True if functions can be summed by runs: at most ``most`` dense, or any sparse."""
        return len(self) > 0 and (self.owner is not None or self.count <= most)

    def runs(self) -> tuple[slice, np.ndarray]:
        """Return the functions that have points, and where runs of points begin and the last ends.

        A run is all points of one function, or some points of all of them.
        """
        if self.owner is None:
            parts = -(-len(self) // RUN)
            return slice(0, self.count), np.linspace(0, len(self), parts + 1).astype(np.int64)
        first, last = int(self.owner[0]), int(self.owner[-1])
        starts = np.searchsorted(self.owner, np.arange(first, last + 2))
        return slice(first, last + 1), starts

    def beside(self) -> np.ndarray:
        """Return the weights of each point side by side (a, t), or (a, 1) for one function."""
        return self.values if self.owner is None else self.values[:, None]

    def column(self) -> np.ndarray:
        """Return the first of the functions of each point (a,)."""
        return np.zeros(len(self), np.int64) if self.owner is None else self.owner

    def collect(self, patch: Patch, found: Array, into: Array) -> None:
        """Add derivatives (t', points) by a patch's weights to those by all, like values."""
        if self.owner is None:
            into[patch.points] += found.T
            return
        owner = self.owner[patch.points]
        xp = namespace(found)
        into[patch.points] += found[xp.asarray(owner - owner[0]), xp.arange(len(owner))]

    def functions(self, n: int, out: Array | None) -> np.ndarray:
        """Return ``out`` (t, n), or zeros of that shape."""
        if out is None:
            return namespace(self.values).zeros((self.count, n), self.values.dtype)
        if out.shape != (self.count, n):
            raise InputError(f"out has shape {out.shape}, {(self.count, n)} is needed")
        return out

    def times(self, F: Array) -> np.ndarray:
        """Return F S (q, t) for F (q, a)."""
        result = namespace(F).zeros((len(F), self.count), F.dtype)
        for points, _, columns, S in self.patches(1):
            result[:, columns] += F[:, points] @ S.T
        return result

    def spread(self, M: Array) -> np.ndarray:
        """Return M S' (q, a) for M (q, t)."""
        if self.owner is None:
            return M @ self.values.T
        return M[:, namespace(M).asarray(self.owner)] * self.values

    def pulled(self, P: Array) -> np.ndarray:
        """Return the entries, like values, of a derivative by S' (t, a)."""
        if self.owner is None:
            return P.T
        xp = namespace(P)
        return P[xp.asarray(self.owner), xp.arange(len(self))]

    def check(self, points: int) -> None:
        """Raise InputError unless there is a weight for each of that many points."""
        if len(self) != points:
            raise InputError(f"{len(self)} weights for {points} points: they must agree")


class WeightedGradient(NamedTuple):
    """Gradient through F with respect to the logs of the kernel's parameters (k,) and the rest.

    ``log_parameters`` is float64 on the host; ``weights``, like the values of the weights,
    ``points`` (a, d) and ``rows`` (n, d), with respect to Z and X, have the dtype and device of the
    inputs; the last two are None if not wanted.
    """

    log_parameters: np.ndarray
    weights: Array
    points: Array | None
    rows: Array | None


def checked_weights(Z: Array, weights: Weights, X: Array) -> tuple[Inputs, Weights]:
    """Return points, rows and weights of one dtype and of matching sizes; the rows are ``.Z``."""
    inputs = check_inputs(Z, X)
    namespace(inputs.X, weights.values)  # raises if they are on two devices
    weights.check(len(inputs.X))
    return inputs, weights.astype(inputs.dtype)
