"""Kinds of rows that users give, and of what comes back at them, as type checkers know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

import dask.array as da
import numpy as np
import xarray as xr
import zarr
from typing_extensions import TypeVar

DataArray: TypeAlias = xr.DataArray
Dataset: TypeAlias = xr.Dataset
DataTree: TypeAlias = xr.DataTree
if TYPE_CHECKING:
    Stored: TypeAlias = zarr.Array[Any]
else:  # which has no parameters in earlier versions
    Stored = zarr.Array

Kind = TypeVar("Kind", np.ndarray, da.Array, xr.DataArray, xr.DataTree, default=np.ndarray)
"""Kind of what comes back: that of the rows, an ndarray for those of a list."""
Elsewhere = TypeVar("Elsewhere", da.Array, xr.DataArray)
"""Kind of what comes back at rows that are not those of a table in memory."""
Of_co = TypeVar("Of_co", covariant=True)


class Frame(Protocol[Of_co]):
    """Data frame, at whose rows an ndarray comes back."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, which other arrays have none or any of."""

    def to_numpy(self) -> Of_co:
        """Return the values."""


class Fields(Protocol[Of_co]):
    """Dataset, on whose grid a DataArray comes back."""

    def to_dataarray(self) -> Of_co:
        """Return the variables as one array."""


Places: TypeAlias = Kind | Frame[Kind] | Fields[Kind] | Sequence[Any]
"""Rows that tell the kind of what comes back; at those of a Zarr array it is a dask array."""
InMemory: TypeAlias = np.ndarray | Frame[np.ndarray] | Sequence[Any]


class Columns(TypedDict, total=False):
    """Columns that a likelihood takes of each new observation."""

    trials: Any
    exposure: Any
    offset: Any


class OfRows(Columns, total=False):
    """Columns that ``predict`` takes of each row besides."""

    y_variance: Any


class OfTraining(OfRows, total=False):
    """Columns that rows of a fit have besides."""

    sample_weight: Any
    lower: Any
    upper: Any
