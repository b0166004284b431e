"""Choices of rows that follow from their places and a seed, however rows are cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskgp.data.blocks.sampling import row_keys
from daskgp.data.partition import Span

CENTRAL_STREAM = 3


class Central(NamedTuple):
    """One row of each unit, or a share of all rows."""

    share: float | None
    seed: int

    def most(self, rows: int) -> int:
        """Return how many rows of ``rows`` are drawn at most."""
        return rows

    def among(self, own: tuple[int, int], part: tuple[int, int]) -> np.ndarray:
        """Return which rows (r,) of a part of a unit are drawn."""
        (first, last), (start, stop) = own, part
        if self.share is None:
            rng = np.random.default_rng([self.seed, CENTRAL_STREAM, first])
            drawn = first + int(rng.integers(max(last - first, 1)))
            return np.arange(start, stop) == drawn
        keys = np.random.PCG64([self.seed, CENTRAL_STREAM]).advance(start)
        return keys.random_raw(stop - start) < np.uint64(self.share * (2.0**64 - 2048))


class Some(NamedTuple):
    """So many rows of a unit."""

    number: int
    seed: int

    def most(self, rows: int) -> int:
        """Return how many rows of ``rows`` are drawn at most."""
        return min(rows, self.number)

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return which rows (r,) of a part of a unit are drawn."""
        drawn = np.zeros(own.rows, bool)
        rng = np.random.default_rng([self.seed, 6, own.start])
        drawn[rng.permutation(own.rows)[: self.number]] = True
        return drawn[part.start - own.start : part.stop - own.start]


class AllBut(NamedTuple):
    """Rows that are not held out, whose keys from a seed are more than ``highest``."""

    seed: tuple[int, ...]
    highest: int

    def most(self, rows: int) -> int:
        """Return how many rows of ``rows`` are drawn at most."""
        return rows

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return which rows (r,) of a part of a unit are drawn."""
        return row_keys(self.seed, part.start, part.rows) > self.highest
