"""Prediction into a store of rows or a map, chunk by chunk: repeatable, with work for new ones."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import math
import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp import data
from daskgp.data import feature_units, gridded, prediction_store, reading, visibility
from daskgp.data.convert.layout import layout_of
from daskgp.data.encoding import AS_GIVEN, PACKED
from daskgp.data.feature_units import Change
from daskgp.data.gridded import Index, Region
from daskgp.data.prediction_store import ChunkWriter, Inputs, Outputs, Target
from daskgp.data.rows import check_aligned
from daskgp.data.stores import groups, locks, remote, transactions
from daskgp.data.stores.remote import Inside
from daskgp.errors import DeviceMemoryError, InputError, MemoryRunError, SettingError, StoreError
from daskgp.models.values import leaves
from daskgp.output import csv
from daskgp.output.job import ChangedError, Job, Written
from daskgp.posterior import training_rows
from daskgp.posterior.posterior import Posterior, check_columns
from daskgp.predict import observed, paths
from daskgp.predict.lazy import (
    Look,
    conversions,
    posterior_node,
    warn_of_far,
    warn_of_far_block,
    warn_of_far_grid,
)
from daskgp.predict.stored import Node, check_visible, opened
from daskgp.runtime.executor import FAN_IN, Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Amount

logger: logging.Logger = logging.getLogger("daskgp")

SMALL = 5e10
"""Most operations that this process does itself: they take as long as a cluster takes to start."""
READ = 100.0
"""Operations in whose time a number is read."""
TASK_ROWS, PART_ROWS = 2**18, 4_096
"""Most rows, or cells, of a task; and of one of a local method, which factors many blocks for them.
A larger chunk has several tasks."""
TOGETHER, CHUNKS = 2**23, 16
"""Maximum bytes of the inputs, and maximum number, of successive chunks of rows from which tasks of
a local method take rows that are near each other: places in any order then need a factor once, not
once per chunk.  Each of the chunks waits for all of the tasks."""


def write(job: Job, executor: Executor, wait: float = 0.0, clear_lock: bool = False) -> Written:
    """Predict a dataset store or a grid into a prediction store under its lock.

    See `write_held`; ``wait`` and ``clear_lock`` are those of `locks.hold`.
    """
    with held(job, wait, clear_lock) as (job, claim):
        return write_held(job, executor, claim)


@contextmanager
def held(
    job: Job, wait: float = 0.0, clear_lock: bool = False
) -> Iterator[tuple[Job, locks.Claim]]:
    """Yield a prediction with the lock of its output for the duration of a ``with`` block.

    The output at an address of Icechunk becomes a group in a session.  One in a session of the
    caller has no lock.

    Raises
    ------
    InputError
        If the input cannot be predicted.
    SettingError
        If a session is to be waited for, or its lock cleared.
    RunError, StoreError
        As `locks.hold` and `transactions.at` do.
    """
    with work_of(job):
        pass  # what is wrong with the input is said before the lock is taken
    if isinstance(job.output, Inside):
        if wait or clear_lock:
            raise SettingError(
                "wait and clear_lock are for the lock of a store: a session of Icechunk has none"
            )
        yield job, locks.NOT_NEEDED
        return
    address = remote.in_repository(job.output)
    if clear_lock and address is None:
        prediction_store.refuse_taken(job.output, job.resume)  # before clearing a lock in vain
    with locks.hold(remote.whole(job.output), wait, clear_lock, job.resume) as claim:
        if address is None:
            yield job, claim
            return
        with transactions.at(address) as output:
            yield job._replace(output=output), claim


def is_done(job: Job) -> bool:
    """Return True if an output needs no task: it has all of the input, which is unchanged.

    False if ``job.verify`` asks for a comparison.

    Raises
    ------
    InputError, StoreError
        As `write_held` does for an existing output.
    """
    return not any(_left(job))


def needs_cluster(job: Job, chosen: bool = False) -> bool:
    """Return whether a prediction into a store is so much work that it pays to start a cluster.

    What an unfinished output has already is not looked at: all of its input counts.  A cluster that
    was ``chosen`` is needed for any work at all.

    Raises
    ------
    InputError, StoreError
        As `is_done` does.
    """
    (read, new), posterior = _left(job), job.posterior
    if chosen:
        return read + new > 0
    own = READ * read * posterior.n_features
    return effort(posterior, new) + job.effort_of_paths(new) + own > SMALL


def _left(job: Job) -> tuple[int, int]:
    """Return how many rows, or cells, are to be compared, and how many are to be predicted."""
    with ExitStack() as stack:
        address = None if isinstance(job.output, Inside) else remote.in_repository(job.output)
        if address is not None and transactions.exists(address):
            job = job._replace(output=stack.enter_context(transactions.at(address)))
        work = stack.enter_context(work_of(job))
        inputs = work.inputs
        target = prediction_store.find_complete(job.output, inputs, job.posterior)
        if target is None:
            return 0, inputs.rows
        same = not job.verify and work.unchanged(target)
        return 0 if same else target.rows, inputs.rows - target.rows


def effort(posterior: Posterior, rows: int) -> float:
    """Return about how many floating-point operations the prediction of some rows takes."""
    if posterior.each:
        return sum(effort(one, rows) for one in posterior.each)
    arrays = [*leaves(posterior.state), posterior.theta.inputs]
    own = 4.0 * rows * sum(getattr(array, "size", 0) for array in arrays)
    return own + (0.0 if posterior.rows is None or not rows else posterior.rows.operations(rows))


def write_held(
    job: Job, executor: Executor, claim: locks.Claim, began: Callable[[], None] = lambda: None
) -> Written:
    """Predict a dataset store or a grid into a prediction store whose lock is held.

    A task reads one chunk of X, or for a local method some of them, and another writes a chunk of
    ``mean`` and ``variance`` (noise included) and sets its flag in ``done`` last, so a run that is
    killed can be repeated.  A run that fails before its first chunk leaves no store.  ``began`` is
    called once the output is known to fit.

    Raises
    ------
    InputError
        If the columns of the source are not those of the training data.
    StoreError
        If the output exists and ``resume`` is not set, or was made by another model or from
        other rows than those the input begins with.
    RunError
        If the lock was taken away.
    """
    with work_of(job) as work:
        return _write(job, work, executor, claim, began)


def _write(
    job: Job, work: Work, executor: Executor, claim: locks.Claim, began: Callable[[], None]
) -> Written:
    posterior, inputs = job.posterior, work.inputs
    remedy = f"put it in {visibility.HERE}"
    work.check_visible(executor, remedy)
    check_visible(executor, posterior, remedy)
    notes = {"model": job.model_url, "input": inputs.url}
    new = data.vacant(job.output)
    target = prediction_store.open_or_create(job.output, inputs, posterior, notes, job.resume)
    if target.rows < inputs.rows or not target.done().all():
        target.refuse_shared(inputs)
    if inputs.grid is None and job.made_of is None:
        job.warn_of_rates(groups.names_in(inputs.url))
    try:
        _check_fork(executor, target, remedy)
        visibility.check(executor, target.flags["done"], "the output", remedy)
        began()
        logger.info("at work on %s: %d rows of %s", job.output, inputs.rows, inputs.url)
        marks = work.check_done(target, executor, job.verify)
        claim.check()
        if marks is not None:
            target.mark(marks)
        target.grow(inputs)
        with _chunks_are_named(math.prod(inputs.steps)):
            written = work.write_missing(target, executor, claim)
        if written.rows or not target.is_finished(notes):
            claim.check()
            target.finish(inputs, notes)
        if isinstance(job.output, transactions.Transaction):
            claim.check()
            _commit(job.output, inputs, job, written)
    except Exception as error:
        if isinstance(job.output, Inside):
            error.add_note("nothing was committed")
        elif new and claim.held() and not target.done().any():
            data.remove(job.output)
        elif not isinstance(error, ChangedError):
            error.add_note("the same prediction with --resume (resume=True) continues from here")
        raise
    logger.info("predicted %d rows of %s, found %d done", written.rows, inputs.url, written.skipped)
    return written


def _check_fork(executor: Executor, target: Target, remedy: str) -> None:
    """Raise InputError unless every worker sees the repository of a session."""
    if not isinstance(target.url, Inside):
        return
    for worker, (seen, why) in executor.everywhere(transactions.sees, target.group.store).items():
        if not seen:
            raise InputError(
                f"worker {worker} does not see the Icechunk repository ({why}): {remedy}"
            )


def _commit(output: transactions.Transaction, inputs: Inputs, job: Job, written: Written) -> None:
    """Commit what a run wrote, with a message that says what was predicted."""
    kind, names = "rows" if inputs.grid is None else "cells", ", ".join(inputs.names)
    model = job.model or type(job.posterior.method).__name__
    where = f" in {output.path}" if output.path else ""
    message = f"Predict {written.rows} {kind} of {inputs.url}{where} with {model}: {names}"
    output.commit(
        message,
        {
            "model": job.model_url or "",
            "model_checksum": job.posterior.token,
            "input": inputs.url,
            "predicted": written.rows,
            "skipped": written.skipped,
            "version": importlib.metadata.version("daskgp"),
        },
    )


@contextmanager
def work_of(job: Job) -> Iterator[Work]:
    """Yield the work of a prediction into a store; InputError unless its input can be predicted."""
    if job.encoding != AS_GIVEN and (job.encoding.of_files or job.encoding.dtype == PACKED):
        raise SettingError(
            f"{', '.join(job.encoding.of_files) or 'dtype int16'}: a prediction store holds "
            "floats, which Zarr compresses; write the map to a file with them, by "
            "xarray.open_zarr('map.zarr').to_netcdf('map.nc', encoding=...)"
        )
    job.posterior.refuse_spread(include_noise=True)
    if job.outputs.samples is not None:
        paths.check(job.posterior)
    if gridded.is_grid(job.source):
        with _grid_work(job) as work:
            yield work
    else:
        if not isinstance(job.source, str | os.PathLike):
            raise InputError(
                f"the source is a {type(job.source).__name__}: give the path of a dataset "
                "store or a grid, or an xarray object; for arrays and data frames call "
                "predict"
            )
        more = job.made_of is None and job.outputs._replace(samples=None) != Outputs()
        if job.encoding != AS_GIVEN:
            raise SettingError(
                f"{job.source} holds rows, whose predictions have its chunks and are float64: "
                "leave the encoding out, which is for maps"
            )
        if job.mask or more:
            remedy = "a store of rows has the mean and the variance, of which they are made"
            if not job.posterior.outer(observed=True).keeps_moments:
                remedy = (
                    "of rows predict and predict_exceedance give them in Python, lazily too, and "
                    "csv files have them that are made of a csv"
                )
            raise InputError(
                f"{job.source} holds rows: a mask, variance, quantiles and exceedance are for "
                f"grids; {remedy}"
            )
        yield _row_work(job, str(job.source))


@contextmanager
def _grid_work(job: Job) -> Iterator[Work]:
    """Yield the work of a prediction on a grid; InputError unless it can be predicted."""
    wanted, known = job.outputs, job.posterior
    if wanted.quantiles or wanted.exceedance is not None:
        known.outer(True).check("quantiles and probabilities")
    with job.grid() as grid:
        if job.encoding.chunks:
            dims = tuple(map(str, grid.grid.dims))
            grid = dataclasses.replace(grid, steps=job.encoding.together(dims, grid.steps))
        steps = prediction_store.steps_of_map(job.output)
        if steps is not None and len(steps) == len(grid.steps):  # a map keeps the chunks it has
            grid = dataclasses.replace(grid, steps=steps)
        if grid.zeros is None:
            warn_of_far_grid(known, grid.grid)
        reader, inputs = (
            grid.reader(),
            prediction_store.of_grid(grid, wanted, job.beside, job.encoding),
        )
        yield Work(job, inputs, reader, grid.blocks(), partial(_check_grid, inputs, reader))


def _row_work(job: Job, source: str) -> Work:
    """Return the work of a prediction of the rows of a dataset store."""
    X = _rows(job.posterior, source)
    how = conversions(job.posterior, X, job.made_of or source)
    arrays = _arrays_beside(source, X, job.columns)
    inputs = prediction_store.of_rows(source, X, job.outputs, job.beside, arrays)
    reader, width = RowReader(data.behind(X), how, arrays), X.shape[1] * X.dtype.itemsize
    together = 0 if job.posterior.rows is None else TOGETHER // width
    visible = partial(_check_rows, data.behind(X))
    return Work(job, inputs, reader, lambda index: [], visible, together)


def _arrays_beside(source: str, X: da.Array, columns: Mapping[str, str]) -> tuple[Any, ...]:
    """Return arrays of a dataset store by name, or by that of the column that they come from."""
    if not columns:
        return ()
    group, kept = groups.open_group(source, "dataset"), layout_of(source).choices
    found = {"X": data.behind(X)}
    for name, column in columns.items():
        own = name if kept.get(name) == (column,) else column
        if own not in groups.names_in(source):
            held = ", ".join(sorted(groups.names_in(source)))
            raise InputError(
                f"{source} has no array {column!r} for {name}={column!r}, it holds {held}: convert "
                f"its source with --{name} {column}"
            )
        found[name] = groups.array_of(group, own)
        if found[name].shape not in ((len(X),), (len(X), 1)):
            raise InputError(
                f"array {own!r} of {source} has shape {found[name].shape}: one number per row is "
                f"needed, {(len(X),)}"
            )
    check_aligned(found, f"dataset {source}")
    return tuple(found[name] for name in columns)


def _check_rows(X: Any, executor: Executor, remedy: str) -> None:
    data.warn_of_lost(X)
    visibility.check(executor, X, "the input", remedy)


def _check_grid(inputs: Inputs, reader: Reader, executor: Executor, remedy: str) -> None:
    """Raise InputError unless every worker reads the first cells as this process does."""
    region = inputs.region((0,) * len(inputs.shape))
    if executor.client is None or inputs.grid is None or not inputs.grid.in_file:
        return
    mine = _look(reader, region)
    for worker, (found, reason) in executor.everywhere(_look, reader, region).items():
        if found != mine[0]:
            raise InputError(
                f"worker {worker} does not see the grid {inputs.url} ({reason}): {remedy}"
            )


def _look(reader: Reader, region: Region) -> tuple[int | str, str]:
    """Return the checksum of the first cells, or an error, as a worker sees them."""
    try:
        return _checksum(reader, region), "other contents"
    except Exception as error:  # noqa: BLE001 - each reader of files has its own
        return "", str(error)


def _checksum(reader: Reader, region: Region, *blocks: np.ndarray) -> int:
    box = reader.read(region, blocks)
    return box.checksum(box.shape)


@contextmanager
def _chunks_are_named(rows: int) -> Iterator[None]:
    """Name the size of the chunks in the error of tasks that ran out of memory."""
    try:
        yield
    except DeviceMemoryError:
        raise  # of the GPU of a worker, which takes tiles of a chunk
    except MemoryRunError as error:
        raise MemoryRunError(
            error.seen,
            f"chunks of {rows} rows, most likely out of memory",
            f"convert the input again in chunks of at most {max(1, rows // 4)} rows "
            "(--block-rows) or give the workers more memory",
        ) from error


def _rows(posterior: Posterior, source: str) -> da.Array:
    """Return the inputs of a dataset store; raise InputError unless they can be predicted."""
    try:
        X = data.open_inputs(source, posterior.feature_names)
    except StoreError as error:
        if csv.is_csv(source):
            error.add_note("or name a csv for its predictions, such as predictions.csv")
        raise
    check_columns(posterior, X, data.column_names(X))
    if not X.shape[0]:
        raise InputError(f"{source} has no rows, so there is nothing to predict: give at least one")
    return X


class RowBox(NamedTuple):
    """Rows X (n, d) of a dataset store, and how they get the units of the model.

    Columns that a likelihood takes come last.
    """

    X: np.ndarray
    how: tuple[Change | None, ...]

    @property
    def shape(self) -> Index:
        """Number of rows."""
        return (len(self.X),)

    def checksum(self, extent: Index) -> int:
        """Return the CRC-32 of the first rows."""
        return zlib.crc32(np.ascontiguousarray(self.X[: extent[0]]).tobytes())

    def cells(self, extent: Index) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the rows after the first, and their features."""
        X = feature_units.converted(self.X[extent[0] :], self.how)
        return np.arange(extent[0], len(self.X)), X


class RowReader(NamedTuple):
    """Array of the rows to predict, how they get the units of the model, and arrays beside it."""

    array: Any
    how: tuple[Change | None, ...]
    beside: tuple[Any, ...] = ()

    @property
    def is_known(self) -> bool:
        """False, as the rows are not looked at before they are predicted."""
        return False

    def read(self, region: Region, blocks: tuple[np.ndarray, ...]) -> RowBox:
        """Return the rows at a region."""
        X = reading.read(self.array, region[0])
        if self.beside:
            own = (reading.read(array, region[0]).reshape(len(X)) for array in self.beside)
            X = np.column_stack([X, *own])
        return RowBox(X, self.how)


Reader: TypeAlias = RowReader | gridded.Reader
"""Reader of chunks, which tasks have: it returns their rows, or the cells of a grid in them."""


class _Chunk(NamedTuple):
    """A chunk: its place, its region, how many of its cells are done with their checksum, its mark.

    It is the one ``at`` among those predicted together; ``first`` of their cells is its first.
    """

    place: Index
    region: Region
    extent: Index
    checksum: int
    mark: int
    at: int = 0
    first: int = 0

    @property
    def shape(self) -> Index:
        """Rows, or cells along each dimension."""
        return tuple(cut.stop - cut.start for cut in self.region)


@dataclass(frozen=True, eq=False)
class Work:
    """The prediction of rows, or of the cells of a grid.

    ``blocks`` returns the blocks of Dask arrays that a chunk needs, ``check_visible`` raises
    InputError unless every worker sees the input, and ``together`` are the most rows of successive
    chunks that are predicted together.
    """

    job: Job
    inputs: Inputs
    reader: Reader
    blocks: Callable[[Index], list[Any]]
    check_visible: Callable[[Executor, str], None]
    together: int = 0

    def unchanged(self, target: Target) -> bool:
        """Return whether all of the input is done and was not written since."""
        # without its lock the output may grow from one look to the next
        done, same = target.done(), self._same(target)
        whole = target.has_size_of(self.inputs) and done.shape == same.shape
        return whole and bool((done & same).all())

    def _same(self, target: Target) -> np.ndarray:
        """Return flags of the chunks whose part of the input was not written since."""
        then = target.marks()
        now = self.inputs.marks[tuple(map(slice, then.shape))]
        return np.asarray((now == then) & (now != data.UNKNOWN_MARK))

    def check_done(self, target: Target, executor: Executor, verify: bool) -> np.ndarray | None:
        """Compare what was written since it was predicted; StoreError if it has changed.

        Return new marks of the chunks that are done, None where they have them already.  Chunks
        into which the input has grown are not among them; their predictions compare them.
        """
        inputs, then, extents = self.inputs, target.marks(), target.extents()
        regions = {index: inputs.region(index) for index in np.ndindex(*then.shape)}
        whole = np.zeros(then.shape, bool)
        for index, region in regions.items():
            whole[index] = all(extents[index] == [cut.stop - cut.start for cut in region])
        look = whole if verify else whole & ~self._same(target)
        places = [tuple(map(int, place)) for place in np.argwhere(look)]
        if not places:
            return None
        logger.info("comparing %d of %d chunks that are done", len(places), whole.sum())
        tag = uuid.uuid4().hex[:8]
        read, reader = delayed(_checksum, pure=False), self._reader(tag)
        nodes = [
            read(
                reader,
                regions[index],
                *self.blocks(index),
                dask_key_name=f"predict-check-{tag}-{_number(index)}",
            )
            for index in places
        ]
        root = delayed(list, pure=False)(nodes, dask_key_name=f"predict-checked-{tag}")
        amount = Amount(sum(int(extents[index].prod()) for index in places), "chunks")
        found, made = executor.compute(root, nodes, "check", amount), target.checksums()
        wrong = [place for place, own in zip(places, found, strict=True) if own != made[place]]
        if wrong:
            raise ChangedError(
                f"predictions {target.url}: {inputs.named(regions[wrong[0]])} of the input have "
                f"changed since they were predicted ({len(wrong)} of {len(places)} chunks "
                "compared): remove the predictions and predict again"
            )
        settled = inputs.marks[tuple(map(slice, then.shape))]
        return np.where(look, settled, then) if (settled != then)[look].any() else None

    def _reader(self, tag: str) -> Any:
        return delayed(self.reader, name=f"reader-{tag}", traverse=False)

    def write_missing(self, target: Target, executor: Executor, claim: locks.Claim) -> Written:
        """Predict what is not done, and return how much that was."""
        posterior, extents, tag = self.job.posterior, target.extents(), uuid.uuid4().hex[:8]
        todo = [tuple(map(int, place)) for place in np.argwhere(~target.done())]
        done = int(extents.astype(np.int64).prod(axis=-1).sum())
        if not todo:
            return Written(0, done)
        # a task reads its own rows, so that raw rows are never the output of a task
        look: Look | None = None
        if not self.reader.is_known:
            look = warn_of_far if extents.size == extents.shape[-1] else warn_of_far_block
        work = partial(_predict_part, self.job.outputs, self.job.beside, self.inputs.names, look)
        predict = delayed(work, pure=False, traverse=False)
        apart = isinstance(target.url, Inside) and not executor.shares_memory
        writer = partial(_write_chunk, target.writer(), claim, apart)
        put = delayed(writer, pure=False, traverse=False)
        sampled = paths.paths_node(self.job.sample_paths(executor))
        given, nodes, total = (sampled, posterior_node(posterior), self._reader(tag)), [], 0
        for group in self._grouped(target, todo, extents):
            cells = sum(math.prod(chunk.shape) for chunk in group)
            count = -(-cells // (TASK_ROWS if posterior.rows is None else PART_ROWS))
            name, total = f"{tag}-{_number(group[0].place)}", total + cells
            blocks = self.blocks(group[0].place)
            parts = [
                predict(*given, group, part, count, *blocks, dask_key_name=f"predict-{name}-{part}")
                for part in range(count)
            ]
            for chunk in group:
                key = f"predict-write-{tag}-{_number(chunk.place)}"
                nodes.append(put(chunk, *parts, dask_key_name=key))
        root = _joined(nodes, f"predict-count-{tag}")
        found = executor.compute(root, nodes, "predict", Amount(total, "chunks"))
        if apart:
            target.merge(found.changes)
        return Written(found.rows, done)

    def _grouped(
        self, target: Target, todo: Sequence[Index], extents: np.ndarray
    ) -> Iterator[tuple[_Chunk, ...]]:
        """Yield chunks that are predicted together: successive ones of rows, or a single one."""
        checksums, group, cells = target.checksums(), list[_Chunk](), 0
        for index in todo:
            extent, mark = tuple(int(n) for n in extents[index]), int(self.inputs.marks[index])
            region = self.inputs.region(index)
            chunk = _Chunk(index, region, extent, int(checksums[index]), mark)
            own = math.prod(chunk.shape)
            apart = bool(group) and index[-1] != group[-1].place[-1] + 1
            if group and (apart or len(group) == CHUNKS or cells + own > self.together):
                yield tuple(group)
                group, cells = [], 0
            group.append(chunk._replace(at=len(group), first=cells))
            cells += own
        if group:
            yield tuple(group)


def _number(index: Index) -> str:
    return ".".join(map(str, index))


class _Part(NamedTuple):
    """Arrays of some cells of the chunks predicted together, by flat numbers, and checksums."""

    cells: np.ndarray
    values: dict[str, np.ndarray]
    checksums: tuple[int, ...]


def _predict_part(
    wanted: Outputs,
    beside: Mapping[str, float | str],
    names: tuple[str, ...],
    look: Look | None,
    sampled: paths.Paths | None,
    node: Node,
    reader: Reader,
    chunks: tuple[_Chunk, ...],
    part: int,
    parts: int,
    *blocks: np.ndarray,
) -> _Part:
    """Predict part ``part`` of ``parts`` of the cells of chunks that are neither done nor masked.

    For a local method a part is near cells.  ``look`` looks for places far from the training rows.
    """
    posterior, boxes = opened(node), [reader.read(chunk.region, blocks) for chunk in chunks]
    for chunk, box in zip(chunks, boxes, strict=True):
        if math.prod(chunk.extent) and box.checksum(chunk.extent) != chunk.checksum:
            raise ChangedError(
                f"cells of the input from {[cut.start for cut in chunk.region]} on have changed "
                "since they were predicted: remove the predictions and predict again"
            )
    checksums = tuple(box.checksum(box.shape) for box in boxes)
    pairs = [box.cells(chunk.extent) for chunk, box in zip(chunks, boxes, strict=True)]
    cells = np.concatenate([own + c.first for c, (own, _) in zip(chunks, pairs, strict=True)])
    X = np.concatenate([own for _, own in pairs]) if len(pairs) > 1 else pairs[0][1]
    key = (*checksums, *(n for chunk in chunks for n in chunk.extent))
    d = len(posterior.feature_names)
    X, own = X[:, :d], iter(X[:, d:].T)
    numbers = {
        name: next(own) if isinstance(given, str) else np.full(len(X), given)
        for name, given in beside.items()
    }
    with single_blas_thread():
        if look is not None and not part:
            look(posterior, X)
        members = np.array_split(_order(posterior, X, key), parts)[part]
        given = {name: values[members] for name, values in numbers.items()}
        values = _predicted(posterior, X[members], given, wanted, names, sampled)
    return _Part(cells[members], values, checksums)


def _predicted(
    posterior: Posterior,
    X: np.ndarray,
    beside: Mapping[str, np.ndarray],
    wanted: Outputs,
    names: tuple[str, ...],
    sampled: paths.Paths | None,
) -> dict[str, np.ndarray]:
    """Return arrays of new observations at rows X (n, d), by name."""
    outer, inner = posterior.outer(True), None
    asked = wanted.quantiles or wanted.exceedance is not None
    if beside or (asked and not outer.keeps_moments):
        inner = posterior.moments(X, "variance", True, gaussian=True)
    if beside:
        assert inner is not None
        outer, missing = observed.of_rows(posterior, beside)
        inner = inner._replace(mean=np.where(missing[:, None], np.nan, inner.mean))
        moments = outer.moments(inner)
    else:
        moments = posterior.moments(X, "variance", include_noise=True)
    assert moments.variance is not None
    mean, variance = np.asarray(moments.mean), np.asarray(moments.variance)
    std = np.sqrt(variance)
    found = {"mean": mean, "std": std, "variance": variance}
    if inner is not None:
        mean, std = np.asarray(inner.mean), np.sqrt(np.asarray(inner.variance))
    if wanted.quantiles:
        found["quantiles"] = outer.quantiles(mean, std, wanted.quantiles)
    if wanted.exceedance is not None:
        found["exceedance"] = outer.exceedance(mean, std, wanted.exceedance)
    if sampled is not None:
        found["samples"] = sampled.values(X)
    return {name: found[name] for name in names}


def _order(posterior: Posterior, X: np.ndarray, key: tuple[int, ...]) -> np.ndarray:
    """Return the order of rows X (c, d) with those of a group together, found once per process."""

    def find() -> np.ndarray:
        order = posterior.grouped(X)
        return np.arange(len(X)) if order is None else order

    if posterior.rows is None or not len(X):
        return np.arange(len(X))
    found: np.ndarray = training_rows.cached((f"{posterior.token}-order", key), find, "cpu")
    return found


class _New(NamedTuple):
    """Number of new rows, or cells, and the changes of a fork that has them."""

    rows: int
    changes: Any = None


def _joined(nodes: Sequence[Delayed], name: str) -> Delayed:
    """Return the sum of what tasks wrote, a tree, so that changes are merged on the workers."""
    level, join = 0, delayed(_join, pure=False)
    while len(nodes) > 1:
        parts = [nodes[i : i + FAN_IN] for i in range(0, len(nodes), FAN_IN)]
        keys = [f"{name}-{level}.{i}" for i in range(len(parts))]
        nodes = [join(*own, dask_key_name=key) for own, key in zip(parts, keys, strict=True)]
        level += 1
    return nodes[0]


def _join(*found: _New) -> _New:
    rows = sum(own.rows for own in found)
    return _New(rows, transactions.merged([own.changes for own in found]))


def _write_chunk(
    writer: ChunkWriter, claim: locks.Claim, apart: bool, chunk: _Chunk, *parts: _Part
) -> _New:
    """Write a chunk with the cells that it had, and return how many are new.

    ``apart`` writes to a copy of the fork that the writer has, and returns its changes.
    """
    checksum, *others = {part.checksums[chunk.at] for part in parts}
    if others:
        raise StoreError(
            f"predictions {writer.url}: the input changed while it was predicted, in the chunk "
            f"{_number(chunk.place)}: predict when nothing writes the input"
        )
    if apart:
        writer = writer.copied()
    size, done, values, new = math.prod(chunk.shape), tuple(map(slice, chunk.extent)), {}, 0
    inside = [(p.cells >= chunk.first) & (p.cells < chunk.first + size) for p in parts]
    for name in writer.values:
        tail = writer.tail(name)
        array = np.full((size, *tail), np.nan)
        for part, own in zip(parts, inside, strict=True):
            array[part.cells[own] - chunk.first] = part.values[name][own].reshape(-1, *tail)
        values[name] = array.reshape(*chunk.shape, *tail)
        if math.prod(chunk.extent):
            values[name][done] = writer.read(name, chunk.region)[done]
    new = sum(int(own.sum()) for own in inside)
    claim.check()
    writer.write(chunk.place, chunk.region, values, checksum, chunk.mark)
    return _New(new, writer.changes if apart else None)
