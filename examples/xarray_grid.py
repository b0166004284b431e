"""Fill the gaps of a gridded field and predict it on a finer grid, lazily.

Features are the coordinates of the grid.  They are built inside each block, so a large grid
never becomes a table of points.
"""

import sys

import dask.array as da
import numpy as np
import xarray as xr

import daskgp
from daskgp import plot


def observed_field(size, seed=0):
    """Return a temperature field with measurement noise and a cloud that hides a part of it."""
    rng = np.random.default_rng(seed)
    lat, lon = np.linspace(45, 50, size), np.linspace(5, 12, size)
    truth = 15 + 3 * np.sin(lon[None, :]) * np.cos(lat[:, None])
    values = truth + 0.2 * rng.standard_normal(truth.shape)
    cloud = (lat[:, None] - 47) ** 2 + (lon[None, :] - 8) ** 2 < 0.7**2
    values[cloud] = np.nan
    coords = {"lat": lat, "lon": lon}
    return xr.DataArray(values, coords=coords, dims=("lat", "lon"), name="temperature")


def main(size=40, fine=200, inducing=100, path=None):
    field = observed_field(size)
    # Points without a value are left out of the fit; the first argument gives the features.
    model = daskgp.SGPR(n_inducing=inducing, max_iter=30).fit(field, field)

    # Any object with the same coordinates will do; chunks make the prediction lazy.
    grid = xr.DataArray(
        da.zeros((fine, fine), chunks=(fine // 2, fine // 2)),
        coords={"lat": np.linspace(45, 50, fine), "lon": np.linspace(5, 12, fine)},
        dims=("lat", "lon"),
    )
    mean, std = model.predict(grid, return_std=True)  # nothing is computed yet
    predicted = xr.Dataset({"mean": mean, "std": std}).compute()
    hidden = predicted.sel(lat=47, lon=8, method="nearest")
    if path:
        seen = field.reindex_like(predicted, method="nearest")
        plot.posterior_map(observed=seen, mean=predicted["mean"], std=predicted["std"], path=path)
    print(f"under the cloud: {float(hidden['mean']):.2f} ± {float(hidden['std']):.2f} degrees")
    return predicted


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
