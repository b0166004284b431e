"""Several targets by their names: those of rows in the order of a model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from daskgp.data import grids, reading
from daskgp.data.rows import Y_VARIANCE, beside_in_store, column_names, is_zarr
from daskgp.errors import InputError

Order = Sequence[int | None]
"""Columns of y, None for a target that is not among them."""


def by_name(
    y: Any, beside: Mapping[str, Any], names: Sequence[str], some: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Return targets y in the order of ``names``, and what is beside them in the same order.

    Those of a data frame, a labelled table or a store tell their names; arrays, a single target and
    targets without names are left as they are.

    Parameters
    ----------
    y : array-like
        Targets of any kind that ``fit`` takes.
    beside : mapping
        What rows have beside y, by its name in a store.
    names : sequence of str (p,)
        Targets of a model.
    some : bool
        Whether some of the targets are enough, of which others are missing; else all are needed,
        and those of a store in their order.

    Raises
    ------
    InputError
        If they are other targets.
    """
    own = _names(y) if len(names) > 1 else None
    known = {*_unnamed(len(names))} in ({*names}, {*(own or ())})
    if own is None or own == tuple(names) or (known and {*own} != {*names}):
        return y, dict(beside)
    of_store = not (hasattr(y, "iloc") or hasattr(y, "columns") or grids.is_xarray(y))
    same = len(own) == len(names) and {*own} == {*names}
    part = len(own) == len({*own}) and {*own} < {*names}
    if not (same or (some and part and _can_be_padded(y))):
        wanted = "some of these" if some else "these"
        raise InputError(
            f"y has the targets {', '.join(own)}, but the model was fitted with "
            f"{', '.join(names)}: give {wanted}"
        )
    if of_store and not some:
        raise InputError(
            f"y has the targets {', '.join(own)} in another order than the model, which was fitted "
            f"with {', '.join(names)}: convert the source with --target {','.join(names)}"
        )
    order = [own.index(name) if name in own else None for name in names]
    stored = beside_in_store(y) if of_store else {}
    found = {**stored, **{name: a for name, a in beside.items() if a is not None}}
    if found.get(Y_VARIANCE, False) is not False and np.ndim(found[Y_VARIANCE]) == 2:
        errors = found[Y_VARIANCE]
        if errors.shape[1] == len(own):
            found[Y_VARIANCE] = _ordered(errors, order, ())
    return _ordered(y, order, names), {**beside, **found}


def refuse_other_number(y: Any, names: Sequence[str]) -> None:
    """Raise InputError for a table of another number of targets than a model of several has."""
    shape = getattr(y, "shape", None) if grids.is_xarray(y) else np.shape(y)
    if len(names) < 2 or shape is None or (grids.is_xarray(y) and not grids.is_table(y)):
        return
    if grids.is_xarray(y) and len(names) in shape:  # its dimensions tell which way it lies
        return
    count = 1 if len(shape) < 2 else shape[1]
    if count != len(names):
        raise InputError(
            f"y has {count} target{'s' * (count != 1)}, but the model was fitted with "
            f"{len(names)}: {', '.join(names)}; give NaN where one is missing"
        )


def _unnamed(p: int) -> tuple[str, ...]:
    return tuple(f"y{j}" for j in range(p))


def _names(y: Any) -> tuple[str, ...] | None:
    if grids.is_xarray(y) and not grids.is_table(y):
        return None
    found = column_names(y)
    return None if found is None else tuple(found)


def _can_be_padded(y: Any) -> bool:
    """Return whether columns of NaN can be put beside y."""
    lazy_frame = hasattr(y, "to_dask_array")
    return hasattr(y, "reindex") or not (lazy_frame or reading.has_columns(y))


def _ordered(y: Any, order: Order, names: Sequence[str]) -> Any:
    """Return columns of y in an order, maybe with names; those of None are NaN."""
    if None in order and hasattr(y, "reindex") and names:
        if grids.is_xarray(y):
            return y.reindex({y.dims[1]: [*names]})
        frame = y.to_frame() if y.ndim == 1 else y
        return frame.rename(columns=str).reindex(columns=[*names])
    columns = [j for j in order if j is not None]
    if None not in order:
        if grids.is_xarray(y):
            return y.isel({y.dims[1]: columns})
        if hasattr(y, "iloc") and not hasattr(y, "to_dask_array"):
            return y.iloc[:, columns]
        if hasattr(y, "column_names"):
            return y.select(columns)
        if reading.has_columns(y):
            return y[[[*y.columns][j] for j in columns]]
    values = reading.lazily(reading.from_zarr(y) if is_zarr(y) else y)
    values = values if isinstance(values, da.Array) else np.asarray(values)
    values = values[:, None] if values.ndim == 1 else values
    empty = np.nan * values[:, 0]
    parts = [empty if j is None else values[:, j] for j in order]
    whole: Any = da.stack(parts, axis=1) if isinstance(values, da.Array) else np.stack(parts, 1)
    return whole.rechunk({1: -1}) if isinstance(whole, da.Array) else whole
