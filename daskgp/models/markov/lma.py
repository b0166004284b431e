"""LMA: a low-rank part on support inputs plus a residual that is Markov over blocks.

Letters ([LMA]): S support inputs (m, d); L L' = K(S, S) + jitter; A = K(X, S) L^-T (n, m), so
Q = A A' and R = K - Q + s I with s the noise variance.  A block b is conditioned on the rows c
of the blocks near it: P = R_bc R_cc^-1, H = [-P, I], C = H R H', E = H A, e = H y ([LMA]
Definition 1, in the basis whitened by L).  Sums over blocks: G = E' C^-1 E, g = E' C^-1 e,
e' C^-1 e and log|C|.  I + G = L_B L_B'.

All rows of a window are factored at once, those near it first: R = L_R L_R', and the last rows
of L_R^-1 [A, y] are C^{-1/2} [E, e].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays import batched, linalg
from daskgp.arrays.backend import is_numpy, namespace, number, to_host, wide
from daskgp.arrays.batched import alike, stacked
from daskgp.kernels.base import Pullback
from daskgp.models import inducing
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.values import (
    TILE_ROWS,
    Block,
    Footprint,
    Moments,
    Objective,
    Shape,
    Theta,
    ThetaBar,
    Want,
    add,
)
from daskgp.typing import Array

Given: TypeAlias = tuple[Block, Sequence[Block]]
"""A block and those near it."""
FAR = 1e-3
"""Correlation below which training rows say nothing of a place."""


class Stats(NamedTuple):
    """Whitened statistics of blocks; sums, so they combine by adding."""

    gram: Array
    """G = E' C^-1 E (m, m)."""
    projection: Array
    """g = E' C^-1 e (m, p)."""
    square: Array
    """e' C^-1 e per target (p,)."""
    logdet: float
    """log|C|."""
    rows: float
    """Number of rows."""


class Cotangent(NamedTuple):
    """Derivative by [E, e]' C^-1 [E, e], symmetric (m + p, m + p), and by log|C|."""

    moments: Array
    logdet: float


class State(NamedTuple):
    """L (m, m), L_B (m, m) and the weights (I + G)^-1 g of the low-rank part (m, p)."""

    factor: Array
    inner_factor: Array
    weights: Array


class Near(NamedTuple):
    """Training rows that predictions are conditioned on, factored.

    ``features`` is A (w, m), ``factor`` L_R (w, w) and ``weights`` R^-1 (y - A weights) (w, p).
    """

    X: Array
    features: Array
    factor: Array
    inverses: list[Array]
    weights: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.X, self.features, self.factor, self.weights, *self.inverses)
        return int(sum(a.nbytes for a in arrays))


class Window(NamedTuple):
    """A block and those near it, factored; near rows come first, ``c`` of them.

    Several of one shape on a device have their arrays stacked along a first axis.
    """

    c: int
    features: Array
    """A (w, m)."""
    factor: Array
    """L_R (w, w)."""
    whitened: Array
    """(L_R^-1 [A, y])' (m + p, w)."""


class _Part(NamedTuple):
    """The sum of the summaries of some windows, and each with its place among all."""

    stats: Stats
    windows: list[tuple[int, Window]]


@dataclass(frozen=True)
class LMA:
    """Settings of the low-rank-cum-Markov approximation.

    Parameters
    ----------
    markov_order : int
        Blocks on either side that ``prediction="paper"`` conditions on; a summary is conditioned
        on whatever blocks it is given.
    prediction : {"consistent", "paper"}
        "consistent": the exact covariance of the residual with all rows that are given, which is
        a joint distribution whatever they are.  "paper": [LMA] eq. 1 extended to test inputs,
        whose variance can come out negative.
    jitter : float
        Added to the diagonal of K(S, S), relative to its mean; raised, with a logged warning,
        when the factorisation fails.
    """

    markov_order: int = 1
    prediction: Literal["consistent", "paper"] = "consistent"
    jitter: float = 1e-8

    name: ClassVar[str] = "lma"
    state_type: ClassVar[Any] = State
    keeps_rows: ClassVar[bool] = True

    def prepare(self, theta: Theta) -> Prepared:
        """Cholesky factor of K(S, S)."""
        return inducing.prepare(theta, self.jitter)

    def local(self, prepared: Prepared, block: Block, near: Sequence[Block] = ()) -> Stats:
        """Summary of a block given those near it: [LMA] Definition 1."""
        return self.local_and_window(prepared, block, near)[0]

    def local_and_window(
        self, prepared: Prepared, block: Block, near: Sequence[Block] = ()
    ) -> tuple[Stats, Window]:
        """The summary, and the factor that ``local_vjp`` would otherwise make again."""
        window = _window(prepared, block, near)
        return _summary(window, block.y.shape[1]), window

    def local_many(self, prepared: Prepared, windows: Sequence[Given]) -> Stats:
        """Summary of several blocks, each given those near it.

        On a device windows of one shape are factored side by side: one by one they would leave
        it idle.
        """
        return reduce(self.combine, (part.stats for part in self._parts(prepared, windows)))

    def local_and_windows(
        self, prepared: Prepared, windows: Sequence[Given]
    ) -> tuple[Stats, list[Window]]:
        """``local_many``, and the factors that ``local_vjp_many`` would otherwise make again."""
        parts = list(self._parts(prepared, windows))
        found = {i: window for part in parts for i, window in part.windows}
        return reduce(self.combine, (part.stats for part in parts)), [
            found[i] for i in range(len(windows))
        ]

    def _parts(self, prepared: Prepared, windows: Sequence[Given]) -> Iterator[_Part]:
        """Summaries of some of the windows at a time."""
        if is_numpy(namespace(windows[0][0].X)):
            for i, given in enumerate(windows):
                stats, window = self.local_and_window(prepared, *given)
                yield _Part(stats, [(i, window)])
            return
        for places in alike(windows, _shape):
            few = _side_by_side(prepared, [windows[i] for i in places])
            stats = _summary(few, windows[0][0].y.shape[1])
            yield _Part(stats, list(zip(places, _apart(few), strict=True)))

    def window_bytes(self, rows: int, inputs: int, targets: int) -> int:
        """Bytes of what ``local_and_window`` keeps of a window of so many rows."""
        return 8 * rows * (rows + 2 * inputs + targets)

    def combine(self, a: Stats, b: Stats) -> Stats:
        """Statistics of both sets of blocks."""
        return add(a, b)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Log evidence of all targets and its derivative by the sums.

        It depends on the hyper-parameters through the blocks alone, so its direct gradient is 0.
        """
        inner, beta = _inner(total)
        n, (m, p) = total.rows, beta.shape
        explained = number((total.projection * beta).sum())
        value = -0.5 * (
            number(total.square.sum())
            - explained
            + p * (total.logdet + linalg.logdet_factor(inner) + n * np.log(2 * np.pi))
        )
        xp = namespace(beta)
        moments = xp.empty((m + p, m + p))
        moments[:m, :m] = -0.5 * (beta @ beta.T + p * linalg.inverse_from_factor(inner))
        moments[:m, m:] = 0.5 * beta
        moments[m:, :m] = 0.5 * beta.T
        moments[m:, m:] = -0.5 * xp.eye(p)
        inputs = inputs_of(prepared.theta)
        kernel = prepared.theta.kernel
        zero = ThetaBar(np.zeros(len(kernel.log_parameters)), 0.0, np.zeros(inputs.shape))
        return Objective(float(value), zero, Cotangent(moments, -0.5 * p))

    def local_vjp(
        self,
        prepared: Prepared,
        block: Block,
        cotangent: Cotangent,
        near: Sequence[Block] = (),
        window: Window | None = None,
    ) -> ThetaBar:
        """Gradient through one block's summary."""
        X, y = _rows(block, near)
        kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(X.dtype)
        K, pull = kernel.pullback(X)
        K_S, pull_S = kernel.pullback(X, Z)
        if window is None:
            A = linalg.whiten_rows(prepared.factor, wide(K_S))
            R = _residual(K, A, prepared.theta.noise_variance, overwrite=False)
            window = _factored(R, A, y, len(X) - len(block.X))
        return _gradient(prepared, window, cotangent, [pull], pull_S, X.dtype)

    def local_vjp_many(
        self,
        prepared: Prepared,
        windows: Sequence[Given],
        cotangent: Cotangent,
        factored: Sequence[Window] | None = None,
    ) -> ThetaBar:
        """Gradient through the summaries of several blocks, whose windows may be ``factored``.

        On a device those of one shape go side by side, their kernels' tiles one after another.
        """
        if is_numpy(namespace(windows[0][0].X)):
            own = [None] * len(windows) if factored is None else factored
            each = (
                self.local_vjp(prepared, block, cotangent, near, window)
                for (block, near), window in zip(windows, own, strict=True)
            )
            return reduce(add, each)
        kernel, total = prepared.theta.kernel, []
        for places in alike(windows, _shape):
            few = [windows[i] for i in places]
            if factored is None:
                window = _side_by_side(prepared, few)
            else:
                window = _joined([factored[i] for i in places])
            rows = [_rows(*each)[0] for each in few]
            X = namespace(*rows).concatenate(rows)
            _, pull_S = kernel.pullback(X, inputs_of(prepared.theta).astype(X.dtype))
            pulls = (kernel.pullback(own)[1] for own in rows)
            total.append(_gradient(prepared, window, cotangent, pulls, pull_S, X.dtype))
        return reduce(add, total)

    def solve(self, prepared: Prepared, total: Stats) -> State:
        """Posterior of the low-rank part, whitened by L."""
        inner, beta = _inner(total)
        return State(prepared.factor, inner, beta)

    def features(self, theta: Theta, state: State, X: Array) -> Array:
        """A (n, m) of rows X (n, d)."""
        Z = inputs_of(theta).astype(X.dtype)
        return linalg.whiten_rows(state.factor, wide(theta.kernel(X, Z)), overwrite=True)

    def condition(
        self,
        theta: Theta,
        state: State,
        blocks: Sequence[Block],
        features: Sequence[Array] | None = None,
    ) -> Near:
        """Factor the rows that predictions are conditioned on; "paper" wants them in order.

        ``features`` are those of each block, where they are known.
        """
        X, y = _rows(blocks[-1], blocks[:-1])
        if features is None:
            A = self.features(theta, state, X)
        else:
            A = namespace(X).concatenate(features)
        R = _residual(theta.kernel(X), A, theta.noise_variance, overwrite=True)
        if self.prediction == "paper":
            R = markov_covariance(R, [len(b.X) for b in blocks], self.markov_order)
        L, _ = linalg.cholesky(R, jitter=0.0, overwrite=True)
        inverses = linalg.diagonal_inverses(L)
        rest = linalg.whiten_rows(L, (y - A @ state.weights).T, inverses=inverses)
        weights = linalg.unwhiten_rows(L, rest, overwrite=True, inverses=inverses).T
        return Near(X, A, L, inverses, weights)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """[LMA] Theorem 2 for the rows ``near``.

        With W = R(X, near) R^-1 and E = A - W A_near the mean is W y + E (I + G)^-1 g and the
        covariance R(X, X) - W R(near, X) + E (I + G)^-1 E'.
        """
        kernel, A = theta.kernel, self.features(theta, state, X)
        R = wide(kernel(X, near.X.astype(X.dtype, copy=False)))
        far = _negligible(R, A, kernel.diag(X))
        R -= A @ near.features.T
        mean = R @ near.weights + A @ state.weights
        if want == "mean":
            return Moments(mean, far=far)
        V = linalg.whiten_rows(near.factor, R, overwrite=True, inverses=near.inverses)
        W = linalg.unwhiten_rows(near.factor, V, inverses=near.inverses)
        E = A - W @ near.features
        shared = linalg.whiten_rows(state.inner_factor, E, overwrite=True)
        if want == "variance":
            variance = wide(kernel.diag(X)) - linalg.row_squares(A) - linalg.row_squares(V)
            return Moments(mean, variance=variance + linalg.row_squares(shared), far=far)
        covariance = wide(kernel(X)) - A @ A.T - V @ V.T + shared @ shared.T
        return Moments(mean, covariance=covariance, shared=shared, far=far)

    def exact_limit(self, theta: Theta, X: Array) -> tuple[LMA, Theta]:
        """Every block conditioned on all before it, as a single one is."""
        return self, theta

    def footprint(self, shape: Shape) -> Footprint:
        """Tiles of a window, three of them in float64, and its features; or those of a prediction.

        Operations of a value and gradient: the factor of a window twice, what is whitened by it
        and the products of the adjoint, for each of its blocks.
        """
        b, m, p = shape.block_rows, shape.inputs, shape.targets
        w, near = shape.window_rows, shape.near_rows
        blocks = -(-shape.rows // max(b, 1))
        stats = 8 * (m * m + m * p + p + 2)
        tile = (shape.kernel_tiles + 1) * shape.itemsize + 3 * 8
        fit = tile * w * (w + m)
        predict = 8 * near * (3 * near + 4 * m + 2 * TILE_ROWS) if near else 0
        once = w**3 / 3 + w * w * m + w * m * m + w * w * (m + p) + 2 * b * m * m
        adjoint = w * w * (b + m + p) + 2 * w * w * b + 8 * w * b * m + w * m * m
        return Footprint(
            task=fit + 2 * stats + 8 * m * m,
            stats=stats,
            solve=(shape.kernel_tiles + 8) * 8 * m * m,
            state=8 * (m * m + m * p) + 8 * shape.rows * (shape.features + p),
            operations=float(blocks * (2 * once + adjoint)),
            predict=predict + 8 * (2 * m * m + m * p),
            shared=2 * 8 * m * m,
        )


def _inner(total: Stats) -> tuple[Array, Array]:
    """L_B and (I + G)^-1 g."""
    inner, _ = linalg.cholesky(
        namespace(total.gram).eye(len(total.gram)) + total.gram, jitter=0.0, overwrite=True
    )
    return inner, linalg.solve_lower_t(inner, linalg.solve_lower(inner, total.projection))


def _rows(block: Block, near: Sequence[Block]) -> tuple[Array, Array]:
    """Rows near a block and then its own."""
    xp = namespace(block.X)
    blocks = [*near, block]
    return xp.concatenate([b.X for b in blocks]), xp.concatenate([b.y for b in blocks])


def _columns(A: Array, y: Array) -> Array:
    """[A, y]' (m + p, w) in C order."""
    return namespace(A).concatenate([A.T, y.T.astype(np.float64)])


def _residual(K: Array, A: Array, noise_variance: float, overwrite: bool) -> Array:
    """R = K - A A' + s I, in K's memory if ``overwrite``: a pullback goes on using its own."""
    R = wide(K)
    if overwrite:
        R -= A @ A.T
    else:
        R = R - A @ A.T
    at = namespace(R).arange(len(R))
    R[at, at] += noise_variance
    return R


def _shape(given: Given) -> tuple[int, int]:
    """Rows near a block, and its own."""
    block, near = given
    return sum(len(b.X) for b in near), len(block.X)


def _side_by_side(prepared: Prepared, windows: Sequence[Given]) -> Window:
    """Windows of one shape, stacked."""
    c, _ = _shape(windows[0])
    rows = [_rows(*window) for window in windows]
    X, y = (namespace(part[0]).concatenate(part) for part in zip(*rows, strict=True))
    xp, g, w = namespace(X), len(rows), len(rows[0][0])
    kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(X.dtype)
    A = linalg.whiten_rows(prepared.factor, wide(kernel(X, Z)), overwrite=True)
    A, R, at = A.reshape(g, w, A.shape[1]), xp.empty((g, w, w)), xp.arange(w)
    for into, (own, _) in zip(R, rows, strict=True):
        into[...] = kernel(own)
    R -= xp.matmul(A, A.transpose(0, 2, 1))
    R[:, at, at] += prepared.theta.noise_variance
    L = batched.cholesky_stack(R)
    both = xp.concatenate([A, y.reshape(g, w, y.shape[1]).astype(np.float64)], axis=2)
    return Window(c, A, L, batched.whiten_stack(L, both.transpose(0, 2, 1), overwrite=True))


def _apart(several: Window) -> Iterator[Window]:
    """Each of several stacked windows."""
    return (Window(several.c, *arrays) for arrays in zip(*several[1:], strict=True))


def _joined(windows: Sequence[Window]) -> Window:
    """Windows of one shape, stacked."""
    return Window(
        windows[0].c, *(stacked(arrays) for arrays in zip(*(w[1:] for w in windows), strict=True))
    )


def _summary(window: Window, targets: int) -> Stats:
    """The sums over the rows of a block, or of those of several."""
    factor, own = window.factor[..., window.c :, window.c :], window.whitened[..., window.c :]
    if own.ndim == 3:
        rows = own.shape[0] * own.shape[2]
        own = own.transpose(1, 0, 2).reshape(own.shape[1], rows)
        logdet = number(batched.logdet_stack(factor).sum())
    else:
        logdet = linalg.logdet_factor(factor)
    m = len(own) - targets
    E, e = own[:m], own[m:]
    return Stats(E @ E.T, E @ e.T, (e * e).sum(axis=1), logdet, float(own.shape[1]))


def _window(prepared: Prepared, block: Block, near: Sequence[Block]) -> Window:
    X, y = _rows(block, near)
    kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(X.dtype)
    A = linalg.whiten_rows(prepared.factor, wide(kernel(X, Z)), overwrite=True)
    R = _residual(kernel(X), A, prepared.theta.noise_variance, overwrite=True)
    return _factored(R, A, y, len(X) - len(block.X))


def _factored(R: Array, A: Array, y: Array, c: int) -> Window:
    """The window of R (w, w), whose memory is used."""
    L, _ = linalg.cholesky(R, jitter=0.0, overwrite=True)
    return Window(c, A, L, linalg.whiten_rows(L, _columns(A, y), overwrite=True))


def markov_covariance(R: Array, sizes: Sequence[int], order: int) -> Array:
    """R with its far corners by the recursion of [LMA] eq. 1, in place.

    Blocks i and j more than ``order`` apart are independent given the ``order`` after the first:
    R_ij = R_iB R_BB^-1 R_Bj with B = i+1 .. i+order.
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


def _gradient(
    prepared: Prepared,
    window: Window,
    cotangent: Cotangent,
    pulls: Iterable[Pullback],
    pull_S: Pullback,
    dtype: Any,
) -> ThetaBar:
    """Gradient through the summary of a window, or of several that are stacked.

    P minimises C, so dC = H dR H' and dE = H dA - H dR[:, c] R_cc^-1 A_c; hence R_bar =
    H' (C_bar H - [E, e]_bar U') with U' = [[A_c, y_c]' R_cc^-1, 0].  ``pulls`` are those of the
    windows' own tiles K(X, X) one after another, ``pull_S`` that of K(X, S) of all their rows.
    """
    xp = namespace(window.factor)
    H, E_bar, Y = _adjoint(window, cotangent)
    A, c = window.features, window.c
    m = A.shape[-1]
    E = A[..., c:, :] + H[..., :c] @ A[..., :c, :]
    # A_bar = H' E_bar - 2 sym(H' Y) A, all through the few rows of the block
    A_bar = _turned(H) @ (E_bar[..., :m] - Y @ A)
    A_bar -= _turned(Y) @ E
    R_bar = _turned(H) @ Y
    noise = prepared.theta.noise_variance * number(xp.diagonal(R_bar, 0, -2, -1).sum())
    A, A_bar = A.reshape(-1, m), A_bar.reshape(-1, m)
    N = A_bar.T @ A
    through = inducing.inputs_vjp(
        prepared, -0.25 * linalg.between_inverses(prepared.factor, N + N.T)
    )
    by_S = pull_S(
        linalg.unwhiten_rows(prepared.factor, A_bar, overwrite=True).astype(dtype, copy=False)
    )
    bars = R_bar if R_bar.ndim == 3 else [R_bar]
    by_R = [
        pull(bar.astype(dtype, copy=False), overwrite=True).log_parameters
        for pull, bar in zip(pulls, bars, strict=True)
    ]
    parameters = reduce(np.add, by_R) + by_S.log_parameters + through.kernel
    assert by_S.Z is not None
    assert through.inputs is not None
    return ThetaBar(parameters, noise, to_host(by_S.Z + through.inputs))


def _adjoint(window: Window, cotangent: Cotangent) -> tuple[Array, Array, Array]:
    """H (b, w), [E, e]_bar (b, m + p) and Y = C_bar H - [E, e]_bar U' (b, w), or stacks of them."""
    xp, c, L = namespace(window.factor), window.c, window.factor
    T, L_bb = window.whitened, L[..., c:, c:]
    size, b = T.shape[-2], L_bb.shape[-1]
    stack = L.ndim == 3
    unwhiten: Callable[..., Array] = batched.unwhiten_stack if stack else linalg.unwhiten_rows
    inverse = batched.inverse_stack if stack else linalg.inverse_from_factor
    # rows of H's near part and of U' at one go
    rows = xp.concatenate([L[..., c:, :c], T[..., :c]], axis=-2)
    through = unwhiten(L[..., :c, :c], rows, overwrite=True)
    H = xp.concatenate([-through[..., :b, :], xp.broadcast_to(xp.eye(b), L_bb.shape)], axis=-1)
    W = unwhiten(L_bb, T[..., c:])  # (C^-1 [E, e])'
    MW = cotangent.moments @ W
    C_bar = cotangent.logdet * inverse(L_bb) - _turned(W) @ MW
    E_bar = 2.0 * _turned(MW)
    Y = C_bar @ H
    Y[..., :c] -= E_bar @ through[..., b : b + size, :]
    return H, E_bar, Y


def _turned(A: Array) -> Array:
    """A' of a matrix, or of each of a stack."""
    return namespace(A).moveaxis(A, -1, -2)


def _negligible(K: Array, A: Array, prior: Array) -> Array:
    """Rows (n,) whose correlation with every training row and support input is below FAR."""
    xp = namespace(K)
    most = xp.maximum(K.max(axis=1), -K.min(axis=1))
    return (most < FAR * prior) & (linalg.row_squares(A) < FAR * prior)
