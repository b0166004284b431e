"""Prediction: the solved state as one node, a map over test chunks, lazily or into a store."""

from __future__ import annotations

import logging
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp.errors import InputError, MemoryRunError, StoreError
from daskgp.flow import io, visible
from daskgp.flow.cluster import Executor, single_blas_thread
from daskgp.flow.io import grids, predictions, reading
from daskgp.flow.solved import Solved, check_columns
from daskgp.model import TILE_ROWS

logger = logging.getLogger("daskgp")

PART_ROWS = 4_096
"""Rows of a chunk that a local method predicts in one task, for which it factors many blocks."""

Spread: TypeAlias = Literal["none", "variance", "std"]


def marginal(solved: Solved, X: Any, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread at X, of the kind X is; the second is None for ``spread="none"``.

    NumPy in, NumPy out; dask or Zarr in, dask out with the same row chunks, nothing computed;
    xarray in, DataArrays out on the same grid.
    """
    if spread != "none":
        solved.refuse_spread(include_noise)
    names = io.column_names(X)
    if grids.is_xarray(X):
        if grids.is_table(X):
            check_columns(solved, X, names)
        return _on_grid(solved, X, spread, include_noise)
    if io.is_zarr(X):
        X = da.from_zarr(X)
    eager = not isinstance(X, da.Array)
    X = reading.unmasked(X) if eager else X
    check_columns(solved, X, names)
    if eager:
        return _in_memory(solved, X, spread, include_noise)
    return lazy(solved, X, spread, include_noise)


def joint(solved: Solved, X: Any, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and joint covariance at rows in memory."""
    X = in_memory(solved, X)
    with single_blas_thread():
        found = solved.moments(X, "covariance", include_noise)
    assert found.covariance is not None
    if solved.vector_target:
        return found.mean[:, 0], found.covariance[:, :, 0]
    return found.mean, found.covariance


def in_memory(solved: Solved, X: Any) -> np.ndarray:
    """Rows in memory with the columns of the training data; InputError for anything else."""
    if isinstance(X, da.Array) or grids.is_xarray(X) or io.is_zarr(X):
        raise InputError(
            "a joint covariance, a sample or the computational part needs rows in memory: give a "
            "NumPy array, or ask for return_std"
        )
    names, X = io.column_names(X), reading.unmasked(X)
    check_columns(solved, X, names)
    return X


def lazy(solved: Solved, X: da.Array, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread with the row chunks of X; both come from one task a chunk."""
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    width = solved.n_targets * (1 if spread == "none" else 2)
    predict: Any = _predict_block  # dask's stubs want an array here
    both = X.map_blocks(
        predict,
        _node(solved),
        spread,
        include_noise,
        chunks=(X.chunks[0], (width,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
        name="predict-" + dask.base.tokenize(X.name, solved, spread, include_noise),
    )
    return _split(both, solved, spread)


def _on_grid(solved: Solved, X: Any, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread as DataArrays on the grid of an xarray object, lazy where it is chunked."""
    grid = grids.grid_of(X, solved.feature_names)
    width = solved.n_targets * (1 if spread == "none" else 2)
    both = grid.map(_predict_block, width, _node(solved), spread, include_noise)
    parts = _split(both, solved, spread)
    if not grid.lazy:
        with single_blas_thread():
            parts = dask.compute(*parts, scheduler="threads")
    first, second = (
        None if a is None else grid.wrap(a, solved.target_names, solved.vector_target)
        for a in parts
    )
    return first, second


def _in_memory(
    solved: Solved, X: np.ndarray, spread: Spread, include_noise: bool
) -> tuple[Any, Any]:
    """Mean and spread of a NumPy array, computed by the threads of this process."""
    order = solved.grouped(X)
    rows = da.from_array(X if order is None else X[order], chunks=(TILE_ROWS, -1))
    with single_blas_thread():
        mean, second = dask.compute(*lazy(solved, rows, spread, include_noise), scheduler="threads")
    if order is None:
        return mean, second
    back = np.argsort(order)
    return mean[back], None if second is None else second[back]


def _node(solved: Solved) -> Any:
    return delayed(solved, name="solved-" + solved.token, traverse=False)


def _predict_block(X: Any, solved: Solved, spread: Spread, include_noise: bool) -> np.ndarray:
    with single_blas_thread():
        found = solved.moments(X, "mean" if spread == "none" else "variance", include_noise)
    if found.variance is None:
        return np.asarray(found.mean)
    second = np.sqrt(found.variance) if spread == "std" else found.variance
    return np.concatenate([found.mean, second], axis=1)


def _split(both: da.Array, solved: Solved, spread: Spread) -> tuple[Any, Any]:
    p = solved.n_targets
    first = both[..., 0] if solved.vector_target else both[..., :p]
    if spread == "none":
        return first, None
    return first, both[..., 1] if solved.vector_target else both[..., p:]


class Written(NamedTuple):
    """Rows that a run predicted and rows it found done."""

    rows: int
    skipped: int


def write(
    solved: Solved,
    source: str,
    output: str,
    resume: bool,
    executor: Executor,
    model: str | None = None,
) -> Written:
    """Predict the inputs of a dataset store into a prediction store.

    A task reads one chunk of X, writes the same chunk of ``mean`` and ``variance`` (noise
    included) and sets its flag in ``done`` last, so a run that is killed can be repeated.  A run
    that fails before its first chunk leaves no store.  ``model`` is the URL of the model's store,
    to be noted.

    Raises
    ------
    InputError
        If the columns of the source are not those of the training data.
    StoreError
        If the output exists and ``resume`` is not set, or was made by another model or from
        another input; every chunk that is done is compared.
    """
    X = check_source(solved, source)
    identity = {"model_checksum": solved.token, "input_checksum": io.inputs_checksum(X)}
    notes = {"model": model, "input": source}
    remedy = f"put it in {visible.HERE}"
    visible.check(executor, io.behind(X), "the input", remedy)
    if solved.kept is not None:
        visible.check(executor, solved.kept.rows.X, "the training rows of the model", remedy)
    new = not io.exists(output)
    target = predictions.open_or_create(output, X, solved, identity, notes, resume)
    try:
        visible.check(executor, target.group["done"], "the output", remedy)
        _check_done(X, target, executor)
        with _chunks_are_named(X):
            rows = _write_missing(solved, X, target, executor)
        target.finish()
    except Exception as error:
        if new and not target.done().any():
            io.remove(output)
        else:
            error.add_note("the same prediction with --resume (resume=True) goes on from here")
        raise
    return Written(rows, X.shape[0] - rows)


@contextmanager
def _chunks_are_named(X: da.Array) -> Iterator[None]:
    """Tasks that ran out of memory say how wide the chunks are."""
    try:
        yield
    except MemoryRunError as error:
        rows = int(X.chunksize[0])
        raise MemoryRunError(
            error.seen,
            f"chunks of {rows} rows, most likely out of memory",
            f"convert the input again in chunks of at most {max(1, rows // 4)} rows "
            "(--block-rows) or give the workers more memory",
        ) from error


def check_source(solved: Solved, source: str) -> da.Array:
    """The inputs of a dataset store; InputError unless they can be predicted."""
    solved.refuse_spread(include_noise=True)
    X = io.open_inputs(source)
    check_columns(solved, X, io.column_names(X))
    if not X.shape[0]:
        raise InputError(f"{source} has no rows: there is nothing to predict")
    return X


def _check_done(X: da.Array, target: predictions.Target, executor: Executor) -> None:
    """Raise StoreError if rows have changed since they were predicted."""
    done, starts = np.flatnonzero(target.done()), np.cumsum([0, *X.chunks[0]])
    if not len(done):
        return
    tag = uuid.uuid4().hex[:8]
    read = delayed(partial(_checksum_of, io.behind(X)), pure=False, traverse=False)
    nodes = [
        read(slice(int(starts[i]), int(starts[i + 1])), dask_key_name=f"predict-check-{tag}-{i}")
        for i in done
    ]
    root = delayed(list, pure=False)(nodes, dask_key_name=f"predict-checked-{tag}")
    wrong = done[np.not_equal(executor.compute(root, nodes, "check"), target.checksums()[done])]
    if len(wrong):
        raise StoreError(
            f"predictions {target.url}: rows {starts[wrong[0]]} to {starts[wrong[0] + 1] - 1} of "
            f"the input have changed since they were predicted ({len(wrong)} of {len(done)} "
            "chunks): remove the predictions and predict again"
        )


def _checksum_of(source: Any, rows: slice) -> int:
    return _checksum(reading.read(source, rows))


def _checksum(X: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(X).tobytes())


def _write_missing(
    solved: Solved, X: da.Array, target: predictions.Target, executor: Executor
) -> int:
    todo, starts = np.flatnonzero(~target.done()), np.cumsum([0, *X.chunks[0]])
    tag = uuid.uuid4().hex[:8]
    # a task reads its own rows, so that raw rows never are the output of one
    predict = delayed(partial(_predict_part, io.behind(X)), pure=False, traverse=False)
    put = delayed(partial(_write_parts, target), pure=False, traverse=False)
    nodes = []
    for i in todo:
        rows = slice(int(starts[i]), int(starts[i + 1]))
        count = 1 if solved.kept is None else -(-(rows.stop - rows.start) // PART_ROWS)
        parts = [
            predict(_node(solved), rows, p, count, dask_key_name=f"predict-{tag}-{i}-{p}")
            for p in range(count)
        ]
        nodes.append(put(int(i), rows, *parts, dask_key_name=f"predict-write-{tag}-{i}"))
    if not nodes:
        return 0
    root = delayed(_count, pure=False)(nodes, dask_key_name=f"predict-count-{tag}")
    return int(executor.compute(root, nodes, "predict"))


class _Part(NamedTuple):
    """Moments of some rows of a chunk, and the checksum of the whole chunk."""

    members: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    checksum: int


def _predict_part(source: Any, solved: Solved, rows: slice, part: int, parts: int) -> _Part:
    """One of so many parts of a chunk; a local method finds rows near one another in a part."""
    X = reading.read(source, rows)
    with single_blas_thread():
        order = solved.grouped(X)
        members = np.array_split(np.arange(len(X)) if order is None else order, parts)[part]
        found = solved.moments(X[members], "variance", include_noise=True)
    assert found.variance is not None
    return _Part(members, found.mean, found.variance, _checksum(X))


def _write_parts(target: predictions.Target, index: int, rows: slice, *parts: _Part) -> int:
    mean = np.empty((rows.stop - rows.start, parts[0].mean.shape[1]))
    variance = np.empty_like(mean)
    for part in parts:
        mean[part.members], variance[part.members] = part.mean, part.variance
    target.put(index, rows.start, mean, variance, parts[0].checksum)
    return len(mean)


def _count(rows: list[int]) -> int:
    return sum(rows)
