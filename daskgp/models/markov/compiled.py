"""Conditionals of rows, compiled: eight windows side by side, each number of a window a vector.

Letters as in ``conditionals``: windows of w = k + 1 rows, the own row last.  Memory, capital
letters, holds each entry of eight windows side by side.  Symmetric matrices are lower triangles by
rows, and rows beyond w, the columns of y, follow; where L is, the diagonal holds its inverses.
Rows that are not there are rows of the identity.

- F: features of the columns of leaves, (3 columns, w): x / scale; sqrt(v) x of linear leaves; of
  periodic ones all cosines, all sines, all angles; codes of those over categories
- V, S, B: tiles of leaves, their -2 dk/dr^2 and derivatives by the logarithm of their shape
- D, C: of leaves that are averages, derivatives by the logarithms of their scales, and numbers of
  nodes of rows, 1 for points
- M: the covariance, then L
- E: vectors w, then [beta, 0] of each column of y
- H: variances of the rows, without what features explain
- N: derivatives of the noise variances by the logarithm of the one that is learned
- O, R: a row of what a leaf is multiplied by, and of a derivative of K
- P: hyper-parameters, which may be those of each window, the noise variance last; then room for
  the scale of a feature
- G: w'dS_j v for each hyper-parameter j and vector v in E

Importing this compiles it, or reads what was compiled before.
"""

from __future__ import annotations

import math

import numpy as np
from numba.core import types

from daskgp.arrays.lanes import (
    LANES,
    entry,
    exponential,
    fill,
    inlined,
    largest,
    load,
    moved,
    muladd,
    negative,
    part,
    pointer,
    root,
    smallest,
    store,
    total,
)
from daskgp.kernels.program import (
    LINEAR,
    MATERN12,
    MATERN32,
    MATERN52,
    PERIODIC,
    RATIONAL,
    TABLE,
    Program,
)
from daskgp.models.markov.search import Tree

__all__ = ["Tree", "combined", "windows"]

REVISION = 4
"""Number to raise when what is taken from other files changes: numba looks at this file alone."""
TINY = 1e-150
"""Stands for a distance of zero where it is divided by."""

_list = types.Array(types.int64, 1, "C", readonly=True)
_lists = types.Array(types.int64, 2, "C", readonly=True)
_table = types.Array(types.float64, 2, "C", readonly=True)
_vector = types.Array(types.float64, 1, "C", readonly=True)


@inlined
def _row(i, w):
    """Return where row i of a triangle of w rows begins, or a row that follows it."""
    if i < w:
        return LANES * (i * (i + 1) // 2)
    return LANES * (w * (w + 1) // 2 + (i - w) * w)


@inlined
def _leaf(leaves, f):
    """Return code, first hyper-parameter, and first and last but one column of a leaf."""
    return leaves[4 * f], leaves[4 * f + 1], leaves[4 * f + 2], leaves[4 * f + 3]


@inlined
def _nodes(code, levels, f):
    """Return the number of nodes of a leaf, 1 unless it is of averages."""
    return max(levels[3 * f], 1) if code != TABLE else 1


@part
def _take_rows(own, near, first, count, w, rows):
    """Put the numbers of the rows of eight windows in ``rows``; the last window is repeated."""
    for lane in range(LANES):
        window = min(first + lane, count - 1)
        for i in range(w - 1):
            rows[i * LANES + lane] = near[window * (w - 1) + i]
        rows[(w - 1) * LANES + lane] = own[window]


@part
def _take_values(values, step, number, first, count, P):
    """Put the hyper-parameters of eight windows in P, which begin every ``step`` values."""
    for t in range(number * LANES):
        P[t] = values[min(first + t % LANES, count - 1) * step + t // LANES]


@part
def _take_features(leaves, leaf_count, columns, levels, P, scales, X, d, rows, w, F):
    """Put the features of the rows in F."""
    last = (w - 1) * LANES
    for f in range(leaf_count):
        code, first, start, stop = _leaf(leaves, f)
        shift, wide = (stop - start) * w * LANES, moved(P, (first + 1) * LANES)
        once = (stop - start) // _nodes(code, levels, f)
        for e in range(start, stop):
            of_own = columns[2 * (start + (e - start) % once)]  # the same for all nodes
            column, by = columns[2 * e], columns[2 * e + 1] * LANES
            if code == LINEAR:
                store(scales, 0, root(load(P, by)))
            elif code == TABLE:
                store(scales, 0, fill(1.0))
            else:
                store(scales, 0, fill(1.0) / load(P, by))
            feature = moved(F, (2 * start + e) * w * LANES)
            for t in range(w * LANES):
                own = rows[last + t % LANES]
                row = rows[t] if rows[t] >= 0 else own
                centre = 0.0 if code in (LINEAR, TABLE) else X[own * d + of_own]
                # differences lose no digits
                turns = (X[row * d + column] - centre) * scales[t % LANES]
                feature[t] = turns
                if code == PERIODIC:
                    feature[t + 2 * shift] = math.pi * turns
                    turns = 2.0 * math.pi * (turns - math.floor(turns + 0.5))
                    feature[t] = math.cos(turns) / wide[t % LANES]
                    feature[t + shift] = math.sin(turns) / wide[t % LANES]


@inlined
def _squared(F, count, w, i, j):
    """Return the sums of squared differences of the first features of rows i and j."""
    squares = fill(0.0)
    for e in range(0, count * w * LANES, w * LANES):
        step = load(F, e + i * LANES) - load(F, e + j * LANES)
        squares = muladd(step, step, squares)
    return squares


@inlined
def _looked_up(F, tables, begin, count, i, j, into):
    """Put the entries of a table for the codes of rows i and j in ``into``."""
    for lane in range(LANES):
        row, column = int(F[i * LANES + lane]), int(F[j * LANES + lane])
        into[lane] = tables[begin + row * count + column]


@inlined
def _multiplied(F, count, w, i, j):
    """Return the sums of products of the first features of rows i and j."""
    products = fill(0.0)
    for e in range(0, count * w * LANES, w * LANES):
        products = muladd(load(F, e + i * LANES), load(F, e + j * LANES), products)
    return products


@inlined
def _turned(F, count, w, i, j):
    """Return half the derivative of a periodic kernel's r^2 by the logarithm of its period."""
    turned, shift = fill(0.0), count * w * LANES
    for e in range(0, shift, w * LANES):
        at, other = e + i * LANES, e + j * LANES
        step = load(F, at + 2 * shift) - load(F, other + 2 * shift)
        double = load(F, at + shift) * load(F, other) - load(F, at) * load(F, other + shift)
        turned = muladd(step, double, turned)
    return turned


@inlined
def _profile(code, r2, height):
    """Return k and -2 dk/dr^2 of a kernel of r^2 without a shape."""
    exponent, s = fill(-0.5) * r2, fill(1.0)
    if code == MATERN12:
        s = root(r2)
        exponent = negative(s)
    elif code in (MATERN32, MATERN52):
        s = root(fill(3.0 if code == MATERN32 else 5.0) * r2)
        exponent = negative(s)
    k = height * exponential(exponent)
    slope = k
    if code == MATERN12:
        slope = k / largest(s, fill(TINY))
    elif code == MATERN32:
        slope = fill(3.0) * k
        k = muladd(s, k, k)
    elif code == MATERN52:
        slope = muladd(s, k, k)
        k = muladd(fill(1.0 / 3.0) * (s * s), k, slope)
        slope = fill(5.0 / 3.0) * slope
    return k, slope


@part
def _radial(code, v, alpha, V, entries, S, B, slopes):
    """Turn r^2 in V into k, with -2 dk/dr^2 in S and the derivative by log shape in B."""
    height, shape, one = load(v, 0), load(alpha, 0), fill(1.0)
    for at in range(0, entries, LANES):
        r2 = load(V, at)
        if code == RATIONAL:
            r2 = fill(0.5) / shape * r2
            store(V, at, r2)
            for lane in range(at, at + LANES):
                V[lane] = math.log1p(V[lane])
            log = load(V, at)
            inverse = one / (one + r2)
            k = height * exponential(negative(shape) * log)
            slope = k * inverse
            if slopes:
                store(B, at, negative(shape) * k * (inverse - one + log))
        else:
            k, slope = _profile(code, r2, height)
        store(V, at, k)
        if slopes:
            store(S, at, slope)


@part
def _take_nodes(F, once, nodes, w, C):
    """Put the number of nodes of each row in C: 1 where they are one place in all windows."""
    size = w * LANES
    for i in range(w):
        C[i] = 1.0
        for e in range(once * size, nodes * once * size, size):
            for at in range(i * LANES, (i + 1) * LANES):
                if F[e + at] != F[e % (once * size) + at]:
                    C[i] = float(nodes)


@part
def _average(code, v, columns, start, once, weights, w, F, C, V, D, entries, slopes):
    """Put the tile of averages over pairs of nodes in V, and derivatives by scales in D."""
    height, size, tile = load(v, 0), w * LANES, 0
    for i in range(w):
        for j in range(i + 1):
            average, many, more = fill(0.0), int(C[i]), int(C[j])
            for e in range(once * slopes):
                store(D, columns[2 * (start + e) + 1] * entries + tile, fill(0.0))
            for a in range(many):
                for b in range(more):
                    weight = weights[a] if many > 1 else 1.0
                    weight *= weights[b] if more > 1 else 1.0
                    own, other = (a * once * w + i) * LANES, (b * once * w + j) * LANES
                    squares = fill(0.0)
                    for e in range(0, once * size, size):
                        step = load(F, own + e) - load(F, other + e)
                        squares = muladd(step, step, squares)
                    k, slope = _profile(code, squares, height)
                    average = muladd(fill(weight), k, average)
                    slope = fill(weight) * slope
                    for e in range(once * slopes):
                        step = load(F, own + e * size) - load(F, other + e * size)
                        at = columns[2 * (start + e) + 1] * entries + tile
                        store(D, at, muladd(slope * step, step, load(D, at)))
            store(V, tile, average)
            tile += LANES


@part
def _take_leaves(
    leaves, leaf_count, columns, levels, tables, P, F, w, V, S, B, D, C, slopes
):  # fmt: skip
    """Put the tiles of the leaves in V, with S, B and D if ``slopes``."""
    entries = LANES * (w * (w + 1) // 2)
    for f in range(leaf_count):
        code, first, start, stop = _leaf(leaves, f)
        tile, features, number = (
            moved(V, f * entries),
            moved(F, 3 * start * w * LANES),
            stop - start,
        )
        if _nodes(code, levels, f) > 1:
            nodes = levels[3 * f]
            once = number // nodes
            _take_nodes(features, once, nodes, w, C)
            _average(
                code, moved(P, first * LANES), columns, start, once,
                moved(tables, levels[3 * f + 1]), w, features, C, tile, D, entries, slopes,
            )  # fmt: skip
            continue
        if code == PERIODIC:
            number *= 2
        at = 0
        for i in range(w):
            for j in range(i + 1):
                if code == LINEAR:
                    store(tile, at, _multiplied(features, number, w, i, j))
                elif code == TABLE:
                    count, begin = levels[3 * f], levels[3 * f + 1]
                    _looked_up(features, tables, begin, count, i, j, moved(tile, at))
                else:
                    store(tile, at, _squared(features, number, w, i, j))
                at += LANES
        if code not in (LINEAR, TABLE):
            shape = columns[2 * stop - 1] + 1 if code == RATIONAL else first
            v, alpha = moved(P, first * LANES), moved(P, shape * LANES)
            S_f, B_f = moved(S, f * entries), moved(B, f * entries)
            _radial(code, v, alpha, tile, entries, S_f, B_f, slopes)


@inlined
def _terms(terms, count, longest, V, entries, at, f):
    """Return entries of the sum of all terms, or of those with leaf f, divided by it."""
    result = fill(0.0)
    for q in range(count):
        product, counts = fill(1.0), f < 0
        for g in range(q * longest, (q + 1) * longest):
            leaf = terms[g]
            if leaf == f:
                counts = True
            elif leaf >= 0:
                product = product * load(V, leaf * entries + at)
        if counts:
            result = result + product
    return result


@part
def _add_noise(noise, several, s, rows, w, M, N, H):
    """Add the noise variances s u + e to the diagonal of M; put s u in N, the diagonal in H."""
    for t in range(w * LANES):
        i, row, added = t // LANES, max(rows[t], 0), 0.0
        N[t] = s[t % LANES]
        if several:
            N[t], added = s[t % LANES] * noise[2 * row], noise[2 * row + 1]
        H[t] = M[_row(i, w) + i * LANES + t % LANES] + N[t] + added
        M[_row(i, w) + i * LANES + t % LANES] = H[t]


@part
def _leave_out(rows, w, M, H):
    """Put rows of the identity in M for those that are not there."""
    for t in range(w * LANES):
        if rows[t] >= 0:
            continue
        i, lane = t // LANES, t % LANES
        for j in range(w):
            M[_row(max(i, j), w) + min(i, j) * LANES + lane] = 1.0 if i == j else 0.0
        H[t] = 1.0


@part
def _subtract_products(A, m, rows, w, M):
    """Subtract the inner products of the rows of A, of m numbers each, from M.

    Four columns at a time, as in ``_factor``; those beyond the diagonal are of no use.
    """
    whole = m - m % LANES
    for t in range(w * LANES):
        i, lane = t // LANES, t % LANES
        own = max(rows[t], 0) * m
        for j in range(0, i + 1, 4):
            a0 = max(rows[j * LANES + lane], 0) * m
            a1 = max(rows[min(j + 1, i) * LANES + lane], 0) * m
            a2 = max(rows[min(j + 2, i) * LANES + lane], 0) * m
            a3 = max(rows[min(j + 3, i) * LANES + lane], 0) * m
            s0, s1, s2, s3 = fill(0.0), fill(0.0), fill(0.0), fill(0.0)
            for q in range(0, whole, LANES):
                x = load(A, own + q)
                s0 = muladd(load(A, a0 + q), x, s0)
                s1 = muladd(load(A, a1 + q), x, s1)
                s2 = muladd(load(A, a2 + q), x, s2)
                s3 = muladd(load(A, a3 + q), x, s3)
            t0, t1, t2, t3 = total(s0), total(s1), total(s2), total(s3)
            for q in range(whole, m):
                x = A[own + q]
                t0, t1 = t0 + A[a0 + q] * x, t1 + A[a1 + q] * x
                t2, t3 = t2 + A[a2 + q] * x, t3 + A[a3 + q] * x
            at = _row(i, w) + j * LANES + lane
            M[at] -= t0
            if j + 1 <= i:
                M[at + LANES] -= t1
            if j + 2 <= i:
                M[at + 2 * LANES] -= t2
            if j + 3 <= i:
                M[at + 3 * LANES] -= t3


@part
def _factor(M, w, count, H, least):
    """Factor M in place, with ``count`` rows from w on; keep the least share of a variance left.

    Four rows at a time, so that each number of the row above serves four.
    """
    for j in range(w):
        above, end = _row(j, w), j * LANES
        pivot = load(M, above + end)
        for a in range(0, end, LANES):
            x = load(M, above + a)
            pivot = muladd(negative(x), x, pivot)
        store(least, 0, smallest(pivot / load(H, end), load(least, 0)))
        inverse = fill(1.0) / root(pivot)
        store(M, above + end, inverse)
        i = j + 1
        while i < w + count:
            r0, r1, r2, r3 = _row(i, w), _row(i + 1, w), _row(i + 2, w), _row(i + 3, w)
            s0 = load(M, r0 + end)
            if i + 3 >= w + count:
                for a in range(0, end, LANES):
                    s0 = muladd(negative(load(M, above + a)), load(M, r0 + a), s0)
                store(M, r0 + end, s0 * inverse)
                i += 1
                continue
            s1, s2, s3 = load(M, r1 + end), load(M, r2 + end), load(M, r3 + end)
            for a in range(0, end, LANES):
                x = negative(load(M, above + a))
                s0 = muladd(load(M, r0 + a), x, s0)
                s1 = muladd(load(M, r1 + a), x, s1)
                s2 = muladd(load(M, r2 + a), x, s2)
                s3 = muladd(load(M, r3 + a), x, s3)
            store(M, r0 + end, s0 * inverse)
            store(M, r1 + end, s1 * inverse)
            store(M, r2 + end, s2 * inverse)
            store(M, r3 + end, s3 * inverse)
            i += 4


@part
def _solve_back(M, w, last, E):
    """Solve with L' of the first ``last`` rows in place of E."""
    for a in range(last - 1, -1, -1):
        row, end = _row(a, w), a * LANES
        x = load(E, end) * load(M, row + end)
        store(E, end, x)
        x = negative(x)
        for i in range(0, end, LANES):
            store(E, i, muladd(load(M, row + i), x, load(E, i)))


@part
def _solve(M, w, q, E):
    """Put the weights w = L^-T e_last in E, then [beta, 0] of each of q columns of y."""
    end = (w - 1) * LANES
    for c in range(q + 1):
        vector, row = moved(E, c * w * LANES), _row(w + c - 1, w)
        for i in range(0, end, LANES):
            store(vector, i, load(M, row + i) if c else fill(0.0))
        store(vector, end, fill(0.0 if c else 1.0))
        _solve_back(M, w, w - 1 if c else w, vector)


@part
def _add_row(R, E, w, vectors, i, G):
    """Add the part of row i, in R, of w'Dv to G, for v each of the vectors in E, w the first."""
    end = i * LANES
    own, diagonal = load(E, end), load(R, end)
    by_w = fill(0.0)
    for j in range(0, end, LANES):
        by_w = muladd(load(R, j), load(E, j), by_w)
    store(G, 0, muladd(own, by_w + by_w + diagonal * own, load(G, 0)))
    for c in range(1, vectors):
        vector = c * w * LANES
        by_v = diagonal * load(E, vector + end)
        for j in range(0, end, LANES):
            by_v = muladd(load(R, j), load(E, vector + j), by_v)
        sums = muladd(own, by_v, load(G, c * LANES))
        store(G, c * LANES, muladd(load(E, vector + end), by_w, sums))


@part
def _take_row(code, kind, count, w, F, V, S, B, O, tables, begin, i, R):
    """Put O times the derivative of row i of a leaf by one of its logarithms in R.

    ``kind`` 0 is that of a variance, 1 of the scale of the first features, 2 of what is last.  That
    of a leaf of ``count`` categories begins at ``begin`` in the tables.
    """
    for j in range(i + 1):
        at = j * LANES
        if code == TABLE:
            _looked_up(F, tables, begin, count, i, j, moved(R, at))
            slope = load(R, at)
        elif kind == 0:
            slope = load(V, at)
        elif code == LINEAR:
            slope = _multiplied(F, count, w, i, j)
        elif kind == 1:
            slope = load(S, at) * _squared(F, count, w, i, j)
        elif code == RATIONAL:
            slope = load(B, at)
        else:
            slope = fill(2.0) * load(S, at) * _turned(F, count, w, i, j)
        store(R, at, load(O, at) * slope)


@part
def _add_slopes(
    leaves, leaf_count, columns, levels, tables, value_count, terms, term_count, longest, w,
    F, V, S, B, D, O, R, E, vectors, G,
):  # fmt: skip
    """Add w'dK_j v to G for the hyper-parameters j of all leaves, row by row of their dK."""
    entries = LANES * (w * (w + 1) // 2)
    for t in range(leaf_count * w):
        f, i = t // w, t % w
        code, first, start, stop = _leaf(leaves, f)
        after = leaves[4 * f + 5] if f + 1 < leaf_count else value_count
        own = f * entries + _row(i, w)
        for j in range(0, LANES * (i + 1), LANES):
            store(O, j, fill(1.0))
            if term_count * longest > 1:
                store(O, j, _terms(terms, term_count, longest, V, entries, _row(i, w) + j, f))
        end = start
        for p in range(first, after):
            begin, kind, count, table = end, 1, stop - start, 0
            tile = moved(V, own)
            if _nodes(code, levels, f) > 1:
                kind = 0
                if p > first:
                    tile = moved(D, p * entries + _row(i, w))
            elif code == TABLE:
                begin, count = start, levels[3 * f]
                table = levels[3 * f + 1] + (1 + p - first) * count * count
            elif p == first and code != LINEAR:
                kind = 0
            elif p == after - 1 and code in (PERIODIC, RATIONAL):
                kind = 2
            elif code == PERIODIC:
                count *= 2
            else:
                while end < stop and columns[2 * end + 1] == p:
                    end += 1
                count = end - begin
            features = moved(F, (2 * start + begin) * w * LANES)
            _take_row(
                code, kind, count, w, features, tile, moved(S, own), moved(B, own), O,
                tables, table, i, R,
            )  # fmt: skip
            _add_row(R, E, w, vectors, i, moved(G, p * vectors * LANES))


@part
def _take_targets(y, q, rows, w, M):
    """Put the columns of y in the rows of M that follow the triangle."""
    for c in range(q):
        at = _row(w + c, w)
        for t in range(w * LANES):
            M[at + t] = y[rows[t] * q + c] if rows[t] >= 0 else 0.0


@part
def _take_noise_slopes(N, w, E, vectors, G):
    """Put w'dD v in G for the noise variance."""
    for c in range(vectors):
        products = fill(0.0)
        for t in range(0, w * LANES, LANES):
            weighted = load(N, t) * load(E, t)
            products = muladd(weighted, load(E, c * w * LANES + t), products)
        store(G, c * LANES, products)


@entry(
    *(_lists, _lists, _table, _lists, _lists, _vector),
    *(_table, _table, _list, _lists, _table, _table),
    *(types.float64, _list, types.int64[::1], types.float64[::1]),
    *(types.float64[:, ::1], types.float64[:, ::1], types.float64[:, :, ::1]),
)
def _windows(
    leaves_, columns_, values_, terms_, levels_, tables_, X_, noise_, own_, near_, A_, y_,
    least_pivot, starts, rows_, work, weights, z, slopes,
):  # fmt: skip
    """Put weights (g, w) or, unless it is empty, derivatives in the last two arguments."""
    leaves, columns, values, terms = (
        pointer(leaves_),
        pointer(columns_),
        pointer(values_),
        pointer(terms_),
    )
    levels, tables = pointer(levels_), pointer(tables_)
    X, noise, own, near = pointer(X_), pointer(noise_), pointer(own_), pointer(near_)
    A, y, rows, memory = pointer(A_), pointer(y_), pointer(rows_), pointer(work)
    leaf_count, count = len(leaves_), len(own_)
    w, q, wanted = near_.shape[1] + 1, y_.shape[1], slopes.size > 0
    step = values_.shape[1] if values_.shape[0] > 1 else 0
    kernel_count = values_.shape[1] - 1
    F, V, S, B = (
        moved(memory, starts[0]),
        moved(memory, starts[1]),
        moved(memory, starts[2]),
        moved(memory, starts[3]),
    )
    M, E, N, O = (
        moved(memory, starts[4]),
        moved(memory, starts[5]),
        moved(memory, starts[6]),
        moved(memory, starts[7]),
    )
    R, H = moved(memory, starts[8]), moved(memory, starts[9])
    G, least = moved(memory, starts[10]), moved(memory, starts[11])
    P, scales = moved(memory, starts[12]), moved(memory, starts[13])
    D, C = moved(memory, starts[14]), moved(memory, starts[15])
    entries, size = LANES * (w * (w + 1) // 2), (q + 1) * LANES
    for first in range(0, count, LANES):
        _take_rows(own, near, first, count, w, rows)
        _take_values(values, step, kernel_count + 1, first, count, P)
        _take_features(leaves, leaf_count, columns, levels, P, scales, X, X_.shape[1], rows, w, F)
        _take_leaves(leaves, leaf_count, columns, levels, tables, P, F, w, V, S, B, D, C, wanted)
        for at in range(0, entries, LANES):
            if terms_.size == 1:
                store(M, at, load(V, at))
            else:
                store(M, at, _terms(terms, terms_.shape[0], terms_.shape[1], V, entries, at, -1))
        _add_noise(noise, noise_.shape[0], moved(P, kernel_count * LANES), rows, w, M, N, H)
        if A_.shape[1]:
            _subtract_products(A, A_.shape[1], rows, w, M)
        _leave_out(rows, w, M, H)
        _take_targets(y, q, rows, w, M)
        store(least, 0, fill(1.0))
        _factor(M, w, q, H, least)
        _solve(M, w, q, E)
        inside = min(LANES, count - first)
        if not wanted:
            for t in range(w * LANES):
                if t % LANES < inside:
                    kept = least[t % LANES] > least_pivot
                    weights[first + t % LANES, t // LANES] = E[t] if kept else np.nan
            continue
        for t in range(0, kernel_count * size, LANES):
            store(G, t, fill(0.0))
        _add_slopes(
            leaves, leaf_count, columns, levels, tables, kernel_count, terms, terms_.shape[0],
            terms_.shape[1], w, F, V, S, B, D, O, R, E, q + 1, G,
        )  # fmt: skip
        _take_noise_slopes(N, w, E, q + 1, moved(G, kernel_count * size))
        for lane in range(inside):
            for c in range(q):
                z[first + lane, c] = M[_row(w + c, w) + (w - 1) * LANES + lane]
            last = E[(w - 1) * LANES + lane] if least[lane] > least_pivot else np.nan
            z[first + lane, q] = -2.0 * math.log(last)
            for t in range((kernel_count + 1) * (q + 1)):
                slopes[first + lane, t // (q + 1), t % (q + 1)] = G[t * LANES + lane]


@entry(_table, _list, _lists, _table, types.float64[:, ::1])
def _combined(w, own, near, columns, sums):
    k = near.shape[1]
    for g in range(len(own)):
        for c in range(columns.shape[1]):
            sums[g, c] = w[g, k] * columns[own[g], c]
        for i in range(k):
            row, weight = near[g, i], w[g, i]
            if row >= 0:
                for c in range(columns.shape[1]):
                    sums[g, c] += weight * columns[row, c]


def windows(
    known: Program,
    values: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    noise: np.ndarray | None,
    own: np.ndarray,
    near: np.ndarray,
    features: np.ndarray | None,
    slopes: bool,
    least_pivot: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights (g, w) of windows; or z and the logs of variances, and a and b.

    These are (g, q + 1) and (g, l + 1, q + 1) for q columns of y, a first.  Weights or logarithms
    are NaN where not more than ``least_pivot`` of a row's variance is left by those before it.
    ``values`` (1, l + 1), or (g, l + 1) of each window, are the hyper-parameters.
    """
    g, w = len(own), near.shape[1] + 1
    y = y if slopes else np.zeros((0, 0))
    q, count, tile = y.shape[1], len(known.leaves), w * (w + 1) // 2
    derived = count * tile if slopes else 0
    averaged = (known.leaves[:, 0] != TABLE) & (known.levels[:, 0] > 0)
    sizes = [
        3 * len(known.columns) * w,
        count * tile,
        derived,
        derived if (known.leaves[:, 0] == RATIONAL).any() else 0,
        tile + q * w,
        (q + 1) * w,
        *(w, w, w, w),
        values.shape[1] * (q + 1),
        *(1, values.shape[1], 1),
        (values.shape[1] - 1) * tile if slopes and averaged.any() else 0,
        w,
    ]
    starts = LANES * np.cumsum([0, *sizes])
    weights = np.empty((0 if slopes else g, w))
    z = np.empty((g if slopes else 0, q + 1))
    by_log = np.empty((len(z), values.shape[1], q + 1))
    _windows(
        known.leaves, known.columns, values, known.terms, known.levels, known.tables,
        X, np.zeros((0, 2)) if noise is None else noise, own, near,
        np.zeros((0, 0)) if features is None else features, y,
        least_pivot, starts, np.empty(w * LANES, np.int64), _aligned(starts[-1]),
        weights, z, by_log,
    )  # fmt: skip
    return weights, z, by_log


def _aligned(size: int) -> np.ndarray:
    """Return memory whose vectors lie in one line of the cache each."""
    memory = np.empty(size + LANES)
    first = -memory.ctypes.data // memory.itemsize % LANES
    return memory[first : first + size]


def combined(w: np.ndarray, own: np.ndarray, near: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return sums (g, q) of columns (n, q) over the rows of each window, weighted by w."""
    sums = np.empty((len(own), columns.shape[1]))
    _combined(w, own, near, columns, sums)
    return sums
