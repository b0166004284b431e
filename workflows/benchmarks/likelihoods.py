"""Log predictive densities of classes and of counts, beside generalised linear models.

    [DASKGP_DATA=folder] python workflows/benchmarks/likelihoods.py [--targets poisson]

Classes are a field above or below its median, counts have a log rate that is linear in it; the
models of comparison see squares and products of longitude and latitude.  The field is the
land-surface temperatures of DASKGP_DATA, or a generated one with gaps of the same kind.
"""

import os

import datasets
import harness
import numpy as np
import scipy.stats
from peers import scikit_learn

import daskgp
from daskgp import metrics

METHODS = {
    "svgp": (daskgp.SVGP, {"n_inducing": 512}),
    "decoupled": (daskgp.DecoupledGP, {"n_mean": 4_096, "n_covariance": 128}),
}
COUNT, SLOPE = 3.0, 0.5
"""Mean count, and what multiplies the standardised field in the log of its rate."""


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows steps", target=options.targets, method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    data = os.environ.get("DASKGP_DATA")
    drawn = None if data else datasets.stored(options.folder, "exponential", 0, options.tiny)
    split, rates = likened(
        (drawn or datasets.satellite()).thinned(key["rows"]).standardised(inputs=True),
        key["target"],
    )
    row: dict[str, object] = {"n": len(split.y), "places": len(split.y_test)}
    if key["target"] == "poisson":
        row["truth"] = float(scipy.stats.poisson.logpmf(split.y_test, rates).mean())
    if key["method"] == "glm":
        return {**row, "density": scikit_learn.linear_density(split, key["target"])}
    kind, settings = METHODS[key["method"]]
    model = kind(
        "matern12()",
        **harness.lowered(settings, len(split.y) // 2),
        likelihood=key["target"],
        batch_rows=min(options.batch_rows, len(split.y)),
        max_iter=key["steps"],
        dtype="float32",
        progress=False,
    )
    row["fit_s"] = harness.seconds_of(lambda: model.fit(split.X, split.y))
    mean, std = model.predict(split.X_test, return_std=True)
    row["density"] = -float(metrics.nlpd(split.y_test, mean, std**2, model.likelihood_))
    marks = harness.marks(model)
    return {**row, **harness.step_seconds(marks), "iterations": len(marks)}


def likened(split: datasets.Split, target: str) -> tuple[datasets.Split, np.ndarray]:
    """Return classes or counts made from a standardised field, and the true rates of counts."""
    if target == "bernoulli":
        middle = np.median(split.y)
        y, y_test = ((part > middle).astype(float) for part in (split.y, split.y_test))
        return split._replace(y=y, y_test=y_test), y_test
    rng, level = np.random.default_rng(0), np.log(COUNT / np.exp(SLOPE * split.y).mean())
    rates = [np.exp(level + SLOPE * part) for part in (split.y, split.y_test)]
    y, y_test = (rng.poisson(rate).astype(float) for rate in rates)
    return split._replace(y=y, y_test=y_test), rates[1]


table = harness.reporting(
    "target method", "n places density truth fit_s step_s iterations peak_mib"
)
harness.command(
    globals(),
    targets=("bernoulli", "poisson"),
    methods=(*METHODS, "glm"),
    rows=(None, 500),
    steps=(2_000, 40),
    batch_rows=(1_024, 100),
)
