"""Rows as they are stored."""

from __future__ import annotations

from dataclasses import dataclass

from daskgp.data import Rows, partition
from daskgp.fit.arrange.arrangement import Arrangement, Planned
from daskgp.fit.plan import in_blocks


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
