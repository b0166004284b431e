"""Show how often intervals of hyper-parameters hold the true ones.

    python workflows/benchmarks/intervals.py --out results.jsonl [--methods exact,lma] [--sets 50]
    python workflows/benchmarks/intervals.py --out results.jsonl --table

Rows are drawn of a Matern-3/2 GP of lengthscale 1 and variance 1, with noise of variance 0.1, at
random places of a square of 10 x 10.  Each method is trained on each set; an interval is the
logarithm of a hyper-parameter with 1.96 of its standard errors to each side.  ``z_std`` is the
standard deviation of what separates estimates from the truth, in standard errors (1 is right).
"""

import harness
import numpy as np

import daskgp
from daskgp.kernels import Matern32

TRUE = {"variance": 1.0, "lengthscale": 1.0, "noise_variance": 0.1}
METHODS = {
    "exact": lambda: daskgp.ExactGP(kernel=Matern32(), **PLAIN),
    "lma": lambda: daskgp.LMA(kernel=Matern32(), **PLAIN),
    "sgpr": lambda: daskgp.SGPR(kernel=Matern32(), n_inducing=256, **PLAIN),
}
PLAIN = {"mean": "zero", "standardize": False, "progress": False}


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows sets", method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    away = {name: [] for name in TRUE}
    for seed in range(key["sets"]):
        X, y = drawn(key["rows"], seed)
        model = METHODS[key["method"]]().fit(X, y)
        for name, value, error, *_ in model.hyperparameters_:
            away[name].append(np.log(value / TRUE[name]) / (error / value))
    found = {}
    for name, z in away.items():
        found[name] = float((abs(np.array(z)) < 1.96).mean())
        found[f"{name}_z_std"] = float(np.std(z))
        found[f"{name}_known"] = float(np.isfinite(z).mean())
    return found


def drawn(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    K = Matern32(TRUE["lengthscale"], variance=TRUE["variance"])(X)
    K[np.diag_indices(rows)] += TRUE["noise_variance"]
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows)


table = harness.reporting("method rows sets", " ".join(f"{n} {n}_z_std" for n in TRUE))
harness.command(
    globals(), methods=harness.Some(METHODS, ("exact", "lma")), rows=(600, 60), sets=(50, 3)
)
