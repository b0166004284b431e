"""The main job on an embedded cluster: a satellite's grid with gaps and errors becomes a map.

    python workflows/demo.py [--resolution 0.5] [--folder demo_output]

Makes a seeded field over the globe, seen through clouds and between swaths, with an error for each
of its cells; converts the grid; fits VecchiaGP on the sphere; predicts every cell, chunk by chunk,
into a labelled map that xarray opens; prints the score as a table and as one line of JSON; and
draws measurements, truth, mean and standard deviation.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import click
import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import kernels, plot

EARTH_KM = 6371.0
WAVES = 200
BAND = 20
"""Latitudes that are made and written at a time."""


def field(lon: np.ndarray, lat: np.ndarray, scales: dict[float, float], seed: int) -> np.ndarray:
    """Return a smooth random field over the globe: deviations by lengthscale in km.

    Each scale is a sum of random waves in space with the spectrum of a Matérn-5/2 field.
    """
    rng = np.random.default_rng(seed)
    east, north = np.radians(lon), np.radians(lat)
    places = [np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)]
    X, total = EARTH_KM * np.stack(places, axis=-1), np.zeros(np.shape(lon))
    for lengthscale, deviation in scales.items():
        # a Student-t spectrum with 5 degrees of freedom is that of Matérn-5/2
        frequencies = rng.standard_normal((3, WAVES)) / np.sqrt(rng.chisquare(5, WAVES) / 5)
        phases = rng.uniform(0, 2 * np.pi, WAVES)
        waves = np.cos(X @ (frequencies / lengthscale) + phases)
        total += deviation * np.sqrt(2 / WAVES) * waves.sum(axis=-1)
    return total


def band(lon: np.ndarray, lat: np.ndarray, i: int) -> dict[str, np.ndarray]:
    """Return what is true, measured and known of the errors on some latitudes."""
    east, north = np.meshgrid(lon, lat)
    truth = 15 + field(east, north, {3000.0: 2.0, 600.0: 1.0}, seed=7)
    cloud = field(east, north, {1500.0: 1.0, 400.0: 0.5}, seed=8)
    error = 0.2 * np.exp(np.clip(cloud + 1, 0, 2))  # larger beside clouds
    seen = (cloud < 0.8) & ((east + 25 * np.sin(np.radians(1.3 * north))) % 24 > 5)
    noise = error * np.random.default_rng((1, i)).standard_normal(truth.shape)
    return {
        "temperature": np.where(seen, truth + noise, np.nan),
        "error": np.where(seen, error, np.nan),
        "truth": truth,
    }


def write_grid(path: Path, resolution: float) -> int:
    """Write the grid, band by band; return the number of cells that were measured."""
    edge = resolution / 2
    lat, lon = np.arange(-90 + edge, 90, resolution), np.arange(-180 + edge, 180, resolution)
    measured = 0
    for i, start in enumerate(range(0, len(lat), BAND)):
        some = lat[start : start + BAND]
        values = band(lon, some, i)
        grid = xr.Dataset(
            {name: (("lat", "lon"), part, {"units": "degC"}) for name, part in values.items()},
            {
                "lat": ("lat", some, {"standard_name": "latitude", "units": "degrees_north"}),
                "lon": ("lon", lon, {"standard_name": "longitude", "units": "degrees_east"}),
            },
        ).chunk(lat=BAND, lon=len(lon))
        more = {"append_dim": "lat"} if i else {}
        grid.to_zarr(path, consolidated=False, **more)
        measured += int(np.isfinite(values["temperature"]).sum())
    return measured


def scores(grid: xr.Dataset, mean: xr.DataArray, std: xr.DataArray) -> dict[str, float]:
    """Return how far measurements and map are from the truth, and what the intervals cover."""
    seen, missed = grid.temperature.notnull(), mean - grid.truth
    inside = abs(missed) < 1.96 * std
    found = {
        "cells": seen.size,
        "measured": seen.sum(),
        "rmse_of_measurements": ((grid.temperature - grid.truth) ** 2).mean() ** 0.5,
        "rmse_where_measured": (missed**2).where(seen).mean() ** 0.5,
        "rmse_in_gaps": (missed**2).where(~seen).mean() ** 0.5,
        "std_in_gaps": (std**2).where(~seen).mean() ** 0.5,
        "coverage_95_where_measured": inside.where(seen).mean(),
        "coverage_95_in_gaps": inside.where(~seen).mean(),
    }
    return {name: float(value) for name, value in xr.Dataset(found).compute().items()}


def print_scores(found: dict[str, float], console: Console) -> None:
    """Print the scores as a table."""
    table = Table(title="against the truth, in °C")
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), f"{value:,.0f}" if value > 10 else f"{value:.3f}")
    console.print(table)


@click.command()
@click.option("--resolution", default=0.5, show_default=True, help="Degrees between cells.")
@click.option("--neighbours", default=30, show_default=True, help="Neighbours of a row in the fit.")
@click.option("--workers", default=2, show_default=True, help="Worker processes.")
@click.option("--memory", default="2GiB", show_default=True, help="Memory limit of a worker.")
@click.option("--folder", default="demo_output", show_default=True, type=Path)
def main(resolution: float, neighbours: int, workers: int, memory: str, folder: Path) -> None:
    """Run the demo."""
    console, began = Console(stderr=True), time.perf_counter()
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)

    def say(text: str) -> None:
        console.print(f"[{time.perf_counter() - began:6.1f} s] {text}", highlight=False)

    say(f"writing a grid of {resolution}° to {folder}/grid.zarr")
    measured = write_grid(folder / "grid.zarr", resolution)
    say(f"converting the {measured:,} cells that were measured")
    daskgp.convert(folder / "grid.zarr", folder / "train.zarr", target="temperature", y_std="error")
    with daskgp.connect(n_workers=workers, memory_limit=memory):
        X, y = daskgp.open_dataset(folder / "train.zarr")  # with its errors, and on the globe
        model = daskgp.VecchiaGP(kernels.Matern52(), n_neighbours=neighbours)
        needs = model.plan(X, y)
        say(f"fitting VecchiaGP: {needs.tasks} tasks, {needs.bytes_per_task / 2**20:.0f} MiB each")
        model.fit(X, y)
        console.print(str(model.hyperparameters_), highlight=False)
        say(f"fitted {model.n_rows_:,} rows; predicting every cell into {folder}/map.zarr")
        model.predict_store(folder / "grid.zarr", folder / "map.zarr")
        grid, done = (
            xr.open_zarr(folder / name, consolidated=False) for name in ("grid.zarr", "map.zarr")
        )
        found = scores(grid, done["mean"], done["std"])
    found["seconds"] = time.perf_counter() - began
    print_scores(found, console)
    plot.posterior_map(
        observed=grid.temperature,
        truth=grid.truth,
        mean=done["mean"],
        std=done["std"],
        label="temperature (°C)",
        title="A field on the globe from measurements with gaps and known errors",
        path=folder / "figure.png",
    )
    say(f"figure: {folder / 'figure.png'}")
    print(json.dumps({name: round(value, 6) for name, value in found.items()}))


if __name__ == "__main__":
    main()
