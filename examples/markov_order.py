"""From PIC to the exact GP: what the Markov order and the support inputs of LMA buy.

With the same hyper-parameters for all, the error is the distance to the exact GP's mean at places
never seen.  It falls with either setting; with all blocks but one the method is the exact GP.
"""

import sys
import time

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import curves

NOISE = 0.1


def drawn(kernel, X, seed):
    """Draw from the GP at rows X, without noise."""
    factor = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(len(X)))
    return factor @ np.random.default_rng(seed).standard_normal(len(X))


def main(rows=2_000, blocks=16, supports=(16, 64, 256), path=None, seed=0):
    kernel = kernels.Matern32(lengthscale=0.1)
    X = np.random.default_rng(seed).uniform(size=(rows + rows // 4, 2))
    f = drawn(kernel, X, seed)
    y = f + NOISE * np.random.default_rng(seed + 1).standard_normal(len(f))
    X_test, X, y = X[rows:], X[:rows], y[:rows]

    settings = {"noise_variance": NOISE**2, "mean": "zero", "standardize": False, "optimizer": None}
    exact, reference, _ = timed(daskgp.ExactGP(kernel, **settings), X, y, X_test)
    _, _, seconds = timed(daskgp.ExactGP(kernel, **settings), X, y, X_test)  # all is loaded now
    print(f"exact GP: log evidence {exact.log_marginal_likelihood():.2f}, {seconds:.2f} s")

    orders = sorted({0, 1, 2, 3, 5, blocks - 1})
    error, cost = {}, {}
    for m in supports:
        line = f"{m} support inputs"
        error[line], cost[line] = np.empty(len(orders)), np.empty(len(orders))
        for i, order in enumerate(orders):
            model = daskgp.LMA(
                kernel,
                n_support=m,
                markov_order=order,
                block_rows=-(-rows // blocks),
                **settings,
            )
            model, mean, cost[line][i] = timed(model, X, y, X_test)
            error[line][i] = np.sqrt(np.mean((mean - reference) ** 2))
            print(
                f"m = {m:4d}  B = {order:2d}  distance {error[line][i]:.1e}  log evidence "
                f"{model.log_marginal_likelihood():.2f}  {cost[line][i]:.2f} s"
            )
    if path:
        # nothing is to be read off the distances below
        shown = {line: np.maximum(values, 1e-7) for line, values in error.items()}
        curves.tradeoff(
            orders,
            {"RMS distance to the exact GP's mean": shown, "CPU seconds to fit and predict": cost},
            name=f"Markov order B, of {blocks} blocks",
            reference={"CPU seconds to fit and predict": seconds},
            reference_name="exact GP",
            path=path,
        )
    return error


def timed(model, X, y, X_test):
    """Return the fitted model, its mean at the test places, and the CPU seconds of both."""
    began = time.process_time()
    mean, _ = model.fit(X, y).predict(X_test, return_std=True)
    return model, mean, time.process_time() - began


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
