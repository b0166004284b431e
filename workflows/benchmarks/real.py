"""Real data from the command line: convert, fit, predict and score, as a user would.

    DASKGP_DATA=folder python workflows/benchmarks/real.py [satellite] [kin40k]

The folder holds ``spatial/satellite.npz`` (columns lon, lat, mask_temp, true_temp; the land-surface
temperatures of Heaton et al. 2019) and ``uci/kin40k.npz`` (X, y, test_mask; split 0 is used).
Scores are in the units of the data; rmse and nlpd are also given for the standardised target.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

SETTINGS = {
    "satellite": ("kernel=matern12()", "n_inducing=1024", "train_inducing=true", "max_iter=30"),
    "kin40k": (
        "kernel=matern32(ard=true)",
        "n_inducing=1024",
        "train_inducing=true",
        "max_iter=200",
    ),
}
FEATURES = {"satellite": "lon,lat", "kin40k": ""}


def split(name: str, data: Path, folder: Path) -> float:
    """Write train.npz and test.npz; the standard deviation of the training target."""
    if name == "satellite":
        found = np.load(data / "spatial" / "satellite.npz")
        columns = {key: found[key].ravel() for key in ("lon", "lat", "mask_temp", "true_temp")}
        train = np.isfinite(columns["mask_temp"])
        test = np.isfinite(columns["true_temp"]) & ~train
        for part, rows in (("train", train), ("test", test)):
            picked = {key: columns[key][rows] for key in ("lon", "lat")}
            np.savez(folder / f"{part}.npz", y=columns["true_temp"][rows], **picked)
        return float(columns["true_temp"][train].std())
    found = np.load(data / "uci" / f"{name}.npz")
    test = found["test_mask"][:, 0].astype(bool)
    for part, rows in (("train", ~test), ("test", test)):
        np.savez(folder / f"{part}.npz", X=found["X"][rows], y=found["y"][rows])
    return float(found["y"][~test].std())


def run(folder: Path, *arguments: str) -> dict:
    """One daskgp command in a folder; what it printed as JSON, with its seconds."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "daskgp.cli", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"daskgp {arguments[0]} failed")
    last = done.stdout.strip().splitlines()[-1]
    found = json.loads(last) if last.startswith("{") else {}
    return {**found, "wall": time.perf_counter() - began}


def measure(name: str, data: Path) -> dict:
    """The score of one dataset, with the seconds of each command."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        scale = split(name, data, folder)
        names = ("--features", FEATURES[name]) if FEATURES[name] else ()
        for part in ("train", "test"):
            run(folder, "convert", f"{part}.npz", f"{part}.zarr", "--target", "y", *names)
        settings = [word for setting in SETTINGS[name] for word in ("--set", setting)]
        fit = run(folder, "fit", "train.zarr", "model.zarr", "--model", "sgpr", *settings)
        predict = run(folder, "predict", "model.zarr", "test.zarr", "out.zarr")
        score = run(folder, "score", "model.zarr", "test.zarr")
    return {
        "data": name,
        **{key: value for key, value in score.items() if key not in ("seconds", "wall")},
        "rmse_std": score["rmse"] / scale,
        "nlpd_std": score["nlpd"] - np.log(scale),
        "fit_s": fit["wall"],
        "predict_s": predict["wall"],
    }


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SETTINGS)))
def main(names: tuple[str, ...]) -> None:
    """Run the commands on real data and print the scores."""
    data = os.environ.get("DASKGP_DATA")
    if not data:
        raise click.UsageError("set DASKGP_DATA to the folder with spatial/ and uci/")
    table = Table(title="SGPR from the command line, m = 1024")
    rows = [measure(name, Path(data)) for name in names or SETTINGS]
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "data" else "right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.4g}" for v in row.values()))
    Console(width=160).print(table)
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
