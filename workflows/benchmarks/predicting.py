"""Places that each method predicts per second, with variances, and what a chunk of a graph costs.

    python workflows/benchmarks/predicting.py [--parts map,scattered] [--methods sgpr,lma]

Rows are drawn in the unit square, with hyper-parameters given.  Places are in memory and predicted
on threads, after a first time; means and standard deviations.  CGGP has no variances:
its means cost as much as those of CaGP.

- ``map``: places of a square grid, row by row.
- ``scattered``: as many random places, an eighth for methods that keep rows (LMA, PIC).
- ``graph``: a Dask array of so many chunks, of a place each, through a lazy prediction of SGPR with
  16 inducing inputs; beside the same array through a function that returns ones.
"""

import time
from functools import partial
from typing import Any

import dask
import dask.array as da
import datasets
import harness
import numpy as np

import daskgp

PARTS, PLAIN = ("map", "scattered", "graph"), {"optimizer": None, "noise_variance": 0.1}
FEW = 4_000
"""Rows of a method that factors all rows."""
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgpr": (daskgp.SGPR, {"n_inducing": 512, **PLAIN}),
    "svgp": (daskgp.SVGP, {"n_inducing": 512, "max_iter": 30}),
    "decoupled": (daskgp.DecoupledGP, {"n_mean": 2_048, "n_covariance": 512, "max_iter": 30}),
    "ssgp": (daskgp.SparseSpectrumGP, {"n_spectral": 256, **PLAIN}),
    "experts": (daskgp.ExpertsGP, {"n_experts": 8, "n_inducing": 256, **PLAIN}),
    "opticom": (daskgp.OptiComGP, {"level": 5, **PLAIN}),
    "cagp": (daskgp.CaGP, {"n_actions": 256, **PLAIN}),
    "exact": (daskgp.ExactGP, PLAIN),
    "lma": (daskgp.LMA, PLAIN),
    "pic": (daskgp.PIC, PLAIN),
}
ROWS = {"exact": FEW}
NEARBY = ("lma", "pic")


def keys(options: harness.Options) -> harness.Keys:
    for part in options.parts:
        if part == "graph":
            yield from harness.runs(options, part=[part], method=["sgpr"], chunks=options.chunks)
        else:
            methods = [name for name in METHODS if name in options.methods]
            yield from harness.runs(options, "rows places", part=[part], method=methods)


def measure(key: dict, options: harness.Options) -> dict:
    with dask.config.set(num_workers=options.threads):
        if key["part"] == "graph":
            return graph(key["chunks"])
        name, places = key["method"], key["places"]
        X, y = datasets.rough(min(key["rows"], ROWS.get(name, key["rows"])), 2)
        model = fitted(name, X, y)
        if key["part"] == "map":
            side = int(places**0.5)
            across, up = np.meshgrid(*[np.linspace(0, 1, side)] * 2)
            at = np.column_stack([across.ravel(), up.ravel()])
        else:
            number = places // 8 if name in NEARBY else places
            at = np.random.default_rng(7).uniform(size=(number, 2))
        predict = partial(model.predict, at, return_std=True)
        seconds, (_, std) = harness.best_of(1, predict)
    return {"n": len(y), "places": len(at), "rate": len(at) / seconds, "std": float(std.mean())}


def fitted(name: str, X: np.ndarray, y: np.ndarray) -> Any:
    kind, settings = METHODS[name]
    kernel = daskgp.kernels.Matern32(lengthscale=(0.058, 0.058))
    settings = harness.lowered(settings, len(y) // 2)
    return kind(kernel, progress=False, **settings).fit(X, y)


def graph(chunks: int) -> dict:
    """Return the seconds of making and of computing a graph, and those of another on its array."""
    rows = datasets.smooth(500, 2)
    model = daskgp.SGPR("rbf(lengthscale=1.0)", n_inducing=16, progress=False, **PLAIN).fit(*rows)
    X = da.zeros((chunks, 2), chunks=(1, 2))
    began = time.perf_counter()
    mean, std = model.predict(X, return_std=True)
    made = time.perf_counter()
    dask.compute(mean, std)
    done = time.perf_counter()
    ones = da.map_blocks(lambda x: np.ones(len(x)), X, drop_axis=1, dtype=float, meta=np.ones(0))
    plain = harness.seconds_of(ones.compute)
    times = {"made_ms": made - began, "computed_ms": done - made, "plain_ms": plain}
    return {name: 1e3 * seconds / chunks for name, seconds in times.items()}


def table(records: list[dict], options: harness.Options) -> str:
    rates = [record for record in records if record["key"]["part"] != "graph"]
    graphs = [record for record in records if record["key"]["part"] == "graph"]
    shown = harness.tables(rates, "rate peak_mib", {"method": tuple(METHODS)}, part=PARTS[:2])
    return f"{shown}\n\n{harness.report(graphs, 'chunks', 'made_ms computed_ms plain_ms peak_mib')}"


harness.command(
    globals(),
    parts=PARTS,
    methods=METHODS,
    rows=(50_000, 400),
    places=(160_000, 256),
    chunks=([1_000, 10_000], [20]),
)
