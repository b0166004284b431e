"""Grids that cover the rows of a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from daskgp.data import axes, gridded, grids
from daskgp.data.convert import sources
from daskgp.data.convert.table import TIMES, add_ends, check_known, no_ends
from daskgp.data.feature_units import DAYS
from daskgp.errors import InputError
from daskgp.maps.rows import READ
from daskgp.models.columns import kind_of_name


def grid_over(
    source: Any,
    resolution: Mapping[str, float],
    extent: Mapping[str, Any],
    like: str | None = None,
) -> xr.Dataset:
    """Return a grid with steps and ends of axes, by default those that cover the rows of a source.

    Parameters
    ----------
    source : source of `convert`
    resolution, extent : mapping by feature
        Steps and ends, as for `GaussianProcess.make_grid`.
    like : str, optional
        Address of a grid with the axes of other features.

    Raises
    ------
    SettingError, InputError
        If a feature is unknown, or nothing says what its axis is.
    """
    named = tuple(dict.fromkeys((*resolution, *extent)))
    with sources.open_table(source, ()) as table:
        if like is not None:
            with gridded.readable(like), gridded.open_grid(like, table.columns) as opened:
                own = [str(dim) for dim in grids.dims_of(opened) if dim in table.columns]
            named = tuple(dict.fromkeys((*named, *own)))
        check_known("feature", named, table.columns, sources.shown(source))
        kinds, ends = table.kinds(named), no_ends(len(named))
        for block in table.read(kinds, READ, sources.shown(source)):
            add_ends(ends, block)
    missing = next((name for name in resolution if ends[0, named.index(name)] == np.inf), None)
    if missing is not None and missing not in extent:
        raise InputError(
            f"{sources.shown(source)} has no value of {missing!r}, so nothing says where the "
            f"grid lies: give rows, or its ends in extent (--extent {missing}=LOW:HIGH)"
        )
    ranges = dict(zip(named, map(tuple, ends.T.tolist()), strict=True))
    units = tuple(table.unit(name) or DAYS * (kinds[name] == TIMES) for name in named)
    by_kind = {kind_of_name(name): name for name in named}
    pair = tuple(by_kind[kind] for kind in ("longitude", "latitude") if kind in by_kind)
    sphere = pair if len(pair) == 2 else ()
    return axes.make(named, resolution, extent, ranges, like, units, sphere, table.reference)
