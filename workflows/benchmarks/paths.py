"""Show that sample paths have the law of the posterior, and what a map of 10^8 cells takes.

    python workflows/benchmarks/paths.py --out results.jsonl [--what moments,variogram,field]
    python workflows/benchmarks/paths.py --out results.jsonl --table

- ``moments``: mean and covariance of 2,000 paths at 500 places against the posterior's: of the
  method for SGPR and SVGP, of the exact GP for ExactGP and LMA.  ``mean_z`` is the largest
  difference of means in standard errors (of 500 independent ones 3.1 is expected), ``cov_z`` the
  99.9 % quantile of differences of covariances in theirs (3.3), ``cov_off`` the largest one as a
  share of the prior variance.  Paths share their random frequencies, 2,048 by default, which miss
  covariances of the prior by 1.6 % whatever the number of paths; more of them miss less.
- ``variogram``: the variogram of a map of 1,000 x 1,000 cells far from the data against the
  kernel's: the largest difference at lags of 1 to 60 cells, as a share of the variance, averaged
  over eight paths, and its standard error.
- ``field``: a path of 512 frequencies on a map of 10^8 cells, written by two workers with
  ``to_zarr``.
"""

import time

import dask.array as da
import harness
import numpy as np
import xarray as xr
import zarr

import daskgp
from daskgp.kernels import Matern32

PLAIN = {"noise_variance": 0.05, "mean": "zero", "standardize": False, "optimizer": None}
METHODS = {
    "exact": daskgp.ExactGP,
    "lma": daskgp.LMA,
    "sgpr": daskgp.SGPR,
    "svgp": daskgp.SVGP,
}
SIZES = {"lma": {"n_support": 40, "block_rows": 50}, "sgpr": {"n_inducing": 100}}
SIZES["svgp"] = {"n_inducing": 100, "max_iter": 30}


def keys(options: harness.Options) -> harness.Keys:
    for what in options.what:
        methods, numbers = ["sgpr"], [2_048]
        if what == "moments":
            methods, numbers = METHODS, [2_048, options.frequencies]
        elif what == "field":
            numbers = [options.field_frequencies]
        yield from harness.runs(options, what=[what], method=methods, frequencies=numbers)


def measure(key: dict, options: harness.Options) -> dict:
    return {"moments": moments, "variogram": variogram, "field": field}[key["what"]](key, options)


def fitted(method: str, kernel: Matern32, X: np.ndarray, y: np.ndarray) -> daskgp.SGPR:
    own = {**PLAIN, **SIZES.get(method, {})}
    return METHODS[method](kernel=kernel, progress=False, **own).fit(X, y)


def moments(key: dict, options: harness.Options) -> dict:
    rng, kernel = np.random.default_rng(0), Matern32(0.5, 1.0)
    X, T = rng.uniform(0, 3, (400, 2)), rng.uniform(-0.3, 3.3, (options.places, 2))
    y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.05**0.5 * rng.standard_normal(400)
    model = fitted(key["method"], kernel, X, y)
    values = model.sample_paths(options.paths, 1, n_frequencies=key["frequencies"])(T)
    exact = key["method"] in ("exact", "lma")
    reference = fitted("exact", kernel, X, y) if exact else model
    mean, cov = reference.predict(T, return_cov=True)
    std, draws = np.sqrt(np.diag(cov)), options.paths
    off = np.cov(values) - cov
    error = np.sqrt((np.outer(std, std) ** 2 + cov**2) / draws)
    mean_z = abs((values.mean(axis=1) - mean) * np.sqrt(draws) / std).max()
    cov_z = np.quantile(abs(off / error), 0.999)
    return {"mean_z": mean_z, "cov_z": cov_z, "cov_off": abs(off).max() / kernel.variance}


def variogram(key: dict, options: harness.Options) -> dict:
    side, lags = options.side, np.arange(1, min(61, options.side // 3))
    model = far(key["method"])
    paths = model.sample_paths(8, 3, n_frequencies=key["frequencies"])
    values = paths(cells(side)).compute(scheduler="threads").values
    gamma = np.stack([((values[k:] - values[:-k]) ** 2).mean(axis=(0, 1)) / 2 for k in lags])
    kernel = model.kernel_
    places = np.column_stack([lags, np.zeros(len(lags))]).astype(float)
    wanted = kernel.variance - kernel(places, np.zeros((1, 2)))[:, 0]
    off = gamma - wanted[:, None]
    error = off.std(axis=1, ddof=1) / np.sqrt(off.shape[1])
    worst = abs(off.mean(axis=1)).argmax()
    return {"off": abs(off.mean(axis=1)).max() / kernel.variance, "off_se": error[worst]}


def far(method: str) -> daskgp.SGPR:
    """Return a model of a few rows that lie far from the map."""
    X = np.random.default_rng(0).uniform(-1_000, -900, (200, 2))
    return fitted(method, Matern32(20.0), X, np.sin(X[:, 0] / 20))


def cells(side: int) -> xr.DataArray:
    """Return a lazy map of side x side cells by chunks of at most 1,000 x 1,000."""
    axis = np.arange(float(side))
    blank = da.zeros((side, side), chunks=min(side, 1_000) // 2)
    return xr.DataArray(blank, {"x0": axis, "x1": axis}, ("x0", "x1"))


def field(key: dict, options: harness.Options) -> dict:
    from distributed import Client, LocalCluster

    side = int(options.cells**0.5)
    path, began = options.folder / "field.zarr", time.perf_counter()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        paths = far(key["method"]).sample_paths(1, 0, n_frequencies=key["frequencies"])
        paths(cells(side)).rename("field").to_dataset().to_zarr(path, mode="w")
    seconds, written = time.perf_counter() - began, zarr.open_group(path, mode="r")["field"]
    corner = written[: side // 10, : side // 10]
    return {"n": written.size, "rate": side**2 / seconds, "std": float(corner.std())}


table = harness.reporting(
    "what method frequencies", "n mean_z cov_z cov_off off off_se seconds rate peak_mib"
)
SIZES_OF_RUNS = {
    "places": (500, 40),
    "paths": (2_000, 200),
    "frequencies": (16_384, 512),
    "field_frequencies": (512, 64),
    "side": (1_000, 60),
}
harness.command(
    globals(),
    what=("moments", "variogram", "field"),
    cells=(100_000_000, 10_000),
    **SIZES_OF_RUNS,
)
