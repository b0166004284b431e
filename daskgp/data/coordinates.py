"""Coordinates of a grid in a map, which grow with it; times in units that hold them exactly."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
import zarr

from daskgp.data import feature_units
from daskgp.data.gridded import Gridded
from daskgp.errors import StoreError

REMEDY = "remove them or choose another path"
"""Remedy for predictions that do not fit."""
COORDINATE_CELLS = 2**16
"""Values of a chunk of a coordinate, which does not depend on how many there are."""
SINCE = ("seconds", "nanoseconds")
"""Units of times since 1970, of which the first is taken that holds them exactly."""


def is_kept(coordinate: xr.DataArray) -> bool:
    """Return whether a coordinate is of a kind that a map can have."""
    return coordinate.dtype.kind in "fiubMmOUT"


def write_plain(group: zarr.Group, name: str, values: np.ndarray, dtype: Any) -> None:
    """Write a coordinate of a dimension that predictions add."""
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=values.shape,
        dtype=dtype,
        dimension_names=(name,),
        overwrite=True,
    )
    array[...] = values


def write(group: zarr.Group, grid: Gridded) -> None:
    """Write the coordinates of a grid, or those that it has now in place of fewer."""
    for name, coordinate in grid.grid.coords.items():
        if is_kept(coordinate):
            _write_one(group, str(name), coordinate)


def _write_one(group: zarr.Group, name: str, coordinate: xr.DataArray) -> None:
    variable = coordinate.variable
    side = max(1, round(COORDINATE_CELLS ** (1 / max(1, variable.ndim))))
    array = group.get(name)
    cuts = [range(0, n, side) for n in variable.shape]
    for corner in itertools.product(*cuts):
        region = tuple(slice(i, i + side) for i in corner)
        made = array.attrs.asdict() if isinstance(array, zarr.Array) else {}
        encoded = _encoded(name, variable[region], made)
        if not isinstance(array, zarr.Array):
            plain = (np.ndarray, np.generic)  # which JSON does not take
            said = {k: v.tolist() if isinstance(v, plain) else v for k, v in encoded.attrs.items()}
            array = group.create_array(
                name,
                shape=variable.shape,
                chunks=(side,) * variable.ndim,
                dtype=str if encoded.dtype.kind in "OUT" else encoded.dtype,
                dimension_names=tuple(map(str, variable.dims)),
                attributes=said,
                overwrite=True,
            )
        elif array.shape != variable.shape:
            array.resize(variable.shape)
        array[region] = encoded.values


def _encoded(name: str, variable: xr.Variable, made: Mapping[str, Any]) -> xr.Variable:
    """Return a coordinate as it is stored; times in units that hold them exactly."""
    values = variable.values
    if feature_units.calendar_of(values) is not None:
        return _encoded_dates(name, variable, made)
    if values.dtype.kind not in "mM":
        return xr.Variable(variable.dims, values, variable.attrs)
    since = " since 1970-01-01" if values.dtype.kind == "M" else ""
    units = [str(made["units"])] if "units" in made else [unit + since for unit in SINCE]
    for unit in units:
        how = {"units": unit, "dtype": "int64"}
        if values.dtype.kind == "M":
            how["calendar"] = "proleptic_gregorian"
        plain = xr.Variable(variable.dims, values, variable.attrs, how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a unit is too coarse, which is seen below
            encoded = xr.conventions.encode_cf_variable(plain, name=name)
        if encoded.attrs.get("units") == unit:
            return encoded
    raise _other_times(name, units[-1])


def _encoded_dates(name: str, variable: xr.Variable, made: Mapping[str, Any]) -> xr.Variable:
    """Return dates of cftime as they are stored, in their calendar."""
    calendar = feature_units.calendar_of(variable.values)
    cftime = feature_units.cftime_for(f"dates of {name!r}")
    dates = [f"{unit} since 1970-01-01" for unit in ("seconds", "microseconds")]
    units = [str(made["units"])] if "units" in made else dates
    for unit in units:
        numbers = np.asarray(cftime.date2num(variable.values, unit, calendar=calendar))
        if numbers.dtype.kind == "i":
            said = {**variable.attrs, "units": unit, "calendar": calendar}
            return xr.Variable(variable.dims, numbers.astype(np.int64), said)
    raise _other_times(name, units[-1])


def _other_times(name: str, unit: str) -> StoreError:
    return StoreError(
        f"coordinate {name!r} has times that are not whole {unit.split()[0]}, as those that "
        f"were predicted before are: {REMEDY}"
    )
