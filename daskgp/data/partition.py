"""Cuts of rows into blocks, the unit of work of one task."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from daskgp.errors import SettingError

READ_ROWS = 8_192
"""Fewest rows that are read at a time while others are worked on."""

MIN_ROWS, MAX_ROWS, BLOCKS = 2_048, 65_536, 32
TASK_ROWS, MANY_TASKS = 2_048, 4_096
"""Rows of a task that small units share, and tasks of a pass above which they have more of them."""


class Span(NamedTuple):
    """Rows from ``start`` up to ``stop``."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Draw(Protocol):
    """Choice of some rows of a unit that does not depend on how they are cut."""

    def most(self, rows: int) -> int:
        """Return the largest number of rows that are drawn from ``rows`` rows."""

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return a mask (r,) of the rows drawn from a part of a unit, by their numbers alone."""


class Unit(NamedTuple):
    """Rows that are worked on together: a block, a window, an expert, a part of a mini-batch.

    ``near`` are the blocks that they are conditioned on, ``weight`` is how often each row counts,
    None where it does not, and ``draw`` chooses some of them.
    """

    own: Span
    near: tuple[Span, ...] = ()
    weight: float | None = 1.0
    draw: Draw | None = None

    @property
    def rows(self) -> int:
        """Number of rows that are read, including those in ``near``."""
        return self.own_rows + sum(span.rows for span in self.near)

    @property
    def own_rows(self) -> int:
        """Number of rows that are worked on, at most if they are drawn."""
        return self.own.rows if self.draw is None else self.draw.most(self.own.rows)


def alone(spans: Sequence[Span]) -> tuple[Unit, ...]:
    """Return each block as a unit of its own."""
    return tuple(Unit(span) for span in spans)


def following(spans: Sequence[Span], reach: int) -> tuple[Unit, ...]:
    """Return each block with the ``reach`` blocks after it, fewer at the end: D_m^B of [LMA]."""
    return tuple(Unit(span, tuple(spans[i + 1 : i + 1 + reach])) for i, span in enumerate(spans))


def per_task(count: int, rows: int, least: int) -> int:
    """Return the units per task: ``count`` small ones share tasks if ``least`` tasks remain.

    Each task costs the scheduler time and memory, so that tasks of very many rows are larger.

    Examples
    --------
    >>> [per_task(n // 2_048, 2_048, 64) for n in (10**7, 10**8, 10**9)]
    [1, 11, 32]
    """
    rows = max(rows, 1)
    shared = max(TASK_ROWS // rows, min(count // MANY_TASKS, MAX_ROWS // rows))
    return max(1, min(shared, count // least))


def default_block_rows(n: int) -> int:
    """Return the rows per block: about BLOCKS blocks, neither small nor too large for a task.

    They depend on the data alone, so that results do not depend on the number of workers.
    """
    return int(np.clip(-(-n // BLOCKS), MIN_ROWS, MAX_ROWS))


def blocks(n: int, chunks: tuple[int, ...] | None, block_rows: int | None = None) -> list[Span]:
    """Cut n rows into blocks of at most ``block_rows``.

    Parameters
    ----------
    n : int
        Number of rows.
    chunks : tuple of int or None
        Row counts of the chunks in order; None where any cut will do.
    block_rows : int, optional
        Most rows of a block; chosen from n by default.  Small chunks are combined whole.  A
        larger chunk is cut into equal parts: each part reads all of it, which costs little
        compared with the work on the part and keeps all workers busy.
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
        if stop - start > wanted:
            spans += parts(start, stop, wanted)
            start = stop
    return [*spans, Span(start, stop)] if stop > start else spans


def parts(start: int, stop: int, wanted: int) -> list[Span]:
    """Cut rows into equal parts of at most ``wanted`` rows."""
    return even(start, stop, -(-(stop - start) // wanted))


def even(start: int, stop: int, number: int) -> list[Span]:
    """Cut rows into ``number`` parts whose sizes differ by at most one."""
    edges = np.linspace(start, stop, number + 1).astype(int).tolist()
    return [Span(*edge) for edge in itertools.pairwise(edges)]


def sample(units: Sequence[Unit], number: int, rng: np.random.Generator) -> tuple[Unit, ...]:
    """Draw ``number`` blocks at random, in their order, or all where there are no more."""
    if number >= len(units):
        return tuple(units)
    chosen = np.sort(rng.choice(len(units), number, replace=False))
    return tuple(units[i] for i in chosen)


def whole_chunks(span: Span, chunks: tuple[int, ...] | None) -> list[Span]:
    """Cut a span where its chunks end, into parts of READ_ROWS rows or more."""
    if chunks is None:
        return [span]
    edges, cuts = np.cumsum(chunks), [span.start]
    for edge in edges[(edges > span.start) & (edges < span.stop)].tolist():
        if edge - cuts[-1] >= READ_ROWS and span.stop - edge >= READ_ROWS:
            cuts.append(edge)
    return [Span(a, b) for a, b in itertools.pairwise([*cuts, span.stop])]


def joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what was made of some units and, after it, of others."""
    return np.concatenate([a, b])
