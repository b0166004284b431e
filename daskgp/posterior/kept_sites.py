"""Sites that a posterior keeps of its training rows, found again by the inputs of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from daskgp.models import repeats, scaling
from daskgp.posterior.neighbour_rows import Nearby


class Kept(NamedTuple):
    """Sites of rows that a model keeps: hashes of their inputs, t and v, in the unit of y."""

    keys: np.ndarray
    t: np.ndarray
    v: np.ndarray


def of_block(nearby: Nearby, number: int) -> Kept:
    """Return the sites of a block."""
    X, y = nearby.rows.read(*nearby.layout.span(number))
    X, y = (np.asarray(part, np.float64) for part in (X, y))
    keep = scaling.complete_rows(X, y)
    return Kept(repeats.hashes(X[keep]), y[keep, 0], y[keep, -1])


def joined(parts: Iterable[Kept]) -> Kept:
    """Return the sites of several blocks."""
    none = Kept(np.empty(0, np.uint64), np.empty(0), np.empty(0))
    return Kept(*(np.concatenate(own) for own in zip(none, *parts, strict=True)))


def of_rows(
    nearby: Nearby, inputs: np.ndarray, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return t and v (n,) that are kept of rows, and which rows (n,) are among those kept.

    Parameters
    ----------
    nearby : Nearby
    inputs : ndarray (n, d)
        In the user's units.
    first : ndarray (n,)
        About t / v of the rows, which tells those with the same inputs apart.
    """
    inputs = np.asarray(inputs, np.float64)
    keys, own = repeats.hashes(inputs), np.unique(nearby.layout.blocks_of(inputs))
    t, v, known = np.full(len(keys), np.nan), np.ones(len(keys)), np.zeros(len(keys), bool)
    rest = np.setdiff1d(np.arange(nearby.layout.n_blocks), own)  # ends of intervals may be in these
    for numbers in (own, rest):
        if known.all():
            break
        kept = joined(of_block(nearby, int(number)) for number in numbers)
        kept = Kept(*(part[np.argsort(kept.keys, kind="stable")] for part in kept))
        start, stop = (np.searchsorted(kept.keys, keys, side) for side in ("left", "right"))
        new, at = (stop > start) & ~known, start
        for i in np.flatnonzero(new & (stop > start + 1)):
            same = slice(start[i], stop[i])
            at[i] += np.argmin(np.abs(kept.t[same] / kept.v[same] - first[i]))
        t[new], v[new] = kept.t[at[new]], kept.v[at[new]]
        known |= new
    return t, v, known
