"""Files of DASKGP_DATA: UCI sets, temperatures, heights."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from datasets.split import Split

UCI = ("bike", "elevators", "keggdirected", "kin40k", "pol", "protein")
FIELDS = ("satellite", "air", "stations", "terrain", "exponential", "survey")
"""Fields in space, and in time, of about 100,000 rows to learn from; the last two are drawn."""
FILES = {
    "satellite": "satellite",
    "air": "air_temperature",
    "stations": "ghcn_hcn_daily_2008_2017",
    "terrain": "srtm_S33W071",
    "srtm": "srtm_S33W071",
}
FIELD_ROWS, FIELD_PLACES = 100_000, 20_000


def file_of(name: str) -> Path:
    """Return the file of a set in DASKGP_DATA; UsageError without the variable."""
    folder = os.environ.get("DASKGP_DATA")
    if not folder:
        raise click.UsageError("set DASKGP_DATA to the folder that holds uci/ and spatial/")
    return Path(folder, "uci" if name in UCI else "spatial", f"{FILES.get(name, name)}.npz")


def present(names: Iterable[str]) -> list[str]:
    """Return the sets that are generated or lie in DASKGP_DATA; UsageError if none does."""
    data, names = os.environ.get("DASKGP_DATA"), list(names)
    found = [
        name for name in names if name not in (*UCI, *FILES) or (data and file_of(name).exists())
    ]
    if names and not found:
        raise click.UsageError(
            f"set DASKGP_DATA to the folder with the files of {', '.join(names)}: "
            "uci/NAME.npz has X, y and test_mask, spatial/NAME.npz what datasets/files.py says"
        )
    return found


def uci(name: str, split: int = 0) -> Split:
    """Return a split of a set: X, y and a column of test_mask of uci/NAME.npz."""
    with np.load(file_of(name)) as found:
        X, y = found["X"], np.ravel(found["y"])
        test = found["test_mask"][:, split].astype(bool)
    return Split(X[~test], y[~test], X[test], y[test])


def satellite() -> Split:
    """Return the land-surface temperatures of Heaton et al. 2019 by longitude and latitude.

    spatial/satellite.npz has lon, lat, mask_temp, true_temp, train and test.
    """
    with np.load(file_of("satellite")) as found:
        flat = {name: values.ravel() for name, values in found.items()}
    X = np.column_stack([flat["lon"], flat["lat"]])
    train, test = flat["train"].astype(bool), flat["test"].astype(bool)
    return Split(X[train], flat["mask_temp"][train], X[test], flat["true_temp"][test])


def air_grid(times: int) -> tuple[Any, Any]:
    """Return air temperatures in kelvin on a grid, every six hours, and which are left out.

    spatial/air_temperature.npz has air_centikelvin (time, lat, lon), hours, lat and lon.  A disc of
    12 degrees around a place at random is left out for four days at a time.
    """
    import xarray as xr

    span, radius = 16, 12.0
    with np.load(file_of("air")) as found:
        y = found["air_centikelvin"][:times] / 100
        hours, lat, lon = found["hours"][:times], found["lat"], found["lon"]
    rng, out = np.random.default_rng(0), np.zeros(y.shape, bool)
    for start in range(0, times, span):
        middle = rng.choice(lat[3:-3]), rng.choice(lon[3:-3])
        far = np.hypot(lat[:, None] - middle[0], lon - middle[1])
        out[start : start + span] = far <= radius
    steps = (hours - hours[0]).astype("timedelta64[h]")
    units = {"lat": {"units": "degrees_north"}, "lon": {"units": "degrees_east"}}
    time = np.datetime64("2013-01-01", "ns") + steps
    axes = {"time": time, "lat": ("lat", lat, units["lat"]), "lon": ("lon", lon, units["lon"])}
    grid = xr.DataArray(y, axes, ("time", "lat", "lon"), "air", {"units": "K"})
    return grid, grid.copy(data=out)


def air() -> Split:
    """Return the rows of 20 days of ``air_grid``: longitude, latitude, hours."""
    grid, out = air_grid(80)
    hours = (grid.time - grid.time[0]).values / np.timedelta64(1, "h")
    where = np.meshgrid(hours, grid.lat, grid.lon, indexing="ij")
    X = np.column_stack([values.ravel() for values in (where[2], where[1], where[0])])
    X, y, left_out = X.astype(np.float64), grid.values.ravel(), out.values.ravel()
    return Split(X[~left_out], y[~left_out], X[left_out], y[left_out])


def terrain() -> Split:
    """Return heights of the Andes by longitude and latitude, at cells drawn at random.

    spatial/srtm_S33W071.npz has elev_m (lat, lon), lat, lon and valid.
    """
    with np.load(file_of("terrain")) as found:
        lat, lon = np.meshgrid(found["lat"], found["lon"], indexing="ij")
        X, y = np.stack([lon, lat], axis=-1)[found["valid"]], found["elev_m"][found["valid"]]
    out = np.random.default_rng(1).random(len(y)) < 0.1
    return drawn_from(X, y.astype(np.float64), out)


def srtm() -> Split:
    """Return all heights of the Andes, with voids like those of radar: discs of 3 to 12 cells.

    They are left out until a tenth of the cells is.
    """
    with np.load(file_of("srtm")) as found:
        lat, lon = np.meshgrid(found["lat"], found["lon"], indexing="ij")
        valid, y = found["valid"], found["elev_m"].astype(np.float64)
    rng, out = np.random.default_rng(0), np.zeros(y.shape, bool)
    rows, columns = np.ogrid[: len(y), : y.shape[1]]
    while out.mean() < 0.1:
        middle, radius = rng.integers(0, y.shape), rng.uniform(3, 12)
        near = [slice(max(0, c - 12), c + 13) for c in middle]
        apart = np.hypot(rows[near[0]] - middle[0], columns[:, near[1]] - middle[1])
        out[tuple(near)] |= apart <= radius
    X = np.stack([lon, lat], axis=-1)
    return Split(X[valid & ~out], y[valid & ~out], X[valid & out], y[valid & out])


def drawn_from(X: np.ndarray, y: np.ndarray, out: np.ndarray) -> Split:
    """Return FIELD_ROWS of the rows at random, and FIELD_PLACES of those that are left out."""
    rng = np.random.default_rng(0)
    train = np.sort(rng.permutation(np.flatnonzero(~out))[:FIELD_ROWS])
    test = np.sort(rng.permutation(np.flatnonzero(out))[:FIELD_PLACES])
    return Split(X[train], y[train], X[test], y[test])
