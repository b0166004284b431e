"""Regions that maps are wanted in: fields of booleans, and polygons of GeoJSON files."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import fsspec
import numpy as np
import xarray as xr

from daskgp.checks import shown
from daskgp.errors import InputError
from daskgp.models.columns import KINDS, kind_of_name

Names: TypeAlias = tuple[str, ...]
HOLD = {"Polygon": 0, "MultiPolygon": 1}
"""Geometries that have an inside, and how deep their polygons lie."""
ACROSS = ("x", "easting", "east", "eastings", "projection_x_coordinate")
UP = ("y", "northing", "north", "northings", "projection_y_coordinate")
"""Names of projected coordinates, across a map and up."""


@dataclass(frozen=True)
class Field:
    """Where a field of booleans is true: the nearest value counts, up to half a step away."""

    wanted: xr.DataArray

    def at(self, places: dict[Hashable, Any]) -> xr.DataArray:
        """Return whether places are inside, by the coordinates along each dimension."""
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
class Polygons:
    """The inside of polygons: where a ray crosses their rings an odd number of times."""

    rings: tuple[np.ndarray, ...]
    dims: tuple[Hashable, Hashable]

    def at(self, places: dict[Hashable, Any]) -> xr.DataArray:
        """Return whether places are inside, by their coordinates across and up."""
        x, y = xr.broadcast(*(places[dim] for dim in self.dims))
        found = inside(self.rings, np.ravel(x), np.ravel(y))
        if kind_of_name(str(self.dims[0])) == KINDS[0]:  # from -180 or from 0, to the same meridian
            for turn in (-360.0, 360.0):
                found |= inside(self.rings, np.ravel(x) + turn, np.ravel(y))
        return xr.DataArray(found.reshape(x.shape), dims=x.dims)


@dataclass(frozen=True)
class Region:
    """A region, at rows of a source and cells of a map."""

    shape: Field | Polygons

    def rows(self, source: Any, target: str) -> Any:
        """Return the source without the targets of rows outside."""
        if hasattr(source, "iloc"):
            places = {dim: xr.DataArray(source[dim], dims="row") for dim in self.shape.dims}
            own = self.shape.at(places)
            kept = source[own.to_numpy()]
        else:
            own = self.shape.at({dim: source[dim] for dim in self.shape.dims})
            kept = source.assign({target: source[target].where(own)})
        if not own.any():
            raise InputError(
                "mask leaves out all rows of the source: give one in the coordinates of the rows"
            )
        return kept

    def cells(self, maps: xr.DataArray) -> xr.DataArray:
        """Return whether the cells of a map are inside."""
        return self.shape.at({dim: maps[dim] for dim in self.shape.dims})


def of(mask: Any, grid: xr.Dataset, features: Names) -> Region:
    """Return the region of a mask.

    Parameters
    ----------
    mask : DataArray or str
        Field of booleans, the name of a variable of the grid, or the path of a GeoJSON file.
    grid : Dataset
    features : tuple of str
    """
    if isinstance(mask, str) and mask in grid.variables:
        mask = grid[mask]
    if isinstance(mask, str):
        return Region(Polygons(rings_of(mask), _across(features)))
    if not isinstance(mask, xr.DataArray):
        raise InputError(
            f"mask is {shown(mask)}: give a DataArray of booleans, the name of a variable of the "
            "grid, or the path of a GeoJSON file"
        )
    if mask.dtype.kind not in "bui":
        raise InputError(
            f"mask holds {mask.dtype}: give booleans, such as mask.notnull() or mask > 0"
        )
    other = [str(dim) for dim in mask.dims if dim not in features or dim not in mask.coords]
    if other:
        raise InputError(
            f"mask has the dimension {other[0]!r}, which is no feature with coordinates: give it "
            f"over some of {', '.join(features)}"
        )
    return Region(Field(mask.astype(bool)))


def _across(features: Names) -> tuple[str, str]:
    """Return the features across and up a map."""
    for pair in (
        [[one for one in features if kind_of_name(one) == kind] for kind in KINDS],
        [[one for one in features if one.lower() in names] for names in (ACROSS, UP)],
    ):
        if [len(own) for own in pair] == [1, 1]:
            return pair[0][0], pair[1][0]
    raise InputError(
        "mask is a file of polygons, and it is not clear which features they are over: name them "
        f"lon and lat, or x and y; they are {', '.join(features)}"
    )


def rings_of(path: str) -> tuple[np.ndarray, ...]:
    """Return the rings (k, 2) of the polygons in a GeoJSON file."""
    try:
        with fsspec.open(path, "rt", encoding="utf-8") as file:
            said = json.load(file)
    except FileNotFoundError:
        raise InputError(
            f"mask {path!r} is neither a variable of the grid nor a file: check its name"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: it is no GeoJSON ({error})") from None
    rings = tuple(_rings(said))
    if not rings or any(ring.ndim != 2 or ring.shape[1] < 2 or len(ring) < 4 for ring in rings):
        raise InputError(
            f"{path} has no polygon with an inside: give a GeoJSON file of Polygon or MultiPolygon "
            "geometries"
        )
    return tuple(ring[:, :2] for ring in rings)


def _rings(said: Any) -> Iterator[np.ndarray]:
    """Yield the rings in what a GeoJSON file says."""
    if not isinstance(said, dict):
        return
    for key in ("features", "geometries"):
        for one in said.get(key) or ():
            yield from _rings(one)
    yield from _rings(said.get("geometry"))
    if said.get("type") in HOLD:
        polygons = said["coordinates"] if HOLD[said["type"]] else [said["coordinates"]]
        for polygon in polygons:
            for ring in polygon:
                try:
                    yield np.asarray(ring, np.float64)
                except (TypeError, ValueError):
                    yield np.empty(0)


def inside(rings: tuple[np.ndarray, ...], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return whether points (n,) are inside of rings, those within others being holes.

    Examples
    --------
    >>> ring = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], float)
    >>> inside((ring,), np.array([1.0, 5.0]), np.array([1.0, 1.0]))
    array([ True, False])
    """
    order = np.argsort(y)  # an edge is crossed by rays between its ends alone
    x, y = x[order], y[order]
    crossed = np.zeros(len(x), bool)
    for ring in rings:
        ends = np.searchsorted(y, ring[:, 1])
        for (x0, y0), (x1, y1), i, j in zip(ring, ring[1:], ends, ends[1:], strict=False):
            own = slice(min(i, j), max(i, j))
            crossed[own] ^= x[own] < x0 + (x1 - x0) * (y[own] - y0) / ((y1 - y0) or 1.0)
    found = np.empty_like(crossed)
    found[order] = crossed
    return found
