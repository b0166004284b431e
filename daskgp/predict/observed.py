"""Predictions of new observations of which a likelihood takes more than their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from daskgp.checks import meant, shown
from daskgp.data import grids, reading
from daskgp.data.rows import Beside
from daskgp.errors import InputError, SettingError
from daskgp.likelihoods import Likelihood, by_name
from daskgp.models.values import Moments
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors, lazy


def named(posterior: Posterior, X: Any, columns: Beside) -> tuple[Any, dict[str, Any]]:
    """Return X, and the values beside y of which some are named by variables or columns of it.

    X is left with the features of the posterior, or without what is named where it has others.

    Raises
    ------
    SettingError
        If X has no names.
    InputError
        If it has others.
    """
    names = {name: value for name, value in columns.items() if isinstance(value, str)}
    if not names:
        return X, dict(columns)
    table = hasattr(X, "columns")
    if not table and not grids.is_xarray(X):
        name, value = next(iter(names.items()))
        raise SettingError(
            f"{name}={shown(value)} is a name and X has none: give an array or a number, or X as a "
            "data frame or an xarray object that has it"
        )
    known = list(X.columns) if table else list(grids.as_dataset(X).variables)
    for name, value in names.items():
        if value not in known:
            texts = [str(one) for one in known]
            hint = meant(value, texts, f"it has {', '.join(texts)}")
            raise InputError(f"{name} names {shown(value)}, which X does not have: {hint}")
    found = {name: X[value] if name in names else value for name, value in columns.items()}
    features, gone = [*posterior.feature_names], {*names.values()}
    has_them = {*features} <= {*known}
    if table:
        return X[features if has_them else [one for one in known if one not in gone]], found
    variables = [*getattr(X, "data_vars", ())]
    if not has_them:
        return X.drop_vars([one for one in variables if one in gone]), found
    if not {*features}.intersection(variables):  # coordinates alone: others say the dimensions
        return X, found
    return X.drop_vars([one for one in variables if one not in features]), found


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
