"""Parts of estimators made of several others: a target of any kind, and values of their parts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Self

import dask
import dask.array as da
import numpy as np
from sklearn.utils import column_or_1d

from daskgp import data
from daskgp.assess.weighing import shaped
from daskgp.checks import flags, refuse_unknown
from daskgp.data import grids, reading
from daskgp.data.rows import ARGUMENTS, WEIGHT, store_behind
from daskgp.data.stores import groups, locks, models
from daskgp.errors import InputError
from daskgp.estimators import saving
from daskgp.estimators.base import GaussianProcess
from daskgp.typing import Path

logger: logging.Logger = logging.getLogger("daskgp")


class Named:
    """Estimator that refuses settings which it lacks in the words of the others."""

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """Raise TypeError for a setting that the class lacks."""
        refuse_unknown(cls, settings)
        return super().__new__(cls)


def target(y: Any, name: str, what: str, several: str) -> Any:
    """Return one target (n,) as an array, a lazy one as a dask array, that of a grid as it is.

    InputError for what is none, which names the estimator, what it takes and what several are.
    """
    if y is None:
        raise InputError(f"{name} requires y to be passed, but the target y is None")
    if isinstance(y, str):
        raise InputError(f"y={y!r} is a name: give {name} the {what} as an array (n,)")
    if grids.is_xarray(y):
        return y
    y = reading.from_zarr(y) if data.is_zarr(y) else y
    y = y.to_dask_array(lengths=True) if hasattr(y, "to_dask_array") else y
    y = y if isinstance(y, da.Array) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] > 1:
        raise InputError(
            f"y has shape {y.shape}, several {several} a row: {name} takes one, fit each column "
            "on its own"
        )
    return y.reshape(-1) if isinstance(y, da.Array) else column_or_1d(y, warn=True)


def weights(y: Any, sample_weight: Any, name: str) -> Any:
    """Return weights of rows: those given, or those of the store that y lies in.

    They are False where there are none in that store or they are left out, None where y lies in no
    store.  A warning names what else the store has beside y, which no estimator ``name`` takes.
    """
    if sample_weight is not None:
        return reading.from_zarr(sample_weight) if data.is_zarr(sample_weight) else sample_weight
    if store_behind(getattr(y, "array", y), "y") is None:
        return None
    stored = data.beside_in_store(y)
    others = [own for own in stored if own != WEIGHT]
    if others:
        logger.warning(
            "the store of y has %s, which %s does not take: it is not used",
            *(" and ".join(ARGUMENTS[own] for own in others), name),
        )
    return reading.from_zarr(stored[WEIGHT]).reshape(-1) if WEIGHT in stored else False


def weighing(y: Any, weight: Any) -> Any:
    """Return which rows of a target have a weight other than 0, (n,); None where all may.

    Weights of another shape are left to the fit, which refuses them.
    """
    if weight is None or weight is False or np.isscalar(weight):
        return None
    weight = grids.like(y, weight, ARGUMENTS[WEIGHT]) if grids.is_xarray(y) else weight
    w, values = (one.data if grids.is_xarray(one) else reading.lazily(one) for one in (weight, y))
    w = (w if isinstance(w, da.Array) else np.asarray(w)).reshape(-1)
    if w.size != values.size:
        return None
    return w != 0 if isinstance(values, da.Array) else np.asarray(w != 0)


def compared(y: Any, found: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return targets, their predictions and weights (n,), None for those that are all one."""
    own = None if weight is None or weight is False else weight
    if own is not None:
        own = shaped(ARGUMENTS[WEIGHT], own, found)
    if grids.is_xarray(found):
        if own is not None:
            _, own = grids.scored_arrays(found, own, vector=True)
        found, y = grids.scored_arrays(found, y, vector=True)
    found, y, own = dask.compute(found, y, own)
    found, y = np.asarray(found), np.asarray(y)
    if len(y) != len(found):
        raise InputError(f"y has {len(y)} rows and X has {len(found)}: give both of the same rows")
    return y, found, None if own is None else np.broadcast_to(np.asarray(own), y.shape)


def save(
    url: Path,
    described: Mapping[str, Any],
    parts: Mapping[str, GaussianProcess],
    overwrite: bool,
    wait: float,
    clear_lock: bool,
) -> None:
    """Write a store of several fitted estimators, see ``save`` of one."""
    flags(overwrite=overwrite)
    place = str(url).rstrip("/")
    with locks.hold(place, wait, clear_lock, resume=True) as claim:
        there = overwrite and not groups.vacant(place)
        writers = {name: part.save for name, part in parts.items()}
        models.write_parts(place, described, writers, claim if overwrite else None)
        for part in parts.values() if there else ():  # those that it was loaded from may go
            part._fitted = saving.reading_its_own(part._fitted)


def of_rows(
    function: Any,
    parts: list[Any],
    name: str,
    said: str,
    dtype: Any = np.float64,
    labels: np.ndarray | None = None,
    dim: str = "class",
) -> Any:
    """Return what a function gives of rows of parts side by side, as the kind of object they are.

    It gives a value of each row, or one of each of the labels, on a grid along ``dim``.
    """
    if grids.is_xarray(parts[0]):
        return grids.of_parts(function, parts, name, {"long_name": said}, dtype, labels, dim)
    if not isinstance(parts[0], da.Array):
        return function(np.column_stack([*map(np.asarray, parts)]))
    rows = da.stack(parts, axis=1) if parts[0].ndim == 1 else da.concatenate(parts, axis=1)
    rows = rows.rechunk({1: -1})
    if labels is None:
        return da.map_blocks(function, rows, dtype=dtype, meta=np.empty(0, dtype), drop_axis=[1])
    chunks, meta = (rows.chunks[0], (len(labels),)), np.empty((0, 0), dtype)
    return da.map_blocks(function, rows, dtype=dtype, meta=meta, chunks=chunks)


def averages(found: Any) -> tuple[list[float], int]:
    """Return the means of scores of rows (n, k) without those that have none, and their number.

    InputError if no row has scores.
    """
    values = found.data if grids.is_xarray(found) else found
    known = ~np.isnan(values).any(axis=-1)
    rows = tuple(range(values.ndim - 1))
    total, n = dask.compute(np.where(known[..., None], values, 0.0).sum(axis=rows), known.sum())
    if not n:
        raise InputError(
            "nothing to score: no row has all features and a known target: give rows that do"
        )
    return (total / n).tolist(), int(n)
