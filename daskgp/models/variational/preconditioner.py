"""Coordinates in which the weights of many functions are easy to learn.

The mean's quadratic form a' C a is as badly conditioned as C.  With the functions in groups of
nearby ones and F F' the diagonal blocks of C, its matrix is nearly the identity in the coordinates
u = F' a; [DGP] App. A.1 asks for such a preconditioner, linear in the number of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskgp.arrays import linalg

RIDGE = 1e-3
"""Share of the functions' own variance: directions with less are not stretched further."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Change of coordinates a = F^-T u, group by group.

    Parameters
    ----------
    members : sequence of int arrays
        Groups that together make up all functions.
    factors : sequence of arrays (k, k)
        F of each, lower triangular; (k,) for a diagonal one.
    fresh : bool
        Whether the groups differ from those of the previous step.
    """

    members: Sequence[np.ndarray]
    factors: Sequence[np.ndarray]
    fresh: bool = False

    def pull(self, gradient: np.ndarray) -> np.ndarray:
        """Return F^-1 g."""
        pulled = np.empty_like(gradient)
        for group, F in zip(self.members, self.factors, strict=True):
            g = gradient[group]
            pulled[group] = g / F[:, None] if F.ndim == 1 else linalg.solve_lower(F, g)
        return pulled

    def push(self, move: np.ndarray) -> np.ndarray:
        """Return F^-T u."""
        pushed = np.empty_like(move)
        for group, F in zip(self.members, self.factors, strict=True):
            u = move[group]
            pushed[group] = u / F[:, None] if F.ndim == 1 else linalg.solve_lower_t(F, u)
        return pushed


def root(C: np.ndarray, variance: float) -> np.ndarray:
    """Return F of a block C (k, k) with a ridge; single precision is enough for coordinates."""
    factor, _ = linalg.cholesky(C + RIDGE * variance * np.eye(len(C)), 0.0, overwrite=True)
    return factor.astype(np.float32)
