"""Known error variances of new observations, added to predictions of y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from daskgp import checks
from daskgp.data import grids, reading
from daskgp.errors import InputError, SettingError
from daskgp.posterior.posterior import Posterior


def checked(posterior: Posterior, y_variance: Any, noisy: bool) -> Any:
    """Return error variances of new observations; those of lazy ones are checked when computed.

    Raise SettingError for ones that predictions cannot have, or that do nothing, InputError for
    numbers that are no variances.  Missing ones make the spread a missing value.
    """
    if y_variance is None:
        return None
    if not noisy:
        raise SettingError(
            "y_variance belongs to the spread of new observations: ask for it by "
            "include_noise=True and return_std=True or return_cov=True"
        )
    posterior.refuse_errors("a spread with y_variance", "leave y_variance out")
    return checked_by(_refuse_no_variance, y_variance, "y_variance")


def checked_by(check: Callable[[np.ndarray], np.ndarray], values: Any, name: str) -> Any:
    """Return values that ``check`` returns or refuses, lazy ones when they are computed.

    Others than labelled and lazy ones become NumPy arrays; ``name`` is that of the values.
    """
    if grids.is_xarray(values):
        if not hasattr(values, "data"):
            raise InputError(f"{name} is a Dataset: give one of its variables, a DataArray")
        return values.copy(data=checked_by(check, values.data, name))
    if not isinstance(values, da.Array):
        values = reading.unmasked(values, name)
    reading.check_kind(name, values)
    if not isinstance(values, da.Array):
        return check(values)
    lazily: Any = da.map_blocks  # dask's stubs do not know its arguments
    return lazily(check, values, dtype=values.dtype, meta=values._meta)


def _refuse_no_variance(values: np.ndarray) -> np.ndarray:
    for what, wrong in (("negative", values < 0), ("infinite", np.isinf(values))):
        if wrong.any():
            raise InputError(
                f"y_variance is {what} in {checks.rows(wrong.sum())}: give positive and "
                "finite error variances"
            )
    return values


def added(std: Any, y_variance: Any) -> Any:
    """Return standard deviations (n,) or (n, p) of observations with errors of their own."""
    if y_variance is None:
        return std
    if grids.is_xarray(std):
        return grids.on_same_grid(std, y_variance, lambda own, more: (own**2 + more) ** 0.5)
    return (std**2 + columns(y_variance, std)) ** 0.5


def on_diagonal(cov: np.ndarray, y_variance: Any) -> np.ndarray:
    """Return covariances of observations with errors of their own.

    They are (n, n), (n, n, p), or (n, p, n, p) of joint targets.
    """
    if y_variance is None:
        return cov
    if cov.ndim == 4:
        flat = cov.reshape(cov.shape[0] * cov.shape[1], -1)
        own = np.broadcast_to(columns(y_variance, cov[:, :, 0, 0]), cov.shape[:2])
        flat[np.diag_indices(len(flat))] += own.ravel()
        return cov
    cov[np.diag_indices(len(cov))] += columns(y_variance, cov[:, 0])
    return cov


def of_rows(
    posterior: Posterior, X: np.ndarray, columns: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Return variances (n, p) of observations with weights and error variances of their own.

    They are NaN for rows of weight 0; ``columns`` (n, 2), or (n, 1 + p) of joint targets, are those
    that ``Rows.read`` appends to y, and X (n, d) the rows.
    """
    if not columns.shape[1] or posterior.likelihood is not None:
        return variance
    weight, error = columns[:, 0], columns[:, 1:]
    if (error > 0.0).any():
        posterior.refuse_transformed("a score of rows with y_variance", "score rows without")
    if posterior.method.noisy and (weight != 1.0).any():
        raise SettingError(posterior.method.no_weights())
    with np.errstate(divide="ignore"):
        share = np.where(weight > 0, 1.0 / weight, np.nan) - 1.0
    return np.asarray(variance + share[:, None] * posterior.noise_at(X) + error)


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
