"""Independent exact GPs on blocks of rows, each predicting the places inside its block alone."""

import time

import numpy as np
from datasets import Split
from harness import Outcome

import daskgp

ROWS, TRAIN_BLOCKS = 300, 64
Blocks = list[tuple[np.ndarray, np.ndarray]]
"""Rows and places of each block."""


def exact_blocks(split: Split, threads: int) -> Outcome:
    """Fit blocks of about 300 rows on one thread: more only slow matrices as small as those."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        began = time.perf_counter()
        scaled, unit = split.standardised(inputs=True), split.y.std()
        blocks = halved(scaled, np.arange(len(split.y)), np.arange(len(split.y_test)))
        drawn = np.random.default_rng(0).permutation(len(blocks))[:TRAIN_BLOCKS]
        picked = [blocks[i][0] for i in drawn]
        variance, reach, noise = trained([(scaled.X[rows], scaled.y[rows]) for rows in picked])
        fitted = time.perf_counter()
        kernel = daskgp.kernels.Matern12(variance=variance, lengthscale=reach)
        mean, spread = predicted(scaled, blocks, kernel, noise)
    remark = f"standardised: noise {noise:.3g}, variance {variance:.3g}, range {reach:.3g}"
    moments = split.y.mean() + unit * mean, unit**2 * spread
    seconds = fitted - began, time.perf_counter() - fitted
    return Outcome(*seconds, *moments, {"remark": remark})


def predicted(
    split: Split, blocks: Blocks, kernel: daskgp.kernels.Kernel, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of y at the places, each block from its own rows."""
    own = {"noise_variance": noise, "mean": "zero", "standardize": False, "optimizer": None}
    model = daskgp.ExactGP(kernel, **own, progress=False)
    mean, variance = np.empty(len(split.X_test)), np.empty(len(split.X_test))
    for rows, places in blocks:
        if len(places):
            model.fit(split.X[rows], split.y[rows])
            at = split.X_test[places]
            mean[places], std = model.predict(at, return_std=True, include_noise=True)
            variance[places] = std**2
    return mean, variance


def halved(split: Split, rows: np.ndarray, places: np.ndarray) -> Blocks:
    """Return blocks of about equal size: cells cut across their longer side."""
    pieces = round(len(rows) / ROWS)
    if pieces < 2:
        return [(rows, places)]
    side = int(np.argmax(np.ptp(split.X[rows], axis=0)))
    order = rows[np.argsort(split.X[rows, side], kind="stable")]
    middle = len(order) * (pieces // 2) // pieces
    low = split.X_test[places, side] < split.X[order[middle], side]
    lower = halved(split, order[:middle], places[low])
    return lower + halved(split, order[middle:], places[~low])


def trained(blocks: Blocks) -> np.ndarray:
    """Return variance, lengthscale and noise of the largest summed log evidence of blocks."""
    from scipy import linalg, optimize, spatial

    distances = [spatial.distance.squareform(spatial.distance.pdist(X)) for X, _ in blocks]

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        variance, lengthscale, noise = np.exp(logs)
        value, gradient = 0.0, np.zeros(3)
        for D, (_, y) in zip(distances, blocks, strict=True):
            K = variance * np.exp(-D / lengthscale)
            L = linalg.cholesky(K + noise * np.eye(len(y)), lower=True)
            inverse = linalg.cho_solve((L, True), np.eye(len(y)))
            alpha = inverse @ y
            value += 0.5 * (y @ alpha) + np.log(np.diag(L)).sum()
            W = 0.5 * (inverse - np.outer(alpha, alpha))
            gradient += (W * K).sum(), (W * K * D).sum() / lengthscale, noise * np.trace(W)
        return value, gradient

    start = np.log([1.0, 0.5, 0.1])
    bounds = [(-14, 7)] * 3
    return np.exp(optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x)
