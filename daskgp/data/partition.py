"""Cuts of rows into blocks, the unit of work of one task."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from daskgp.errors import SettingError

READ_ROWS = 8_192
"""Rows that are read at a time beside the work on others, at least."""

MIN_ROWS, MAX_ROWS, BLOCKS = 2_048, 65_536, 32
TASK_ROWS = 2_048


class Span(NamedTuple):
    """Rows start to stop."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Draw(Protocol):
    """Choice of some rows of a unit, which does not depend on how they are cut."""

    def most(self, rows: int) -> int:
        """Return how many rows of ``rows`` are drawn at most."""

    def among(self, own: Span, part: Span) -> np.ndarray:
        """Return which rows (r,) of a part of a unit are drawn; by their places alone."""


class Unit(NamedTuple):
    """Rows that are worked on together: a block, a window, an expert, a part of a mini-batch.

    ``near`` are the blocks that they are conditioned on, ``weight`` how often each row counts,
    None where it does not, and ``draw`` chooses some of them.
    """

    own: Span
    near: tuple[Span, ...] = ()
    weight: float | None = 1.0
    draw: Draw | None = None

    @property
    def rows(self) -> int:
        """Number of rows that are read to work on, those near them included."""
        own = self.own.rows if self.draw is None else self.draw.most(self.own.rows)
        return own + sum(span.rows for span in self.near)


def alone(spans: Sequence[Span]) -> tuple[Unit, ...]:
    """Each block by itself."""
    return tuple(Unit(span) for span in spans)


def following(spans: Sequence[Span], reach: int) -> tuple[Unit, ...]:
    """Each block with the ``reach`` blocks after it, fewer at the end: D_m^B of [LMA]."""
    return tuple(Unit(span, tuple(spans[i + 1 : i + 1 + reach])) for i, span in enumerate(spans))


def per_task(count: int, rows: int, least: int) -> int:
    """Units of a task: ``count`` thin ones share tasks as long as there are ``least`` tasks."""
    return max(1, min(TASK_ROWS // max(rows, 1), count // least))


def default_block_rows(n: int) -> int:
    """Rows a block: about BLOCKS blocks, each neither thin nor more than a task should hold.

    It depends on the data alone, so that results do not depend on the workers there are.
    """
    return int(np.clip(-(-n // BLOCKS), MIN_ROWS, MAX_ROWS))


def blocks(n: int, chunks: tuple[int, ...] | None, block_rows: int | None = None) -> list[Span]:
    """Cut n rows into blocks of at most ``block_rows``.

    Parameters
    ----------
    n : int
        Rows.
    chunks : tuple of int or None
        Row counts of the chunks in order; None where any cut will do.
    block_rows : int, optional
        Most rows of a block; chosen from n where it is not given.  Small chunks are put together
        whole.  A larger chunk is cut into equal parts: each part reads all of it, which costs
        little beside the work on the part and keeps all workers busy.
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
    """Equal parts of at most ``wanted`` rows."""
    return even(start, stop, -(-(stop - start) // wanted))


def even(start: int, stop: int, number: int) -> list[Span]:
    """``number`` parts whose rows differ by at most one."""
    edges = np.linspace(start, stop, number + 1).astype(int).tolist()
    return [Span(*edge) for edge in itertools.pairwise(edges)]


def sample(units: Sequence[Unit], number: int, rng: np.random.Generator) -> tuple[Unit, ...]:
    """``number`` blocks at random, in their order; all of them where there are no more."""
    if number >= len(units):
        return tuple(units)
    chosen = np.sort(rng.choice(len(units), number, replace=False))
    return tuple(units[i] for i in chosen)


def whole_chunks(span: Span, chunks: tuple[int, ...] | None) -> list[Span]:
    """A span cut where its chunks end, into parts of READ_ROWS rows and more."""
    if chunks is None:
        return [span]
    edges, found = np.cumsum(chunks), [span.start]
    for edge in edges[(edges > span.start) & (edges < span.stop)].tolist():
        if edge - found[-1] >= READ_ROWS and span.stop - edge >= READ_ROWS:
            found.append(edge)
    return [Span(a, b) for a, b in itertools.pairwise([*found, span.stop])]
