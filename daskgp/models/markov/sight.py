"""Lines that cross edges, compiled: a tree of boxes whose leaves are a few edges each.

The letters are those of ``barriers``.  Importing this compiles it, or reads what was compiled
before.
"""

from __future__ import annotations

import math

import numpy as np
from numba.core import types

from daskgp.arrays.lanes import entry, inlined
from daskgp.models.markov.barriers import LEAF

DEPTH = 64
"""Most nodes that wait, more than a tree of boxes has levels."""

_table = types.Array(types.float64, 2, "C", readonly=True)
_numbers = types.Array(types.int64, 1, "C", readonly=True)
_near = types.Array(types.int64, 2, "C", readonly=True)
_mask = types.uint8[:, ::1]


@inlined
def _apart(a, b, rounding):
    return (a > rounding and b < -rounding) or (a < -rounding and b > rounding)


@inlined
def _meet(c, d, rounding):
    return not ((c > rounding and d > rounding) or (c < -rounding and d < -rounding))


@inlined
def _left_of(cx, cy, dx, dy, x, y):
    ex, ey = dx - cx, dy - cy
    length = max(math.sqrt(ex * ex + ey * ey), 1e-300)
    return (ex * (y - cy) - ey * (x - cx)) / length


@inlined
def _above(cx, cy, cz, dx, dy, dz, x, y, z):
    ex, ey, ez = dx - cx, dy - cy, dz - cz
    u, v, w = cy * ez - cz * ey, cz * ex - cx * ez, cx * ey - cy * ex
    length = max(math.sqrt(u * u + v * v + w * w), 1e-300)
    return (u * (x - cx) + v * (y - cy) + w * (z - cz)) / length


@inlined
def _crossed_in_plane(A, B, edge, rounding):
    a = _left_of(edge[0], edge[1], edge[2], edge[3], A[0], A[1])
    b = _left_of(edge[0], edge[1], edge[2], edge[3], B[0], B[1])
    if not _apart(a, b, rounding):
        return False
    c = _left_of(A[0], A[1], B[0], B[1], edge[0], edge[1])
    d = _left_of(A[0], A[1], B[0], B[1], edge[2], edge[3])
    return _meet(c, d, rounding)


@inlined
def _crossed_on_sphere(A, B, edge, rounding):
    a = _above(edge[0], edge[1], edge[2], edge[3], edge[4], edge[5], A[0], A[1], A[2])
    b = _above(edge[0], edge[1], edge[2], edge[3], edge[4], edge[5], B[0], B[1], B[2])
    if not _apart(a, b, rounding):
        return False
    c = _above(A[0], A[1], A[2], B[0], B[1], B[2], edge[0], edge[1], edge[2])
    d = _above(A[0], A[1], A[2], B[0], B[1], B[2], edge[3], edge[4], edge[5])
    if not _meet(c, d, rounding):
        return False
    total = 0.0
    for j in range(3):
        total += (A[j] * abs(b) + B[j] * abs(a)) * (edge[j] + edge[3 + j])
    return total > 0.0


@inlined
def _apart_from(box, A, B, normal, level, bulge, rounding, d):
    """Return whether the line from A to B has no part in a box.

    The line lies at ``level`` along its unit normal, on which the box has a middle and a half
    width.
    """
    middle, half = 0.0, 0.0
    for j in range(d):
        if max(A[j], B[j]) + bulge < box[j] or min(A[j], B[j]) - bulge > box[d + j]:
            return True
        middle += 0.5 * normal[j] * (box[j] + box[d + j])
        half += 0.5 * abs(normal[j]) * (box[d + j] - box[j])
    return abs(middle - level) > half + rounding


_types = _table, _table, _table, _table, _numbers, _near, types.float64, _mask


@entry(*_types)
def cross_in_plane(boxes, edges, at, points, rows, near, rounding, hidden):
    """Put 1 where an edge lies between places ``at[rows]`` and points ``near`` (r, k)."""
    leaves, waiting = (len(boxes) + 1) // 2, np.empty(DEPTH, np.int64)
    normal = np.empty(3)
    for i in range(len(rows)):
        A = at[rows[i]]
        for k in range(near.shape[1]):
            if near[i, k] < 0:
                continue
            B = points[near[i, k]]
            x, y = B[0] - A[0], B[1] - A[1]
            length = max(math.sqrt(x * x + y * y), 1e-300)
            normal[0], normal[1] = -y / length, x / length
            level = normal[0] * A[0] + normal[1] * A[1]
            waiting[0], depth = 0, 1
            while depth:
                depth -= 1
                node = waiting[depth]
                if _apart_from(boxes[node], A, B, normal, level, rounding, rounding, 2):
                    continue
                if node < leaves - 1:
                    waiting[depth], waiting[depth + 1] = 2 * node + 1, 2 * node + 2
                    depth += 2
                    continue
                start = (node - leaves + 1) * LEAF
                for e in range(start, min(start + LEAF, len(edges))):
                    if _crossed_in_plane(A, B, edges[e], rounding):
                        hidden[i, k], depth = 1, 0
                        break


@entry(*_types)
def cross_on_sphere(boxes, edges, at, points, rows, near, rounding, hidden):
    """Put 1 where an edge lies between places ``at[rows]`` and points ``near`` (r, k)."""
    leaves, waiting = (len(boxes) + 1) // 2, np.empty(DEPTH, np.int64)
    normal = np.empty(3)
    for i in range(len(rows)):
        A = at[rows[i]]
        for k in range(near.shape[1]):
            if near[i, k] < 0:
                continue
            B = points[near[i, k]]
            square = (A[0] - B[0]) ** 2 + (A[1] - B[1]) ** 2 + (A[2] - B[2]) ** 2
            bulge = rounding + 1.0 - math.sqrt(max(0.0, 1.0 - square / 4.0))
            x, y, z = B[0] - A[0], B[1] - A[1], B[2] - A[2]
            u, v, w = A[1] * z - A[2] * y, A[2] * x - A[0] * z, A[0] * y - A[1] * x
            length = max(math.sqrt(u * u + v * v + w * w), 1e-300)
            normal[0], normal[1], normal[2] = u / length, v / length, w / length
            waiting[0], depth = 0, 1
            while depth:
                depth -= 1
                node = waiting[depth]
                if _apart_from(boxes[node], A, B, normal, 0.0, bulge, rounding, 3):
                    continue
                if node < leaves - 1:
                    waiting[depth], waiting[depth + 1] = 2 * node + 1, 2 * node + 2
                    depth += 2
                    continue
                start = (node - leaves + 1) * LEAF
                for e in range(start, min(start + LEAF, len(edges))):
                    if _crossed_on_sphere(A, B, edges[e], rounding):
                        hidden[i, k], depth = 1, 0
                        break
