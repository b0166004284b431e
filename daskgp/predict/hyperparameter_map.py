"""Hyper-parameters that vary over space, as labelled arrays in the units of the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from daskgp.checks import shown
from daskgp.data import expected, grids
from daskgp.errors import SettingError
from daskgp.fit.varying import Given
from daskgp.models.varying import blended
from daskgp.posterior.posterior import Posterior
from daskgp.predict.hyperparameter_table import measures
from daskgp.predict.lazy import rows_for, warn_of_far

ERROR = "_standard_error"
"""End of the names of standard errors."""
KNOT, ROW = "knot", "row"
Errors: TypeAlias = Sequence[float] | np.ndarray | None
"""Standard errors of logarithms, None where they are not known."""


def at_knots(posterior: Posterior, errors: Errors = None) -> Any:
    """Return the hyper-parameters at the knots, a Dataset along ``knot``.

    ``errors`` (k,) are the standard errors of the logarithms of common ones.
    """
    varying = posterior.theta.varying
    assert varying is not None
    scaled = np.zeros((len(varying.knots), len(posterior.columns)))
    scaled[:, varying.columns] = varying.knots
    X = posterior.columns.places(np.asarray(posterior.scaling.places(scaled)))
    common = np.append(
        np.exp(posterior.theta.kernel.log_parameters), posterior.theta.noise_variance
    )
    own = _with_common(varying.errors, varying.errors, errors)
    values = np.hstack([common * np.exp(varying.logs), own])
    return _labelled(posterior, _in_units(posterior, values), _coords(posterior, X, KNOT), (KNOT,))


def at_places(posterior: Posterior, X: Any, errors: Errors = None) -> Any:
    """Return the hyper-parameters at places: a Dataset on the grid of X, or along its rows.

    ``errors`` (k,) are the standard errors of the logarithms of common ones, noise variance last.
    """
    if not grids.is_xarray(X):
        places = np.asarray(rows_for(posterior, X), np.float64)
        warn_of_far(posterior, places)
        values = _values(places, posterior=posterior, common=errors)
        coords = _coords(posterior, places, ROW)
        return _labelled(posterior, values, coords, (ROW,))
    names = _features(posterior)
    found = [posterior.feature_names.index(name) for name in names]
    units = tuple(posterior.wanted_units[j] for j in found)
    known = {i: posterior.trained_on[j] for i, j in enumerate(found) if j in posterior.trained_on}
    grid = grids.grid_of(X, names, False, units, known)
    some = grid.some(expected.drawn, len(found))
    if some is not None:
        warn_of_far(posterior, _whole(some, posterior, found))
    width = 2 * len(measures(posterior))
    lazy = grid.map(partial(_values, posterior=posterior, columns=found, common=errors), width)
    return _labelled(posterior, lazy if grid.lazy else lazy.compute(), grid.coords, grid.dims)


def given(fields: Any) -> Given:
    """Return the hyper-parameters that a user gives as a Dataset.

    Raises
    ------
    SettingError
        If it is no Dataset, has no coordinates, or values that are not positive numbers.
    """
    if grids.as_dataset(fields) is not fields:
        raise SettingError(
            "varying is a DataArray: give a Dataset, .to_dataset(name='variance') makes one of it"
        )
    alone = grids.along_nothing(fields, (KNOT, ROW))
    if alone:
        raise SettingError(f"varying has {grids.bare(alone)}, or choose one of them by .isel")
    columns, names = grids.flat(fields)
    names = tuple(name for name in names if not name.endswith(ERROR))
    features = tuple(name for name in columns if name not in (*grids.as_dataset(fields), KNOT, ROW))
    if not names or not features:
        raise SettingError(
            f"varying={shown(fields)}: give hyper-parameters as variables and features as "
            "coordinates, as hyperparameter_map_ has them"
        )
    for name in (*names, *features):
        own = columns[name]
        if own.dtype.kind not in "iufO" or not all(isinstance(one, Real) for one in own):
            raise SettingError(
                f"varying has {name!r} of type {columns[name].dtype}: give numbers, in the units "
                "of the data"
            )
    X = np.column_stack([np.asarray(columns[name], np.float64) for name in features])
    values = {name: np.asarray(columns[name], np.float64) for name in names}
    endless = [name for name, v in values.items() if np.isinf(v).any()]
    if endless:
        raise SettingError(f"varying has infinite values of {endless[0]}: correct them")
    kept = np.isfinite(X).all(axis=1) & np.all([np.isfinite(v) for v in values.values()], axis=0)
    values = {name: v[kept] for name, v in values.items()}
    wrong = [name for name, v in values.items() if not len(v) or (v <= 0).any()]
    if wrong:
        raise SettingError(f"varying has values of {wrong[0]} that are not positive: correct them")
    return Given(features, X[kept], values)


def _whole(X: np.ndarray, posterior: Posterior, columns: list[int]) -> np.ndarray:
    """Return rows (n, d) whose other features than some, those of X, have their means."""
    places = np.tile(posterior.columns.places(posterior.scaling.x_shift[None]), (len(X), 1))
    places[:, columns] = X
    return places


def _values(
    X: np.ndarray,
    posterior: Posterior,
    columns: list[int] | None = None,
    common: Errors = None,
) -> np.ndarray:
    """Return hyper-parameters and their standard errors (n, 2 c) at rows X of some features."""
    theta, places = posterior.theta, X
    if columns is not None:
        places = _whole(X, posterior, columns)
    scaled = posterior.scaled(places)
    values = np.broadcast_to(theta.at(scaled), (len(X), len(theta.kernel.log_parameters) + 1))
    errors = np.broadcast_to(np.nan if common is None else np.asarray(common), values.shape)
    if theta.varying is not None:
        own = theta.varying.errors
        errors = _with_common(blended(theta.varying.blend(scaled), own), own, common)
    missing = ~np.isfinite(scaled).all(axis=1)
    values, errors = (np.where(missing[:, None], np.nan, both) for both in (values, errors))
    return _in_units(posterior, np.hstack([values, errors]))


def _with_common(errors: np.ndarray, at_knots: np.ndarray, common: Errors) -> np.ndarray:
    """Return errors (n, k) with those of common hyper-parameters where they do not vary."""
    if common is None:
        return errors
    return np.where((at_knots == 0.0).all(axis=0), np.asarray(common), errors)


def _in_units(posterior: Posterior, both: np.ndarray) -> np.ndarray:
    """Return values and errors of their logarithms (n, 2 k) in the units of the data (n, 2 c)."""
    values, errors = np.hsplit(both, 2)
    known = measures(posterior)
    sizes = [one.size for one in known.values()]
    own = values[:, [*known]] * sizes
    return np.hstack([own, own * errors[:, [*known]]])


def _features(posterior: Posterior) -> tuple[str, ...]:
    """Return the features that hyper-parameters vary over; all where they do not vary."""
    varying, pairs = (
        posterior.theta.varying,
        zip(posterior.feature_names, posterior.columns.where, strict=True),
    )
    if varying is None:
        return posterior.feature_names
    return tuple(name for name, where in pairs if np.isin(where, varying.columns).any())


def _coords(posterior: Posterior, X: np.ndarray, dim: str) -> dict[str, Any]:
    """Return the places as coordinates along one dimension."""
    names = posterior.feature_names
    return {name: (dim, X[:, names.index(name)]) for name in _features(posterior)}


def _labelled(posterior: Posterior, values: Any, coords: Any, dims: Any) -> Any:
    """Return values and standard errors (..., 2 c) as a Dataset."""
    known, variables = measures(posterior), {}
    for i, one in enumerate(known.values()):
        said = {"units": one.unit, "long_name": one.name.replace("_", " ")}
        variables[one.name] = values[..., i], said | {"ancillary_variables": one.name + ERROR}
        of_error = {"units": one.unit, "long_name": f"standard error of the {said['long_name']}"}
        variables[one.name + ERROR] = values[..., len(known) + i], of_error
    return grids.labelled(variables, coords, dims)
