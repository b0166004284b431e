"""Weights of the combination with the least penalised risk, [OPT] eqs. 40-42."""

from __future__ import annotations

import logging
from typing import TypeAlias

import numpy as np
from scipy.linalg import solve

from daskgp.errors import NumericalError

logger: logging.Logger = logging.getLogger("daskgp")

CANCELLING = 30.0
"""Sum of the weights' sizes, relative to their sum or 1, above which they are said to cancel."""

System: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Inner products (M, M) and right-hand side (M,) of the weights."""


def expert_weights(system: System, ridge: float, shrunk: System | None = None) -> np.ndarray:
    """Return ``optimal_weights`` of experts (M,), with a warning if large ones cancel."""
    beta = optimal_weights(*system, ridge, shrunk=shrunk)
    total, size = abs(float(beta.sum())), float(np.abs(beta).sum())
    if size > CANCELLING * max(1.0, total):
        logger.warning(
            "the weights of %d experts cancel (their absolute values add up to %.3g), which "
            "makes variances wide: choose a larger shrinkage, such as 0.1, for sparse "
            "experts, ridge=1e-3, or fewer experts",
            len(beta),
            size,
        )
    return beta


def optimal_weights(
    inner: np.ndarray,
    right: np.ndarray,
    ridge: float,
    what: str = "experts",
    shrunk: System | None = None,
) -> np.ndarray:
    """Return the weights (M,) of the combination with the least penalised risk, [OPT] eqs. 40-42.

    Parameters
    ----------
    inner : ndarray (M, M)
        Inner products <f_i, f_j> of the experts' means.
    right : ndarray (M,)
        <f_i, f*>; the paper has the diagonal of ``inner``.
    ridge : float
        Added to the diagonal, relative to its mean.
    what : str
        Name in messages of what is combined.
    shrunk : tuple of ndarray (M, M) and (M,), optional
        System that is solved instead, of full rank; ``inner`` tells the rank.

    Raises
    ------
    NumericalError
        If the system is singular: experts predict alike, and there is no ridge.  With a ridge
        they share their weight, and a warning is logged.
    """
    inner, right = np.asarray(inner, np.float64), np.asarray(right, np.float64)
    count, scale = len(inner), float(np.mean(np.diag(inner)))
    sizes = np.abs(np.linalg.eigvalsh(inner))
    rank = int(np.count_nonzero(sizes > sizes.max(initial=0.0) * count * np.finfo(float).eps))
    if not rank:  # all predictions are zero: nothing to weigh
        return np.zeros(count)
    if rank < count and not ridge and shrunk is None:
        raise NumericalError(
            f"the weights of {count} {what} are not determined, the rank of their inner products "
            f"is {rank}: choose ridge=1e-6 or fewer {what}"
        )
    if rank < count:
        logger.warning(
            "the inner products of %d %s have rank %d: some predict alike and share their weight",
            count,
            what,
            rank,
        )
    if shrunk is not None:
        inner, right = shrunk
    regular = inner + ridge * scale * np.eye(count)
    return np.asarray(solve(regular, right, assume_a="sym"))
