"""Kernel matrices contracted with blocks of vectors as they are made.

K(X, X') V for the rows X of one block and vectors V over the rows X' of another, with no tile kept.
Sums over rows of such products are what the weights of exact experts need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, to_host
from daskgp.kernels import Kernel
from daskgp.kernels.weights import Weights
from daskgp.models.method import Experts
from daskgp.models.values import Block, Theta, add
from daskgp.typing import Array


class Cross(NamedTuple):
    """Sums over rows x for functions f_j = sum of k(., x') alpha_j(x') over the rows of expert j.

    Outputs are summed; additive over rows.
    """

    products: np.ndarray
    """f_i(x) f_j(x), (M, M)."""
    hilbert: np.ndarray
    """alpha_i(x) f_j(x) for rows x of expert i, (M, M); over all rows <f_i, f_j> in the RKHS."""
    right: np.ndarray
    """f_i(x) y(x), (M,)."""
    rows: float
    """Number of rows."""


def combine(a: Cross, b: Cross) -> Cross:
    """Sums over both sets of rows."""
    found: Cross = add(a, b)
    return found


def values(kernel: Kernel, X: Array, experts: Iterable[tuple[Array, Array]]) -> Iterator[Array]:
    """Values (n, p) at X (n, d) of each expert's function, given its rows and weights (r, p)."""
    for rows, weights in experts:
        yield times(kernel, X, rows, weights)


def times(kernel: Kernel, X: Array, Z: Array, V: Array) -> Array:
    """K(X, Z) V (n, t), for X (n, d), Z (r, d) and V (r, t)."""
    return kernel.weighted(Z, Weights.dense(V), X).T


def cross_sums(
    kernel: Kernel,
    block: Block,
    own: Array,
    owner: int,
    experts: Iterable[tuple[Array, Array]],
    count: int,
) -> Cross:
    """Sums over the rows of one block, all of which belong to expert ``owner``.

    Parameters
    ----------
    kernel : Kernel
    block : Block
        Rows X (n, d) and y (n, p).
    own : (n, p) array
        Weights alpha of the owner at these rows.
    owner : int
    experts : iterable of (X (r, d), alpha (r, p))
        All M experts in their order, read one at a time.
    count : int
        M.
    """
    X, y = block
    F = np.empty((count, len(X) * y.shape[1]))  # outputs side by side
    for f, value in zip(F, values(kernel, X, experts), strict=True):
        f[...] = to_host(value).ravel()
    hilbert = np.zeros((count, count))
    hilbert[owner] = F @ to_host(own).ravel()
    return Cross(F @ F.T, hilbert, F @ to_host(y).ravel(), float(len(X)))


@dataclass(frozen=True, eq=False)
class Together:
    """All experts at t places: their rows X (n, d), u (n, t) over them, and where each begins.

    ``means`` are (t, M, p) and ``cross`` c_i (t, M).
    """

    X: Array
    u: Array
    starts: list[int]
    means: Array
    cross: Array

    @classmethod
    def solved(
        cls, theta: Theta, places: Array, experts: Experts, beta: Array | None = None
    ) -> Together:
        """u_i = C_i^-1 k_i of each expert, times beta_i where given."""
        xp, starts = namespace(places), [0]
        X, u, means, cross = [], [], [], xp.empty((len(places), len(experts)))
        for i in range(len(experts)):
            found = experts.conditioned(i)
            k = theta.kernel(found.X, places)
            solved = linalg.solve_lower_t(found.factor, linalg.solve_lower(found.factor, k))
            if beta is not None:
                solved *= beta[i]
            X.append(found.X)
            u.append(solved)
            means.append(k.T @ found.weights)
            cross[:, i] = xp.einsum("rt,rt->t", k, solved)
            starts.append(starts[-1] + len(found.X))
        return cls(xp.concatenate(X), xp.concatenate(u), starts, xp.stack(means, axis=1), cross)

    def of(self, i: int) -> slice:
        """Rows of expert i."""
        return slice(self.starts[i], self.starts[i + 1])

    def products(self, kernel: Kernel) -> Iterator[tuple[int, Array]]:
        """For each expert j, u times K(., X_j) u_j for its own rows and those after them.

        An entry for each row and place: sums over the rows of expert i give u_i' K_ij u_j.
        """
        for j in range(len(self.starts) - 1):
            own, first = self.of(j), self.starts[j]
            through = times(kernel, self.X[first:], self.X[own], self.u[own])
            through *= self.u[first:]
            yield j, through
