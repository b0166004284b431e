"""Blocks of nearby rows: which rows they are, and to which of them a new row belongs."""

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
"""Rows of a block, at most, where nothing else is wanted."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows in an order, cut into blocks of equal size.

    Parameters
    ----------
    order : Order
        Gives every row its key.
    rows, block_rows : int
        Block i has the rows from i block_rows on, the last one what is left.
    cuts : ndarray (M - 1,) of uint64
        Key of the first row of each block but the first.
    centroids : ndarray (M, d)
        Mean inputs of each block, in the units of X.
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
        step, n = self.block_rows, self.rows
        return tuple(Span(i, min(i + step, n)) for i in range(0, n, step))

    @property
    def token(self) -> str:
        """Checksum of the order and of where the blocks are cut."""
        said = {"order": self.order.to_dict(), "rows": self.rows, "block_rows": self.block_rows}
        return groups.checksum({"cuts": self.cuts, "centroids": self.centroids}, said)

    def blocks_of(self, X: np.ndarray) -> np.ndarray:
        """Block (n,) whose interval of keys holds each row of X (n, d), in the units of X.

        InputError where the order is random.
        """
        return np.searchsorted(self.cuts, self.order.keys(X), side="right")


def balanced(n: int, block_rows: int) -> int:
    """Rows of a block for as few blocks as ``block_rows`` allows, all of one size."""
    return -(-n // -(-n // block_rows))


def read_layout(X: Any) -> Layout | None:
    """The blocks of a prepared store, from its X; None for any other array.

    Parameters
    ----------
    X : array
        Zarr array, or the dask array that `open_dataset` gives.

    Raises
    ------
    InputError
        If the blocks are those of other columns or other rows.
    """
    found = prepared.blocks_behind(X)
    if found is None:
        return None
    again = "run daskgp.prepare again"
    try:
        order = Order.from_dict(found.attributes["order"])
        rows, block_rows = (int(found.attributes[name]) for name in ("rows", "block_rows"))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"dataset {found.url}: its blocks cannot be read: {again}") from error
    if order.features != found.features:
        raise InputError(
            f"dataset {found.url}: block order was made with features "
            f"{', '.join(order.features)} but the store has {', '.join(found.features)}: {again}"
        )
    layout = Layout(order, rows, block_rows, found.cuts, found.centroids)
    shapes = (len(found.cuts) + 1, *found.centroids.shape)
    if rows != X.shape[0] or shapes != (layout.n_blocks, layout.n_blocks, X.shape[1]):
        raise InputError(
            f"dataset {found.url}: blocks were made for {rows} rows but the store has "
            f"{X.shape[0]}: {again}"
        )
    return layout
