"""Time `daskgp.interpolate` from values to a map, and score cells that were left out.

    python workflows/benchmarks/interpolate.py --out results.jsonl
    python workflows/benchmarks/interpolate.py --out results.jsonl --data rows --size 1000000
    python workflows/benchmarks/interpolate.py --out results.jsonl --data rows --size 2000 \
        --methods daskgp,gstools,pykrige
    python workflows/benchmarks/interpolate.py --out results.jsonl --table

``cube`` is a field of days, latitudes and longitudes with a third of its values missing in blobs,
which are filled; ``rows`` has places at random in a square, and as many cells.  Both are sums of
waves, drawn by a seed, with noise of a tenth of their variance.  ``size`` is the number of known
values.  Scores are of the field without noise, where nothing was known.

``gstools`` and ``pykrige`` fit a Gaussian variogram with a nugget to ``rows``, and krige from all
of them, or from the nearest 100 (``pykrige-100``).
"""

import time
from functools import partial

import harness
import numpy as np
import pandas as pd
import xarray as xr

import daskgp

NOISE, WAVES = 0.1, 200


def keys(options: harness.Options) -> harness.Keys:
    for key in harness.runs(options, "size", data=options.data, method=options.methods):
        if key["data"] == "rows" or key["method"] == "daskgp":
            yield key


def waves(places: tuple[np.ndarray, ...], shortest: float, seed: int) -> np.ndarray:
    """Return a field of variance one, at places along each axis or at points."""
    rng, d = np.random.default_rng(seed), len(places)
    turns = rng.standard_normal((WAVES, d)) * (2 * np.pi / (3 * shortest))
    phases, total = rng.uniform(0, 2 * np.pi, WAVES), 0.0
    for turn, phase in zip(turns, phases, strict=True):
        total = total + np.cos(sum(k * x for k, x in zip(turn, places, strict=True)) + phase)
    return np.asarray(total * np.sqrt(2 / WAVES))


def cube(size: int) -> tuple[xr.DataArray, None, xr.DataArray]:
    """Return a gappy cube, no grid, and the field where it is missing."""
    side = round((size * 1.5 / 30) ** 0.5)
    lat, lon = np.linspace(30, 60, side), np.linspace(-20, 20, side)
    days = np.arange(30.0)
    field = waves((days[:, None, None] / 10, lat[:, None] / 10, lon / 10), 0.8, 0)
    gone = waves((days[:, None, None] / 5, lat[:, None] / 5, lon / 5), 0.8, 1)
    kept = gone < np.quantile(gone, 2 / 3)
    rng = np.random.default_rng(2)
    y = field + np.sqrt(NOISE) * rng.standard_normal(field.shape)
    where = {"time": pd.date_range("2024-05-01", periods=30), "lat": lat, "lon": lon}
    whole = xr.DataArray(field, where, ("time", "lat", "lon"), name="y")
    return whole.copy(data=np.where(kept, y, np.nan)), None, whole.where(~kept)


def rows(size: int) -> tuple[pd.DataFrame, dict[str, np.ndarray], xr.DataArray]:
    """Return rows, a grid of as many cells, and the field on it."""
    rng, side = np.random.default_rng(0), (size / 25) ** 0.5
    u, v = rng.uniform(0, side, (2, size))
    y = waves((u, v), 1.0, 0) + np.sqrt(NOISE) * rng.standard_normal(size)
    axis = np.linspace(0, side, round(size**0.5))
    field = waves((axis[:, None], axis), 1.0, 0)
    table = pd.DataFrame({"u": u, "v": v, "y": y})
    return table, {"u": axis, "v": axis}, xr.DataArray(field, {"u": axis, "v": axis}, ("u", "v"))


def by_gstools(table: pd.DataFrame, grid: dict) -> tuple[np.ndarray, np.ndarray]:
    import gstools

    where, y = (table.u.to_numpy(), table.v.to_numpy()), table.y.to_numpy()
    model = gstools.Gaussian(dim=2, var=1.0, len_scale=1.0, nugget=0.1)
    bins = np.linspace(0, 3.0, 25)
    model.fit_variogram(*gstools.vario_estimate(where, y, bins))
    kriged = gstools.krige.Ordinary(model, where, y, exact=False, cond_err="nugget")
    return kriged.structured((grid["u"], grid["v"]))


def by_pykrige(
    table: pd.DataFrame, grid: dict, nearest: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    from pykrige.ok import OrdinaryKriging

    kriged = OrdinaryKriging(table.u, table.v, table.y, variogram_model="gaussian", nlags=25)
    how = {} if nearest is None else {"backend": "loop", "n_closest_points": nearest}
    mean, variance = kriged.execute("grid", grid["u"], grid["v"], **how)
    return np.asarray(mean).T, np.asarray(variance).T


DATA = {"cube": cube, "rows": rows}
PEERS = {
    "gstools": by_gstools,
    "pykrige": by_pykrige,
    "pykrige-100": partial(by_pykrige, nearest=100),
}


def measure(key: dict, options: harness.Options) -> dict:
    source, grid, truth = DATA[key["data"]](key["size"])
    began = time.perf_counter()
    if key["method"] == "daskgp":
        maps = daskgp.interpolate(source, grid).compute()
    else:
        mean, variance = PEERS[key["method"]](source, grid)
        maps = xr.Dataset({"y": truth.copy(data=mean), "y_std": truth.copy(data=variance**0.5)})
    seconds = time.perf_counter() - began
    off, std = maps.y - truth, maps.y_std
    known = truth.notnull()
    return {
        "cells": int(maps.y.size),
        "map_s": seconds,
        "rmse_f": float(np.sqrt((off**2).mean())),
        "coverage_f": float((abs(off) < 1.96 * std).where(known).mean()),
    }


table = harness.reporting(
    "data method size cells", "rmse_f coverage_f map_s processor_s peak_mib runs"
)
harness.command(
    globals(),
    data=harness.Some(tuple(DATA), ("cube", "rows")),
    methods=harness.Some(("daskgp", *PEERS), ("daskgp",)),
    size=(170_000, 400),
)
