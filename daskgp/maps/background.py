"""First guesses: fields that are subtracted from values before a fit, and added after."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from daskgp.checks import shown
from daskgp.data import grids
from daskgp.errors import InputError
from daskgp.maps.rows import in_memory

logger = logging.getLogger("daskgp")

Names: TypeAlias = tuple[str, ...]


class AtRows(NamedTuple):
    """Values of a background at the rows of a source, NaN outside of it."""

    values: Any

    def subtracted(self, source: Any, target: str) -> Any:
        """Return the source with the difference of its target from the background."""
        rest = source[target] - self.values
        known = int(np.isfinite(np.asarray(source[target], np.float64)).sum())
        left = int(np.isfinite(np.asarray(rest, np.float64)).sum())
        if not left:
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
    if not in_memory(source):
        raise InputError(
            f"background goes with rows in memory or xarray objects, and the source is "
            f"{shown(source)}: read it first, by pandas.read_csv or xarray.open_dataset"
        )
    if isinstance(background, str):
        for what, there in (("source", source), ("grid", grid)):
            if background not in there:
                raise InputError(
                    f"background is {background!r}, which the {what} has not: name a variable of "
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
            f"background has the dimension {other[0]!r}, which is no feature: select from it, the "
            f"features are {', '.join(features)}"
        )
    bare = grids.without_coordinates(background, background.dims)
    if bare:
        raise InputError(f"background has {grids.bare(bare)}")
    short = [str(dim) for dim in background.dims if background.sizes[dim] < 2]
    if short:
        raise InputError(
            f"background has {background.sizes[short[0]]} value along {short[0]!r}, between which "
            "nothing lies: give two or more, or select it, .isel("
            f"{short[0]}=0)"
        )
    ordered = background.sortby(list(background.dims))
    at_rows = {dim: _along(source, dim) for dim in ordered.dims}
    found = ordered.interp({**at_rows})
    rows = (
        found.to_numpy()
        if hasattr(source, "iloc")
        else found.drop_vars([name for name in found.coords if name not in source.coords])
    )
    cells = ordered.interp({dim: grid[dim] for dim in ordered.dims})
    return AtRows(rows), cells.drop_vars([name for name in cells.coords if name not in grid.coords])


def _along(source: Any, dim: Hashable) -> Any:
    """Return the places of rows along a dimension."""
    if hasattr(source, "iloc"):
        return xr.DataArray(source[dim].to_numpy(), dims="row")
    return source[dim]
