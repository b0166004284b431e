"""Training rows wherever they lie: Zarr datasets, arrays in memory, dask and xarray objects.

A task reads its own rows: ``Rows`` is a small value that travels to the workers, and raw
rows never are the output of a task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskgp.errors import InputError, StoreError
from daskgp.flow.io import grids, groups
from daskgp.flow.partition import default_block_rows

logger = logging.getLogger("daskgp")

DEFAULT_BLOCK_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of X (n, d) and y (n,) or (n, p), read slice by slice.

    ``X`` and ``y`` are NumPy or Zarr arrays; ``chunks`` are the row counts that are read
    whole, in order; None where any cut will do.
    """

    X: Any
    y: Any
    chunks: tuple[int, ...] | None
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.X.shape[1])

    @property
    def n_targets(self) -> int:
        """Columns of y, 1 for a vector."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def in_memory(self) -> bool:
        """Whether the rows are NumPy arrays of this process."""
        return isinstance(self.X, np.ndarray)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows start to stop, as X (r, d) and y (r, p)."""
        X, y = np.asarray(self.X[start:stop]), np.asarray(self.y[start:stop])
        return X, y.reshape(len(y), -1)


def open_dataset(url: str) -> tuple[da.Array, da.Array]:
    """Open a dataset store lazily.

    Parameters
    ----------
    url : str or path
        Zarr group with arrays ``X`` (n, d) and ``y`` (n,) or (n, p) chunked along rows alike;
        a local path or any fsspec URL.

    Returns
    -------
    X, y : dask arrays
        With the chunks of the store; an estimator recognises them and reads the store itself.

    Raises
    ------
    StoreError
        If there is no such store, an array is missing, has the wrong dimensions or no numbers,
        or if the rows of X and y differ in number or in chunks.
    """
    X, y = dataset_arrays(url)
    step = row_step(X)
    return da.from_array(X, chunks=(step, -1)), da.from_array(y, chunks=(step, *y.shape[1:]))


def open_inputs(url: str) -> da.Array:
    """The ``X`` of a dataset store, lazily; ``y`` need not be there."""
    group = groups.open_group(url, "dataset")
    X = _numeric_array(group, "X", url, (2,))
    return da.from_array(X, chunks=(row_step(X), -1))


def inputs_checksum(X: da.Array) -> str:
    """SHA-256 over shape, chunks, type and names of inputs and the values of both end chunks.

    Reading no more keeps a resumed run from paying for the whole input again.
    """
    ends = {str(i): X.blocks[i].compute(scheduler="sync") for i in {0, X.numblocks[0] - 1}}
    return groups.checksum(
        ends,
        {
            "shape": list(X.shape),
            "dtype": str(X.dtype),
            "chunks": list(X.chunksize),
            "names": list(column_names(X) or ()),
        },
    )


def dataset_arrays(url: str) -> tuple[zarr.Array, zarr.Array]:
    """The checked Zarr arrays X and y of a dataset store."""
    group = groups.open_group(url, "dataset")
    X, y = _numeric_array(group, "X", url, (2,)), _numeric_array(group, "y", url, (1, 2))
    check_aligned(X, y, f"dataset {url}")
    return X, y


def check_aligned(X: zarr.Array, y: zarr.Array, what: str) -> None:
    """Raise StoreError unless X and y have the same rows in the same chunks."""
    if X.shape[0] != y.shape[0]:
        raise StoreError(f"{what}: X has {X.shape[0]} rows but y has {y.shape[0]}")
    if row_step(X) != row_step(y):
        raise StoreError(
            f"{what}: X has chunks of {row_step(X)} rows but y of {row_step(y)}: "
            "rewrite it with equal chunks, for example with `daskgp convert`"
        )
    wide = X.shards or X.chunks
    if wide[1] < X.shape[1]:
        raise StoreError(
            f"{what}: chunks of X hold {wide[1]} of {X.shape[1]} columns: keep rows whole"
        )


def row_step(array: zarr.Array) -> int:
    """Rows that are read at one go: those of a shard where there are shards."""
    return int((array.shards or array.chunks)[0])


def chunk_rows(n: int, step: int) -> tuple[int, ...]:
    """Row counts of chunks of ``step`` rows with a ragged last one."""
    return tuple(min(step, n - i) for i in range(0, n, step))


def _numeric_array(group: zarr.Group, name: str, url: str, ndim: tuple[int, ...]) -> zarr.Array:
    try:
        array = group[name]
    except KeyError as error:
        there = ", ".join(sorted(group.array_keys())) or "no arrays"
        raise StoreError(f"dataset {url} has no array {name!r}: it holds {there}") from error
    except (ValueError, TypeError) as error:
        reason = groups.first_line(error)
        raise StoreError(f"dataset {url}: cannot read array {name!r}: {reason}") from error
    if not isinstance(array, zarr.Array):
        raise StoreError(f"dataset {url}: {name!r} is a group, an array is needed")
    if np.dtype(array.dtype).kind not in "fiub":
        raise StoreError(
            f"dataset {url}: array {name!r} has type {array.dtype}, numbers are needed"
        )
    if array.ndim not in ndim:
        wanted = " or ".join(str(k) for k in ndim)
        raise StoreError(f"dataset {url}: array {name!r} has {array.ndim} dimensions, not {wanted}")
    return array


def rows_of(
    X: Any, y: Any, spill: str | None, shared_memory: bool, block_rows: int | None = None
) -> Rows:
    """Rows of whatever ``fit`` was given.

    Parameters
    ----------
    X, y : NumPy, Zarr, dask or xarray objects, data frames, sequences
        Dask arrays over a Zarr store are read from that store.
    spill : str or None
        URL of a store that other dask arrays, and in-memory rows that must reach other
        processes, are written to once.  With None nothing is written: the rows have the chunks
        they would have, but tasks cannot read them.
    shared_memory : bool
        Whether tasks see this process's arrays, so that they can stay where they are.
    block_rows : int, optional
        Most rows of a chunk that is written; default from the number of rows.
    """
    if grids.is_xarray(X) or grids.is_xarray(y):
        X, y, names = grids.training_arrays(X, y)
    else:
        names = column_names(X), column_names(y)
    X, y = behind(X), behind(y)
    if isinstance(X, zarr.Array) and isinstance(y, zarr.Array):
        check_aligned(X, y, "training data")
        return _rows(X, y, chunk_rows(X.shape[0], row_step(X)), names)
    if any(isinstance(a, da.Array | zarr.Array) for a in (X, y)):
        X, y = _as_dask(X), _as_dask(y)
        _check_shapes(X, y)
        return _spilled(X, y, names, spill, block_rows)
    X, y = np.asarray(X), np.asarray(y)
    _check_shapes(X, y)
    if not shared_memory:
        return _spilled(_as_dask(X), _as_dask(y), names, spill, block_rows)
    return _rows(X, y, None, names)


def is_zarr(x: Any) -> bool:
    """Whether x is a Zarr array."""
    return isinstance(x, zarr.Array)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Names that an object itself carries: data frame columns, labels or those of a store."""
    if grids.is_table(X):
        return grids.labels(X)
    if hasattr(X, "columns"):
        return tuple(str(name) for name in X.columns)
    if hasattr(X, "name") and hasattr(X, "iloc"):
        return (str(X.name),)
    array = behind(X)
    if isinstance(array, zarr.Array) and array.path:
        parent, _, leaf = array.path.rpartition("/")
        key = {"X": "feature_names", "y": "target_names"}.get(leaf)
        try:
            attributes = zarr.open_group(array.store, path=parent, mode="r").attrs
        except FileNotFoundError:
            return None
        found = attributes.get(key, None) if key else None
        return tuple(str(name) for name in found) if isinstance(found, list) else None
    return None


def behind(x: Any) -> Any:
    """The Zarr array that a dask array reads whole and unchanged, else the object itself."""
    if isinstance(x, da.Array):
        array = x.dask.get("original-" + x.name) if "original-" + x.name in x.dask else None
        if isinstance(array, zarr.Array) and array.shape == x.shape and array.dtype == x.dtype:
            return array
    return x


def _rows(X: Any, y: Any, chunks: tuple[int, ...] | None, names: Sequence[Any]) -> Rows:
    d, p = X.shape[1], 1 if y.ndim == 1 else y.shape[1]
    features = names[0] or tuple(f"x{j}" for j in range(d))
    targets = names[1] or (("y",) if p == 1 else tuple(f"y{j}" for j in range(p)))
    for what, given, size in (("feature", features, d), ("target", targets, p)):
        if len(given) != size:
            raise InputError(f"{len(given)} {what} names for {size} columns: {', '.join(given)}")
    return Rows(X, y, chunks, tuple(features), tuple(targets))


def _check_shapes(X: Any, y: Any) -> None:
    if X.ndim != 2:
        raise InputError(f"X has {X.ndim} dimensions, 2 are needed (rows, features)")
    if y.ndim not in (1, 2):
        raise InputError(f"y has {y.ndim} dimensions, 1 or 2 are needed")
    for name, a in (("X", X), ("y", y)):
        if np.dtype(a.dtype).kind not in "fiub":
            raise InputError(f"{name} has type {a.dtype}, numbers are needed")
        if any(size != size for size in a.shape):  # NaN: unknown to dask
            raise InputError(f"{name} has unknown chunk sizes: call compute_chunk_sizes() on it")
    if X.shape[0] != y.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows but y has {y.shape[0]}")


def _as_dask(x: Any) -> da.Array:
    if isinstance(x, da.Array):
        return x
    if isinstance(x, zarr.Array):
        return da.from_zarr(x)
    x = np.asarray(x)
    return da.from_array(x, chunks=(min(DEFAULT_BLOCK_ROWS, max(1, len(x))), *x.shape[1:]))


def _spilled(
    X: da.Array, y: da.Array, names: Sequence[Any], spill: str | None, block_rows: int | None
) -> Rows:
    """Write dask arrays to a dataset store once; whole chunks, each by one task."""
    wanted = int(block_rows or default_block_rows(X.shape[0]))
    step = max(1, min(wanted, max(X.chunks[0], default=1)))
    if spill is None:
        return _rows(X, y, chunk_rows(X.shape[0], step), names)
    with groups.creating(spill, "temporary dataset") as group:
        targets: list[Any] = []
        for name, a in (("X", X), ("y", y)):
            shape, chunks = a.shape, (step, *(max(1, s) for s in a.shape[1:]))
            targets.append(group.create_array(name, shape=shape, chunks=chunks, dtype=a.dtype))
        # method="tasks" keeps a ragged layout's repair local and away from P2P shuffles
        sources = [a.rechunk((step, *a.shape[1:]), method="tasks") for a in (X, y)]
        da.store(sources, targets, lock=False)
    logger.info("wrote %d rows to %s", X.shape[0], spill)
    return _rows(targets[0], targets[1], chunk_rows(X.shape[0], step), names)


@contextmanager
def dataset_writer(
    url: str,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    block_rows: int = DEFAULT_BLOCK_ROWS,
    multi_target: bool = False,
    attributes: groups.Attributes | None = None,
) -> Iterator[DatasetWriter]:
    """Write a dataset store row by row in whole chunks.

    The store is removed again if the block fails; its last attribute, ``complete``, is written
    when it succeeds.

    Parameters
    ----------
    url : str
        Where; StoreError if something is there.
    feature_names, target_names : sequences of str
        Columns of X and y.
    block_rows : int
        Rows of a chunk.
    multi_target : bool
        Keep y two-dimensional though it has one column.
    attributes : mapping, optional
        Further JSON attributes of the group.

    Yields
    ------
    DatasetWriter
        Its ``append(X, y)`` adds rows.
    """
    if block_rows < 1:
        raise InputError(f"block_rows must be at least 1, not {block_rows}")
    tail = () if len(target_names) == 1 and not multi_target else (len(target_names),)
    with groups.creating(str(url), "dataset") as group:
        writer = DatasetWriter(group, len(feature_names), tail, int(block_rows))
        yield writer
        writer.finish()
        names = {"feature_names": list(feature_names), "target_names": list(target_names)}
        group.attrs.update({**(attributes or {}), **names, "complete": True})


class DatasetWriter:
    """Collects rows and writes them chunk by chunk; ``rows`` counts those on disk."""

    def __init__(self, group: zarr.Group, d: int, tail: tuple[int, ...], step: int) -> None:
        self.rows = 0
        self._step, self._held = step, 0
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._X = group.create_array("X", shape=(0, d), chunks=(step, d), dtype="f8")
        self._y = group.create_array("y", shape=(0, *tail), chunks=(step, *tail), dtype="f8")

    def append(self, X: np.ndarray, y: np.ndarray) -> None:
        """Add rows X (r, d) and y (r,) or (r, p)."""
        X = np.asarray(X, np.float64)
        y = np.asarray(y, np.float64).reshape(len(X), *self._y.shape[1:])
        self._pending.append((X, y))
        self._held += len(X)
        if self._held >= self._step:
            self._flush(self._held - self._held % self._step)

    def finish(self) -> None:
        """Write the rows still held, as a ragged last chunk."""
        if self._held:
            self._flush(self._held)

    def _flush(self, rows: int) -> None:
        X, y = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        start, stop = self.rows, self.rows + rows
        for array, values in ((self._X, X), (self._y, y)):
            array.resize((stop, *array.shape[1:]))
            array[start:stop] = values[:rows]
        self.rows = stop
        self._pending, self._held = [(X[rows:], y[rows:])], len(X) - rows
