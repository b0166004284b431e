"""Inducing and support inputs chosen from a sample of rows, and the scales of that sample."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.kernels import Kernel

MIN_SAMPLE, CANDIDATES = 2_000, 8


def sample_rows(number: int) -> int:
    """Return how many rows to sample for ``number`` inputs: CANDIDATES each, or MIN_SAMPLE."""
    return max(MIN_SAMPLE, CANDIDATES * number)


def choose(
    X: np.ndarray, kernel: Kernel, number: int, how: str, rng: np.random.Generator
) -> np.ndarray:
    """Choose ``number`` distinct rows, or all there are, from a sample X (N, d).

    If ``greedy`` stops early, because the initial kernel is too smooth to tell rows apart beyond
    rounding, random rows follow: a shorter lengthscale may need them.
    """
    distinct, place = np.unique(X, axis=0, return_inverse=True)
    number = min(number, len(distinct))
    if how == "greedy":
        chosen = greedy(X, kernel, number)
        if len(chosen) == number:
            return X[chosen]
        left = np.setdiff1d(np.arange(len(distinct)), place.ravel()[chosen])
        others = rng.choice(left, number - len(chosen), replace=False)
        return np.concatenate([X[chosen], distinct[np.sort(others)]])
    if how == "kmeans":
        seed = int(rng.integers(2**31))
        return KMeans(number, n_init=1, max_iter=20, random_state=seed).fit(X).cluster_centers_
    if how == "random":
        return distinct[np.sort(rng.choice(len(distinct), number, replace=False))]
    raise unknown(how)


def unknown(how: str) -> SettingError:
    """Return the error for an unknown way of choosing."""
    return SettingError(
        f"unknown selection {shown(how)}: choose 'greedy', 'kmeans', 'random' or give an array"
    )


def greedy(X: np.ndarray, kernel: Kernel, number: int, tol: float = 1e-10) -> np.ndarray:
    """Return the rows of largest conditional variance, one after another (pivoted Cholesky).

    Parameters
    ----------
    X : ndarray (N, d)
        Candidates.
    kernel : Kernel
        Its conditional variance given the rows chosen so far picks the next.
    number : int
        Number of rows; fewer are returned if the remaining conditional variances are all below
        ``tol`` times the largest prior variance, as with duplicated rows.
    """
    variance = np.array(kernel.diag(X), dtype=np.float64)
    stop = tol * variance.max(initial=0.0)
    factor = np.empty((min(number, len(X)), len(X)))
    chosen: list[int] = []
    for j in range(len(factor)):
        pivot = int(np.argmax(variance))
        if variance[pivot] <= stop:
            break
        column = kernel(X[pivot : pivot + 1], X)[0]
        column = column - factor[:j, pivot] @ factor[:j]
        factor[j] = column / np.sqrt(variance[pivot])
        variance -= factor[j] ** 2
        variance[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.intp)
