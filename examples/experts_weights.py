"""Optimal weights of sparse experts: the right side decides.

The Ackley function in two dimensions from 10,000 noisy rows, cut at random among more and more
experts that share 128 inducing inputs; hyper-parameters are fixed.  With the right side of the
paper the weights grow beyond bounds and so does the error; with inner products with the targets it
does not, and a little of what the model expects keeps them small.  Committees, and the sparse GP
that sees all rows, are for comparison.
"""

import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import curves

NOISE_VARIANCE = 0.025
RULES = {
    "optimal": {"aggregation": "optimal"},
    "optimal, data alone": {"shrinkage": 0.0},
    "optimal, paper": {"weights": "paper"},
    "rBCM": {"aggregation": "rbcm"},
    "gPoE": {"aggregation": "gpoe"},
    "grBCM": {"aggregation": "grbcm"},
    "NPAE": {"aggregation": "npae"},
}


def ackley(X):
    bowl = -20 * np.exp(-0.2 * np.sqrt((X**2).mean(axis=1)))
    return bowl - np.exp(np.cos(2 * np.pi * X).mean(axis=1)) + 20 + np.e


def main(
    rows=10_000,
    counts=(2, 4, 8, 20, 40, 80, 100),
    inducing=128,
    side=50,
    draws=2,
    path=None,
):
    axis = np.linspace(-1, 1, side)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = ackley(places)
    error = {name: np.zeros(len(counts)) for name in RULES}
    size, full = {name: np.zeros(len(counts)) for name in list(RULES)[:3]}, 0.0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (rows, 2))
        y = ackley(X) + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(rows)
        settings = {
            "kernel": kernels.RBF(lengthscale=0.3),
            "noise_variance": NOISE_VARIANCE,
            "inducing": rng.uniform(-1, 1, (inducing, 2)),
            "mean": "zero",
            "standardize": False,
            "optimizer": None,
            "random_state": seed,
        }
        full += rmse(daskgp.SGPR(**settings), X, y, places, truth) / draws
        for (name, rule), (i, count) in ((r, c) for r in RULES.items() for c in enumerate(counts)):
            model = daskgp.ExpertsGP(n_experts=count, **rule, **settings)
            error[name][i] += rmse(model, X, y, places, truth) / draws
            if name in size:
                size[name][i] += np.abs(model.weights_).sum() / draws

    print(f"RMSE of the sparse GP of all rows {full:.3f}; of experts")
    print(f"{'':20s}" + "".join(f"{f'M = {count}':>9s}" for count in counts))
    for name, values in error.items():
        print(f"{name:20s}" + "".join(f"{value:9.3f}" for value in values))
    for name, values in size.items():
        print(f"{name:20s}" + "".join(f"{value:9.3g}" for value in values) + "  sum of |weights|")
    if path:
        panels = {"RMSE": error, "sum of |weights|": size}
        curves.tradeoff(
            counts,
            panels,
            name="number of experts M",
            reference={"RMSE": full},
            reference_name="sparse GP, all rows",
            path=path,
        )
    return error, full


def rmse(model, X, y, places, truth):
    """Root mean squared error of the model fitted to X and y."""
    return np.sqrt(np.mean((model.fit(X, y).predict(places) - truth) ** 2))


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
