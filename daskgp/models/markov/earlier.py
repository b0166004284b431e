"""Nearest earlier rows: rows in a random order, each with those that it is conditioned on.

The rank of a row is a hash of its number and a seed, so the order is the same however rows are cut.
Random orders are far better than those of coordinates: the first rows are far apart and carry what
is smooth, the last ones have neighbours close by (Guinness 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

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
LOOKED, TIMES, MORE = 1_000, 8, 4
"""Nearest points among which those that are seen are looked for: at most so many, or so many times
those that are wanted if that is more; and the growth of their number."""
SEEN_ROWS = 4_096
"""Places that look for more points at a time."""

Sees: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function of numbers of places (r,) and of points (r, k) near each, or -1, which are seen."""
Search: TypeAlias = Callable[[np.ndarray | slice, int], np.ndarray]
"""Function of numbers of places, and of how many points, that returns the nearest; -1 for none."""


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
    sees: Sees | None = None,
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
    sees : callable, optional
        Which points a point sees: others are left out.  They are looked for among the nearest
        ``LOOKED``, or ``TIMES`` k.

    Returns
    -------
    ndarray (g, k)
        Numbers of the k nearest points of lower rank, nearest first; -1 where there are fewer.
    """
    at, before = points[own], rank[own]
    if kinds is not None:
        return _of_each(points, rank, at, before, number, kinds, sees)
    return _seen(_search(points, rank, at, before), len(own), len(points), number, sees)


def nearest(
    points: np.ndarray,
    at: np.ndarray,
    number: int,
    kinds: np.ndarray | None = None,
    sees: Sees | None = None,
) -> np.ndarray:
    """Return the points (n, d) nearest to places (g, d), nearest first: at most ``number`` each.

    ``kinds`` (n,) and ``sees`` are as in ``nearest_earlier``.
    """
    number = min(number, len(points))
    rank = np.arange(len(points), dtype=np.uint64)
    before = np.full(len(at), len(points), np.uint64)
    if kinds is not None:
        return _of_each(points, rank, at, before, number, kinds, sees)
    search = _search(points, rank, at, before)
    if compiled() is None:
        search = _search_of_all(points, at)
    return _seen(search, len(at), len(points), number, sees)


def _search(points: np.ndarray, rank: np.ndarray, at: np.ndarray, before: np.ndarray) -> Search:
    """Return a search for the nearest points (n, d) to places (g, d), of ranks below ``before``."""
    code = compiled()
    if code is None:
        return lambda rows, count: _among(points, rank, at[rows], before[rows], count)
    tree = code.Tree(points, rank)
    return lambda rows, count: np.asarray(tree.query(at[rows], before[rows], count))


def _search_of_all(points: np.ndarray, at: np.ndarray) -> Search:
    """Return a search for the nearest of all points (n, d) to places (g, d), not compiled."""
    tree = cKDTree(points)
    return lambda rows, count: np.asarray(tree.query(at[rows], k=np.arange(1, count + 1))[1])


def _seen(search: Search, g: int, n: int, number: int, sees: Sees | None) -> np.ndarray:
    """Return the nearest (g, k) of n points, those that are seen alone if there are barriers.

    As many are looked at as there need to be.
    """
    if sees is None:
        return search(slice(None), number)
    found, rows, look = np.full((g, number), -1), np.arange(g), min(number, n)
    most = min(n, max(LOOKED, TIMES * number))
    while len(rows) and look:
        short = []
        for part in np.split(rows, np.arange(SEEN_ROWS, len(rows), SEEN_ROWS)):
            near = search(part, look)
            seen = sees(part, near)
            order = np.argsort(~seen, axis=1, kind="stable")[:, :number]
            taken = np.take_along_axis(np.where(seen, near, -1), order, axis=1)
            found[part, : taken.shape[1]] = taken
            short.append(part[(seen.sum(axis=1) < number) & (near[:, -1] >= 0)])
        rows = np.concatenate(short)
        if look >= most:
            break
        look = min(most, MORE * look)
    return found


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
    sees: Sees | None = None,
) -> np.ndarray:
    """Return the nearest points (n, d) of each kind to places (g, d), of ranks below ``before``."""
    known, own, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    parts = []
    for kind, share in enumerate(shares(counts, number).tolist()):
        of_kind = np.flatnonzero(own == kind)
        search = _search(points[of_kind], rank[of_kind], at, before)
        seen = None if sees is None else _of_some(sees, of_kind)
        found = _seen(search, len(at), len(of_kind), share, seen)
        parts.append(np.where(found >= 0, of_kind[found], -1))
    together = np.concatenate(parts, axis=1) if len(known) else np.empty((len(at), 0), np.int64)
    away = ((points[together] - at[:, None]) ** 2).sum(axis=-1)
    away[together < 0] = np.inf
    return np.take_along_axis(together, np.argsort(away, axis=1, kind="stable"), axis=1)


def _of_some(sees: Sees, numbers: np.ndarray) -> Sees:
    """Return which of some points are seen, by their places among ``numbers``."""
    return lambda rows, near: sees(rows, np.where(near >= 0, numbers[near], -1))


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
