"""Show that the angle of a stretched field is found, and what it is worth.

    python workflows/benchmarks/rotated.py --out results.jsonl [--methods a,b] [--tiny]
    python workflows/benchmarks/rotated.py --out results.jsonl --table

A Matérn-3/2 field has a correlation five times as long along 30 degrees as across, and is measured
with noise at places drawn at random in a square.  ``axes`` has a lengthscale per column,
``rotated`` an angle beside them, ``true angle`` that of the field, fixed.  RMSE is against new
values without noise; ``off`` is the distance of the angle from the truth in standard errors.
"""

import datasets
import harness
import numpy as np

import daskgp
from daskgp import kernels

METHODS = {
    "vecchia": daskgp.VecchiaGP(),
    "sgpr": daskgp.SGPR(),
}
KERNELS = ("axes", "rotated", "true angle")
ANGLE, SIDE, NOISE = 30.0, 20.0, 0.04
TRUTH = kernels.Rotated(kernels.Matern32((5.0, 1.0), 1.0), angle=ANGLE)
PLACES = 1_000
"""Places to predict."""


def keys(options: harness.Options) -> harness.Keys:
    seeds = range(options.seeds)
    yield from harness.runs(options, "rows", method=options.methods, kernel=KERNELS, seed=seeds)


def drawn(n: int, seed: int) -> datasets.Split:
    """Draw rows and places of the field."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, SIDE, (n + PLACES, 2))
    f = np.linalg.cholesky(TRUTH(X) + 1e-10 * np.eye(len(X))) @ rng.standard_normal(len(X))
    y = f + np.sqrt(NOISE) * rng.standard_normal(len(X))
    return datasets.Split(X[:n], y[:n], X[n:], y[n:], f[n:])


def measure(key: dict, options: harness.Options) -> dict:
    split = drawn(key["rows"], key["seed"])
    model, kernel = METHODS[key["method"]], kernels.Matern32(ard=True)
    if key["kernel"] != "axes":
        kernel = kernels.Rotated(kernel)
    if key["kernel"] == "true angle":
        model.set_params(fixed={"angle": ANGLE})
    found = harness.fitted(model.set_params(kernel=kernel), split)
    known = {row.name: row for row in model.hyperparameters_}
    lengths = [known[f"lengthscale[{j}]"].value for j in (0, 1)]
    numbers = {"stretch": max(lengths) / min(lengths)}
    if key["kernel"] == "rotated":
        angle = known["angle"].value
        if lengths[0] < lengths[1]:  # then it is that of the short axis
            angle = (angle + 90.0) % 180.0
        error = known["angle"].standard_error
        numbers |= {"angle": angle, "angle_error": error, "off": abs(angle - ANGLE) / error}
    scores = found.scored(split.y_test, "coverage")
    rmse = float(np.sqrt(np.mean((found.mean - split.f_test) ** 2)))
    return {"n": len(split.y), **numbers, "rmse": rmse, **scores}


def table(records: list[dict], options: harness.Options) -> str:
    numbers = "rmse coverage stretch angle angle_error off fit_s runs"
    return harness.report(harness.medians(records, "method", "kernel"), "method kernel", numbers)


harness.command(
    globals(),
    methods=harness.Some(tuple(METHODS), tuple(METHODS)),
    seeds=(5, 1),
    rows=(2_000, 150),
)
