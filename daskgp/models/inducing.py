"""Inducing or support inputs of a method: their choice, K(Z, Z), its factor and its gradient.

Letters: Z inputs (m, d), L L' = K(Z, Z) + jitter, A' = K(X, Z) L^-T, the whitened
tile by rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number
from daskgp.checks import meant, shown
from daskgp.errors import SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.compose import codes_of, extents_of
from daskgp.models.values import Moments, Theta, ThetaBar, Want
from daskgp.typing import Array

MIN_SAMPLE, CANDIDATES = 2_000, 8
"""Least rows of a sample, and rows an input, that inputs are chosen from."""


class Prepared(NamedTuple):
    """Hyper-parameters and the Cholesky factor L (m, m) of K(Z, Z)."""

    theta: Theta
    factor: Array
    jitter: float


def prepare(theta: Theta, jitter: float) -> Prepared:
    """Compute the Cholesky factor of K(Z, Z), in float64 whatever dtype the tiles use."""
    Z = inputs_of(theta).astype(np.float64)
    factor, used = linalg.cholesky(theta.kernel(Z), jitter, overwrite=True)
    return Prepared(theta, factor, used)


def inputs_of(theta: Theta) -> Array:
    """Return the inducing or support inputs (m, d)."""
    assert theta.inputs is not None, "this method needs inducing or support inputs"
    return theta.inputs


def inputs_vjp(prepared: Prepared, K_bar: Array) -> ThetaBar:
    """Return the gradient through K(Z, Z) and its jitter, which scales with the mean diagonal."""
    kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(np.float64)
    _, pull = kernel.pullback(Z)
    through = pull(K_bar)
    share = prepared.jitter * number(K_bar.trace()) / len(Z)
    diagonal = kernel.diag_vjp(Z, namespace(Z).full(len(Z), share))
    parameters = through.log_parameters + diagonal.log_parameters
    return ThetaBar(parameters, 0.0, through.X + diagonal.X)


def posterior(
    kernel: Kernel,
    Z: Array,
    factor: Array,
    weights: Array,
    X: Array,
    want: Want,
    spread: Callable[[Array], Array] | None = None,
) -> Moments:
    """Return the mean k' weights and the variance k** - |a|^2 + |spread(a)|^2, a = L^-1 k.

    The terms of the variance are added in that order.  ``spread`` maps whitened rows A' (n, m),
    which it may overwrite, to rows (n, r).
    """
    dtype = X.dtype
    K = kernel(X, Z.astype(dtype, copy=False))
    mean = K @ weights.astype(dtype, copy=False)
    if want == "mean":
        return Moments(mean)
    A = linalg.whiten_rows(factor.astype(dtype, copy=False), K, overwrite=True)
    if want == "variance":
        variance = kernel.diag(X)
        variance -= linalg.row_squares(A)
        if spread is not None:
            variance += linalg.row_squares(spread(A))
        return Moments(mean, variance=variance)
    covariance = kernel(X) - A @ A.T
    if spread is not None:
        C = spread(A)
        covariance += C @ C.T
    return Moments(mean, covariance=covariance)


WAYS = ("greedy", "kmeans", "random")
"""Ways of choosing inputs among rows."""


def sample_rows(number: int) -> int:
    """Return how many rows to sample for ``number`` inputs: CANDIDATES each, or MIN_SAMPLE."""
    return max(MIN_SAMPLE, CANDIDATES * number)


def choose(
    X: np.ndarray, kernel: Kernel, number: int, how: str, rng: np.random.Generator
) -> np.ndarray:
    """Choose ``number`` distinct rows, or all there are, from a sample X (N, d) in any order.

    Rows that are averages over areas stand for the points at their centres.

    If ``greedy`` stops early, because the initial kernel is too smooth to tell rows apart beyond
    rounding, random rows follow: a shorter lengthscale may need them.
    """
    X = X.copy()
    X[:, list(extents_of(kernel, X.shape[1]))] = 0.0
    distinct, counts = np.unique(X, axis=0, return_counts=True)
    number = min(number, len(distinct))
    if how == "greedy":
        chosen = greedy(distinct, kernel, number)
        left = np.setdiff1d(np.arange(len(distinct)), chosen)
        others = rng.choice(left, number - len(chosen), replace=False)
        return distinct[np.concatenate([chosen, np.sort(others)])]
    if how == "kmeans":
        seed, rows = int(rng.integers(2**31)), np.repeat(distinct, counts, axis=0)
        found = centres(rows, number, seed)
        codes = list(codes_of(kernel, X.shape[1]))
        found[:, codes] = np.rint(found[:, codes])  # there is nothing between two categories
        return found
    if how == "random":
        return distinct[np.sort(rng.choice(len(distinct), number, replace=False))]
    raise unknown("how", how)


def unknown(name: str, how: str) -> SettingError:
    """Return the error for a setting that is an unknown way of choosing."""
    hint = meant(how, WAYS, "choose 'greedy', 'kmeans', 'random' or give an array")
    return SettingError(f"{name}={shown(how)}: {hint}")


def centres(X: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return the centres of clusters of rows X (n, d)."""
    from sklearn.cluster import KMeans  # a task, which has its inputs, need not import it

    search = KMeans(number, n_init=1, max_iter=20, random_state=seed)
    found: np.ndarray = search.fit(X).cluster_centers_
    return found


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
