"""Growth of time and memory with the rows, the cost of Dask, and what more workers bring.

    python workflows/benchmarks/scale.py [--rows 100000,1000000,10000000]

``growth``: for each number of rows a dataset in Zarr on disk, a local cluster, and the seconds per
value and gradient of SGPR's bound (two passes) in a short training.  ``cost``, at one size: the
same on one, two and four workers, beside a loop over the same chunks in one process without Dask,
which has 0 workers.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import datasets
import harness
import numpy as np
from peers import arrays
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta

FEATURES, CHUNK = 3, 32_768


def keys(options: harness.Options) -> harness.Keys:
    growing = {"workers": [options.threads], "rows": sorted(options.rows)}
    yield from harness.runs(options, part=["growth"], **growing)
    alike = {"workers": options.workers, "rows": [options.cost_rows]}
    yield from harness.runs(options, part=["cost"], **alike)


def measure(key: dict, options: harness.Options) -> dict:
    path = datasets.store(options.folder, datasets.sines, key["rows"], FEATURES, CHUNK)
    X, y = daskgp.open_dataset(path)
    Z = np.random.default_rng(0).uniform(-2, 2, (64 if options.tiny else 512, FEATURES))
    theta = Theta(kernels.Matern32(lengthscale=(1.0,) * FEATURES), 0.05, Z)
    if not key["workers"]:
        with threadpool_limits(1):
            return {"value_s": harness.best_of(3, lambda: loop(theta, X, y))[0]}
    with daskgp.connect(n_workers=key["workers"]):
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

    def blocks() -> Iterator[tuple[Block, tuple]]:
        for start, stop in pairwise([0, *np.cumsum(X.chunks[0])]):
            rows, targets = (np.asarray(part[start:stop]) for part in (X, y))
            yield Block(rows, targets[:, None]), ()

    return arrays.evaluated(SGPR(), theta, blocks)[0]


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and memory, their growth with the rows, and ratios to one worker."""
    records = [{**r, "rate": r["key"]["rows"] / r["value_s"]} for r in records if "value_s" in r]
    parts = {part: runs for (part,), runs in harness.grouped(records, "part").items()}
    cost, growth = parts.get("cost", []), parts.get("growth", [])
    one = next((run["value_s"] for run in cost if run["key"]["workers"] == 1), np.nan)
    for run in cost:
        run["speedup"] = one / run["value_s"]
    lines = [harness.report(records, "part workers rows", "value_s rate speedup peak_mib"), ""]
    lines.append(f"log-log slope of time {harness.slope(growth, 'rows', 'value_s')}")
    if len(growth) > 1:
        ratio = growth[-1]["peak_mib"] / growth[-2]["peak_mib"]
        lines.append(f"memory from the last but one size to the last: {ratio:.2f} times")
    return "\n".join(lines)


harness.command(
    globals(),
    rows=([100_000, 1_000_000, 10_000_000], [4_000, 12_000]),
    cost_rows=(1_000_000, 12_000),
    workers=([1, 2, 4, 0], [1, 2, 0]),
)
