"""Sparse grids: what optimal coefficients repair in the combination technique.

The Griewank function from 2,000 noisy rows, on the points of a sparse grid.  Partial grids that are
coarse along one axis predict badly, and the plain combination technique subtracts them from one
another with fixed coefficients; OptiCom weighs them by what they say about the rows.
"""

import sys

import numpy as np

import daskgp
from daskgp.plot import fields

NOISE = 0.1


def griewank(X):
    return 1 + (X**2).sum(axis=1) / 4000 - np.cos(X[:, 0]) * np.cos(X[:, 1] / np.sqrt(2))


def main(rows=2_000, level=5, side=101, path=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, (rows, 2))
    y = griewank(X) + NOISE * rng.standard_normal(rows)
    axis = np.linspace(-5, 5, side)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = griewank(places)

    settings = {"level": level, "bounds": [[-5, 5], [-5, 5]]}
    optimal = daskgp.OptiComGP(**settings).fit(X, y)
    # the same hyper-parameters for all
    settings |= {"optimizer": None, "noise_variance": optimal.noise_variance_}
    plain = daskgp.OptiComGP(optimal.kernel_, weights="combination", **settings).fit(X, y)
    sparse = daskgp.SGPR(
        optimal.kernel_,
        inducing=optimal.grid_,
        optimizer=None,
        noise_variance=optimal.noise_variance_,
    ).fit(X, y)

    print(f"{len(optimal.grid_)} points, {len(optimal.levels_)} partial grids")
    for index, ours, theirs in zip(optimal.levels_, optimal.weights_, plain.weights_, strict=True):
        print(f"  grid {tuple(map(int, index))}: {ours:+.2f}, combination technique {theirs:+.0f}")
    models = {"combination technique": plain, "OptiCom": optimal, "sparse GP, all points": sparse}
    errors, scores = {}, {}
    for name, model in models.items():
        mean, std = model.predict(places, return_std=True)
        errors[name] = np.abs(mean - truth)
        scores[name] = float(np.sqrt(np.mean(errors[name] ** 2)))
        print(f"{name:22s} RMSE {scores[name]:.4f}, mean std {std.mean():.4f}")
    if path:
        from matplotlib.figure import Figure

        titles = {f"{name}:\nRMSE {scores[name]:.3f}": error for name, error in errors.items()}
        fig = Figure(figsize=(8.8, 3.2), dpi=150, layout="constrained")
        axes = fig.subplots(1, len(titles), sharex=True, sharey=True)
        names = ("$x_1$", "$x_2$")
        fields.maps(
            places,
            titles,
            one_scale=True,
            names=names,
            label="error of the mean",
            marked=optimal.grid_,
            axes=axes,
        )
        fig.savefig(path)
    return scores


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
