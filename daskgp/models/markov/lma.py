"""LMA: a low-rank part on support inputs plus a residual that is Markov over blocks.

Letters ([LMA]): S support inputs (m, d); L L' = K(S, S) + jitter; A = K(X, S) L^-T (n, m), so
Q = A A' and R = K - Q + D with D = s I, s the noise variance, or the diagonal matrix of the rows'
own.  A block b is conditioned on the rows c of the blocks near it: P = R_bc R_cc^-1, H = [-P, I],
C = H R H', E = H A, e = H y ([LMA] Definition 1, in the basis whitened by L).  Sums over blocks:
G = E' C^-1 E, g = E' C^-1 e, e' C^-1 e and log|C|.  I + G = L_B L_B'.

All rows of a window are factored at once, near rows first: R = L_R L_R', and the last rows
of L_R^-1 [A, y] are C^{-1/2} [E, e].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, wide
from daskgp.arrays.batched import alike
from daskgp.models import inducing
from daskgp.models.additive import Additive, order_of
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.leave_one_out import Known, less_trend, places_of, units, without
from daskgp.models.markov.windows import (
    Cotangent,
    Given,
    Part,
    Stats,
    Window,
    each_of,
    factored_window,
    features_of,
    joined,
    rows_of,
    shape_of,
    side_by_side,
    summary_of,
    window_gradient,
    window_of,
)
from daskgp.models.method import Pass, Rounds
from daskgp.models.pathwise import ConditionedPaths, PathDraw, Paths, PathState
from daskgp.models.trend import NONE, contrasts
from daskgp.models.values import (
    TILE_ROWS,
    Across,
    Block,
    Footprint,
    Moments,
    Objective,
    Piece,
    Shape,
    Theta,
    ThetaBar,
    Want,
    add,
    variances,
)
from daskgp.typing import Array

FAR = 1e-3
"""Correlation below which training rows are not informative about a place."""


class State(NamedTuple):
    """L (m, m), L_B (m, m) and the weights (I + G)^-1 g of the low-rank part (m, p).

    ``trend`` are the products M of targets and trend functions, if there are any.
    """

    factor: Array
    inner_factor: Array
    weights: Array
    trend: Array = NONE


class Near(NamedTuple):
    """Training rows that predictions are conditioned on, factored.

    ``features`` is A (w, m), ``factor`` L_R (w, w) and ``weights`` R^-1 (y - A weights) (w, p).
    ``local`` are hyper-parameters of the middle of the rows, where they vary.
    """

    X: Array
    features: Array
    factor: Array
    weights: Array
    local: Theta | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(sum(a.nbytes for a in self[:4]))


@dataclass(frozen=True)
class LMA(Additive):
    """Settings of the low-rank-cum-Markov approximation.

    Parameters
    ----------
    markov_order : int
        Blocks on either side that ``prediction="paper"`` conditions on; a summary is conditioned
        on whatever blocks it is given.
    prediction : {"consistent", "paper"}
        "consistent": the exact covariance of the residual with all rows conditioned on, which is
        a joint distribution whichever they are.  "paper": [LMA] eq. 1 extended to test inputs,
        whose variance can come out negative.
    jitter : float
        Added to the diagonal of K(S, S), relative to its mean; raised, with a logged warning,
        when the factorisation fails.
    trend : int
        Number of trend functions, which follow the targets as further columns.
    """

    markov_order: int = 1
    prediction: Literal["consistent", "paper"] = "consistent"
    jitter: float = 1e-8
    trend: int = field(default=0, repr=False)

    name: ClassVar[str] = "lma"
    state_type: ClassVar[Any] = State
    takes_noise: ClassVar[bool] = True
    takes_neighbours: ClassVar[bool] = True
    takes_trend: ClassVar[bool] = True
    stats_type: ClassVar[Any] = Stats
    divisible: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    near_for_all: ClassVar[bool] = True
    tells_rows: ClassVar[bool] = True
    varies_by_window: ClassVar[bool] = True

    def steadier(self) -> str:
        """Return the setting that cannot make a variance negative."""
        return "prediction='consistent'" if self.prediction == "paper" else super().steadier()

    def prepare(self, theta: Theta) -> Prepared:
        """Compute the Cholesky factor of K(S, S), if there are support inputs."""
        if theta.inputs is None:
            return Prepared(theta, np.zeros((0, 0)), self.jitter)
        return inducing.prepare(theta, self.jitter)

    def local(self, prepared: Prepared, block: Block, near: Sequence[Block] = ()) -> Stats:
        """Return the summary of a block given those near it: [LMA] Definition 1."""
        return self.local_and_window(prepared, block, near)[0]

    def local_and_window(
        self, prepared: Prepared, block: Block, near: Sequence[Block] = ()
    ) -> tuple[Stats, Window]:
        """Return the summary, and the factor that ``local_vjp`` would otherwise recompute."""
        window = window_of(prepared, block, near)
        return summary_of(window, block.y.shape[1]), window

    def local_many(self, prepared: Prepared, windows: Sequence[Given]) -> Stats:
        """Return the summary of several blocks, each given those near it.

        On a device, windows of one shape are factored side by side: one by one they would leave it
        idle.
        """
        return reduce(self.combine, (part.stats for part in self._parts(prepared, windows)))

    def local_and_windows(
        self, prepared: Prepared, windows: Sequence[Given]
    ) -> tuple[Stats, list[Window]]:
        """Return ``local_many``, and the factors that ``local_vjp_many`` would recompute."""
        parts = list(self._parts(prepared, windows))
        factored = {i: window for part in parts for i, window in part.windows}
        return reduce(self.combine, (part.stats for part in parts)), [
            factored[i] for i in range(len(windows))
        ]

    def _parts(self, prepared: Prepared, windows: Sequence[Given]) -> Iterator[Part]:
        """Yield the summaries of some of the windows at a time."""
        if namespace(windows[0][0].X) is np or prepared.theta.varying is not None:
            for i, blocks in enumerate(windows):
                stats, window = self.local_and_window(prepared, *blocks)
                yield Part(stats, [(i, window)])
            return
        for places in alike(windows, shape_of):
            stack = side_by_side(prepared, [windows[i] for i in places])
            stats = summary_of(stack, windows[0][0].y.shape[1])
            yield Part(stats, list(zip(places, each_of(stack), strict=True)))

    def window_bytes(self, rows: int, inputs: int, targets: int) -> int:
        """Return the bytes that ``local_and_window`` keeps for a window of that many rows."""
        return 8 * rows * (rows + 2 * inputs + targets)

    def summing(self, theta: Theta) -> Pass:
        """Return the pass that sums summaries of windows, whose factors may be kept."""
        m = 0 if theta.inputs is None else len(theta.inputs)
        return self._pass(
            "local",
            partial(_summarise, self),
            self.combine,
            together=True,
            keeping=partial(_factor, self),
            kept_bytes=partial(_kept_bytes, self, m),
        )

    def pulling(self) -> Pass:
        """Return the pass that sums gradients, from the factors that were kept, if any."""
        return self._pass("gradient", partial(_pull, self), add, together=True)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Return the log evidence of all targets and its derivative with respect to the sums.

        It depends on the hyper-parameters through the blocks alone, so its direct gradient is 0.
        """
        inner, beta = _inner(total)
        n, (m, sides) = total.rows, beta.shape
        seen, W, p = contrasts(_products(total, beta), self.trend, n)
        logdet = total.logdet + linalg.logdet_factor(inner)
        value = -0.5 * (seen + p * (logdet + n * np.log(2 * np.pi)))
        moments, weighted = namespace(beta).empty((m + sides, m + sides)), beta @ W
        moments[:m, :m] = -0.5 * (weighted @ beta.T + p * linalg.inverse_from_factor(inner))
        moments[:m, m:] = 0.5 * weighted
        moments[m:, :m] = 0.5 * weighted.T
        moments[m:, m:] = -0.5 * W
        kernel, inputs = prepared.theta.kernel, prepared.theta.inputs
        none = None if inputs is None else np.zeros(inputs.shape)
        zero = ThetaBar(np.zeros(len(kernel.log_parameters)), 0.0, none)
        return Objective(float(value), zero, Cotangent(moments, -0.5 * p))

    def local_vjp(
        self,
        prepared: Prepared,
        block: Block,
        cotangent: Cotangent,
        near: Sequence[Block] = (),
        window: Window | None = None,
    ) -> ThetaBar:
        """Return the gradient through one block's summary."""
        rows, theta = rows_of(block, near), prepared.theta
        X, kernel = rows.X, theta.kernel
        Z = inputs_of(theta).astype(X.dtype)
        K, pull = kernel.pullback(X)
        K_S, pull_S = kernel.pullback(X, Z)
        if window is None:
            A = linalg.whiten_rows(prepared.factor, wide(K_S))
            L = linalg.cholesky_less(wide(K), A, variances(theta.noise_variance, rows.noise))
            window = factored_window(L, A, rows, len(X) - len(block.X))
        return window_gradient(prepared, window, cotangent, [pull], pull_S, X.dtype)

    def local_vjp_many(
        self,
        prepared: Prepared,
        windows: Sequence[Given],
        cotangent: Cotangent,
        factored: Sequence[Window] | None = None,
    ) -> ThetaBar:
        """Return the gradient through several blocks' summaries; windows may be ``factored``.

        On a device, windows of one shape go side by side, the tiles of their kernels one after
        another.
        """
        if namespace(windows[0][0].X) is np:
            own = [None] * len(windows) if factored is None else factored
            each = (
                self.local_vjp(prepared, block, cotangent, near, window)
                for (block, near), window in zip(windows, own, strict=True)
            )
            return reduce(add, each)
        kernel, total = prepared.theta.kernel, []
        for places in alike(windows, shape_of):
            group = [windows[i] for i in places]
            if factored is None:
                window = side_by_side(prepared, group)
            else:
                window = joined([factored[i] for i in places])
            rows = [rows_of(*each).X for each in group]
            X = namespace(*rows).concatenate(rows)
            _, pull_S = kernel.pullback(X, inputs_of(prepared.theta).astype(X.dtype))
            pulls = (kernel.pullback(own)[1] for own in rows)
            total.append(window_gradient(prepared, window, cotangent, pulls, pull_S, X.dtype))
        return reduce(add, total)

    def posterior(self, prepared: Prepared, total: Stats) -> State:
        """Return the posterior of the low-rank part, whitened by L."""
        inner, beta = _inner(total)
        M = _products(total, beta) if self.trend else NONE
        return State(prepared.factor, inner, beta, M)

    def misfit(self, prepared: Prepared, total: Stats) -> float | None:
        """Return y' (Q + R)^-1 y, with R^-1 that of the residual's Markov approximation."""
        _, beta = _inner(total)
        return number(_products(total, beta).trace())

    def features(self, theta: Theta, state: State, X: Array) -> Array:
        """Return A (n, m) of rows X (n, d)."""
        return features_of(theta, state.factor, X)

    def condition(
        self,
        theta: Theta,
        state: State,
        blocks: Sequence[Block],
        features: Sequence[Array] | None = None,
    ) -> Near:
        """Factor the rows that predictions are conditioned on; "paper" needs them in order.

        ``features`` are those of each block, if known.
        """
        X, y, noise, _ = theta.scaled(rows_of(blocks[-1], blocks[:-1]))
        own = theta.around(X)
        known = None if features is None else namespace(X).concatenate(features)
        A = self.features(own, state, X) if known is None else known
        K, s = wide(own.kernel(X)), variances(own.noise_variance, noise)
        if self.prediction == "paper":
            R = linalg.less_product(K, A, s, overwrite=True)
            R = markov_covariance(R, [len(b.X) for b in blocks], self.markov_order)
            L, _ = linalg.cholesky(R, jitter=0.0, overwrite=True)
        else:
            L = linalg.cholesky_less(K, A, s, overwrite=True)
        rest = linalg.whiten_rows(L, (y - A @ state.weights).T)
        local = None if theta.varying is None else own
        return Near(X, A, L, linalg.unwhiten_rows(L, rest, overwrite=True).T, local)

    def picks(self, state: Any, X: np.ndarray, near: np.ndarray) -> np.ndarray | None:
        """Return None: all places of a group are conditioned on all rows that serve it."""
        return None

    def factored(self, theta: Theta, state: Any, near: Any) -> Any:
        """Return the rows as they are: ``condition`` has factored them."""
        return near

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior given the rows ``near``, [LMA] Theorem 2.

        With W = R(X, near) R^-1 and E = A - W A_near the mean is W y + E (I + G)^-1 g and the
        covariance R(X, X) - W R(near, X) + E (I + G)^-1 E'.
        """
        theta = near.local or theta
        prior = theta.kernel(X) if want == "covariance" else theta.kernel.diag(X)
        return self.predict_from(state, near, self.across(theta, state, X, near.X), prior, want)

    def across(self, theta: Theta, state: State, X: Array, near: Array) -> Across:
        """Return what ties places X (n, d) to training rows (w, d)."""
        A, near = self.features(theta, state, X), near.astype(X.dtype, copy=False)
        K = wide(theta.kernel(X, near))
        return Across(A, K, _negligible(K, A, theta.kernel.diag(X)))

    def predict_from(
        self, state: State, near: Near, across: Across, prior: Array, want: Want
    ) -> Moments:
        """Return the posterior of places, or of sums over them, so tied to rows ``near``.

        ``prior`` are their variances (n,), or covariances (n, n).
        """
        A, R, far = across
        R -= A @ near.features.T
        mean = R @ near.weights + A @ state.weights
        if want == "mean":
            return Moments(mean, far=far)
        V = linalg.whiten_rows(near.factor, R, overwrite=True)
        W = linalg.unwhiten_rows(near.factor, V)
        E = A - W @ near.features
        shared = linalg.whiten_rows(state.inner_factor, E, overwrite=True)
        if want == "variance":
            variance = wide(prior) - linalg.row_squares(A) - linalg.row_squares(V)
            return Moments(mean, variance=variance + linalg.row_squares(shared), far=far)
        covariance = wide(prior) - A @ A.T - V @ V.T + shared @ shared.T
        return Moments(mean, covariance=covariance, far=far)

    def why_no_joint(self) -> str | None:
        """Return why there is no joint covariance; None if there is one."""
        if self.prediction == "paper":
            return (
                "prediction='paper' has no covariance of places in several blocks: fit with "
                "prediction='consistent', or ask for return_std or sample_paths"
            )
        return None

    def why_no_loo(self) -> str | None:
        """Return why there are no leave-one-out predictions; None if there are."""
        if self.prediction == "paper":
            return "prediction='paper' has no leave-one-out predictions: choose 'consistent'"
        return None

    def loo(self, theta: Theta, state: State, block: Block, near: Near) -> Moments:
        """Return predictions of training rows from the rows ``near`` without each.

        Given the low-rank part u, row i of the rows near it is e u + N(0, c) about what the others
        say, with c = 1 / [R^-1]_ii and e = [R^-1 A]_i c; its own factor N(e u, c) is taken out of
        the posterior of u.  Those that are not ``near`` are predicted as new ones.
        """
        new = self.predict(theta, state, block.X, near, "variance")
        block, theta = theta.scaled(block), near.local or theta
        noise = variances(theta.noise_variance, block.noise)
        L, A = near.factor, near.features
        y, diagonal = L @ (L.T @ near.weights) + A @ state.weights, theta.kernel.diag(near.X)
        prior = diagonal - linalg.row_squares(A)
        places = places_of(theta, block, Known(near.X, y, linalg.row_squares(L) - prior))
        inside = np.flatnonzero(places >= 0)
        mean, variance = new.mean, new.variance + noise
        if len(inside):
            rows = units(places[inside], len(L), L)
            V = linalg.whiten_rows(L, rows, overwrite=True)
            c = 1.0 / linalg.row_squares(V)
            P = linalg.unwhiten_rows(L, V, overwrite=True) * c[:, None]
            spread = linalg.row_squares(linalg.whiten_rows(state.inner_factor, P @ A))
            own = block.y[inside]
            found = without(own, own - near.weights[places[inside]] * c[:, None], spread, c)
            mean[inside], variance[inside] = found.mean, found.variance
        found = Moments(mean, variance, noisy=True)
        return less_trend(block.y, found, state.trend, self.trend)

    def paths(
        self, theta: Theta, state: State, draw: PathDraw, rows: Rounds
    ) -> tuple[Paths, PathState]:
        """Return sample paths from the windows of rows whose targets are y - g(X) - e."""
        prepared, total = self.summed(theta, rows)
        with rows.solving(order_of(theta)):
            update = self.posterior(prepared, total)
        return ConditionedPaths(self), PathState(draw.prior, update)

    def exact_limit(self, theta: Theta, X: Array) -> tuple[LMA, Theta]:
        """Return the method itself, exact if each block is conditioned on all before it.

        A single block always is.
        """
        return self, theta

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint of a window's tiles and features, or of those of a prediction.

        Three of a window's tiles are in float64.  Operations of a value and gradient: the factor of
        a window twice, what is whitened by it and the products of the adjoint, for each block.
        """
        b, m, p = shape.block_rows, shape.inputs, shape.targets
        w, near = shape.window_rows, shape.near_rows
        blocks = -(-shape.rows // max(b, 1))
        stats = 8 * (m * m + m * p + p + 2)
        tile = (shape.kernel_tiles + 1) * shape.itemsize + 3 * 8
        fit = tile * w * (w + m)
        predict = 8 * near * (3 * near + 4 * m + 2 * TILE_ROWS) if near else 0
        once = w**3 / 3 + w * w * m + w * m * m + w * w * (m + p) + 2 * b * m * m
        c = w - b
        adjoint = c * c * (3 * b + m + p) + 2 * b * c * (b + 3 * m) + (c + 10 * b) * m * m
        return Footprint(
            task=fit + 2 * stats + 8 * m * m,
            stats=stats,
            solve=(shape.kernel_tiles + 6) * 8 * m * m,
            state=8 * (m * m + m * p) + stats + 8 * shape.rows * (shape.features + p),
            operations=float(blocks * (2 * once + adjoint)),
            predict=predict + 8 * (2 * m * m + m * p),
            shared=2 * 8 * m * m,
        )


def _kept_bytes(model: LMA, inputs: int, rows: int, targets: int, itemsize: int) -> int:
    return model.window_bytes(rows, inputs, targets)


def _summarise(model: LMA, pieces: Sequence[Piece], prepared: Prepared) -> Stats:
    return model.local_many(prepared, [(piece.own, piece.near) for piece in pieces])


def _factor(model: LMA, pieces: Sequence[Piece], prepared: Prepared) -> tuple[Stats, list[Window]]:
    return model.local_and_windows(prepared, [(piece.own, piece.near) for piece in pieces])


def _pull(
    model: LMA, pieces: Sequence[Piece], prepared: Prepared, cotangent: Cotangent
) -> ThetaBar:
    windows = [(piece.own, piece.near) for piece in pieces]
    kept = [piece.kept for piece in pieces if piece.kept is not None]
    return model.local_vjp_many(prepared, windows, cotangent, kept or None)


def _products(total: Stats, beta: Array) -> Array:
    """Return Y' C^-1 Y of the right sides Y with the covariance C of the whole method."""
    return total.square - total.projection.T @ beta


def _inner(total: Stats) -> tuple[Array, Array]:
    """Return L_B and (I + G)^-1 g."""
    inner, _ = linalg.cholesky(
        namespace(total.gram).eye(len(total.gram)) + total.gram, jitter=0.0, overwrite=True
    )
    return inner, linalg.solve_lower_t(inner, linalg.solve_lower(inner, total.projection))


def markov_covariance(R: Array, sizes: Sequence[int], order: int) -> Array:
    """Return R with its far corners replaced by the recursion of [LMA] eq. 1, in place.

    Blocks i and j more than ``order`` apart are independent given the ``order`` blocks after the
    first: R_ij = R_iB R_BB^-1 R_Bj with B = i+1 .. i+order.
    """
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for apart in range(order + 1, len(sizes)):
        for i in range(len(sizes) - apart):
            own, between = slice(edges[i], edges[i + 1]), slice(edges[i + 1], edges[i + order + 1])
            far = slice(edges[i + apart], edges[i + apart + 1])
            L, _ = linalg.cholesky(R[between, between], jitter=0.0)
            half = linalg.solve_lower(L, R[between, far])
            R[own, far] = linalg.solve_lower(L, R[between, own]).T @ half
            R[far, own] = R[own, far].T
    return R


def _negligible(K: Array, A: Array, prior: Array) -> Array:
    """Return a mask (n,) of rows correlated below FAR with all training rows and support inputs."""
    xp = namespace(K)
    largest = xp.maximum(K.max(axis=1), -K.min(axis=1))
    return (largest < FAR * prior) & (linalg.row_squares(A) < FAR * prior)
