"""Blocks that a block is conditioned on, and stores of rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dask.system import CPU_COUNT
from scipy.spatial import cKDTree

from daskgp.data import Rows, beside_in_store, dataset_arrays, remove, rows_of
from daskgp.data.blocks import prepared
from daskgp.data.blocks.layout import Layout, read_layout
from daskgp.data.blocks.ordering import Order
from daskgp.data.partition import Span, Unit
from daskgp.data.rows import ARGUMENTS, COLUMNS
from daskgp.data.stores import groups
from daskgp.errors import StoreError

SOURCE = "made_from"
MORE, TOGETHER = 2, 1 << 19
"""Candidates that are examined per earlier block that is wanted, and neighbours of rows that are
looked up at a time."""


def earlier(
    layout: Layout, places: np.ndarray, number: int, later: bool = False
) -> tuple[Unit, ...]:
    """Return each block with the ``number`` nearest of the blocks before it, in their order.

    With ``later`` they are the nearest of all others.  A block is as near as its nearest row, on
    average over the rows of the other.  ``places`` (M, r, d) are some rows of each block in units
    that make distances comparable.
    """
    spans = layout.spans
    if not number:
        return tuple(Unit(span) for span in spans)
    count, r, d = places.shape
    tree, middles = cKDTree(places.reshape(-1, d)), places.mean(axis=1)
    look = np.arange(1, min(count * r, r * (MORE * number + 4)) + 1)
    units = []
    for i, (span, (away, rows)) in enumerate(zip(spans, _nearest(tree, places, look), strict=True)):
        blocks = rows // r
        asked = blocks != i if later else blocks < i
        near = _nearest_of(asked, away, blocks, number)
        candidates = count - 1 if later else i
        if len(near) < min(number, candidates):  # far from most blocks before it
            apart = ((middles[: None if later else i] - middles[i]) ** 2).sum(axis=1)
            line = np.argsort(apart, kind="stable")[: 2 * number + 1]
            others = np.setdiff1d(line, [*near, i])
            others = others[np.argsort(apart[others], kind="stable")]
            near = np.concatenate([near, others])[:number]
        units.append(Unit(span, tuple(spans[j] for j in np.sort(near))))
    return tuple(units)


def before(spans: Sequence[Span], units: Sequence[Unit], number: int) -> np.ndarray:
    """Return the blocks (units, number) that units are conditioned on, by their places in spans."""
    places = {span: j for j, span in enumerate(spans)}
    found = np.full((len(units), number), -1, np.int64)
    for row, unit in zip(found, units, strict=True):
        row[: len(unit.near)] = [places[span] for span in unit.near]
    return found


def conditioned(layout: Layout) -> tuple[Unit, ...]:
    """Return each block with those that it is conditioned on, as the blocks say themselves."""
    spans, near = layout.spans, layout.near
    assert near is not None
    return tuple(
        Unit(span, tuple(spans[j] for j in row if j >= 0))
        for span, row in zip(spans, near.tolist(), strict=True)
    )


def _nearest(
    tree: cKDTree, places: np.ndarray, look: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each block the distances (r, k) of the nearest points to its places, and these.

    Several blocks at a time are looked up by all threads: this process alone is at work.
    """
    step = max(1, TOGETHER // (places.shape[1] * len(look)))
    for start in range(0, len(places), step):
        found = tree.query(places[start : start + step], k=look, workers=CPU_COUNT)
        yield from zip(*map(np.asarray, found), strict=True)


def _nearest_of(asked: np.ndarray, away: np.ndarray, blocks: np.ndarray, number: int) -> np.ndarray:
    """Return the nearest of the blocks asked for, among those of the rows (r, k) next to a block's.

    A row of the block without neighbours in another is taken to be as far from it as from the last
    of its neighbours.
    """
    before, place = np.unique(np.where(asked, blocks, -1), return_inverse=True)
    far = np.repeat(away[:, -1:], len(before), axis=1)
    own = np.broadcast_to(np.arange(len(away))[:, None], away.shape)
    np.minimum.at(far, (own, place.reshape(away.shape)), away)
    order = np.argsort(far.mean(axis=0), kind="stable")
    return before[order][before[order] >= 0][:number]


def open_blocks(url: str, more: bool = False) -> tuple[Rows, Layout]:
    """Open a prepared store: its rows in the order of blocks, and the blocks.

    It may have ``more`` rows after those of the blocks, which are left out.
    """
    rows = _first(url, prepared.rows_in_blocks(url) if more else None)
    layout = read_layout(rows.X)
    if layout is None:
        raise StoreError(f"dataset {url} has no blocks: make it with daskgp.prepare")
    return rows, layout


def _first(url: str, number: int | None) -> Rows:
    """Return rows of a store of blocks: all, or the first ones while others may be being added."""
    X, y = dataset_arrays(url, number)
    beside: dict[str, Any] = dict.fromkeys(ARGUMENTS, False)
    for name, array in beside_in_store(y).items():
        beside[name] = groups.first_rows(array, X.shape[0])
    return held(rows_of(X, y, None, False, beside=beside))


def changed(
    url: str,
    cuts: np.ndarray,
    centroids: np.ndarray,
    bounds: np.ndarray,
    ends: np.ndarray,
    near: np.ndarray | None = None,
) -> tuple[Rows, Layout]:
    """Open a store of blocks of which some were added or taken out, see ``Layout``.

    ``ends`` (3, k) are the ranges and steps of the order, which may have been widened.
    """
    counted = bounds.size and bounds.dtype.kind == "i"
    rows = _first(url, int(bounds.max()) if counted else None)
    stored = prepared.blocks_behind(rows.X)
    if stored is None:
        raise StoreError(f"dataset {url} has no blocks: fit again")
    order, m = Order.from_dict(stored.attributes["order"]), len(bounds)
    shapes = (m, 2), (m - 1,), (m, len(stored.columns)), (3, len(order.columns))
    fits = tuple(array.shape for array in (bounds, cuts, centroids, ends)) == shapes
    whole = fits and bounds.dtype.kind == "i" and bounds.min() >= 0 and bounds.max() <= len(rows)
    if whole and near is not None:
        before = near < np.arange(m)[:, None] if near.ndim == 2 and len(near) == m else np.array(0)
        whole = near.dtype.kind == "i" and bool(before.all()) and near.min() >= -1
    if not whole or (np.diff(bounds, axis=1) < 1).any():
        raise StoreError(f"dataset {url} has other rows than its blocks: fit again")
    order = replace(order, low=ends[0], high=ends[1], step=ends[2])
    number = int(np.diff(bounds, axis=1).sum())
    size = int(stored.attributes["block_rows"])
    return rows, Layout(order, number, size, cuts, centroids, bounds, near)


def open_rows(url: str) -> Rows:
    """Return the rows of a store that no longer changes."""
    X, y = dataset_arrays(url)
    return held(rows_of(X, y, None, False, columns=tuple(COLUMNS)))


def copied(rows: Rows, url: str) -> Rows:
    """Copy rows to a store of their own, which replaces any at the URL, and return them."""
    remove(url)
    prepared.copy(url, rows, len(rows))
    return open_rows(url)


def held(rows: Rows) -> Rows:
    """Return rows of a finished store whose decoded chunks are cached, for small blocks."""
    identity = prepared.identity_behind(rows.X)
    return replace(rows, identity=identity)


def mark(url: str, source: str) -> None:
    """Write into a store of blocks what it was made from."""
    groups.open_group(url, "dataset", mode="r+").attrs[SOURCE] = source


def made_from(url: str, source: str) -> bool:
    """Return whether a finished store of blocks that was made from ``source`` is at a URL."""
    if not groups.is_group(url):
        return False
    attributes = groups.open_group(url, "dataset").attrs
    return attributes.get(SOURCE) == source and attributes.get("complete") is True
