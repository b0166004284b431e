"""A million daily temperatures at stations: the gaps of months of a station.

    [DASKGP_DATA=folder] python workflows/benchmarks/million.py [--years 10] [--methods lma]

With DASKGP_DATA, a folder that holds ``spatial/ghcn_hcn_daily_2008_2017.npz`` (lat, lon, elev_m,
day0 and tmax_tenths_c (stations, days) with -9999 for a missing value), daily maxima at the U.S.
HCN stations of NOAA's GHCN-Daily (Menne et al. 2012), of which three years are 1.09 million values
and ten 3.4 million; without, a generated network of the same kind.  One in ten months of a station
is drawn at random and left to be predicted.

Features are longitude times cos 38 degrees, latitude, elevation and the day, which the kernel acts
on, and two waves of the year, which the linear mean sees besides.  Scores are in degrees Celsius,
of predictions of y with its noise.  Seconds are those of whole commands, with imports and every
start of a cluster; the total has all of them but the conversion of the table, which methods share.
Memory is the largest sum of resident memory over a command and all its children.

- ``lma``, ``sgpr``: daskgp's command line, fit and predict, on two workers.
- ``climatology``: the linear mean alone by least squares, chunk by chunk in NumPy.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import common
import numpy as np
from rich.console import Console

import daskgp

DASKGP: dict[str, dict[str, object]] = {
    "lma": {
        "order": "lon,lat,day",
        "n_support": 64,
        "markov_order": 4,
        "predict_order": 6,
        "train_blocks": 64,
        "max_iter": 25,
        "mean": "linear",
    },
    "sgpr": {"n_inducing": 1024, "train_blocks": 16, "max_iter": 30, "mean": "linear"},
}
"""Settings of daskgp's rows."""

WEATHER = {"lon": 8.0, "lat": 8.0, "elevation": 1500.0, "day": 3.0}
PLACE = {"lon": 4.0, "lat": 4.0, "elevation": 1000.0, "day": 30.0}
"""Lengthscales that training starts from, in the units of the features that the kernel acts on."""

INPUTS = ("n_inducing", "n_support")
"""Settings that a tiny run lowers to half of its rows."""

METHODS = ("lma", "sgpr", "climatology")
YEAR, HELD_OUT, SEED = 365.25, 0.1, 0
STATIONS, MISSING = 1_205, 0.18
TEST_CHUNK, STREAMED = 8_192, 65_536


@dataclass(frozen=True)
class Network:
    """Stations (S,) and their daily maxima in degrees (S, D), NaN where there is none."""

    name: str
    lon: np.ndarray
    lat: np.ndarray
    elevation: np.ndarray
    first: np.datetime64
    values: np.ndarray

    def features(self) -> dict[str, tuple[str, np.ndarray]]:
        """The columns of X, each along stations or days."""
        day = np.arange(self.values.shape[1], dtype=np.float64)
        waves = {
            f"{wave.__name__}{k}": ("day", wave(2 * np.pi * k * day / YEAR))
            for k in (1, 2)
            for wave in (np.sin, np.cos)
        }
        return {
            "lon": ("station", self.lon * np.cos(np.radians(38))),
            "lat": ("station", self.lat),
            "elevation": ("station", self.elevation),
            "day": ("day", day),
            **waves,
        }

    def held_out(self) -> np.ndarray:
        """Where (S, D) a month of a station is left to be predicted."""
        days = self.first + np.arange(self.values.shape[1])
        _, month = np.unique(days.astype("datetime64[M]"), return_inverse=True)
        drawn = np.random.default_rng(SEED).random((len(self.lon), month.max() + 1)) < HELD_OUT
        return drawn[:, month]

    def kernel(self) -> str:
        """The kernel as text, with lengthscales in standardised units."""
        columns = self.features()
        fast, slow = (
            ", ".join(f"{reach / columns[name][1].std():.4g}" for name, reach in part.items())
            for part in (WEATHER, PLACE)
        )
        return (
            f"matern32(lengthscale=[{fast}], variance=0.8, active_dims=[0, 1, 2, 3]) + "
            f"matern12(lengthscale=[{slow}], variance=0.2, active_dims=[0, 1, 2, 3])"
        )


# -- data ------------------------------------------------------------------------------------


def ghcn(path: Path, days: int) -> Network:
    """The first days of the record."""
    found = np.load(path)
    tenths = found["tmax_tenths_c"][:, :days]
    values = np.where(tenths == -9999, np.nan, tenths / 10)
    first = np.datetime64(str(found["day0"]), "D")
    return Network("GHCN", found["lon"], found["lat"], found["elev_m"], first, values)


def generated(stations: int, days: int) -> Network:
    """Seasons, height and weather that lasts for days, over places drawn at random."""
    rng = np.random.default_rng(SEED)
    lon, lat = rng.uniform(-124, -67, stations), rng.uniform(25, 49, stations)
    elevation = 2500 * rng.beta(1, 4, stations)
    day = np.arange(days)
    climate = 30 - 0.6 * (lat - 25) - 0.006 * elevation
    season = (6 + 0.3 * (lat - 25))[:, None] * np.cos(2 * np.pi * (day - 200) / YEAR)
    waves = rng.standard_normal((256, 2)) / 6  # weather is alike over some six degrees
    phase = rng.uniform(0, 2 * np.pi, len(waves))
    shapes = np.sqrt(2 / len(waves)) * np.cos(np.column_stack([lon, lat]) @ waves.T + phase)
    strength = np.empty((len(waves), days))
    now = rng.standard_normal(len(waves))
    for i in day:
        now = 0.7 * now + np.sqrt(1 - 0.7**2) * rng.standard_normal(len(waves))
        strength[:, i] = now
    values = climate[:, None] + season + 4 * shapes @ strength
    values += rng.standard_normal(values.shape)
    values[rng.random(values.shape) < MISSING] = np.nan
    first = np.datetime64("2008-01-01")
    return Network("generated", lon, lat, elevation, first, values.round(1))


def convert(network: Network, folder: Path) -> tuple[int, int]:
    """Write train.zarr and test.zarr in the order of days; the rows of each."""
    import xarray as xr

    features, hidden = network.features(), network.held_out()
    rows = []
    for part, left_out in (("train", hidden), ("test", ~hidden)):
        values = np.where(left_out, np.nan, network.values).T
        grid = xr.Dataset({"tmax": (("day", "station"), values), **features})
        grid.to_zarr(folder / f"{part}-grid.zarr", consolidated=False)
        columns = ("--target", "tmax", "--features", ",".join(features))
        chunk = ("--block-rows", str(TEST_CHUNK)) if part == "test" else ()
        stores = (f"{part}-grid.zarr", f"{part}.zarr")
        rows.append(common.daskgp(folder, "convert", *stores, *columns, *chunk).result["rows"])
    return rows[0], rows[1]


# -- methods ---------------------------------------------------------------------------------


def with_daskgp(
    name: str, folder: Path, kernel: str, rows: int, block_rows: int, workers: int
) -> dict:
    """The commands, as a user would run them."""
    import zarr

    on = ("--workers", str(workers))
    ran = []
    settings = ["--model", name, "--set", f"kernel={kernel}"]
    if name == "lma":
        settings += ["--set", f"block_rows={block_rows}"]
    for key, value in DASKGP[name].items():
        lowered = min(int(str(value)), rows // 2) if key in INPUTS else value
        settings += ["--set", f"{key}={lowered}"]
    model, out = f"{name}.zarr", f"{name}-out.zarr"
    ran.append(common.daskgp(folder, "fit", "train.zarr", model, *settings, *on))
    ran.append(common.daskgp(folder, "predict", model, "test.zarr", out, *on))
    predicted = zarr.open_group(folder / out, mode="r")
    moments = (np.ravel(np.asarray(predicted[name])) for name in ("mean", "variance"))
    y = np.asarray(zarr.open_group(folder / "test.zarr", mode="r")["y"])
    return {
        **common.scores(y, *moments),
        "fit_s": ran[-2].seconds,
        "predict_s": ran[-1].seconds,
        "seconds": sum(part.seconds for part in ran),
        "peak_mib": max(part.peak_mib for part in ran),
        "remark": f"{ran[-2].result['iterations']} iterations",
    }


def climatology(folder: Path) -> dict:
    """Least squares on all columns and a constant; the variance is that of the residual."""
    began = time.perf_counter()
    factor = np.empty((0, 0))
    rows = 0
    for X, y in chunks(folder / "train.zarr"):
        table = np.column_stack([np.ones(len(X)), X, y])
        rows += len(table)
        # the triangle of a QR decomposition takes up the rows that come
        above = factor.reshape(-1, table.shape[1])
        factor = np.linalg.qr(np.vstack([above, table]), mode="r")
    weights = np.linalg.lstsq(factor[:-1, :-1], factor[:-1, -1], rcond=None)[0]
    variance = factor[-1, -1] ** 2 / max(rows - len(weights), 1)
    fitted = time.perf_counter()
    parts = [(y, weights[0] + X @ weights[1:]) for X, y in chunks(folder / "test.zarr")]
    y, mean = (np.concatenate(part) for part in zip(*parts, strict=True))
    done = time.perf_counter()
    found = common.scores(y, mean, np.full(len(y), variance))
    return {**found, "fit_s": fitted - began, "predict_s": done - fitted}


def chunks(path: Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Rows of a dataset store, a chunk at a time."""
    X, y = (array.rechunk({0: STREAMED}) for array in daskgp.open_dataset(str(path)))
    parts = zip(X.to_delayed()[:, 0], y.to_delayed(), strict=True)
    return (tuple(part.compute() for part in pair) for pair in parts)


def measure(name: str, folder: Path, *settings: Any) -> dict:
    """The row of one method."""
    try:
        if name != "climatology":
            return {"method": name, **with_daskgp(name, folder, *settings)}
        ran = common.run([sys.executable, __file__, f"--here={folder}"])
        row = {"method": name, **ran.result}
        return row | {"seconds": ran.seconds, "peak_mib": ran.peak_mib}
    except RuntimeError as error:
        return {"method": name, "remark": f"failed: {error}"}


@click.command()
@click.option("--years", type=click.IntRange(1, 10), default=3, show_default=True)
@click.option("--days", type=click.IntRange(min=1), help="Days instead of years.")
@click.option(
    "--stations", default=STATIONS, show_default=True, help="Stations of a generated network."
)
@click.option(
    "--methods", default=",".join(METHODS), show_default=True, callback=common.among(METHODS)
)
@click.option("--block-rows", default=150, show_default=True, help="Most rows of a block of LMA.")
@click.option("--workers", default=2, show_default=True)
@click.option("--here", type=Path, hidden=True)
def main(
    years: int,
    days: int | None,
    stations: int,
    methods: list[str],
    block_rows: int,
    workers: int,
    here: Path | None,
) -> None:
    """Convert the record, measure each method on it and print a table."""
    if here:
        print(json.dumps(climatology(here)))
        return
    data, days = os.environ.get("DASKGP_DATA"), days or int(np.ceil(YEAR * years))
    if data:
        network = ghcn(Path(data, "spatial", "ghcn_hcn_daily_2008_2017.npz"), days)
    else:
        network = generated(stations, days)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began = time.perf_counter()
        rows, places = convert(network, folder)
        seconds = time.perf_counter() - began
        for method in methods:
            settings = network.kernel(), rows, block_rows, workers
            results.append(measure(method, folder, *settings))
            print(json.dumps(results[-1]), flush=True)
    sizes = f"{rows:,} rows, {places:,} places to predict, conversion {seconds:.1f} s"
    Console(width=180).print(common.report(results, f"{network.name}: {sizes}"))
    common.refuse_failures(results)


if __name__ == "__main__":
    main()
