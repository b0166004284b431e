"""Gaussian posteriors q(f) from a few inducing functions: their rows, their KL, their gradient.

Letters: Z inducing functions (b of them); K = C[Z, Z], K_x = C[f(X), Z] a tile (n, b); T the
lower triangular root that is learned; bars are derivatives of the bound, g (n, p) and s (n,)
those for the means and variances of rows.  Two forms of the covariance:

hybrid   [DGP] eqs. 11-14, whitened: L L' = K, A' = K_x L^-T by rows, S = T T',
         mean A' e with e = w - h, variance k(x, x) - |A'|^2 + |A' T|^2.  The residual functions
         of the mean are taken less what Z explains of them, h = L^-1 C[Z, residual] a, so that
         w and a do not compete; the paper's m~ is L (w - h).
direct   [DGP] eqs. 7-9: B = T T', H = I + T' K T = L_H L_H', W = T L_H^-T,
         mean K_x a_Z, variance k(x, x) - |K_x W|^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, wide
from daskgp.typing import Array

STRIP = 128
"""Rows of a triangle processed at a time."""


class Factors(NamedTuple):
    """Factors that rows need: hybrid form L, T, e and h; direct form L_H, W, a_Z and K."""

    factor: Array
    spread: Array
    coefficients: Array
    explained: Array
    gram: Array


class Rows(NamedTuple):
    """Means (n, p) and variances less the prior's (n,) of rows, and what their gradient needs."""

    mean: Array
    less: Array
    whitened: Array
    spread: Array


class Sums(NamedTuple):
    """Sums over rows that go back through Z; (0, 0) for those not needed.

    A g (b, p), A diag(s) A' (b, b), the gradient for T without that of KL (b, b), and the lower
    triangle of A_bar A' (b, b).  The direct form has the first two, with K_x' for A.
    """

    projected: Array
    gram: Array
    root: Array
    adjoint: Array


class Through(NamedTuple):
    """Gradient of the bound, KL included, for K (b, b), T (b, b), the mean's weights on Z (b, p).

    ``residual`` (b, p) is that for C[Z, residual] a in the hybrid form, None in the direct one.
    """

    gram: Array
    root: Array
    weights: Array
    residual: Array | None


# -- hybrid --------------------------------------------------------------------------------------


def hybrid(factor: Array, root: Array, weights: Array, mixed: Array) -> Factors:
    """Return the factors from L, T, w and C[Z, residual] a (b, p)."""
    h = linalg.solve_lower(factor, mixed)
    return Factors(factor, root, weights - h, h, factor[:0])


def hybrid_rows(f: Factors, K_x: Array) -> Rows:
    """Return the rows of the hybrid form; K_x is left as it is."""
    A = linalg.whiten_rows(f.factor, K_x)
    B = linalg.times_lower(A, f.spread)
    return Rows(A @ f.coefficients, linalg.row_squares(B) - linalg.row_squares(A), A, B)


def hybrid_back(f: Factors, rows: Rows, g: Array, s: Array, natural: bool) -> tuple[Array, Sums]:
    """Return the cotangent of K_x (n, b) and sums; the memory of ``rows`` is reused.

    A_bar = e g' + 2 (S - I) A diag(s).  Natural gradients need A diag(s) A', others the gradient
    for T, 2 A diag(s) A' T.
    """
    A, B = rows.whitened, rows.spread
    A_bar = linalg.times_lower_t(B, f.spread)
    A_bar -= A
    A_bar *= (2 * s)[:, None]
    A_bar += g @ f.coefficients.T
    adjoint = linalg.lower_of_columns(A_bar, A)
    gram, root = A[:0, :0], A[:0, :0]
    if natural:
        gram = weighted_gram(A, s)
    else:
        B *= (2 * s)[:, None]
        root = linalg.lower_of_columns(A, B)
    K_bar = linalg.unwhiten_rows(f.factor, A_bar, overwrite=True)
    return K_bar, Sums(A.T @ g, gram, root, adjoint)


def hybrid_through(f: Factors, sums: Sums, weights: Array, explained: Array) -> Through:
    """Return the rest of the gradient: whitened, Cholesky's adjoint has a closed form.

    With M = A_bar A' + h_bar h', K_bar = -L^-T Phi(M) L^-1, Phi the lower triangle with half of
    its diagonal, since Phi(L' tril(L^-T M)) = Phi(M); K is symmetric, so K_bar need not be.
    ``explained`` estimates h if the residual's own quadratic form is estimated: then the same
    columns serve both.
    """
    L, T, p = f.factor, f.spread, weights.shape[1]
    xp = namespace(L)
    diagonal = xp.arange(len(L)), xp.arange(len(L))
    h_bar = explained - sums.projected
    half = sums.adjoint + (h_bar @ f.explained.T).astype(sums.adjoint.dtype, copy=False)
    half = -_lower(half)
    half[diagonal] *= 0.5
    rounded = L.astype(half.dtype, copy=False)
    gram = linalg.solve_lower_t(rounded, linalg.lower_over_lower(half, rounded))
    root = sums.root
    if root.size:
        root = root - p * T
        root[diagonal] += p / xp.diagonal(T)
    w_bar, residual = sums.projected - weights, linalg.solve_lower_t(L, h_bar)
    return Through(wide(gram), root, w_bar, residual)


def hybrid_kl(f: Factors, weights: Array) -> float:
    """Return KL without the residual's a' C a / 2, [DGP] eq. 14 with the half its log|.| lacks."""
    T, p = f.spread, weights.shape[1]
    xp = namespace(T)
    covariance = number((T * T).sum()) - len(T)
    covariance -= 2 * number(xp.log(abs(xp.diagonal(T))).sum())
    mean = number((weights * weights).sum()) - number((f.explained * f.explained).sum())
    return 0.5 * (p * covariance + mean)


def natural(
    weights: Array, precision: Array, projected: Array, curvature: Array, rate: float
) -> tuple[Array, Array]:
    """Return w and T after a natural-gradient step of length ``rate`` up the bound.

    In natural parameters, S^-1 w and S^-1, a step goes towards those that the gradient with
    respect to the mean parameters asks for (Hensman et al. 2013; mirror ascent of Cheng & Boots
    2016 is the same); ``rate=1`` gives the optimum of a full batch with a Gaussian likelihood.
    ``curvature`` is A diag(s) A' with no positive s, so that S^-1 stays positive definite.  The
    memory of ``precision``, S^-1, is reused.
    """
    p = weights.shape[1]
    linear = projected - (2 / p) * (curvature @ weights)
    shift = (1 - rate) * (precision @ weights) + rate * linear
    precision *= 1 - rate
    precision -= (2 * rate / p) * curvature
    linalg.add_to_diagonal(precision, rate)
    # the lower root of an inverse comes from factoring from the last row to the first
    factor, _ = linalg.cholesky(_turned(precision), jitter=0.0, overwrite=True)
    root = _turned(linalg.inverse_lower_t(factor))
    return root @ (root.T @ shift), root


# -- direct --------------------------------------------------------------------------------------


def direct(gram: Array, root: Array, weights: Array) -> Factors:
    """Return the factors from K, T and the mean's weights on Z."""
    H = root.T @ gram @ root
    linalg.add_to_diagonal(H, 1.0)
    factor, _ = linalg.cholesky(0.5 * (H + H.T), jitter=0.0)
    W = linalg.whiten_rows(factor, root)
    return Factors(factor, W, weights, weights[:0], gram)


def direct_rows(f: Factors, K_x: Array) -> Rows:
    """Return the rows of the direct form."""
    C = K_x @ f.spread
    return Rows(K_x[:, : len(f.coefficients)] @ f.coefficients, -linalg.row_squares(C), K_x, C)


def direct_back(f: Factors, rows: Rows, g: Array, s: Array) -> tuple[Array, Sums]:
    """Return the cotangent of K_x (n, b) and sums, [DGP] prop. 3."""
    K_x, none = rows.whitened, rows.whitened[:0, :0]
    K_bar = rows.spread @ f.spread.T
    K_bar *= (-2 * s)[:, None]
    if len(f.coefficients):
        K_bar += g @ f.coefficients.T
    return K_bar, Sums(K_x.T @ g, weighted_gram(K_x, s), none, none)


def direct_through(f: Factors, sums: Sums, root: Array, targets: int) -> Through:
    """Return the rest of the gradient, [DGP] prop. 2, 3, without the mean's part of KL."""
    K, xp = f.gram, namespace(root)
    inverse = linalg.inverse_from_factor(f.factor)  # H^-1
    R = f.spread @ f.spread.T
    H_bar = 0.5 * targets * (inverse @ inverse - inverse)
    left = sums.gram - K @ (R @ sums.gram)  # (I - K R) R_bar, R_bar = -K_x' diag(s) K_x
    by_root = 2 * (K @ root @ H_bar) - 2 * (left @ (root @ inverse))
    by_gram = root @ H_bar @ root.T + R @ sums.gram @ R
    weights = sums.projected if len(f.coefficients) else f.coefficients
    return Through(0.5 * (by_gram + by_gram.T), xp.tril(by_root), weights, None)


def direct_kl(f: Factors, targets: int) -> float:
    """Return KL without the mean's a' C a / 2, [DGP] eq. 9 with its footnote 9."""
    inverse = linalg.inverse_from_factor(f.factor)
    xp = namespace(inverse)
    trace = number(xp.diagonal(inverse).sum())
    return 0.5 * targets * (linalg.logdet_factor(f.factor) + trace - len(inverse))


# -- both ----------------------------------------------------------------------------------------


def _lower(A: Array) -> Array:
    """Return the lower triangle, the rest made zero in place."""
    xp = namespace(A)
    if xp is not np:
        return xp.tril(A)
    for i in range(0, len(A), STRIP):
        A[i : i + STRIP, i + STRIP :] = 0
        corner = A[i : i + STRIP, i : i + STRIP]
        corner[...] = xp.tril(corner)
    return A


def _turned(A: Array) -> Array:
    """Reverse the rows and columns of a square matrix."""
    return namespace(A).ascontiguousarray(A.ravel()[::-1]).reshape(A.shape)


def weighted_gram(A: Array, s: Array) -> Array:
    """Return A' diag(s) A (b, b), as the product of a matrix with itself if s has one sign."""
    xp = namespace(A)
    if not number((s > 0).any()):
        scaled = A * xp.sqrt(-s)[:, None]
        return -(scaled.T @ scaled)
    return A.T @ (A * s[:, None])
