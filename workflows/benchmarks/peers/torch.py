"""PyTorch's automatic differentiation of the bound of computation-aware GPs, [CAGP] eq. 11.

It goes through blocks of rows that are computed again in the backward pass, so that the kernel
matrix is never kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

BLOCK_ROWS = 1_000


def cagp_bound(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    owner: np.ndarray,
    logs: np.ndarray,
    log_noise: float,
) -> Callable[[], tuple[float, np.ndarray]]:
    """Return a function that gives the bound and its gradient by logs, log of noise and weights.

    Row i has ``weights[i]`` in action ``owner[i]``, in ascending order; ``logs`` are those of
    variance and lengthscales of a Matérn-3/2 kernel.  The rows of an action are padded with rows
    of no weight, so that all have as many.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_default_dtype(torch.float64)
    (n, d), counts = X.shape, np.bincount(owner)
    t, k = len(counts), int(counts.max())
    starts = np.cumsum(counts) - counts
    place = torch.tensor(owner * k + np.arange(n) - starts[owner])
    X, y, owner = torch.tensor(X), torch.tensor(y), torch.tensor(owner)
    Z = torch.zeros(t * k, d).index_copy(0, place, X)
    logs, log_noise, weights = (
        torch.tensor(part, requires_grad=True) for part in (logs, log_noise, weights)
    )

    def matern(q: Any, variance: Any) -> Any:
        s = torch.sqrt(torch.clamp_min(q, 1e-30))  # no slope at coincident points
        return variance * (1 + s) * torch.exp(-s)

    def sums(rows: slice, logs: Any, weights: Any, padded: Any) -> tuple[Any, ...]:
        scale = torch.exp(logs[1:]) / 3**0.5
        u, z = X[rows] / scale, Z / scale
        u2, z2 = (u * u).sum(dim=1, keepdim=True), (z * z).sum(dim=1, keepdim=True)
        left = torch.cat([-2 * z, torch.ones_like(z2), z2], dim=1)
        right = torch.cat([u, u2, torch.ones_like(u2)], dim=1)
        K = matern(left @ right.T, torch.exp(logs[0]))
        F = torch.bmm(padded.view(t, 1, k), K.view(t, k, -1))[:, 0]
        G = torch.zeros(t, t).index_add(1, owner[rows], F * weights[rows])
        return F @ F.T, F @ y[rows], G

    def bound() -> Any:
        padded = torch.zeros(t * k).index_copy(0, place, weights)
        M, c, G = torch.zeros(t, t), torch.zeros(t), torch.zeros(t, t)
        for start in range(0, n, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, n))
            M_i, c_i, G_i = checkpoint(sums, rows, logs, weights, padded, use_reentrant=False)
            M, c, G = M + M_i, c + c_i, G + G_i
        T = torch.zeros(t).index_add(0, owner, weights**2)
        b = torch.zeros(t).index_add(0, owner, weights * y)
        return evidence(log_noise, M, c, 0.5 * (G + G.T), T, b, y @ y, n * torch.exp(logs[0]), n)

    def evaluate() -> tuple[float, np.ndarray]:
        value = bound()
        gradient = torch.autograd.grad(value, (logs, log_noise, weights))
        return value.item(), np.concatenate([np.ravel(part.numpy()) for part in gradient])

    return evaluate


def evidence(
    log_noise: Any, M: Any, c: Any, G: Any, T: Any, b: Any, square: Any, trace: Any, n: int
) -> Any:
    """Return the bound from sums over rows; T is the diagonal of S' S."""
    import torch

    s, t = torch.exp(log_noise), len(T)
    L = torch.linalg.cholesky(G + s * torch.diag(T))
    v = torch.cholesky_solve(b[:, None], L)[:, 0]
    explained = torch.cholesky_solve(torch.stack([M, G]), L).diagonal(dim1=1, dim2=2).sum(dim=1)
    misfit = square - 2 * c @ v + v @ M @ v + trace - explained[0]
    return -0.5 * (
        misfit / s
        + (n - t) * log_noise
        + n * np.log(2 * np.pi)
        + v @ G @ v
        - explained[1]
        + 2 * torch.log(L.diagonal()).sum()
        - torch.log(T).sum()
    )
