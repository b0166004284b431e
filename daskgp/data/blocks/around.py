"""Training rows that predictions at a place are conditioned on.

Places are put into groups that share a factor.  The group of a place, and the rows that serve it,
depend on the place alone and not on the other places asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from daskgp.data.blocks.cells import Cells, in_line, nearest_to, split
from daskgp.data.blocks.layout import Layout
from daskgp.kernels.lengthscales import in_units

LANDMARKS = 16
"""Rows of a block that stand for it when distances to it are measured."""
LOOKS = 4
"""Times that the search for the nearest rows is widened to twice as many landmarks."""
CELL_DIMENSIONS = 4
"""Most dimensions that equal cells cut; with more, a cell would hold a single place."""

Key: TypeAlias = tuple[int, ...]
"""Name of a group of places."""


class Part(NamedTuple):
    """A block and those of its rows that are chosen; None stands for all of them."""

    block: int
    rows: np.ndarray | None = None


class Around(Protocol):
    """Rule for the training rows that predictions are conditioned on."""

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Yield each group with the rows of X (n, d), in the user's units, that are in it."""

    def parts(self, key: Key, read: Callable[[int], np.ndarray]) -> list[Part]:
        """Return the training rows that serve a group; ``read`` gives the inputs of a block."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps of it."""

    def describe(self) -> str:
        """Describe it for people."""


class OfBlocks:
    """Rule by which predictions are conditioned on whole blocks, whose numbers name a group."""

    def parts(self, key: Key, read: Callable[[int], np.ndarray]) -> list[Part]:
        """Return the training rows that serve a group, see ``Around``."""
        return [Part(j) for j in key]


@dataclass(frozen=True, eq=False)
class Band(OfBlocks):
    """The block whose interval of keys holds a place, with ``reach`` blocks on either side."""

    reach: int

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Yield each group with its rows of X, see ``Around``."""
        served: dict[Key, list[np.ndarray]] = {}
        for own, rows in split(layout.blocks_of(X)):
            low, high = max(0, own - self.reach), min(layout.n_blocks, own + self.reach + 1)
            served.setdefault(tuple(range(low, high)), []).append(rows)
        yield from _together(served)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps of it."""
        return {"reach": np.array(self.reach)}

    def describe(self) -> str:
        """Describe it for people."""
        return f"a place's own block and {self.reach} on either side"


class _Near:
    """Base of the nearest rows and the nearest blocks: distances to landmarks.

    ``landmarks`` (M, r, d) in the units of X stand for the blocks, ``lengths`` (d,) are the units
    of distance along each column, infinite for one that does not matter; at least one does.  They
    are a matrix (q, d) where axes are turned, see ``kernels.lengthscales``.
    """

    lengths: np.ndarray
    landmarks: np.ndarray

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but those that are made from the rest again."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return in_units(X, self.lengths)

    def _cells_beside(self, share: float) -> Cells:
        """Return cells that are small compared with a ball that holds such a share of all rows."""
        points = self._scaled(self.landmarks)
        points = points.reshape(-1, points.shape[-1])
        return Cells(points, max(1, round(share * len(points))))


@dataclass(frozen=True, eq=False)
class NearestRows(_Near):
    """The ``number`` training rows nearest to a place's cell.

    They are looked for in blocks whose landmarks are near; one far from the landmarks of its block
    may be missed.

    Parameters
    ----------
    number : int
        Rows that a place is conditioned on.
    rows : int
        Number of training rows.
    lengths, landmarks : ndarray (d,), (M, r, d)
        See ``_Near``.
    """

    number: int
    rows: int
    lengths: np.ndarray
    landmarks: np.ndarray

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Yield each group with its rows of X, see ``Around``."""
        cells = dict(split(self._cells.of(self._scaled(X)))) if len(X) else {}
        for name in sorted(cells, key=in_line):
            yield (name,), cells[name]

    def parts(self, key: Key, read: Callable[[int], np.ndarray]) -> list[Part]:
        """Return the training rows that serve a group, see ``Around``."""
        count, r = self.landmarks.shape[:2]
        low, high = self._cells.bounds(key[0])
        look = 2 * self._cells.number + r
        for _ in range(LOOKS):
            look = min(look, count * r)
            nearest = self._cells.tree.query(0.5 * (low + high), k=np.arange(1, look + 1))
            away, near = (np.asarray(part) for part in nearest)
            blocks = np.unique(near // r)
            inputs = [self._scaled(read(int(j))) for j in blocks]
            chosen, reach = nearest_to(np.concatenate(inputs), low, high, self.number)
            if look == count * r or reach <= away[-1]:  # blocks left out begin farther away
                break
            look *= 2
        edges = np.cumsum([0, *map(len, inputs)])
        pieces = np.split(chosen, np.searchsorted(chosen, edges[1:-1]))
        return [
            Part(int(j), piece - first)
            for j, piece, first in zip(blocks, pieces, edges, strict=False)
            if len(piece)
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps of it."""
        counts = np.array([self.number, self.rows])
        return {"nearest_rows": counts, "lengths": self.lengths, "landmarks": self.landmarks}

    def describe(self) -> str:
        """Describe it for people."""
        return f"the {min(self.number, self.rows)} training rows nearest to a place"

    @cached_property
    def _cells(self) -> Cells:
        return self._cells_beside(self.number / self.rows)


@dataclass(frozen=True, eq=False)
class NearestBlocks(OfBlocks, _Near):
    """The block that holds a place and those nearest to its cell, ``number`` in all.

    For ``lengths`` and ``landmarks`` see ``_Near``.
    """

    number: int
    lengths: np.ndarray
    landmarks: np.ndarray
    kept_as: ClassVar[str] = "nearest_blocks"
    """Name of the number in a model store."""

    def groups(self, layout: Layout, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Yield each group with its rows of X, see ``Around``."""
        served: dict[Key, list[np.ndarray]] = {}
        for middle, own, rows in self._middles(layout, X) if len(X) else ():
            served.setdefault(self._blocks(middle, own), []).append(rows)
        yield from _together(served)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps of it."""
        number = np.array(self.number)
        return {self.kept_as: number, "lengths": self.lengths, "landmarks": self.landmarks}

    def describe(self) -> str:
        """Describe it for people."""
        return f"the {min(self.number, len(self.landmarks))} blocks nearest to a place"

    def _middles(
        self, layout: Layout, X: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int | None, np.ndarray]]:
        """Yield rows of X, the middle of their cell in units of distance, and a block to be in."""
        own = layout.blocks_of(X)
        for name, rows in split(self._cells.of(self._scaled(X))):
            low, high = self._cells.bounds(name)
            for block, subset in split(own[rows]):
                yield 0.5 * (low + high), block, rows[subset]

    def _blocks(self, middle: np.ndarray, own: int | None) -> Key:
        """Return the blocks with the landmarks nearest to a point, including ``own`` if given."""
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
    def _tree(self) -> cKDTree:
        """Tree that finds the landmarks near a place."""
        return self._cells.tree

    @cached_property
    def _cells(self) -> Cells:
        return self._cells_beside(1 / len(self.landmarks))


@dataclass(frozen=True, eq=False)
class EqualCells(NearestBlocks):
    """The ``number`` blocks nearest to the middle of a place's cell, where all cells are alike.

    Stores of version 0.1 use it; where rows are dense it leaves out the block of a place.  Here no
    column needs to matter.
    """

    kept_as: ClassVar[str] = "number"

    def _middles(
        self, layout: Layout, X: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int | None, np.ndarray]]:
        """Yield rows of X with the middle of their cell; where there are none, of their block."""
        counts = self._counts
        if counts is None:
            for own, rows in split(layout.blocks_of(X)):
                yield self._points[own].mean(axis=0), own, rows
            return
        low, high = self._points.min(axis=(0, 1)), self._points.max(axis=(0, 1))
        side = np.where(high > low, (high - low) / counts, 1.0)
        # places outside belong to the cells at the edge
        cells = np.clip(np.floor((self._scaled(X) - low) / side), 0, counts - 1)
        flat = np.ravel_multi_index(tuple(cells.astype(np.int64).T), tuple(counts))
        for cell, rows in split(flat):
            index = np.array(np.unravel_index(cell, tuple(counts)), np.float64)
            yield low + (index + 0.5) * side, None, rows

    @cached_property
    def _points(self) -> np.ndarray:
        if not np.isfinite(self.lengths).any():  # blocks are near one another by their order alone
            places = np.arange(len(self.landmarks), dtype=np.float64)[:, None, None]
            return np.broadcast_to(places, (*self.landmarks.shape[:2], 1))
        return self._scaled(self.landmarks)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._points.reshape(-1, self._points.shape[-1]))

    @cached_property
    def _counts(self) -> np.ndarray | None:
        """Cells along each dimension: cubes, about as many as blocks; None for too many of them."""
        if not np.isfinite(self.lengths).any():
            return None
        ranges = np.ptp(self._points, axis=(0, 1))
        longest, number = np.sort(ranges)[::-1], len(self.landmarks)
        for used in range(len(ranges), 0, -1):  # short sides are not cut
            side = (np.prod(longest[:used]) / number) ** (1 / used)
            if 0 < side <= longest[used - 1]:
                break
        if used > CELL_DIMENSIONS:
            return None
        return np.maximum(1, np.rint(ranges / max(side, np.finfo(float).tiny))).astype(np.int64)


def around_of(arrays: dict[str, np.ndarray]) -> Around:
    """Return the rule that ``Around.arrays`` describes."""
    if "reach" in arrays:
        return Band(int(arrays["reach"]))
    where = arrays["lengths"], arrays["landmarks"]
    if "nearest_rows" in arrays:
        number, rows = (int(count) for count in arrays["nearest_rows"])
        return NearestRows(number, rows, *where)
    kind = NearestBlocks if NearestBlocks.kept_as in arrays else EqualCells
    return kind(int(arrays[kind.kept_as]), *where)


def _together(served: dict[Key, list[np.ndarray]]) -> Iterator[tuple[Key, np.ndarray]]:
    """Yield blocks in their order with all the places that they serve."""
    for blocks in sorted(served):
        yield blocks, np.sort(np.concatenate(served[blocks]))
