"""Seconds of one block of LMA against its operations.

    python workflows/benchmarks/lma.py [--blocks 128,256]

The summary of one block given those near it, and its gradient, on one BLAS thread, in time of the
processor.  Operations are those that the equations of the method ask for, kernels apart; rates are
their number over the seconds, kernels included, beside those of a matrix product and of LAPACK's
Cholesky factor of the window's order measured in the same run.  The floor is the time of these
operations at these two rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import harness
import numpy as np
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from daskgp import kernels
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta

WORK = ("summary", "gradient")


def keys(options: harness.Options) -> Iterator[dict]:
    for rows in sorted(options.blocks):
        yield {"block": rows, "order": options.markov_order, "support": options.support}


def operations(b: int, c: int, m: int) -> tuple[float, float]:
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
    return float(window + gram), float(window + solves + through + features + kernel)


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
    """Return seconds, operations and rates of one block."""

    def best(function: Callable) -> float:
        return harness.best_of(options.repeats, function, time.process_time)[0]

    rows, order, support = key["block"], key["order"], key["support"]
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, ((order + 1) * rows, 3))
    y = np.sin(6 * X).sum(axis=1, keepdims=True) + rng.standard_normal((len(X), 1))
    *near, own = (Block(X[i : i + rows], y[i : i + rows]) for i in range(0, len(X), rows))
    theta = Theta(kernels.Matern32(lengthscale=(0.3,) * 3), 0.1, rng.uniform(0, 1, (support, 3)))
    model = LMA(order)

    def pulled() -> None:
        for tile, pull in (theta.kernel.pullback(X), theta.kernel.pullback(X, theta.inputs)):
            pull(tile)

    with threadpool_limits(1):
        prepared = model.prepare(theta)
        cotangent = model.objective(prepared, model.local(prepared, own, near)).cotangent
        calls: dict[str, tuple[Callable, Callable]] = {
            "summary": (
                partial(model.local, prepared, own, near),
                lambda: (theta.kernel(X), theta.kernel(X, theta.inputs)),
            ),
            "gradient": (partial(model.local_vjp, prepared, own, cotangent, near), pulled),
        }
        product, cholesky = rates(len(X), best)
        found = {"window_rows": len(X), "gemm": product, "cholesky": cholesky}
        factor = len(X) ** 3 / 3
        for name, counted in zip(WORK, operations(rows, order * rows, support), strict=True):
            taken, kernel = map(best, calls[name])
            found[name] = {
                "seconds": taken,
                "kernel_s": kernel,
                "operations": factor + counted,
                "of_gemm": (factor + counted) / taken / product,
                "of_cholesky": (factor + counted) / taken / cholesky,
                "floor": (factor / cholesky + counted / product) / taken,
            }
    return found


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and rates against the rows of a block."""
    heads = ["block", "window", "", "ms", "kernel ms", "GFLOP/s", "of the product"]
    lines = []
    for row in records:
        for name in WORK if "window_rows" in row else ():
            one = row[name]
            times = (f"{1e3 * one[part]:.1f}" for part in ("seconds", "kernel_s"))
            rate = f"{one['operations'] / one['seconds'] / 1e9:.1f}"
            shares = (f"{one[part]:.2f}" for part in ("of_gemm", "of_cholesky", "floor"))
            sizes = (f"{n:,}" for n in (row["key"]["block"], row["window_rows"]))
            lines.append([*sizes, name, *times, rate, *shares])
    return harness.markdown([*heads, "of the Cholesky factor", "floor / time"], lines)


harness.command(
    globals(), blocks=([128, 256, 512, 1_024], [48]), markov_order=2, support=(256, 16), repeats=5
)
