"""Rows in an order, cut as if they were stored in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskgp.data import Rows, partition
from daskgp.data.blocks.layout import read_layout
from daskgp.fit.arrange import rewriting
from daskgp.fit.arrange.arrangement import Planned
from daskgp.fit.arrange.as_stored import AsStored
from daskgp.fit.plan import rows_bytes
from daskgp.fit.rounds import Rounds
from daskgp.fit.scratch import ordered
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta


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
        written = rows_bytes(rows) if read_layout(rows.X) is None else 0
        return super().planned(rows, value)._replace(written=written)

    def arrange(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rounds:
        """Return the rounds over rows in the order, in units of the kernel's lengths."""
        if read_layout(stage.rows.X) is not None:
            return stage
        units = rewriting.lengths(stage, theta, sums)
        settings = self.order, units, self.random_state
        rows, _ = rewriting.rewritten(stage, sums, ordered(keep), *settings)
        spans = partition.blocks(len(rows), rows.chunks, self.block_rows)
        return replace(stage, rows=rows, units=partition.alone(spans))
