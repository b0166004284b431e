"""Seconds of one block of LMA against its operations.

    python workflows/benchmarks/lma.py [--blocks 128,256]

The summary of one block given those near it, and its gradient, on one BLAS thread, in time of the
processor.  Operations are those that the equations of the method ask for, kernels apart; rates are
their number over the seconds, kernels included, beside those of a matrix product and of LAPACK's
Cholesky factor of the window's order measured in the same run.  The floor is the time of these
operations at these two rates.
"""

import time
from collections.abc import Callable
from functools import partial

import harness
import numpy as np
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from daskgp import kernels
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta

WORK = ("summary", "gradient")


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "order support", block=sorted(options.blocks), work=WORK)


def operations(b: int, c: int, m: int) -> dict[str, float]:
    """Count those of a summary and of its gradient, beside a Cholesky factor in each.

    A block of b rows and c near it, m support inputs, one target; symmetric products are counted
    once.
    """
    w, r = b + c, m + 1
    window = w * m**2 + w**2 * m + w**2 * r  # A; A A'; L_R^-1 [A, y]
    gram = b * r**2
    solves = c**2 * (b + r) + b**2 * r + b**3  # P and U; C^-1 [E, e]; C^-1
    through = 2 * b * r**2 + b**2 * r + 2 * b**2 * c + 2 * b * c * r  # [E, e]_bar, C_bar and Y
    features = 2 * b * c * m + 4 * b * w * m + 2 * b * c * m  # E; Y A and Y' E; H' of both
    kernel = 2 * b * c * w + 3 * w * m**2  # R_bar; the cotangents of K(X, S) and K(S, S)
    gradient = window + solves + through + features + kernel
    return {"summary": float(window + gram), "gradient": float(gradient)}


def rates(order: int, best: Callable) -> tuple[float, float]:
    """Return the operations per second of a matrix product and of LAPACK's Cholesky factor."""
    A = np.random.default_rng(0).standard_normal((order, order))
    product = 2 * order**3 / best(lambda: A @ A)
    K = np.asfortranarray(A @ A.T + order * np.eye(order))

    def factor() -> float:
        copied, began = K.copy(order="F"), time.process_time()
        lapack.dpotrf(copied, lower=1, clean=0, overwrite_a=1)
        return time.process_time() - began

    return product, order**3 / 3 / min(factor() for _ in range(4))


def measure(key: dict, options: harness.Options) -> dict:
    def best(function: Callable) -> float:
        return harness.best_of(options.repeats, function, time.process_time)[0]

    rows, order, support = key["block"], key["order"], key["support"]
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, ((order + 1) * rows, 3))
    y = np.sin(6 * X).sum(axis=1, keepdims=True) + rng.standard_normal((len(X), 1))
    *near, own = (Block(X[i : i + rows], y[i : i + rows]) for i in range(0, len(X), rows))
    theta = Theta(kernels.Matern32(lengthscale=(0.3,) * 3), 0.1, rng.uniform(0, 1, (support, 3)))
    model = LMA(order)

    def evaluated() -> None:
        theta.kernel(X), theta.kernel(X, theta.inputs)

    def pulled() -> None:
        for tile, pull in (theta.kernel.pullback(X), theta.kernel.pullback(X, theta.inputs)):
            pull(tile)

    with threadpool_limits(1):
        prepared = model.prepare(theta)
        call, kernels_alone = partial(model.local, prepared, own, near), evaluated
        if key["work"] == "gradient":
            cotangent = model.objective(prepared, call()).cotangent
            call, kernels_alone = partial(model.local_vjp, prepared, own, cotangent, near), pulled
        product, cholesky = rates(len(X), best)
        seconds, kernel_s = best(call), best(kernels_alone)
    counted, factor = operations(rows, order * rows, support)[key["work"]], len(X) ** 3 / 3
    rate = (counted + factor) / seconds
    return {
        "window_rows": len(X),
        "operations": counted + factor,
        "ms": 1e3 * seconds,
        "kernel_ms": 1e3 * kernel_s,
        "gflops": rate / 1e9,
        "gemm_share": rate / product,
        "of_cholesky": rate / cholesky,
        "floor": (factor / cholesky + counted / product) / seconds,
    }


table = harness.reporting(
    "block work", "window_rows ms kernel_ms gflops gemm_share of_cholesky floor"
)
harness.command(
    globals(), blocks=([128, 256, 512, 1_024], [48]), order=2, support=(256, 16), repeats=5
)
