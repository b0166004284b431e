"""Rows in mini-batches."""

from __future__ import annotations

from dataclasses import dataclass

from daskgp.data import Rows
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.fit.arrange.arrangement import Planned
from daskgp.fit.arrange.as_stored import AsStored
from daskgp.fit.minibatches import LANE_ROWS

BATCH_ROWS = 1_024
HELD_OUT_ROWS = 10_000
"""Maximum number of rows that are held out."""


@dataclass(frozen=True)
class Batches(AsStored):
    """Mini-batches of rows drawn from the stored ones, of which some may be held out.

    Parameters
    ----------
    block_rows : int, optional
        As in ``AsStored``.
    batch_rows : int, optional
        Rows of a batch; default BATCH_ROWS, or all where there are fewer.
    share : float, optional
        Share of the rows that is held out; default none.
    """

    batch_rows: int | None = None
    share: float | None = None

    def size(self, n: int) -> int:
        """Return the rows of a batch of n rows."""
        return min(BATCH_ROWS, n) if self.batch_rows is None else self.batch_rows

    def held_out(self, n: int) -> int:
        """Return how many of n rows are held out."""
        if self.share is None:
            return 0
        return max(1, min(HELD_OUT_ROWS, round(self.share * n)))

    def check_number(self, n: int) -> None:
        """Raise InputError for fewer rows to train on than one batch has."""
        left = n - self.held_out(n)
        if left < 1:
            raise InputError(f"{n} usable rows: too few to hold some out, leave validation out")
        if self.size(left) > left:
            raise InputError(
                f"batch_rows={self.batch_rows} for {left} rows to train on: choose at most {left}"
            )

    def planned(self, rows: Rows, value: int | None = None) -> Planned:
        """Return the parts of a batch that tasks work on, of a batch of ``value`` rows if given."""
        blocks, batch = super().planned(rows), value or self.size(len(rows))
        lanes = -(-batch // LANE_ROWS)
        units = [Span(0, -(-batch // lanes))] * lanes
        return blocks._replace(units=units, block_rows=blocks.largest)
