"""Which blocks a block is conditioned on, and training rows that prediction reads back.

Where a prediction is conditioned on the nearest blocks, the box of the training inputs is cut
into cells and the blocks nearest to the middle of a cell serve all places in it.  So a prediction
depends on its place alone, not on what else is asked, and many places share one factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.spatial import cKDTree

from daskgp.errors import StoreError
from daskgp.flow.io import Rows, dataset_arrays, groups, prepared, rows_of
from daskgp.flow.layout import Layout, read_layout
from daskgp.flow.partition import Window

SOURCE = "made_from"
MORE = 4
"""Candidates that are looked at for each earlier block that is wanted."""
LANDMARKS = 16
"""Rows of a block that stand for it when distances to it are measured."""
CELL_DIMENSIONS = 4
"""Most dimensions that are cut into cells; beyond, a cell would hold no more than a place."""


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


class Around(Protocol):
    """Says which blocks predictions are conditioned on."""

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Blocks in their order and the rows of X (n, d), in the user's units, they serve."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What a model store keeps of it."""

    def describe(self) -> str:
        """For people."""


@dataclass(frozen=True, eq=False)
class Band:
    """The block whose interval of keys holds a place, with ``reach`` blocks on either side."""

    reach: int

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """As ``Around`` says."""
        served: dict[tuple[int, ...], list[np.ndarray]] = {}
        for own, members in _split(layout.blocks_of(X)):
            low, high = max(0, own - self.reach), min(layout.n_blocks, own + self.reach + 1)
            served.setdefault(tuple(range(low, high)), []).append(members)
        yield from _together(served)

    def arrays(self) -> dict[str, np.ndarray]:
        """As ``Around`` says."""
        return {"reach": np.array(self.reach)}

    def describe(self) -> str:
        """As ``Around`` says."""
        return f"a place's own block and {self.reach} on either side"


@dataclass(frozen=True, eq=False)
class Nearest:
    """The ``number`` blocks nearest to the middle of a place's cell.

    Parameters
    ----------
    number : int
        Blocks that a place is conditioned on.
    lengths : ndarray (d,)
        Units of distance along each column, infinite for a column that does not matter.
    landmarks : ndarray (M, r, d)
        Rows that stand for each block, in the units of X.
    """

    number: int
    lengths: np.ndarray
    landmarks: np.ndarray

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """As ``Around`` says."""
        served: dict[tuple[int, ...], list[np.ndarray]] = {}
        for middle, own, members in self._cells(layout, X):
            served.setdefault(self._blocks(middle, own), []).append(members)
        yield from _together(served)

    def __getstate__(self) -> dict[str, Any]:
        """What is not made from the rest again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def arrays(self) -> dict[str, np.ndarray]:
        """As ``Around`` says."""
        return {
            "number": np.array(self.number),
            "lengths": self.lengths,
            "landmarks": self.landmarks,
        }

    def describe(self) -> str:
        """As ``Around`` says."""
        return f"the {min(self.number, len(self.landmarks))} blocks nearest to a place"

    def _cells(
        self, layout: Layout, X: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int | None, np.ndarray]]:
        """Middle of each cell that holds rows of X, in units of distance, and the rows.

        Where there are no cells, the middle of a block, and the block.
        """
        if not self._matters.any() or self._counts is None:
            for own, members in _split(layout.blocks_of(X)):
                yield self._points[own].mean(axis=0), own, members
            return
        low, side = self._box
        # places outside belong to the cells at the edge
        cells = np.clip(np.floor((self._scaled(X) - low) / side), 0, self._counts - 1)
        flat = np.ravel_multi_index(tuple(cells.astype(np.int64).T), tuple(self._counts))
        for cell, members in _split(flat):
            at = np.array(np.unravel_index(cell, tuple(self._counts)), np.float64)
            yield low + (at + 0.5) * side, None, members

    def _blocks(self, middle: np.ndarray, own: int | None) -> tuple[int, ...]:
        """The blocks with the landmarks nearest to a point, one of which is ``own`` if given."""
        count, r = self.landmarks.shape[:2]
        wanted, look = min(self.number, count), 2 * self.number
        while True:
            look = min(look * 2, count * r)
            _, near = self._tree.query(middle, k=look)
            blocks, first = np.unique(np.atleast_1d(near) // r, return_index=True)
            if len(blocks) >= wanted:
                chosen = blocks[np.argsort(first, kind="stable")[:wanted]]
                if own is not None and own not in chosen:
                    chosen[-1] = own
                return tuple(int(b) for b in np.sort(chosen))

    @cached_property
    def _matters(self) -> np.ndarray:
        return np.isfinite(self.lengths)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return X[..., self._matters] / self.lengths[self._matters]

    @cached_property
    def _points(self) -> np.ndarray:
        if not self._matters.any():  # blocks are near one another in their order alone
            places = np.arange(len(self.landmarks), dtype=np.float64)[:, None, None]
            return np.broadcast_to(places, (*self.landmarks.shape[:2], 1))
        return self._scaled(self.landmarks)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._points.reshape(-1, self._points.shape[-1]))

    @cached_property
    def _counts(self) -> np.ndarray | None:
        """Cells along each dimension: cubes, about as many as blocks; None if there is no end."""
        ranges = np.ptp(self._points, axis=(0, 1))
        longest, number = np.sort(ranges)[::-1], len(self.landmarks)
        for used in range(len(ranges), 0, -1):  # short sides are not cut
            side = (np.prod(longest[:used]) / number) ** (1 / used)
            if 0 < side <= longest[used - 1]:
                break
        if used > CELL_DIMENSIONS:
            return None
        return np.maximum(1, np.rint(ranges / max(side, np.finfo(float).tiny))).astype(np.int64)

    @cached_property
    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower corner and sides of the cells."""
        low, high = self._points.min(axis=(0, 1)), self._points.max(axis=(0, 1))
        assert self._counts is not None
        return low, np.where(high > low, (high - low) / self._counts, 1.0)


@dataclass(frozen=True, eq=False)
class Nearby:
    """Training rows that prediction reads back.

    Parameters
    ----------
    rows : Rows
        In the order of the layout.
    layout : Layout
        The blocks.
    around : Band or Nearest
        Which blocks predictions are conditioned on.
    """

    rows: Rows
    layout: Layout
    around: Around

    def groups(self, X: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Blocks and the rows of X (n, d), in the user's units, whose predictions they serve."""
        return self.around.groups(self.layout, X)

    def read(self, blocks: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
        """X and y of some blocks, in the user's units."""
        spans = self.layout.spans
        return [self.rows.read(*spans[j]) for j in blocks]

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


def around_of(arrays: dict[str, np.ndarray]) -> Around:
    """What ``Around.arrays`` describes."""
    if "reach" in arrays:
        return Band(int(arrays["reach"]))
    return Nearest(int(arrays["number"]), arrays["lengths"], arrays["landmarks"])


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


def _split(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each label (n,) with the places where it stands."""
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(members):
            yield int(labels[members[0]]), members


def _together(
    served: dict[tuple[int, ...], list[np.ndarray]],
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Blocks in their order with all the places that they serve."""
    for blocks in sorted(served):
        yield blocks, np.sort(np.concatenate(served[blocks]))
