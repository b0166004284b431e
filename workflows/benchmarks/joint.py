"""Show what joint targets bring to a sparse one: accuracy, coverage and the correlation found.

    python workflows/benchmarks/joint.py --out results.jsonl
    python workflows/benchmarks/joint.py --out results.jsonl --methods vecchia --seeds 20
    python workflows/benchmarks/joint.py --out results.jsonl --data three --methods vecchia
    python workflows/benchmarks/joint.py --out results.jsonl --table

``pair`` has two Matérn-3/2 fields of correlation 0.8 on the unit square, with noise: the first at
``rows`` places, the second at a tenth as many, half of them places of the first.  ``three`` has
three fields at all places, a third of their values missing at random, for time and memory.  Scores
are of f of the last target at new places.  ``joint`` trains a model of all targets, ``separate``
one of the last target alone, and ``known`` is the dense answer given the true parameters.

``stations`` has the lowest temperatures of a day and the next at stations in DASKGP_DATA, those of
the next day at one in eight: scores are of the others.  ``meuse`` has the logarithms of zinc and
lead in the soil at 155 places, which scikit-gstat ships, and lead at every third of these (Rossiter
2018).

``correlation`` is that of the last two targets, ``error`` its standard error, and ``within`` how
often the truth lies within 1.96 of these.
"""

import time
from typing import Any

import harness
import numpy as np
from datasets import kinds

import daskgp
from daskgp import kernels

LENGTH, NOISE, PLACES, AGAIN = 0.15, 0.05, 1_000, 0.5
MIXED = {
    "pair": np.array([[1.0, 0.8], [0.8, 1.0]]),
    "three": np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]]),
}
KERNEL = {
    "pair": "matern32()",
    "three": "matern32()",
    "stations": "matern32(ard=true)",
    "meuse": "matern12()",
}
MEASURED = ("stations", "meuse")
INDUCING = 1_500
OURS: dict[str, Any] = {
    "exact": daskgp.ExactGP,
    "sgpr": daskgp.SGPR,
    "lma": daskgp.LMA,
    "vecchia": daskgp.VecchiaGP,
}


def keys(options: harness.Options) -> harness.Keys:
    lists = {"data": options.data, "how": options.how, "method": options.methods}
    for key in harness.runs(options, "rows", **lists, seed=range(options.seeds)):
        if key["how"] != "known" or (key["data"] == "pair" and key["method"] == "exact"):
            yield key


def measure(key: dict, options: harness.Options) -> dict:
    rng, n = np.random.default_rng(key["seed"]), key["rows"]
    X, y, Z, f = DATA[key["data"]](n, rng)
    if key["how"] == "known":
        return scored(f, *known(X, y, Z))
    last, joint = y.shape[1] - 1, key["how"] == "joint"
    kept = np.isfinite(y).any(axis=1) if joint else np.isfinite(y[:, last])
    more = {"n_inducing": min(INDUCING, kept.sum())} if key["method"] == "sgpr" else {}
    how = {"targets": "joint" if joint else "separate", "mean": "ols", "progress": False}
    model = OURS[key["method"]](KERNEL[key["data"]], **how, **more)
    began = time.perf_counter()
    model.fit(X[kept], y[kept] if joint else y[kept, last])
    fitted = time.perf_counter()
    mean, std = model.predict(Z, return_std=True, include_noise=key["data"] in MEASURED)
    done = time.perf_counter()
    row = {"fit_s": fitted - began, "predict_s": done - fitted}
    if joint:
        mean, std = mean[:, last], std[:, last]
        name = f"correlation[y{last - 1},y{last}]"
        one = next(one for one in model.hyperparameters_ if one.name.endswith(name))
        row |= {"correlation": one.value, "error": one.standard_error}
        if key["data"] in MIXED:
            away = abs(one.value - MIXED[key["data"]][-2, -1])
            row["within"] = float(away < 1.96 * one.standard_error)
    return {**row, **scored(f, mean, std)}


def scored(f: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    inside = np.abs(mean - f) < 1.96 * std
    return {
        "rmse_f": float(np.sqrt(np.mean((mean - f) ** 2))),
        "coverage_f": float(inside.mean()),
    }


def pair(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return X, y with gaps, new places and f of the last target there."""
    few = max(n // 10, 10)
    new = int(few * (1 - AGAIN))
    X = rng.uniform(size=(n + new + PLACES, 2))
    f = fields(X, MIXED["pair"], rng)
    y = f + np.sqrt(NOISE) * rng.standard_normal(f.shape)
    y[few - new : n, 1] = np.nan
    y[n : n + new, 0] = np.nan
    return X[:-PLACES], y[:-PLACES], X[-PLACES:], f[-PLACES:, 1]


def three(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return the same of three targets at n places in a larger square, with a third missing."""
    X = rng.uniform(0.0, np.sqrt(n / 5_000), size=(n + PLACES, 2))
    f = fields(X, MIXED["three"], rng)
    y = f + np.sqrt(NOISE) * rng.standard_normal(f.shape)
    y[rng.uniform(size=y.shape) < 1 / 3] = np.nan
    return X[:-PLACES], y[:-PLACES], X[-PLACES:], f[-PLACES:, -1]


def fields(X: np.ndarray, mixed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    each = [kinds.field(X / LENGTH, rng, 1.0) for _ in mixed]
    return np.column_stack(each) @ np.linalg.cholesky(mixed).T


def known(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and spread of the last target at Z, given the true parameters."""
    kernel, mixed = kernels.Matern32(LENGTH), MIXED["pair"]
    at, of = np.nonzero(np.isfinite(y))
    C = kernel(X)[np.ix_(at, at)] * mixed[np.ix_(of, of)] + NOISE * np.eye(len(at))
    cross = kernel(Z, X)[:, at] * mixed[-1, of]
    solved = np.linalg.solve(C, np.column_stack([y[at, of], cross.T]))
    mean, taken = cross @ solved[:, 0], np.einsum("ij,ji->i", cross, solved[:, 1:])
    return mean, np.sqrt(mixed[-1, -1] - taken)


DATA = {"pair": pair, "three": three, "stations": kinds.days, "meuse": kinds.metals}

table = harness.reporting(
    "data how method n",
    "rmse_f coverage_f correlation error within fit_s predict_s processor_s peak_mib runs",
)
harness.command(
    globals(),
    data=harness.Some(tuple(DATA), ("pair",)),
    how=("known", "joint", "separate"),
    methods=harness.Some(tuple(OURS), ("exact", "vecchia")),
    seeds=(1, 1),
    rows=(5_000, 100),
)
