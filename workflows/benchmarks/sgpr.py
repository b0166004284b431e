"""Time and memory of one value and gradient of SGPR's bound, beside GPyTorch and GPflow.

    python workflows/benchmarks/sgpr.py [--rows 36000] [--methods daskgp]

float64, Matérn-3/2 with a lengthscale per feature, gradients with respect to kernel, noise and
inducing inputs.  daskgp's seconds are those per evaluation in a short training.  The floor is the
time of the method's dense products and solves, 4 n m² operations, at the rate of a large matrix
product measured in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator

import datasets
import harness
import numpy as np
from peers import gpflow, gpytorch

import daskgp
from daskgp import kernels

PEERS = {"gpflow": gpflow.sgpr, "gpytorch": gpytorch.sgpr}
METHODS = ("daskgp", *PEERS)
PRODUCT = "matrix product"


def keys(options: harness.Options) -> Iterator[dict]:
    sizes = {name: getattr(options, name) for name in ("rows", "features", "inducing")}
    for method in (*options.methods, PRODUCT):
        yield {"method": method, **sizes}


def measure(key: dict, options: harness.Options) -> dict:
    """Return seconds and the bound of one method."""
    n, d, m = key["rows"], key["features"], key["inducing"]
    if key["method"] == PRODUCT:
        return {"rate": harness.product_rate(512 if options.tiny else 4_096)}
    X, y = datasets.smooth(n, d)
    Z = X[np.random.default_rng(1).choice(n, m, replace=False)]
    kernel = kernels.Matern32(lengthscale=(2.0,) * d)
    if key["method"] in PEERS:
        evaluate = PEERS[key["method"]](X, y, Z, kernel)
        seconds, bound = harness.best_of(options.repeats, evaluate)
        return {"value_s": seconds, "bound": bound}
    plain = {"mean": "zero", "standardize": False, "progress": False}
    settings = {"kernel": kernel, "noise_variance": 0.1, "inducing": Z, **plain}
    training = {"train_inducing": True, "optimizer": "l-bfgs", "tol": 1e-12}
    model = daskgp.SGPR(**settings, **training, max_iter=options.repeats + 1).fit(X, y)
    bound = daskgp.SGPR(**settings, optimizer=None).fit(X, y).objective_
    return {"value_s": harness.evaluation_seconds(model), "bound": bound}


def table(records: list[dict], options: harness.Options) -> str:
    """Return times and memory as ratios to daskgp and to the floor."""
    rate = max((r["rate"] for r in records if "rate" in r), default=np.nan)
    rows = [record for record in records if record["key"]["method"] != PRODUCT]
    for record in rows:
        record["floor_s"] = 4 * record["key"]["rows"] * record["key"]["inducing"] ** 2 / rate
    harness.compare(rows, "value_s")
    numbers = "value_s over_ours peak_mib memory_over_ours bound floor_s over_floor"
    return harness.report(rows, "method rows inducing", numbers)


harness.command(
    globals(), methods=METHODS, rows=(36_000, 3_000), features=8, inducing=(1_024, 50), repeats=3
)
