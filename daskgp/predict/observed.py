"""Predictions of new observations of which a likelihood takes more than their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from daskgp.data import grids, reading
from daskgp.data.rows import Beside
from daskgp.errors import SettingError
from daskgp.likelihoods import Likelihood, by_name
from daskgp.models.values import Moments
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors, lazy


def checked(posterior: Posterior, columns: Beside, observed: bool) -> dict[str, Any]:
    """Return the numbers that are given; those of lazy ones are checked when computed.

    Raise SettingError for ones that the likelihood does not take, or that do nothing as nothing is
    ``observed``, InputError for numbers that cannot be.
    """
    given = {name: a for name, a in columns.items() if a is not None and a is not False}
    for name in given:
        if not observed:
            raise SettingError(
                f"{name} belongs to new observations: ask for them by include_noise=True"
            )
    likelihood = posterior.likelihood or by_name("gaussian")
    likelihood.with_columns({name: np.zeros(0) for name in given})
    return {
        name: known_errors.checked_by(partial(_possible, likelihood, name), reading.lazily(a), name)
        for name, a in given.items()
    }


def of_rows(posterior: Posterior, beside: Mapping[str, np.ndarray]) -> tuple[Outer, np.ndarray]:
    """Return the layers of rows with numbers (n,) beside y, and a mask of those that lack one.

    InputError for numbers that the likelihood does not take.
    """
    likelihood = posterior.likelihood or by_name("gaussian")
    for name, values in beside.items():
        _possible(likelihood, name, values)
    missing = np.isnan(np.stack([*beside.values()])).any(axis=0)
    known = {name: np.where(missing, 1.0, values) for name, values in beside.items()}
    return posterior.outer(True).of_rows(known), missing


def _possible(likelihood: Likelihood, name: str, values: np.ndarray) -> np.ndarray:
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    likelihood.check_columns(np.zeros(len(known)), {name: known})
    return values


def predicted(
    posterior: Posterior,
    X: Any,
    return_std: bool,
    levels: tuple[float, ...] | None,
    beside: Beside,
) -> Any:
    """Return what ``predict`` does of new observations with numbers beside y, as it does."""
    given = lazy.marginal(posterior, X, "std", True, gaussian=True)
    of = partial(lazy.of_distribution, posterior, beside=beside)
    found = [of(_mean, *given, "mean", True)]
    if return_std:
        found.append(of(_std, *given, "std", True))
    if levels is not None:
        found.append(lazy.quantiles(posterior, *given, levels, True, beside))
    return found[0] if len(found) == 1 else tuple(found)


def _mean(outer: Outer, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return np.asarray(outer.moments(Moments(mean, std**2)).mean)


def _std(outer: Outer, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return np.sqrt(np.asarray(outer.moments(Moments(mean, std**2)).variance))


def error_of_known(error: Callable[..., Any], *given: Any) -> Any:
    """Return an error of values y without those whose mean is missing; weights may come first."""
    *weight, y, mean = given
    where: Any = da.where if isinstance(mean, da.Array) else np.where
    return error(*weight, where(mean != mean, np.nan, y), mean)  # NaN


def impossible(likelihood: Likelihood, beside: Beside, mean: Any, y: Any, same: Any) -> Any:
    """Return how many values y the likelihood cannot produce, with numbers of rows beside them.

    ``mean`` are predictions as users see them, and ``same`` these as arrays in the rows of y.
    """
    found = {name: lazy.aligned(mean, values, name) for name, values in beside.items()}
    if grids.is_xarray(mean):
        whole = mean.isel(target=0, drop=True) if "target" in mean.dims else mean
        zero = whole * 0
        found = {k: grids.scored_arrays(whole, zero + a, True)[1] for k, a in found.items()}
    wrong = partial(_wrong, likelihood, tuple(found))
    if not isinstance(same, da.Array):
        return wrong(y, same, *found.values()).sum()
    values = (a if np.ndim(a) in (0, same.ndim) else a[:, None] for a in found.values())
    lazily: Any = da.map_blocks  # dask's stubs do not know its arguments
    own = {"dtype": bool, "meta": np.empty((0,) * same.ndim, bool)}
    return lazily(wrong, y.rechunk(same.chunks), same, *values, **own).sum()


def _wrong(
    likelihood: Likelihood, names: tuple[str, ...], y: np.ndarray, mean: np.ndarray, *values: Any
) -> np.ndarray:
    own = {name: np.ravel(a) for name, a in zip(names, values, strict=True)}
    possible = likelihood.with_columns(own).supports(np.asarray(y, np.float64))
    return ~(possible | np.isnan(mean))
