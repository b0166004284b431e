"""Which blocks a block is conditioned on, and training rows that prediction reads back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from daskgp.errors import StoreError
from daskgp.flow.io import Rows, dataset_arrays, groups, prepared, rows_of
from daskgp.flow.layout import Layout, read_layout
from daskgp.flow.partition import Window

SOURCE = "made_from"
MORE = 4
"""Candidates that are looked at for each earlier block that is wanted."""


def earlier(layout: Layout, places: np.ndarray, number: int) -> tuple[Window, ...]:
    """Each block with the ``number`` nearest of the blocks before it, in their order.

    ``places`` (M, d) are the blocks' centroids in units that make distances alike.
    """
    spans, count = layout.spans, layout.n_blocks
    if not number:
        return tuple(Window(span) for span in spans)
    tree = cKDTree(places)
    _, found = tree.query(places, k=min(count, MORE * number + 8))
    found = found.reshape(count, -1)
    windows = []
    for i, span in enumerate(spans):
        near = found[i][found[i] < i][:number]
        if len(near) < min(number, i):  # far from most blocks before it
            away = ((places[:i] - places[i]) ** 2).sum(axis=1)
            near = np.argsort(away, kind="stable")[:number]
        windows.append(Window(span, tuple(spans[j] for j in np.sort(near))))
    return tuple(windows)


def nearest(places: np.ndarray, number: int) -> np.ndarray:
    """Each block and the ``number`` blocks nearest to it, (M, number + 1), in their order."""
    k = min(len(places), number + 1)
    _, found = cKDTree(places).query(places, k=k)
    found = found.reshape(len(places), k)
    own = np.arange(len(places))
    missing = ~(found == own[:, None]).any(axis=1)  # more coincident centroids than k
    found[missing, -1] = own[missing]
    return np.sort(found, axis=1)


def band(count: int, reach: int) -> np.ndarray:
    """Each block with ``reach`` blocks on either side (M, 2 reach + 1); -1 where there is none."""
    found = np.arange(count)[:, None] + np.arange(-reach, reach + 1)
    return np.where((found >= 0) & (found < count), found, -1)


@dataclass(frozen=True, eq=False)
class Nearby:
    """Training rows that prediction reads back.

    Parameters
    ----------
    rows : Rows
        In the order of the layout.
    layout : Layout
        The blocks.
    around : ndarray (M, k)
        Blocks that predictions in each block are conditioned on; -1 for none.
    """

    rows: Rows
    layout: Layout
    around: np.ndarray

    def groups(self, X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks that rows X (n, d) of the user's units belong to, with the rows of each."""
        blocks = self.layout.blocks_of(X)
        order = np.argsort(blocks, kind="stable")
        edges = np.flatnonzero(np.diff(blocks[order])) + 1
        for members in np.split(order, edges):
            if len(members):
                yield int(blocks[members[0]]), members

    def read(self, block: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """X and y of the blocks around a block, in the user's units."""
        spans = self.layout.spans
        return [self.rows.read(*spans[j]) for j in self.around[block] if j >= 0]

    def write(self, url: str) -> None:
        """Write the rows with their blocks to a new dataset store."""
        layout = self.layout
        said = {
            "order": layout.order.to_dict(),
            "rows": layout.rows,
            "block_rows": layout.block_rows,
        }
        prepared.copy(url, self.rows, layout.cuts, layout.centroids, said)


def open_nearby(url: str, around: np.ndarray) -> Nearby:
    """The rows that ``Nearby.write`` or a fit left in a model store."""
    rows, layout = open_blocks(url)
    if around.shape[0] != layout.n_blocks:
        raise StoreError(f"the rows of {url} are not those of the fit: fit again")
    return Nearby(rows, layout, around)


def open_blocks(url: str) -> tuple[Rows, Layout]:
    """Rows in the order of blocks, and the blocks, of a prepared store."""
    rows = rows_of(*dataset_arrays(url), None, False)
    layout = read_layout(rows.X)
    if layout is None:
        raise StoreError(f"dataset {url} has no blocks: make it with daskgp.prepare")
    return rows, layout


def mark(url: str, source: str) -> None:
    """Note what a store of blocks was made from."""
    groups.open_group(url, "dataset", mode="r+").attrs[SOURCE] = source


def made_from(url: str, source: str) -> bool:
    """Whether a finished store of blocks that was made from ``source`` is at a URL."""
    if not groups.exists(url):
        return False
    attributes = groups.open_group(url, "dataset").attrs
    return attributes.get(SOURCE) == source and attributes.get("complete") is True
