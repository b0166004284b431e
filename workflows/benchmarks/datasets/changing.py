"""Fields whose lengthscale and variance change from place to place, drawn exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from daskgp import kernels
from datasets.processes import PLACES, Draw, Truth, noisy
from datasets.split import Split

RATIO = 10.0
"""Factor by which lengthscales grow, and variances fall, over the unit square."""
LINES, EACH = 50, 5
"""Lines that are flown, of which one of so many is left out."""


def change(X: np.ndarray, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Return lengthscales and variances at rows X (n, 2); those of the truth are the middle."""
    grown = RATIO ** (X[:, 0] - 0.5)
    return truth.lengthscale * grown, truth.variance / grown


def covariance(X: np.ndarray, truth: Truth) -> np.ndarray:
    """Return the covariance of rows X (n, 2) in the plane (Paciorek & Schervish 2006)."""
    lengths, variances = change(X, truth)
    squares = (lengths[:, None] ** 2 + lengths**2) / 2
    K = np.sqrt(((X[:, None, 0] - X[:, 0]) ** 2 + (X[:, None, 1] - X[:, 1]) ** 2) / squares)
    unit = kernels.parse(f"{truth.family}(lengthscale=1.0, variance=1.0)")
    for i in range(0, len(K), 256):
        K[i : i + 256] = unit(K[i : i + 256].reshape(-1, 1), np.zeros((1, 1))).reshape(-1, len(K))
    K *= np.sqrt(np.outer(variances, variances)) * np.outer(lengths, lengths) / squares
    return K


def changing(rows: int, left_out: Callable[[np.random.Generator, int], np.ndarray]) -> Draw:
    """Return how to draw such a field at rows, and at those of them that are left out."""

    def draw(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
        X = left_out(rng, (rows + PLACES) // 10 if tiny else rows + PLACES)
        X, out = X[:, :2], X[:, 2] > 0
        K = covariance(X, truth)
        K[np.diag_indices_from(K)] += 1e-8 * truth.variance
        L = scipy.linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        f = L @ rng.standard_normal(len(X))
        return noisy(rng, truth, X, f, np.flatnonzero(~out), np.flatnonzero(out))

    return draw


def at_random(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows evenly in the unit square; a third column is 1 for those left out."""
    few = np.arange(rows) < max(rows * PLACES // 12_000, 1)
    return np.column_stack([rng.uniform(size=(rows, 2)), few])


def flown(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows along lines, of which some are left out whole."""
    line = np.arange(rows) % LINES
    across = (line + 0.5) / LINES + rng.normal(0, 0.1 / LINES, rows)
    return np.column_stack([rng.uniform(size=rows), across, line % EACH == EACH // 2])
