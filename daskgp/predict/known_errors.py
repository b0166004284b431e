"""Known error variances of new observations, added to predictions of y."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from daskgp import checks
from daskgp.data import grids, reading
from daskgp.errors import InputError, SettingError
from daskgp.fit.work import NOISY
from daskgp.posterior.posterior import Posterior


def check(posterior: Posterior, y_variance: Any, noisy: bool) -> None:
    """Raise SettingError for error variances that predictions cannot have, or that do nothing."""
    if y_variance is None:
        return
    if not noisy:
        raise SettingError(
            "y_variance belongs to the spread of new observations: ask for it by "
            "include_noise=True and return_std=True or return_cov=True"
        )
    posterior.refuse_errors("a spread with y_variance", "leave y_variance out")
    values = y_variance
    if isinstance(values, da.Array) or grids.is_xarray(values):
        return  # lazily given ones come out as they are
    values = reading.unmasked(values)
    reading.check_kind("y_variance", values)
    wrong = int((~(values >= 0) & ~np.isnan(values)).sum())
    if wrong:
        raise InputError(
            f"y_variance is negative in {checks.rows(wrong)}: error variances are positive"
        )


def added(std: Any, y_variance: Any) -> Any:
    """Return standard deviations (n,) or (n, p) of observations with errors of their own."""
    if y_variance is None:
        return std
    if grids.is_xarray(std):
        return grids.on_same_grid(std, y_variance, lambda own, more: (own**2 + more) ** 0.5)
    return (std**2 + columns(y_variance, std)) ** 0.5


def on_diagonal(cov: np.ndarray, y_variance: Any) -> np.ndarray:
    """Return covariances (n, n) or (n, n, p) of observations with errors of their own."""
    if y_variance is None:
        return cov
    cov[np.diag_indices(len(cov))] += columns(y_variance, cov[:, 0])
    return cov


def of_rows(
    posterior: Posterior, X: np.ndarray, columns: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Return variances (n, p) of observations with weights and error variances (n, 2) of their own.

    They are NaN for rows of weight 0; ``columns`` are those that ``Rows.read`` appends to y, and X
    (n, d) the rows.
    """
    if not columns.shape[1] or posterior.likelihood is not None:
        return variance
    weight, error = columns.T
    if (error > 0.0).any():
        posterior.refuse_transformed("a score of rows with y_variance", "score rows without")
    if posterior.method.noisy and (weight != 1.0).any():
        raise SettingError(NOISY)
    with np.errstate(divide="ignore"):
        share = np.where(weight > 0, 1.0 / weight, np.nan) - 1.0
    return np.asarray(variance + share[:, None] * posterior.noise_at(X) + error[:, None])


def columns(y_variance: Any, like: Any, name: str = "y_variance") -> Any:
    """Return error variances, of rows (n,) or (n, 1) or one number, in a shape that adds to others.

    ``like`` are those others (n,) or (n, p), for which there may also be (n, p) error variances.
    They may be other numbers of this ``name``.
    """
    lazy = isinstance(like, da.Array)
    stays = lazy and isinstance(y_variance, da.Array)
    errors = y_variance if stays else reading.unmasked(y_variance)
    rows = like.shape[:1]
    if errors.shape not in ((), rows, (*rows, 1), like.shape):
        each = "" if like.ndim == 1 else f", or one per row and target: {like.shape}"
        raise InputError(
            f"{name} has shape {errors.shape}, but one number per row is needed: {rows}{each}"
        )
    if not errors.ndim:
        return errors
    if lazy:
        errors = da.asarray(errors).rechunk({0: like.chunks[0]})
    if like.ndim == 1:
        return errors[:, 0] if errors.ndim == 2 else errors
    return errors[:, None] if errors.ndim == 1 else errors
