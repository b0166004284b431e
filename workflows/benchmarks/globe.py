"""Show what ``geographic`` brings on a global monthly field of a million rows.

    python workflows/benchmarks/globe.py --out results.jsonl [--methods a,b] [--rows N] [--tiny]
    python workflows/benchmarks/globe.py --out results.jsonl --table

A sum of spherical harmonics (a Matérn-3/2 field of 2,000 km and of 6 months, ``datasets.globe``)
on a grid of 2.5° for eleven years, with noise, and gaps of 12° around the poles, on the date line
and elsewhere.  The grid has CF attributes and is converted by ``daskgp.convert``, so that LMA knows
by itself what is longitude and latitude.

- ``degrees``: LMA with ``geographic=False``, and no other setting;
- ``geographic``: LMA without a setting;
- ``product``: LMA told that the kernel is a product of one of space and one of time, by names;
- ``true``: the same with the true hyper-parameters, not trained.

RMSE and coverage are of the field without noise in each kind of gap.  ``at_180`` is the largest
difference of predictions at longitudes −180 and 180, ``at_poles`` that at the poles from all
longitudes, each of mean and standard deviation.
"""

import time
from pathlib import Path

import datasets
import harness
import numpy as np

import daskgp
from daskgp import metrics

SPACE = datasets.Truth("matern32", 2_000.0, 1.0, 0.05)
TIME = datasets.Truth("matern32", 6.0, 1.0, 0.0)
NAMES, MONTHS = ("lon", "lat", "month"), 132
PRODUCT = 'matern32({0}active_dims=("lon", "lat")) * matern32({1}active_dims=("month",))'
TRUE = PRODUCT.format(*(f"lengthscale={truth.lengthscale}, " for truth in (SPACE, TIME)))
METHODS: dict[str, dict] = {
    "degrees": {"geographic": False},
    "geographic": {},
    "product": {"kernel": PRODUCT.format("", "")},
    "true": {
        "kernel": TRUE,
        "noise_variance": SPACE.noise,
        "optimizer": None,
        "mean": "zero",
        "standardize": False,
    },
}
PLACES = 4_000
"""Places of each kind of gap."""


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows", method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    shape = (8, 18, 36) if options.tiny else (MONTHS, 72, 144)
    globe = datasets.globe(np.random.default_rng(0), SPACE, TIME, shape, key["rows"])
    url, began = converted(globe, options.folder / f"globe-{key['rows']}"), time.perf_counter()
    model = daskgp.LMA(**METHODS[key["method"]], progress=False)
    with daskgp.connect(n_workers=options.threads):
        model.fit(*daskgp.open_dataset(url))
        fitted, scores = time.perf_counter(), {}
        for kind in globe.gaps:
            X, f = globe.places(kind, 200 if options.tiny else PLACES)
            mean, std = model.predict(X, return_std=True)
            scores[f"rmse_{kind}"] = float(metrics.rmse(f, mean))
            scores[f"coverage_{kind}"] = float(metrics.coverage(f, mean, std**2))
        predicted = time.perf_counter()
        differences = {"at_180": between(model, edges()), "at_poles": between(model, poles())}
    return {
        "n": model.n_rows_,
        **scores,
        **differences,
        "fit_s": fitted - began,
        "predict_s": predicted - fitted,
        "objective": float(model.objective_),
        "kernel": str(model.kernel_),
        "iterations": len(model.history_),
    }


def converted(globe: datasets.Globe, folder: Path) -> str:
    """Return the path of the dataset store of a globe's grid, written once."""
    import xarray as xr

    if not (folder / "rows.zarr").exists():
        units = {"lon": "degrees_east", "lat": "degrees_north"}
        coordinates = {"lon": globe.lon, "lat": globe.lat, "month": np.arange(len(globe.y))}
        given = {n: (n, v, {"units": units.get(n, "month")}) for n, v in coordinates.items()}
        grid = xr.Dataset({"t": (NAMES[::-1], globe.y)}, given)
        grid.to_zarr(folder / "grid.zarr", consolidated=False, mode="w")
        daskgp.convert(str(folder / "grid.zarr"), str(folder / "rows.zarr"), "t", list(NAMES))
    return str(folder / "rows.zarr")


def edges() -> np.ndarray:
    """Return places (2, n, 3) at longitudes −180 and 180."""
    lat, month = np.linspace(-89, 89, 40), np.arange(40.0) % 8
    return np.array([np.column_stack([np.full(40, lon), lat, month]) for lon in (-180.0, 180.0)])


def poles() -> np.ndarray:
    """Return the poles in some months (24, n, 3), seen from longitudes 15° apart."""
    lat, month = np.repeat([-90.0, 90.0], 4), np.tile(np.arange(4.0), 2)
    lons = np.arange(-180.0, 180.0, 15.0)
    return np.array([np.column_stack([np.full(8, lon), lat, month]) for lon in lons])


def between(model: daskgp.LMA, places: np.ndarray) -> float:
    """Return the largest difference of mean or standard deviation along the first axis."""
    found = model.predict(places.reshape(-1, 3), return_std=True)
    return float(max(np.ptp(part.reshape(places.shape[:2]), axis=0).max() for part in found))


table = harness.reporting(
    "method",
    "n rmse_poles coverage_poles rmse_date_line coverage_date_line rmse_elsewhere "
    "coverage_elsewhere at_180 at_poles fit_s predict_s peak_mib",
)
harness.command(globals(), methods=METHODS, rows=(1_000_000, 3_000))
