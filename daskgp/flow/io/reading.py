"""How tasks read arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import zarr
import zict
from scipy.sparse import issparse

from daskgp.errors import InputError
from daskgp.flow.held import Held

HELD_BYTES = 64 << 20
"""Bytes of decoded chunks that a process holds for small slices of them."""
CONCURRENCY = 4
"""Chunks that Zarr fetches and decodes at a time for one task; other tasks work beside it."""


def _fetch_few() -> Callable[[], None]:
    name = "async.concurrency"
    fewer = zarr.config.set({name: min(CONCURRENCY, int(zarr.config.get(name) or CONCURRENCY))})
    return lambda: fewer.__exit__(None, None, None)


_few_at_a_time = Held(_fetch_few)


def unmasked(values: Any) -> np.ndarray:
    """A NumPy array; what a masked array masks is missing, NaN."""
    if issparse(values):
        raise InputError("a sparse matrix is not supported: give a dense array, X.toarray()")
    if isinstance(values, np.ma.MaskedArray):
        dtype = np.result_type(values.dtype, np.float32)
        return np.where(np.ma.getmaskarray(values), np.nan, values.data).astype(dtype)
    return np.asarray(values)


def check_kind(name: str, array: Any) -> None:
    """Raise InputError unless an array holds numbers."""
    kind = np.dtype(array.dtype).kind
    if kind == "c":
        raise InputError(
            f"Complex data not supported: {name} has type {array.dtype}, real numbers are needed"
        )
    if kind not in "fiub":
        raise InputError(f"{name} has type {array.dtype}, numbers are needed")


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
    """Rows of a NumPy or Zarr array, or of one of its planes, inside a task."""
    with _few_at_a_time:
        return np.asarray(array[rows])


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
