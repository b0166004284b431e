"""Computation-aware GP: the posterior given a few linear combinations of the targets.

[CAGP] eqs. 5, 9, 11 and Lemmas S1-S4.  Letters: S actions (n, t); s the noise variance; F = S' K
(t, n) the actions' functions at the rows; G = S' K S; T = S' S; W = G + s T = L L'; b = S' y;
P = W^-1; v = P b; A = L^-1 F; e = y - F' v.  Where rows have noise variances D of their own, T =
S' D S / s and each row counts s / d times.  Whatever S is, the posterior is that of an exact
GP that saw S' y alone, so its variance is never below that given all of y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.linalg import lapack

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.errors import NumericalError
from daskgp.kernels.weights import Weights
from daskgp.models.actions.passes import (
    PANEL_ROWS,
    Paired,
    functions_at,
    own_weights,
    panels_of,
    tiled,
)
from daskgp.models.actions.sums import (
    TILE_ROWS,
    ActionBar,
    ActionTheta,
    Cotangent,
    Factored,
    Loss,
    Panel,
    PointSums,
    RowSums,
    functions,
)
from daskgp.models.method import Method, Pass, Rounds
from daskgp.models.pathwise import ActionUpdate, OfPoints, PathDraw, Paths, PathState
from daskgp.models.values import TILE_ROWS as PREDICTED_ROWS
from daskgp.models.values import (
    Block,
    Footprint,
    Moments,
    Objective,
    Piece,
    Scaled,
    Shape,
    Theta,
    Want,
    add,
)
from daskgp.typing import Array

COLLINEAR = 1e-11
"""An action is dropped if the others leave less than this share of its variance."""

LossName = Literal["elbo", "projected"]


class State(NamedTuple):
    """Solved posterior: actions kept (r,), the factor of their W (r, r), v (r, p).

    ``points`` () is the number of points that predictions read back.
    """

    columns: np.ndarray
    factor: Array
    weights: Array
    points: np.ndarray


class _Begun(NamedTuple):
    """Evaluation whose points are factored."""

    factored: Factored
    shared: tuple[Any, ...]
    kept: Any


@dataclass(frozen=True)
class CaGP(Method):
    """Settings of the computation-aware GP: three passes per evaluation.

    Its ``theta`` is an ``ActionTheta``; of rows that are not ``Paired`` all are points.

    Parameters
    ----------
    loss : {"elbo", "projected"}
        Objective of training: the evidence lower bound of all targets, [CAGP] eq. 11, or the
        evidence of the projected ones, eq. 9.
    """

    loss: LossName = "elbo"

    name: ClassVar[str] = "cagp"
    state_type: ClassVar[Any] = State
    keeps_rows: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True

    @property
    def needs_rows(self) -> bool:
        """True if the objective needs the actions' functions at all rows."""
        return self.loss == "elbo"

    def evaluate(self, theta: Theta, rows: Rounds | Paired) -> Objective:
        """Return the objective with its gradient: a pass over points and two over rows."""
        theta, pairs = _taken(theta, rows)
        begun = self._begin(theta, pairs)
        loss, over, kept = self._loss(begun, pairs)
        shared = (*begun.shared, loss.cotangent)
        both = over is pairs.points and self.needs_rows
        gradient = pairs.points.sum(self._pulling(True, both), *shared, kept=begun.kept)
        if self.needs_rows and not both:
            gradient = add(gradient, over.sum(self._pulling(False, True), *shared, kept=kept))
        return Objective(loss.value, gradient._replace(noise=loss.noise + gradient.noise), None)

    def solve(self, theta: Theta, rows: Rounds | Paired) -> tuple[State, float]:
        """Return what prediction needs, from the points alone, and the objective."""
        theta, pairs = _taken(theta, rows)
        begun = self._begin(theta, pairs)
        state = self.posterior(begun.factored, int(pairs.complete.sum()))
        return state, self._loss(begun, pairs)[0].value

    def _begin(self, theta: ActionTheta, pairs: Paired) -> _Begun:
        """Factor the sums over points, and keep the functions at the points if they fit."""
        plain = Theta(theta.kernel, theta.noise_variance)
        shared = pairs.points.points(PANEL_ROWS), plain, theta.weights
        over = self._pass("points", _at_points, pairs.points is pairs.rows, pairs.actions)
        total, kept = pairs.points.forward(over, *shared)
        with pairs.points.solving(len(total.joint)):
            factored = self.factor(theta.noise_variance, total)
        return _Begun(factored, shared, kept)

    def _loss(self, begun: _Begun, pairs: Paired) -> tuple[Loss, Rounds, Any]:
        """Return the objective, the rows that count and what was kept for them."""
        total, over, kept, factored = None, pairs.rows, begun.kept, begun.factored
        if self.needs_rows:
            if pairs.batch is not None:
                over = over.batch(*pairs.batch)
            at_rows = self._pass("rows", _at_rows, True, pairs.actions)
            shared = (*begun.shared, factored)
            if over is pairs.points:
                total = over.sum(at_rows, *shared, kept=kept)
            else:
                total, kept = over.forward(at_rows, *shared)
            # a mini-batch stands for all rows, whose number is known
            total = total._replace(rows=float(pairs.count))
        with pairs.points.solving(len(factored.factor)):
            return self.objective(factored, total), over, kept

    def _pass(self, what: str, function: Callable[..., Any], generous: bool, actions: int) -> Pass:
        """Return a pass that sums, and keeps the functions at the rows."""
        return tiled(
            f"{self.name}-{what}",
            partial(_first, function, self),
            keeping=partial(function, self),
            kept_bytes=partial(_kept_bytes, actions),
            generous=generous,
        )

    def _pulling(self, own: bool, counts: bool) -> Pass:
        return tiled(f"{self.name}-gradient", partial(_pull, self, own, counts))

    def at_points(self, F: Array, block: Block, weights: Weights) -> PointSums:
        """Return sums over rows that are points.

        Parameters
        ----------
        F : (t, n) array
            The actions' functions at these rows.
        block : Block
        weights : Weights
            S at these rows.
        """
        S, F, noise = weights.astype(np.dtype(np.float64)), wide(F), block.noise
        own, given = S.spread(namespace(F).eye(len(F))), None
        if noise is not None:
            own, given = own * noise[:, 0], S.times(own * noise[:, 1])
        return PointSums(S.times(F), S.times(wide(block.y).T).T, S.times(own), given)

    def factor(self, noise_variance: float, points: PointSums) -> Factored:
        """Return the factor of W and the projected weights, without uninformative actions."""
        kept = independent(noise_variance, points)
        index = namespace(points.joint).asarray(kept)
        both = index[:, None], index
        given = None if points.given is None else points.given[both]
        joint = _symmetric(points.joint)[both]
        sums = PointSums(joint, points.cross[index], points.normal[both], given)
        noise = noise_variance * sums.relative(noise_variance)
        L, _ = linalg.cholesky(sums.joint + noise, jitter=0.0)
        v = linalg.solve_from_factor(L, sums.cross)
        return Factored(kept, L, v, sums, float(noise_variance), len(points.joint))

    def at_rows(
        self, theta: Theta, block: Block, F: Array, factored: Factored, weight: float = 1.0
    ) -> RowSums:
        """Return sums over rows that each count ``weight`` times and have functions F (t, n)."""
        A, e = _explained(block, F, factored)
        prior, logs = theta.kernel.diag(block.X), 0.0
        scaled = Scaled.of(factored.noise_variance, block)
        if scaled is not None:
            A, e = scaled.root[:, None] * A, scaled.root[:, None] * e
            prior, logs = scaled.root**2 * prior, scaled.logs
        trace = number(prior.sum(dtype=np.float64))
        return RowSums(
            weight * (A.T @ A),
            weight * (A.T @ e),
            weight * number((e**2).sum()),
            weight * (trace - number(linalg.row_squares(A).sum())),
            weight * trace,
            weight * len(A),
            weight * logs,
        )

    def objective(self, factored: Factored, rows: RowSums | None) -> Loss:
        """Return the loss with its sign changed, and its adjoint; only the bound takes ``rows``."""
        if self.loss == "elbo":
            assert rows is not None
            value, noise, gradient = _elbo(factored, rows)
        else:
            value, noise, gradient = _projected(factored)
        xp, t = namespace(gradient.joint), factored.actions
        kept = xp.asarray(factored.columns)
        joint, normal, given = (xp.zeros((t, t)) for _ in range(3))
        cross = xp.zeros((t, gradient.cross.shape[1]))
        both = kept[:, None], kept
        joint[both], normal[both], given[both] = gradient.joint, gradient.normal, gradient.given
        cross[kept] = gradient.cross
        cotangent = Cotangent(factored, joint, cross, normal, given, self.needs_rows)
        return Loss(value, noise, cotangent)

    def pull(
        self,
        theta: Theta,
        block: Block,
        F: Array,
        panels: Iterable[Panel],
        cotangent: Cotangent,
        own: Weights | None = None,
        weight: float | None = 1.0,
    ) -> tuple[np.ndarray, float, list[tuple[Any, Array]], Array | None]:
        """Return the gradient through one block.

        Parameters
        ----------
        theta : Theta
        block : Block
        F : (t, n) array
            The actions' functions at its rows.
        panels : iterable of Panel
            All points.
        cotangent : Cotangent
        own : Weights, optional
            S at the rows of a block that are points.
        weight : float or None
            How often each row counts among all rows; None if the rows do not count.

        Returns
        -------
        kernel : (k,) array
            With respect to the logarithms of the kernel's parameters.
        noise : float
            With respect to log s, through how often rows with noise variances of their own count.
        weights : list of pairs of arrays
            Places of each panel, and with respect to its weights, through the functions at these
            rows.
        own : array or None
            With respect to the weights of the block's own points, through S.
        """
        xp, X, y, noise = namespace(block.X), block.X, block.y, 0.0
        F_bar, by_own = xp.zeros(F.shape), None
        kernel = np.zeros(len(theta.kernel.log_parameters))
        if weight is not None and cotangent.rows:
            factored, p = cotangent.factored, y.shape[1]
            A, e = _explained(block, F, factored)
            share = weight / factored.noise_variance
            scaled, prior = Scaled.of(factored.noise_variance, block), theta.kernel.diag(X)
            if scaled is not None:
                misfit = (e**2).sum(axis=1) + p * (prior - linalg.row_squares(A))
                by_share = 0.5 * (p * weight - share * scaled.root**2 * misfit)
                noise = number((scaled.share * by_share).sum())
                share = share * scaled.root[:, None] ** 2
            through = linalg.unwhiten_rows(factored.factor, A, overwrite=True)
            through *= p
            through += e @ factored.weights.T
            through *= share
            F_bar[xp.asarray(factored.columns)] = through.T
            traces = xp.empty(len(X), X.dtype)
            traces[...] = (-0.5 * p * share) if scaled is None else (-0.5 * p * share)[:, 0]
            kernel += theta.kernel.diag_vjp(X, traces).log_parameters
        if own is not None:
            S = own.astype(np.dtype(np.float64))
            F_bar += S.spread(cotangent.joint)
            P = cotangent.joint @ wide(F)
            P += cotangent.cross @ wide(y).T
            own_noise = S.spread(2 * cotangent.normal)
            if block.noise is not None:
                own_noise *= block.noise[:, 0]
                own_noise += S.spread(2 * cotangent.given) * block.noise[:, 1]
            P += own_noise
            by_own = S.pulled(P)
        F_bar, by_panels = F_bar.astype(X.dtype, copy=False), []
        for panel in panels:
            gradient = theta.kernel.weighted_vjp(panel.X, panel.weights, X, F_bar, by_inputs=False)
            kernel += gradient.log_parameters
            by_panels.append((panel.places, gradient.weights))
        return kernel, noise, by_panels, by_own

    def posterior(self, factored: Factored, points: int) -> State:
        """Return what prediction needs, [CAGP] eq. 5 and Algorithm S2."""
        count = np.array(points, np.int64)
        return State(factored.columns, factored.factor, factored.weights, count)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return [CAGP] eq. 5: mean k' S v and variance k** - |L^-1 S' k|^2 with W = L L'."""
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

    def paths(
        self, theta: Theta, state: State, draw: PathDraw, seen: Array, count: int
    ) -> tuple[Paths, PathState]:
        """Return sample paths with the weights v - W^-1 S' (g(X) + e).

        ``seen`` (t, S p) is S' (g(X) + e) of all ``count`` actions t.
        """
        xp, kept = namespace(state.factor), state.columns
        weights = xp.zeros((count, draw.width))
        less = linalg.solve_from_factor(state.factor, seen[kept])
        weights[kept] = draw.repeated(state.weights) - less
        return OfPoints(), PathState(draw.prior, ActionUpdate(weights, state.points))

    def exact_limit(self, theta: Theta, X: Array) -> tuple[CaGP, Theta]:
        """Return the method, with an action per row."""
        weights = Weights.dense(np.eye(len(X)))
        return self, ActionTheta(theta.kernel, theta.noise_variance, weights=weights)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint of a tile of functions with its cotangent, and of summaries.

        Both are for a task.  ``inputs`` is the number of actions and ``window_rows`` that of points
        in a panel; kernel entries and what grows with the points come on top.
        """
        t, p = shape.inputs, shape.targets
        tile = min(TILE_ROWS, shape.block_rows)
        stats = 8 * (3 * t * t + 2 * t * p + p + 2)
        panel = 8 * shape.window_rows * (2 * shape.features + 4)
        return Footprint(
            task=8 * 4 * t * tile + 2 * stats + panel,
            stats=stats,
            solve=12 * 8 * t * t,
            state=8 * (t * t // 2 + t * p),
            operations=6.0 * shape.rows * t * t,
            predict=8 * t * (3 * PREDICTED_ROWS + t) + panel,
            shared=8 * 5 * t * t,
        )


def _taken(theta: Theta, rows: Any) -> tuple[ActionTheta, Paired]:
    """Return what the passes work on; a TypeError if there are no actions."""
    if not isinstance(theta, ActionTheta):
        raise TypeError("no actions: give an ActionTheta, whose weights they are")
    if isinstance(rows, Paired):
        return theta, rows
    pairs = Paired(rows, rows, 0, 1, theta.weights.count)
    return theta, replace(pairs, count=int(pairs.complete.sum()))


def _kept_bytes(actions: int, rows: int, targets: int, itemsize: int) -> int:
    return itemsize * actions * rows


def _first(function: Callable[..., tuple[Any, Array]], model: CaGP, *arguments: Any) -> Any:
    return function(model, *arguments)[0]


def _at_points(
    model: CaGP, piece: Piece, points: Any, theta: Theta, weights: Weights
) -> tuple[PointSums, Array]:
    F = functions_at(piece, points, theta, weights)
    return model.at_points(F, piece.own, own_weights(piece, weights)), F


def _at_rows(
    model: CaGP, piece: Piece, points: Any, theta: Theta, weights: Weights, factored: Factored
) -> tuple[RowSums, Array]:
    F = functions_at(piece, points, theta, weights)
    assert piece.weight is not None
    return model.at_rows(theta, piece.own, F, factored, piece.weight), F


def _pull(
    model: CaGP,
    own: bool,
    counts: bool,
    piece: Piece,
    points: Any,
    theta: Theta,
    weights: Weights,
    cotangent: Cotangent,
) -> ActionBar:
    """Return the gradient through a piece, whose rows are points, count among all, or both."""
    kernel, noise, by_panels, by_own = model.pull(
        theta,
        piece.own,
        functions_at(piece, points, theta, weights),
        panels_of(points, weights),
        cotangent,
        own_weights(piece, weights) if own else None,
        piece.weight if counts else None,
    )
    if weights.owner is None:
        return ActionBar(kernel, noise, None)
    learned = np.zeros(len(weights))
    for places, by_weights in by_panels:
        learned[places] += to_host(by_weights)
    if by_own is not None:
        learned[piece.places] += to_host(by_own)
    return ActionBar(kernel, noise, learned)


def independent(noise_variance: float, points: PointSums) -> np.ndarray:
    """Return the actions (r,) that are informative: not zero, and independent of one another.

    They come from a pivoted Cholesky factor of W with unit diagonal, which LAPACK computes on the
    host.
    """
    W = to_host(_symmetric(points.joint) + noise_variance * points.relative(noise_variance))
    if not np.isfinite(W).all():
        raise NumericalError(
            "the actions' covariance is not finite: look for NaN, or raise the noise variance"
        )
    diagonal = np.diagonal(W)
    usable = np.flatnonzero(diagonal > 0)
    if not len(usable):
        raise NumericalError("all actions are zero: choose others, or more rows per action")
    scale = 1 / np.sqrt(diagonal[usable])
    unit = W[np.ix_(usable, usable)] * scale * scale[:, None]
    _, pivots, rank, _ = lapack.dpstrf(unit, tol=COLLINEAR, lower=1)
    return np.sort(usable[pivots[:rank] - 1])


def _symmetric(A: Array) -> Array:
    symmetric: Array = 0.5 * (A + A.T)
    return symmetric


def _explained(block: Block, F: Array, factored: Factored) -> tuple[Array, Array]:
    """Return A' = (L^-1 F)' (n, r) and the residuals e = y - F' v (n, p) at rows."""
    xp = namespace(F)
    kept = xp.ascontiguousarray(wide(F)[xp.asarray(factored.columns)].T)
    e = wide(block.y) - kept @ factored.weights
    return linalg.whiten_rows(factored.factor, kept, overwrite=True), e


def _elbo(factored: Factored, rows: RowSums) -> tuple[float, float, PointSums]:
    """Return minus [CAGP] eq. 11, with its derivatives for log s and for the sums over points.

    With u = W^-1 dL/dv, the derivative with respect to W is that through P, the determinant and
    v = P b; since G = W - s T, tr(P G) = r - s tr(P T).
    """
    _, L, v, points, s, _ = factored
    T, r, p, n = points.relative(s), len(L), v.shape[1], rows.rows
    P, Tv, gap, xp = linalg.inverse_from_factor(L), T @ v, _checked_gap(rows, s), namespace(L)
    Gv = points.cross - s * Tv
    N, _ = linalg.cholesky(T, jitter=0.0)
    misfit = rows.square + p * gap
    loss = 0.5 * (
        misfit / s
        + p * (n - r) * np.log(s)
        + p * n * np.log(2 * np.pi)
        + p * rows.logs
        + number((v * Gv).sum())
        - p * (r - s * number(xp.vdot(P, T)))
        + p * (linalg.logdet_factor(L) - linalg.logdet_factor(N))
    )
    u = linalg.solve_lower_t(L, linalg.solve_lower(L, Gv) - rows.right / s)
    through = linalg.between_inverses(L, _symmetric(rows.gram)) / s
    W_bar = 0.5 * p * (through + 2 * P - s * (P @ T @ P)) - 0.5 * (u @ v.T + v @ u.T)
    G_bar = 0.5 * (v @ v.T - p * P) + W_bar
    T_bar = s * W_bar - 0.5 * p * linalg.inverse_from_factor(N)
    noise = 0.5 * (p * (n - r) - misfit / s) + s * number(xp.vdot(W_bar, T))
    given = -T_bar / s
    if points.given is not None:  # T falls with s by S' E S / s
        noise += number(xp.vdot(given, points.given))
    return -loss, -noise, PointSums(-G_bar, -u, -T_bar, given)


def _checked_gap(rows: RowSums, s: float) -> float:
    """Return the summed posterior variances at rows; NumericalError if rounding spoils them."""
    if not rows.gap >= -max(1e-3 * s * rows.rows, 1e-7 * rows.trace):
        raise NumericalError(
            f"the summed posterior variance of {rows.gap:.3g} is negative beyond rounding at noise "
            f"variance {s:.3g}: use dtype='float64', a larger noise_variance or fewer actions"
        )
    return rows.gap


def _projected(factored: Factored) -> tuple[float, float, PointSums]:
    """Return minus [CAGP] eq. 9, with its derivatives for log s and for the sums over points."""
    _, L, v, (_, b, T, _), s, _ = factored
    r, p = len(L), v.shape[1]
    N, _ = linalg.cholesky(T, jitter=0.0)
    loss = 0.5 * (
        number((b * v).sum())
        + p * (linalg.logdet_factor(L) - linalg.logdet_factor(N))
        + p * r * np.log(2 * np.pi)
    )
    W_bar = 0.5 * (p * linalg.inverse_from_factor(L) - v @ v.T)
    T_bar = s * W_bar - 0.5 * p * linalg.inverse_from_factor(N)
    noise = s * number(namespace(W_bar).vdot(W_bar, T))
    return -loss, -noise, PointSums(-W_bar, -v, -T_bar, -W_bar)
