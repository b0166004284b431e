"""Exact local experts and every way to combine them ([OPT] section 4.2).

Letters: expert i has the rows X_i, y_i; C_i = K(X_i, X_i) + s I = L_i L_i', alpha_i = C_i^-1 y_i,
k_i = K(X_i, x).  It predicts mean k_i' alpha_i and variance k** - c_i with c_i = k_i' C_i^-1 k_i.
u_i = C_i^-1 k_i, and v stacks beta_i u_i.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.arrays.batched import by_size, solved, stacked
from daskgp.errors import InputError
from daskgp.models import optimal_weights
from daskgp.models.exact import Exact, factored
from daskgp.models.experts import aggregation, inner_products
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.experts.inner_products import Cross, Together
from daskgp.models.method import Experts, Pass, Rounds, one_place
from daskgp.models.values import (
    TILE_ROWS,
    Block,
    Footprint,
    Moments,
    Objective,
    Piece,
    Shape,
    Theta,
    Want,
    add,
    add_lists,
    variances,
)
from daskgp.typing import Array

SOLVED_BYTES = 256 << 20
"""Bytes of u over all training rows that a prediction holds, if it needs all experts at once."""
MOST_PLACES = 1024
JOINT_BYTES = 8 << 30
"""Maximum bytes of products between places and training rows for a joint covariance."""


class Summary(NamedTuple):
    """One expert: its weights alpha (n, p) and the log evidence of its rows."""

    weights: Array
    value: float


class State(NamedTuple):
    """Weights alpha (n, p) of all experts, where each begins (M + 1,), and beta (M,)."""

    weights: Array
    starts: Array
    beta: Array


class Conditioned(NamedTuple):
    """Rows of an expert, factored: X (r, d), L (r, r), alpha (r, p), noise variances (r,)."""

    X: Array
    factor: Array
    weights: Array
    noise: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(sum(array.nbytes for array in self))


@dataclass(frozen=True)
class ExactExperts(Ensemble):
    """Combined exact experts; without a ``central`` share projections are over all rows."""

    name: ClassVar[str] = "exact-experts"
    state_type: ClassVar[Any] = State
    divisible: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    def why_no_paths(self) -> str:
        """Return which methods have sample paths instead."""
        return (
            "exact experts have no sample paths: choose LMA, or expert='sparse' with "
            "aggregation='optimal'"
        )

    def why_no_joint(self) -> str | None:
        """Return which setting rules out a joint covariance; None if none does."""
        return super().why_no_joint() or one_place("variance", self.variance, "linear")

    def steadier(self) -> str:
        """Return the setting that cannot make a variance negative."""
        return "variance='linear'" if self.variance == "paper" else super().steadier()

    def expert_objective(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the log evidence of one expert's rows with its gradient."""
        return self.expert_objectives(theta, rows)[0]

    def expert_objectives(
        self, theta: Theta, rows: Rounds, with_inputs: bool = True
    ) -> list[Objective]:
        """Return the log evidence of each expert's rows with its gradient."""
        return rows.gather(Exact().objectives(), theta)

    def solve(self, theta: Theta, rows: Rounds) -> tuple[State, float]:
        """Return what prediction needs and the sum of the experts' log evidences."""
        each = rows.gather(self._pass("experts", partial(_summarise, self), add_lists), theta)
        cross = self.cross(theta, rows, [one.weights for one in each]) if self.needs_cross else None
        return self.posterior(theta, each, cross), float(sum(one.value for one in each))

    def cross(self, theta: Theta, rows: Rounds, weights: Sequence[np.ndarray]) -> Cross:
        """Return sums over rows of the functions of all experts, and of their products.

        They are over all rows, or over a share if ``central`` is set; for the paper's weights as
        printed, products are over one row per expert and the rest over all rows.
        """
        as_printed = self.weights == "paper" and self.central is None
        everywhere = None if self.central is None else rows.draw(self.central)
        over = Pass(
            f"{self.name}-cross",
            partial(_cross, everywhere, rows.draw(None) if as_printed else None),
            add,
            cut=False,
            located=True,
            described="an expert of {rows} rows (its functions at those of all)",
        )
        starts = np.concatenate([[0], np.cumsum([len(w) for w in weights])])
        spans = tuple(map(tuple, rows.points().spans))
        functions = Functions(theta, np.concatenate(weights), starts, spans)
        total: Cross = rows.sum(over, rows.points(), functions)
        return total

    def _pass(self, what: str, function: Any, combine: Any) -> Pass:
        return Pass(
            f"{self.name}-{what}",
            function,
            combine,
            cut=False,
            together=True,
            described="an expert of {rows} rows",
        )

    def summarise(self, theta: Theta, rows: Block) -> Summary:
        """Return weights and log evidence of one expert's rows, whose (n, n) fits in memory."""
        (_, L, alpha, _), (n, p) = _factored(theta, rows), rows.y.shape
        value = -0.5 * number((rows.y * alpha).sum())
        value -= 0.5 * p * (linalg.logdet_factor(L) + n * np.log(2 * np.pi))
        return Summary(alpha, value)

    def summarise_many(self, theta: Theta, experts: Sequence[Block]) -> list[Summary]:
        """Return ``summarise`` of several experts, on the host.

        On a device, experts with equally many rows are factored side by side and come back
        together.
        """
        experts = [_wide(rows) for rows in experts]
        if namespace(experts[0].X) is np:
            return [self.summarise(theta, rows) for rows in experts]
        return by_size(experts, lambda own: len(own.X), partial(_side_by_side, theta))

    @property
    def needs_cross(self) -> bool:
        """True if ``solve`` needs the sums of all experts' functions over rows."""
        return self.aggregation == "optimal"

    def posterior(
        self, prepared: Theta, experts: Sequence[Summary], cross: Cross | None = None
    ) -> State:
        """Return what prediction needs, from the summaries of all experts in their order."""
        sizes = [len(e.weights) for e in experts]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        beta = np.zeros(0)
        if cross is not None:
            system = self.system(prepared, cross, float(starts[-1]))
            beta = optimal_weights.expert_weights(system, self.ridge)
        return State(np.concatenate([e.weights for e in experts]), starts, beta)

    def system(self, theta: Theta, cross: Cross, rows: float) -> tuple[np.ndarray, np.ndarray]:
        """Return inner products and right-hand side of the weights, [OPT] eqs. 42 and 44.

        Sums over a share of the rows are scaled up.  As printed, Algorithm 5 sums products over
        one row per expert without scaling and forgets the noise variance of eq. 42.
        """
        hilbert = 0.5 * (cross.hilbert + cross.hilbert.T)
        if self.weights == "paper" and self.central is None:
            inner = cross.products + hilbert
            return inner, np.diag(inner).copy()
        if not cross.rows:
            raise InputError(
                f"central={self.central} drew none of {rows:.0f} rows: choose a larger share"
            )
        scale = rows / cross.rows
        inner = scale * (cross.products + theta.noise_variance * hilbert)
        right = np.diag(inner).copy() if self.weights == "paper" else scale * cross.right
        return inner, right

    def condition(self, theta: Theta, state: State, blocks: Sequence[Block]) -> Conditioned:
        """Factor the rows of one or several experts."""
        return _factored(theta, _wide(Block.join(blocks)))

    # -- prediction --------------------------------------------------------------------------

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the combined posterior: [OPT] eqs. 14-17, or eq. 45a with the chosen variance."""
        experts: Experts = near
        self._refuse_joint(want)
        if self.aggregation == "optimal":
            return self._predict_combined(theta, state, X, experts, want)
        if self.aggregation == "npae":
            return self._predict_nested(theta, state, X, experts)
        return self._predict_committee(theta, X, experts)

    def _predict_committee(self, theta: Theta, X: Array, experts: Experts) -> Moments:
        noise = theta.noise_variance if self.noise_in_experts else 0.0
        prior = theta.kernel.diag(X) + noise

        def expert(i: int) -> tuple[Array, Array]:
            shared = (0, i) if self.aggregation == "grbcm" and i else (i,)
            given = experts.conditioned(*shared)
            K = theta.kernel(X, given.X)
            mean = K @ given.weights
            return mean, prior - linalg.row_squares(_whitened(given, K))

        return self._by_committee(expert, len(experts), prior)

    def _predict_combined(
        self, theta: Theta, state: State, X: Array, experts: Experts, want: Want
    ) -> Moments:
        mean = sum(
            beta * inner_products.times(theta.kernel, X, experts.rows(i).X, alpha)
            for i, (beta, alpha) in enumerate(zip(state.beta, _split(state), strict=True))
        )
        if want == "mean":
            return Moments(mean)
        if want == "covariance":
            return Moments(mean, covariance=self._covariance(theta, state, X, experts))
        if self.variance == "paper":
            return Moments(mean, variance=_weighted_squares(theta, state, X, experts))
        variance = namespace(X).empty(len(X))
        for rows in _places(len(X), len(state.weights)):
            variance[rows] = _linear_variance(theta, state, X[rows], experts)
        return Moments(mean, variance=variance)

    def _covariance(self, theta: Theta, state: State, X: Array, experts: Experts) -> Array:
        if self.variance == "paper":
            raise InputError(
                "variance='paper' gives the variance of one place at a time: ask for return_std, "
                "or choose variance='linear'"
            )
        if 4 * 8 * len(X) * len(state.weights) > JOINT_BYTES:
            raise InputError(
                f"a joint covariance of {len(X)} places with {len(state.weights)} training rows of "
                f"exact experts needs {3.2e-8 * len(X) * len(state.weights):.0f} GB: ask for "
                "fewer places at once, or for return_std"
            )
        all_rows = Together.solved(theta, X, experts, state.beta)
        v, k = all_rows.u, theta.kernel(all_rows.X, X)
        joint = theta.kernel(X) + v.T @ (all_rows.noise[:, None] * v)
        through = k.T @ v
        joint -= through + through.T
        for j in range(len(experts)):
            rows = all_rows.of(j)
            joint += v.T @ inner_products.times(theta.kernel, all_rows.X, all_rows.X[rows], v[rows])
        return 0.5 * (joint + joint.T)

    def _predict_nested(self, theta: Theta, state: State, X: Array, experts: Experts) -> Moments:
        (n, p), count, xp = state.weights.shape, len(experts), namespace(X)
        mean, variance = xp.empty((len(X), p)), xp.empty(len(X))
        prior = theta.kernel.diag(X)
        for places in _places(len(X), n + count * count):
            nested = _nested_terms(theta, X[places], experts)
            mean[places], variance[places] = aggregation.nested(*nested, prior[places])
        return Moments(mean, variance=variance)

    # -- for plan and tests ------------------------------------------------------------------

    def exact_limit(self, theta: Theta, X: Array) -> tuple[ExactExperts, Theta] | None:
        """Return one expert without ridge; None where no setting is exact."""
        return (replace(self, n_experts=1, ridge=0.0), theta) if self._has_limit else None

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint: kernel tiles and five matrices of an expert, or two for grBCM.

        Weights alpha travel to all tasks.  Predictions hold a tile of places and an expert's rows,
        or u over all rows if they need all experts at once.
        """
        n, r, count = shape.rows, shape.block_rows, self.n_experts
        rows = 2 * r if self.aggregation == "grbcm" else r
        weights, together = 8 * n * shape.targets, 0
        if self.aggregation == "npae" or (self.aggregation, self.variance) == ("optimal", "linear"):
            pairs = 4 * count * count if self.aggregation == "npae" else 0
            together = 3 * 8 * (n + pairs) * _number_together(n + pairs)
        products = count * count if self.needs_cross else 0
        matrices = (shape.kernel_tiles + 5) * 8 * rows * rows
        predicted = 8 * rows * (rows + 2 * TILE_ROWS)
        return Footprint(
            task=matrices + weights,
            stats=weights // max(count, 1) + 2 * 8 * products,
            solve=2 * weights + 4 * 8 * products,
            state=weights + n * 8 * (shape.features + shape.targets),
            operations=2.0 * n * r * r,
            predict=max(predicted, together) + 3 * 8 * rows * rows + weights,
            shared=weights,
        )


@dataclass(frozen=True, eq=False)
class Functions:
    """The experts' means as functions: k(., x) weighted by alpha (n, p), one after another.

    ``starts`` (M + 1,) are where each begins among the weights, ``spans`` its first and last row.
    """

    theta: Theta
    weights: np.ndarray
    starts: np.ndarray
    spans: tuple[tuple[int, ...], ...]

    def rows(self, i: int, places: np.ndarray | None = None) -> np.ndarray:
        """Return the weights of expert i."""
        return self.weights[int(self.starts[i]) : int(self.starts[i + 1])]


def _summarise(model: ExactExperts, pieces: Sequence[Piece], theta: Theta) -> list[Summary]:
    return model.summarise_many(theta, [piece.own for piece in pieces])


def _cross(
    everywhere: Any, products: Any, piece: Piece, points: Any, functions: Functions
) -> Cross:
    """Return the sums of an expert's rows, with products over other rows if those are drawn."""
    sums = _cross_sums(everywhere, piece, points, functions)
    if products is None:
        return sums
    return _cross_sums(products, piece, points, functions)._replace(hilbert=sums.hilbert)


def _cross_sums(draw: Any, piece: Piece, points: Any, functions: Functions) -> Cross:
    """Return the sums over the rows of an expert, or over those that are drawn."""
    i = functions.spans.index(tuple(piece.span))
    block, own = piece.own, functions.rows(i)
    if draw is not None:
        assert piece.places is not None
        drawn = draw.among(piece.span, piece.span)[piece.places - piece.span[0]]
        chosen = np.flatnonzero(drawn)
        block, own = block.at(namespace(block.X).asarray(chosen)), own[chosen]
    experts = ((panel.own.X, panel.own.y) for panel in points.pieces(functions))
    return inner_products.cross_sums(functions.theta, block, own, i, experts, len(functions.spans))


def _wide(rows: Block) -> Block:
    return Block(wide(rows.X), wide(rows.y), rows.noise)


def _factored(theta: Theta, rows: Block) -> Conditioned:
    """Return X, the factor of C, alpha = C^-1 y and the noise variances."""
    noise = namespace(rows.X).zeros(len(rows.X)) + variances(theta.noise_variance, rows.noise)
    return Conditioned(rows.X, *factored(theta.kernel(rows.X), noise, rows.y), noise)


def _side_by_side(theta: Theta, experts: list[Block]) -> Iterator[Summary]:
    """Yield the summaries of experts of one size, which leave the device in one array."""
    K = stacked(theta.kernel(rows.X) for rows in experts)
    noise = None if experts[0].noise is None else stacked(rows.noise for rows in experts)
    noise = variances(theta.noise_variance, noise)
    found = solved(K, noise, stacked(rows.y for rows in experts))
    g, n, p = found.weights.shape
    together = [found.weights.reshape(g, n * p), found.values[:, None]]
    for own in to_host(namespace(found.values).concatenate(together, axis=1)):
        yield Summary(own[:-1].reshape(n, p), float(own[-1]))


def _split(state: State) -> list[Array]:
    """Return the weights alpha of each expert."""
    edges = to_host(state.starts).tolist()
    return [state.weights[a:b] for a, b in itertools.pairwise(edges)]


def _whitened(given: Conditioned, K: Array) -> Array:
    """Return the rows k' L^-T, overwriting K (n, r)."""
    return linalg.whiten_rows(given.factor, K, overwrite=True)


def _places(number: int, width: int) -> list[slice]:
    """Return slices of places that are predicted together."""
    step = _number_together(width)
    return [slice(i, i + step) for i in range(0, number, step)]


def _number_together(width: int) -> int:
    """Return how many places, with ``width`` numbers each, are kept in memory together."""
    return min(MOST_PLACES, max(1, SOLVED_BYTES // (8 * max(width, 1))))


def _weighted_squares(theta: Theta, state: State, X: Array, experts: Experts) -> Array:
    """Return [OPT] eq. 45b as printed: sum of beta_i^2 c_i."""
    total = namespace(X).zeros(len(X))
    for i, beta in enumerate(state.beta):
        given = experts.conditioned(i)
        total += beta**2 * linalg.row_squares(_whitened(given, theta.kernel(X, given.X)))
    return total


def _linear_variance(theta: Theta, state: State, X: Array, experts: Experts) -> Array:
    """Return E (f - v' y)^2 = k** - 2 v'k + v' (K + s I) v at X, all experts at once."""
    terms = Together.solved(theta, X, experts, state.beta)
    variance = theta.kernel.diag(X) - 2.0 * terms.cross.sum(axis=1)
    variance += (terms.noise[:, None] * terms.u**2).sum(axis=0)
    for j, through in terms.products(theta.kernel):
        own = terms.starts[j + 1] - terms.starts[j]
        variance += through[:own].sum(axis=0) + 2.0 * through[own:].sum(axis=0)
    return variance


def _nested_terms(theta: Theta, X: Array, experts: Experts) -> tuple[Array, Array, Array]:
    """Return means (n, M, p), cross (n, M) and covariance (n, M, M) of [OPT] eq. 17."""
    terms, count = Together.solved(theta, X, experts), len(experts)
    covariance = namespace(X).empty((len(X), count, count))
    for j, through in terms.products(theta.kernel):
        covariance[:, j, j] = terms.cross[:, j]
        for i in range(j + 1, count):
            rows = slice(terms.starts[i] - terms.starts[j], terms.starts[i + 1] - terms.starts[j])
            covariance[:, i, j] = covariance[:, j, i] = through[rows].sum(axis=0)
    return terms.means, terms.cross, covariance
