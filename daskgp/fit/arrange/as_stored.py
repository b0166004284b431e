"""Rows as they are stored, in an order that is made for a fit, or in mini-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskgp.data import Rows, partition
from daskgp.data.blocks.layout import read_layout
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.fit.arrange import rewriting
from daskgp.fit.arrange.arrangement import Arrangement
from daskgp.fit.minibatches import LANE_ROWS
from daskgp.fit.plan import Planned, in_blocks, sorted_bytes
from daskgp.fit.rounds import Rounds
from daskgp.fit.scratch import ordered
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta

BATCH_ROWS = 1_024
HELD_OUT_ROWS = 10_000
"""Maximum number of rows that are held out."""


@dataclass(frozen=True)
class AsStored(Arrangement):
    """Rows as they are stored, cut into blocks along their chunks.

    Parameters
    ----------
    block_rows : int, optional
        Most rows of a block; default some that suit the number of rows.
    keeps_rows : bool
        Whether the fit itself keeps rows that predictions read back.
    """

    block_rows: int | None = None
    keeps_rows: bool = False

    def planned(self, rows: Rows, value: int | None = None) -> Planned:
        """Return the blocks, or ones of ``value`` rows."""
        if value is None:
            return Planned(rows, partition.blocks(len(rows), rows.chunks, self.block_rows))
        return Planned(*in_blocks(rows, value))


@dataclass(frozen=True)
class Sorted(AsStored):
    """Rows in an order, for as long as a fit lasts; those of a prepared store keep theirs.

    Parameters
    ----------
    block_rows, keeps_rows
        As in ``AsStored``.
    order : str or sequence of str
    random_state : int, optional
    """

    order: str | Sequence[str] = "auto"
    random_state: int | None = 0

    def check(self, rows: Rows, name: str) -> None:
        """Raise SettingError for an order that the rows cannot be put in."""
        if read_layout(rows.X) is None:
            rewriting.check_order(rows, self.order)

    def planned(self, rows: Rows, value: int | None = None) -> Planned:
        """Return the blocks, or ones of ``value`` rows."""
        written = sorted_bytes(rows) if read_layout(rows.X) is None else 0
        return replace(super().planned(rows, value), written=written)

    def arrange(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rounds:
        """Return the rounds over rows in the order, in units of the kernel's lengths."""
        if read_layout(stage.rows.X) is not None:
            return stage
        units = rewriting.lengths(stage, theta, sums)
        settings = self.order, units, self.random_state
        rows, _ = rewriting.rewritten(stage, sums, ordered(keep), *settings)
        spans = partition.blocks(len(rows), rows.chunks, self.block_rows)
        return replace(stage, rows=rows, units=partition.alone(spans))


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
        return replace(blocks, units=units, block_rows=blocks.largest)
