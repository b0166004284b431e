"""Rows of a source, held by name so that some can be left out or changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from daskgp.data import gridded
from daskgp.data.blocks import filling
from daskgp.data.convert import sources
from daskgp.data.convert.table import TIMES, Table, check_known
from daskgp.data.stores import remote
from daskgp.errors import InputError
from daskgp.estimators.base import GaussianProcess
from daskgp.fit.named import Named
from daskgp.fit.scratch import scratch_rows
from daskgp.models import fills
from daskgp.models.columns import KINDS, kind_of_name
from daskgp.runtime.executor import Executor

Names: TypeAlias = tuple[str, ...]

READ = 65_536
"""Rows of a source that are read at a time."""
MICROSECONDS = 86_400_000_000
"""In a day."""


def known_in(table: Table, targets: Sequence[str], source: Any) -> int:
    """Return how many rows of the table of a source have a target."""
    blocks = table.read(table.kinds((*targets,)), READ, sources.shown(source))
    return sum(int(np.isfinite(block[:, : len(targets)]).any(axis=1).sum()) for block in blocks)


def by_name(source: Any, names: Names) -> Any:
    """Return a source as a Dataset or a data frame of pandas, read where it is in files or lazy.

    Parameters
    ----------
    source : source of `convert`
    names : tuple of str
        Columns that are needed, the target last.
    """
    if isinstance(source, xr.Dataset):
        return source
    if hasattr(source, "iloc"):
        return source[[*names]].compute() if hasattr(source, "compute") else source
    with sources.open_table(source, names[-1:], names[:-1]) as table:
        check_known("column", names, table.columns, sources.shown(source))
        if table.gridded:
            return _grid(source, names)
        kinds = table.kinds(names)
        blocks = [*table.read(kinds, READ, sources.shown(source))]
    rows = np.concatenate(blocks) if blocks else np.empty((0, len(kinds)))
    columns = {
        name: ("row", _times(rows[:, j]) if kind == TIMES else rows[:, j])
        for j, (name, kind) in enumerate(kinds.items())
    }
    return xr.Dataset(columns).to_dataframe()


def _grid(source: Any, names: Names) -> xr.Dataset:
    """Return the grid in one file or group."""
    given = sources.addresses(source)
    if len(given) != 1 or remote.is_pattern(given[0]):
        raise InputError(
            "background and mask take a grid in one file, but the source is "
            f"{sources.shown(source)}: open several with xarray.open_mfdataset"
        )
    with gridded.readable(given[0]), gridded.open_grid(given[0], names) as opened:
        return opened[[*names]].load()


def _times(days: np.ndarray) -> np.ndarray:
    """Return the times (n,) of numbers of days since 1970."""
    known = np.isfinite(days)
    microseconds = np.round(np.where(known, days, 0.0) * MICROSECONDS).astype("timedelta64[us]")
    return np.where(known, np.datetime64(0, "us") + microseconds, np.datetime64("NaT"))


def along(source: Any, name: Hashable) -> xr.DataArray:
    """Return the values of a column, those of a data frame over the dimension ``row``."""
    if not hasattr(source, "iloc"):
        return source[name]
    column = source[name]
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return xr.DataArray(column.to_numpy(), dims="row")


def turned(dim: Hashable, axis: Any, places: xr.DataArray, beyond: float) -> xr.DataArray:
    """Return places along an axis, longitudes turned by 360 degrees to where the axis lies.

    Others, and longitudes that lie in it anyway, up to ``beyond`` steps past its ends, are as they
    are.
    """
    if kind_of_name(str(dim)) != KINDS[0] or axis.dtype.kind not in "iuf" or len(axis) < 2:
        return places
    low, high = float(axis.min()), float(axis.max())
    more = beyond * (high - low) / (len(axis) - 1)
    inside = (places >= low - more) & (places <= high + more)
    return places.where(inside, (places - low + more) % 360.0 + low - more)


def check_axes(what: str, field: xr.DataArray, places: Mapping[Hashable, xr.DataArray]) -> None:
    """Raise InputError for coordinates of a field that places cannot be found among."""
    for dim, own in places.items():
        axis = field.indexes[dim]
        if not len(axis):
            raise InputError(f"{what} has no values along {dim!r}: give one that covers the rows")
        if not axis.is_unique:
            raise InputError(f"{what} has a coordinate twice along {dim!r}: keep one of them")
        times = [one.dtype.kind in "Mm" for one in (axis, own)]
        if times[0] != times[1]:
            raise InputError(
                f"{what} has {'times' if times[0] else axis.dtype} along {dim!r} and the rows or "
                f"the grid have {'times' if times[1] else own.dtype}: give both as times, or both "
                "as numbers"
            )


def without_fills(values: np.ndarray, target: str, fill_values: Any) -> np.ndarray:
    """Return the values of a target, NaN where they are fill values by the setting of a model."""
    flat = np.asarray(values, np.float64).ravel()
    marked = filling.marked_targets(flat, (target,), (), fill_values, Executor(None))
    return np.reshape(marked, np.shape(values))


def fitted_places(source: Any, target: str, model: GaussianProcess) -> np.ndarray:
    """Return the features (n, d) of the rows that a model was fitted to, in its units."""
    posterior = model.solved_
    rows = Named(source, target, [*posterior.feature_names], fill_values=model.fill_values)
    rows = rows.like(posterior.columns, posterior.feature_units)
    with scratch_rows(None) as url, rows.converted(url, progress=False) as (X, y, _):
        whole = np.column_stack([np.asarray(X), np.asarray(y)])
    whole = fills.without(whole, posterior.fills)
    return whole[np.isfinite(whole).all(axis=1), :-1]
