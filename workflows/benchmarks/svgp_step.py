"""Time of one step of SVGP beside GPyTorch's, in turn.

    python workflows/benchmarks/svgp_step.py [--methods daskgp] [--dtypes float32]

"daskgp adam" leaves q to Adam too, as GPyTorch does; daskgp's default takes natural gradients.  The
floor is the operations of a step, kernels left out, at the rate of a large matrix product of
the same type.
"""

from __future__ import annotations

from collections.abc import Iterator

import datasets
import harness
import numpy as np
from peers import gpytorch

import daskgp

METHODS = ("daskgp", "daskgp adam", "gpytorch")
PRODUCT = "matrix product"
MATERN = "matern32(ard=true)"


def keys(options: harness.Options) -> Iterator[dict]:
    sizes = {name: getattr(options, name) for name in ("rows", "inducing", "batch_rows")}
    for dtype in options.dtypes:
        for run in range(options.repeats):
            for method in (PRODUCT, *options.methods):
                yield {"dtype": dtype, "method": method, "run": run, **sizes}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the median seconds of a step, or the rate of a matrix product."""
    if key["method"] == PRODUCT:
        return {"rate": harness.product_rate(256 if options.tiny else 4_096, key["dtype"])}
    X, y = datasets.smooth(key["rows"], 8)
    split, steps = datasets.Split(X, y, X[:1], y[:1]), 10 + options.steps
    if key["method"] == "gpytorch":
        model = gpytorch.random_svgp(split, MATERN, key["dtype"], key["inducing"])
        marks = list(model.steps(steps, key["batch_rows"]))
    else:
        Z = X[np.random.default_rng(1).choice(len(X), key["inducing"], replace=False)]
        model = daskgp.SVGP(
            MATERN,
            inducing=Z,
            batch_rows=key["batch_rows"],
            natural=0.1 if key["method"] == "daskgp" else None,
            max_iter=steps,
            dtype=key["dtype"],
            device="cpu",
            progress=False,
        ).fit(X, y)
        marks = harness.marks(model)
    return {"step_s": float(np.median(harness.step_seconds(marks)))}


def operations(rows: int, inducing: int, natural: bool) -> float:
    """Count a step's, where products leave out what is known to be zero or the same by symmetry.

    A batch takes n m² each for whitening, A T, that times T', the lower triangle of A_bar A', the
    gradient by T or by S, and unwhitening.  The factors of K, the inverse of L, and the products
    L^-T Phi L^-1 take 5/3 m³.  A natural gradient adds S^-1, the factor of the new one and its
    inverse, 4/3 m³.
    """
    return 6 * rows * inducing**2 + (9 if natural else 5) / 3 * inducing**3


def table(records: list[dict], options: harness.Options) -> str:
    """Return medians over the runs, as ratios to daskgp and to the floor."""
    shown = []
    for runs in harness.grouped(records, "dtype").values():
        rate = max((run["rate"] for run in runs if "rate" in run), default=np.nan)
        rows = harness.medians(runs, "dtype", "method", "inducing", "batch_rows")
        rows = [row for row in rows if row["key"]["method"] != PRODUCT]
        for row in rows:
            natural = row["key"]["method"] == "daskgp"
            work = operations(row["key"]["batch_rows"], row["key"]["inducing"], natural)
            row["floor_s"] = work / rate
        shown += harness.compare(rows, "step_s")
    numbers = "step_s over_ours floor_s over_floor peak_mib runs"
    return harness.report(shown, "dtype method inducing batch_rows", numbers)


harness.command(
    globals(),
    methods=METHODS,
    dtypes=("float64", "float32"),
    rows=(36_000, 2_000),
    inducing=(1_024, 60),
    batch_rows=(1_024, 100),
    steps=(60, 3),
    repeats=(2, 1),
)
