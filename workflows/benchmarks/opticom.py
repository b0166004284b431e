"""Sparse grids: optimal coefficients against those of the plain combination technique.

    python workflows/benchmarks/opticom.py [--levels 1,2,3] [--parts griewank,features]

``griewank``, the experiment of Figure 1 in the paper on optimal weights ([OPT]): the Griewank
function in two dimensions, a Matérn-3/2 kernel, 2,000 training and 1,000 test points, levels 1 to
7, ten lengthscales from 0.2 to 2.0, hyper-parameters fixed.  The paper leaves open, and here it is:
the domain [-5, 5]², scaled to the unit square, whose units are those of the lengthscales; prior
variance 1, noise with a standard deviation of 0.1, known to the model; the function less its mean
over the rows.  Errors are root mean squares at the test points against the function without noise,
averaged over draws of the data, ± their deviation over lengthscales.  Seconds are of the processor
on one BLAS thread: the sums over rows, which all methods share, and what each adds for means at the
test points and variances.

``features``: a smooth function of two to six features, 4,000 rows, hyper-parameters trained, beside
``SGPR`` with the same points, and with as many chosen greedily from the rows.
"""

import time

import datasets
import harness
import numpy as np
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels, metrics
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta

NOISE = 0.1
LENGTHSCALES = tuple(np.round(np.arange(0.2, 2.01, 0.2), 1).tolist())
METHODS = ("combination", "projection", "paper", "sgpr")
SIZES = ((2, 4), (2, 6), (3, 4), (3, 5), (4, 4), (6, 3))
"""Features and level."""


def keys(options: harness.Options) -> harness.Keys:
    if "griewank" in options.parts:
        yield from harness.runs(options, "rows draws", part=["griewank"], level=options.levels)
    for features, level in ((3, 3),) if options.tiny else SIZES:
        if "features" in options.parts:
            sizes = {"level": level, "features": features, "rows": 2 * options.rows}
            yield {"part": "features", **sizes}


def measure(key: dict, options: harness.Options) -> dict:
    if key["part"] == "features":
        return trained(key["rows"], key["features"], key["level"])
    scales = (0.4, 1.2) if options.tiny else LENGTHSCALES
    data = [draw(key["rows"], seed) for seed in range(key["draws"])]
    Z, level = sparse_grid.build(2, key["level"]).points, key["level"]
    with threadpool_limits(1):
        runs = [
            [solved(Theta(kernels.Matern32(scale), NOISE**2, Z), level, *each) for each in data]
            for scale in scales
        ]
    by_scale = {name: [np.mean([r[name] for r in own]) for own in runs] for name in runs[0][0]}
    row = {name: float(np.mean(means)) for name, means in by_scale.items()}
    row |= {f"{name}_spread": float(np.std(by_scale[name])) for name in METHODS}
    row["right_sides"] = max(run["right_sides"] for own in runs for run in own)
    return {"points": len(Z), "grids": len(sparse_grid.multi_indices(2, level)), **row}


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
    found, weights, means = {"sums_s": time.process_time() - began}, {}, {}
    for name in METHODS:
        method, began = shared if name == "sgpr" else OptiCom(level, name), time.process_time()
        state = method.posterior(prepared, total)
        means[name] = method.predict(theta, state, test.X).mean
        found[f"{name}_s"] = time.process_time() - began
        found[name] = float(np.sqrt(np.mean((means[name] - test.y) ** 2)))
        weights[name] = getattr(state, "coefficients", np.ones(1))
    found["right_sides"] = float(np.abs(weights["projection"] - weights["paper"]).max())
    for name in ("projection", "combination"):
        found[f"{name}_apart"] = float(np.sqrt(np.mean((means[name] - means["sgpr"]) ** 2)))
    return found


def trained(n: int, d: int, level: int) -> dict[str, float]:
    """Return the errors of methods that are trained on a smooth function in a cube."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n + n // 2, d))
    f = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1]) + (X**2).mean(axis=1)
    y = f[:n] + 0.05 * rng.standard_normal(n)
    shared = {"max_iter": 30, "progress": False}
    optimal = daskgp.OptiComGP(level=level, **shared).fit(X[:n], y)
    models = {
        "projection": optimal,
        "combination": daskgp.OptiComGP(level=level, weights="combination", **shared),
        "sgpr": daskgp.SGPR(inducing=optimal.grid_, **shared),
        "greedy": daskgp.SGPR(n_inducing=len(optimal.grid_), **shared),
    }
    for model in list(models.values())[1:]:
        model.fit(X[:n], y)
    errors = {name: float(metrics.rmse(f[n:], m.predict(X[n:]))) for name, m in models.items()}
    return {"points": len(optimal.grid_), "grids": len(optimal.levels_), **errors}


def table(records: list[dict], options: harness.Options) -> str:
    """Return errors of both parts, then the spread and seconds of the first, a line per level."""
    names = [f"{name}_spread" for name in METHODS]
    names += ["right_sides", "sums_s", "combination_s", "projection_s", "sgpr_s"]
    lines = [
        [str(row["key"]["level"]), *(f"{row[name]:.2g}" for name in names)]
        for row in records
        if "right_sides" in row
    ]
    numbers = "points grids combination projection sgpr greedy"
    errors = harness.report(records, "features level", numbers)
    return f"{errors}\n\n{harness.markdown(['level', *names], lines)}"


harness.command(
    globals(),
    parts=("griewank", "features"),
    levels=([1, 2, 3, 4, 5, 6, 7], [2, 4]),
    rows=(2_000, 300),
    draws=(5, 1),
)
