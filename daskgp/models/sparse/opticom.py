"""OptiCom: GPs on the partial grids of a sparse grid, optimally combined ([OPT] section 3).

Letters: as in collapsed.py with Z the m points of the sparse grid, so S = A A' and b = A y hold
all that the partial grids need from the rows.  The points Z_l of partial grid l are rows I of Z, so
K(x, Z_l) = a' L[I, :]' with a = L^-1 k(Z, x).  Q_l (m, m_l) is an orthonormal basis of the columns
of L[I, :]'; B_l = I + Q_l' S Q_l / s; F_l = Q_l L_{B_l}^-T, so that Q_l B_l^-1 Q_l' = F_l F_l'.
Grid l predicts f_l(x) = a' w_l with w_l = F_l F_l' b / s, and f = sum c_l f_l = a' G b with
G = sum c_l F_l F_l' / s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.linalg import eigh, qr

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace
from daskgp.errors import InputError
from daskgp.models import collapsed
from daskgp.models.collapsed import Collapsed, Stats
from daskgp.models.inducing import Prepared, inputs_of, posterior
from daskgp.models.optimal_weights import optimal_weights
from daskgp.models.pathwise import PathDraw, Paths, PathState, by_inducing
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.sparse_grid import SparseGrid
from daskgp.models.values import TILE_ROWS, Footprint, Moments, Shape, Theta, Want, move
from daskgp.typing import Array


class State(NamedTuple):
    """Solved combination.

    ``factor`` is L (m, m), ``weights`` (m, p) those of the mean, ``coefficients`` c (g,) those of
    the partial grids.  ``spread`` (m, m) is U of the variance k** - |a|^2 + |U' a|^2, or for the
    paper's variance E of k** - a' E a, the sum of Q_l Q_l' - F_l F_l' with the coefficients of the
    combination technique.
    """

    factor: Array
    weights: Array
    spread: Array
    coefficients: Array


@dataclass(frozen=True)
class OptiCom(Collapsed):
    """Settings of the optimised combination technique.

    Parameters
    ----------
    level : int
        Level eta of the sparse grid; the inducing inputs are its points in the order of
        ``sparse_grid.build``, under any affine map of the axes.
    weights : {"projection", "paper", "combination"}
        Coefficients of the grids: those of least penalised risk with the right-hand side
        <f_l, f*>, or with the paper's <f_l, f_l>, or those of the combination technique.
    variance : {"linear", "paper"}
        Error variance of the linear predictor, or [OPT] eq. 35b, which can be negative.
    ridge : float
        Pull of the coefficients towards those of the combination technique, relative to the mean
        of the diagonal of the system.
    jitter : float
        Added to the diagonal of K(Z, Z), relative to its mean.
    tile_rows : int
        Rows per tile of the kernel.
    """

    level: int = 4
    weights: Literal["projection", "paper", "combination"] = "projection"
    variance: Literal["linear", "paper"] = "linear"
    ridge: float = 1e-6
    jitter: float = 1e-8
    tile_rows: int = collapsed.TILE_ROWS

    name: ClassVar[str] = "opticom"
    state_type: ClassVar[Any] = State

    def steadier(self) -> str:
        """Return the setting that cannot make a variance negative."""
        return "variance='linear'" if self.variance == "paper" else super().steadier()

    def posterior(self, prepared: Prepared, total: Stats) -> State:
        """Return the partial grids' coefficients and combination, [OPT] Algorithms 1 and 2."""
        xp = namespace(total.gram)
        if xp is not np:  # many small and uneven systems: on the host
            state = self.posterior(move(prepared, "cpu"), move(total, "cpu"))
            return State(*(xp.asarray(part) for part in state))
        s, L, b = prepared.theta.noise_variance, prepared.factor, total.projection
        grid = self._grid(inputs_of(prepared.theta))
        S = linalg.symmetrize(total.gram.copy())
        parts, E = [], np.zeros_like(S)
        for plain, (Q, F) in zip(grid.coefficients, _solved_grids(grid, L, S, s), strict=True):
            parts.append(F)
            if self.variance == "paper":
                E += plain * (Q @ Q.T - F @ F.T)
        W = np.stack([F @ (F.T @ b) for F in parts]) / s
        c = self._coefficients(W, S, b, s, grid.coefficients)
        weights = linalg.solve_lower_t(L, np.tensordot(c, W, 1))
        if self.variance == "paper":
            return State(L, weights, E, c)
        sizes, F = [F.shape[1] for F in parts], np.concatenate(parts, axis=1)
        del parts, E
        G = (F * np.repeat(c / s, sizes)) @ F.T
        return State(L, weights, _linear_spread(S, G, s), c)

    def _grid(self, Z: Array) -> SparseGrid:
        # a column in which all points agree is no axis of the grid; a single point has level 1
        d = max(1, int((Z[1:] != Z[:-1]).any(axis=0).sum()))
        grid = sparse_grid.build(d, self.level)
        if len(grid.points) != len(Z):
            raise InputError(
                f"{len(Z)} inducing inputs are not a sparse grid of level {self.level}: the "
                f"{len(grid.points)} points of sparse_grid.build({d}, {self.level}) are needed"
            )
        return grid

    def _coefficients(
        self, W: np.ndarray, S: np.ndarray, b: np.ndarray, s: float, plain: np.ndarray
    ) -> np.ndarray:
        """Return coefficients c (g,): c - plain solves the system for what ``plain`` leaves.

        So a ridge pulls towards the combination technique, and the penalised risk
        R(sum c_l f_l) is never above that of its coefficients ``plain``, whatever the ridge.
        """
        if self.weights == "combination":
            return plain
        M = np.einsum("ij,ljp->lip", S, W, optimize=True) + s * W  # (S + s I) w_l
        flat, through = W.reshape(len(W), -1), M.reshape(len(W), -1)
        inner = flat @ through.T  # [OPT] eq. 39, summed over targets
        inner = 0.5 * (inner + inner.T)
        if self.weights == "projection":
            right = flat @ (b - np.tensordot(plain, M, 1)).ravel()  # <f_l, f* - f_plain>
        else:
            right = np.diag(inner) - inner @ plain
        return plain + optimal_weights(inner, right, self.ridge, "partial grids")

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior, [OPT] eq. 35a, with the chosen variance."""
        if self.variance == "paper" and want != "mean":
            return _paper_posterior(theta, state, X, want)

        def spread(A: Array) -> Array:
            return A @ state.spread.astype(A.dtype, copy=False)

        Z = inputs_of(theta)
        return posterior(theta.kernel, Z, state.factor, state.weights, X, want, spread)

    def why_no_paths(self) -> str | None:
        """Return which setting rules out sample paths; None if none does."""
        if self.variance == "linear":
            return None
        return "variance='paper' gives no covariance to draw sample paths from: fit with 'linear'"

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths with the error covariance of the linear predictor."""
        spread = state.spread
        return by_inducing(
            draw, inputs_of(theta), state.factor, state.weights, lambda normal: spread @ normal
        )

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint of the sums, and of a solve with all partial grids at once."""
        m, p = shape.inputs, shape.targets
        levels = sparse_grid.multi_indices(shape.features, self.level)
        beside = int(sparse_grid.partial_sizes(levels).sum())
        plain = collapsed.footprint(shape, self.tile_rows)
        grids = 8 * m * (2 * beside + 3 * len(levels) * p)
        return plain._replace(
            solve=max(plain.solve, 8 * 9 * m * m + grids),
            state=8 * (m * m + m * p + len(levels)) + plain.stats,
            predict=plain.predict + 8 * m * TILE_ROWS,
        )


def _solved_grids(
    grid: SparseGrid, L: np.ndarray, S: np.ndarray, s: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield Q_l and F_l (m, m_l) of each partial grid."""
    for rows in grid.members:
        Q, _ = qr(L[rows].T, mode="economic", overwrite_a=True, check_finite=False)
        Q = np.ascontiguousarray(Q)
        inner, _ = linalg.cholesky(np.eye(Q.shape[1]) + Q.T @ (S @ Q) / s, jitter=0.0)
        yield Q, linalg.whiten_rows(inner, Q)


def _linear_spread(S: np.ndarray, G: np.ndarray, s: float) -> np.ndarray:
    """Return U (m, m) with |U' a|^2 = |(I - S G) a|^2 + s a' G S G a.

    Under the model of the sparse GP, f(x) and b = A y have covariance S a, and b has S^2 + s S:
    the error variance of a' G b is k** - |a|^2 plus this.  R = U U' is at least B^-1, that of the
    best linear predictor, so only rounding makes an eigenvalue negative.
    """
    SG = S @ G
    R = s * (G @ SG)
    np.negative(SG, out=SG)
    SG[np.diag_indices(len(SG))] += 1.0
    R += SG.T @ SG
    sizes, vectors = eigh(0.5 * (R + R.T), overwrite_a=True, check_finite=False)
    vectors *= np.sqrt(np.maximum(sizes, 0.0))
    return np.ascontiguousarray(vectors)


def _paper_posterior(theta: Theta, state: State, X: Array, want: Want) -> Moments:
    """Return [OPT] eq. 35b: k** - a' E a, which need not be positive."""
    dtype = X.dtype
    K = theta.kernel(X, inputs_of(theta).astype(dtype))
    mean = K @ state.weights.astype(dtype, copy=False)
    A = linalg.whiten_rows(state.factor.astype(dtype, copy=False), K, overwrite=True)
    EA = A @ state.spread.astype(dtype, copy=False)
    if want == "variance":
        EA *= A
        return Moments(mean, variance=theta.kernel.diag(X) - EA.sum(axis=1))
    return Moments(mean, covariance=theta.kernel(X) - EA @ A.T)
