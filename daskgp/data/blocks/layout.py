"""Blocks of nearby rows: which rows are in them, and to which of them a new row belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """

    order: Order
    rows: int
    block_rows: int
    cuts: np.ndarray
    centroids: np.ndarray

    @property
    def n_blocks(self) -> int:
        """Number of blocks M."""
        return -(-self.rows // self.block_rows)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Rows of each block."""
        return tuple(self.span(j) for j in range(self.n_blocks))

    def span(self, block: int) -> Span:
        """Return the rows of a block."""
        start = block * self.block_rows
        return Span(start, min(start + self.block_rows, self.rows))

    @property
    def token(self) -> str:
        """Checksum of the order and of where the blocks are cut."""
        said = {"order": self.order.to_dict(), "rows": self.rows, "block_rows": self.block_rows}
        return groups.checksum({"cuts": self.cuts, "centroids": self.centroids}, said)

    def blocks_of(self, X: np.ndarray) -> np.ndarray:
        """Return the block (n,) whose interval of keys holds each row of inputs X (n, d).

        Raises InputError if the order is random.
        """
        return np.searchsorted(self.cuts, self.order.keys(X), side="right")


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
