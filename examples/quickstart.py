"""Fit a sparse GP in memory and compare it with the exact GP.

The exact GP is the reference where the data are small enough for it.  With enough inducing
inputs the sparse GP gives the same predictions at a fraction of the cost.
"""

import numpy as np

import daskgp
from daskgp import kernels, metrics


def field(X):
    return np.sin(X[:, 0]) * np.cos(X[:, 1] / 2)


def main(rows=500, inducing=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    y = field(X) + 0.1 * rng.standard_normal(rows)
    X_test = rng.uniform(0, 10, (500, 2))
    y_test = field(X_test) + 0.1 * rng.standard_normal(len(X_test))

    kernel = kernels.Matern32(ard=True)  # one lengthscale a column, learned from the data
    exact = daskgp.ExactGP(kernel).fit(X, y)
    # The same hyper-parameters for both: what differs is the approximation alone.
    sparse = daskgp.SGPR(
        exact.kernel_,
        noise_variance=exact.noise_variance_,
        n_inducing=inducing,
        optimizer=None,
    ).fit(X, y)

    scores = {}
    for name, model in (("exact", exact), ("sparse", sparse)):
        mean, std = model.predict(X_test, return_std=True, include_noise=True)
        scores[name] = metrics.summary(y_test, mean, std**2)
        evidence = model.log_marginal_likelihood()
        print(f"{name:6s}  rmse {scores[name]['rmse']:.4f}  nlpd {scores[name]['nlpd']:.4f}")
        print(f"{'':6s}  log evidence or its bound {evidence:.2f}")
    return scores


if __name__ == "__main__":
    main()
