"""Space cut into cells that are small where training rows are dense.

The box of the training inputs is halved across its longest side, and its halves again, until a
cell is small compared with the distance from its middle to as many rows as predictions there are
conditioned on.  So the cell of a place depends on the place alone; in a gap between rows, cells
grow with the distance from the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

VOLUME = 0.25
"""Largest volume of a cell, as a share of that of a ball that holds the rows."""
DIAGONAL = 1.8
"""Longest diagonal of a cell, in radii of that ball: the ball covers the cell."""
HALVINGS = 60
"""Most halvings on the way to a cell: as many bits as a name has."""
FINEST = 1e-6
"""Smallest side of a cell, relative to the longest of the box: rows may coincide."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of the space of some landmarks.

    Parameters
    ----------
    landmarks : ndarray (L, d)
        Rows that each stand for equally many others, in units that make distances comparable.
    number : int
        Landmarks in the ball that a cell is small compared with.
    """

    landmarks: np.ndarray
    number: int

    def of(self, places: np.ndarray) -> np.ndarray:
        """Return the name (n,) of the cell of each place (n, d): 1, then a bit per halving.

        Places outside the box belong to the cells at its edge.
        """
        low, high = (np.tile(edge, (len(places), 1)) for edge in self.box)
        names, going = np.ones(len(places), np.int64), np.arange(len(places))
        for _ in range(HALVINGS):
            going = going[self._wide(names[going], low[going], high[going])]
            if not len(going):
                break
            axis = np.argmax(high[going] - low[going], axis=1)
            middle = 0.5 * (low[going, axis] + high[going, axis])
            beyond = places[going, axis] >= middle
            low[going[beyond], axis[beyond]] = middle[beyond]
            high[going[~beyond], axis[~beyond]] = middle[~beyond]
            names[going] = 2 * names[going] + beyond
        return names

    def bounds(self, name: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper corner (d,) of a cell."""
        low, high = (edge.copy() for edge in self.box)
        for bit in f"{name:b}"[1:]:
            axis = int(np.argmax(high - low))
            (low if bit == "1" else high)[axis] = 0.5 * (low[axis] + high[axis])
        return low, high

    def _wide(self, names: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return a mask of the places whose cell so far is to be halved."""
        _, first, each = np.unique(names, return_index=True, return_inverse=True)
        low, high = low[first], high[first]
        side = (high - low).max(axis=1)
        least = FINEST * np.ptp(self.box, axis=0).max()
        return ((side > self._share * self._radii(0.5 * (low + high))) & (side > least))[each]

    def _radii(self, middles: np.ndarray) -> np.ndarray:
        """Return the distance (g,) to the ``number``-th landmark; infinite if there are no more."""
        if self.number >= len(self.landmarks):
            return np.full(len(middles), np.inf)
        return np.asarray(self.tree.query(middles, k=[self.number])[0])[:, 0]

    @cached_property
    def _share(self) -> float:
        """Longest side of a cell, relative to the radius of the ball."""
        d = self.landmarks.shape[1]
        ball = math.exp(0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1))
        return float(min((VOLUME * ball) ** (1 / d), DIAGONAL / math.sqrt(d)))

    @cached_property
    def tree(self) -> cKDTree:
        """Tree that finds the landmarks near a place."""
        return cKDTree(self.landmarks)

    @cached_property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner (d,) of the landmarks' box."""
        return self.landmarks.min(axis=0), self.landmarks.max(axis=0)


def in_line(name: int) -> int:
    """Return a key that sorts cells along a line on which neighbours are mostly near in space."""
    return name << (HALVINGS + 1 - name.bit_length())


def split(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each of the labels (n,) with the indices where it stands."""
    order = np.argsort(labels, kind="stable")
    for indices in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(indices):
            yield int(labels[indices[0]]), indices


def nearest_to(
    points: np.ndarray, low: np.ndarray, high: np.ndarray, number: int
) -> tuple[np.ndarray, float]:
    """Find the ``number`` points (n, d) nearest to a cell, in their order, and how far they reach.

    Ties are decided by the distance to the cell's middle, from which the reach is measured.
    """
    outside = low - points
    np.maximum(outside, points - high, out=outside)
    np.maximum(outside, 0.0, out=outside)
    beyond = np.einsum("ij,ij->i", outside, outside)
    candidates = np.arange(len(points))
    if number < len(points):
        candidates = np.flatnonzero(beyond <= np.partition(beyond, number - 1)[number - 1])
    away = ((points[candidates] - 0.5 * (low + high)) ** 2).sum(axis=1)
    first = np.lexsort((away, beyond[candidates]))[:number]
    return np.sort(candidates[first]), float(np.sqrt(away[first].max()))
