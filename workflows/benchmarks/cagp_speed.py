"""Time of a value and gradient of CaGP's bound, beside automatic differentiation by PyTorch.

    python workflows/benchmarks/cagp_speed.py [--rows 36000] [--methods daskgp]

The evidence lower bound, [CAGP] eq. 11, with its gradient by kernel parameters, noise and every
entry of the sparse actions, float64; daskgp's seconds are those per evaluation in a short training,
and where it ends the bound is compared with PyTorch's.  "gradient" compares gradients on few rows,
daskgp's by its mathematics without Dask.  PyTorch goes through blocks of rows that are computed
again in the backward pass; "torch compiled" fuses the passes over a tile.  The floor is the time of
2 n² kernel entries at the rate at which ``kernel(X, Z, out=)`` fills the best of some shapes of
tiles on all threads: no products with actions, no gradient.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import harness
import numpy as np
from peers import torch
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels
from daskgp.kernels.weights import Weights
from daskgp.models.actions.cagp import CaGP, Panel, functions
from daskgp.models.values import Block, Theta

METHODS = ("daskgp", "gradient", "torch", "torch compiled")
TILES = (64, 512), (256, 1_024), (512, 2_048), (2_048, 2_048)
AGREES = 1e-6


def keys(options: harness.Options) -> Iterator[dict]:
    sizes = {name: getattr(options, name) for name in ("rows", "features", "actions")}
    for method in ("floor", *options.methods):
        yield {"method": method, **sizes}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds of one method, and how far it is from daskgp."""
    n, d = key["rows"], key["features"]
    if key["method"] == "floor":
        rate = max(tile_rate(shape, d, options) for shape in TILES)
        return {"value_s": 2 * n**2 / rate, "rate": rate}
    X, y = datasets.smooth(n, d)
    if key["method"] == "gradient":
        return gradients(*datasets.smooth(min(n, 2_000), d), key["actions"])
    ours = options.folder / f"cagp-{n}-{d}-{key['actions']}.npz"
    if key["method"] == "daskgp":
        return with_daskgp(X, y, key["actions"], options.repeats, ours)
    with np.load(ours) as at:
        value, *parts = (at[name] for name in ("value", "weights", "owner", "logs", "log_noise"))
    evaluate = torch.cagp_bound(X, y, *parts, key["method"] == "torch compiled")
    seconds, (bound, _) = harness.best_of(options.repeats, evaluate)
    return {"value_s": seconds, "bound": bound, **compared(bound, value)}


def compared(theirs: np.ndarray, ours: np.ndarray) -> dict:
    """Return the largest difference over the largest entry, and if it is too large."""
    differs = float(np.max(np.abs(theirs - ours)) / np.max(np.abs(ours)))
    wrong = {} if differs < AGREES else {"failed": f"differs from daskgp by {differs:.0e}"}
    return {"differs": differs, **wrong}


def gradients(X: np.ndarray, y: np.ndarray, actions: int) -> dict:
    """Compare the gradients by all parameters and weights, all rows in one block."""
    kernel, model, n = kernels.Matern32(lengthscale=(2.0,) * X.shape[1]), CaGP(), len(y)
    t, log_noise, block = min(actions, n // 10), np.log(0.1), Block(X, y[:, None])
    owner = np.arange(n) * t // n
    weights = Weights(np.random.default_rng(1).uniform(0.5, 1.5, n), owner, t)
    theta, panels = Theta(kernel, 0.1, None), [Panel(X, weights)]
    F = functions(kernel, panels, X)
    factored = model.factor(0.1, model.at_points(F, block.y, weights))
    objective = model.objective(factored, model.at_rows(theta, block, F, factored))
    by_kernel, by_points, own = model.pull(theta, block, F, panels, objective.cotangent, weights)
    ours = np.concatenate([by_kernel, [objective.noise], by_points[0] + own])
    logs = np.array(kernel.log_parameters)
    return compared(torch.cagp_bound(X, y, weights.values, owner, logs, log_noise)()[1], ours)


def with_daskgp(X: np.ndarray, y: np.ndarray, actions: int, repeats: int, path: Path) -> dict:
    """Train for some iterations, and keep where that ended."""
    model = daskgp.CaGP(
        kernels.Matern32(lengthscale=(2.0,) * X.shape[1]),
        n_actions=actions,
        order=None,
        noise_variance=0.1,
        mean="zero",
        standardize=False,
        optimizer="l-bfgs",
        tol=1e-12,
        max_iter=repeats + 1,
        progress=False,
    ).fit(X, y)
    weights, last = model.actions_.tocsr(), model.history_[-1]
    np.savez(
        path,
        weights=weights.data,
        owner=weights.indices.astype(np.int64),
        logs=model.kernel_.log_parameters,
        log_noise=np.log(model.noise_variance_),
        value=last["objective"],
    )
    return {"value_s": harness.evaluation_seconds(model), "bound": last["objective"]}


def tile_rate(shape: tuple[int, int], features: int, options: harness.Options) -> float:
    """Return the kernel entries per second on all threads in tiles of a shape."""
    kernel, most = kernels.Matern32(lengthscale=(2.0,) * features), 0.1 if options.tiny else 2.0

    def fill(seed: int) -> int:
        rng = np.random.default_rng(seed)
        X, Z = (rng.standard_normal((size, features)) for size in shape)
        out, number, end = np.empty(shape), 0, time.perf_counter() + most
        while time.perf_counter() < end:
            kernel(X, Z, out=out)
            number += out.size
        return number

    with threadpool_limits(1), ThreadPoolExecutor(options.threads) as pool:
        began = time.perf_counter()
        total = sum(pool.map(fill, range(options.threads)))
        return total / (time.perf_counter() - began)


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and memory as ratios to daskgp and to the floor."""
    floor = next((r["value_s"] for r in records if r["key"]["method"] == "floor"), np.nan)
    for record in records:
        record["floor_s"] = floor
    harness.compare(records, "value_s")
    numbers = "value_s over_floor over_ours peak_mib memory_over_ours bound differs"
    return harness.report(records, "method rows actions", numbers)


harness.command(
    globals(), methods=METHODS, rows=(36_000, 600), features=(8, 3), actions=(512, 12), repeats=2
)
