"""Reach of data: cells that have rows within the distance over which values are alike."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from scipy.spatial import KDTree

from daskgp.data import grids
from daskgp.estimators.base import GaussianProcess
from daskgp.kernels.lengthscales import distance_units, in_units
from daskgp.posterior.posterior import Posterior

HALF = 0.5
"""Share of its way to the lowest that a correlation falls within reach."""


def near(model: GaussianProcess, rows: np.ndarray, grid: xr.Dataset, number: int) -> xr.DataArray:
    """Return whether cells have so many rows within the reach of a model.

    That is the distance at which the correlation of its kernel is half-way down, or at which half
    the mean square of differences between values is the variance of the rows, halved: kernels of
    long lengthscales and large variances are smooth, and do not reach as far as they correlate.

    Parameters
    ----------
    model : GaussianProcess
        Fitted.
    rows : (n, d) array
        Features of the rows, in the units of the data.
    grid : Dataset
        Grid that was predicted.
    number : int
    """
    posterior = model.solved_
    scaled, kernel = posterior.scaled(rows), posterior.theta.kernel
    share = HALF
    if posterior.likelihood is None and model.standardize:  # that of the rows is 1
        share /= max(1.0, float(np.mean(kernel.diag(scaled))))
    units = distance_units(kernel, np.ptp(scaled, axis=0), share)
    enough = partial(_enough, KDTree(in_units(scaled, units)), posterior, units, number)
    cells = grids.grid_of(grid, posterior.feature_names, units=posterior.feature_units)
    found = cells.map(enough, 1)[..., 0].astype(bool)
    return xr.DataArray(found if cells.lazy else found.compute(), cells.coords, cells.dims)


def _enough(
    tree: KDTree, posterior: Posterior, units: np.ndarray, number: int, X: np.ndarray
) -> np.ndarray:
    """Return whether places X (n, d) have so many rows within one unit, as 0 or 1 (n, 1)."""
    known = np.isfinite(X).all(axis=1)
    found = np.zeros((len(X), 1))
    if known.any():
        places = in_units(posterior.scaled(X[known]), units)
        found[known] = tree.query(places, k=[number], distance_upper_bound=1.0)[0] <= 1.0
    return found
