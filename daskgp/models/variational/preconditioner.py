"""Coordinates in which the weights of many functions are easy to learn.

The mean's quadratic form a' C a is as badly conditioned as C.  With the functions in groups of
neighbours and F F' the diagonal blocks of C, the coordinates u = F' a have one of nearly the
identity; [DGP] App. A.1 asks for such a preconditioner that is linear in the number of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskgp.arrays import linalg

RIDGE = 1e-3
"""Share of the functions' own variance: directions of less are not stretched further."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """a = F^-T u, group by group.

    Parameters
    ----------
    members : sequence of int arrays
        The groups, which make up all functions.
    factors : sequence of arrays (k, k)
        F of each, lower triangular; (k,) for a diagonal one.
    fresh : bool
        Whether the groups are not those of the step before.
    """

    members: Sequence[np.ndarray]
    factors: Sequence[np.ndarray]
    fresh: bool = False

    def pull(self, gradient: np.ndarray) -> np.ndarray:
        """F^-1 g."""
        found = np.empty_like(gradient)
        for few, F in zip(self.members, self.factors, strict=True):
            g = gradient[few]
            found[few] = g / F[:, None] if F.ndim == 1 else linalg.solve_lower(F, g)
        return found

    def push(self, move: np.ndarray) -> np.ndarray:
        """F^-T u."""
        found = np.empty_like(move)
        for few, F in zip(self.members, self.factors, strict=True):
            u = move[few]
            found[few] = u / F[:, None] if F.ndim == 1 else linalg.solve_lower_t(F, u)
        return found


def root(C: np.ndarray, variance: float) -> np.ndarray:
    """F of a block C (k, k) with a ridge; single precision is enough for coordinates."""
    factor, _ = linalg.cholesky(C + RIDGE * variance * np.eye(len(C)), 0.0, overwrite=True)
    return factor.astype(np.float32)
