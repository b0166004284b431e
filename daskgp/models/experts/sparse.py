"""Sparse experts that share inducing inputs, and every way to combine them ([OPT] section 4.1).

Letters: as in collapsed.py, for expert i with the rows X_i: A_i = L^-1 K(Z, X_i), S_i = A_i A_i',
b_i = A_i y_i, B_i = I + S_i / s.  With a = L^-1 k(Z, x) the expert predicts mean a' w_i with
w_i = B_i^-1 b_i / s, and variance k** - a' E_i a with E_i = I - B_i^-1.  H = sum beta_i E_i.
Combined with weights beta, all experts collapse into one vector and one matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace
from daskgp.errors import InputError
from daskgp.models import collapsed, optimal_weights
from daskgp.models.collapsed import Collapsed, Stats
from daskgp.models.experts import aggregation
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.inducing import Prepared, inputs_of, posterior
from daskgp.models.method import Rounds
from daskgp.models.optimal_weights import System
from daskgp.models.pathwise import PathDraw, Paths, PathState, by_inducing
from daskgp.models.values import TILE_ROWS, Footprint, Moments, Objective, Shape, Theta, Want
from daskgp.typing import Array

NESTED_BYTES = 64 << 20
"""Bytes of the products that nested kriging holds at a time."""


class Summary(NamedTuple):
    """One expert: its statistics, those of its central rows if not all, and its bound."""

    stats: Stats
    central: Stats | None
    value: float


class State(NamedTuple):
    """Arrays that prediction needs; of length 0 if an aggregation does not need them.

    ``factor`` is L (m, m).  Optimal weights: ``beta`` (M,), ``weights`` (m, p) of the mean and
    ``spread`` (m, m), rows U with |U a|^2 the part of the variance beyond k** - |a|^2.  Others:
    ``means`` w_i (M, m, p), and ``shrinks`` (M, m, m): L_{B_i}^-1, or E_i for nested kriging.
    """

    factor: Array
    beta: Array
    weights: Array
    spread: Array
    means: Array
    shrinks: Array


@dataclass(frozen=True)
class SparseExperts(Collapsed, Ensemble):
    """Combined sparse experts; only the paper's weights take a ``central`` share.

    Parameters
    ----------
    shrinkage : float
        Share of the model's own expectation in the risk that optimal weights minimise.
    jitter, tile_rows
        As for the collapsed sparse GP.
    """

    shrinkage: float = 0.01
    jitter: float = 1e-8
    tile_rows: int = collapsed.TILE_ROWS

    name: ClassVar[str] = "sparse-experts"
    state_type: ClassVar[Any] = State

    def why_no_update(self) -> str | None:
        """Return that central rows are no sum, where weights need them."""
        if self.needs_central:
            return "weights='paper' takes some central rows of each expert: fit all rows again"
        return super().why_no_update()

    def why_no_forget(self) -> str | None:
        """Return that nobody remembers which expert had a row."""
        return "the assignment of rows to experts is not kept: fit the rows that stay"

    def why_no_paths(self) -> str | None:
        """Return which setting rules out sample paths; None if none does."""
        if self.aggregation != "optimal":
            return (
                f"aggregation={self.aggregation!r} combines variances place by place and has no "
                "sample paths: fit with aggregation='optimal'"
            )
        if self.variance == "linear":
            return None
        return "variance='paper' gives no covariance to draw sample paths from: fit with 'linear'"

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths with the error covariance of the linear predictor."""
        spread = state.spread.T
        return by_inducing(
            draw, inputs_of(theta), state.factor, state.weights, lambda normal: spread @ normal
        )

    @property
    def needs_central(self) -> bool:
        """True if ``solve`` needs sums over central rows."""
        return self.aggregation == "optimal" and self.weights == "paper"

    def expert_objective(self, theta: Theta, rows: Rounds) -> Objective:
        """Return Titsias' bound of one expert's rows with its full gradient."""
        return Collapsed.evaluate(self, theta, rows)

    def evaluate(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the sum of the experts' bounds with its gradient."""
        return Ensemble.evaluate(self, theta, rows)

    def solve(self, theta: Theta, rows: Rounds) -> tuple[State, float]:
        """Return what prediction needs and the sum of the experts' bounds."""
        return self._concluded(*self._summarised(theta, rows), rows)

    def totals(self, theta: Theta, rows: Rounds) -> tuple[Prepared, Stats]:
        """Return what all rows need, and the sums over each expert's rows, stacked (M, ...)."""
        prepared, each = self._summarised(theta, rows)
        fields: list[Any] = [np.stack(f) for f in zip(*(e.stats for e in each), strict=True)]
        return prepared, Stats(*fields)

    def concluded(
        self, theta: Theta, prepared: Prepared, total: Stats, rows: Rounds
    ) -> tuple[State, float]:
        """Return what prediction needs and the sum of the experts' bounds, from their sums."""
        s = theta.noise_variance
        with rows.solving(len(prepared.factor)):
            each = [Summary(one, None, collapsed.bound(s, one)) for one in _each(total)]
        return self._concluded(prepared, each, rows)

    def misfit(self, prepared: Prepared, total: Stats) -> float | None:
        """Return the sum of the experts' own y' (Q + s I)^-1 y."""
        s = prepared.theta.noise_variance
        return sum(collapsed.misfit(s, one) for one in _each(total))

    def _summarised(self, theta: Theta, rows: Rounds) -> tuple[Prepared, list[Summary]]:
        with rows.solving(len(inputs_of(theta))):
            prepared = self.prepare(theta)
        return prepared, rows.map(self.summarise, prepared)

    def _concluded(
        self, prepared: Prepared, each: Sequence[Summary], rows: Rounds
    ) -> tuple[State, float]:
        with rows.solving(len(prepared.factor)):
            return self.posterior(prepared, each), float(sum(one.value for one in each))

    def summarise(self, rows: Rounds, prepared: Prepared) -> Summary:
        """Return sums over the rows of one expert, those over its central rows, and its bound."""
        over = self.summing(prepared.theta)
        total, middle = rows.sum(over, prepared), None
        if self.needs_central:
            middle = rows.drawn(rows.draw(self.central)).sum(over, prepared)
        return Summary(total, middle, collapsed.bound(prepared.theta.noise_variance, total))

    def posterior(self, prepared: Prepared, experts: Sequence[Summary]) -> State:
        """Return what prediction needs, from the summaries of all experts in their order."""
        s, m = prepared.theta.noise_variance, len(prepared.factor)
        p = experts[0].stats.projection.shape[1]
        if self.aggregation == "optimal":
            beta, weights, spread = self._combined(s, experts)
            weights = np.ascontiguousarray(linalg.solve_lower_t(prepared.factor, weights))
            nothing = np.zeros((0, m, p)), np.zeros((0, m, m))
            return State(prepared.factor, beta, weights, spread, *nothing)
        means, shrinks = np.empty((len(experts), m, p)), np.empty((len(experts), m, m))
        for i, (gram, projection) in enumerate(self._members(experts)):
            inner = _inner_factor(gram, s)
            solved = linalg.solve_lower(inner, projection)
            means[i] = linalg.solve_lower_t(inner, solved) / s
            if self.aggregation == "npae":
                shrinks[i] = np.eye(m) - linalg.inverse_from_factor(inner)
            else:
                shrinks[i] = linalg.solve_lower(inner, np.eye(m))
        empty = np.zeros(0), np.zeros((0, p)), np.zeros((0, m))
        return State(prepared.factor, *empty, means, shrinks)

    def _members(self, experts: Sequence[Summary]) -> Iterator[tuple[Array, Array]]:
        """Yield the sums of each expert; for grBCM the others share the first ([OPT] eq. 15)."""
        for i, (stats, _, _) in enumerate(experts):
            if self.aggregation == "grbcm" and i:
                first = experts[0].stats
                yield first.gram + stats.gram, first.projection + stats.projection
            else:
                yield stats.gram, stats.projection

    def _combined(
        self, s: float, experts: Sequence[Summary]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights, the combined mean's (m, p) in the whitened basis, the spread's rows."""
        m = len(experts[0].stats.gram)
        W = np.empty((len(experts), *experts[0].stats.projection.shape))
        inverses: list[np.ndarray] = []
        for w, (stats, _, _) in zip(W, experts, strict=True):
            inverses.append(linalg.inverse_from_factor(_inner_factor(stats.gram, s)))
            w[...] = inverses[-1] @ stats.projection / s
        system, shrunk = self._system(s, experts, W), None
        if self.shrinkage and self.weights == "projection":
            shrunk = self._shrunk(system, experts, inverses)
        beta = optimal_weights.expert_weights(system, self.ridge, shrunk)
        if self.variance == "paper":  # [OPT] eq. 43b
            R = sum(b * b * inverse for b, inverse in zip(beta, inverses, strict=True))
        else:
            R, H = np.zeros((m, m)), np.zeros((m, m))
            for b, inverse in zip(beta, inverses, strict=True):
                E = np.eye(m) - inverse
                H += b * E
                R += b * b * (E @ inverse)
            R += (np.eye(m) - H).T @ (np.eye(m) - H)
        return beta, np.einsum("i,imp->mp", beta, W), _root(np.asarray(R))

    def _system(
        self, s: float, experts: Sequence[Summary], W: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return <f_i, f_j> = w_i' (S + s I) w_j of [OPT] eq. 42 and the right-hand side."""
        if self.weights == "projection":
            parts, scale = [e.stats for e in experts], 1.0
        else:
            parts = [e.stats if e.central is None else e.central for e in experts]
            rows = sum(e.stats.rows for e in experts), sum(part.rows for part in parts)
            if self.central is not None and not rows[1]:
                raise InputError(
                    f"central={self.central} drew none of {rows[0]:.0f} rows: choose a larger share"
                )
            scale = rows[0] / rows[1] if self.central is not None else 1.0
        S = linalg.symmetrize(scale * sum(part.gram for part in parts))
        flat = W.transpose(0, 2, 1).reshape(-1, len(S))  # one output after another
        inner = _outputs_summed(flat @ (S + s * np.eye(len(S))) @ flat.T, len(W))
        if self.weights == "paper":
            return inner, np.diag(inner).copy()
        b = np.sum([e.stats.projection for e in experts], axis=0)
        return inner, np.einsum("imp,mp->i", W, b)

    def _shrunk(
        self,
        system: System,
        experts: Sequence[Summary],
        inverses: Sequence[np.ndarray],
    ) -> System:
        """Return the system of (1 - g) R + g E R', with g the shrinkage.

        R' is the sum over all rows of (f - sum beta_i mu_i)^2, whose expectation under the model
        is beta' C beta - 2 c' beta and a constant: C_ij = tr(S E_i E_j) + [i = j] tr(S E_i B_i^-1)
        and c_i = tr(S E_i).  R alone lets experts that differ little cancel one another with large
        weights, under which the predictor's variance is large.
        """
        S = linalg.symmetrize(np.sum([e.stats.gram for e in experts], axis=0))
        half, p = _root(S).T, experts[0].stats.projection.shape[1]
        flat, c, own = np.empty((len(experts), S.size)), [], []
        for row, inverse in zip(flat, inverses, strict=True):
            E = np.eye(len(S)) - inverse
            row[...] = (E @ half).ravel()
            c.append(np.vdot(S, E))
            own.append(np.vdot(S, E @ inverse))
        C, g = flat @ flat.T + np.diag(own), self.shrinkage
        inner, right = system
        return (1 - g) * inner + g * p * C, (1 - g) * right + g * p * np.array(c)

    # -- prediction --------------------------------------------------------------------------

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the combined posterior: [OPT] eqs. 14-17, or eq. 43a with the chosen variance."""
        if self.aggregation == "optimal":
            return self._predict_combined(theta, state, X, want)
        self._refuse_joint(want)
        K = theta.kernel(X, inputs_of(theta).astype(X.dtype))
        A = linalg.whiten_rows(state.factor.astype(X.dtype, copy=False), K, overwrite=True)
        prior = theta.kernel.diag(X)
        if self.aggregation == "npae":
            return _predict_nested(state, A, prior)
        return self._predict_committee(theta.noise_variance, state, A, prior)

    def _predict_combined(self, theta: Theta, state: State, X: Array, want: Want) -> Moments:
        def spread(A: Array) -> Array:
            return A @ state.spread.astype(A.dtype, copy=False).T

        if self.variance == "linear" or want == "mean":
            Z = inputs_of(theta)
            return posterior(theta.kernel, Z, state.factor, state.weights, X, want, spread)
        K = theta.kernel(X, inputs_of(theta).astype(X.dtype))
        mean = K @ state.weights
        U = spread(linalg.whiten_rows(state.factor, K, overwrite=True))
        if want == "covariance":
            return Moments(mean, covariance=U @ U.T)
        return Moments(mean, variance=linalg.row_squares(U))

    def _predict_committee(self, s: float, state: State, A: Array, prior: Array) -> Moments:
        rest, noise = prior - linalg.row_squares(A), s if self.noise_in_experts else 0.0

        def expert(i: int) -> tuple[Array, Array]:
            spread = linalg.row_squares(A @ state.shrinks[i].T)
            return A @ state.means[i], rest + spread + noise

        return self._by_committee(expert, len(state.means), prior + noise)

    # -- for plan and tests ------------------------------------------------------------------

    def exact_limit(self, theta: Theta, X: Array) -> tuple[SparseExperts, Theta] | None:
        """Return one expert with Z = X and no ridge; None where no setting is exact."""
        if not self._has_limit:
            return None
        return replace(self, n_experts=1, ridge=0.0, jitter=0.0), replace(theta, inputs=X)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the collapsed sparse GP's footprint, with M experts' summaries in the solve."""
        one = collapsed.footprint(shape, self.tile_rows)
        m, p, count = shape.inputs, shape.targets, self.n_experts
        combined, sums = self.aggregation == "optimal", one.stats - 8 * m * m // 2  # triangles
        kept = 0 if combined else 8 * count * (m * m + m * p)
        stored = kept if self.aggregation == "npae" else kept // 2  # of factors, without zeros
        nested = 0
        if self.aggregation == "npae":
            nested = 3 * 8 * count * (count + m) * min(TILE_ROWS, _number_together(count, m))
        return one._replace(
            task=one.task + one.solve,
            solve=one.solve + count * (2 * one.stats + 2 * 8 * m * m),
            state=8 * (m * m // 2 + combined * m * m + m * p) + stored + count * sums,
            predict=one.predict + kept + nested + 8 * m * TILE_ROWS,
        )


def _each(total: Any) -> Iterator[Stats]:
    """Yield the sums of each expert."""
    return (Stats(*fields) for fields in zip(*total, strict=True))


def _predict_nested(state: State, A: Array, prior: Array) -> Moments:
    """Return the NPAE prediction under the sparse model.

    There cov(mu_i, mu_j) = a' E_i E_j a, and a' E_i a for i = j.
    """
    xp, (count, m, p) = namespace(A), state.means.shape
    step = _number_together(count, m)
    mean, variance = xp.empty((len(A), p), A.dtype), xp.empty(len(A), A.dtype)
    diagonal = xp.arange(count)
    for start in range(0, len(A), step):
        rows = slice(start, start + step)
        V = xp.matmul(A[rows], state.shrinks).transpose(1, 0, 2)  # (n, M, m)
        cross = xp.einsum("nim,nm->ni", V, A[rows])
        covariance = xp.matmul(V, V.transpose(0, 2, 1))
        covariance[:, diagonal, diagonal] = cross
        means = xp.matmul(A[rows], state.means).transpose(1, 0, 2)
        mean[rows], variance[rows] = aggregation.nested(means, cross, covariance, prior[rows])
    return Moments(mean, variance=variance)


def _number_together(count: int, m: int) -> int:
    """Return how many places nested kriging predicts together."""
    return max(1, NESTED_BYTES // (8 * count * (count + m)))


def _inner_factor(gram: np.ndarray, s: float) -> np.ndarray:
    """Return the Cholesky factor of B = I + S / s, from the lower triangle of S."""
    return collapsed.inner_factor(linalg.symmetrize(gram.copy()), s)


def _outputs_summed(products: np.ndarray, count: int) -> np.ndarray:
    """Return products (M p, M p) of experts and outputs, summed over equal outputs: (M, M)."""
    p = len(products) // count
    return np.asarray(np.einsum("ipjp->ij", products.reshape(count, p, count, p)))


def _root(R: np.ndarray) -> np.ndarray:
    """Return U with U' U = R for symmetric R >= 0."""
    sizes, vectors = np.linalg.eigh(0.5 * (R + R.T))
    return np.ascontiguousarray(np.sqrt(np.maximum(sizes, 0.0))[:, None] * vectors.T)
