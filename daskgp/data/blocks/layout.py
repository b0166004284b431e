"""Blocks of nearby rows: which rows are in them, and to which of them a new row belongs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr

from daskgp.data.blocks import prepared
from daskgp.data.blocks.ordering import Order
from daskgp.data.partition import Span
from daskgp.data.stores import groups
from daskgp.errors import InputError, StoreError

DEFAULT_BLOCK_ROWS = 256
"""Most rows of a block, by default."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows in an order, cut into blocks of equal size.

    Rows that were added later are in blocks after the others, in an order of their own.

    Parameters
    ----------
    order : Order
        Gives every row its key.
    rows, block_rows : int
        Number of rows, and rows per block: block i begins at row i block_rows, and the last one
        has the rest.
    cuts : ndarray (M - 1,) of uint64
        Key of the first row of each block but the first.
    centroids : ndarray (M, d)
        Mean inputs of each block.
    bounds : ndarray (M, 2), optional
        First row of each block and the end of its rows, where blocks were added or taken out.
    near : ndarray (M, B), optional
        Earlier blocks that each block is conditioned on, -1 for none, where blocks were added.
    """

    order: Order
    rows: int
    block_rows: int
    cuts: np.ndarray
    centroids: np.ndarray
    bounds: np.ndarray | None = None
    near: np.ndarray | None = None

    @property
    def n_blocks(self) -> int:
        """Number of blocks M."""
        return -(-self.rows // self.block_rows) if self.bounds is None else len(self.bounds)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Rows of each block."""
        return tuple(self.span(j) for j in range(self.n_blocks))

    def span(self, block: int) -> Span:
        """Return the rows of a block."""
        if self.bounds is not None:
            return Span(*self.bounds[block].tolist())
        start = block * self.block_rows
        return Span(start, min(start + self.block_rows, self.rows))

    @property
    def token(self) -> str:
        """Checksum of the order and of where the blocks are cut."""
        arrays = {"cuts": self.cuts, "centroids": self.centroids}
        more = {"bounds": self.bounds, "near": self.near}
        arrays |= {name: values for name, values in more.items() if values is not None}
        return groups.checksum(arrays, self._said)

    @property
    def _said(self) -> dict[str, Any]:
        return {"order": self.order.to_dict(), "rows": self.rows, "block_rows": self.block_rows}

    def write(self, group: zarr.Group) -> None:
        """Describe the blocks in the dataset store of their rows."""
        prepared.write_blocks(group, self.cuts, self.centroids, self._said)

    def blocks_of(self, X: np.ndarray) -> np.ndarray:
        """Return the block (n,) whose interval of keys holds each row of inputs X (n, d).

        Of blocks that were added later, with keys among those of others, it is the one with the
        nearest centroid.  Raises InputError if the order is random.
        """
        keys = self.order.keys(X)
        later = (np.flatnonzero(self.cuts[1:] < self.cuts[:-1]) + 2).tolist()
        if not later:
            return np.searchsorted(self.cuts, keys, side="right")
        ends = itertools.pairwise([0, *later, self.n_blocks])
        each = [a + np.searchsorted(self.cuts[a : b - 1], keys, side="right") for a, b in ends]
        columns, step = list(self.order.columns), self.order.step
        places = np.asarray(X, np.float64)[:, columns] / step
        centroids = self.centroids[:, columns] / step
        away = [((places - centroids[blocks]) ** 2).sum(axis=1) for blocks in each]
        nearest = np.argmin(away, axis=0)[None]
        return np.take_along_axis(np.stack(each), nearest, axis=0)[0]

    def along(self, order: Order) -> Layout:
        """Return the same blocks along an order that was ``widened``."""
        return replace(self, order=order, cuts=self.order.rekeyed(self.cuts, order))

    def followed(self, own: Layout, first_key: int) -> Layout:
        """Return these blocks and, after them, those of rows that were put after the last row.

        ``first_key`` is the key of the first of those rows.
        """
        before = self.limits()
        more = own.limits() + before[:, 1].max()
        cut = np.array([first_key], np.uint64)
        return replace(
            self,
            rows=self.rows + own.rows,
            cuts=np.concatenate([self.cuts, cut, own.cuts]),
            centroids=np.concatenate([self.centroids, own.centroids]),
            bounds=np.concatenate([before, more]),
            near=None,
        )

    def between(self, start: int, stop: int) -> Layout:
        """Return some successive blocks, whose rows stay where they are."""
        bounds = self.limits()[start:stop]
        return replace(
            self,
            rows=int(np.diff(bounds, axis=1).sum()),
            cuts=self.cuts[start : stop - 1],
            centroids=self.centroids[start:stop],
            bounds=bounds,
        )

    def limits(self) -> np.ndarray:
        """Return the first row of each block and the end of its rows (M, 2)."""
        return np.array(self.spans, np.int64).reshape(-1, 2)


def balanced(n: int, block_rows: int) -> int:
    """Return the rows per block for as few blocks as ``block_rows`` allows, all of one size."""
    return -(-n // -(-n // block_rows))


def read_layout(X: Any) -> Layout | None:
    """Read the blocks of a prepared store, from its X; None for any other array.

    Parameters
    ----------
    X : array
        Zarr array, or the dask array that `open_dataset` gives.

    Raises
    ------
    InputError
        If the blocks are those of other columns or other rows.
    """
    stored = prepared.blocks_behind(X)
    if stored is None:
        return None
    again = "run daskgp.prepare again"
    try:
        order = Order.from_dict(stored.attributes["order"])
        rows, block_rows = (int(stored.attributes[name]) for name in ("rows", "block_rows"))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"dataset {stored.url}: its blocks cannot be read: {again}") from error
    features = stored.columns.inputs_names
    if order.features != features:
        raise InputError(
            f"dataset {stored.url}: block order was made with features "
            f"{', '.join(order.features)} but the store has {', '.join(features)}: {again}"
        )
    layout = Layout(order, rows, block_rows, stored.cuts, stored.centroids)
    shapes = (len(stored.cuts) + 1, *stored.centroids.shape)
    if rows != X.shape[0] or shapes != (layout.n_blocks, layout.n_blocks, len(stored.columns)):
        raise InputError(
            f"dataset {stored.url}: blocks were made for {rows} rows but the store has "
            f"{X.shape[0]}: {again}"
        )
    return layout
