"""Which blocks a block is conditioned on, and training rows that prediction reads back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from daskgp.errors import StoreError
from daskgp.flow.around import Around, Key, Part, around_of
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


@dataclass(frozen=True, eq=False)
class Nearby:
    """Training rows that prediction reads back.

    Parameters
    ----------
    rows : Rows
        In the order of the layout.
    layout : Layout
        The blocks.
    around : Around
        Which of them predictions are conditioned on.
    """

    rows: Rows
    layout: Layout
    around: Around

    def groups(self, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Groups and the rows of X (n, d), in the user's units, that are in them."""
        return self.around.groups(self.layout, X)

    def parts(self, key: Key, inputs: Callable[[int], np.ndarray] | None = None) -> list[Part]:
        """Training rows that serve a group; ``inputs`` gives those of a block, else read."""
        return self.around.parts(key, inputs or (lambda block: self.read(block)[0]))

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """X and y of a block, in the user's units."""
        return self.rows.read(*self.layout.spans[block])

    @property
    def token(self) -> str:
        """Checksum of the blocks."""
        return self.layout.token

    def arrays(self) -> dict[str, np.ndarray]:
        """What a model store keeps beside the rows and their blocks."""
        return self.around.arrays()

    def describe(self) -> dict[str, str]:
        """For people."""
        return {"conditioned on": self.around.describe()}

    def lies_at(self, url: str) -> bool:
        """Whether a URL is that of the store that the rows are read from."""
        return prepared.lies_at(self.rows, url)

    def write(self, url: str) -> None:
        """Write the rows with their blocks to a new dataset store."""
        layout = self.layout
        said = {
            "order": layout.order.to_dict(),
            "rows": layout.rows,
            "block_rows": layout.block_rows,
        }
        blocks = prepared.Written(layout.cuts, layout.centroids, said)
        prepared.copy(url, self.rows, len(self.rows), blocks)


def open_nearby(url: str, arrays: dict[str, np.ndarray]) -> Nearby:
    """The rows that ``Nearby.write`` or a fit left in a model store."""
    rows, layout = open_blocks(url)
    return Nearby(rows, layout, around_of(arrays))


def open_blocks(url: str) -> tuple[Rows, Layout]:
    """Rows in the order of blocks, and the blocks, of a prepared store."""
    rows = rows_of(*dataset_arrays(url), None, False)
    layout = read_layout(rows.X)
    if layout is None:
        raise StoreError(f"dataset {url} has no blocks: make it with daskgp.prepare")
    return held(rows), layout


def held(rows: Rows) -> Rows:
    """Rows of a finished store whose decoded chunks are held, as small blocks want."""
    identity = prepared.identity_behind(rows.X)
    return replace(rows, identity=identity)


def mark(url: str, source: str) -> None:
    """Note what a store of blocks was made from."""
    groups.open_group(url, "dataset", mode="r+").attrs[SOURCE] = source


def made_from(url: str, source: str) -> bool:
    """Whether a finished store of blocks that was made from ``source`` is at a URL."""
    if groups.vacant(url):
        return False
    attributes = groups.open_group(url, "dataset").attrs
    return attributes.get(SOURCE) == source and attributes.get("complete") is True
