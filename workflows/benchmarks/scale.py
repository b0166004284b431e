"""Growth of time and memory with the rows, and the cost of Dask.

    python workflows/benchmarks/scale.py [--rows 100000,1000000,10000000]

For each number of rows: a dataset in Zarr on disk, a local cluster, and the seconds per value and
gradient of SGPR's bound (two passes) in a short training.  Then, at one size, the same on one
worker beside a loop over the same chunks in one process without Dask.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import datasets
import harness
import numpy as np
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta

FEATURES, CHUNK = 3, 32_768


def keys(options: harness.Options) -> Iterator[dict]:
    for rows in sorted(options.rows):
        yield {"part": f"{options.threads} workers", "rows": rows}
    for part in ("1 worker", "loop"):
        yield {"part": part, "rows": options.overhead_rows}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds of one value and gradient."""
    path = options.folder / f"scale-{key['rows']}.zarr"
    if not path.exists():
        datasets.write_drawn(path, datasets.sines, key["rows"], FEATURES, CHUNK)
    X, y = daskgp.open_dataset(str(path))
    Z = np.random.default_rng(0).uniform(-2, 2, (64 if options.tiny else 512, FEATURES))
    theta = Theta(kernels.Matern32(lengthscale=(1.0,) * FEATURES), 0.05, Z)
    if key["part"] == "loop":
        with threadpool_limits(1):
            return {"value_s": harness.best_of(3, lambda: loop(theta, X, y))[0]}
    with daskgp.connect(n_workers=int(key["part"].split()[0])):
        model = daskgp.SGPR(
            theta.kernel,
            noise_variance=theta.noise_variance,
            inducing=Z,
            train_inducing=True,
            mean="zero",
            standardize=False,
            optimizer="l-bfgs",
            tol=1e-12,
            max_iter=3,
            progress=False,
        ).fit(X, y)
    return {"value_s": harness.evaluation_seconds(model)}


def loop(theta: Theta, X: Any, y: Any) -> float:
    """Evaluate the bound and its gradient chunk by chunk."""
    model, edges = SGPR(), [0, *np.cumsum(X.chunks[0])]

    def blocks() -> Iterator[Block]:
        for start, stop in pairwise(edges):
            rows, targets = (np.asarray(part[start:stop]) for part in (X, y))
            yield Block(rows, targets[:, None])

    prepared = model.prepare(theta)
    total = reduce(model.combine, (model.local(prepared, block) for block in blocks()))
    objective = model.objective(prepared, total)
    gradient = objective.gradient.to_vector(True)
    for block in blocks():
        gradient += model.local_vjp(prepared, block, objective.cotangent).to_vector(True)
    return float(gradient @ gradient)


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and memory against rows, their growth, and the ratio to the plain loop."""
    records = [{**r, "rate": r["key"]["rows"] / r["value_s"]} for r in records if "value_s" in r]
    by_part = {part: runs for (part,), runs in harness.grouped(records, "part").items()}
    alone, on_dask = by_part.pop("loop", []), by_part.pop("1 worker", [])
    lines = [harness.report(records, "part rows", "value_s rate peak_mib"), ""]
    for part, runs in by_part.items():
        lines.append(f"{part}: log-log slope of time {harness.slope(runs, 'rows', 'value_s')}")
        if len(runs) > 1:
            ratio = runs[-1]["peak_mib"] / runs[-2]["peak_mib"]
            lines.append(f"memory from the last but one size to the last: {ratio:.2f} times")
    if alone and on_dask:
        ratio = on_dask[-1]["value_s"] / alone[-1]["value_s"]
        lines.append(f"one worker against the loop without Dask: ratio {ratio:.3f}")
    return "\n".join(lines)


harness.command(
    globals(),
    rows=([100_000, 1_000_000, 10_000_000], [4_000, 12_000]),
    overhead_rows=(1_000_000, 12_000),
)
