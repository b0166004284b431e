"""Growth of a step of DecoupledGP with its functions of the mean, once all are there.

    python workflows/benchmarks/decoupled_growth.py [--functions 2048,4096] [--whole]

128 functions of the covariance, 1,024 rows a step.  The mean has, and the median has not, the
factors that are made anew every 50 steps.  ``--whole`` steps learn the kernel and move all
functions too.
"""

from __future__ import annotations

from collections.abc import Iterator

import datasets
import harness
import numpy as np

import daskgp

WARM = 10


def keys(options: harness.Options) -> Iterator[dict]:
    for dtype in options.dtypes:
        for number in sorted(options.functions):
            yield {"dtype": dtype, "functions": number, "whole": options.whole}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds of a step.

    A step adds half as many functions as a batch has rows, which even a small batch can give.
    """
    number, few = key["functions"], min(options.covariance, key["functions"] // 2)
    added = max(1, options.batch_rows // 2)
    filling = -(-(number - few) // added)
    whole = {"hyperparameters": "bound", "train_mean_points": True}
    model = daskgp.DecoupledGP(
        "matern32(ard=true)",
        n_mean=number,
        n_covariance=few,
        n_added=added,
        batch_rows=options.batch_rows,
        max_iter=filling + WARM + options.steps,
        dtype=key["dtype"],
        progress=False,
        **(whole if key["whole"] else {"n_subset": 256}),
    ).fit(*datasets.smooth(options.rows, 8))
    if len(model.mean_points_) != number:
        raise RuntimeError(f"{len(model.mean_points_)} functions instead of {number}: more --rows")
    marks = harness.marks(model)
    steps = harness.step_seconds(marks, filling + WARM)
    middle = {"step_s": float(np.median(steps)), "mean_s": float(np.mean(steps))}
    return {**middle, "setup_s": marks[filling - 1]}


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds against functions of the mean, and how they grow."""
    lines = [harness.report(records, "dtype functions whole", "step_s mean_s setup_s peak_mib"), ""]
    for (dtype,), runs in harness.grouped(records, "dtype").items():
        middle, mean = (harness.slope(runs, "functions", name) for name in ("step_s", "mean_s"))
        lines.append(f"{dtype}: log-log slope of the median {middle}, of the mean {mean}")
    return "\n".join(lines)


harness.command(
    globals(),
    dtypes=("float64", "float32"),
    functions=([2_048, 4_096, 8_192, 16_384, 32_768], [200, 400]),
    covariance=(128, 40),
    rows=(100_000, 2_000),
    batch_rows=(1_024, 100),
    steps=(50, 3),
    whole=False,
)
