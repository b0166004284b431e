"""Linear systems with the kernel matrix of all rows, known only by its products with vectors.

[CAGP] Algorithm S1 with residual actions, which is conjugate gradients with all directions kept.
Letters: A = K + s I; y targets (n, p); r residuals y - A v; s_i actions, d_i search directions,
D = [d_1 ...] with D' A D = I; z = A s_i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]
"""A V (n, m) for V (n, m)."""


class Directions(NamedTuple):
    """Actions of the iterative form D (n, i), and the relative residual after each (i,)."""

    actions: np.ndarray
    residuals: np.ndarray


def residual_directions(product: Product, y: np.ndarray, number: int, tol: float) -> Directions:
    """Return search directions for residual actions, [CAGP] Algorithm S1 (Wenger et al. 2022).

    They span the same space as the residuals of conjugate gradients, so the mean they give is that
    of CG after as many steps.  Of several targets, the one furthest from solved gives the action.

    Parameters
    ----------
    product : callable
        Product with A, called once per step.
    y : (n, p) array
    number : int
        Maximum number of actions.
    tol : float
        Relative residual of the worst target at which to stop.
    """
    D, AD = np.empty((len(y), number)), np.empty((len(y), number))
    r, first = y.copy(), np.linalg.norm(y, axis=0)
    first[first == 0] = 1.0
    residuals: list[float] = []
    for i in range(number):
        worst = int(np.argmax(np.linalg.norm(r, axis=0) / first))
        d = r[:, worst].copy()
        size = np.linalg.norm(d)
        if not size:
            break
        d /= size
        z = product(d[:, None])[:, 0]
        before = float(d @ z)
        for _ in range(2):  # a single pass leaves rounding along all earlier directions
            along = AD[:, :i].T @ d
            d -= D[:, :i] @ along
            z -= AD[:, :i] @ along
        eta = float(d @ z)
        if eta <= 1e-13 * before:
            break
        D[:, i], AD[:, i] = d / np.sqrt(eta), z / np.sqrt(eta)
        r -= np.outer(AD[:, i], D[:, i] @ r)
        residuals.append(float((np.linalg.norm(r, axis=0) / first).max()))
        if residuals[-1] <= tol:
            break
    return Directions(np.ascontiguousarray(D[:, : len(residuals)]), np.array(residuals))


class Left(NamedTuple):
    """Value of r' A^-1 r (m,) from below, and whether it has settled."""

    value: np.ndarray
    settled: bool


def energy(product: Product, r: np.ndarray, tol: np.ndarray, lowest: float, max_steps: int) -> Left:
    """Return r' A^-1 r for columns of r (n, m) by conjugate gradients; each step only adds to it.

    Parameters
    ----------
    product : callable
        Product of A with m vectors, called once per step.
    r : (n, m) array
    tol : (m,) array
        Amount that may be missing once settled; it is at most r' r / lowest of the last r.
    lowest : float
        Lower bound of the eigenvalues of A: s.
    max_steps : int
    """
    r, d = r.copy(), r.copy()
    squares = (r * r).sum(axis=0)
    value, settled = np.zeros(r.shape[1]), not squares.any()
    for _ in range(max_steps):
        if settled:
            break
        Ad = product(d)
        curvature = (d * Ad).sum(axis=0)
        step = np.where(curvature > 0, squares / np.where(curvature > 0, curvature, 1.0), 0.0)
        value += step * squares
        r -= step * Ad
        following = (r * r).sum(axis=0)
        settled = bool((following <= lowest * tol).all())
        ratio = np.where(squares > 0, following / np.where(squares > 0, squares, 1.0), 0.0)
        d = r + ratio * d
        squares = following
    return Left(value, settled)
