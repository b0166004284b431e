"""Inducing and support inputs chosen from a sample of rows, and the scales of that sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.kernels import Kernel

MIN_SAMPLE, CANDIDATES = 2_000, 8


def sample_rows(number: int) -> int:
    """Rows to sample for the choice of ``number`` inputs: CANDIDATES for each, or MIN_SAMPLE."""
    return max(MIN_SAMPLE, CANDIDATES * number)


class Distances(NamedTuple):
    """Median absolute difference per column (d,) and median Euclidean distance of a sample."""

    per_column: np.ndarray
    euclidean: float


def median_distances(X: np.ndarray, rows: int = 1000) -> Distances:
    """Medians over the pairs of at most ``rows`` rows; zeros are left out, 1 where all are."""
    X = X[:: max(1, -(-len(X) // rows))]
    columns = np.array([_positive_median(pdist(X[:, [j]])) for j in range(X.shape[1])])
    return Distances(columns, _positive_median(pdist(X)))


def _positive_median(distances: np.ndarray) -> float:
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else 1.0


def correlation_lengths(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """Distance along each dimension (d,) at which the correlation has first fallen half-way.

    That is half-way from one to its lowest value within ten times the ranges ``spread`` (d,), so
    that a constant part does not count; infinite for a column that the kernel does not see.  So
    distances can be measured alike for every kernel.  Columns that the kernel ties are looked at
    over the widest of their ranges, so that their lengths have the proportions of the kernel.
    """
    spread = np.array(spread, np.float64)
    for group in map(list, kernel.tied_columns(len(spread))):
        spread[group] = np.where(spread[group] > 0, spread[group].max(), 0.0)
    steps, origin = np.geomspace(1e-5, 10.0, 241), np.zeros((1, len(spread)))
    found = np.full(len(spread), np.inf)
    for j, width in enumerate(spread):
        away = np.zeros((len(steps), len(spread)))
        away[:, j] = steps * width
        unit = np.sqrt(kernel.diag(away) * kernel.diag(origin)[0])
        # a kernel such as the linear one may be zero at the origin
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = kernel(away, origin)[:, 0] / unit
        lowest = max(float(correlation.min()), 0.0)  # NaN is not below anything
        middle = 0.5 * (1 + lowest)
        below = np.flatnonzero(correlation < middle)
        if len(below) and width > 0 and lowest < 1 - 1e-6:
            before, first = max(below[0] - 1, 0), below[0]  # between the two, so without a jump
            ends = correlation[[first, before]]
            found[j] = width * np.interp(middle, ends, steps[[first, before]])
    return found


def choose(
    X: np.ndarray, kernel: Kernel, number: int, how: str, rng: np.random.Generator
) -> np.ndarray:
    """``number`` distinct rows, or all there are, chosen from a sample X (N, d).

    Where ``greedy`` stops early, because the initial kernel is smoother than rounding lets it
    tell rows apart, random rows follow: a shorter lengthscale may want them.
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
    """The error for a way of choosing that there is not."""
    return SettingError(
        f"unknown selection {shown(how)}: choose 'greedy', 'kmeans', 'random' or give an array"
    )


def greedy(X: np.ndarray, kernel: Kernel, number: int, tol: float = 1e-10) -> np.ndarray:
    """Rows of largest conditional variance, one after another (pivoted Cholesky).

    Parameters
    ----------
    X : ndarray (N, d)
        Candidates.
    kernel : Kernel
        Its conditional variance given the rows chosen so far picks the next.
    number : int
        Rows wanted; fewer come back when the remaining conditional variances are all below
        ``tol`` of the largest prior variance, as with duplicated rows.
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
