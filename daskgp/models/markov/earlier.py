"""Nearest earlier rows: rows in a random order, each with those that it is conditioned on.

The rank of a row is a hash of its number and a seed, so the order is the same however rows are cut.
Random orders are far better than those of coordinates: the first rows are far apart and carry what
is smooth, the last ones have neighbours close by (Guinness 2018).
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from daskgp.models.markov.conditionals import compiled

GROWTH = 1.5
"""Growth of the trees that rows are looked for in; each has at most that many rows too many."""
SPARE = 8
"""Candidates that are looked at beside those expected to do."""
LATER = np.uint64(1 << 63)
"""Bit of the rank of rows that come after all others."""
TIER_BITS = 3
"""Bits of the rank for tiers of rows that come one after another."""


def ranks(places: np.ndarray, seed: int, later: int | None = None) -> np.ndarray:
    """Return the ranks (n,) of rows by their numbers; those from ``later`` on come last."""
    # the finaliser of SplitMix64 (Steele, Lea & Flood 2014)
    with np.errstate(over="ignore"):
        steps = np.asarray(places, np.uint64) + np.uint64(1 + seed * 0x9E3779B9 % 2**32 * 2**31)
        x = steps * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = (x ^ (x >> np.uint64(31))) >> np.uint64(1)
    if later is not None:
        x |= np.where(np.asarray(places) >= later, LATER, np.uint64(0))
    return x


def in_tiers(rank: np.ndarray, tiers: np.ndarray) -> np.ndarray:
    """Return ranks (n,) by which rows of lower tiers (n,), 0 to 7, come first.

    Rows that come after all others still do.

    Examples
    --------
    >>> rank = ranks(np.arange(4), seed=0)
    >>> np.argsort(in_tiers(rank, np.array([1, 1, 0, 0])))
    array([2, 3, 1, 0])
    """
    bits, own = np.uint64(TIER_BITS), tiers.astype(np.uint64)
    return (rank & LATER) | (own << (np.uint64(63) - bits)) | ((rank & ~LATER) >> bits)


def nearest_earlier(
    points: np.ndarray,
    rank: np.ndarray,
    own: np.ndarray,
    number: int,
    kinds: np.ndarray | None = None,
) -> np.ndarray:
    """Return the nearest earlier points of some points.

    Of points as far away the earlier ones count as nearer where the search is compiled.  With
    ``kinds`` they are as many of each kind as there are, so that none crowds out another.

    Parameters
    ----------
    points : ndarray (n, d)
        In units that make distances comparable.
    rank : ndarray (n,)
        Ranks, all different.
    own : ndarray (g,)
        Numbers of the points whose neighbours are wanted.
    number : int
        Number k of neighbours.
    kinds : ndarray (n,), optional
        Whole numbers that tell points of different kinds.

    Returns
    -------
    ndarray (g, k)
        Numbers of the k nearest points of lower rank, nearest first; -1 where there are fewer.
    """
    if kinds is not None:
        return _of_each(points, rank, points[own], rank[own], number, kinds)
    code = compiled()
    if code is not None:
        return np.asarray(code.Tree(points, rank).query(points[own], rank[own], number))
    return _by_trees(points, rank, own, number)


def nearest(
    points: np.ndarray, at: np.ndarray, number: int, kinds: np.ndarray | None = None
) -> np.ndarray:
    """Return the points (n, d) nearest to places (g, d), nearest first: at most ``number`` each.

    ``kinds`` (n,) are as in ``nearest_earlier``.
    """
    number = min(number, len(points))
    rank = np.arange(len(points), dtype=np.uint64)
    before = np.full(len(at), len(points), np.uint64)
    if kinds is not None:
        return _of_each(points, rank, at, before, number, kinds)
    code = compiled()
    if code is not None:
        return np.asarray(code.Tree(points, rank).query(at, before, number))
    return np.asarray(cKDTree(points).query(at, k=np.arange(1, number + 1))[1])


def shares(counts: np.ndarray, number: int) -> np.ndarray:
    """Return how many of each kind are taken of ``counts`` (c,), ``number`` in all if there are.

    >>> shares(np.array([100, 3, 50]), 30)
    array([14,  3, 13])
    """
    taken = np.zeros(len(counts), np.int64)
    while taken.sum() < min(number, counts.sum()):
        left = np.flatnonzero(taken < counts)
        each, more = divmod(number - int(taken.sum()), len(left))
        taken[left] += each
        taken[left[:more]] += 1
        taken = np.minimum(taken, counts)
    return taken


def _of_each(
    points: np.ndarray,
    rank: np.ndarray,
    at: np.ndarray,
    before: np.ndarray,
    number: int,
    kinds: np.ndarray,
) -> np.ndarray:
    """Return the nearest points (n, d) of each kind to places (g, d), of ranks below ``before``."""
    known, own, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    code, parts = compiled(), []
    for kind, share in enumerate(shares(counts, number).tolist()):
        of_kind = np.flatnonzero(own == kind)
        given = points[of_kind], rank[of_kind]
        if code is not None:
            found = np.asarray(code.Tree(*given).query(at, before, share))
        else:
            found = _among(*given, at, before, share)
        parts.append(np.where(found >= 0, of_kind[found], -1))
    together = np.concatenate(parts, axis=1) if len(known) else np.empty((len(at), 0), np.int64)
    away = ((points[together] - at[:, None]) ** 2).sum(axis=-1)
    away[together < 0] = np.inf
    return np.take_along_axis(together, np.argsort(away, axis=1, kind="stable"), axis=1)


def _by_trees(points: np.ndarray, rank: np.ndarray, own: np.ndarray, number: int) -> np.ndarray:
    """Return the nearest earlier points by trees of the first points of the order."""
    return _among(points, rank, points[own], rank[own], number)


def _among(
    points: np.ndarray, rank: np.ndarray, own: np.ndarray, before: np.ndarray, number: int
) -> np.ndarray:
    """Return the nearest points to places ``own`` (g, d), by trees of the first of the order."""
    found = np.full((len(own), number), -1)
    if not len(own) or not number or not len(points):
        return found
    line = np.argsort(rank, kind="stable")
    points, at = points[line], np.searchsorted(rank[line], before)
    start, stop = 0, min(len(line), max(256, 4 * number))
    while True:
        last = stop == len(line)
        rows = np.flatnonzero((at >= start) & ((at < stop) | last))
        if len(rows):
            share = max(start, number) / stop
            _in_tree(points[:stop], own, at, rows, int(number / share) + SPARE, found)
        if last:
            break
        start, stop = stop, min(len(line), int(GROWTH * stop))
    found[found >= 0] = line[found[found >= 0]]
    return found


def _in_tree(
    points: np.ndarray,
    own: np.ndarray,
    at: np.ndarray,
    rows: np.ndarray,
    look: int,
    found: np.ndarray,
) -> None:
    """Put the nearest to ``own[rows]`` of the points before ``at[rows]`` into ``found[rows]``."""
    # searched once: less is spent on making it
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    number = found.shape[1]
    while len(rows):
        look = min(look, len(points))
        _, near = tree.query(own[rows], k=np.arange(1, look + 1))
        before = near < at[rows, None]
        order = np.argsort(~before, axis=1, kind="stable")[:, :number]
        taken = np.take_along_axis(np.where(before, near, -1), order, axis=1)
        found[rows, : taken.shape[1]] = taken
        few = before.sum(axis=1) < np.minimum(number, np.minimum(at[rows], len(points)))
        rows, look = rows[few], 2 * look
