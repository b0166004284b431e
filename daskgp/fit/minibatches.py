"""Mini-batches of rows that need not fit memory: shuffled chunk by chunk, read ahead.

The rows of an epoch are dealt to lanes block by block, in an order drawn anew for each epoch.  A
lane reads some of its blocks at a time, shuffles their rows and cuts them into batches while the
next ones are being read.  All of it follows from the seed and the places of the lanes, so a run
that goes on from these sees the same rows; the number of lanes follows from the size of a batch,
so that results do not depend on the workers.
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
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread

LANE_ROWS = 512
"""Rows of a batch that one task works on."""
POOL_BATCHES, POOL_BLOCKS = 16, 8
"""Batches, and blocks, that are shuffled together at least, if memory allows."""
POOL_BYTES = 128 << 20
"""Most bytes of rows that a lane shuffles at a time; one block at least."""
EPOCHS = 100
"""Epochs in which a lane is dealt blocks with rows at least once."""
LEAST_BLOCKS = 4
"""Blocks of a lane in an epoch: fewer are cut."""


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
        return sum(few.stop - few.start for few in self.rows)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rounds over one mini-batch, a unit per share."""

    shares: tuple[Share, ...]
    executor: Executor
    device: str = "cpu"

    def sum(self, over: Pass, *shared: Any, own: Sequence[Any] | None = None) -> Any:
        """Return the sum over the shares; ``own`` are first arguments of each one's function."""
        nodes = [node("shared", value) for value in shared]
        more = [()] * len(self.shares) if own is None else [(one,) for one in own]
        task = partial(_of_batch, over, self.device, len(nodes))
        arguments = [
            (share.rows, few, *nodes, *share.pools)
            for share, few in zip(self.shares, more, strict=True)
        ]
        tasks = mapped(task, arguments, over.name)
        return tree_sum(tasks, over.combine, self.executor, over.name, over.in_place)


def _of_batch(
    over: Pass, device: str, count: int, rows: Sequence[slice], own: tuple[Any, ...], *values: Any
) -> Any:
    """On the worker: a pass over one share, with ``count`` shared values before its pools."""
    with single_blas_thread():
        parts = [(p.X[few], p.y[few]) for few, p in zip(rows, values[count:], strict=True)]
        block = Block(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        over = replace(over, function=partial(over.function, *own))
        return TaskRounds.of([[block]], resolve_device(device)).sum(over, *values[:count])


class _Pool(NamedTuple):
    """Shuffled rows of some blocks, where they are, their number, and which pool it is."""

    node: Delayed
    size: int
    epoch: int
    number: int


@dataclass
class Stream:
    """Batches without end.

    Parameters
    ----------
    rows, spans, scaling, executor, dtype
        As of ``Rounds``.
    batch_rows : int
        Rows of a batch.
    seed : int
        Of the order of blocks and rows.
    held_out : AllBut, optional
        Rows to leave out.
    fetch : bool
        Whether rows that workers read come to this process, which trains.
    places : ndarray (lanes, 3) of int, optional
        Epoch, pool and its row where each lane goes on; default the beginning.
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
        """The next batch, a share per lane."""
        return [lane.take() for lane in self._lanes]

    def where(self) -> np.ndarray:
        """The places (lanes, 3) from which the following batches come."""
        return np.array([lane.place for lane in self._lanes])

    def close(self) -> None:
        """Read no further."""
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._lanes = []  # pools live as long as anything names them

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, epoch: int, lane: int, lanes: int, pool: int, size: int) -> Future[_Pool]:
        """Begin to read a pool, or the first after it that has rows."""
        return self._reader.submit(self._read, epoch, lane, lanes, pool, size)

    def _read(self, epoch: int, lane: int, lanes: int, pool: int, size: int) -> _Pool:
        source = _Source(Stored(self.rows, self.scaling, self.dtype), self.held_out)
        wide, begun = self._pool_blocks(size), epoch
        while epoch < begun + EPOCHS:
            order = np.random.default_rng([self.seed, 8, epoch]).permutation(len(self._blocks))
            own = order[lane::lanes]
            number = -(-len(own) // wide)
            if pool >= number:
                epoch, pool = epoch + 1, 0
                continue
            # of about as many blocks each: rows of a small batch would count for many
            spans = tuple(self._blocks[i] for i in np.array_split(own, number)[pool])
            given = spans, (self.seed, 9, epoch, lane, pool)
            (node,) = self.executor.persist(mapped(source.pool, [given], "batches"))
            if self.fetch:
                node = delayed(self.executor.compute(node), traverse=False)
                count = len(node.compute(scheduler="sync").X)
            else:
                count = int(self.executor.compute(delayed(_length)(node)))
            if count:
                return _Pool(node, count, epoch, pool)
            pool += 1
        raise RunError(f"no usable rows were found in {EPOCHS} passes: has the data changed?")

    def _pool_blocks(self, size: int) -> int:
        largest = max(span.rows for span in self._blocks)
        wanted = max(POOL_BLOCKS, -(-POOL_BATCHES * size // largest))
        bytes_each = 8 * largest * (self.rows.n_features + self.rows.n_targets)
        return int(max(1, min(wanted, POOL_BYTES // bytes_each)))


def _length(block: Block) -> int:
    return len(block.X)


def _enough(spans: Sequence[Span], number: int) -> list[Span]:
    """Blocks cut so that there are at least so many, if rows allow."""
    times = -(-number // max(len(spans), 1))
    return [few for span in spans for few in parts(*span, max(1, -(-span.rows // times)))]


class _Lane:
    """One of the tasks' sources of rows."""

    def __init__(
        self, stream: Stream, number: int, lanes: int, size: int, epoch: int, pool: int, offset: int
    ) -> None:
        self._stream, self._number, self._lanes, self._size = stream, number, lanes, size
        self._epoch, self._pool, self._offset = epoch, pool, offset
        self._current: _Pool | None = None
        self._coming = self._begin(epoch, pool)

    @property
    def place(self) -> tuple[int, int, int]:
        """Epoch, pool and its row from which the next piece comes."""
        return self._epoch, self._pool, self._offset

    def take(self) -> Share:
        """The next rows, from as many pools as they take: every batch has as many."""
        pools, rows, epochs, left = [], [], [], self._size
        while left:
            pool = self._pool_to_take_from()
            few = slice(self._offset, min(self._offset + left, pool.size))
            pools.append(pool.node)
            rows.append(few)
            epochs.append(pool.epoch)
            left, self._offset = left - (few.stop - few.start), few.stop
            if few.stop == pool.size:
                self._current, self._pool, self._offset = None, self._pool + 1, 0
        return Share(tuple(pools), tuple(rows), tuple(epochs))

    def _pool_to_take_from(self) -> _Pool:
        if self._current is None:
            self._current = self._coming.result()
            self._epoch, self._pool = self._current.epoch, self._current.number
            self._coming = self._begin(self._epoch, self._pool + 1)
        return self._current

    def _begin(self, epoch: int, pool: int) -> Future[_Pool]:
        return self._stream.read(epoch, self._number, self._lanes, pool, self._size)


@dataclass(frozen=True, eq=False)
class _Source:
    """What a reading task does: read blocks, clean, scale, shuffle."""

    source: Stored
    draw: AllBut | None

    def pool(self, spans: tuple[Span, ...], seed: tuple[int, ...]) -> Block:
        with single_blas_thread():
            blocks = [self.source.block(span, Unit(span, draw=self.draw)) for span in spans]
            X, y = (np.concatenate(part) for part in zip(*blocks, strict=True))
            order = np.random.default_rng(seed).permutation(len(X))
            return Block(X[order], y[order])
