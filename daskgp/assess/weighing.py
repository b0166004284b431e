"""Weights of test rows: those that their noise variances give them in a score."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from daskgp import checks, metrics
from daskgp.data import grids
from daskgp.errors import InputError, SettingError
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors
from daskgp.typing import Array


def weights(posterior: Posterior, mean: Any, sample_weight: Any, y_variance: Any) -> Any:
    """Return weights of the values of a mean, of its kind and shape; None where nothing is given.

    A row of weight w and error variance e has the noise variance s / w + e, and weighs as much as
    s over it: w without error variances.

    Raises
    ------
    InputError
        If numbers are missing, infinite or negative, or not one per row.
    SettingError
        If y_variance is given and the noise is not Gaussian, or that of transformed targets.
    """
    if sample_weight is None and y_variance is None:
        return None
    weight = 1.0 if sample_weight is None else shaped("sample_weight", sample_weight, mean)
    if y_variance is None:
        return weight
    posterior.refuse_errors("a score with y_variance", "leave y_variance out")
    if any(one.theta.varying is not None for one in posterior.each or (posterior,)):
        raise SettingError(
            "a score with y_variance needs one noise variance of all rows, and that of this model "
            "varies over space: leave y_variance out, or give sample_weight"
        )
    noise = posterior.noise_of_targets * posterior.scaling.y_scale**2
    share = shaped("y_variance", y_variance, mean) / (
        noise[0] if posterior.vector_target else noise
    )
    return weight / (1.0 + weight * share)


def shaped(name: str, values: Any, mean: Any) -> Any:
    """Return one number per row in the shape of predictions; InputError for impossible ones."""
    labelled = grids.is_xarray(mean)
    if labelled:
        values = grids.on_same_grid(
            mean, values, lambda own, more: own.where(False, 0.0) + more, name
        )
    known = known_errors.checked_by(partial(_refuse, name), values, name)
    return known if labelled else known_errors.columns(known, mean, name)


def _refuse(name: str, values: np.ndarray) -> np.ndarray:
    wrong = int((~(np.isfinite(values) & (values >= 0))).sum())
    if wrong:
        raise InputError(
            f"{name} is missing, infinite or negative in {checks.rows(wrong)}: leave these rows "
            "out, or give positive finite numbers"
        )
    return values


def nmse(weight: Array, y_true: Array, mean: Array) -> Array:
    """Return the weighted mean squared error over the weighted variance of y, see `metrics.nmse`.

    Values without weight are left out; where y is constant it is NaN.
    """
    known = ~np.isnan(y_true) & (weight > 0)
    w, y = np.where(known, weight, 0.0), np.where(known, y_true, 0.0)
    miss = np.where(known, y_true - mean, 0.0)
    total = _positive(w.sum(axis=0))
    spread = (w * (y - (w * y).sum(axis=0) / total) ** 2).sum(axis=0)
    ratio = (w * miss**2).sum(axis=0) / _positive(spread)
    return _mean_of_seen(ratio, known.any(axis=0))


def observed_nmse(y_true: Array, mean: Array) -> Array:
    """Return the error of `metrics.nmse` over the targets that have an observed value."""
    if y_true.ndim == 1:
        return metrics.nmse(y_true, mean)
    seen = (~np.isnan(y_true)).any(axis=0)
    if not isinstance(seen, np.ndarray):
        return _mean_of_seen(metrics.nmse(y_true, mean, multioutput="raw_values"), seen)
    if seen.any():
        y_true, mean = y_true[:, seen], mean[:, seen]
    return metrics.nmse(y_true, mean)


def _mean_of_seen(ratio: Array, seen: Array) -> Array:
    """Return the mean of the ratios of targets (p,) of which some values are known."""
    return np.where(seen, ratio, 0.0).sum() / _positive(seen.sum())


def _positive(value: Array) -> Array:
    return np.where(value > 0, value, np.nan)


def wrong(weight: Array, y_true: Array, mean: Array) -> Array:
    """Return the weighted share of classes 0 and 1 that are not the likelier one."""
    known = ~np.isnan(y_true) & ~np.isnan(mean) & (weight > 0)
    w = np.where(known, weight, 0.0)
    return (w * ((mean > 0.5) != (y_true > 0.5))).sum() / _positive(w.sum())
