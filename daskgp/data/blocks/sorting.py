"""Two passes of an external merge sort of rows by their keys.

Each span of rows becomes a sorted run on disk, with counts at many keys.  A task of the second
pass reads from every run the slice that holds its ranks, and writes those rows.  Equal keys keep
the order of their rows, so the result is the same however the work is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from dask import delayed

from daskgp.data import Rows
from daskgp.data.blocks import prepared
from daskgp.data.blocks.ordering import RANDOM, Order
from daskgp.data.blocks.sampling import Keys
from daskgp.data.partition import Span, joined
from daskgp.models import scaling
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Amount

MAX_CUTS = 4_096


class Counting(NamedTuple):
    """Plan that all tasks of the first pass share.

    These are the order, the keys of rows in a random one, and keys (K,) to count rows at.
    """

    order: Order
    random: Keys
    cuts: np.ndarray


def fine_cuts(order: Order, sample: np.ndarray, number: int) -> np.ndarray:
    """Return at most ``number`` different quantiles of keys, of a sample of rows or random."""
    number = min(number, MAX_CUTS)
    if order.kind == RANDOM:
        return np.arange(1, number + 1, dtype=np.uint64) * np.uint64(2**64 // (number + 1))
    keys = np.sort(order.keys(sample))
    places = np.linspace(0, len(keys) - 1, min(number, len(keys))).astype(int)
    return np.unique(keys[places])


def sort(
    rows: Rows, spans: Sequence[Span], runs: prepared.Runs, plan: Counting, executor: Executor
) -> np.ndarray:
    """Write the runs; return the number of rows of each before each edge (runs, 2 K + 2).

    The edges are the start, before and after each of the K cuts, and the end.
    """
    task, shared = partial(_sort_run, rows, runs), (delayed(plan, traverse=False),)
    amount = Amount(sum(span.rows for span in spans))
    counts = map_reduce(task, joined, list(enumerate(spans)), executor, "sort", shared, amount)
    return np.asarray(counts)


def _sort_run(
    rows: Rows, runs: prepared.Runs, piece: tuple[int, Span], plan: Counting
) -> np.ndarray:
    with single_blas_thread():
        index, span = piece
        X, y = rows.raw(*span)
        keep = scaling.complete_rows(X, y)
        if plan.order.kind == RANDOM:
            keys = plan.random.of(span.start, X, y[:, : rows.n_targets])
        else:
            keys = plan.order.keys(rows.columns.inputs(X))
        keys, X, y = keys[keep], X[keep], y[keep]  # row numbers count the rows left out
        line = np.argsort(keys, kind="stable")
        keys = keys[line]
        runs.put(index, keys, X[line], y[line])
    sides = [np.searchsorted(keys, plan.cuts, side) for side in ("left", "right")]
    edges = np.stack(sides, axis=1).ravel()
    return np.concatenate([[0], edges, [len(keys)]]).astype(np.int32)[None]


def _slices(before: np.ndarray, span: Span) -> tuple[np.ndarray, np.ndarray, int]:
    """Locate the rows of some ranks: start and stop (runs,), and how many more are read before."""
    total = before.sum(axis=0, dtype=np.int64)
    first = int(np.searchsorted(total, span.start, side="right")) - 1
    last = int(np.searchsorted(total, span.stop, side="left"))
    starts, stops = before[:, first], before[:, last]
    if first % 2:  # one key alone: equal keys are in the order of the runs
        starts = _within(before, first, span.start - total[first])
    if (last - 1) % 2:
        stops = _within(before, last - 1, span.stop - total[last - 1])
    return starts, stops, span.start - int(starts.sum(dtype=np.int64))


def _within(before: np.ndarray, edge: int, number: int) -> np.ndarray:
    """Count rows (runs,) of each run before row ``number`` of those from an edge to the next."""
    sizes = (before[:, edge + 1] - before[:, edge]).astype(np.int64)
    return before[:, edge] + np.clip(number - (np.cumsum(sizes) - sizes), 0, sizes)


# -- blocks ----------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """First key (m,) and mean inputs (m, d) of blocks."""

    first: np.ndarray
    centroids: np.ndarray


def write(
    pieces: Sequence[Span],
    before: np.ndarray,
    size: int,
    target: prepared.Target,
    executor: Executor,
) -> Blocks:
    """Write the rows in their order and return the blocks."""
    task, shared = partial(_write_piece, target, size), (delayed(before, traverse=False),)
    blocks = map_reduce(task, _both, pieces, executor, "write", shared)
    return Blocks(*blocks)


def _write_piece(target: prepared.Target, size: int, span: Span, before: np.ndarray) -> Blocks:
    starts, stops, skip = _slices(before, span)
    slices = enumerate(zip(starts.tolist(), stops.tolist(), strict=True))
    records = np.concatenate(
        [target.runs.take(i, *part) for i, part in slices if part[0] < part[1]]
    )
    line = np.argsort(records["key"], kind="stable")[skip : skip + span.rows]
    records = records[line]
    target.put(span.start, records["X"], records["y"])
    first = np.arange(0, span.rows, size)
    rows = np.diff(first, append=span.rows)
    inputs = target.rows.columns.inputs(records["X"].astype(np.float64))
    sums = np.add.reduceat(inputs, first, axis=0)
    return Blocks(records["key"][first], sums / rows[:, None])


def _both(a: Blocks, b: Blocks) -> Blocks:
    return Blocks(*(np.concatenate(parts) for parts in zip(a, b, strict=True)))
