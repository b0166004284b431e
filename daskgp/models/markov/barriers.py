"""Barriers: edges of polygons that the line between two rows may not cross.

A row sees another one if no edge lies between them: on the straight line in a plane, on the great
circle on the sphere.  Rows are conditioned on rows that they see alone.  Each factor of Vecchia's
product conditions on fewer rows, so that it remains a joint density; the kernel's distance is the
straight one still.

Letters, for the line from A to B and an edge from C to D: a and b are the signed distances of A and
B from the line through C and D, c and d those of C and D from the line through A and B.  The edge
lies between them if a and b have different signs, and c and d do.  A row on the edge itself, to
rounding, is not behind it, and a line through an end of an edge crosses it, so that none slips
through between two edges.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from daskgp.arrays.backend import to_host
from daskgp.models.markov.conditionals import compiled
from daskgp.models.trend import NONE
from daskgp.typing import Array

LEAF = 4
"""Edges of a leaf of the tree."""
BITS = 10
"""Bits of each coordinate by which edges are put in an order along which near ones are near."""
PAIRS = 1 << 20
"""Pairs of a line and an edge that array functions look at together."""
ROUNDING, ROUNDING_32 = 1e-12, 1.2e-7
"""Distance from an edge, relative to the size of coordinates, within which a row is on it."""
SPREAD = 8.0
"""Standard deviations from their mean within which rows lie, for their rounding."""


class Barriers(NamedTuple):
    """Edges of polygons, and how rows of a model are places beside them.

    ``edges`` (e, 2 c) are the c coordinates of one end and of the other: two in a plane, three on
    the unit sphere.  ``axes`` (3, c) are the column of the rows for each coordinate, and the shift
    and scale that make one of the other: x = shift + scale * column.  ``rings`` (v, 2) are those of
    the polygons as they were given, each followed by NaN, which updates look for rows in.
    """

    edges: Array
    axes: Array
    rings: Array = NONE

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(np.size(self.edges))

    def places(self, X: Array) -> np.ndarray:
        """Return rows X (n, d) as places (n, c), on the unit sphere where there is one."""
        columns, shift, scale = to_host(self.axes)
        X = to_host(X)[:, columns.astype(np.int64)]
        found = np.asarray(X, np.float64) * scale + shift
        if found.shape[1] == 3:
            found /= np.sqrt((found * found).sum(axis=1, keepdims=True))
        return np.ascontiguousarray(found)

    def rounding(self, X: Array) -> float:
        """Return the distance from an edge within which rows X (n, d) are taken to be on it."""
        _, shift, scale = to_host(self.axes)
        spread = SPREAD * float(np.abs(scale).max(initial=0.0))
        size = float(np.abs(shift).max(initial=0.0)) + spread
        # of rows in single precision only what is added to the shift is rounded
        return size * ROUNDING + (0.0 if X.dtype.itemsize > 4 else spread * ROUNDING_32)

    def between(self, X: Array, near: Array) -> Sight:
        """Return the sight from rows X (g, d) to rows ``near`` (n, d)."""
        rounding = max(self.rounding(X), self.rounding(near))
        return Sight(to_host(self.edges), self.places(X), self.places(near), rounding)


class Sight:
    """Lines of sight between places.

    Parameters
    ----------
    edges : (e, 2 c) array
    at, points : (g, c) and (n, c) arrays
        Places in a plane or on the unit sphere.
    rounding : float
        Distance within which a place is on an edge.
    """

    edges: np.ndarray
    at: np.ndarray
    points: np.ndarray
    rounding: float

    def __init__(
        self, edges: np.ndarray, at: np.ndarray, points: np.ndarray, rounding: float
    ) -> None:
        self.edges, self.at, self.points, self.rounding = edges, at, points, rounding

    def sees(self, rows: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Return whether places ``at``, by numbers (r,), see points (r, k); not -1, for none."""
        there = near >= 0
        if not len(self.edges) or not there.any():
            return there
        code = compiled("sight")
        if code is None:
            i, j = np.nonzero(there)
            crossed = between(self.edges, self.at[rows[i]], self.points[near[i, j]], self.rounding)
            there[i, j] = ~crossed
            return there
        hidden, tree = np.zeros(near.shape, np.uint8), tree_of(self.edges)
        own = (np.require(one, np.int64, ["C", "A"]) for one in (rows, near))
        cross = code.cross_in_plane if self.edges.shape[1] == 4 else code.cross_on_sphere
        cross(tree.boxes, tree.edges, self.at, self.points, *own, self.rounding, hidden)
        return there & (hidden == 0)


class Tree(NamedTuple):
    """Boxes (nodes, 2 c) of a binary tree, its root first, over edges (e, 2 c) in its order."""

    boxes: np.ndarray
    edges: np.ndarray


def tree_of(edges: np.ndarray) -> Tree:
    """Return the tree of edges, which is kept while these are."""
    known = _TREES.get(id(edges))
    if known is not None and known[0]() is edges:
        return known[1]
    low, high = _boxes(edges)
    order = _along(low + high)
    found = Tree(_tree(low[order], high[order]), np.require(edges[order], np.float64, ["C", "A"]))
    place = id(edges)
    _TREES[place] = weakref.ref(edges, lambda _: _TREES.pop(place, None)), found
    return found


_TREES: dict[int, tuple[weakref.ref[np.ndarray], Tree]] = {}
"""Trees of edges, by where these are in memory."""


def between(
    edges: np.ndarray, starts: np.ndarray, stops: np.ndarray, rounding: float
) -> np.ndarray:
    """Return whether any edge (e, 2 c) lies between starts and stops (r, c), by array functions.

    Examples
    --------
    >>> wall = np.array([[1.0, -1.0, 1.0, 1.0]])
    >>> between(wall, np.zeros((2, 2)), np.array([[2.0, 0.5], [2.0, 3.0]]), 0.0)
    array([ True, False])
    """
    found, c = np.zeros(len(starts), bool), edges.shape[1] // 2
    if not len(starts):
        return found
    ends = np.stack([starts, stops])  # other edges lie beside all lines
    least, most = ends.min(axis=(0, 1)), ends.max(axis=(0, 1))
    (low, high), more = _boxes(edges), _bulge(least[None], most[None]) + rounding
    edges = edges[((low <= most + more) & (high >= least - more)).all(axis=1)]
    step = max(1, PAIRS // max(1, len(edges)))
    pair = _in_plane if c == 2 else _on_sphere
    for i in range(0, len(starts), step):
        own = slice(i, i + step)
        lines = starts[own, None], stops[own, None]
        found[own] = pair(*lines, edges[None, :, :c], edges[None, :, c:], rounding).any(axis=1)
    return found


def _in_plane(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, D: np.ndarray, rounding: float
) -> np.ndarray:
    a, b = (_left_of(C, D, end) for end in (A, B))
    c, d = (_left_of(A, B, end) for end in (C, D))
    return _apart(a, b, rounding) & _meet(c, d, rounding)


def _on_sphere(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, D: np.ndarray, rounding: float
) -> np.ndarray:
    a, b = (_above(C, D, end) for end in (A, B))
    c, d = (_above(A, B, end) for end in (C, D))
    there = A * np.abs(b)[..., None] + B * np.abs(a)[..., None]
    here = (there * (C + D)).sum(axis=-1) > 0  # not on the other side of the sphere
    return _apart(a, b, rounding) & _meet(c, d, rounding) & here


def _left_of(C: np.ndarray, D: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return the distance of A from the line through C and D, negative to the right of it."""
    e, f = D - C, A - C
    length = np.hypot(e[..., 0], e[..., 1])
    return np.asarray((e[..., 0] * f[..., 1] - e[..., 1] * f[..., 0]) / np.maximum(length, 1e-300))


def _above(C: np.ndarray, D: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return the distance of A from the plane of the great circle through C and D."""
    normal = np.cross(C, D - C)
    length = np.sqrt((normal * normal).sum(axis=-1))
    return np.asarray((normal * (A - C)).sum(axis=-1) / np.maximum(length, 1e-300))


def _apart(a: np.ndarray, b: np.ndarray, rounding: float) -> np.ndarray:
    """Return whether distances have different signs, neither of them being rounding."""
    return ((a > rounding) & (b < -rounding)) | ((a < -rounding) & (b > rounding))


def _meet(c: np.ndarray, d: np.ndarray, rounding: float) -> np.ndarray:
    """Return whether distances have different signs, or one is rounding."""
    return ~(((c > rounding) & (d > rounding)) | ((c < -rounding) & (d < -rounding)))


def _boxes(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest coordinates (e, c) of edges."""
    c = edges.shape[1] // 2
    low, high = np.minimum(edges[:, :c], edges[:, c:]), np.maximum(edges[:, :c], edges[:, c:])
    more = _bulge(low, high)
    return low - more, high + more


def _bulge(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return how far arcs between places in boxes (e, c) may lie outside of them (e, 1)."""
    if low.shape[1] == 2:
        return np.zeros((len(low), 1))
    square = ((high - low) ** 2).sum(axis=1, keepdims=True)
    return np.asarray(1.0 - np.sqrt(np.maximum(0.0, 1.0 - square / 4.0)))


def _along(middles: np.ndarray) -> np.ndarray:
    """Return an order (e,) of places (e, c) in which near ones are near: that of Morton."""
    if not len(middles):
        return np.arange(0)
    low, high = middles.min(axis=0), middles.max(axis=0)
    steps = (middles - low) / np.where(high > low, high - low, 1.0) * (2**BITS - 1)
    own, key = steps.astype(np.int64), np.zeros(len(middles), np.int64)
    c = middles.shape[1]
    for bit in range(BITS):
        for j in range(c):
            key |= ((own[:, j] >> bit) & 1) << (bit * c + j)
    return np.argsort(key, kind="stable")


def _tree(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the boxes (nodes, 2 c) of a binary tree over leaves of LEAF boxes, its root first."""
    e, c = low.shape
    leaves = 1 << max(0, int(np.ceil(np.log2(max(1, -(-e // LEAF))))))
    boxes = np.empty((2 * leaves - 1, 2 * c))
    boxes[:, :c], boxes[:, c:] = np.inf, -np.inf
    starts = np.arange(0, e, LEAF)
    if e:
        own = slice(leaves - 1, leaves - 1 + len(starts))
        boxes[own, :c] = np.minimum.reduceat(low, starts, axis=0)
        boxes[own, c:] = np.maximum.reduceat(high, starts, axis=0)
    first = leaves - 1
    while first:
        last, first = first, (first - 1) // 2
        one, other = (boxes[2 * first + j : 2 * last + j : 2] for j in (1, 2))
        boxes[first:last, :c] = np.minimum(one[:, :c], other[:, :c])
        boxes[first:last, c:] = np.maximum(one[:, c:], other[:, c:])
    return boxes
