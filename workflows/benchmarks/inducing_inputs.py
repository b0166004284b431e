"""Where trained inducing inputs lie as features grow, and what spread they leave there.

    python workflows/benchmarks/inducing_inputs.py --out results.jsonl [--features 1,5,25]
    python workflows/benchmarks/inducing_inputs.py --out results.jsonl --table

Section S5.1 of [CAGP], Wenger et al. 2024: 500 rows drawn evenly in the unit cube of 1 to 25
dimensions, and targets of a GP, here Matérn-3/2 with lengthscale and variance 1 and noise variance
0.01, which the paper does not say.  ``SVGP`` and ``SGPR`` learn 64 inducing inputs that begin at
rows and a lengthscale per feature, ``CaGP`` has 64 learned actions, and ``exact`` is the exact GP
with the hyper-parameters of the process.

``distance`` (eq. S24) is the mean distance of inducing inputs to the nearest row, in lengthscales,
and ``uniform`` that of as many even points.  ``ratio`` (eq. S25) is the mean of the variance of f
over that of y at a method's inducing inputs, ``exact_ratio`` the exact GP's there; CaGP and the
exact GP are seen at the inputs of ``SVGP``.  Scores are those of 2,000 places, the RMSE of f and
the others of y; numbers are medians over seeds.
"""

from typing import Any

import datasets
import harness
import numpy as np
from scipy.spatial import cKDTree

import daskgp
from daskgp import kernels, metrics

METHODS = ("svgp", "sgpr", "cagp", "exact")
NUMBERS = "distance uniform ratio exact_ratio noise rmse nlpd coverage"
TRUTH = datasets.Truth("matern32", 1.0, 1.0, 0.01)


def keys(options: harness.Options) -> harness.Keys:
    lists = {"seed": range(options.seeds), "features": options.features}
    return harness.runs(options, "size steps", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    """Return the numbers of each method on the same rows."""
    rng, shape = np.random.default_rng(key["seed"]), (key["size"], key["features"])
    draw = datasets.scattered(500, lambda rng, n: rng.uniform(size=(n, key["features"])))
    split = draw(rng, TRUTH, options.tiny)
    models = {name: model_of(name, key).fit(split.X, split.y) for name in METHODS}
    points, found = rng.uniform(size=shape), {}
    for name, model in models.items():
        own = name in ("svgp", "sgpr")
        Z = models[name if own else "svgp"].inducing_
        found[name] = {
            **scores(model, split),
            "ratio": ratio(model, Z),
            "exact_ratio": ratio(models["exact"], Z),
            "noise": float(model.noise_variance_),
        }
        if own:
            lengths = np.exp(model.kernel_.log_parameters[1:])
            tree = cKDTree(split.X / lengths)
            far = {"distance": Z, "uniform": points}
            found[name] |= {part: tree.query(at / lengths)[0].mean() for part, at in far.items()}
    return {"n": len(split.y), **found}


def model_of(name: str, key: dict) -> Any:
    shared: dict[str, Any] = {"standardize": False, "mean": "zero", "progress": False}
    kernel, size, steps = kernels.Matern32(ard=True), key["size"], key["steps"]
    if name == "exact":
        known = {"noise_variance": TRUTH.noise, "optimizer": None}
        return daskgp.ExactGP(TRUTH.kernel, **known, **shared)
    if name == "svgp":
        return daskgp.SVGP(kernel, n_inducing=size, max_iter=steps, **shared)
    shared["max_iter"] = steps
    if name == "sgpr":
        return daskgp.SGPR(kernel, n_inducing=size, train_inducing=True, **shared)
    return daskgp.CaGP(kernel, n_actions=size, **shared)


def scores(model: Any, split: datasets.Split) -> dict[str, float]:
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    found = (getattr(metrics, name)(split.y_test, mean, std**2) for name in ("nlpd", "coverage"))
    values = dict(zip(("nlpd", "coverage"), map(float, found), strict=True))
    return {"rmse": float(metrics.rmse(split.f_test, mean)), **values}


def ratio(model: Any, Z: np.ndarray) -> float:
    """Return the mean share of f's variance in that of y at some places, eq. S25."""
    variance = model.predict(Z, return_std=True)[1] ** 2
    return float(np.mean(variance / (variance + float(model.noise_variance_))))


def table(records: list[dict], options: harness.Options) -> str:
    each = [
        {"key": {"features": record["key"]["features"], "method": name}, **record[name]}
        for record in records
        for name in METHODS
        if name in record
    ]
    middle = harness.medians(each, "features", "method")
    down = {"features": sorted({record["key"]["features"] for record in middle})}
    return harness.tables(middle, NUMBERS, down, method=METHODS)


harness.command(
    globals(),
    features=([*range(1, 26)], [2, 9]),
    seeds=(3, 1),
    size=(64, 8),
    steps=(1_000, 20),
)
