"""Dask arrays of Zarr arrays, whose chunks are read as all rows are: see `reading`.

Whoever computes such an array gets the same one-line error for a damaged chunk.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskgp.data import reading


class Source:
    """A Zarr array as the tasks of a Dask array read it."""

    def __init__(self, array: zarr.Array) -> None:
        self.array, self.shape, self.dtype = array, array.shape, np.dtype(array.dtype)
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        return reading.read_part(self.array, key)


def from_zarr(array: zarr.Array, chunks: Any = None, name: str | None = None) -> da.Array:
    """Return a Dask array of a Zarr array, in its chunks and with the name that Dask gives it.

    ``chunks`` and ``name`` replace these.
    """
    plain = da.from_zarr(array, chunks=chunks, name=name)
    made: da.Array = da.from_array(
        Source(array), chunks=plain.chunks, name=plain.name, meta=plain._meta
    )
    return made


def behind(x: Any) -> Any:
    """Return the Zarr array that a dask array reads whole and unchanged, else the object itself."""
    if not isinstance(x, da.Array) or f"original-{x.name}" not in x.dask:
        return x
    source = x.dask[f"original-{x.name}"]
    array = source.array if isinstance(source, Source) else source
    if isinstance(array, zarr.Array) and array.shape == x.shape and array.dtype == x.dtype:
        return array
    return x


def plainly(x: da.Array) -> da.Array:
    """Return a dask array; that of a Zarr array, by the same name, with chunks read as here."""
    array = behind(x)
    return from_zarr(array, x.chunks, x.name) if isinstance(array, zarr.Array) else x
