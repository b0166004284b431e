"""A million daily temperatures at stations: predicting months that stations lack.

    [DASKGP_DATA=folder] python workflows/benchmarks/million.py [--days 3653] [--methods lma]

Daily maxima at the U.S. HCN stations of GHCN-Daily, of which three years are 1.09 million values
and ten 3.4 million; without DASKGP_DATA a generated network of the same kind.  One in ten months of
a station is drawn at random and left to be predicted.

Features are longitude times cos 38°, latitude, elevation and the day, which the kernel acts on, and
two waves of the year, which the linear mean sees besides.  Scores are in degrees Celsius, of
predictions of y with its noise.  ``lma``, which predicts from seven blocks of rows,
``lma-nearest``, from the 512 nearest rows, and ``sgpr`` are daskgp's commands on ``--threads``
workers; ``climatology`` is the linear mean alone by least squares, chunk by chunk.
"""

import time
from pathlib import Path

import datasets
import harness
import numpy as np

import daskgp

NEAREST: dict[str, object] = {
    "order": "lon,lat,day",
    "n_support": 64,
    "markov_order": 4,
    "train_blocks": 64,
    "max_iter": 25,
    "mean": "ols",
}
DASKGP: dict[str, dict[str, object]] = {
    "lma": NEAREST | {"predict_order": 6},
    "lma-nearest": NEAREST,
    "vecchia": {"order": "lon,lat,day", "mean": "ols"},
    "vecchia-support": {"order": "lon,lat,day", "mean": "ols", "n_support": 128},
    "sgpr": {"n_inducing": 1_024, "train_blocks": 16, "max_iter": 30, "mean": "ols"},
}
METHODS = (*DASKGP, "climatology")
WEATHER = {"lon": 8.0, "lat": 8.0, "elevation": 1500.0, "day": 3.0}
PLACE = {"lon": 4.0, "lat": 4.0, "elevation": 1000.0, "day": 30.0}
"""Lengthscales that training starts from, in the units of the features that the kernel acts on."""
KERNEL = " + ".join(
    f"{name}(lengthscale={[*part.values()]}, active_dims=[0, 1, 2, 3])"
    for name, part in {"matern32": WEATHER, "matern12": PLACE}.items()
)
TEST_CHUNK = 8_192


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "days stations", method=("convert", *options.methods))


def measure(key: dict, options: harness.Options) -> dict:
    network = datasets.stations(key["days"], key["stations"])
    folder = options.folder / f"stations-{key['days']}-{key['stations']}"
    if key["method"] == "convert":
        return convert(network, folder)
    _, y = daskgp.open_dataset(str(folder / "test.zarr"))
    if key["method"] == "climatology":
        found = climatology(folder)
    else:
        settings = {**DASKGP[key["method"]], "kernel": KERNEL}
        if key["method"].startswith("lma"):
            settings["block_rows"] = options.block_rows
        if options.tiny:
            settings |= {name: 64 for name in settings if name.startswith("n_")} | {"max_iter": 5}
        workers = ("--workers", str(options.threads))
        found = harness.by_command_line(folder, key["method"], settings, *workers)
    scores = ("mae", "rmse", "crps", "interval", "coverage")
    return found.scored(np.asarray(y), *scores)


def convert(network: datasets.Network, folder: Path) -> dict:
    """Write train.zarr and test.zarr in the order of days."""
    import xarray as xr

    folder.mkdir(parents=True, exist_ok=True)
    features, left_out, rows = network.features(), network.left_out(), []
    for part, absent in (("train", left_out), ("test", ~left_out)):
        values = np.where(absent, np.nan, network.values).T
        grid = xr.Dataset({"tmax": (("day", "station"), values), **features})
        grid.to_zarr(folder / f"{part}-grid.zarr", consolidated=False, mode="w")
        stores = (str(folder / f"{part}-grid.zarr"), str(folder / f"{part}.zarr"))
        chunk = TEST_CHUNK if part == "test" else None
        rows.append(daskgp.convert(*stores, "tmax", list(features), chunk).rows)
    return dict(zip(("n", "places"), rows, strict=True))


def climatology(folder: Path) -> harness.Outcome:
    """Fit all columns and a constant by least squares; the variance is that of the residual."""
    import dask.array as da

    def columns(part: str) -> tuple[da.Array, da.Array]:
        X, y = daskgp.open_dataset(str(folder / f"{part}.zarr"))
        return da.concatenate([da.ones_like(y)[:, None], X], axis=1).rechunk({1: -1}), y

    began, (A, y) = time.perf_counter(), columns("train")
    weights, squares = da.compute(*da.linalg.lstsq(A, y)[:2])
    variance, fitted = squares.sum() / max(len(y) - len(weights), 1), time.perf_counter()
    mean = (columns("test")[0] @ weights).compute()
    seconds = fitted - began, time.perf_counter() - fitted
    return harness.Outcome(*seconds, mean, np.full(len(mean), variance))


table = harness.reporting(
    "method days", "n places mae rmse crps interval coverage fit_s predict_s peak_mib"
)
harness.command(
    globals(), methods=METHODS, days=(1_096, 25), stations=(1_205, 30), block_rows=(150, 50)
)
