"""Computation-aware GP: the posterior given a few linear combinations of the targets.

[CAGP] eqs. 5, 9, 11 and Lemmas S1-S4.  Letters: S actions (n, t); s the noise variance; F = S' K
(t, n) the actions' functions at the rows; G = S' K S; T = S' S; W = G + s T; b = S' y; v = W^-1 b;
P = W^-1; M = F F' and c = F y summed over rows.  Whatever S is, the posterior is that of an exact
GP that saw S' y alone, so its variance is never below that given all of y.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.linalg import lapack

from daskgp import linalg
from daskgp.backend import namespace
from daskgp.errors import NumericalError
from daskgp.inducing import wide
from daskgp.kernels import Kernel
from daskgp.kernels.weights import Weights
from daskgp.model import Block, Footprint, Moments, Shape, Theta, Want, add
from daskgp.typing import Array

TILE_ROWS = 2_048
"""Rows at which the actions' functions are held at a time."""
COLLINEAR = 1e-11
"""An action is dropped where the others leave less than this share of its variance."""

LossName = Literal["elbo", "projected"]


class Panel(NamedTuple):
    """Some of the points that actions are made of: X (a, d) and the actions' weights on them.

    ``places`` (a,) say which points they are, to who wants to know.
    """

    X: Array
    weights: Weights
    places: np.ndarray | None = None


class Stats(NamedTuple):
    """Sums over rows; zero where rows do not enter."""

    gram: Array
    """M = F F' (t, t)."""
    right: Array
    """c = F y (t, p)."""
    joint: Array
    """G = F S (t, t)."""
    cross: Array
    """b = S' y (t, p)."""
    normal: Array
    """T = S' S (t, t)."""
    trace: float
    """Sum of k(x, x)."""
    square: Array
    """Sum of y^2 per target (p,)."""
    rows: float
    """Number of rows."""


class Cotangent(NamedTuple):
    """Derivatives of the objective: dL/dF = gram F + right y' + joint S' and so on."""

    gram: Array
    right: Array
    joint: Array
    cross: Array
    normal: Array
    trace: float


class Objective(NamedTuple):
    """Value to maximise, its derivative by the logarithm of s, cotangents, actions dropped."""

    value: float
    noise: float
    cotangent: Cotangent
    dropped: int


class State(NamedTuple):
    """Solved posterior: actions kept (r,), the factor of their W (r, r), v (r, p).

    ``points`` () is the number of points that predictions read back.
    """

    columns: np.ndarray
    factor: Array
    weights: Array
    points: np.ndarray


@dataclass(frozen=True)
class CaGP:
    """Settings of the computation-aware GP.

    Parameters
    ----------
    loss : {"elbo", "projected"}
        What training maximises: the evidence lower bound of all targets, [CAGP] eq. 11, or the
        evidence of the projected ones, eq. 9.
    """

    loss: LossName = "elbo"

    name: ClassVar[str] = "cagp"
    state_type: ClassVar[Any] = State
    keeps_rows: ClassVar[bool] = True

    @property
    def needs_rows(self) -> bool:
        """Whether the objective wants the actions' functions at all rows."""
        return self.loss == "elbo"

    def local(
        self,
        theta: Theta,
        block: Block,
        F: Array,
        own: Weights | None = None,
        weight: float | None = 1.0,
    ) -> Stats:
        """Sums over one block.

        Parameters
        ----------
        theta : Theta
        block : Block
        F : (t, n) array
            The actions' functions at its rows.
        own : Weights, optional
            S at the rows of a block that are points of actions.
        weight : float or None
            How often each row counts among all rows; None where it does not.
        """
        xp, (X, y) = namespace(block.X), block
        t, p = len(F), y.shape[1]
        F, y = wide(F), wide(y)
        gram, right, joint, cross, normal = (xp.zeros((t, w)) for w in (t, p, t, p, t))
        zero = Stats(gram, right, joint, cross, normal, 0.0, xp.zeros(p), 0.0)
        if weight is not None:
            scaled = F * weight if weight != 1.0 else F
            zero = zero._replace(
                gram=scaled @ F.T,
                right=scaled @ y,
                trace=weight * float(theta.kernel.diag(X).sum(dtype=np.float64)),
                square=weight * (y**2).sum(axis=0),
                rows=weight * len(X),
            )
        if own is None:
            return zero
        weights = own.astype(np.dtype(np.float64))
        return zero._replace(
            joint=weights.times(F),
            cross=weights.times(y.T).T,
            normal=weights.times(weights.spread(xp.eye(t))),
        )

    def combine(self, a: Stats, b: Stats) -> Stats:
        """Sums over both sets of rows."""
        return add(a, b)

    def objective(self, noise_variance: float, total: Stats) -> Objective:
        """The loss with its sign changed, and its adjoint; actions that say nothing are dropped."""
        kept = independent(noise_variance, total)
        few = _picked(total, kept)
        by = _elbo if self.loss == "elbo" else _projected
        value, noise, cotangent = by(noise_variance, few)
        dropped = len(total.joint) - len(kept)
        return Objective(value, noise, _scattered(cotangent, kept, len(total.joint)), dropped)

    def pull(
        self,
        theta: Theta,
        block: Block,
        F: Array,
        panels: Iterable[Panel],
        cotangent: Cotangent,
        own: Weights | None = None,
        weight: float | None = 1.0,
    ) -> tuple[np.ndarray, list[Array], Array | None]:
        """Gradient through one block.

        Returns
        -------
        kernel : (k,) array
            By the logarithms of the kernel's parameters.
        weights : list of arrays
            By the weights of each panel, through the functions at these rows.
        own : array or None
            By the weights of the block's own points, through S.
        """
        xp, (X, y) = namespace(block.X), block
        F, y = wide(F), wide(y)
        F_bar, by_own = xp.zeros(F.shape), None
        kernel = np.zeros(len(theta.kernel.log_parameters))
        if weight is not None:
            xp.matmul(cotangent.gram, F, out=F_bar)
            F_bar += cotangent.right @ y.T
            F_bar *= weight
            traces = xp.full(len(X), weight * cotangent.trace, X.dtype)
            kernel += theta.kernel.diag_vjp(X, traces).log_parameters
        if own is not None:
            S = own.astype(np.dtype(np.float64))
            F_bar += S.spread(cotangent.joint)
            P = cotangent.joint @ F
            P += cotangent.cross @ y.T
            P += S.spread(2 * cotangent.normal)
            by_own = S.pulled(P)
        F_bar, found = F_bar.astype(X.dtype, copy=False), []
        for panel in panels:
            gradient = theta.kernel.weighted_vjp(panel.X, panel.weights, X, F_bar)
            kernel += gradient.log_parameters
            found.append(gradient.weights)
        return kernel, found, by_own

    def solve(self, noise_variance: float, total: Stats, points: int) -> State:
        """What prediction needs, [CAGP] eq. 5 and Algorithm S2."""
        kept = independent(noise_variance, total)
        few = _picked(total, kept)
        L, _ = linalg.cholesky(_inner(noise_variance, few), jitter=0.0, overwrite=True)
        return State(kept, L, _solved(L, few.cross), np.array(points, np.int64))

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """[CAGP] eq. 5: mean k' S v and variance k** - |L^-1 S' k|^2 with W = L L'."""
        xp = namespace(X)
        F = wide(functions(theta.kernel, near, X))
        F = F[xp.asarray(state.columns)]
        mean = F.T @ state.weights
        if want == "mean":
            return Moments(mean)
        A = linalg.whiten_rows(state.factor, xp.ascontiguousarray(F.T), overwrite=True)
        if want == "variance":
            return Moments(mean, variance=theta.kernel.diag(X) - linalg.row_squares(A))
        return Moments(mean, covariance=theta.kernel(X) - A @ A.T)

    def footprint(self, shape: Shape) -> Footprint:
        """Functions at a tile of rows and their cotangent, and summaries, in a task.

        ``inputs`` are the actions and ``window_rows`` the points of a panel; operations are n
        kernel entries of about 30 a row and point, value and gradient.
        """
        t, p = shape.inputs, shape.targets
        tile = min(TILE_ROWS, shape.block_rows)
        stats = 8 * (3 * t * t + 2 * t * p + p + 2)
        panel = 8 * shape.window_rows * (2 * shape.features + 4)
        return Footprint(
            task=8 * 4 * t * tile + 2 * stats + panel,
            stats=stats,
            solve=12 * 8 * t * t,
            state=8 * (t * t + t * p) + 8 * shape.near_rows * (shape.features + 1),
            operations=60.0 * shape.rows * max(shape.near_rows, 1) + 4.0 * shape.rows * t * t,
        )


def functions(kernel: Kernel, panels: Iterable[Panel], X: Array) -> Array:
    """F = S' K(Z, X) (t, n) over the points of all panels."""
    F: Array | None = None
    for panel in panels:
        F = kernel.weighted(panel.X, panel.weights, X, F)
    if F is None:
        raise NumericalError("no points to predict from: fit again")
    return F


def independent(noise_variance: float, total: Stats) -> np.ndarray:
    """The actions (r,) that say something: not zero, and independent of one another.

    By a pivoted Cholesky factor of W with unit diagonal.
    """
    W = _inner(noise_variance, total)
    if not np.isfinite(W).all():
        raise NumericalError(
            "the actions' covariance is not finite: look for NaN, or raise the noise variance"
        )
    diagonal = np.diagonal(W)
    usable = np.flatnonzero(diagonal > 0)
    if not len(usable):
        raise NumericalError("all actions are zero: choose others, or more rows an action")
    scale = 1 / np.sqrt(diagonal[usable])
    unit = W[np.ix_(usable, usable)] * scale * scale[:, None]
    _, pivots, rank, _ = lapack.dpstrf(unit, tol=COLLINEAR, lower=1)
    return np.sort(usable[pivots[:rank] - 1])


def _inner(s: float, total: Stats) -> np.ndarray:
    """W = G + s T."""
    G = 0.5 * (total.joint + total.joint.T)
    W: np.ndarray = G + s * total.normal
    return W


def _picked(total: Stats, kept: np.ndarray) -> Stats:
    """The sums of some actions alone."""
    if len(kept) == len(total.joint):
        return total
    both = np.ix_(kept, kept)
    return total._replace(
        gram=total.gram[both],
        right=total.right[kept],
        joint=total.joint[both],
        cross=total.cross[kept],
        normal=total.normal[both],
    )


def _scattered(cotangent: Cotangent, kept: np.ndarray, t: int) -> Cotangent:
    """Cotangents of all actions, zero for those that were dropped."""
    if len(kept) == t:
        return cotangent
    both, found = np.ix_(kept, kept), {}
    for name in ("gram", "joint", "normal"):
        found[name] = np.zeros((t, t))
        found[name][both] = getattr(cotangent, name)
    for name in ("right", "cross"):
        found[name] = np.zeros((t, cotangent.right.shape[1]))
        found[name][kept] = getattr(cotangent, name)
    return Cotangent(**found, trace=cotangent.trace)


def _solved(L: Array, B: Array) -> Array:
    """(L L')^-1 B."""
    return linalg.solve_lower_t(L, linalg.solve_lower(L, B))


def _elbo(s: float, total: Stats) -> tuple[float, float, Cotangent]:
    """Minus [CAGP] eq. 11 with its derivatives by log s and by the sums.

    With u = W^-1 dL/dv the derivative by W is that through P, the determinant and v = P b.
    """
    G, T = 0.5 * (total.joint + total.joint.T), total.normal
    t, p, M, c, b = len(G), total.cross.shape[1], total.gram, total.right, total.cross
    L, _ = linalg.cholesky(G + s * T, jitter=0.0)
    P, v = linalg.inverse_from_factor(L), _solved(L, b)
    Mv, Gv = M @ v, G @ v
    square = float(total.square.sum()) - 2 * float((c * v).sum()) + float((v * Mv).sum())
    gap = _trace_gap(total.trace - float(np.vdot(P, M)), total, s)
    misfit = square + p * gap
    N, _ = linalg.cholesky(T, jitter=0.0)
    n = total.rows
    loss = 0.5 * (
        misfit / s
        + p * (n - t) * np.log(s)
        + p * n * np.log(2 * np.pi)
        + float((v * Gv).sum())
        - p * float(np.vdot(P, G))
        + p * (linalg.logdet_factor(L) - linalg.logdet_factor(N))
    )
    u = _solved(L, (Mv - c) / s + Gv)
    outer = v @ v.T - p * P
    M_bar = 0.5 / s * outer
    W_bar = 0.5 * p * (P @ (M / s + G) @ P + P) - 0.5 * (u @ v.T + v @ u.T)
    G_bar = 0.5 * outer + W_bar
    T_bar = s * W_bar - 0.5 * p * linalg.inverse_from_factor(N)
    noise = 0.5 * (p * (n - t) - misfit / s) + s * float(np.vdot(W_bar, T))
    cotangent = Cotangent(-2 * M_bar, v / s, -G_bar, -u, -T_bar, -0.5 * p / s)
    return -loss, -noise, cotangent


def _trace_gap(gap: float, total: Stats, s: float) -> float:
    """Sum of the posterior variances at the rows; NumericalError if rounding spoils it."""
    if gap < -max(1e-3 * s * total.rows, 1e-7 * total.trace):
        raise NumericalError(
            f"the summed posterior variance of {gap:.3g} is negative beyond rounding at noise "
            f"variance {s:.3g}: use dtype='float64', a larger noise_variance or fewer actions"
        )
    return gap


def _projected(s: float, total: Stats) -> tuple[float, float, Cotangent]:
    """Minus [CAGP] eq. 9 with its derivatives by log s and by the sums."""
    G, T, b = 0.5 * (total.joint + total.joint.T), total.normal, total.cross
    t, p = len(G), b.shape[1]
    L, _ = linalg.cholesky(G + s * T, jitter=0.0)
    N, _ = linalg.cholesky(T, jitter=0.0)
    v = _solved(L, b)
    loss = 0.5 * (
        float((b * v).sum())
        + p * (linalg.logdet_factor(L) - linalg.logdet_factor(N))
        + p * t * np.log(2 * np.pi)
    )
    W_bar = 0.5 * (p * linalg.inverse_from_factor(L) - v @ v.T)
    T_bar = s * W_bar - 0.5 * p * linalg.inverse_from_factor(N)
    nothing = np.zeros((t, t))
    cotangent = Cotangent(nothing, np.zeros_like(b), -W_bar, -v, -T_bar, 0.0)
    return -loss, -s * float(np.vdot(W_bar, T)), cotangent
