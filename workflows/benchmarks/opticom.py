"""Sparse grids: optimal coefficients against those of the plain combination technique.

    python workflows/benchmarks/opticom.py [--levels 1,2,3]

The experiment of Figure 1 in the paper on optimal weights ([OPT]): the Griewank function in two
dimensions, a Matérn-3/2 kernel, 2,000 training and 1,000 test points, levels 1 to 7, ten
lengthscales from 0.2 to 2.0, hyper-parameters fixed.  The paper leaves open, and here it is: the
domain [-5, 5]², scaled to the unit square, whose units are those of the lengthscales; prior
variance 1, noise with a standard deviation of 0.1, known to the model; the function less its mean
over the rows.  Errors are root mean squares at the test points against the function without noise,
averaged over draws of the data.  Seconds are of the processor on one BLAS thread: the sums over
rows, which all methods share, and what each adds for means at the test points and variances.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import datasets
import harness
import numpy as np
from threadpoolctl import threadpool_limits

from daskgp import kernels
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta

NOISE = 0.1
LENGTHSCALES = tuple(np.round(np.arange(0.2, 2.01, 0.2), 1).tolist())
METHODS = {
    "combination": "combination technique",
    "projection": "OptiCom",
    "paper": "OptiCom, paper's right side",
    "sgpr": "sparse GP, all points",
}


def keys(options: harness.Options) -> Iterator[dict]:
    for level in options.levels:
        yield {"level": level, "rows": options.rows, "draws": options.draws}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the means over lengthscales and draws of one level, and the spread of the former."""
    scales = (0.4, 1.2) if options.tiny else LENGTHSCALES
    data = [draw(key["rows"], seed) for seed in range(key["draws"])]
    Z = sparse_grid.build(2, key["level"]).points
    with threadpool_limits(1):
        each = [
            [solved(Theta(kernels.Matern32(ell), NOISE**2, Z), key["level"], *d) for d in data]
            for ell in scales
        ]
    runs = [run for of_scale in each for run in of_scale]
    row: dict[str, Any] = {
        "points": len(Z),
        "grids": len(sparse_grid.multi_indices(2, key["level"])),
    }
    for name in runs[0]:
        row[name] = float(np.mean([run[name] for run in runs]))
    row["right_sides"] = max(run["right_sides"] for run in runs)
    for name in METHODS:
        means = [np.mean([run[name] for run in of_scale]) for of_scale in each]
        row[f"{name}_spread"], row[f"{name}_each"] = float(np.std(means)), list(map(float, means))
    return row


def draw(rows: int, seed: int) -> tuple[Block, Block]:
    """Draw training rows with noise and half as many test places without, in the unit square."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows + rows // 2, 2))
    f = datasets.griewank(10 * X - 5)[:, None]
    f -= f[:rows].mean()
    y = f[:rows] + NOISE * rng.standard_normal((rows, 1))
    return Block(X[:rows], y), Block(X[rows:], f[rows:])


def solved(theta: Theta, level: int, train: Block, test: Block) -> dict[str, float]:
    """Return errors and seconds of all methods, which share the sums over rows."""
    shared, began = SGPR(), time.process_time()
    prepared = shared.prepare(theta)
    total = shared.local(prepared, train)
    found = {"sums_s": time.process_time() - began}
    methods = {name: OptiCom(level, name) for name in METHODS if name != "sgpr"}
    means, weights = {}, {}
    for name, method in {**methods, "sgpr": shared}.items():
        began = time.process_time()
        state = method.posterior(prepared, total)
        means[name] = method.predict(theta, state, test.X).mean
        found[f"{name}_s"] = time.process_time() - began
        found[name] = float(np.sqrt(np.mean((means[name] - test.y) ** 2)))
        weights[name] = getattr(state, "coefficients", np.ones(1))
    found["right_sides"] = float(np.abs(weights["projection"] - weights["paper"]).max())
    for name in ("projection", "combination"):
        found[f"{name}_apart"] = float(np.sqrt(np.mean((means[name] - means["sgpr"]) ** 2)))
    return found


def table(records: list[dict], options: harness.Options) -> str:
    """Return errors, their spread over lengthscales, and seconds, a line per level."""
    seconds = "seconds: sums, combination, OptiCom, sparse GP"
    heads = ["level", "points", "grids", *METHODS.values(), "right sides differ by", seconds]
    lines = []
    for row in (r for r in records if "points" in r):
        errors = (f"{row[name]:.3f} ± {row[f'{name}_spread']:.3f}" for name in METHODS)
        parts = ("sums", "combination", "projection", "sgpr")
        spent = ", ".join(f"{row[f'{part}_s']:.3f}" for part in parts)
        sizes = (f"{n:,}" for n in (row["key"]["level"], row["points"], row["grids"]))
        lines.append([*sizes, *errors, f"{row['right_sides']:.0e}", spent])
    return harness.markdown(heads, lines)


harness.command(globals(), levels=([1, 2, 3, 4, 5, 6, 7], [2, 4]), rows=(2_000, 300), draws=(5, 1))
