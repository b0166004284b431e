"""Regions that maps are wanted in: fields of booleans, and polygons of GeoJSON files."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from daskgp import data
from daskgp.checks import shown
from daskgp.data import gridded
from daskgp.data.polygons import Polygons, geojson_of, polygons_in
from daskgp.errors import InputError
from daskgp.maps.rows import along, check_axes, turned

logger: logging.Logger = logging.getLogger("daskgp")

Names: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """The places where a field of booleans is true, of the value that is nearest."""

    wanted: xr.DataArray

    def at(self, places: dict[Hashable, Any]) -> xr.DataArray:
        """Return whether places are inside, by the coordinates along each dimension."""
        check_axes("mask", self.wanted, places)
        places = {d: turned(d, self.wanted.indexes[d], own, 0.5) for d, own in places.items()}
        there = xr.DataArray(True)
        for dim in self.dims:
            axis = np.sort(self.wanted[dim].values)
            low, high = axis[0], axis[-1]
            if len(axis) > 1:
                low, high = low - (axis[1] - low) / 2, high + (high - axis[-2]) / 2
            there = there & (places[dim] >= low) & (places[dim] <= high)
        known = {dim: own.fillna(self.wanted[dim][0]) for dim, own in places.items()}
        found = self.wanted.sortby([*self.dims]).sel(known, method="nearest")
        found = found.reset_coords(drop=True).drop_vars([*self.dims], errors="ignore")
        return found & there.drop_vars([*there.coords])

    @property
    def dims(self) -> tuple[Hashable, ...]:
        """Features that say where a place is."""
        return self.wanted.dims


@dataclass(frozen=True)
class Inside:
    """The inside of polygons."""

    polygons: Polygons

    def at(self, places: dict[Hashable, Any]) -> xr.DataArray:
        """Return whether places are inside, by their coordinates across and up."""
        return self.polygons.among(*(places[dim] for dim in self.dims))

    @property
    def dims(self) -> tuple[Hashable, ...]:
        """Features that say where a place is."""
        return self.polygons.features


@dataclass(frozen=True)
class Outside(Inside):
    """The outside of polygons, such as those of land that are barriers."""

    def at(self, places: dict[Hashable, Any]) -> xr.DataArray:
        """Return whether places are outside, by their coordinates across and up."""
        return ~super().at(places)


@dataclass(frozen=True)
class Region:
    """A region, at rows of a source and cells of a map."""

    shape: Field | Inside
    what: str = "mask"

    def rows(self, source: Any, target: str) -> Any:
        """Return the source without the targets of rows outside."""
        own = self.shape.at({dim: along(source, dim) for dim in self.shape.dims})
        if hasattr(source, "iloc"):
            kept = source[own.to_numpy()]
        else:
            kept = source.assign({target: source[target].where(own)})
        values = along(source, target)
        known = values.notnull() if values.dtype.kind in "fM" else xr.ones_like(values, bool)
        total, left_out = int(known.sum()), int((known & ~own).sum())
        if 2 * left_out > total:
            logger.warning("%s leaves out %d of %d values", self.what, left_out, total)
        if not own.any():
            raise InputError(
                f"{self.what} leaves out all rows of the source: give one in the coordinates of "
                "the rows"
            )
        return kept

    def cells(self, grid: xr.Dataset) -> xr.DataArray:
        """Return whether the cells of a grid are inside."""
        return self.shape.at({dim: grid[dim] for dim in self.shape.dims})


def of(mask: Any, grid: xr.Dataset, features: Names) -> Region:
    """Return the region of a mask.

    Parameters
    ----------
    mask : DataArray or str
        Field of booleans, the name of a variable of the grid, the path of a GeoJSON file, or
        polygons.
    grid : Dataset
    features : tuple of str
    """
    if isinstance(mask, str) and mask in grid.variables:
        mask = grid[mask]
    if isinstance(mask, str):
        if not data.exists(mask):
            raise InputError(
                f"mask {mask!r} is neither a variable of the grid nor a file: check its name"
            )
        return Region(Inside(polygons_in(mask, features)))
    if geojson_of(mask) is not None:
        return Region(Inside(polygons_in(mask, features)))
    if not isinstance(mask, xr.DataArray):
        raise InputError(
            f"mask is {shown(mask)}: give a DataArray of booleans, the name of a variable of the "
            "grid, the path of a GeoJSON file, or polygons of shapely or geopandas"
        )
    if mask.dtype.kind == "f":  # of files, in which NaN is outside
        gridded.refuse_float_mask(mask, "the grid")
        mask = mask.notnull() & ((mask != 0) | (not gridded.masks_zeros(mask)))
    if mask.dtype.kind not in "bui":
        raise InputError(
            f"mask holds {mask.dtype}: give booleans, such as mask.notnull() or mask > 0"
        )
    other = [str(dim) for dim in mask.dims if dim not in features or dim not in mask.coords]
    if other:
        raise InputError(
            f"mask has the dimension {other[0]!r}, which is not a feature with coordinates: give "
            "it "
            f"over some of {', '.join(features)}"
        )
    return Region(Field(mask.astype(bool)))


def beside(barriers: Any, features: Names, geographic: Any) -> Region:
    """Return the region that is not inside of barriers; both settings are those of a model."""
    pair = tuple(geographic) if isinstance(geographic, list | tuple) else ()
    over = (str(pair[0]), str(pair[1])) if len(pair) == 2 and {*pair} <= {*features} else None
    return Region(Outside(polygons_in(barriers, features, "barriers", over)), "barriers")
