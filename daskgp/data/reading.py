"""Reads of arrays by tasks: again where a store fails for a moment, plainly where it is damaged."""

from __future__ import annotations

import datetime
import logging
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import zarr
import zict
from scipy.sparse import issparse
from tenacity import (
    Retrying,
    before_sleep_log,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from daskgp.errors import InputError, RunError, StoreError
from daskgp.runtime.process import Held

logger = logging.getLogger("daskgp")

HELD_BYTES = 64 << 20
"""Bytes of decoded chunks that a process holds for small slices of them."""
CONCURRENCY = 4
"""Chunks that Zarr fetches and decodes at a time for one task; other tasks work beside it."""


LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""Errors of the system that reading again does not mend."""
ATTEMPTS, PAUSE = 3, 0.1
"""Times that a slice is read where a store fails, and seconds before the second time."""


def _fetch_few() -> Callable[[], None]:
    name = "async.concurrency"
    fewer = zarr.config.set({name: min(CONCURRENCY, int(zarr.config.get(name) or CONCURRENCY))})
    return lambda: fewer.__exit__(None, None, None)


_few_at_a_time = Held(_fetch_few)


SHOWN = 20
"""Characters of a text that an error shows."""


def unmasked(values: Any) -> np.ndarray:
    """A NumPy array; what a masked array masks is missing, NaN."""
    if issparse(values):
        raise InputError("a sparse matrix is not supported: give a dense array, X.toarray()")
    if isinstance(values, str | os.PathLike):
        raise InputError(
            f"{str(values)!r} is an address, rows are needed: X, y = daskgp.open_dataset(...)"
        )
    if hasattr(values, "iloc") and hasattr(values, "to_numpy"):
        return _of_frame(values)
    if isinstance(values, np.ma.MaskedArray):
        dtype = np.result_type(values.dtype, np.float32)
        return np.where(np.ma.getmaskarray(values), np.nan, values.data).astype(dtype)
    return np.asarray(values)


ENCODE = "leave the column out or encode it as numbers"
DAYS = "turn them into numbers, such as days since the first"


def _of_frame(values: Any) -> np.ndarray:
    """Values of a data frame or a series of numbers; InputError names a column that has none."""
    columns = values.items() if hasattr(values, "columns") else [(values.name, values)]
    for name, column in columns:
        refuse_column(f"column {str(name)!r}", column.dtype, column.to_numpy)
    found = np.asarray(values)
    if found.dtype.kind != "O":
        return found
    converted: np.ndarray = values.to_numpy(np.float64, na_value=np.nan)  # of nullable types
    return converted


def refuse_column(what: str, dtype: Any, values: Callable[[], Any], remedy: str = ENCODE) -> None:
    """Raise InputError unless a type is one of numbers, saying what is there instead."""
    kind = getattr(dtype, "kind", "O")
    if kind in "fiubc":
        return
    first = _first(values()) if kind not in "mM" else datetime.date.min
    calendar = getattr(first, "calendar", None)
    if isinstance(calendar, str):
        raise InputError(
            f"{what} holds dates of the calendar {calendar!r} (cftime), which are not read as "
            "times: convert_calendar('standard', use_cftime=False), or give days as numbers"
        )
    if isinstance(first, datetime.date):
        raise InputError(f"{what} holds dates or times, numbers are needed: {DAYS}")
    if isinstance(first, str):
        shown = first if len(first) <= SHOWN else f"{first[:SHOWN]}..."
        raise InputError(f"{what} holds text such as {shown!r}, numbers are needed: {remedy}")
    raise InputError(f"{what} has type {dtype}, numbers are needed: {remedy}")


def _first(values: Any) -> Any:
    """The first value that is not missing."""
    there = (v for v in np.asarray(values, object).ravel() if isinstance(v, str) or v == v)
    return next((v for v in there if v is not None), None)


def check_kind(name: str, array: Any) -> None:
    """Raise InputError unless an array holds numbers."""
    kind = np.dtype(array.dtype).kind
    if kind == "c":
        raise InputError(
            f"Complex data not supported: {name} has type {array.dtype}, real numbers are needed"
        )
    if kind not in "fiub":
        remedy = {"m": DAYS, "M": DAYS, "O": f"give {name}.astype(float)"}.get(kind, ENCODE)
        raise InputError(f"{name} has type {array.dtype}, numbers are needed: {remedy}")


def check_table(X: Any) -> None:
    """Raise InputError unless X is a table (rows, features) of numbers."""
    if X.ndim != 2:
        raise InputError(
            f"X has {X.ndim} dimensions, 2 are needed (rows, features). Reshape your data: "
            "X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row"
        )
    if X.shape[1] == 0:
        raise InputError(
            f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required: add a column"
        )
    check_kind("X", X)


def read(array: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    """Rows of a NumPy or Zarr array, or of one of its planes, inside a task.

    Raises
    ------
    RunError
        If the store cannot be read, again and again.
    StoreError
        If what is there cannot be decoded.
    """
    return _read(array, rows, rows)


def all_of(array: Any) -> np.ndarray:
    """All rows of a NumPy or Zarr array; errors as of ``read``."""
    return read(array, slice(0, int(array.shape[0])))


def read_part(array: zarr.Array, key: Any) -> np.ndarray:
    """Any part of a Zarr array, as tasks of a lazy array ask for it; errors as of ``read``."""
    return _read(array, key, _rows_in(key, array.shape[0]))


def _rows_in(key: Any, n: int) -> slice:
    """The rows of an array of n rows from the first to the last that a key asks for."""
    first = key[0] if isinstance(key, tuple) and key else key
    if isinstance(first, slice):
        found = range(n)[first]
        low, high = sorted((found[0], found[-1])) if found else (0, -1)
    else:
        rows = np.arange(n)[first]
        low, high = (int(rows.min()), int(rows.max())) if rows.size else (0, -1)
    return slice(low, high + 1)


def _read(array: Any, key: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    try:
        with _few_at_a_time:
            return _slice(array, key, rows)
    except OSError as error:
        raise RunError(f"{_what(array, rows)} cannot be read: {_reason(error)}") from error
    except Exception as error:  # a damaged chunk fails in the codec, each with its own type
        if not isinstance(array, zarr.Array) or isinstance(error, MemoryError | IndexError):
            raise
        raise _damaged(array, rows, error) from error


def _for_a_moment(error: BaseException) -> bool:
    return isinstance(error, OSError) and not isinstance(error, LASTING)


def _slice(array: Any, key: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    """What a key asks for, some of these rows, read again after errors that may pass.

    The library of retries comes in after an error only: the threading.local that each of its
    calls leaves behind can, as garbage, hang the profiler of a Dask worker on CPython 3.11.
    """
    try:
        return np.asarray(array[key])
    except OSError as error:
        if not _for_a_moment(error):
            raise
        logger.warning("%s: %s, read again", _what(array, rows), _reason(error))
    time.sleep(PAUSE)
    found: np.ndarray = Retrying(
        retry=retry_if_exception(_for_a_moment),
        stop=stop_after_attempt(ATTEMPTS - 1),
        wait=wait_exponential(multiplier=2 * PAUSE) + wait_random(0, PAUSE),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )(lambda: np.asarray(array[key]))
    return found


def _what(array: Any, rows: slice | tuple[int, slice]) -> str:
    span = rows[1] if isinstance(rows, tuple) else rows
    where = array.store_path if isinstance(array, zarr.Array) else "of the input"
    return f"array {where}, rows {span.start} to {span.stop - 1}"


def _damaged(array: zarr.Array, rows: slice | tuple[int, slice], error: Exception) -> StoreError:
    """The error of the first damaged chunk among some rows."""
    span = rows[1] if isinstance(rows, tuple) else rows
    step = int((array.shards or array.chunks)[isinstance(rows, tuple)])
    for start in range(span.start - span.start % step, span.stop, step):
        few = slice(max(start, span.start), min(start + step, span.stop))
        part = (rows[0], few) if isinstance(rows, tuple) else few
        try:
            np.asarray(array[part])
        except Exception as found:  # noqa: BLE001 - it is what is returned
            error, rows = found, part
            break
    return StoreError(
        f"{_what(array, rows)} cannot be read: damaged chunk: {_reason(error)}: convert again"
    )


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def read_held(array: zarr.Array, rows: slice, key: tuple[str, str]) -> np.ndarray:
    """Rows of a Zarr array that never changes, by way of its decoded chunks.

    Small slices of a chunk would each pay for all of it.  ``key`` tells the array from others.
    """
    step = int((array.shards or array.chunks)[0])
    found = []
    for i in range(rows.start // step, -(-rows.stop // step)):
        whole = _chunk(array, (*key, i), slice(i * step, min((i + 1) * step, array.shape[0])))
        found.append(whole[max(rows.start - i * step, 0) : rows.stop - i * step])
    return found[0] if len(found) == 1 else np.concatenate(found or [read(array, rows)])


def _chunk(array: zarr.Array, key: tuple[str, str, int], rows: slice) -> np.ndarray:
    held = _held()
    try:
        found: np.ndarray = held[key]
    except KeyError:
        found = read(array, rows)
        found.flags.writeable = False
        if found.nbytes <= held.n:
            held[key] = found
    return found


@cache
def _held() -> Any:
    return zict.LRU(HELD_BYTES, {}, weight=lambda key, value: value.nbytes)
