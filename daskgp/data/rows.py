"""Training rows wherever they are stored: Zarr datasets, arrays in memory, dask and xarray objects.

A task reads its own rows: ``Rows`` is a small value that travels to the workers, and raw
rows are never the output of a task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr

from daskgp.data import grids, reading, writers
from daskgp.data.partition import default_block_rows
from daskgp.data.stores import groups, remote
from daskgp.data.stores.groups import chunk_rows, row_step
from daskgp.errors import InputError, StoreError

CONVERTIBLE = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".parquet", ".npz", ".nc")
"""Suffixes of the files that ``daskgp convert`` reads."""

UNITS = "target_units"
"""Attribute of a dataset store with the units of its targets."""

MOST_CHUNKS = 1_000_000
"""Most chunks of a dataset, each of which is a task of a graph."""

MIN_CHUNK_BYTES = 1 << 20
"""Least bytes of a chunk of X that is written, unless smaller blocks are wanted."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of X (n, d) and y (n,) or (n, p), read slice by slice.

    ``X`` and ``y`` are NumPy or Zarr arrays; ``chunks`` are the row counts that are read
    whole, in order, or None where any cut will do.  With an ``identity``, that of a store which
    no longer changes, decoded chunks are cached for the slices that follow.  ``passing`` rows are
    in a store that is removed with the fit that wrote it.  ``target_units`` are empty where they
    are not known.
    """

    X: Any
    y: Any
    chunks: tuple[int, ...] | None
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    identity: str | None = None
    passing: bool = False
    target_units: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    @property
    def n_targets(self) -> int:
        """Number of columns of y, 1 for a vector."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    def said(self) -> dict[str, list[str]]:
        """Return the attributes of a store that describe its columns."""
        names = {"feature_names": [*self.feature_names], "target_names": [*self.target_names]}
        return names | ({UNITS: [*self.target_units]} if self.target_units else {})

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Read the rows from start to stop, as X (r, d) and y (r, p)."""
        rows = slice(start, stop)
        X, y = (
            reading.read(array, rows)
            if self.identity is None
            else reading.read_held(array, rows, (self.identity, name))
            for name, array in (("X", self.X), ("y", self.y))
        )
        return X, y.reshape(len(y), -1)


def open_dataset(url: str) -> tuple[da.Array, da.Array]:
    """Open a dataset store lazily.

    Parameters
    ----------
    url : str or path
        Zarr group with arrays ``X`` (n, d) and ``y`` (n,) or (n, p) in the same chunks of
        rows; a local path or any fsspec URL.

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
    return _as_dask(X), _as_dask(y)


def open_inputs(url: str) -> da.Array:
    """Open the ``X`` of a dataset store lazily; the store needs no ``y``."""
    return _as_dask(_numeric_array(_open_complete(url), "X", url, (2,)))


def _as_dask(array: zarr.Array) -> da.Array:
    """Return a dask array in the chunks of a store; a rewritten store gets another name."""
    group = groups.parent_of(array)
    identity = {} if group is None else group.attrs.asdict()
    url = remote.address(array)
    try:
        token = dask.base.tokenize(url, array.metadata.to_dict(), identity)
    except RecursionError as error:
        raise StoreError(f"{url} is damaged: its attributes are nested too deep") from error
    chunks = (row_step(array), *array.shape[1:])
    return reading.from_zarr(array, chunks, f"dataset-{token}")


def _open_complete(url: str, options: str = "") -> zarr.Group:
    """Open the group of a dataset store; StoreError if its writer did not finish."""
    try:
        group = groups.open_group(url, "dataset")
    except StoreError as error:
        end = next((end for end in CONVERTIBLE if str(url).lower().endswith(end)), None)
        if end is None or not groups.exists(url):
            raise
        raise StoreError(
            f"{url} is not a dataset store: convert it first: daskgp convert {url} "
            f"{str(url)[: -len(end)]}.zarr{options}"
        ) from error
    if group.attrs.get("complete") is False:  # stores of other software do not say
        raise StoreError(
            f"dataset {url} is incomplete: wait until it is written, or, if its writer was "
            "stopped, finish it and set its attribute complete to true, or remove it and convert "
            "again"
        )
    return group


def dataset_arrays(url: str) -> tuple[zarr.Array, zarr.Array]:
    """Open and check the Zarr arrays X and y of a dataset store."""
    group = _open_complete(url, " --target NAME")
    names = groups.names_in(url)
    if "X" in names and "y" not in names:
        raise StoreError(
            f"dataset {url} has no y, it holds X alone for predictions: convert its source with "
            "--target NAME"
        )
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
    for name, a in (("X", X), ("y", y)):
        width = (a.shards or a.chunks)[1:]
        if width < a.shape[1:]:
            raise StoreError(
                f"{what}: chunks of {name} hold {width[0]} of {a.shape[1]} columns: keep rows whole"
            )


def _numeric_array(group: zarr.Group, name: str, url: str, ndim: tuple[int, ...]) -> zarr.Array:
    try:
        array = group[name]
    except KeyError as error:
        names = ", ".join(sorted(groups.names_in(url))) or "no arrays"
        raise StoreError(f"dataset {url} has no array {name!r}: it holds {names}") from error
    except Exception as error:  # each kind of damage has its own type
        reason = groups.first_line(error)
        raise StoreError(f"dataset {url}: cannot read array {name!r}: {reason}") from error
    if not isinstance(array, zarr.Array):
        raise StoreError(f"dataset {url}: {name!r} is a group, an array is needed")
    if np.dtype(array.dtype).kind not in groups.NUMERIC:
        raise StoreError(
            f"dataset {url}: array {name!r} has type {array.dtype}, numbers are needed"
        )
    if array.ndim not in ndim:
        wanted = " or ".join(str(k) for k in ndim)
        raise StoreError(f"dataset {url}: array {name!r} has {array.ndim} dimensions, not {wanted}")
    _check_chunks(array, f"dataset {url}: array {name!r}")
    return array


def _check_chunks(array: zarr.Array, what: str) -> None:
    """Raise StoreError if the chunks are too many or too large to work through."""
    rows, step = array.shape[0], row_step(array)
    if step < 1 or rows // step > MOST_CHUNKS:
        raise StoreError(
            f"{what} has {rows} rows in chunks of {step}: rewrite it with at most "
            f"{MOST_CHUNKS:,} chunks"
        )
    at_once = math.prod((min(rows, step), *array.shape[1:])) * array.dtype.itemsize
    groups.refuse_larger(at_once, f"{what} has too large chunks")


def rows_of(
    X: Any, y: Any, spill: str | None, shared_memory: bool, block_rows: int | None = None
) -> Rows:
    """Return the rows of whatever ``fit`` was given.

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
    rows = _rows_of(X, y, spill, shared_memory, block_rows)
    units = target_units(y)
    return replace(rows, target_units=units if len(units) == rows.n_targets else ())


def _rows_of(
    X: Any, y: Any, spill: str | None, shared_memory: bool, block_rows: int | None
) -> Rows:
    if grids.is_xarray(X) or grids.is_xarray(y):
        X, y, names = grids.training_arrays(X, y)
    else:
        names = column_names(X), column_names(y)
    X, y = reading.behind(X), reading.behind(y)
    if isinstance(X, zarr.Array) and isinstance(y, zarr.Array):
        _check_shapes(X, y)
        check_aligned(X, y, "training data")
        return _rows(X, y, chunk_rows(X.shape[0], row_step(X)), names)
    if any(isinstance(a, da.Array | zarr.Array) for a in (X, y)):
        X, y = _lazy_or_here(X), _lazy_or_here(y)
        _check_shapes(X, y)
        return _spilled(X, y, names, spill, block_rows)
    X, y = reading.unmasked(X), reading.unmasked(y)
    _check_shapes(X, y)
    if not shared_memory:
        return _spilled(X, y, names, spill, block_rows)
    return _rows(X, y, None, names)


def is_zarr(x: Any) -> bool:
    """Return whether x is a Zarr array."""
    return isinstance(x, zarr.Array)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names that an object carries: of a data frame, labels or of a store."""
    if grids.is_table(X):
        return grids.labels(X)
    if hasattr(X, "columns"):
        return tuple(str(name) for name in X.columns)
    if hasattr(X, "name") and hasattr(X, "iloc"):
        return (str(X.name),)
    array = reading.behind(X)
    if isinstance(array, zarr.Array) and array.path:
        key = {"X": "feature_names", "y": "target_names"}.get(array.path.rpartition("/")[2])
        group = groups.parent_of(array) if key else None
        names = None if group is None else group.attrs.get(str(key))
        return tuple(str(name) for name in names) if isinstance(names, list) else None
    return None


def target_units(y: Any) -> tuple[str, ...]:
    """Return the units that targets carry: those of a DataArray or of a store, else none."""
    if grids.is_xarray(y):
        units = y.attrs.get("units")
        return (units,) if isinstance(units, str) else ()
    array = reading.behind(y)
    if not isinstance(array, zarr.Array) or array.path.rpartition("/")[2] != "y":
        return ()
    group = groups.parent_of(array)
    stored = None if group is None else group.attrs.get(UNITS)
    whole = isinstance(stored, list) and all(isinstance(unit, str) for unit in stored)
    return tuple(str(unit) for unit in stored) if isinstance(stored, list) and whole else ()


def _rows(X: Any, y: Any, chunks: tuple[int, ...] | None, names: Sequence[Any]) -> Rows:
    d, p = X.shape[1], 1 if y.ndim == 1 else y.shape[1]
    features = names[0] or tuple(f"x{j}" for j in range(d))
    targets = names[1] or (("y",) if p == 1 else tuple(f"y{j}" for j in range(p)))
    for what, labels, size in (("feature", features, d), ("target", targets, p)):
        if len(labels) != size:
            raise InputError(f"{len(labels)} {what} names for {size} columns: {', '.join(labels)}")
    return Rows(X, y, chunks, tuple(features), tuple(targets))


def _check_shapes(X: Any, y: Any) -> None:
    reading.check_table(X)
    if y.ndim not in (1, 2):
        raise InputError(f"y has {y.ndim} dimensions, 1 or 2 are needed")
    reading.check_kind("y", y)
    for name, a in (("X", X), ("y", y)):
        if any(size != size for size in a.shape):  # NaN: unknown to dask
            raise InputError(f"{name} has unknown chunk sizes: call compute_chunk_sizes() on it")
    if X.shape[0] != y.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows but y has {y.shape[0]}")


def _lazy_or_here(x: Any) -> Any:
    """Return a dask array for a dask or Zarr array, else a NumPy array."""
    if isinstance(x, zarr.Array):
        return reading.from_zarr(x)
    if not isinstance(x, da.Array):
        return reading.unmasked(x)
    if not isinstance(x._meta, np.ma.MaskedArray):
        return x
    dtype = np.result_type(x.dtype, np.float32)
    lazily: Any = da.map_blocks  # dask's stubs do not know its arguments
    return lazily(reading.unmasked, x, dtype=dtype, meta=np.empty((0,) * x.ndim, dtype))


def _spilled(X: Any, y: Any, names: Sequence[Any], spill: str | None, wanted: int | None) -> Rows:
    """Return rows of dask or NumPy arrays in chunks of a dataset store that is written once."""
    wanted = int(wanted or default_block_rows(X.shape[0]))
    least = MIN_CHUNK_BYTES // max(1, X.shape[1] * X.dtype.itemsize)
    longest = max(X.chunks[0], default=1) if isinstance(X, da.Array) else len(X)
    step = max(1, min(wanted, max(longest, least), X.shape[0]))
    chunks = chunk_rows(X.shape[0], step)
    if spill is None:
        return _rows(X, y, chunks, names)
    targets = writers.spill(spill, {"X": X, "y": y}, step)
    return replace(_rows(targets["X"], targets["y"], chunks, names), passing=True)
