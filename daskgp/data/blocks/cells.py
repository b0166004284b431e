"""Space cut into cells that are small where training rows are dense.

The box of the training inputs is halved across its longest side, and its halves again, until a
cell is small beside the distance from its middle to as many rows as predictions there are
conditioned on.  So the cell of a place depends on the place alone; in a gap between rows cells are
as large as the gap is far from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

VOLUME = 0.125
"""Most that a cell may have of the volume of a ball that holds the rows."""
DIAGONAL = 1.8
"""Most that the diagonal of a cell may be in radii of that ball: it covers the cell."""
HALVINGS = 60
"""Most halvings on the way to a cell: as many bits as a name has."""
FINEST = 1e-6
"""Smallest side of a cell beside the longest of the box: rows may coincide."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of the space of some landmarks.

    Parameters
    ----------
    landmarks : ndarray (L, d)
        Rows that stand for as many others each, in units that make distances alike.
    number : int
        Landmarks in the ball that a cell is small beside.
    """

    landmarks: np.ndarray
    number: int

    def of(self, places: np.ndarray) -> np.ndarray:
        """The name (n,) of the cell of each place (n, d): one, then a bit for each halving.

        Those outside the box belong to the cells at its edge.
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
        """Lower and upper corner (d,) of a cell."""
        low, high = (edge.copy() for edge in self.box)
        for bit in f"{name:b}"[1:]:
            axis = int(np.argmax(high - low))
            (low if bit == "1" else high)[axis] = 0.5 * (low[axis] + high[axis])
        return low, high

    def _wide(self, names: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Mask of the places whose cell so far is to be halved."""
        _, first, each = np.unique(names, return_index=True, return_inverse=True)
        low, high = low[first], high[first]
        side = (high - low).max(axis=1)
        least = FINEST * np.ptp(self.box, axis=0).max()
        return ((side > self._share * self._radii(0.5 * (low + high))) & (side > least))[each]

    def _radii(self, middles: np.ndarray) -> np.ndarray:
        """Distance (g,) to as many landmarks; infinite where there are no more."""
        if self.number >= len(self.landmarks):
            return np.full(len(middles), np.inf)
        return np.asarray(self.tree.query(middles, k=[self.number])[0])[:, 0]

    @cached_property
    def _share(self) -> float:
        """Longest side of a cell beside the radius of the ball."""
        d = self.landmarks.shape[1]
        ball = math.exp(0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1))
        return float(min((VOLUME * ball) ** (1 / d), DIAGONAL / math.sqrt(d)))

    @cached_property
    def tree(self) -> cKDTree:
        """Finds the landmarks near a place."""
        return cKDTree(self.landmarks)

    @cached_property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner (d,) of the landmarks' box."""
        return self.landmarks.min(axis=0), self.landmarks.max(axis=0)


def in_line(name: int) -> int:
    """Sorts cells along a line on which those near one another are mostly near."""
    return name << (HALVINGS + 1 - name.bit_length())


def split(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each label (n,) with the places where it stands."""
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(members):
            yield int(labels[members[0]]), members


def nearest_to(
    points: np.ndarray, low: np.ndarray, high: np.ndarray, number: int
) -> tuple[np.ndarray, float]:
    """The ``number`` points (n, d) nearest to a cell, in their order, and how far they reach.

    Those as near are taken by their distance to its middle, from which the reach is measured.
    """
    outside = np.maximum(np.maximum(low - points, points - high), 0.0)
    away = ((points - 0.5 * (low + high)) ** 2).sum(axis=1)
    chosen = np.lexsort((away, (outside**2).sum(axis=1)))[:number]
    return np.sort(chosen), float(np.sqrt(away[chosen].max()))
