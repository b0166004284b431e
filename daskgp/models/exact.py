"""The exact GP for small data: rows are collected, and one Cholesky factor gives everything.

Letters: C = K(X, X) + D = L L', alpha = C^-1 y, p targets; D = s I with s the noise variance, or
the diagonal matrix of the rows' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import batched, linalg
from daskgp.arrays.backend import namespace, number, to_host
from daskgp.arrays.batched import by_size, solved, stacked
from daskgp.models.additive import Additive
from daskgp.models.inducing import posterior as inducing_posterior
from daskgp.models.leave_one_out import Known, less_trend, places_of, refuse_unknown, units
from daskgp.models.method import Pass, Rounds
from daskgp.models.pathwise import Inducing, PathDraw, Paths, PathState, Update
from daskgp.models.trend import NONE, contrasts
from daskgp.models.values import (
    TILE_ROWS,
    Block,
    Footprint,
    Moments,
    Objective,
    Piece,
    Shape,
    Theta,
    ThetaBar,
    Want,
    add_lists,
    by_log_noise,
    variances,
)
from daskgp.typing import Array


class State(NamedTuple):
    """Training inputs (n, d), the factor L (n, n) and the weights C^-1 y (n, p).

    ``trend`` are the products M of targets and trend functions, if there are any.
    """

    X: Array
    factor: Array
    weights: Array
    trend: Array = NONE


@dataclass(frozen=True)
class Exact(Additive):
    """The exact GP; memory grows with n^2, so ``plan`` refuses data that do not fit.

    Parameters
    ----------
    trend : int
        Number of trend functions, which follow the targets as further columns.
    """

    trend: int = field(default=0, repr=False)

    name: ClassVar[str] = "exact"
    state_type: ClassVar[Any] = State
    divisible: ClassVar[bool] = False
    takes_noise: ClassVar[bool] = True
    takes_trend: ClassVar[bool] = True
    tells_rows: ClassVar[bool] = True

    def prepare(self, theta: Theta) -> Theta:
        """Return ``theta``: there is nothing to prepare."""
        return theta

    def local(self, prepared: Theta, block: Block, near: Sequence[Block] = ()) -> Block:
        """Return the rows, unchanged."""
        return block

    def combine(self, a: Block, b: Block) -> Block:
        """Return both sets of rows, in order."""
        return Block.join([a, b])

    def objective(self, prepared: Theta, total: Block) -> Objective:
        """Return the log evidence of all targets, summed, and its gradient ([OPT] eqs. 4-6)."""
        if namespace(total.X) is not np and not self.trend:
            return self.objective_many(prepared, [total])[0]
        X, y = total.X.astype(np.float64), total.y.astype(np.float64)
        n = len(y)
        K, pull = prepared.kernel.pullback(X)
        L, alpha = factored(K.copy(), variances(prepared.noise_variance, total.noise), y)
        value, W, p = self._evidence(L, y.T @ alpha, n)
        C_bar = 0.5 * (alpha @ W @ alpha.T - p * linalg.inverse_from_factor(L))
        noise = number(by_log_noise(prepared.noise_variance, total.noise, C_bar.diagonal()))
        return Objective(value, ThetaBar(pull(C_bar).log_parameters, noise, None), None)

    def _evidence(self, L: Array, products: Array, n: int) -> tuple[float, Array, int]:
        """Return the log evidence of n rows from y' C^-1 y (p, p), and ``contrasts``' W and p."""
        seen, W, p = contrasts(products, self.trend, n)
        value = -0.5 * (seen + p * (linalg.logdet_factor(L) + n * np.log(2 * np.pi)))
        return float(value), W, p

    def concluded(
        self, theta: Theta, prepared: Theta, total: Block, rows: Rounds
    ) -> tuple[State, float]:
        """Return the posterior, and the evidence from its factor, without the gradient."""
        with rows.solving(None):
            state = self.posterior(prepared, total)
            y = total.y.astype(np.float64)
            return state, self._evidence(state.factor, y.T @ state.weights, len(y))[0]

    def objective_many(self, prepared: Theta, totals: Sequence[Block]) -> list[Objective]:
        """Return ``objective`` of each of several sets of rows.

        On a device, sets of one size are factored side by side, and their values come back at once.
        """
        if namespace(totals[0].X) is np:
            return [self.objective(prepared, total) for total in totals]
        return by_size(totals, lambda rows: len(rows.X), partial(_side_by_side, prepared))

    def objectives(self) -> Pass:
        """Return the pass that evaluates each unit on its own, several side by side."""
        return Pass(
            f"{self.name}-objective",
            partial(_objectives, self),
            add_lists,
            cut=False,
            together=True,
            described="an expert of {rows} rows",
        )

    def local_vjp(
        self, prepared: Theta, block: Block, cotangent: None, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """Return zero: the direct gradient of ``objective`` is the full one."""
        return ThetaBar(np.zeros(len(prepared.kernel.log_parameters)), 0.0, None)

    def posterior(self, prepared: Theta, total: Block) -> State:
        """Return the factor and the weights of the posterior mean."""
        X, y = total.X.astype(np.float64), total.y.astype(np.float64)
        noise = variances(prepared.noise_variance, total.noise)
        L, alpha = factored(prepared.kernel(X), noise, y)
        return State(X, L, alpha, y.T @ alpha if self.trend else NONE)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return [OPT] eq. 2: mean K C^-1 y and covariance K** - K C^-1 K'."""
        return inducing_posterior(theta.kernel, state.X, state.factor, state.weights, X, want)

    def stands_for_rows(self, theta: Theta, state: State) -> tuple[str, Array]:
        """Return the rows themselves."""
        return "training row", state.X

    def loo(self, theta: Theta, state: State, block: Block, near: Any = None) -> Moments:
        """Return y - alpha / [C^-1]_ii with variance 1 / [C^-1]_ii (Sundararajan & Keerthi 2001).

        Raise InputError for rows that are not among those of the fit.
        """
        L, weights = state.factor, state.weights
        noise = linalg.row_squares(L) - theta.kernel.diag(state.X)
        places = places_of(theta, block, Known(state.X, L @ (L.T @ weights), noise))
        refuse_unknown(places)
        variance = 1.0 / linalg.row_squares(linalg.whiten_rows(L, units(places, len(L), L)))
        found = Moments(block.y - weights[places] * variance[:, None], variance, noisy=True)
        return less_trend(block.y, found, state.trend, self.trend)

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths with the weights C^-1 (y - g(X) - e), e of the rows' noise."""
        xp, L = namespace(state.factor), state.factor
        noise = linalg.row_squares(L) - theta.kernel.diag(state.X)  # D, whichever it is
        errors = xp.sqrt(xp.maximum(noise, 0.0))[:, None] * xp.asarray(draw.noise(0, len(L)))
        seen = xp.asarray(draw.prior(state.X)) + errors
        less = linalg.solve_from_factor(L, seen)
        update = Update(state.X, draw.repeated(state.weights) - less, xp.zeros(draw.width))
        return Inducing(), PathState(draw.prior, update)

    def exact_limit(self, theta: Theta, X: Array) -> tuple[Exact, Theta]:
        """Return the method itself, which is always exact."""
        return self, theta

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint: kernel tiles and five matrices at once; 2 n^3 operations.

        The operations are those of one value and gradient.  The five matrices are the factor that
        prediction keeps, that of the objective, the inverse, the cotangent and an intermediate one.
        """
        n, row = shape.rows, 8 * (shape.features + shape.targets)
        return Footprint(
            task=2 * shape.block_rows * row,
            stats=n * row,
            solve=(shape.kernel_tiles + 5) * 8 * n * n + n * row,
            state=4 * n * n + n * row,
            operations=2.0 * n**3,
            predict=8 * n * (n + TILE_ROWS) + n * row,
            shared=0,
        )


def _objectives(model: Exact, pieces: Sequence[Piece], theta: Theta) -> list[Objective]:
    return model.objective_many(theta, [model.local(theta, piece.own) for piece in pieces])


def _side_by_side(theta: Theta, totals: list[Block]) -> Iterator[Objective]:
    """Yield the objectives of sets of rows of one size, on a device."""
    tiles = [theta.kernel.pullback(rows.X.astype(np.float64)) for rows in totals]
    K, y = stacked(K for K, _ in tiles), stacked(rows.y for rows in totals)
    noise = None if totals[0].noise is None else stacked(rows.noise for rows in totals)
    L, alpha, values = solved(K, variances(theta.noise_variance, noise), y)
    xp, p = namespace(L), alpha.shape[2]
    C_bar = 0.5 * (alpha @ alpha.transpose(0, 2, 1) - p * batched.inverse_stack(L))
    by_noise = by_log_noise(theta.noise_variance, noise, xp.diagonal(C_bar, 0, 1, 2))
    numbers = to_host(xp.stack([values, by_noise])).T.tolist()
    for (value, own_noise), bar, (_, pull) in zip(numbers, C_bar, tiles, strict=True):
        by_log = pull(bar, overwrite=True).log_parameters
        yield Objective(value, ThetaBar(by_log, own_noise, None), None)


def factored(K: Array, noise: Any, y: Array) -> tuple[Array, Array]:
    """Return the factor L of C = K + D, in K's memory, and the weights alpha = C^-1 y."""
    linalg.add_to_diagonal(K, noise)
    L, _ = linalg.cholesky(K, jitter=0.0, overwrite=True)
    return L, linalg.solve_from_factor(L, y)
