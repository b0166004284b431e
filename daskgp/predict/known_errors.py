"""Known error variances of new observations, added to predictions of y."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from daskgp import data
from daskgp.data import grids, reading
from daskgp.errors import InputError, SettingError
from daskgp.predict.posterior import Solved


def check(solved: Solved, y_variance: Any, noisy: bool) -> None:
    """Raise SettingError for error variances that predictions cannot have, or that do nothing."""
    if y_variance is None:
        return
    if not noisy:
        raise SettingError(
            "y_variance belongs to the spread of new observations: ask for it by "
            "include_noise=True and return_std=True or return_cov=True"
        )
    if solved.likelihood is not None:
        raise SettingError(
            f"y_variance is given and the likelihood is {solved.likelihood.name!r}: only Gaussian "
            "noise has known error variances"
        )
    values = y_variance
    if isinstance(values, da.Array) or grids.is_xarray(values):
        return  # lazily given ones come out as they are
    values = reading.unmasked(values)
    reading.check_kind("y_variance", values)
    wrong = int((~(values >= 0) & ~np.isnan(values)).sum())
    if wrong:
        raise InputError(f"y_variance is negative in {wrong} rows: error variances are positive")


def added(std: Any, y_variance: Any) -> Any:
    """Return standard deviations (n,) or (n, p) of observations with errors of their own."""
    if y_variance is None:
        return std
    if grids.is_xarray(std):
        return grids.on_same_grid(std, y_variance, lambda own, more: (own**2 + more) ** 0.5)
    return (std**2 + _columns(y_variance, std)) ** 0.5


def on_diagonal(cov: np.ndarray, y_variance: Any) -> np.ndarray:
    """Return covariances (n, n) or (n, n, p) of observations with errors of their own."""
    if y_variance is None:
        return cov
    n = len(cov)
    errors = np.broadcast_to(reading.unmasked(y_variance), n)
    cov[np.diag_indices(n)] += errors if cov.ndim == 2 else errors[:, None]
    return cov


def of_store(solved: Solved, y: Any, variance: da.Array) -> da.Array:
    """Return variances of observations y with the error variances and weights of y's store.

    They are NaN for rows of weight 0 and for errors that cannot be.
    """
    beside = {name: reading.from_zarr(array) for name, array in data.noise_beside(y).items()}
    if not beside or solved.likelihood is not None:
        return variance
    if (errors := beside.get("y_variance")) is not None:
        errors = da.where((errors >= 0) & da.isfinite(errors), errors, np.nan)
        variance = variance + _columns(errors, variance)
    if (weight := beside.get("weight")) is not None:
        if solved.model.noisy:
            raise SettingError(
                "the store of y has weights, and experts with noise_in_experts=True do not tell "
                "noise from f: fit with noise_in_experts=False"
            )
        noise = solved.theta.noise_variance * solved.scaling.y_scale**2
        usable = (weight > 0) & da.isfinite(weight)
        share = _columns(1.0 / da.where(usable, weight, np.nan) - 1.0, variance)
        variance = variance + share * (noise if variance.ndim == 2 else noise[0])
    return variance


def _columns(y_variance: Any, like: Any) -> Any:
    """Return error variances (n,) or of one number in a shape that adds to ``like``."""
    lazy = isinstance(y_variance, da.Array)
    errors = y_variance if lazy else reading.unmasked(y_variance)
    if errors.ndim and errors.shape != like.shape[:1]:
        raise InputError(
            f"y_variance has shape {errors.shape}, one number per row is needed: {like.shape[:1]}"
        )
    if lazy or (isinstance(like, da.Array) and errors.ndim):
        errors = da.asarray(errors).rechunk((like.chunks[0],))
    return errors[:, None] if errors.ndim and like.ndim == 2 else errors
