"""Nearest earlier points, compiled: a tree of boxes whose nodes know the earliest point in them.

The points of a node are split near the middle of its widest column.  A node is left out if its box
is too far away, or if no point in it is early enough.  Of points as far away the earlier one counts
as nearer, so what is found does not depend on which other points there are, nor on their order.

Importing this compiles it, or reads what was compiled before.
"""

from __future__ import annotations

import numpy as np
from numba.core import types

from daskgp.arrays.lanes import entry, inlined

LEAF = 12
"""Points of a leaf, about."""
SAMPLE = 32
"""Points whose median splits a node."""

_table = types.Array(types.float64, 2, "C", readonly=True)
_order = types.Array(types.uint64, 1, "C", readonly=True)
_lists = types.int64[::1]
_numbers = types.float64[::1]
_rows = types.int64[:, ::1]


@inlined
def _widest(line, points, start, stop, count):
    """Return the widest column of some of the points in line[start:stop], -1 if all are alike."""
    widest, width = -1, 0.0
    step = max(1, (stop - start) // count)
    for c in range(points.shape[1]):
        low, high = np.inf, -np.inf
        for t in range(start, stop, step):
            x = points[line[t], c]
            low, high = min(low, x), max(high, x)
        if high - low > width:
            widest, width = c, high - low
    return widest


@inlined
def _middle(line, points, column, start, stop, sample):
    """Return about the median of a column of the points in line[start:stop]."""
    count = min(len(sample), stop - start)
    for i in range(count):
        x, t = points[line[start + i * (stop - start) // count], column], i
        while t and sample[t - 1] > x:
            sample[t] = sample[t - 1]
            t -= 1
        sample[t] = x
    return sample[count // 2]


@inlined
def _split(line, points, column, start, stop, middle):
    """Put the points up to ``middle`` before those from it on; return where these start."""
    i, j = start, stop - 1
    while i <= j:
        while points[line[i], column] < middle:
            i += 1
        while points[line[j], column] > middle:
            j -= 1
        if i <= j:
            line[i], line[j] = line[j], line[i]
            i += 1
            j -= 1
    return i


@inlined
def _join(boxes, earliest, node, d):
    """Put box and earliest rank of a node from those of its halves."""
    own, one, other = boxes[node], boxes[2 * node + 1], boxes[2 * node + 2]
    for c in range(d):
        own[c], own[d + c] = min(one[c], other[c]), max(one[d + c], other[d + c])
    earliest[node] = min(earliest[2 * node + 1], earliest[2 * node + 2])


@entry(_table, _order, types.int64, _lists, _lists, types.float64[:, ::1], types.uint64[::1])
def _build(points, rank, levels, line, starts, boxes, earliest):
    """Put the order of the points, the starts of leaves, and boxes and earliest ranks of nodes."""
    n, d = points.shape
    sample = np.empty(SAMPLE)
    starts[0], starts[1] = 0, n
    for level in range(levels):
        for j in range(1 << level, 0, -1):  # in place, the last node first
            start, stop = starts[j - 1], starts[j]
            middle, column = (start + stop) >> 1, _widest(line, points, start, stop, SAMPLE)
            if column >= 0:
                median = _middle(line, points, column, start, stop, sample)
                middle = _split(line, points, column, start, stop, median)
            starts[2 * j - 1], starts[2 * j] = middle, stop
    leaves = (1 << levels) - 1
    for j in range(1 << levels):
        box, first = boxes[leaves + j], ~np.uint64(0)
        box[:d], box[d:] = np.inf, -np.inf
        for t in range(starts[j], starts[j + 1]):
            first = min(first, rank[line[t]])
            for c in range(d):
                x = points[line[t], c]
                box[c], box[d + c] = min(box[c], x), max(box[d + c], x)
        earliest[leaves + j] = first
    for node in range(leaves - 1, -1, -1):
        _join(boxes, earliest, node, d)


@inlined
def _beyond(x, box, d):
    """Return the squared distance of x from a box."""
    total = 0.0
    for c in range(d):
        step = max(box[c] - x[c], max(x[c] - box[d + c], 0.0))
        total += step * step
    return total


@inlined
def _after(away, rank, other_away, other_rank):
    """Return whether a point is farther than another, or as far and later."""
    return away > other_away or (away == other_away and rank > other_rank)


@inlined
def _sink(away, ranks, row, size, own_away, own_rank, own_row):
    """Put a point instead of the first one of a heap, whose farthest is first."""
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _after(
            away[child + 1], ranks[child + 1], away[child], ranks[child]
        ):
            child += 1
        if not _after(away[child], ranks[child], own_away, own_rank):
            break
        away[i], ranks[i], row[i] = away[child], ranks[child], row[child]
        i = child
    away[i], ranks[i], row[i] = own_away, own_rank, own_row


@inlined
def _rise(away, ranks, row, size, own_away, own_rank, own_row):
    """Put one more point into a heap."""
    i = size
    while i and _after(own_away, own_rank, away[(i - 1) >> 1], ranks[(i - 1) >> 1]):
        parent = (i - 1) >> 1
        away[i], ranks[i], row[i] = away[parent], ranks[parent], row[parent]
        i = parent
    away[i], ranks[i], row[i] = own_away, own_rank, own_row


@inlined
def _scan(points, rank, start, stop, x, limit, away, ranks, row, count):
    """Put points of a leaf into the heap; return its size."""
    for t in range(start, stop):
        if rank[t] >= limit:
            continue
        total = 0.0
        for c in range(points.shape[1]):
            step = points[t, c] - x[c]
            total += step * step
        if count < len(row):
            _rise(away, ranks, row, count, total, rank[t], t)
            count += 1
        elif _after(away[0], ranks[0], total, rank[t]):
            _sink(away, ranks, row, count, total, rank[t], t)
    return count


@entry(
    _table, _order, types.int64, _lists, _lists, types.float64[:, ::1], types.uint64[::1],
    _table, _order, _rows,
)  # fmt: skip
def _query(points, rank, levels, line, starts, boxes, earliest, at, before, found):
    """Put the nearest points with a rank below ``before`` of each place, nearest first.

    Points and ranks are in the order of the tree.
    """
    d, number, leaves = points.shape[1], found.shape[1], (1 << levels) - 1
    away, ranks = np.empty(number), np.empty(number, np.uint64)
    nodes, bounds = np.empty(levels + 2, np.int64), np.empty(levels + 2)
    for g in range(len(at)):
        x, limit, row, count = at[g], before[g], found[g], 0
        nodes[0], bounds[0], depth = 0, 0.0, 1
        while depth:
            depth -= 1
            node, bound = nodes[depth], bounds[depth]
            if earliest[node] >= limit:
                continue
            if count == number and _after(bound, earliest[node], away[0], ranks[0]):
                continue
            if node >= leaves:
                start, stop = starts[node - leaves], starts[node - leaves + 1]
                count = _scan(points, rank, start, stop, x, limit, away, ranks, row, count)
                continue
            one, other = 2 * node + 1, 2 * node + 2
            far, near = _beyond(x, boxes[one], d), _beyond(x, boxes[other], d)
            if _after(near, earliest[other], far, earliest[one]):  # the nearer comes off first
                one, other, far, near = other, one, near, far
            nodes[depth], bounds[depth] = one, far
            nodes[depth + 1], bounds[depth + 1] = other, near
            depth += 2
        row[count:] = -1
        for size in range(count - 1, 0, -1):
            last = away[size], ranks[size], row[size]
            away[size], ranks[size], row[size] = away[0], ranks[0], row[0]
            _sink(away, ranks, row, size, last[0], last[1], last[2])
        for i in range(count):
            row[i] = line[row[i]]


class Tree:
    """Points (n, d) of which the nearest of low rank are found.

    Parameters
    ----------
    points : (n, d) array
    rank : (n,) array
        Different numbers.
    """

    def __init__(self, points: np.ndarray, rank: np.ndarray) -> None:
        levels = max(0, int(np.ceil(np.log2(max(1, len(points)) / LEAF))))
        nodes, line = (2 << levels) - 1, np.arange(len(points))
        points, rank = _plain(points), np.require(rank, np.uint64, ["C", "A"])
        starts, boxes = (
            np.empty((1 << levels) + 1, np.int64),
            np.empty((nodes, 2 * points.shape[1])),
        )
        self._tree = levels, line, starts, boxes, np.empty(nodes, np.uint64)
        _build(points, rank, *self._tree)
        self._points, self._rank = points[line], rank[line]

    def query(self, at: np.ndarray, before: np.ndarray, number: int) -> np.ndarray:
        """Return the points (g, number) nearest to places (g, d), of ranks below ``before`` (g,).

        The nearest come first, and -1 where there are fewer.
        """
        found, before = np.empty((len(at), number), np.int64), np.require(before, np.uint64, ["C"])
        if number:
            _query(self._points, self._rank, *self._tree, _plain(at), before, found)
        return found


def _plain(points: np.ndarray) -> np.ndarray:
    return np.require(points, np.float64, ["C", "A"])
