"""Kernel matrices contracted with blocks of vectors as they are computed.

K(X, X') V for the rows X of one block and vectors V over the rows X' of another, with no tile kept.
The weights of exact experts need sums over rows of such products.
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
from daskgp.models.values import Block, Scaled, Theta
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


def times(kernel: Kernel, X: Array, Z: Array, V: Array) -> Array:
    """Return K(X, Z) V (n, t), for X (n, d), Z (r, d) and V (r, t)."""
    return kernel.weighted(Z, Weights.dense(V), X).T


def cross_sums(
    theta: Theta,
    block: Block,
    own: Array,
    owner: int,
    experts: Iterable[tuple[Array, Array]],
    count: int,
) -> Cross:
    """Return sums over the rows of one block, all of which belong to expert ``owner``.

    Parameters
    ----------
    theta : Theta
    block : Block
        Rows X (n, d) and y (n, p); those with noise variances d count s / d times.
    own : (n, p) array
        Weights alpha of the owner at these rows.
    owner : int
    experts : iterable of (X (r, d), alpha (r, p))
        All M experts in their order, read one at a time.
    count : int
        Number M of experts.
    """
    X, y = block.X, block.y
    F = np.empty((count, len(X) * y.shape[1]))  # outputs side by side
    for f, (rows, weights) in zip(F, experts, strict=True):
        f[...] = to_host(times(theta.kernel, X, rows, weights)).ravel()
    hilbert = np.zeros((count, count))
    hilbert[owner] = F @ to_host(own).ravel()
    scaled = Scaled.of(theta.noise_variance, block)
    if scaled is not None:
        y = scaled.y
        F *= np.repeat(to_host(scaled.root), y.shape[1])
    return Cross(F @ F.T, hilbert, F @ to_host(y).ravel(), float(len(X)))


@dataclass(frozen=True, eq=False)
class Together:
    """All experts at t places: their rows X (n, d), u (n, t) over them, and where each begins.

    ``means`` are (t, M, p), ``cross`` c_i (t, M) and ``noise`` the rows' noise variances (n,).
    """

    X: Array
    u: Array
    starts: list[int]
    means: Array
    cross: Array
    noise: Array

    @classmethod
    def solved(
        cls, theta: Theta, places: Array, experts: Experts, beta: Array | None = None
    ) -> Together:
        """Return all experts with u_i = C_i^-1 k_i, times beta_i if provided."""
        xp, starts = namespace(places), [0]
        X, u, means, noise = [], [], [], []
        cross = xp.empty((len(places), len(experts)))
        for i in range(len(experts)):
            expert = experts.conditioned(i)
            k = theta.kernel(expert.X, places)
            solved = linalg.solve_from_factor(expert.factor, k)
            if beta is not None:
                solved *= beta[i]
            X.append(expert.X)
            u.append(solved)
            means.append(k.T @ expert.weights)
            cross[:, i] = xp.einsum("rt,rt->t", k, solved)
            noise.append(expert.noise)
            starts.append(starts[-1] + len(expert.X))
        return cls(
            xp.concatenate(X),
            xp.concatenate(u),
            starts,
            xp.stack(means, axis=1),
            cross,
            xp.concatenate(noise),
        )

    def of(self, i: int) -> slice:
        """Return the slice of expert i's rows."""
        return slice(self.starts[i], self.starts[i + 1])

    def products(self, kernel: Kernel) -> Iterator[tuple[int, Array]]:
        """Yield, for each expert j, u times K(., X_j) u_j at its own rows and those after them.

        There is one entry per row and place: sums over the rows of expert i give u_i' K_ij u_j.
        """
        for j in range(len(self.starts) - 1):
            own, first = self.of(j), self.starts[j]
            through = times(kernel, self.X[first:], self.X[own], self.u[own])
            through *= self.u[first:]
            yield j, through
