"""Scores of predictions against a test set, in one pass over its chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp import data, metrics
from daskgp.data import grids, reading, visibility
from daskgp.errors import InputError
from daskgp.models import fills
from daskgp.models.fills import Fills
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors, lazy
from daskgp.predict.stored import check_visible
from daskgp.runtime.executor import Executor

logger = logging.getLogger("daskgp")

LEVEL = 0.95
"""Level of the central interval that is scored."""


def scores(posterior: Posterior, X: da.Array, y: da.Array, executor: Executor) -> dict[str, Any]:
    """Return the scores of ``metrics.summary`` for predictions of new observations, with noise.

    Scores of Gaussian densities are left out unless y is f and Gaussian noise; ``nlpd`` is then
    that of the likelihood, or of y where targets are transformed.  Intervals have the tails that
    the model has learned; densities and ``crps`` are those of the Gaussian.

    Parameters
    ----------
    posterior : Posterior
        The fitted method.
    X, y : dask arrays (n, d) and (n,) or (n, p)
        Test rows with equal row chunks.  Values of y that are missing, and rows that miss a
        feature and so cannot be predicted, are left out.  Rows of a store with error variances or
        weights have the noise that these say.
    executor : Executor
        Where to run.

    Raises
    ------
    InputError
        If the columns are not those of the training data, or nothing is left to score.
    """
    posterior.refuse_spread(include_noise=True)
    rows = lazy.rows_for(posterior, X)
    if not X.shape[0]:
        raise InputError("no rows: there is nothing to score")
    columns = 1 if y.ndim == 1 else y.shape[1]
    if columns != posterior.n_targets:
        raise InputError(
            f"y has {columns} targets, but the model was fitted with {posterior.n_targets}: "
            f"{', '.join(posterior.target_names)}"
        )
    _check_visible(posterior, X, y, executor)
    mean, variance = lazy.lazy(posterior, rows, "variance", include_noise=True)
    variance = known_errors.of_store(posterior, y, variance)
    y = y.reshape(mean.shape) if y.ndim != mean.ndim else y
    y = measured(posterior, y)
    known = da.where(da.isnan(mean) | da.isnan(variance), np.nan, y)
    outer = posterior.outer(True)
    if outer.keeps_moments:
        results = metrics.summary(known, mean, variance)
        wide = variance * outer.wider(LEVEL) ** 2
        results["coverage_95"] = metrics.coverage(known, mean, wide, LEVEL)
        results["interval_score_95"] = metrics.interval_score(known, mean, wide, LEVEL)
    else:
        results = _of_distribution(posterior, outer, rows, known, mean)
    other = (~outer.supports(y)).sum()
    wanted = {**results, "observed": (~da.isnan(y)).sum(), "other": other}
    optimized = dask.optimize(wanted)[0]
    results = executor.compute(delayed(dict)(optimized))
    observed, n, other = (int(results.pop(name)) for name in ("observed", "n", "other"))
    outer.refuse(other)
    if n == 0:
        raise InputError(
            f"nothing to score: none of {len(X)} rows has all features and a known target"
        )
    if n < observed:
        logger.warning("%d values are left out: their rows miss a feature", observed - n)
    return {**{name: float(value) for name, value in results.items()}, "n": n}


def compared(
    posterior: Posterior,
    X: Any,
    y: Any,
    mean: Any,
    error: Callable[..., Any],
    executor: Executor,
    weight: Any = None,
) -> float:
    """Return ``error(y, mean)`` of the mean at X, of any kind; one round computes a lazy error.

    With weights of the values it is ``error(weight, y, mean)``.
    """
    if grids.is_xarray(mean):
        if weight is not None:
            _, weight = grids.scored_arrays(mean, weight, posterior.vector_target)
        mean, y = grids.scored_arrays(mean, y, posterior.vector_target)
    if not isinstance(mean, da.Array):
        masked = weight is not None or np.ma.isMaskedArray(y) or any(_fills(posterior))
        y = measured(posterior, reading.unmasked(y) if masked else y)
        y = y if weight is None else y.reshape(mean.shape)
        found = float(error(y, mean) if weight is None else error(weight, y, mean))
    else:
        _check_visible(posterior, X, y, executor)
        y = measured(posterior, da.asarray(y))
        lazy = error(y, mean) if weight is None else error(weight, y.reshape(mean.shape), mean)
        found = float(executor.compute(delayed(float)(dask.optimize(lazy)[0])))
    if weight is not None and np.isnan(found):
        raise InputError(
            "no score: the values of y that have a weight are none or constant, or their rows miss "
            "a feature"
        )
    return found


def _fills(posterior: Posterior) -> Fills:
    """Return the values of each target that are missing."""
    return posterior.fills[posterior.n_features :]


def measured(posterior: Posterior, y: Any) -> Any:
    """Return y (n,) or (n, p), a NumPy or dask array, with NaN for fill values of the targets."""
    own = _fills(posterior)
    if not any(own):
        return y

    def known(y: np.ndarray) -> np.ndarray:
        return fills.without(y.reshape(len(y), -1), own).reshape(y.shape)

    if isinstance(y, da.Array):
        apply: Any = da.map_blocks
        return apply(known, y.astype(np.result_type(y.dtype, np.float32)))
    return known(y)


def _check_visible(posterior: Posterior, X: Any, y: Any, executor: Executor) -> None:
    """Raise InputError unless all workers see the stores of test rows and of a model's rows."""
    remedy = f"put it in {visibility.HERE}"
    for array in (X, y):
        visibility.check(executor, data.behind(array), "the test data", remedy)
    check_visible(executor, posterior, remedy)


def _of_distribution(
    posterior: Posterior, outer: Outer, X: da.Array, y: da.Array, mean: da.Array
) -> dict[str, Any]:
    """Return scores of the mean of y (n,) or (n, p), and of its distribution."""
    m, variance = lazy.lazy(posterior, X, "variance", include_noise=True, gaussian=True)
    apply: Any = da.map_blocks
    own = {"dtype": np.float64, "meta": mean._meta}
    kept = da.where(outer.supports(y), y, np.nan)  # others are refused
    results = {
        "rmse": metrics.rmse(y, mean),
        "mae": metrics.mae(y, mean),
        "nlpd": -da.nanmean(apply(outer.log_density, kept, m, variance, **own)),
        "n": (~da.isnan(y)).sum(),
    }
    if outer.increasing:
        z, wide = apply(outer.inward, kept, **own), variance * outer.wider(LEVEL) ** 2
        results["coverage_95"] = metrics.coverage(z, m, wide, LEVEL)
    if not outer.graded:
        right = da.where(da.isnan(y), np.nan, (mean > 0.5) == (y > 0.5))
        results["accuracy"] = da.nanmean(right)
    return results
