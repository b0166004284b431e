"""A field that changes: its lengthscale grows tenfold from left to right, its variance falls.

Drawn from a covariance with a lengthscale and a variance of each place (Paciorek & Schervish 2006),
and predicted with common hyper-parameters, with ones that vary, and with those of the truth.
"""

import sys

import numpy as np
import xarray as xr

import daskgp
from daskgp import kernels

NOISE = 0.05


def truth(x):
    """Lengthscale and variance at x from 0 to 1."""
    return 0.02 * 10.0**x, 3.0 * 10.0**-x


def drawn(X, seed):
    """Draw the field at rows X (n, 2)."""
    lengths, variances = truth(X[:, 0])
    squares = (lengths[:, None] ** 2 + lengths**2) / 2.0
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2) / squares)
    K = kernels.Matern32(1.0)(distances.reshape(-1, 1), np.zeros((1, 1))).reshape(squares.shape)
    K *= np.sqrt(np.outer(variances, variances)) * np.outer(lengths, lengths) / squares
    factor = np.linalg.cholesky(K + 1e-8 * np.eye(len(X)))
    return factor @ np.random.default_rng(seed).standard_normal(len(X))


def true_map():
    """Hyper-parameters of the truth, as a user hands them in."""
    x, y = (one.ravel() for one in np.meshgrid(np.linspace(0, 1, 41), [0.0, 0.5, 1.0]))
    lengths, variances = truth(x)
    fields = {"lengthscale": lengths, "variance": variances, "noise_variance": NOISE + 0 * x}
    along = {name: ("knot", values) for name, values in fields.items()}
    return xr.Dataset(along, {"x0": ("knot", x), "x1": ("knot", y)})


def scores(model, X, f, y):
    """Score of new observations, and coverage of f by intervals of 95 % on either side."""
    mean, std = model.predict(X, return_std=True)
    inside, left = np.abs(f - mean) < 1.96 * std, X[:, 0] < 0.5
    seen = model.predict(X, return_std=True, include_noise=True)
    nlpd = float(daskgp.metrics.nlpd(y, *seen))
    return nlpd, float(inside[left].mean()), float(inside[~left].mean())


def main(rows=4_000, knots="auto", path=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows + rows // 4, 2))
    f = drawn(X, seed + 1)
    y = f + np.sqrt(NOISE) * rng.standard_normal(len(f))
    found = {}
    for name, varying in (("common", None), ("varying", knots), ("true", true_map())):
        model = daskgp.VecchiaGP("matern32()", varying=varying).fit(X[:rows], y[:rows])
        found[name] = scores(model, X[rows:], f[rows:], y[rows:])
        print("{:8} nlpd {:.3f}, coverage {:.3f} left, {:.3f} right".format(name, *found[name]))
        if name == "varying":
            chosen = model
    at = np.column_stack([np.linspace(0.05, 0.95, 7), np.full(7, 0.5)])
    learned = chosen.hyperparameter_map(at)
    for i, (x, _) in enumerate(at):
        lengths, variances = learned["lengthscale"].values[i], learned["variance"].values[i]
        print(f"x = {x:.2f}: lengthscale {lengths:.3f}, variance {variances:.2f}", end="; ")
        print("true {:.3f} and {:.2f}".format(*truth(x)))
    if path:
        side = np.linspace(0.0, 1.0, 60)
        grid = xr.Dataset(coords={"x1": side, "x0": side})
        daskgp.plot.hyperparameter_map(chosen.hyperparameter_map(grid), path=path)
    return found, learned


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
