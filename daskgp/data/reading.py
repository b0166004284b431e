"""Reads of arrays by tasks: repeated where a store fails briefly, a plain error for damage.

Dask arrays of Zarr arrays read their chunks so too: whoever computes one gets the same errors.
"""

from __future__ import annotations

import datetime
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import dask.array as da
import dask.array.core
import numpy as np
import zarr
import zict
from scipy.sparse import issparse

from daskgp import checks
from daskgp.data import feature_units, labels
from daskgp.data.labels import Labels
from daskgp.data.stores import groups
from daskgp.errors import InputError, RunError, StoreError
from daskgp.runtime.forked import free_in_children, in_children
from daskgp.runtime.process import ProcessSetting

if da.Array is not dask.array.core.Array:  # decided when dask.array is first imported
    raise InputError(
        "query planning of Dask arrays is on, which daskgp does not support: set "
        "DASK_ARRAY__QUERY_PLANNING=False, or call dask.config.set({'array.query-planning': False})"
        " before dask.array is imported"
    )

logger: logging.Logger = logging.getLogger("daskgp")

HELD_BYTES = 64 << 20
"""Bytes of decoded chunks that a process caches for small slices of them."""
CONCURRENCY = 4
"""Chunks that Zarr fetches and decodes at a time for one task; other tasks run beside it."""


LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""Errors of the system that do not pass when a slice is read again."""
ATTEMPTS, PAUSE = 3, 0.1
"""Attempts to read a slice where a store fails, and seconds before the second one."""


def _fetch_few() -> Callable[[], None]:
    name = "async.concurrency"
    fewer = zarr.config.set({name: min(CONCURRENCY, int(zarr.config.get(name) or CONCURRENCY))})
    return lambda: fewer.__exit__(None, None, None)


_few_at_a_time = ProcessSetting(_fetch_few)
free_in_children(zarr.config.config_lock)


SHOWN = 20
"""Characters of a text that an error shows."""


def unmasked(values: Any, name: str = "X") -> np.ndarray:
    """Return values as a NumPy array, with NaN for what a masked array masks.

    Raise InputError, with the name of the values, for what holds no rows of numbers.
    """
    refuse_sparse(values)
    if isinstance(values, str | os.PathLike):
        raise InputError(
            f"{str(values)!r} is an address, but rows are needed: X, y = daskgp.open_dataset(...)"
        )
    if hasattr(values, "column_names") and hasattr(values, "to_pandas"):  # an Arrow table
        values = values.to_pandas()
    if hasattr(values, "iloc") and hasattr(values, "to_numpy"):
        return _of_frame(values)
    return np.asarray(doubles(checks.unmasked(checks.array_of(name, values))))


def refuse_sparse(values: Any) -> None:
    """Raise InputError for a sparse matrix, or a dask array of such."""
    if issparse(getattr(values, "_meta", values)):
        raise InputError("a sparse matrix is not supported: give a dense array, X.toarray()")


def doubles(values: Any) -> Any:
    """Return a NumPy or Dask array, as float64 if its floats are longer, which no store holds."""
    longer = values.dtype.kind == "f" and values.dtype.itemsize > 8
    return values.astype(np.float64) if longer else values


ENCODE = "leave the column out or encode it as numbers"
OF_FRAME = f"{ENCODE}, or make a category of it by .astype('category')"
POINTS = "write numbers with a point and without commas, as pandas.read_csv(decimal=',') reads them"
CLASSES = "encode it as numbers, two classes as 0 and 1, or fit daskgp.GPClassifier to labels"
ORDERED = "give the codes of its levels, .cat.codes, and NaN where it is missing"
DAYS = "turn them into numbers, such as days since the first"


def _of_frame(values: Any) -> np.ndarray:
    """Return the numbers of a data frame or series; InputError names a column without any."""
    several = hasattr(values, "columns")  # a series is a target
    for name, column in values.items() if several else [(values.name, values)]:
        own = column.dtype, column.to_numpy
        refuse_column(_called(name, several), *own, _how(column.dtype, several))
    array = np.asarray(values)
    if array.dtype.kind != "O":
        return array
    converted: np.ndarray = values.to_numpy(np.float64, na_value=np.nan)  # of nullable types
    return converted


def _called(name: Any, several: bool) -> str:
    """Return what messages call a column of a data frame, or a series, which may have no name."""
    return "unnamed column" if name is None and not several else f"column {str(name)!r}"


def _how(dtype: Any, several: bool) -> str:
    """Return what to do about a column of a data frame, or a series, that holds no numbers."""
    if several:
        return OF_FRAME
    return ORDERED if getattr(dtype, "ordered", False) else CLASSES


@dataclass(frozen=True)
class Repeated:
    """One number for each row, read like an array (n,)."""

    value: float
    shape: tuple[int]
    ndim: ClassVar[int] = 1
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    @property
    def nbytes(self) -> int:
        """Bytes of the array that is read."""
        return self.shape[0] * self.dtype.itemsize

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return part of the array."""
        return np.array(np.broadcast_to(self.value, self.shape)[key])


def has_columns(X: Any) -> bool:
    """Return whether X is a data frame or a table of Arrow, whose columns have types."""
    return hasattr(X, "columns") and getattr(X, "ndim", 2) == 2


def timed(X: Any) -> Any:
    """Return a data frame with columns of times as days since 1970; all else as it is."""
    names = _times_in(X)
    for name in names:
        if [*getattr(X, "column_names", X.columns)].count(name) > 1:
            raise InputError(f"X has several columns {str(name)!r}: give each a name of its own")
    if names and hasattr(X, "column_names"):
        X = X.to_pandas()
    if not names or not all(isinstance(name, str) for name in X.columns):
        return X
    return X.assign(**{name: _days(X[name]) for name in names})


def units_of_frame(X: Any) -> tuple[str, ...]:
    """Return the units of the columns of a data frame that are times; empty for all others."""
    times, names = _times_in(X), getattr(X, "column_names", getattr(X, "columns", ()))
    return tuple(feature_units.DAYS * (name in times) for name in names)


def numbers_of(X: Any, j: int) -> np.ndarray | None:
    """Return a column of numbers in memory, times as days, the first ones of a Zarr array.

    None for all else.
    """
    if checks.index_of(X) is not None:
        X, j = timed(X.iloc[:, j : j + 1]).to_numpy(), 0
    X = behind(X)
    if not isinstance(X, np.ndarray | zarr.Array) or X.ndim != 2 or j >= X.shape[1]:
        return None
    if X.dtype.kind not in "iuf":
        return None
    return np.asarray(X[: X.chunks[0], j] if isinstance(X, zarr.Array) else X[:, j])


def refuse_other_order(X: Any, **beside: Any) -> None:
    """Raise InputError for objects of pandas or Dask with the index of X in another order.

    Rows are paired by their order; objects with other indexes do not say that they should not be.
    """
    checks.refuse_other_order(X, **beside)
    for name, given, own, of_X in _unlike(X, beside):
        both = own.index, of_X.index
        if own.limit is not None and all(index.is_monotonic_increasing for index in both):
            continue  # labels that are not drawn differ
        if both[0].isin(both[1]).all() and both[1].isin(both[0]).all():
            row = _first_apart(own, of_X)
            seen, wanted = (labels.label_at(one, row) for one in (given, X))
            again = f"{name}{'.compute()' * labels.is_lazy(given)}.reindex(X.index)"
            if labels.is_lazy(X):
                again = f"both as columns of X.join({name})"
            remedies = [again] * of_X.index.is_unique + [_plain(name, given)]
            raise checks.other_order(name, "X", (row, seen, wanted), remedies)


def warn_of_moved(X: Any, **beside: Any) -> None:
    """Warn of objects of pandas or Dask whose rows are numbered as those of X, but moved by some.

    So it is where rows were left out of one of them before it was numbered anew.  Numbers that
    count down are warned of as well, and other numbers, times or texts that are mostly those of X,
    but in other rows.
    """
    for name, given, own, of_X in _unlike(X, beside):
        ends, ends_of_X = own.ends, of_X.ends
        if ends is not None and ends_of_X is not None:
            new = ends == (0, own.n - 1) and ends_of_X[0] > ends_of_X[1]
            if new or abs(min(ends) - min(ends_of_X)) >= own.n:
                continue
            logger.warning(
                "rows of %s are numbered from %s to %s and those of X from %s to %s, but "
                "rows are paired by order: give both with the same numbers, or %s if they "
                "belong together as they are",
                *(name, *ends, *ends_of_X, _plain(name, given)),
            )
        elif own.names_rows and of_X.names_rows:
            at = of_X.index.get_indexer(own.index)
            shared = at >= 0
            moved = np.flatnonzero(shared & (of_X.rows[at] != own.rows))
            if moved.size and 2 * np.count_nonzero(shared) > len(at):
                row = int(own.rows[moved[0]])
                logger.warning(
                    "%s has %s%d labels of the index of X in other rows, first %s where X "
                    "has %s (row %d), but rows are paired by order: give both in the same "
                    "order, or %s if they belong together as they are",
                    *(name, "" if own.limit is None else "about "),
                    round(moved.size * own.n / len(own.rows)),
                    *(own.index[moved[0]], labels.label_at(X, row), row + 1, _plain(name, given)),
                )


def _unlike(X: Any, beside: Mapping[str, Any]) -> Iterator[tuple[str, Any, Labels, Labels]]:
    """Yield names of objects that have as many rows as X, the objects, and their labels and X's.

    Those with the same labels are left out, and labels that partitions of other lengths repeat,
    as those of several files do that number their own rows.
    """
    others = {name: given for name, given in beside.items() if hasattr(given, "loc")}
    of_X = labels.labels_of(X) if others and hasattr(X, "loc") else None
    for name, given in others.items():
        own = None if of_X is None else labels.labels_of(given)
        if of_X is None or own is None or own.n != of_X.n:
            continue
        one, other = labels.paired(own, of_X)
        several = own.lengths != of_X.lengths or one.limit is not None
        repeats = not (one.index.is_unique and other.index.is_unique)
        if not one.equals(other) and not (several and repeats):
            yield name, given, one, other


def _first_apart(own: Labels, of_X: Labels) -> int:
    """Return the first row, among those looked at, that has another label than in X."""
    if own.limit is None:
        pairs = enumerate(zip(own.index, of_X.index, strict=True))
        return next(row for row, pair in pairs if len({*pair}) > 1)
    at = of_X.index.get_indexer(own.index)
    return int(own.rows[np.argmax(of_X.rows[at] != own.rows)])


def _plain(name: str, given: Any) -> str:
    """Return how an object of pandas or Dask is given without its index."""
    return f"{name}.to_dask_array(lengths=True)" if labels.is_lazy(given) else f"{name}.to_numpy()"


def _times_in(X: Any) -> list[Any]:
    """Return the names of columns of times of a data frame of pandas or Dask or an Arrow table."""
    if hasattr(X, "column_names"):
        X = X.schema.empty_table().to_pandas()
    if not hasattr(X, "assign") or not hasattr(X, "dtypes"):
        return []
    return [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "") == "M"]


def _days(column: Any) -> Any:
    if hasattr(column, "map_partitions"):
        return column.map_partitions(_days, meta=(column.name, "f8"))
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    times = column.to_numpy()  # in their own unit: dates far away do not fit nanoseconds
    if times.dtype.kind == "O":  # dates of Arrow
        times = times.astype("M8[D]")
    days = (times - np.datetime64(0, "s")) / np.timedelta64(1, "D")
    return type(column)(days, index=column.index, name=column.name)


def lazily(x: Any) -> Any:
    """Return a dask array of a data frame or series of Dask, whose lengths are computed."""
    if not hasattr(x, "to_dask_array"):
        refuse_sparse(x)
        return x
    types = list(x.dtypes.items()) if x.ndim == 2 else [(x.name, x.dtype)]
    for name, dtype in types:
        several = x.ndim == 2
        refuse_column(_called(name, several), dtype, tuple, _how(dtype, several))
    known = labels.labels_of(x)
    if not all(isinstance(dtype, np.dtype) for _, dtype in types):  # of those with missing values
        x = x.astype(np.float64)
    array = x.values
    if known is None or len(known.lengths) != array.numblocks[0]:  # of partitions read together
        return array.compute_chunk_sizes()
    chunks = known.lengths, *array.chunks[1:]
    return da.Array(array.dask, array.name, chunks, meta=array._meta)


def refuse_column(what: str, dtype: Any, values: Callable[[], Any], remedy: str = ENCODE) -> None:
    """Raise InputError unless a type is numeric, saying what the values are instead."""
    kind = getattr(dtype, "kind", "O")
    if kind in "fiubc":
        return
    first = _first(values()) if kind not in "mM" else datetime.date.min
    other = ", or into a category by .astype('category')" * (remedy == OF_FRAME)
    found = _remedy(first, remedy, f"turn it into numbers by .astype(float){other}")
    if isinstance(first, datetime.date):
        make = "make times of it, as pandas.to_datetime(..., utc=True) does"
        how = make if kind == "O" and remedy in (ENCODE, OF_FRAME) else found
        raise InputError(f"{what} holds dates or times, but numbers are needed: {how}")
    if isinstance(first, str):
        shown = first if len(first) <= SHOWN else f"{first[:SHOWN]}..."
        raise InputError(f"{what} holds text such as {shown!r}, but numbers are needed: {found}")
    raise InputError(f"{what} has type {dtype}, but numbers are needed: {found}")


def _remedy(first: Any, remedy: str, cast: str) -> str:
    """Return what to do about a value that is no number, unless ``cast`` makes one of it."""
    if isinstance(first, datetime.date):
        return DAYS
    if isinstance(first, str) and re.match(DATE, first):
        return f"make times of it, as pandas.to_datetime does; else {remedy}"
    if isinstance(first, str) and re.fullmatch(COMMAS, first.strip()):
        return POINTS
    return cast if _reads_as_number(first) else remedy


DATE = r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]|$)"
"""Beginning of a text that is a date in some order."""
COMMAS = r"[-+]?\d+(,\d+)+(\.\d+)?"
"""A number with a decimal comma, or with commas between thousands."""


def _first(values: Any) -> Any:
    """Return the first value that is neither a number nor missing, or else the first number."""
    number = None
    for value in np.asarray(values, object).ravel():
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if not _reads_as_number(value):
            if isinstance(value, str) or not _is_missing(value):
                return value
        elif number is None and not _is_missing(value):
            number = value
    return number


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither
        return True


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def check_kind(name: str, array: Any) -> None:
    """Raise InputError unless an array holds numbers."""
    kind = np.dtype(array.dtype).kind
    if kind == "c":
        raise InputError(
            f"Complex data not supported: {name} has type {array.dtype}, real numbers are needed"
        )
    if kind not in "fiub":
        first = _first(array) if isinstance(array, np.ndarray) and kind not in "mM" else None
        words = {"m": DAYS, "M": DAYS}.get(kind, CLASSES if name == "y" else ENCODE)
        cast = f"give {name}.astype(float)"
        remedy = cast if kind == "O" and first is None else _remedy(first, words, cast)
        holds = f" and holds {checks.shown(first)}" if isinstance(first, str) else ""
        raise InputError(f"{name} has type {array.dtype}{holds}, but numbers are needed: {remedy}")


def check_table(X: Any) -> None:
    """Raise InputError unless X is a table (rows, features) of numbers."""
    check_kind("X", X)
    if X.ndim > 2:
        raise InputError(
            f"X has {X.ndim} dimensions, 2 are needed (rows, features): make rows of the first of "
            "them by X.reshape(len(X), -1), or give an xarray object for a grid"
        )
    if X.ndim != 2:
        raise InputError(
            f"X has {X.ndim} dimensions, 2 are needed (rows, features). Reshape your data: "
            "X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row"
        )
    if X.shape[1] == 0:
        raise InputError(
            f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required: add a column"
        )


def read(array: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    """Read rows of a NumPy or Zarr array, or of one of its planes, inside a task.

    Raises
    ------
    RunError
        If the store still cannot be read after several attempts.
    StoreError
        If the stored data cannot be decoded.
    """
    return _read(array, rows, rows)


def all_of(array: Any) -> np.ndarray:
    """Read all rows of a NumPy or Zarr array; errors as for ``read``."""
    return read(array, slice(0, int(array.shape[0])))


def read_part(array: zarr.Array[Any], key: Any) -> np.ndarray:
    """Read any part of a Zarr array, as tasks of a lazy one ask for it; errors as for ``read``."""
    return _read(array, key, _rows_in(key, array.shape[0]))


def _rows_in(key: Any, n: int) -> slice:
    """Return the rows of an array of n rows from the first to the last that a key asks for."""
    first = key[0] if isinstance(key, tuple) and key else key
    if isinstance(first, slice):
        span = range(n)[first]
        low, high = sorted((span[0], span[-1])) if span else (0, -1)
    else:
        rows = np.arange(n)[first]
        low, high = (int(rows.min()), int(rows.max())) if rows.size else (0, -1)
    return slice(low, high + 1)


def _read(array: Any, key: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    if isinstance(array, np.ndarray | Repeated):
        return np.asarray(array[key])
    try:
        with _few_at_a_time:
            return _slice(array, key, rows)
    except OSError as error:
        raise RunError(
            f"{_what(array, rows)} cannot be read: {groups.first_line(error)}"
        ) from error
    except Exception as error:  # a damaged chunk fails in the codec, each codec with its own type
        if not isinstance(array, zarr.Array) or isinstance(error, MemoryError | IndexError):
            raise
        raise _damaged(array, rows, error) from error


def _slice(array: Any, key: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    """Read what a key asks for among some rows, again after errors that may pass."""
    attempt = 1
    while True:
        try:
            return np.asarray(array[key])
        except OSError as error:
            if isinstance(error, LASTING) or attempt == ATTEMPTS:
                raise
            logger.warning("%s: %s, read again", _what(array, rows), groups.first_line(error))
        time.sleep(PAUSE * (attempt + random.random()))  # other tasks do not all come at once
        attempt += 1


def _what(array: Any, rows: slice | tuple[int, slice]) -> str:
    span = rows[1] if isinstance(rows, tuple) else rows
    where = array.store_path if isinstance(array, zarr.Array) else "of the input"
    return f"array {where}, rows {span.start} to {span.stop - 1}"


def _damaged(
    array: zarr.Array[Any], rows: slice | tuple[int, slice], error: Exception
) -> StoreError:
    """Return the error of the first damaged chunk among some rows."""
    span = rows[1] if isinstance(rows, tuple) else rows
    step = groups.written_together(array)[isinstance(rows, tuple)]
    for start in range(span.start - span.start % step, span.stop, step):
        piece = slice(max(start, span.start), min(start + step, span.stop))
        part = (rows[0], piece) if isinstance(rows, tuple) else piece
        try:
            np.asarray(array[part])
        except Exception as found:  # noqa: BLE001 - it is what is returned
            error, rows = found, part
            break
    reason = groups.first_line(error)
    return StoreError(
        f"{_what(array, rows)} cannot be read: damaged chunk: {reason}: convert again"
    )


def read_held(array: zarr.Array[Any], rows: slice, key: tuple[str, str]) -> np.ndarray:
    """Read rows of a Zarr array that never changes, by way of its cached decoded chunks.

    Without the cache, each small slice of a chunk would pay for all of it.  ``key`` tells the
    array from others.
    """
    step = groups.row_step(array)
    parts = []
    for i in range(rows.start // step, -(-rows.stop // step)):
        whole = _chunk(array, (*key, i), slice(i * step, min((i + 1) * step, array.shape[0])))
        parts.append(whole[max(rows.start - i * step, 0) : rows.stop - i * step])
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [read(array, rows)])


def _chunk(array: zarr.Array[Any], key: tuple[str, str, int], rows: slice) -> np.ndarray:
    chunks = _held()
    try:
        values: np.ndarray = chunks[key]
    except KeyError:
        values = read(array, rows)
        values.flags.writeable = False
        if values.nbytes <= chunks.n:
            chunks[key] = values
    return values


@cache
def _held() -> Any:
    return zict.LRU(HELD_BYTES, {}, weight=lambda key, value: value.nbytes)


in_children(_held.cache_clear)


class Source:
    """A Zarr array as the tasks of a Dask array read it."""

    array: zarr.Array[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    ndim: int

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.array, self.shape, self.dtype = array, array.shape, np.dtype(array.dtype)
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        return read_part(self.array, key)


def from_zarr(array: zarr.Array[Any], chunks: Any = None, name: str | None = None) -> da.Array:
    """Return a Dask array of a Zarr array, in its chunks and with the name that Dask gives it.

    Where there are shards, they take the place of chunks: results that are written to an array
    with the same ones are then written by one task each.  ``chunks`` and ``name`` replace these.
    """
    plain = da.from_zarr(array, chunks=chunks or array.shards, name=name)
    made: da.Array = da.from_array(
        Source(array), chunks=plain.chunks, name=plain.name, meta=plain._meta
    )
    return made


def behind(x: Any) -> Any:
    """Return the Zarr array that a dask array reads whole and unchanged, else the object itself."""
    if not isinstance(x, da.Array):
        return x
    name, layers = f"original-{x.name}", x.dask.layers.values()
    # a layer that has not written its tasks out would do so to tell whether it has one
    written = (layer for layer in layers if layer.is_materialized() and name in layer)
    source = next((layer[name] for layer in written), None)
    array = source.array if isinstance(source, Source) else source
    if isinstance(array, zarr.Array) and array.shape == x.shape and array.dtype == x.dtype:
        return array
    return x


def plainly(x: da.Array) -> da.Array:
    """Return a dask array; that of a Zarr array, by the same name, with chunks read as here."""
    array = behind(x)
    return from_zarr(array, x.chunks, x.name) if isinstance(array, zarr.Array) else x
