"""Committees of sparse experts beside the sparse GP of all rows: the same means, other bands.

The Ackley function from 10,000 noisy rows, which four experts share; hyper-parameters and inducing
inputs are the same for all.  Drawn is what each rule predicts of a new observation, less the true
function.  Committees combine predictions of observations here, as the paper prints them.
"""

import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import curves

NOISE_VARIANCE = 0.025
COMMITTEES = {"poe": "PoE", "gpoe": "gPoE", "bcm": "BCM", "rbcm": "rBCM", "grbcm": "grBCM"}


def ackley(X):
    bowl = -20 * np.exp(-0.2 * np.sqrt((X**2).mean(axis=1)))
    return bowl - np.exp(np.cos(2 * np.pi * X).mean(axis=1)) + 20 + np.e


def main(rows=10_000, experts=4, inducing=128, places=400, path=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 1))
    y = ackley(X) + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(rows)
    x = np.linspace(-1, 1, places)
    truth = ackley(x[:, None])

    settings = {
        "kernel": kernels.RBF(lengthscale=0.3),
        "noise_variance": NOISE_VARIANCE,
        "inducing": rng.uniform(-1, 1, (inducing, 1)),
        "mean": "zero",
        "standardize": False,
        "optimizer": None,
    }
    combined = settings | {"n_experts": experts}
    models = {
        name: daskgp.ExpertsGP(aggregation=rule, noise_in_experts=True, **combined)
        for rule, name in COMMITTEES.items()
    }
    models["optimal weights"] = daskgp.ExpertsGP(**combined)
    models["sparse GP, all rows"] = daskgp.SGPR(**settings)

    errors = {}
    for name, model in models.items():
        mean, std = model.fit(X, y).predict(x[:, None], return_std=True, include_noise=True)
        errors[name] = mean - truth, std
        score = np.sqrt(np.mean((mean - truth) ** 2))
        print(f"{name:20s} RMSE {score:.3f}, mean std of an observation {std.mean():.3f}")
    if path:
        full = errors["sparse GP, all rows"]
        panels = {name: error for name, error in errors.items() if error is not full}
        draw(x, panels, full, path)
    return errors


def draw(x, panels, full, path):
    """Draw the committees, each beside the sparse GP of all rows."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(8.6, 5.2), dpi=150, layout="constrained")
    axes = fig.subplots(2, 3, sharex=True, sharey=True).ravel()
    curves.posterior_lines(
        x, panels, reference=full, reference_name="sparse GP of all rows", columns=3, axes=axes,
        names=("x", "prediction − true function"),
    )  # fmt: skip
    fig.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
    )
    fig.savefig(path)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
