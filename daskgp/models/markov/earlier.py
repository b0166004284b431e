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


def nearest_earlier(
    points: np.ndarray, rank: np.ndarray, own: np.ndarray, number: int
) -> np.ndarray:
    """Return the nearest earlier points of some points.

    Of points as far away the earlier ones count as nearer where the search is compiled.

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

    Returns
    -------
    ndarray (g, k)
        Numbers of the k nearest points of lower rank, nearest first; -1 where there are fewer.
    """
    code = compiled()
    if code is not None:
        return np.asarray(code.Tree(points, rank).query(points[own], rank[own], number))
    return _by_trees(points, rank, own, number)


def nearest(points: np.ndarray, at: np.ndarray, number: int) -> np.ndarray:
    """Return the points (n, d) nearest to places (g, d), nearest first: at most ``number`` each."""
    number = min(number, len(points))
    code = compiled()
    if code is not None:
        rank = np.arange(len(points), dtype=np.uint64)
        before = np.full(len(at), len(points), np.uint64)
        return np.asarray(code.Tree(points, rank).query(at, before, number))
    return np.asarray(cKDTree(points).query(at, k=np.arange(1, number + 1))[1])


def _by_trees(points: np.ndarray, rank: np.ndarray, own: np.ndarray, number: int) -> np.ndarray:
    """Return the nearest earlier points by trees of the first points of the order."""
    found = np.full((len(own), number), -1)
    if not len(own) or not number:
        return found
    line = np.argsort(rank, kind="stable")
    place = np.empty(len(line), np.int64)
    place[line] = np.arange(len(line))
    points, at = points[line], place[own]
    start, stop = 0, min(len(line), max(256, 4 * number))
    while True:
        rows = np.flatnonzero((at >= start) & (at < stop))
        if len(rows):
            share = max(start, number) / stop
            _in_tree(points[:stop], at, rows, int(number / share) + SPARE, found)
        if stop == len(line):
            break
        start, stop = stop, min(len(line), int(GROWTH * stop))
    found[found >= 0] = line[found[found >= 0]]
    return found


def _in_tree(
    points: np.ndarray, at: np.ndarray, rows: np.ndarray, look: int, found: np.ndarray
) -> None:
    """Put the nearest of the points before those at ``at[rows]`` into ``found[rows]``."""
    # searched once: less is spent on making it
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    number = found.shape[1]
    while len(rows):
        look = min(look, len(points))
        _, near = tree.query(points[at[rows]], k=np.arange(1, look + 1))
        before = near < at[rows, None]
        order = np.argsort(~before, axis=1, kind="stable")[:, :number]
        taken = np.take_along_axis(np.where(before, near, -1), order, axis=1)
        found[rows, : taken.shape[1]] = taken
        few = before.sum(axis=1) < np.minimum(number, at[rows])
        rows, look = rows[few], 2 * look
