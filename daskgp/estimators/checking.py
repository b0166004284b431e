"""Checks and variograms: fitted models held against rows of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from daskgp import data
from daskgp.assess import check as checking
from daskgp.assess import variogram as pairs
from daskgp.assess.check import Check
from daskgp.assess.variogram import Variogram
from daskgp.checks import shown, whole
from daskgp.data import named_beside
from daskgp.errors import SettingError
from daskgp.estimators.prediction import FittedGP, given_rows
from daskgp.fit import named
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import begin_call
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Path


def check(
    model: Any,
    X: Any,
    y: Any,
    *,
    y_variance: Any = None,
    sample_weight: Any = None,
    trials: Any = None,
    exposure: Any = None,
    offset: Any = None,
    lower: Any = None,
    upper: Any = None,
    features: Any = None,
    mask: Path | None = None,
    regions: int = 8,
    distances: int = 6,
    store: Path | None = None,
    random_state: int = 0,
    progress: ShowProgress = "auto",
) -> Check:
    """Hold the predictions of a fitted model against rows that it was not fitted to.

    Tasks predict the rows chunk by chunk on the current Dask client, so that memory does not grow
    with their number.

    Parameters
    ----------
    model : estimator
        A fitted one.
    X, y : array-like (n, d) and (n,) or (n, p), or a source and names of its targets
        Rows of any kind that ``fit`` takes.  Those that miss a value are left out.
    y_variance, sample_weight : float or array-like (n,) or (n, 1), or str, optional
        Error variances and weights of the rows, as ``fit`` takes them, which make their noise
        variances; default those of a dataset store.
    trials, exposure, offset, lower, upper : float or array-like (n,) or (n, 1), or str, optional
        What the likelihood takes of each row beside y, as for ``fit``.
    features, mask : sequence of str and str, optional
        As for `convert`, where ``y`` is a name; the features of the model by default.
    regions : int
        Number of regions with equally many rows, a power of 2: halves, across their longest side,
        of halves.
    distances : int
        Classes of equally many rows by their distance to the nearest training row that a method
        keeps, or to its nearest inducing input.  The distance is along the columns that the kernel
        sees: in km on the sphere, in the unit of the columns where these share a scale, and else in
        standard deviations.
    store : str or path, optional
        Folder or URL where rows that tasks cannot read are written for as long as it takes; a
        temporary directory by default.
    random_state : int
        Seed of the sample.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.

    Returns
    -------
    Check

    Raises
    ------
    InputError
        If the rows are of other columns, or a setting cannot be used.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X, rng = np.linspace(0, 1, 400)[:, None], np.random.default_rng(0)
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(400)
    >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
    >>> found = daskgp.check(model, X[1::2], y[1::2])
    >>> found.n, 0.8 < found.scores["coverage_95"] <= 1
    (200, True)
    """
    posterior = _posterior(model)
    begin_call(posterior.token)
    checking.refuse(posterior, regions, distances)
    whole("random_state", random_state, 0)
    noise = {"y_variance": y_variance, "sample_weight": sample_weight}
    columns = {"trials": trials, "exposure": exposure, "offset": offset}
    beside = named_beside(**noise, **columns, lower=lower, upper=upper)
    source = named.columns_of(X, y, features, mask, beside, fill_values=model.fill_values)
    if source is not None:
        source = source.like(posterior.columns, posterior.feature_units, posterior.target_names)
    with given_rows(source, X, y, beside, store, progress) as rows:
        model._fitted.refuse_without_columns(data.beside_in_store(rows[1]), rows[2])
        executor = Executor.current(progress, posterior.device)
        told = model.fill_values, _remedy(model), (regions, distances)
        return checking.checked(posterior, rows, *told, store, random_state, executor)


def variogram(
    X: Any,
    y: Any,
    model: Any = None,
    *,
    y_variance: Any = None,
    sample_weight: Any = None,
    bins: int | Sequence[float] | np.ndarray = 15,
    max_distance: float | None = None,
    columns: Sequence[str | int] | None = None,
    geographic: Sequence[str | int] | Literal[False] | None = None,
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto",
    n_pairs: int = 20_000_000,
    store: Path | None = None,
    random_state: int = 0,
    progress: ShowProgress = "auto",
) -> Variogram:
    """Return the empirical variogram of rows, and what a fitted model expects of the same pairs.

    The semivariance at distance h is the mean of (y_i - y_j)^2 / 2 over pairs of rows that far
    apart [Matheron 1963].  A Gaussian process with kernel k, noise variances s_i and mean m expects

        (k(x_i, x_i) + k(x_j, x_j) + s_i + s_j) / 2 - k(x_i, x_j) + (m(x_i) - m(x_j))^2 / 2

    of a pair, here in y's units; its mean over the same pairs holds for any kernel, also where
    the lengthscale differs by direction.  All pairs are taken if they are no more than ``n_pairs``;
    otherwise about that many, half of them within blocks of 1,024 successive rows and half between
    two such blocks, drawn at random: of a prepared dataset the former are near each other.

    Parameters
    ----------
    X, y : array-like (n, d) and (n,) or (n, p)
        Rows of any kind that ``fit`` takes.  Those that miss a value or hold an infinite one are
        left out.
    model : estimator, optional
        A fitted one, of the same columns.
    y_variance, sample_weight : float or array-like (n,) or (n, 1), optional
        Error variances and weights of the rows, as ``fit`` takes them, which make their noise
        variances; default those of a dataset store.
    bins : int or sequence of k + 1 floats
        Number of classes of equal width from 0 to ``max_distance``, or their bounds.
    max_distance : float, optional
        Longest distance, in the units of X; by default a third of the diagonal of the box around
        the rows of the blocks, for which these are read once more.
    columns : sequence of str or int, optional
        Features over which Euclidean distances are taken, which have one unit; all by default,
        which are refused where some are places on the sphere and others are not.  Longitude and
        latitude are taken together, with distances in km along the chord through the Earth.
    geographic : pair of str or int, False or None
        Columns with longitude and latitude; False for none; by default those of the model, or
        else those that X says.
    fill_values : "auto", list of float or None
        Values that stand for missing ones, as for estimators; those of a model are its own.
    n_pairs : int
        Most pairs, about.
    store : str or path, optional
        Folder or URL where rows that tasks cannot read, such as those of a dask array that is no
        store, are written for as long as it takes; a temporary directory by default.
    random_state : int
        Seed of the choice of blocks.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.

    Returns
    -------
    Variogram

    Raises
    ------
    InputError
        If rows or settings cannot be used, or the model is of other columns or has a likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 2.0, 2.0])
    >>> found = variogram(X, y, bins=[0, 2, 4])
    >>> found.pairs, found.distance, found.semivariance
    (array([1, 2]), array([1. , 2.5]), array([2., 1.]))
    """
    wanted = pairs.Wanted(bins, max_distance, columns, n_pairs, random_state)
    wanted.check()
    posterior = None
    if model is not None:
        if geographic is not None:
            raise SettingError(f"geographic={geographic!r}: leave it out, as the model has its own")
        if fill_values != "auto":
            raise SettingError(
                f"fill_values={shown(fill_values)}: leave it out, the model has its own"
            )
        posterior, fill_values = _posterior(model), model.fill_values
    noise = named_beside(y_variance=y_variance, sample_weight=sample_weight)
    executor = Executor.current(progress)
    told = wanted, geographic, fill_values, store, executor
    return pairs.of_rows(X, y, noise, posterior, *told)


def _posterior(model: Any) -> Posterior:
    if not isinstance(model, FittedGP):
        if made_of := getattr(model, "made_of", None):
            raise SettingError(
                f"{type(model).__name__} is made of two models: give one of them with its rows, "
                f"{made_of}"
            )
        raise SettingError(
            f"model is {shown(model)}: give a fitted estimator, such as daskgp.load(...)"
        )
    model._check_fitted()
    return model.solved_


def _remedy(model: FittedGP) -> str:
    """Return how another fit mends intervals, for a method that can and was not told to."""
    if model.get_params(deep=False).get("calibrate", "") is not None:
        return ""
    how = "random" if model.solved_.method.why_no_loo() else "loo"
    return f"; fit with calibrate={how!r} to mend intervals of y"
