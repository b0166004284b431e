"""Prediction of a labelled grid into a map, chunk by chunk: repeatable, and only for new cells."""

from __future__ import annotations

import dataclasses
import logging
import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask import delayed

from daskgp.data import UNKNOWN_MARK, gridded, map_store
from daskgp.data.gridded import Gridded, Index, Reader, Region
from daskgp.data.map_store import ChunkWriter, MapInputs, MapTarget, Outputs
from daskgp.data.stores import locks
from daskgp.errors import InputError, StoreError
from daskgp.output.job import PART_ROWS, ChangedError, Job, Written, arrays
from daskgp.posterior import training_rows
from daskgp.posterior.posterior import Posterior
from daskgp.predict.lazy import posterior_node
from daskgp.predict.paths import Paths, paths_node
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Amount

logger = logging.getLogger("daskgp")

TASK_CELLS = 2**18
"""Most cells of a task of a method that keeps no training rows; a larger chunk has several."""


@contextmanager
def work_of(job: Job) -> Iterator[MapWork]:
    """Yield the work of a prediction on a grid; InputError unless it can be predicted."""
    wanted = job.outputs
    if wanted.quantiles or wanted.exceedance is not None:
        job.posterior.outer(True).check("quantiles and probabilities")
    posterior = job.posterior
    with gridded.opened(
        job.source, posterior.feature_names, job.mask, posterior.wanted_units, posterior.trained_on
    ) as grid:
        steps = map_store.steps_of(job.output)
        if steps is not None and len(steps) == len(grid.steps):  # a map keeps the chunks it has
            grid = dataclasses.replace(grid, steps=steps)
        yield MapWork(job.posterior, grid, MapInputs(grid, wanted), job)


class _Chunk(NamedTuple):
    """A chunk to be read: its place, its cells, and how many of them are done, with their mark."""

    place: Index
    region: Region
    extent: Index
    checksum: int
    mark: int


class MapWork(NamedTuple):
    """The prediction of the cells of a grid."""

    posterior: Posterior
    grid: Gridded
    inputs: MapInputs
    job: Job

    @property
    def chunk_rows(self) -> int:
        """Cells of a chunk."""
        return math.prod(self.grid.steps)

    def check_visible(self, executor: Executor, remedy: str) -> None:
        """Raise InputError unless every worker reads the first cells as this process does."""
        reader, region = self.grid.reader(), self.grid.region((0,) * len(self.grid.shape))
        if executor.client is None or not self.grid.in_file:
            return
        mine = _look(reader, region)
        for worker, (seen, reason) in executor.everywhere(_look, reader, region).items():
            if seen != mine[0]:
                raise InputError(
                    f"worker {worker} does not see the grid {self.grid.url} ({reason}): {remedy}"
                )

    def unchanged(self, target: MapTarget) -> bool:
        """Return whether all of the grid is done and was not written since."""
        same = self._same(target)
        return target.shape == self.grid.shape and bool((target.done() & same).all())

    def _same(self, target: MapTarget) -> np.ndarray:
        """Return flags of the chunks of a map whose part of the grid was not written since."""
        then = target.marks()
        now = self.inputs.marks[tuple(map(slice, then.shape))]
        return np.asarray((now == then) & (now != UNKNOWN_MARK))

    def check_done(self, target: MapTarget, executor: Executor, verify: bool) -> np.ndarray | None:
        """Compare what was written since it was predicted; StoreError if it has changed.

        Chunks into which the grid has grown are not among them; their predictions compare them.
        """
        then, extents, tag = target.marks(), target.extents(), uuid.uuid4().hex[:8]
        whole = np.array([self._whole(index, extents) for index in np.ndindex(*then.shape)], bool)
        whole = whole.reshape(then.shape)
        look = whole if verify else whole & ~self._same(target)
        places = [tuple(map(int, place)) for place in np.argwhere(look)]
        if not places:
            return None
        logger.info("comparing %d of %d chunks that are done", len(places), whole.sum())
        read, blocks, reader = delayed(_checksum, pure=False), self.grid.blocks(), self._reader(tag)
        nodes = [
            read(
                reader,
                self.grid.region(index),
                *blocks(index),
                dask_key_name=f"predict-check-{tag}-{_number(index)}",
            )
            for index in places
        ]
        root = delayed(list, pure=False)(nodes, dask_key_name=f"predict-checked-{tag}")
        amount = Amount(sum(_cells(self.grid.region(index)) for index in places), "chunks")
        found, made = executor.compute(root, nodes, "check", amount), target.checksums()
        wrong = [place for place, seen in zip(places, found, strict=True) if seen != made[place]]
        if wrong:
            raise ChangedError(
                f"predictions {target.url}: {self._named(self.grid.region(wrong[0]))} of the input "
                f"have changed since they were predicted ({len(wrong)} of {len(places)} chunks "
                "compared): remove the predictions and predict again"
            )
        settled = self.inputs.marks[tuple(map(slice, then.shape))]
        return np.where(look, settled, then) if (settled != then)[look].any() else None

    def _whole(self, index: Index, extents: np.ndarray) -> bool:
        region = self.grid.region(index)
        return tuple(extents[index]) == tuple(cut.stop - cut.start for cut in region)

    def _named(self, region: Region) -> str:
        """Return the cells of a region in words."""
        pairs = zip(self.grid.grid.dims, region, strict=True)
        return "cells " + ", ".join(f"{dim} {cut.start} to {cut.stop - 1}" for dim, cut in pairs)

    def _reader(self, tag: str) -> Any:
        return delayed(self.grid.reader(), name=f"grid-{tag}", traverse=False)

    def write_missing(self, target: MapTarget, executor: Executor, claim: locks.Claim) -> Written:
        """Predict what is not done, and return how much that was."""
        extents, checksums, tag = target.extents(), target.checksums(), uuid.uuid4().hex[:8]
        todo = [tuple(map(int, place)) for place in np.argwhere(~target.done())]
        node, reader, blocks = posterior_node(self.posterior), self._reader(tag), self.grid.blocks()
        predict = delayed(partial(_predict_part, self.inputs.outputs), pure=False)
        put = delayed(partial(_write, target.writer(), claim), pure=False, traverse=False)
        most = TASK_CELLS if self.posterior.rows is None else PART_ROWS
        sampled = paths_node(self.job.sample_paths(executor) if todo else None)
        nodes, cells = [], 0
        for index in todo:
            region = self.grid.region(index)
            extent = tuple(int(n) for n in extents[index])
            mark = int(self.inputs.marks[index])
            chunk = _Chunk(index, region, extent, int(checksums[index]), mark)
            cells += _cells(region)
            count = -(-_cells(region) // most)
            name, given = f"{tag}-{_number(index)}", blocks(index)
            parts = [
                predict(
                    node,
                    sampled,
                    reader,
                    chunk,
                    p,
                    count,
                    *given,
                    dask_key_name=f"predict-{name}-{p}",
                )
                for p in range(count)
            ]
            nodes.append(put(chunk, *parts, dask_key_name=f"predict-write-{name}"))
        done = int(extents.astype(np.int64).prod(axis=-1).sum())
        if not nodes:
            return Written(0, done)
        root = delayed(sum, pure=False)(nodes, dask_key_name=f"predict-count-{tag}")
        amount = Amount(cells, "chunks")
        return Written(int(executor.compute(root, nodes, "predict", amount)), done)


def _cells(region: Region) -> int:
    return math.prod(cut.stop - cut.start for cut in region)


def _number(index: Index) -> str:
    return ".".join(map(str, index))


def _look(reader: Reader, region: Region) -> tuple[int | str, str]:
    """Return the checksum of the first cells, or an error, as a worker sees them."""
    try:
        return _checksum(reader, region), "other contents"
    except Exception as error:  # noqa: BLE001 - each reader of files has its own
        return "", str(error)


def _checksum(reader: Reader, region: Region, *blocks: np.ndarray) -> int:
    box = reader.read(region, blocks)
    return box.checksum(box.shape)


class _Part(NamedTuple):
    """Arrays of some cells of a chunk by their flat numbers, and the checksum of the chunk."""

    cells: np.ndarray
    values: dict[str, np.ndarray]
    checksum: int


def _predict_part(
    wanted: Outputs,
    node: Node,
    paths: Paths | None,
    reader: Reader,
    chunk: _Chunk,
    part: int,
    parts: int,
    *blocks: np.ndarray,
) -> _Part:
    """Predict part ``part`` of ``parts`` of the cells of a chunk that are neither done nor masked.

    For a local method a part is near cells.
    """
    posterior, box = opened(node), reader.read(chunk.region, blocks)
    if math.prod(chunk.extent) and box.checksum(chunk.extent) != chunk.checksum:
        raise ChangedError(
            f"cells of the input from {[cut.start for cut in chunk.region]} on have changed since "
            "they were predicted: remove the predictions and predict again"
        )
    checksum, (cells, X) = box.checksum(box.shape), box.cells(chunk.extent)
    with single_blas_thread():
        members = np.array_split(_order(posterior, X, checksum, chunk), parts)[part]
        moments = posterior.moments(X[members], "variance", include_noise=True)
        outer, gaussian = posterior.outer(True), None
        if not outer.keeps_moments and (wanted.quantiles or wanted.exceedance is not None):
            gaussian = posterior.moments(X[members], "variance", True, gaussian=True)
        values = arrays(moments, wanted, outer, gaussian)
        if paths is not None:
            values["samples"] = paths.values(X[members])
        return _Part(cells[members], values, checksum)


def _order(posterior: Posterior, X: np.ndarray, checksum: int, chunk: _Chunk) -> np.ndarray:
    """Return the order of cells X (c, d) with those of a group together, found once per process."""

    def find() -> np.ndarray:
        order = posterior.grouped(X)
        return np.arange(len(X)) if order is None else order

    if posterior.rows is None or not len(X):
        return np.arange(len(X))
    key = (f"{posterior.token}-order", (checksum, *chunk.extent))
    found: np.ndarray = training_rows.cached(key, find, "cpu")
    return found


def _write(writer: ChunkWriter, claim: locks.Claim, chunk: _Chunk, *parts: _Part) -> int:
    """Write a chunk with the cells that it had, and return how many are new."""
    if len({part.checksum for part in parts}) > 1:
        raise StoreError(
            f"predictions {writer.url}: the input changed while it was predicted: predict when "
            "nothing writes the input"
        )
    shape = tuple(cut.stop - cut.start for cut in chunk.region)
    done = tuple(map(slice, chunk.extent))
    values = {}
    for name in writer.values:
        tail = writer.tail(name)
        array = np.full((math.prod(shape), *tail), np.nan)
        for part in parts:
            array[part.cells] = part.values[name].reshape(len(part.cells), *tail)
        values[name] = array.reshape(*shape, *tail)
        if math.prod(chunk.extent):
            values[name][done] = writer.read(name, chunk.region)[done]
    claim.check()
    writer.write(chunk.place, chunk.region, values, parts[0].checksum, chunk.mark)
    return sum(len(part.cells) for part in parts)
