"""Neighbours and support inputs of VecchiaGP: how near it comes to the exact GP.

With the same hyper-parameters for all, the distance to the exact GP's mean is measured at places
never seen.  Where noise is small a few neighbours suffice.  Where it dominates, a mean is made of
many rows, and support inputs carry what a few neighbours leave out.
"""

import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import curves

EVIDENCE = "nats from the exact log evidence"
DISTANCE = "RMS distance to the exact GP's mean"


def drawn(kernel, X, seed):
    """Draw from the GP at rows X, without noise."""
    factor = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(len(X)))
    return factor @ np.random.default_rng(seed).standard_normal(len(X))


def main(rows=2_000, numbers=(5, 10, 20, 30, 60, 100), support=128, path=None, seed=0):
    kernel = kernels.Matern32(lengthscale=0.2)
    X = np.random.default_rng(seed).uniform(size=(rows + rows // 4, 2))
    f = drawn(kernel, X, seed)
    error = np.random.default_rng(seed + 1).standard_normal(len(f))
    X_test, X = X[rows:], X[:rows]

    distance, evidence = {}, {}
    for noise, m in ((0.1, 0), (1.0, 0), (1.0, support)):
        y = (f + noise * error)[:rows]
        settings = {"mean": "zero", "standardize": False, "optimizer": None}
        settings["noise_variance"] = noise**2
        exact = daskgp.ExactGP(kernel, **settings).fit(X, y)
        line = f"noise {noise:g}, {m} support inputs" if m else f"noise {noise:g}"
        distance[line], evidence[line] = np.empty((2, len(numbers)))
        for i, k in enumerate(numbers):
            model = daskgp.VecchiaGP(
                kernel, n_neighbours=k, predict_neighbours=k, n_support=m, **settings
            ).fit(X, y)
            away = model.predict(X_test) - exact.predict(X_test)
            distance[line][i] = np.sqrt(np.mean(away**2))
            evidence[line][i] = abs(model.objective_ - exact.objective_)
            print(f"{line}, k = {k}: {distance[line][i]:.2g}, {evidence[line][i]:.2g} nats")
    if path:
        curves.tradeoff(
            numbers,
            {DISTANCE: distance, EVIDENCE: evidence},
            name="neighbours k",
            path=path,
        )
    return distance


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
