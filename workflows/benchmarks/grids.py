"""A gridded product with gaps: a netCDF file in, a map without gaps out, by daskgp's commands.

    DASKGP_DATA=folder python workflows/benchmarks/grids.py [--times 128] [--methods vecchia,lma]

Air temperatures every six hours on a grid of 2.5 degrees over North America, of which discs of 12
degrees around a place at random are left out for four days at a time (``datasets.air_grid``).
``daskgp fit`` reads the file and takes longitude and latitude as places on the sphere; ``daskgp
predict`` writes the whole grid.  Scores are those of the cells that were left out, in kelvin.
"""

import tempfile
from pathlib import Path

import datasets
import harness

METHODS: dict[str, dict[str, object]] = {
    "vecchia": {},
    "vecchia-wide": {"n_neighbours": 60, "predict_neighbours": 512},
    "lma": {},
}


def keys(options: harness.Options) -> harness.Keys:
    datasets.present(["air"])
    return harness.runs(options, "times", method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    import xarray as xr

    values, out = datasets.air_grid(key["times"])
    model, settings = key["method"].split("-")[0], METHODS[key["method"]]
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    workers = ("--workers", str(options.threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        values.where(~out).to_dataset(name="air").to_netcdf(folder / "air.nc", engine="h5netcdf")
        fit = harness.daskgp(
            folder, "fit", "air.nc", "model.zarr", "--target", "air", "--model", model, *words,
            *workers,
        )  # fmt: skip
        predict = harness.daskgp(
            folder, "predict", "model.zarr", "map.zarr", "--like", "air.nc", "--variance", *workers
        )
        with xr.open_zarr(folder / "map.zarr", consolidated=False) as found:
            mean, variance = (
                found[name].transpose(*out.dims).values[out.values] for name in ("mean", "variance")
            )
    seconds = {"seconds": fit.seconds + predict.seconds, "n": int((~out).sum())}
    outcome = harness.Outcome(fit.seconds, predict.seconds, mean, variance, {})
    scores = ("mae", "rmse", "crps", "interval", "coverage")
    return {
        **seconds,
        "places": int(out.size),
        **outcome.scored(values.values[out.values], *scores),
    }


table = harness.reporting(
    "method times", "n places mae rmse crps interval coverage fit_s predict_s seconds peak_mib"
)
harness.command(globals(), methods=harness.Some(tuple(METHODS), ("vecchia",)), times=(128, 16))
