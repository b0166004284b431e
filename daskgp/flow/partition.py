"""How rows are cut into blocks: the unit of work of one task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskgp.errors import SettingError

MIN_ROWS, MAX_ROWS, BLOCKS = 2_048, 65_536, 32


class Span(NamedTuple):
    """Rows start to stop."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


def default_block_rows(n: int) -> int:
    """Rows a block: about BLOCKS blocks, each neither thin nor more than a task should hold.

    It depends on the data alone, so that results do not depend on the workers there are.
    """
    return int(np.clip(-(-n // BLOCKS), MIN_ROWS, MAX_ROWS))


def blocks(n: int, chunks: tuple[int, ...] | None, block_rows: int | None = None) -> list[Span]:
    """Cut n rows into blocks of about ``block_rows``, each of whole chunks.

    Parameters
    ----------
    n : int
        Rows.
    chunks : tuple of int or None
        Row counts of the chunks in order; None where any cut will do.
    block_rows : int, optional
        Rows wanted; chosen from n where it is not given.  A chunk that is larger stays whole,
        because reading a part of it costs as much as reading it all.
    """
    if block_rows is not None and block_rows < 1:
        raise SettingError(f"block_rows must be at least 1, not {block_rows}")
    wanted = block_rows or default_block_rows(n)
    if chunks is None:
        return [Span(i, min(i + wanted, n)) for i in range(0, n, wanted)]
    spans, start, stop = [], 0, 0
    for rows in chunks:
        if stop > start and stop + rows - start > wanted:
            spans.append(Span(start, stop))
            start = stop
        stop += rows
    return [*spans, Span(start, stop)] if stop > start else spans


def sample(spans: list[Span], number: int, rng: np.random.Generator) -> list[Span]:
    """``number`` blocks at random, in their order; all of them where there are no more."""
    if number >= len(spans):
        return spans
    return [spans[i] for i in np.sort(rng.choice(len(spans), number, replace=False))]
