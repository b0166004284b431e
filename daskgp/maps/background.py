"""First guesses: fields that are subtracted from values before a fit, and added after."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from daskgp import data
from daskgp.checks import shown
from daskgp.data import feature_units, gridded, grids
from daskgp.errors import InputError
from daskgp.maps.rows import along, check_axes, turned, without_fills
from daskgp.models.columns import KINDS, kind_of_name

logger: logging.Logger = logging.getLogger("daskgp")

Names: TypeAlias = tuple[str, ...]

WHOLE = 1e-4
"""Share of a step within which a place is one of the field's own: coordinates may be rounded."""
EDGE = 0.01
"""Share of a step past an end of the field within which a place is at that end, likewise."""


class AtRows(NamedTuple):
    """Values of a background at the rows of a source, NaN outside of it."""

    values: Any

    def subtracted(self, source: Any, target: str, fill_values: Any) -> Any:
        """Return the source with the difference of its target from the background.

        Fill values of the target, by the setting of a model, are read as missing before.
        """
        measured = without_fills(source[target], target, fill_values)
        known = int(np.isfinite(measured).sum())
        given = source[target]
        rest = (measured if hasattr(source, "iloc") else given.copy(data=measured)) - self.values
        left = int(np.isfinite(np.asarray(rest, np.float64)).sum())
        if left:
            own, before = (
                (float(np.nanmin(one)), float(np.nanmax(one)))
                for one in (np.asarray(self.values, np.float64), measured)
            )
            feature_units.warn_of_other(target, own, before, "the background", "the rows")
        else:
            raise InputError(
                "background has no value at any row of the source: give one that covers the rows, "
                "in the same coordinates"
            )
        if left < known:
            logger.warning(
                "%d of %d values lie outside the background and are left out", known - left, known
            )
        if hasattr(source, "iloc"):
            return source.assign(**{target: rest})
        return source.assign({target: rest.assign_attrs(source[target].attrs)})


def named(background: Any) -> str:
    """Return what a map says of the background that was subtracted and added."""
    name = background.name if isinstance(background, xr.DataArray) else background
    return str(name or "a field without a name")


def opened(background: Any) -> Any:
    """Return the only variable of a grid in a file or group, and all that is no address of one."""
    if not isinstance(background, str) or not gridded.is_grid(background):
        return background
    if not data.exists(background):
        raise InputError(f"background {background} does not exist: check the path")
    with gridded.readable(background), gridded.open_grid(background) as grid:
        fields = [name for name in grid.data_vars if grid[name].ndim]
        if len(fields) != 1:
            raise InputError(
                f"background {background} has {len(fields)} variables, "
                f"{', '.join(map(str, fields))}: open it with xarray and give one of them"
            )
        return grid[fields[0]].load()


def check_unit(
    background: Any, grid: xr.Dataset, attributes: Mapping[str, Any], target: str
) -> None:
    """Raise InputError for a background that says another unit than a target."""
    field = grid.get(background) if isinstance(background, str) else background
    if not isinstance(field, xr.DataArray):
        return
    own, wanted = (feature_units.said_by(said) for said in (field.attrs, attributes))
    if own and wanted and not feature_units.alike(own, wanted):
        raise InputError(
            f"background is in {own} and {target!r} in {wanted}: convert one of them, and its "
            "attribute units"
        )


def of(
    background: Any, source: Any, grid: xr.Dataset, features: Names
) -> tuple[AtRows, xr.DataArray]:
    """Return the values of a background at the rows of a source and at the cells of a grid.

    Parameters
    ----------
    background : DataArray or str
        Field on a grid of some features, or a name that source and grid have.
    source : DataFrame or Dataset
    grid : Dataset
    features : tuple of str
    """
    if isinstance(background, str):
        for what, there in (("source", source), ("grid", grid)):
            if background not in there:
                raise InputError(
                    f"background is {background!r}, which the {what} does not have: name a "
                    "variable of "
                    "both, or give a field (DataArray)"
                )
        return AtRows(source[background]), grid[background]
    if not isinstance(background, xr.DataArray):
        raise InputError(
            f"background is {shown(background)}: give a DataArray on a grid of features, or the "
            "name of a variable"
        )
    other = [str(dim) for dim in background.dims if dim not in features]
    if other:
        raise InputError(
            f"background has the dimension {other[0]!r}, which is not a feature: select one "
            f"value of it; the features are {', '.join(features)}"
        )
    bare = grids.without_coordinates(background, background.dims)
    if bare:
        raise InputError(f"background has {grids.bare(bare)}")
    short = [str(dim) for dim in background.dims if background.sizes[dim] < 2]
    if short:
        raise InputError(
            f"background has {background.sizes[short[0]]} value along {short[0]!r}, which "
            f"cannot be interpolated: give two or more, or select it, .isel({short[0]}=0)"
        )
    ordered = _closed(background.sortby(list(background.dims)))
    at_rows, at_cells = dict[Any, Any](), dict[Any, Any]()
    for dim in ordered.dims:
        for places, own in ((at_rows, along(source, dim)), (at_cells, grid[dim])):
            check_axes("background", ordered, {dim: own})
            axis = ordered.indexes[dim]
            places[dim] = _at_ends(axis, turned(dim, axis, own, EDGE))
    found = _interpolated(ordered, at_rows)
    rows = (
        found.to_numpy()
        if hasattr(source, "iloc")
        else found.drop_vars([name for name in found.coords if name not in source.coords])
    )
    cells = _interpolated(ordered, at_cells)
    return AtRows(rows), cells.drop_vars([name for name in cells.coords if name not in grid.coords])


def _at_ends(axis: Any, places: xr.DataArray) -> xr.DataArray:
    """Return places along a rising axis, at its ends where they are past these by rounding."""
    if axis.dtype.kind not in "iuf":
        return places
    low, high = float(axis[0]), float(axis[-1])
    more = EDGE * (high - low) / (len(axis) - 1)
    within = (places >= low - more) & (places <= high + more)
    return places.where(~within, places.clip(low, high))


def _closed(field: xr.DataArray) -> xr.DataArray:
    """Return a field, with its first column once more where it goes all around the globe."""
    for dim in field.dims:
        axis = field.indexes[dim]
        if kind_of_name(str(dim)) != KINDS[0] or axis.dtype.kind not in "iuf" or len(axis) < 3:
            continue
        step = float(axis[-1] - axis[0]) / (len(axis) - 1)
        rounded = 4 * 360.0 * float(np.finfo(np.float32).eps)  # of axes in single precision
        if abs(float(axis[-1] - axis[0]) + step - 360.0) < WHOLE * step + rounded:
            first = field.isel({dim: [0]}).assign_coords({dim: [axis[0] + 360.0]})
            return xr.concat([field, first], dim)
    return field


def _interpolated(field: xr.DataArray, places: dict[Any, Any]) -> xr.DataArray:
    """Interpolate a field linearly between its values, of which those of no weight may be missing.

    A cell of its own, beside land that has no value, keeps its value: zero times NaN is NaN.
    """
    known = field.notnull()
    if field.chunks is None and bool(known.all()):
        return field.interp(places)
    weight = known.astype(np.float64).interp(places)
    return field.fillna(0).interp(places) / weight.where(weight > 1 - WHOLE)
