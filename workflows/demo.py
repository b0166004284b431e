"""The main job on an embedded cluster: a million rows in Zarr, fit, lazy prediction, score.

    python workflows/demo.py [--rows N] [--folder demo_output]

Makes a seeded field with structure at two scales, seen at scattered places with a gap; fits a
sparse GP to it; predicts places never seen, chunk by chunk, into Zarr; prints the score as a table
and as one line of JSON; and draws truth, mean and standard deviation.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import click
import dask
import dask.array as da
import numpy as np
import xarray as xr
import zarr
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import kernels, plot

NOISE = 0.3
"""Standard deviation of the measurements, in degrees."""


def field(X: np.ndarray, seed: int = 7) -> np.ndarray:
    """Return a smooth random field at X (n, 2), in degrees: broad structure and local structure.

    Each scale is a sum of random cosines with the spectrum of a Matérn-5/2 field.
    """
    rng = np.random.default_rng(seed)
    total = np.full(len(X), 15.0)
    for lengthscale, deviation in ((300.0, 4.0), (80.0, 1.5)):
        # a Student-t spectrum with 5 degrees of freedom is that of Matérn-5/2
        frequencies = rng.standard_normal((2, 200)) / np.sqrt(rng.chisquare(5, 200) / 5)
        phases = rng.uniform(0, 2 * np.pi, 200)
        waves = np.cos(X @ (frequencies / lengthscale) + phases)
        total += deviation * waves @ np.full(200, np.sqrt(2 / 200))
    return total


def places(rng: np.random.Generator, number: int, gap: bool) -> np.ndarray:
    """Places on a region of 1000 km by 600 km; ``gap`` leaves a disc without measurements."""
    X = rng.uniform((0, 0), (1000, 600), (number, 2))
    seen = np.hypot(X[:, 0] - 650, X[:, 1] - 350) > 90
    return X[seen] if gap else X


def write_dataset(path: Path, rows: int, chunk: int, seed: int, gap: bool) -> None:
    """Write a dataset store of ``rows`` measurements, made and written chunk by chunk."""
    group = zarr.create_group(str(path))
    X = group.create_array("X", shape=(rows, 2), chunks=(chunk, 2), dtype="f8")
    y = group.create_array("y", shape=(rows,), chunks=(chunk,), dtype="f8")
    group.attrs.update({"feature_names": ["east_km", "north_km"], "target_names": ["temperature"]})
    for i, start in enumerate(range(0, rows, chunk)):
        rng = np.random.default_rng((seed, i))
        size = min(chunk, rows - start)
        at = places(rng, 2 * size, gap)[:size]
        X[start : start + size] = at
        y[start : start + size] = field(at) + NOISE * rng.standard_normal(size)


def print_score(score: dict[str, float], console: Console) -> None:
    """Print the score as a table."""
    table = Table(title="100,000 places never seen" if score["n"] == 100_000 else "unseen places")
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in score.items():
        table.add_row(name, f"{value:,.0f}" if name == "n" else f"{value:.4g}")
    console.print(table)


def draw(folder: Path, model: daskgp.SGPR) -> Path:
    """Truth, mean and standard deviation on a grid, whose features are built block by block."""
    east, north = np.arange(0, 1001, 4.0), np.arange(0, 601, 4.0)
    named = [{"long_name": name, "units": "km"} for name in ("east", "north")]
    grid = xr.Dataset(
        coords={
            "east_km": ("east_km", east, named[0]),
            "north_km": ("north_km", north, named[1]),
        }
    )
    mean, std = model.predict(grid, return_std=True)
    X = np.stack(np.meshgrid(east, north, indexing="ij"), axis=-1).reshape(-1, 2)
    path = folder / "figure.png"
    plot.posterior_map(
        truth=mean.copy(data=field(X).reshape(mean.shape)),
        mean=mean,
        std=std,
        label="temperature (°C)",
        title="A field from a million noisy measurements with a gap",
        path=path,
    )
    return path


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Training rows.")
@click.option("--test-rows", default=100_000, show_default=True, help="Rows to predict.")
@click.option("--inducing", default=768, show_default=True, help="Inducing inputs.")
@click.option("--workers", default=2, show_default=True, help="Worker processes.")
@click.option("--memory", default="2GiB", show_default=True, help="Memory limit of a worker.")
@click.option("--folder", default="demo_output", show_default=True, type=Path)
def main(rows: int, test_rows: int, inducing: int, workers: int, memory: str, folder: Path) -> None:
    """Run the demo."""
    console = Console(stderr=True)
    began = time.perf_counter()
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)

    def say(text: str) -> None:
        console.print(f"[{time.perf_counter() - began:6.1f} s] {text}", highlight=False)

    say(f"writing {rows:,} measurements to {folder}/train.zarr")
    write_dataset(folder / "train.zarr", rows, max(1, rows // 20), seed=1, gap=True)
    write_dataset(folder / "test.zarr", test_rows, max(1, test_rows // 10), seed=2, gap=False)
    with daskgp.connect(n_workers=workers, memory_limit=memory):
        X, y = daskgp.open_dataset(folder / "train.zarr")
        model = daskgp.SGPR(
            kernel=kernels.Matern52(lengthscale=1.0) + kernels.Matern52(lengthscale=0.3),
            n_inducing=inducing,
            train_blocks=4,
            max_iter=25,
        )
        needs = model.plan(X, y)
        mebibytes = needs.bytes_per_task / 2**20
        say(f"fitting SGPR: {needs.tasks} tasks a round, {mebibytes:.0f} MiB each")
        model.fit(X, y)
        say(f"fitted {model.n_rows_:,} rows; predicting {test_rows:,} places into out.zarr")
        model.predict_store(folder / "test.zarr", folder / "out.zarr")
        _, y_test = daskgp.open_dataset(folder / "test.zarr")
        mean, variance = (
            da.from_zarr(str(folder / "out.zarr"), name) for name in ("mean", "variance")
        )
        score = {
            k: float(v)
            for k, v in dask.compute(daskgp.metrics.summary(y_test, mean, variance))[0].items()
        }
    truth = field(np.asarray(zarr.open_group(folder / "test.zarr")["X"]))
    score["rmse_of_truth"] = float(daskgp.metrics.rmse(truth, mean.compute()))
    score["seconds"] = time.perf_counter() - began
    print_score(score, console)
    say(f"figure: {draw(folder, model)}")
    print(json.dumps({name: round(value, 6) for name, value in score.items()}))


if __name__ == "__main__":
    main()
