"""Prediction into a store, chunk by chunk: repeatable, with work only for new rows."""

from __future__ import annotations

import logging
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask import delayed

from daskgp import data
from daskgp.data import feature_units, gridded, prediction_store, reading, visibility
from daskgp.data.feature_units import Conversion
from daskgp.data.stores import locks
from daskgp.errors import DeviceMemoryError, InputError, MemoryRunError, StoreError
from daskgp.models.values import leaves
from daskgp.output import csv
from daskgp.output import map as to_map
from daskgp.output.job import PART_ROWS, ChangedError, Job, Outputs, Work, Written
from daskgp.posterior import training_rows
from daskgp.posterior.posterior import Posterior, check_columns
from daskgp.predict import paths
from daskgp.predict.lazy import conversions, posterior_node
from daskgp.predict.stored import Node, check_visible, opened
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Amount

logger = logging.getLogger("daskgp")

SMALL = 5e10
"""Most operations that this process does itself: they take as long as a cluster takes to start."""
READ = 100.0
"""Operations in whose time a number is read."""
TOGETHER, CHUNKS = 2**23, 16
"""Maximum bytes of the inputs, and maximum number, of successive chunks from which tasks of a local
method take rows that are near each other: places in any order then need a factor once, not once per
chunk.  Each of the chunks waits for all of the tasks."""


def write(job: Job, executor: Executor, wait: float = 0.0, clear_lock: bool = False) -> Written:
    """Predict a dataset store or a grid into a prediction store under its lock.

    See `write_held`; ``wait`` and ``clear_lock`` are those of `locks.hold`.
    """
    with work_of(job):
        pass  # what is wrong with the input is said before the lock is taken
    if clear_lock:
        prediction_store.refuse_taken(job.output, job.resume)  # before clearing a lock in vain
    with locks.hold(job.output, wait, clear_lock, job.resume) as claim:
        return write_held(job, executor, claim)


def is_done(job: Job) -> bool:
    """Return True if an output needs no task: it has all of the input, which is unchanged.

    False if ``job.verify`` asks for a comparison.

    Raises
    ------
    InputError, StoreError
        As `write_held` does for an existing output.
    """
    with work_of(job) as work:
        posterior = job.posterior
        target = prediction_store.find_complete(job.output, work.inputs, posterior, posterior.token)
        if target is None or job.verify or target.rows != work.inputs.rows:
            return False
        return work.unchanged(target)


def needs_cluster(job: Job, chosen: bool = False) -> bool:
    """Return whether a prediction into a store is so much work that it pays to start a cluster.

    What an unfinished output has already is not looked at: all of its input counts.  A cluster that
    was ``chosen`` is needed for any work at all.

    Raises
    ------
    InputError, StoreError
        As `is_done` does.
    """
    with work_of(job) as work:
        posterior, inputs = job.posterior, work.inputs
        target = prediction_store.find_complete(job.output, inputs, posterior, posterior.token)
        known = 0 if target is None else target.rows
        read = 0 if target is None or (not job.verify and work.unchanged(target)) else known
        new = inputs.rows - known
        if chosen:
            return read + new > 0
        return (
            effort(posterior, new) + job.effort_of_paths(new) + READ * read * posterior.n_features
            > SMALL
        )


def effort(posterior: Posterior, rows: int) -> float:
    """Return about how many floating-point operations the prediction of some rows takes."""
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
    notes = {"model": job.model, "input": inputs.url}
    new = data.vacant(job.output)
    target = prediction_store.open_or_create(
        job.output, inputs, posterior, posterior.token, notes, job.resume
    )
    if target.rows < inputs.rows or not target.done().all():
        target.refuse_shared(inputs)
    try:
        visibility.check(executor, target.flags["done"], "the output", remedy)
        began()
        logger.info("at work on %s: %d rows of %s", job.output, inputs.rows, inputs.url)
        marks = work.check_done(target, executor, job.verify)
        claim.check()
        if marks is not None:
            target.mark(marks)
        target.grow(inputs)
        with _chunks_are_named(work.chunk_rows):
            written = work.write_missing(target, executor, claim)
        if written.rows or not target.is_finished(notes):
            claim.check()
            target.finish(inputs, notes)
    except Exception as error:
        if new and claim.held() and not target.done().any():
            data.remove(job.output)
        elif not isinstance(error, ChangedError):
            error.add_note("the same prediction with --resume (resume=True) continues from here")
        raise
    logger.info("predicted %d rows of %s, found %d done", written.rows, inputs.url, written.skipped)
    return written


@contextmanager
def work_of(job: Job) -> Iterator[Work]:
    """Yield the work of a prediction into a store; InputError unless its input can be predicted."""
    job.posterior.refuse_spread(include_noise=True)
    if job.outputs.samples is not None:
        paths.check(job.posterior)
    if gridded.is_grid(job.source):
        with to_map.work_of(job) as work:
            yield work
    else:
        if not isinstance(job.source, str | os.PathLike):
            raise InputError(
                f"the source is a {type(job.source).__name__}: predict_store takes the place of a "
                "dataset store or of a grid, or an xarray object; predict takes arrays and frames"
            )
        if job.mask or job.outputs._replace(samples=None) != Outputs():
            remedy = "a store of rows has the mean and the variance, of which they are made"
            if not job.posterior.outer(observed=True).keeps_moments:
                remedy = "of rows predict and predict_exceedance give them in Python, lazily too"
            raise InputError(
                f"{job.source} holds rows: a mask, variance, quantiles and exceedance are for "
                f"grids; {remedy}"
            )
        source = str(job.source)
        X = _rows(job.posterior, source)
        how = conversions(job.posterior, X, source)
        inputs = prediction_store.inputs_of(source, X, job.outputs.samples)
        yield RowWork(job.posterior, X, inputs, job, how)


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
        raise InputError(f"{source} has no rows: there is nothing to predict")
    return X


class RowWork(NamedTuple):
    """The prediction of the rows of a dataset store."""

    posterior: Posterior
    X: da.Array
    inputs: prediction_store.Inputs
    job: Job
    how: tuple[Conversion | None, ...] = ()

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        return int(self.X.chunksize[0])

    def check_visible(self, executor: Executor, remedy: str) -> None:
        """Raise InputError unless every worker sees the input."""
        visibility.check(executor, data.behind(self.X), "the input", remedy)

    def unchanged(self, target: prediction_store.Target) -> bool:
        """Return whether all of the input is done and was not written since."""
        done, same = target.done(), _unchanged(self.inputs, target)
        # without its lock the output may grow from one look to the next
        return len(done) == len(same) and bool((done & same).all())

    def check_done(
        self, target: prediction_store.Target, executor: Executor, verify: bool
    ) -> np.ndarray | None:
        """Compare the input written since it was predicted; StoreError if rows have changed."""
        settled = _check_done(self.X, self.inputs, target, executor, verify)
        return self.inputs.marks[:settled] if settled else None

    def write_missing(
        self, target: prediction_store.Target, executor: Executor, claim: locks.Claim
    ) -> Written:
        """Predict what is not done, and return how much that was."""
        source = _Source(data.behind(self.X), self.how)
        rows = _write_missing(self.job, self.X, source, self.inputs, target, executor, claim)
        return Written(rows, self.inputs.rows - rows)


# -- what is done ----------------------------------------------------------------------------


def _check_done(
    X: da.Array,
    inputs: prediction_store.Inputs,
    target: prediction_store.Target,
    executor: Executor,
    verify: bool,
) -> int:
    """Compare the input written since it was predicted; raise StoreError if rows have changed.

    Return how many of the first chunks deserve new marks: 0 if all marks are unchanged.  A last
    chunk that has more rows now is not among them; it is predicted again.
    """
    step = int(X.chunksize[0])
    count = -(-target.rows // step) if target.rows == inputs.rows else target.rows // step
    done, same = target.done()[:count], _unchanged(inputs, target)[:count]
    look = np.flatnonzero(done if verify else done & ~same)
    if not len(look):
        return 0
    logger.info("comparing %d of %d chunks that are done", len(look), done.sum())
    starts, tag = np.cumsum([0, *X.chunks[0]]), uuid.uuid4().hex[:8]
    read = delayed(partial(_checksum_of, data.behind(X)), pure=False, traverse=False)
    nodes = [
        read(slice(int(starts[i]), int(starts[i + 1])), dask_key_name=f"predict-check-{tag}-{i}")
        for i in look
    ]
    root = delayed(list, pure=False)(nodes, dask_key_name=f"predict-checked-{tag}")
    amount = Amount(int((starts[look + 1] - starts[look]).sum()), "chunks")
    found = executor.compute(root, nodes, "check", amount)
    wrong = look[np.not_equal(found, target.checksums()[look])]
    if len(wrong):
        raise ChangedError(
            f"predictions {target.url}: rows {starts[wrong[0]]} to {starts[wrong[0] + 1] - 1} of "
            f"the input have changed since they were predicted ({len(wrong)} of {len(look)} "
            "chunks compared): remove the predictions and predict again"
        )
    return 0 if same[done].all() else count


def _unchanged(inputs: prediction_store.Inputs, target: prediction_store.Target) -> np.ndarray:
    """Return the mask of the common chunks that were not written since they were predicted."""
    then = target.marks()
    now = inputs.marks[: len(then)]
    return (now == then[: len(now)]) & (now != data.UNKNOWN_MARK)


def _checksum_of(source: Any, rows: slice) -> int:
    return _checksum(reading.read(source, rows))


def _checksum(X: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(X).tobytes())


# -- what is missing -------------------------------------------------------------------------


def _write_missing(
    job: Job,
    X: da.Array,
    source: _Source,
    inputs: prediction_store.Inputs,
    target: prediction_store.Target,
    executor: Executor,
    claim: locks.Claim,
) -> int:
    todo, starts = np.flatnonzero(~target.done()), np.cumsum([0, *X.chunks[0]])
    if not len(todo):
        return 0
    posterior, sampled = job.posterior, paths.paths_node(job.sample_paths(executor))
    tag = uuid.uuid4().hex[:8]
    # a task reads its own rows, so that raw rows are never the output of a task
    predict = delayed(partial(_predict_part, source), pure=False, traverse=False)
    put = delayed(partial(_write_parts, target, claim), pure=False, traverse=False)
    nodes, node, width = [], posterior_node(posterior), X.shape[1] * X.dtype.itemsize
    for group in _together(todo, starts, 0 if posterior.rows is None else TOGETHER // width):
        rows = tuple(slice(int(starts[i]), int(starts[i + 1])) for i in group)
        length = rows[-1].stop - rows[0].start
        count = 1 if posterior.rows is None else -(-length // PART_ROWS)
        parts = [
            predict(node, sampled, rows, p, count, dask_key_name=f"predict-{tag}-{group[0]}-{p}")
            for p in range(count)
        ]
        for at, i in enumerate(group):
            chunk = _Chunk(i, rows[at], rows[0].start, at, int(inputs.marks[i]))
            nodes.append(put(chunk, *parts, dask_key_name=f"predict-write-{tag}-{i}"))
    root = delayed(_count, pure=False)(nodes, dask_key_name=f"predict-count-{tag}")
    amount = Amount(int((starts[todo + 1] - starts[todo]).sum()), "chunks")
    return int(executor.compute(root, nodes, "predict", amount))


def _together(todo: np.ndarray, starts: np.ndarray, most: int) -> Iterator[list[int]]:
    """Yield groups of successive chunks of at most so many rows together, or of a single chunk."""
    group: list[int] = []
    for i in map(int, todo):
        apart = group and i > group[-1] + 1
        if apart or len(group) == CHUNKS or (group and starts[i + 1] - starts[group[0]] > most):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


class _Chunk(NamedTuple):
    """A chunk to be written, and the mark that its input had before it was read.

    It is the one ``at`` among those predicted together, whose rows start at ``first``.
    """

    number: int
    rows: slice
    first: int
    at: int
    mark: int


class _Source(NamedTuple):
    """Array of the rows to predict, and how its columns are turned into the model's units."""

    array: Any
    how: tuple[Conversion | None, ...]


class _Part(NamedTuple):
    """Predictions of some rows of the chunks predicted together, and each chunk's checksum."""

    members: np.ndarray
    values: dict[str, np.ndarray]
    checksums: tuple[int, ...]


def _predict_part(
    source: _Source,
    node: Node,
    sampled: paths.Paths | None,
    chunks: tuple[slice, ...],
    part: int,
    parts: int,
) -> _Part:
    """Predict part ``part`` of ``parts`` of some chunks; for a local method a part is near rows."""
    posterior = opened(node)
    first = chunks[0].start
    X = reading.read(source.array, slice(first, chunks[-1].stop))
    checksums = tuple(_checksum(X[rows.start - first : rows.stop - first]) for rows in chunks)
    X = feature_units.converted(X, source.how)
    with single_blas_thread():
        order = np.arange(len(X)) if parts == 1 else _order(posterior, X, checksums)
        members = np.array_split(order, parts)[part]
        moments = posterior.moments(X[members], "variance", include_noise=True)
        assert moments.variance is not None
        values = {"mean": np.asarray(moments.mean), "variance": np.asarray(moments.variance)}
        if sampled is not None:
            values["samples"] = sampled.values(X[members])
    return _Part(members, values, checksums)


def _order(posterior: Posterior, X: np.ndarray, checksums: tuple[int, ...]) -> np.ndarray:
    """Return the order of rows X (n, d) with those of a group together; a process finds it once."""

    def find() -> np.ndarray:
        order = posterior.grouped(X)
        return np.arange(len(X)) if order is None else order

    found: np.ndarray = training_rows.cached((f"{posterior.token}-order", checksums), find, "cpu")
    return found


def _write_parts(
    target: prediction_store.Target, claim: locks.Claim, chunk: _Chunk, *parts: _Part
) -> int:
    count, start = chunk.rows.stop - chunk.rows.start, chunk.rows.start - chunk.first
    values = {name: np.empty((count, *a.shape[1:])) for name, a in parts[0].values.items()}
    for part in parts:
        inside = (part.members >= start) & (part.members < start + count)
        for name, array in values.items():
            array[part.members[inside] - start] = part.values[name][inside]
    checksum, *others = {part.checksums[chunk.at] for part in parts}
    if others:
        raise StoreError(
            f"predictions {target.url}: rows {chunk.rows.start} to {chunk.rows.stop - 1} of the "
            "input changed while they were predicted: predict when nothing writes the input"
        )
    claim.check()
    target.put(chunk.number, chunk.rows.start, values, checksum, chunk.mark)
    return count


def _count(rows: list[int]) -> int:
    return sum(rows)
