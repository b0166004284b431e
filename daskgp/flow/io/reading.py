"""How tasks read arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import zarr

from daskgp.flow.held import Held

CONCURRENCY = 4
"""Chunks that Zarr fetches and decodes at a time for one task; other tasks work beside it."""


def _fetch_few() -> Callable[[], None]:
    name = "async.concurrency"
    fewer = zarr.config.set({name: min(CONCURRENCY, int(zarr.config.get(name) or CONCURRENCY))})
    return lambda: fewer.__exit__(None, None, None)


_few_at_a_time = Held(_fetch_few)


def unmasked(values: Any) -> np.ndarray:
    """A NumPy array; what a masked array masks is missing, NaN."""
    if isinstance(values, np.ma.MaskedArray):
        dtype = np.result_type(values.dtype, np.float32)
        return np.where(np.ma.getmaskarray(values), np.nan, values.data).astype(dtype)
    return np.asarray(values)


def read(array: Any, rows: slice | tuple[int, slice]) -> np.ndarray:
    """Rows of a NumPy or Zarr array, or of one of its planes, inside a task."""
    with _few_at_a_time:
        return np.asarray(array[rows])
