"""Sparse grids: optimal coefficients against those of the plain combination technique.

    python workflows/benchmarks/opticom.py [--quick] [--only griewank] [--figure opticom.png]

``griewank``: the experiment of Figure 1 in the paper on optimal weights ([OPT]): the Griewank
function in two dimensions, a Matérn-3/2 kernel, 2,000 training and 1,000 test points, levels 1 to
7, ten lengthscales from 0.2 to 2.0, hyper-parameters fixed.  The paper leaves open, and here it is:
the domain [-5, 5]², scaled to the unit square, whose units are those of the lengthscales; prior
variance 1, noise with a standard deviation of 0.1, known to the model; the function less its mean
over the rows.  Errors are root mean squares at the test points against the function without noise.
All is averaged over a few draws of the data.  Seconds are of the processor on one BLAS thread: the
sums over rows, which all methods share, and then what each adds for the means at the test points,
with what variances need.

``features``: a smooth function of two to six features in a cube, hyper-parameters trained, beside
sparse GPs with the same points and with as many chosen greedily from the rows.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import kernels, metrics
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta
from daskgp.plot import curves
from daskgp.runtime.process import single_blas_thread

SIZES = ((2, 4), (2, 6), (3, 4), (3, 5), (4, 4), (6, 3))
"""Features and level."""
LENGTHSCALES = tuple(np.round(np.arange(0.2, 2.01, 0.2), 1).tolist())
METHODS = {
    "combination": "combination technique",
    "projection": "OptiCom",
    "paper": "OptiCom, paper's right side",
    "sgpr": "sparse GP, all points",
}


def griewank(X: np.ndarray) -> np.ndarray:
    """The function of Griewank (1981) on the rows of X (n, d)."""
    waves = np.cos(X / np.sqrt(np.arange(1, X.shape[1] + 1)))
    return 1 + (X**2).sum(axis=1) / 4000 - waves.prod(axis=1)


def draw(rows: int, places: int, noise: float, seed: int) -> tuple[Block, Block]:
    """Training rows with noise and test places without, in the unit square."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows + places, 2))
    f = griewank(10 * X - 5)[:, None]
    f -= f[:rows].mean()
    y = f[:rows] + noise * rng.standard_normal((rows, 1))
    return Block(X[:rows], y), Block(X[rows:], f[rows:])


def measure(theta: Theta, level: int, train: Block, test: Block) -> dict[str, Any]:
    """Errors and seconds of all methods, which share the sums over rows."""
    methods = {w: OptiCom(level, w) for w in ("combination", "projection", "paper")}
    shared = SGPR()
    began = time.process_time()
    prepared = shared.prepare(theta)
    total = shared.local(prepared, train)
    found: dict[str, Any] = {"sums_s": time.process_time() - began}
    means, weights = {}, {}
    for name, method in [*methods.items(), ("sgpr", shared)]:
        began = time.process_time()
        state = method.solve(prepared, total)
        means[name] = method.predict(theta, state, test.X).mean
        found[f"{name}_s"] = time.process_time() - began
        found[name] = float(np.sqrt(np.mean((means[name] - test.y) ** 2)))
        weights[name] = getattr(state, "coefficients", np.ones(1))
    gap = np.abs(weights["projection"] - weights["paper"]).max()
    apart = np.sqrt(np.mean((means["projection"] - means["sgpr"]) ** 2))
    plain = np.sqrt(np.mean((means["combination"] - means["sgpr"]) ** 2))
    return {**found, "right_sides": float(gap), "apart": float(apart), "apart_plain": float(plain)}


def measure_level(
    level: int, lengthscales: tuple[float, ...], noise: float, data: list[tuple[Block, Block]]
) -> dict[str, Any]:
    """One level: means over lengthscales and draws, and the spread over lengthscales."""
    Z = sparse_grid.build(2, level).points
    each = [
        [measure(Theta(kernels.Matern32(ell), noise**2, Z), level, *pair) for pair in data]
        for ell in lengthscales
    ]
    runs = [run for row in each for run in row]
    row: dict[str, Any] = {"level": level, "points": len(Z)}
    row["grids"] = len(sparse_grid.multi_indices(2, level))
    for key in runs[0]:
        row[key] = float(np.mean([run[key] for run in runs]))
    row["right_sides"] = max(run["right_sides"] for run in runs)
    for name in METHODS:
        by_scale = [np.mean([run[name] for run in of_scale]) for of_scale in each]
        row[f"{name}_spread"], row[f"{name}_each"] = float(np.std(by_scale)), by_scale
    return row


def report(results: list[dict[str, Any]], title: str) -> Table:
    """Errors, their spread over lengthscales, and seconds, a line a level."""
    table = Table(title=title)
    for heading in ("level", "points", "grids", *METHODS.values(), "right sides", "sums s"):
        table.add_column(heading, justify="right")
    table.add_column("solve s: CT, OptiCom, sparse GP", justify="right")
    for row in results:
        errors = (f"{row[name]:.4f} ± {row[f'{name}_spread']:.4f}" for name in METHODS)
        solves = (f"{row[f'{name}_s']:.4f}" for name in ("combination", "projection", "sgpr"))
        table.add_row(
            *(f"{row[key]:,}" for key in ("level", "points", "grids")),
            *errors,
            f"{row['right_sides']:.0e}",
            f"{row['sums_s']:.4f}",
            ", ".join(solves),
        )
    return table


def draw_figure(results: list[dict[str, Any]], path: str) -> None:
    """Error, its spread and seconds against the level."""
    shown = [name for name in METHODS if name != "paper"]
    panels = {
        label: {METHODS[name]: np.array([value(row, name) for row in results]) for name in shown}
        for label, value in {
            "RMSE": lambda row, name: row[name],
            "spread of the RMSE over lengthscales": lambda row, name: row[f"{name}_spread"],
            "CPU seconds": lambda row, name: row["sums_s"] + row[f"{name}_s"],
        }.items()
    }
    curves.tradeoff([row["level"] for row in results], panels, name="level", path=path)


# -- more features ---------------------------------------------------------------------------


def smooth(X: np.ndarray) -> np.ndarray:
    """Waves along the first and the last feature, and a bowl in all."""
    return np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1]) + (X**2).mean(axis=1)


def measure_features(d: int, level: int, rows: int, places: int) -> dict[str, Any]:
    """Errors of the trained methods on so many features."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows + places, d))
    y, truth = smooth(X[:rows]) + 0.05 * rng.standard_normal(rows), smooth(X[rows:])
    optimal = daskgp.OptiComGP(level=level, max_iter=30).fit(X[:rows], y)
    count = len(optimal.grid_)
    others = {
        "combination": daskgp.OptiComGP(level=level, weights="combination", max_iter=30),
        "sgpr": daskgp.SGPR(inducing=optimal.grid_, max_iter=30),
        "greedy": daskgp.SGPR(n_inducing=count, max_iter=30),
    }
    found = {"features": d, "level": level, "points": count}
    found["grids"] = len(optimal.levels_)
    found["projection"] = metrics.rmse(truth, optimal.predict(X[rows:]))
    for name, model in others.items():
        found[name] = metrics.rmse(truth, model.fit(X[:rows], y).predict(X[rows:]))
    return found


def report_features(results: list[dict[str, Any]], title: str) -> Table:
    """Errors, a line a grid."""
    table, methods = Table(title=title), {**METHODS, "greedy": "sparse GP, as many, greedy"}
    del methods["paper"]
    sizes = ("features", "level", "points", "grids")
    for heading in (*sizes, *methods.values()):
        table.add_column(heading, justify="right")
    for row in results:
        table.add_row(*(f"{row[key]:,}" for key in sizes), *(f"{row[key]:.4f}" for key in methods))
    return table


@click.command()
@click.option("--only", multiple=True, type=click.Choice(["griewank", "features"]))
@click.option("--levels", default=7, show_default=True, help="Highest level.")
@click.option("--rows", default=2_000, show_default=True)
@click.option("--places", default=1_000, show_default=True)
@click.option("--noise", default=0.1, show_default=True, help="Standard deviation of the noise.")
@click.option("--draws", default=5, show_default=True, help="Draws of the data.")
@click.option("--quick", is_flag=True, help="Few levels, lengthscales and rows.")
@click.option("--figure", type=click.Path(dir_okay=False, path_type=Path))
def main(
    only: tuple[str, ...],
    levels: int,
    rows: int,
    places: int,
    noise: float,
    draws: int,
    quick: bool,
    figure: Path | None,
) -> None:
    """Measure and print the tables."""
    lengthscales, sizes, wide = LENGTHSCALES, SIZES, Console(width=180)
    if quick:
        levels, rows, places, draws = 4, 300, 200, 1
        lengthscales, sizes = (0.4, 1.2), ((3, 3),)
    if not only or "griewank" in only:
        data = [draw(rows, places, noise, seed) for seed in range(draws)]
        found = []
        with single_blas_thread():
            for level in range(1, levels + 1):
                found.append(measure_level(level, lengthscales, noise, data))
                print(json.dumps(found[-1]), flush=True)
        title = f"Griewank, {rows:,} rows, RMSE over {len(lengthscales)} lengthscales ± its spread"
        wide.print(report(found, title))
        if figure:
            draw_figure(found, str(figure))
    if not only or "features" in only:
        found = []
        for d, level in sizes:
            found.append(measure_features(d, level, 2 * rows, 2 * places))
            print(json.dumps(found[-1]), flush=True)
        wide.print(report_features(found, f"A smooth function, {2 * rows:,} rows, RMSE"))


if __name__ == "__main__":
    main()
