"""Mini-batches of rows that need not fit in memory: shuffled chunk by chunk, read ahead.

The rows of an epoch are dealt to lanes block by block, in an order drawn anew for each epoch.  A
lane reads several of its blocks at a time, shuffles their rows and cuts them into batches while
the next blocks are being read.  All of it follows from the seed and the places of the lanes, so a
run that resumes from these sees the same rows; the number of lanes follows from the size of a
batch, so that results do not depend on the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows
from daskgp.data.blocks.draws import AllBut
from daskgp.data.partition import Span, Unit, parts
from daskgp.errors import RunError
from daskgp.fit.task import Stored, TaskRounds
from daskgp.models import scaling
from daskgp.models.method import Pass
from daskgp.models.values import Block
from daskgp.runtime.executor import Executor, mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Amount

LANE_ROWS = 512
"""Rows of a batch that one task works on."""
POOL_BATCHES, POOL_BLOCKS = 16, 8
"""Minimum number of batches, and of blocks, that are shuffled together, if memory allows."""
POOL_BYTES = 128 << 20
"""Maximum bytes of rows that a lane shuffles at a time; at least one block."""
EPOCHS = 100
"""Epochs within which a lane must be dealt a block with usable rows."""
LEAST_BLOCKS = 4
"""Minimum number of blocks of a lane per epoch; fewer are cut into smaller ones."""


class Share(NamedTuple):
    """Rows of a batch that one task works on: parts of pools, which are nodes of a graph.

    ``epochs`` are those that the parts belong to.
    """

    pools: tuple[Delayed | Block, ...]
    rows: tuple[slice, ...]
    epochs: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of rows."""
        return sum(part.stop - part.start for part in self.rows)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rounds over one mini-batch, one unit per share."""

    shares: tuple[Share, ...]
    executor: Executor
    device: str = "cpu"

    def sum(self, over: Pass, *shared: Any, own: Sequence[Any] | None = None) -> Any:
        """Return the sum over the shares; ``own`` has a first argument for each one's function."""
        nodes = [node("shared", value) for value in shared]
        more = [()] * len(self.shares) if own is None else [(one,) for one in own]
        task = partial(_of_batch, over, self.device, len(nodes))
        arguments = [
            (share.rows, first, *nodes, *share.pools)
            for share, first in zip(self.shares, more, strict=True)
        ]
        tasks = mapped(task, arguments, over.name)
        how = over.name, over.in_place, Amount(sum(share.size for share in self.shares))
        return tree_sum(tasks, over.combine, self.executor, *how)


def _of_batch(
    over: Pass, device: str, count: int, rows: Sequence[slice], own: tuple[Any, ...], *values: Any
) -> Any:
    """Run a pass over one share, on the worker, with ``count`` shared values before its pools."""
    with single_blas_thread():
        pools = zip(rows, values[count:], strict=True)
        unit = [pool.at(span) for span, pool in pools]
        over = replace(over, function=partial(over.function, *own))
        return TaskRounds.of([unit], resolve_device(device)).sum(over, *values[:count])


class _Pool(NamedTuple):
    """Shuffled rows of some blocks: their node and number, and the epoch and number of the pool."""

    node: Delayed
    size: int
    epoch: int
    number: int


@dataclass
class Stream:
    """Endless stream of batches.

    Parameters
    ----------
    rows, spans, scaling, executor, dtype
        As for ``Rounds``.
    batch_rows : int
        Rows of a batch.
    seed : int
        Seed of the order of blocks and rows.
    held_out : AllBut, optional
        Rows to leave out.
    fetch : bool
        Whether rows that workers read are sent to this process, which trains.
    places : ndarray (lanes, 3) of int, optional
        Epoch, pool and row of the pool where each lane resumes; default the beginning.
    """

    rows: Rows
    spans: Sequence[Span]
    scaling: scaling.Scaling
    executor: Executor
    dtype: str
    batch_rows: int
    seed: int
    held_out: AllBut | None = None
    places: np.ndarray | None = None
    fetch: bool = False

    def __post_init__(self) -> None:
        lanes = -(-self.batch_rows // LANE_ROWS)
        self._blocks = _enough(self.spans, lanes * LEAST_BLOCKS)
        places = np.zeros((lanes, 3), np.int64) if self.places is None else self.places
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="daskgp-read")
        shares = partial(np.array_split, np.arange(self.batch_rows))
        sizes = [len(share) for share in shares(lanes)]
        self._lanes = [
            _Lane(self, i, lanes, size, *map(int, place))
            for i, (size, place) in enumerate(zip(sizes, places, strict=True))
        ]

    def take(self) -> list[Share]:
        """Return the next batch, one share per lane."""
        return [lane.take() for lane in self._lanes]

    def where(self) -> np.ndarray:
        """Return the places (lanes, 3) where the following batches begin."""
        return np.array([(lane.epoch, lane.pool, lane.offset) for lane in self._lanes])

    def close(self) -> None:
        """Stop reading ahead."""
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._lanes = []  # pools live as long as anything refers to them

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, epoch: int, lane: int, lanes: int, pool: int, size: int) -> Future[_Pool]:
        """Begin to read a pool, or the first one after it that has rows."""
        return self._reader.submit(self._read, epoch, lane, lanes, pool, size)

    def _read(self, epoch: int, lane: int, lanes: int, pool: int, size: int) -> _Pool:
        source = _Source(Stored(self.rows, self.scaling, self.dtype), self.held_out)
        per_pool, begun = self._pool_blocks(size), epoch
        while epoch < begun + EPOCHS:
            order = np.random.default_rng([self.seed, 8, epoch]).permutation(len(self._blocks))
            own = order[lane::lanes]
            number = -(-len(own) // per_pool)
            if pool >= number:
                epoch, pool = epoch + 1, 0
                continue
            # pools have about equally many blocks: rows of a small pool would count for many
            spans = tuple(self._blocks[i] for i in np.array_split(own, number)[pool])
            arguments = spans, (self.seed, 9, epoch, lane, pool)
            (node,) = self.executor.persist(mapped(source.pool, [arguments], "batches"))
            if self.fetch:
                node = delayed(self.executor.compute(node), traverse=False)
                count = len(node.compute(scheduler="sync").X)
            else:
                count = int(self.executor.compute(delayed(_length)(node)))
            if count:
                return _Pool(node, count, epoch, pool)
            pool += 1
        raise RunError(
            f"no usable rows were found in {EPOCHS} passes: check whether the data have changed"
        )

    def _pool_blocks(self, size: int) -> int:
        largest = max(span.rows for span in self._blocks)
        wanted = max(POOL_BLOCKS, -(-POOL_BATCHES * size // largest))
        bytes_each = 8 * largest * (self.rows.n_features + self.rows.n_targets)
        return int(max(1, min(wanted, POOL_BYTES // bytes_each)))


def _length(block: Block) -> int:
    return len(block.X)


def _enough(spans: Sequence[Span], number: int) -> list[Span]:
    """Return the blocks cut so that there are at least ``number``, if rows allow."""
    times = -(-number // max(len(spans), 1))
    return [piece for span in spans for piece in parts(*span, max(1, -(-span.rows // times)))]


@dataclass(eq=False)
class _Lane:
    """Source of the rows of one task per batch: ``number`` of ``lanes``, ``size`` rows each time.

    The next share begins at row ``offset`` of a pool of an epoch.
    """

    stream: Stream
    number: int
    lanes: int
    size: int
    epoch: int
    pool: int
    offset: int

    def __post_init__(self) -> None:
        self._current: _Pool | None = None
        self._coming = self._begin(self.epoch, self.pool)

    def take(self) -> Share:
        """Return the next share, from as many pools as it takes to have its full size."""
        pools, rows, epochs, left = [], [], [], self.size
        while left:
            pool = self._pool_to_take_from()
            part = slice(self.offset, min(self.offset + left, pool.size))
            pools.append(pool.node)
            rows.append(part)
            epochs.append(pool.epoch)
            left, self.offset = left - (part.stop - part.start), part.stop
            if part.stop == pool.size:
                self._current, self.pool, self.offset = None, self.pool + 1, 0
        return Share(tuple(pools), tuple(rows), tuple(epochs))

    def _pool_to_take_from(self) -> _Pool:
        if self._current is None:
            self._current = self._coming.result()
            self.epoch, self.pool = self._current.epoch, self._current.number
            self._coming = self._begin(self.epoch, self.pool + 1)
        return self._current

    def _begin(self, epoch: int, pool: int) -> Future[_Pool]:
        return self.stream.read(epoch, self.number, self.lanes, pool, self.size)


@dataclass(frozen=True, eq=False)
class _Source:
    """Work of a reading task: read blocks, clean, scale, shuffle."""

    source: Stored
    draw: AllBut | None

    def pool(self, spans: tuple[Span, ...], seed: tuple[int, ...]) -> Block:
        with single_blas_thread():
            blocks = [self.source.block(span, Unit(span, draw=self.draw)) for span in spans]
            rows = Block.join(blocks)
            return rows.at(np.random.default_rng(seed).permutation(len(rows.X)))
