"""Choices of rows that depend on their numbers and a seed alone, however rows are cut."""

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
        """Return the largest number of rows that are drawn from ``rows`` rows."""
        return rows

    def among(self, own: tuple[int, int], part: tuple[int, int]) -> np.ndarray:
        """Return a mask (r,) of the rows drawn from a part of a unit."""
        (first, last), (start, stop) = own, part
        if self.share is None:
            rng = np.random.default_rng([self.seed, CENTRAL_STREAM, first])
            drawn = first + int(rng.integers(max(last - first, 1)))
            return np.arange(start, stop) == drawn
        keys = row_keys((self.seed, CENTRAL_STREAM), start, stop - start)
        return keys < np.uint64(self.share * (2.0**64 - 2048))


class Some(NamedTuple):
    """Random choice of ``number`` rows of a unit."""

    number: int
    seed: int

    def most(self, rows: int) -> int:
        """Return the largest number of rows that are drawn from ``rows`` rows."""
        return min(rows, self.number)

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return a mask (r,) of the rows drawn from a part of a unit."""
        drawn = np.zeros(own.rows, bool)
        rng = np.random.default_rng([self.seed, 6, own.start])
        drawn[rng.permutation(own.rows)[: self.number]] = True
        return drawn[part.start - own.start : part.stop - own.start]


class AllBut(NamedTuple):
    """All rows but a held-out sample: those whose keys from a seed exceed ``highest``."""

    seed: tuple[int, ...]
    highest: int

    def most(self, rows: int) -> int:
        """Return the largest number of rows that are drawn from ``rows`` rows."""
        return rows

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return a mask (r,) of the rows drawn from a part of a unit."""
        return row_keys(self.seed, part.start, part.rows) > self.highest
