"""Small data sets to try the commands on, made by a seed, and the commands for each."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

DAYS = np.datetime64("2026-03-01", "D") + np.arange(10)
PARTS = slice(300), slice(300, None)
"""Districts to fit, and those to test on."""
SEED = 20_260_301
WEST, EAST, SOUTH, NORTH = 5.0, 11.0, 45.0, 48.0
"""Degrees of longitude and latitude between which all of them lie."""
LAPSE = 0.0065
"""Kelvin by which it is colder a metre higher."""

Files: TypeAlias = dict[str, Any]
"""Tables and grids by the names of their files."""


class Example(NamedTuple):
    """A data set, made by a function, what it is, and commands to run on it."""

    about: str
    make: Callable[[], Files]
    commands: tuple[str, ...]


def places(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return longitudes and latitudes (n,) with three digits."""
    lon, lat = rng.uniform(WEST, EAST, number), rng.uniform(SOUTH, NORTH, number)
    return lon.round(3), lat.round(3)


def elevation(lon: Any, lat: Any) -> Any:
    """Return metres above the sea of a range of mountains."""
    ridge = np.exp(-(((lat - 46.4 - 0.15 * (lon - 8)) / 0.5) ** 2))
    return 300 + 2_200 * ridge * (1 + 0.3 * np.sin(4 * lon) * np.cos(5 * lat))


def stations() -> Files:
    """Return temperatures of 120 stations, three readings each, and a grid of elevation."""
    rng = np.random.default_rng(SEED)
    lon, lat = places(rng, 120)
    height = elevation(lon, lat).round()
    local = 22 - LAPSE * height + 1.5 * np.sin(lon) + rng.normal(0, 0.4, 120)
    readings = local[:, None] + rng.normal(0, 0.3, (120, 3))
    table = {
        "station": np.repeat([f"S{i:03d}" for i in range(120)], 3),
        "lon": np.repeat(lon, 3),
        "lat": np.repeat(lat, 3),
        "elevation": np.repeat(height, 3),
        "temperature": readings.ravel().round(2),
    }
    axes = {"lat": np.arange(45, 48.01, 0.1).round(1), "lon": np.arange(5, 11.01, 0.1).round(1)}
    ground = elevation(axes["lon"], axes["lat"][:, None]).round()
    return {"stations.csv": table, "terrain.nc": grid({"elevation": (ground, "m")}, axes)}


def cube() -> Files:
    """Return ten days of sea-surface temperature with clouds."""
    rng = np.random.default_rng(SEED + 1)
    lat, lon = np.linspace(SOUTH, NORTH, 12).round(3), np.linspace(WEST, EAST, 16).round(3)
    t, y, x = np.meshgrid(np.arange(10.0), lat, lon, indexing="ij")
    field = 14 + 0.8 * np.sin(1.2 * x + 0.3 * t) * np.cos(1.5 * y) + 0.1 * t
    field += rng.normal(0, 0.1, field.shape)
    cloud = np.sin(1.9 * x - 0.7 * t) + np.sin(2.3 * y + 0.9 * t) > 0.6
    values = np.where(cloud, np.nan, field).round(2)
    axes = {"time": DAYS.astype("M8[ns]"), "lat": lat, "lon": lon}
    return {"sst.nc": grid({"sst": (values, "degC")}, axes)}


def counts() -> Files:
    """Return cases of 300 districts with the people who live there, and 100 districts more."""
    rng = np.random.default_rng(SEED + 2)
    lon, lat = places(rng, 400)
    people = np.exp(rng.normal(9.0, 0.8, 400)).round().astype(int)
    rate = np.exp(-6.5 + 0.8 * np.sin(lon) * np.cos(2 * lat))
    cases = rng.poisson(rate * people)
    table = {"lon": lon, "lat": lat, "people": people, "cases": cases}
    first, others = ({name: v[part] for name, v in table.items()} for part in PARTS)
    return {"districts.csv": first, "others.csv": others}


def daily() -> Files:
    """Return a csv a day of water levels at 60 gauges."""
    rng = np.random.default_rng(SEED + 3)
    lon, lat = places(rng, 60)
    files: Files = {}
    for number, day in enumerate(map(str, DAYS)):
        level = 2 + np.sin(lon + 0.2 * number) * np.cos(lat) + rng.normal(0, 0.05, 60)
        table = {"day": [day] * 60, "lon": lon, "lat": lat, "level": level.round(3)}
        files[f"days/{day}.csv"] = table
    return files


EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        "stations": Example(
            "temperatures of stations, three readings each, with a grid of elevation",
            stations,
            (
                "daskgp cross-validate stations.csv --target temperature --features "
                "lon,lat,elevation --groups station --folds 3",
                "daskgp interpolate stations.csv map.nc --target temperature --features "
                "lon,lat,elevation --like terrain.nc",
                "daskgp fit stations.csv model.zarr --target temperature --features "
                "lon,lat,elevation --model vecchia --mean elevation",
                "daskgp info model.zarr",
                "daskgp predict model.zarr terrain.nc map.zarr",
            ),
        ),
        "cube": Example(
            "a cube of longitude, latitude and time with gaps, as netCDF",
            cube,
            (
                "daskgp interpolate sst.nc whole.nc --target sst",
                "daskgp cross-validate sst.nc --target sst --time time --folds 2",
                "daskgp fit sst.nc model.zarr --target sst --model vecchia",
                "daskgp predict model.zarr --resolution lon=0.5,lat=0.5 --extent time=2026-03-05 "
                "fine.zarr",
            ),
        ),
        "counts": Example(
            "counts of cases with the number of people as exposure",
            counts,
            (
                "daskgp fit districts.csv model.zarr --target cases --features lon,lat --exposure "
                "people --model vecchia --set likelihood=poisson",
                "daskgp score model.zarr others.csv --target cases --exposure people",
                "daskgp predict model.zarr --resolution lon=0.5,lat=0.5 --exposure 100000 "
                "cases.zarr",
            ),
        ),
        "daily": Example(
            "a folder with a csv a day, as a scheduled job finds it",
            daily,
            (
                "daskgp convert 'days/2026-03-0[1-8].csv' train.zarr --target level",
                "daskgp fit train.zarr model.zarr --model sgpr --set n_inducing=128",
                "daskgp convert days/2026-03-09.csv train.zarr --append --target level",
                "daskgp update model.zarr train.zarr",
                "daskgp convert days/2026-03-10.csv test.zarr --target level --like train.zarr",
                "daskgp check model.zarr test.zarr",
            ),
        ),
    }
)


def grid(fields: Mapping[str, tuple[np.ndarray, str]], axes: Mapping[str, Any]) -> Any:
    """Return a Dataset of fields with their units over axes."""
    from daskgp.data import grids

    units = {"lat": {"units": "degrees_north"}, "lon": {"units": "degrees_east"}}
    coords = {name: (name, values, units.get(name, {})) for name, values in axes.items()}
    own = {name: (values, {"units": unit}) for name, (values, unit) in fields.items()}
    return grids.labelled(own, coords, axes)


def write(files: Files, folder: Path) -> None:
    """Write tables and grids into a folder that is there."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith(".csv"):
            with path.open("w", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(content)
                rows.writerows(zip(*content.values(), strict=True))
        else:
            content.to_netcdf(path)
