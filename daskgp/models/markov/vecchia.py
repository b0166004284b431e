"""Vecchia: every row is conditioned on its nearest earlier rows, in a random order.

It is LMA with blocks of one row: the same sums, state and letters, with R(c, c) that of the k rows
c nearest to a row among those before it (Vecchia 1988; Katzfuss & Guinness 2021).  Without support
inputs the residual is all there is; with them it is full-scale Vecchia (Gyger, Furrer & Sigrist
2025).  With w = L^-T e_last of the factor L L' = R(c i, c i), the row's e is w' y, its E is w' A
and its C is 1.

Where hyper-parameters vary no A serves two rows, and the values f(S) at support inputs are what all
have in common: they come first in the order, each given those before it, so that f(S) = V u with V
lower triangular and u white.  A row is conditioned on all of f(S) and the k rows c, with its own
hyper-parameters in all of the window.  With w = [w_S, w_c, w_i] of K + D there, e is w_c' y_c +
w_i y_i and E is -V' w_S.  That is a product of conditional densities too, and the one above where
hyper-parameters are the same everywhere.

With barriers the rows c are the nearest of those that a row sees (``barriers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, to_host, wide
from daskgp.kernels import lengthscales
from daskgp.kernels.compose import tables
from daskgp.models.additive import order_of
from daskgp.models.inducing import Prepared, inputs_of
from daskgp.models.leave_one_out import Known, less_trend, places_of, without
from daskgp.models.markov.barriers import Barriers
from daskgp.models.markov.conditionals import (
    MOST_COMPILED,
    Conditionals,
    among,
    combined,
    prior_variances,
    scores,
    stats_of,
    summed,
    weights,
)
from daskgp.models.markov.earlier import in_tiers, nearest, nearest_earlier, ranks
from daskgp.models.markov.lma import FAR, LMA, Near, State
from daskgp.models.markov.windows import Cotangent, Stats, features_of, rows_of
from daskgp.models.method import Pass, Rounds
from daskgp.models.trend import NONE
from daskgp.models.values import (
    Across,
    Block,
    Footprint,
    Moments,
    Piece,
    Shape,
    Theta,
    ThetaBar,
    Want,
    add,
    add_gradients,
    variances,
)
from daskgp.typing import Array

SUMMED = 1_000
"""Places of a sum that are conditioned at a time."""
FIRST = 20_000
"""Number of the earliest rows, among which the others of them find their neighbours."""
ENOUGH = 1.1
"""Rows below a rank that are expected for each of the earliest, so that there are hardly ever
fewer."""
OWN = 40
"""Neighbours of a training row, itself among them, by which its marginal is known."""
SPARSE = 2_000
"""Most rows of sparse kinds that come first in the order."""
FEW, OF_EACH = 5, -np.inf
"""Most categories of which a row has neighbours of each, and their unit of distance."""
TINY = 1e-12
"""Variance of places, relative to that of f, without which they could not lie at training rows."""
HINT = 1e-3
"""Share of a prior variance that rows explain above which a place is not far from them."""


class First(NamedTuple):
    """The earliest rows of all: their numbers (f,), X (f, d), y (f, p) and noise (f, 2).

    And the barriers between all rows, if there are any.
    """

    places: np.ndarray
    X: Array
    y: Array
    noise: Array | None
    barriers: Barriers | None = None

    @property
    def block(self) -> Block:
        """The rows themselves."""
        return Block(self.X, self.y, self.noise)


class Shared(NamedTuple):
    """Units of distance, (d,) or (q, d), and the earliest rows, which all tasks share."""

    lengths: np.ndarray
    first: First


class Rows(NamedTuple):
    """Training rows near places: X, y and noise, and their features A (w, m)."""

    X: Array
    y: Array
    noise: Array | None
    features: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(sum(a.nbytes for a in self if a is not None))

    def at(self, rows: Array) -> Rows:
        """Return some of the rows, by their numbers."""
        return Rows(*(None if a is None else a[rows] for a in self))


class RowState(NamedTuple):
    """State of LMA, the units of distance, (d,) or (q, d), and the arrays of ``Barriers``."""

    factor: Array
    inner_factor: Array
    weights: Array
    trend: Array
    lengths: np.ndarray
    edges: Array = NONE
    axes: Array = NONE
    rings: Array = NONE

    @property
    def barriers(self) -> Barriers | None:
        """Barriers between rows, if there are any."""
        return Barriers(*self[5:]) if np.size(self.edges) else None


@dataclass(frozen=True)
class Vecchia(LMA):
    """Settings of the conditionals.

    Parameters
    ----------
    n_neighbours : int
        Earlier rows k that a row is conditioned on.
    predict_neighbours : int
        Training rows that a prediction is conditioned on; of more than MOST_COMPILED, the places of
        a cell share those nearest to it, and where hyper-parameters are common their factor.
    seed : int
        Seed of the order.
    later : int, optional
        Number of the first row of those that come after all others in the order.
    lengths : sequence of float or of sequences of float
        Units of distance along each column, 0 for one that does not matter and -inf for one of
        categories, of each of which a row has neighbours; those of the kernel within the range of
        the rows if there are none.
    tiers : sequence of int
        Tier of the rows of each code in the last column, of which lower ones come first in the
        order; without, rows of all codes are mixed.
    jitter, trend
        As in ``LMA``.
    """

    n_neighbours: int = 30
    predict_neighbours: int = 100
    seed: int = 0
    later: int | None = field(default=None, repr=False)
    lengths: Sequence[Any] = field(default=(), repr=False)
    tiers: Sequence[int] = field(default=(), repr=False)
    markov_order: ClassVar[int] = 1  # type: ignore[misc]
    prediction: ClassVar[str] = "consistent"  # type: ignore[misc]

    name: ClassVar[str] = "vecchia"
    state_type: ClassVar[Any] = RowState
    varies_by_window: ClassVar[bool] = False
    near_for_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        several = (tuple(own) if isinstance(own, list) else own for own in self.lengths)
        object.__setattr__(self, "lengths", tuple(several))  # lists in stores
        object.__setattr__(self, "tiers", tuple(self.tiers))

    def of_kinds(self, counts: np.ndarray) -> Self:
        """Return the method for rows of kinds, of so many each: those of sparse ones come first.

        Rows of a dense kind have near ones among all that are sparse then, and few that are far
        away.  In a random order most pairs of kinds are far from one another in the first rows.
        """
        return replace(self, tiers=tiers_of(counts))

    def at_own_rows(self) -> Self:
        """Return the method with no more neighbours than a training row needs, which is one."""
        return replace(self, predict_neighbours=min(self.predict_neighbours, OWN))

    def prepare(self, theta: Theta) -> Prepared:
        """Compute the Cholesky factor of K(S, S), if there are support inputs.

        Where hyper-parameters vary it is one of the covariance that support inputs have as rows,
        each conditioned on earlier ones with those of its place.
        """
        if theta.varying is None or theta.inputs is None:
            return super().prepare(theta)
        Z = inputs_of(theta).astype(np.float64)
        xp, m, own = namespace(Z), len(Z), np.arange(len(Z))
        before = nearest_earlier(to_host(Z), own.astype(np.uint64), own, min(m, MOST_COMPILED))
        own, before, noise = xp.asarray(own), xp.asarray(before), self._latent(theta, Z)
        rows = Conditionals(Z, xp.zeros((m, 1)), noise, own, before)
        B = among(weights(theta, rows), rows, 0)  # B f_S is white noise
        return Prepared(theta, linalg.solve_lower(B, xp.eye(m)), self.jitter)

    def _latent(self, theta: Theta, Z: Array) -> Array:
        """Return ``Block.noise`` (m, 2) of f at support inputs, so little that it has a factor."""
        xp = namespace(Z)
        return xp.stack([xp.zeros(len(Z)), self.jitter * prior_variances(theta, Z)], axis=1)

    # -- the order ---------------------------------------------------------------------------

    def ranks(self, places: np.ndarray, X: Array) -> np.ndarray:
        """Return the ranks (n,) of rows X (n, d) by their numbers."""
        rank = ranks(places, self.seed, self.later)
        if not self.tiers:
            return rank
        codes = np.asarray(to_host(X)[:, -1], np.int64)
        return in_tiers(rank, np.array(self.tiers)[codes])

    def first(self, rows: Rounds) -> First:
        """Return the earliest rows of all."""
        limit, n = None, rows.n_rows
        known = n if self.later is None else min(n, self.later)
        if not self.tiers and known > ENOUGH * FIRST:  # others need not travel
            limit = int(ENOUGH * FIRST / known * 2**63)  # a rank is a hash of 63 bits
        least = self._earliest(rows, limit)
        if limit is not None and len(least.places) < FIRST:
            least = self._earliest(rows, None)
        return least._replace(barriers=rows.barriers)

    def _earliest(self, rows: Rounds, limit: int | None) -> First:
        """Return the earliest rows, of those whose rank is below a limit if there is one."""
        least: First = rows.sum(
            Pass(
                f"{self.name}-first",
                partial(_earliest, self, limit),
                partial(_earlier_of, self),
                located=True,
                in_place=False,
                light=True,
            )
        )
        return least

    def shared(self, theta: Theta, first: First) -> Shared:
        """Return what tasks share besides the factor of K(S, S)."""
        if len(self.lengths):
            known = np.array(self.lengths, np.float64)
            return Shared(np.where(known != 0, known, np.inf) if known.ndim == 1 else known, first)
        X = to_host(first.X).astype(np.float64)
        spread = np.ptp(X, axis=0) if len(X) else np.ones(X.shape[1])
        lengths = lengthscales.distance_units(theta.kernel, np.where(spread > 0, spread, 0.0))
        for table in tables(theta.kernel):
            if isinstance(table.column, int) and len(table.level_names) <= FEW:
                lengths[..., table.column] = OF_EACH
        return Shared(lengths, first)

    def given(self, piece: Piece, shared: Shared, own: np.ndarray | None = None) -> Conditionals:
        """Return rows of a piece, or some by their numbers in it, with their nearest earlier rows.

        Candidates are the earlier rows of the piece and the blocks near it, and the first of all.
        """
        assert piece.places is not None
        first, block = shared.first, piece.own
        near_places = piece.near_places or ()
        blocks = [block, *piece.near]
        places = np.concatenate([piece.places, *near_places])
        # rows come once: the first of all are not looked for among those of the blocks
        others = np.flatnonzero(~np.isin(to_host(first.places), places))
        at = namespace(block.X).asarray(others)
        everything = Block.join([*blocks, first.block.at(at)])
        places = np.concatenate([places, to_host(first.places)[others]])
        own = np.arange(len(block.X)) if own is None else own
        rank, points = self.ranks(places, everything.X), in_units(everything.X, shared.lengths)
        kinds = kinds_of(everything.X, shared.lengths)
        sees, number = None, min(self.n_neighbours, len(points))
        if first.barriers:
            mine = everything.X[namespace(block.X).asarray(own)]
            sees = first.barriers.between(mine, everything.X).sees
        near = nearest_earlier(points, rank, own, number, kinds, sees)
        near = near[:, : max(1, int((near >= 0).sum(axis=1).max(initial=0)))]
        return compact(everything, own, near)

    # -- sums --------------------------------------------------------------------------------

    def summed(self, theta: Theta, rows: Rounds) -> tuple[Any, Any]:
        """Return the factor of K(S, S) and the sums over all rows."""
        with rows.solving(order_of(theta)):
            prepared = self.prepare(theta)
        shared = self.shared(theta, self.first(rows))
        total = rows.sum(self._each("local", _summarise, self.combine), prepared, shared)
        return (prepared, shared), total

    def evaluate(self, theta: Theta, rows: Rounds) -> Any:
        """Return the log evidence of all rows with its full gradient."""
        (prepared, shared), total = self.summed(theta, rows)
        objective = self.objective((prepared, shared), total)
        pull = self._each("gradient", _pull, add)
        through = rows.sum(pull, prepared, shared, objective.cotangent)
        gradient = add_gradients(objective.gradient, through)
        return objective._replace(gradient=gradient, cotangent=None)

    def _each(self, what: str, function: Any, combine: Any) -> Pass:
        return Pass(
            f"{self.name}-{what}", partial(function, self), combine, cut=False, located=True,
            method=self,
        )  # fmt: skip

    def sums_of(self, prepared: Prepared, c: Conditionals) -> Stats:
        """Return the sums over conditionals."""
        theta, A = prepared.theta, None
        if theta.varying is not None:
            c = self._beside(theta, c)
            found = weights(theta, c)
            return stats_of(found, c, _of_supports(found, prepared.factor))
        if theta.inputs is not None:
            A = features_of(theta, prepared.factor, c.X)
        return summed(weights(theta, c, A), c, A)

    def objective(self, prepared: Any, total: Stats) -> Any:
        """Return the log evidence of all targets and its derivative with respect to the sums."""
        return super().objective(prepared[0], total)

    def posterior(self, prepared: Any, total: Stats) -> RowState:  # type: ignore[override]
        """Return the posterior of the low-rank part, and the units of distance."""
        own, shared = prepared
        barriers = shared.first.barriers or ()
        return RowState(*super().posterior(own, total), shared.lengths, *barriers)

    def misfit(self, prepared: Any, total: Stats) -> float | None:
        """Return y' C^-1 y of all rows."""
        return super().misfit(prepared[0], total)

    # -- predictions -------------------------------------------------------------------------

    def condition(
        self,
        theta: Theta,
        state: Any,
        blocks: Sequence[Block],
        features: Sequence[Array] | None = None,
    ) -> Any:
        """Return the rows among which predictions find their neighbours, with their features.

        Where places share their neighbours and their hyper-parameters, these are factored.
        """
        if self._together(theta):
            return super().condition(theta, _of_lma(state), blocks, features)
        X, y, noise, _ = rows_of(blocks[-1], blocks[:-1])
        if features is None:
            return Rows(X, y, noise, self.features(theta, state, X))
        return Rows(X, y, noise, namespace(X).concatenate(features))

    def with_added(self, state: Any, first: int) -> Self:
        """Return the method once rows are added, which come after all others in its order."""
        lengths = np.where(np.isposinf(state.lengths), 0.0, state.lengths)
        return replace(self, later=first, lengths=lengths.tolist())

    def with_taken(self) -> Self:
        """Return the method once rows are taken out: others were conditioned on them."""
        return replace(self, later=None, lengths=())

    @property
    def shares(self) -> bool:
        """True if the places of a cell share the rows nearest to it, as in LMA."""
        return self.predict_neighbours > MOST_COMPILED

    def _together(self, theta: Theta) -> bool:
        """Return whether one factor serves all places of a cell."""
        return self.shares and theta.varying is None

    def conditioned_on(self) -> str | None:
        """Return which of the rows around a place predict it; None for all of them."""
        if self.shares:
            return None
        near, before = self.predict_neighbours, self.n_neighbours
        return f"the {near} rows nearest to a place, in the fit the {before} nearest before a row"

    def factored(self, theta: Theta, state: Any, near: Any) -> Near:
        """Factor rows that several places are conditioned on together."""
        if isinstance(near, Near):
            return near
        block = Block(near.X, near.y, near.noise)
        found: Near = super().condition(theta, _of_lma(state), [block], [near.features])
        return found

    def picks(self, state: Any, X: np.ndarray, near: np.ndarray) -> np.ndarray | None:
        """Return which of the rows ``near`` (w, d) any of the places X is conditioned on."""
        if self.shares:
            return None
        return np.unique(self._nearest(state, X, near, self.predict_neighbours))

    def _nearest(self, state: Any, X: Array, near: Array, count: int) -> np.ndarray:
        """Return the ``count`` nearest of rows to each place (n, k), nearest first."""
        points, at = (in_units(rows, state.lengths) for rows in (near, X))
        sees = state.barriers.between(X, near).sees if state.barriers else None
        return nearest(points, at, count, kinds_of(near, state.lengths), sees)

    def one_by_one(self, theta: Theta, state: Any) -> bool:
        """Return whether places are conditioned one after another, on rows and places they see."""
        return super().one_by_one(theta, state) or state.barriers is not None

    def _before(self, state: Any, near: Array, X: Array, numbers: np.ndarray) -> np.ndarray:
        """Return the nearest of rows, and of places X before, to places numbered after the rows."""
        points = np.concatenate([in_units(own, state.lengths) for own in (near, X)])
        rank, sees = np.arange(len(points), dtype=np.uint64), None
        if state.barriers:
            both = np.concatenate([to_host(near), to_host(X)])
            sees = state.barriers.between(both[numbers], both).sees
        return nearest_earlier(points, rank, numbers, self.predict_neighbours, sees=sees)

    def predict(
        self, theta: Theta, state: Any, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior of each place given the rows nearest to it.

        A covariance is that given the rows nearest to any of the places; where hyper-parameters
        vary or there are barriers, of places given rows and places before them.
        """
        if self._together(theta):
            return super().predict(theta, _of_lma(state), X, near, want)
        if want == "covariance" and self.one_by_one(theta, state):
            found = self._one_after_another(theta, state, X, near)
            first = self._nearest(state, X, near.X, 1) if state.barriers else None
            return found._replace(hidden=None if first is None else first[:, 0] < 0)
        if want == "covariance":
            xp, host = namespace(X), to_host(X)
            own = near.at(xp.asarray(self.picks(state, host, to_host(near.X))))
            return super().predict(theta, _of_lma(state), X, self.factored(theta, state, own), want)
        nearest = self._nearest(state, X, near.X, self.predict_neighbours)
        mean, variance, E, A = self._conditional(theta, state, Block(X, X[:, :0]), near, nearest)
        mean = mean + E @ state.weights
        far = self._far(theta, X, near.X, variance, A)
        found = Moments(mean, far=far, hidden=(nearest < 0).all(axis=1) if state.barriers else None)
        if want == "mean":
            return found
        shared = linalg.whiten_rows(state.inner_factor, E) if E.shape[1] else E
        return found._replace(variance=variance + linalg.row_squares(shared))

    def _conditional(
        self, theta: Theta, state: Any, own: Block, near: Rows, nearest: np.ndarray
    ) -> tuple[Array, Array, Array, Array]:
        """Return mean and variance of own rows given others and u = 0, and E, A of them."""
        c = _after(theta, own, near, nearest)
        A = self.features(theta, state, own.X)
        if theta.varying is None:
            features = namespace(A).concatenate([near.features, A]) if A.shape[1] else None
            found = weights(theta, c, features)
            E = A if features is None else combined(found, c, features)
        else:
            c = self._beside(theta, c)
            found = weights(theta, c)
            E = _of_supports(found, state.factor)
        scale = 1.0 / found[:, -1:]
        return -scale * combined(found, c, c.y), scale[:, 0] ** 2, scale * E, A

    def _beside(self, theta: Theta, c: Conditionals) -> Conditionals:
        """Return rows conditioned on f(S) first of all, if there are support inputs."""
        if theta.inputs is None:
            return c
        xp, m = namespace(c.X), len(theta.inputs)
        S = xp.asarray(theta.inputs)
        return c._replace(
            X=xp.concatenate([S.astype(c.X.dtype), c.X]),
            y=xp.concatenate([xp.zeros((m, c.y.shape[1])), wide(c.y)]),
            noise=xp.concatenate([self._latent(theta, S), _noise(c.noise, c.X)]),
            own=c.own + m,
            near=xp.concatenate(
                [xp.tile(xp.arange(m), (len(c.own), 1)), _moved(c.near, m)], axis=1
            ),
        )

    def of_sum(self, theta: Theta, state: Any, X: Array, v: Array, near: Rows) -> Moments:
        """Return the posterior of the sum of f over places by v (n,), see ``one_by_one``.

        Places are in a random order, and each is conditioned on the nearest of rows and places
        before it.  With B, e and E as in ``_one_after_another`` the sum v' f has the mean -t' e and
        the variance t' t, where B' t = v, which is solved from the last places to the first;
        support inputs add t' E u.
        """
        xp, n, w, m = namespace(X), len(X), len(near.X), len(state.weights)
        order = np.argsort(ranks(np.arange(n), self.seed))
        X, left = X[xp.asarray(order)], v[xp.asarray(order)]
        places = _after(theta, Block(X, X[:, :0]), near, np.zeros((n, 0), np.int64))
        places, first = self._beside(theta, places), m + w
        mean, variance, E = xp.zeros((1, near.y.shape[1])), xp.zeros(1), xp.zeros((1, m))
        for start in reversed(range(0, n, SUMMED)):
            own = slice(start, start + SUMMED)
            numbers = w + np.arange(n)[own]
            before = self._before(state, near.X, X, numbers)
            rows = xp.concatenate([places.near[own], _moved(xp.asarray(before), m)], axis=1)
            c = places._replace(own=places.own[own], near=rows)
            found = weights(theta, c)
            t = linalg.solve_lower_t(among(found, c, first + start), left[own])
            rows, columns = xp.nonzero((c.rows >= first) & (c.rows < first + start))
            taken = found[rows, columns] * t[rows]
            left -= xp.bincount(c.rows[rows, columns] - first, weights=taken, minlength=n)
            mean -= t @ combined(found, c, c.y)
            variance += t @ t
            E += t @ _of_supports(found, state.factor)
        shared = linalg.whiten_rows(state.inner_factor, E) if m else E
        variance += linalg.row_squares(shared)
        return Moments(mean + E @ state.weights, variance=variance)

    def _one_after_another(self, theta: Theta, state: Any, X: Array, near: Rows) -> Moments:
        """Return the joint posterior of places, each given rows and places before it.

        With the weights B of places, lower triangular, and those of rows, whose sum is e, and E of
        support inputs, B f + e - E u is white noise.
        """
        xp, n, w = namespace(X), len(X), len(near.X)
        before = self._before(state, near.X, X, np.arange(w, w + n))
        c = _after(theta, Block(X, X[:, :0]), near, before)
        c = self._beside(theta, c)
        found = weights(theta, c)
        spread = linalg.solve_lower(among(found, c, len(state.weights) + w), xp.eye(n))
        mean, covariance = -spread @ combined(found, c, c.y), spread @ spread.T
        if theta.inputs is None:
            return Moments(mean, covariance=covariance)
        E = spread @ _of_supports(found, state.factor)
        shared = linalg.whiten_rows(state.inner_factor, E)
        return Moments(mean + E @ state.weights, covariance=covariance + shared @ shared.T)

    def _far(self, theta: Theta, X: Array, near: Array, variance: Array, A: Array) -> Array:
        """Return a mask (n,) of places correlated below FAR with all rows and support inputs."""
        prior = wide(prior_variances(theta, X))
        far = to_host((prior - variance < HINT * prior) & (linalg.row_squares(A) < FAR * prior))
        doubtful = np.flatnonzero(far)
        if len(doubtful):
            xp = namespace(X)
            places = X[xp.asarray(doubtful)]
            K = theta.kernel(places, near.astype(X.dtype, copy=False))
            far[doubtful] = to_host(xp.abs(K).max(axis=1) < FAR * theta.kernel.diag(places))
        return far

    def predict_from(
        self, state: Any, near: Any, across: Across, prior: Array, want: Want
    ) -> Moments:
        """Return the posterior of places, or of sums over them, so tied to factored rows."""
        return super().predict_from(_of_lma(state), near, across, prior, want)

    def loo(self, theta: Theta, state: Any, block: Block, near: Any) -> Moments:
        """Return predictions of training rows from their neighbours without each.

        Its own factor N(E u, c) is taken out of the posterior of u, as in ``LMA``.
        """
        if self._together(theta):
            return super().loo(theta, _of_lma(state), block, near)
        X = block.X
        known = np.broadcast_to(to_host(variances(theta.noise_variance, near.noise)), len(near.X))
        places = places_of(theta, block, Known(near.X, near.y, known))
        nearest = self._nearest(state, X, near.X, self.predict_neighbours + 1)
        itself = nearest == places[:, None]
        itself[~itself.any(axis=1), -1] = True  # of copies the last, and of new rows
        inside = places >= 0
        if nearest.shape[1] > 1:
            nearest = np.where(itself, -1, nearest)
            order = np.argsort(nearest < 0, axis=1, kind="stable")
            nearest = np.take_along_axis(nearest, order, axis=1)[:, :-1]
        else:
            nearest = np.where(itself & inside[:, None], -1, nearest)
        xp = namespace(X)
        own = Block(X, block.y, _noise(block.noise, X))
        mean, variance, E, _ = self._conditional(theta, state, own, near, nearest)
        mean = mean + E @ state.weights
        shared = linalg.whiten_rows(state.inner_factor, E) if E.shape[1] else E
        spread = linalg.row_squares(shared)
        found = without(block.y, mean, xp.where(xp.asarray(inside), spread, 0.0), variance)
        variance = xp.where(xp.asarray(inside), found.variance, variance + spread)
        found = Moments(found.mean, variance, noisy=True)
        return less_trend(block.y, found, state.trend, self.trend)

    def exact_limit(self, theta: Theta, X: Array) -> tuple[Vecchia, Theta]:
        """Return the method with all earlier rows as neighbours."""
        most = max(1, len(X))
        return replace(self, n_neighbours=most, predict_neighbours=most), theta

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint of the conditionals of a block, or of a tile of predictions."""
        b, m, p, d = shape.block_rows, shape.inputs, shape.targets, shape.features
        k = min(self.n_neighbours, shape.rows) + 1
        w = shape.window_rows + min(FIRST, shape.rows)
        stats = 8 * (m * m + m * p + p * p + 2)
        once = k**3 / 3 + (shape.kernel_tiles + 2) * k * k * 8 + 2.0 * m * (k + m)
        rows = 8 * w * (2 * d + p + 2) + 8 * b * k * 3
        near = shape.near_rows
        return Footprint(
            task=rows + 8 * w * m + 2 * stats + 8 * m * m,
            stats=stats,
            solve=(shape.kernel_tiles + 6) * 8 * m * m,
            state=8 * (m * m + m * p) + stats + 8 * shape.rows * (d + p),
            operations=float(shape.rows * 3 * once),
            predict=8 * near * (d + p + m) + 8 * (2 * m * m + m * p),
            shared=2 * 8 * m * m + 8 * min(FIRST, shape.rows) * (d + p + 1),
        )


def _after(theta: Theta, own: Block, near: Rows, before: np.ndarray) -> Conditionals:
    """Return own rows, numbered after those near, conditioned on the rows ``before`` (n, k) each.

    Own rows without noise are places.
    """
    X, noise = own.X, own.noise
    xp, n, w = namespace(X), len(X), len(near.X)
    if noise is None:  # so little that rows may lie at places
        noise = xp.stack([xp.zeros(n), TINY * wide(prior_variances(theta, X))], axis=1)
    return Conditionals(
        xp.concatenate([near.X.astype(X.dtype, copy=False), X]),
        xp.concatenate([wide(near.y), xp.zeros((n, near.y.shape[1]))]),
        xp.concatenate([_noise(near.noise, near.X), noise]),
        xp.arange(w, w + n),
        xp.asarray(before),
    )


def _moved(near: Array, m: int) -> Array:
    """Return numbers of rows, or -1, where m others come before all rows."""
    return namespace(near).where(near >= 0, near + m, -1)


def _of_supports(w: Array, V: Array) -> Array:
    """Return E (g, m) of windows whose first rows are f(S) = V u."""
    return -w[:, : len(V)] @ V


def _noise(noise: Array | None, X: Array) -> Array:
    """Return ``Block.noise`` (n, 2) of rows X, also where all have the noise variance."""
    xp = namespace(X)
    return xp.stack([xp.ones(len(X)), xp.zeros(len(X))], axis=1) if noise is None else noise


def _of_lma(state: RowState) -> State:
    return State(*state[:4])


def in_units(X: Array, lengths: np.ndarray) -> np.ndarray:
    """Return rows (n, d) on the host in units of distance, without columns that do not matter."""
    lengths = to_host(lengths)
    if not np.isfinite(lengths).any():
        return np.zeros((len(X), 1))
    if lengths.ndim == 2:
        lengths = np.where(np.isneginf(lengths), 0.0, lengths)
    return lengthscales.in_units(np.asarray(to_host(X), np.float64), lengths)


def kinds_of(X: Array, lengths: np.ndarray) -> np.ndarray | None:
    """Return the kinds (n,) of rows that have neighbours of each; None if they are all alike."""
    columns = np.flatnonzero(np.isneginf(np.atleast_2d(to_host(lengths))).all(axis=0))
    if not len(columns):
        return None
    codes = np.asarray(to_host(X), np.float64)[:, columns].astype(np.int64)
    return np.asarray(codes @ ((FEW + 1) ** np.arange(len(columns))))


def tiers_of(counts: np.ndarray) -> tuple[int, ...]:
    """Return the tiers of kinds of which there are so many rows; () if they are all alike.

    Kinds that are at most half as many as the largest are sparse, as long as all sparse rows are
    few beside those that all others find their neighbours among.

    Examples
    --------
    >>> tiers_of(np.array([5_000, 500, 4_000])), tiers_of(np.array([5_000, 3_000]))
    ((1, 0, 1), ())
    """
    if len(counts) > FEW:
        return ()
    order = np.argsort(counts, kind="stable")
    small = (2 * counts[order] <= counts.max()) & (np.cumsum(counts[order]) <= SPARSE)
    number, tiers = int(small.sum()), np.full(len(counts), small.sum())
    tiers[order[:number]] = np.arange(number)
    return tuple(tiers.tolist()) if number else ()


def compact(rows: Block, own: np.ndarray, near: np.ndarray) -> Conditionals:
    """Return conditionals, by their numbers in ``rows``, of the rows that are used alone."""
    used = np.zeros(len(rows.X) + 1, bool)  # the last one stands for -1
    used[own] = used[near] = True
    used[-1] = False
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    number[-1] = -1
    xp = namespace(rows.X)
    kept = rows.at(xp.asarray(np.flatnonzero(used)))
    return Conditionals(*kept[:3], xp.asarray(number[own]), xp.asarray(number[near]))


def _earliest(model: Vecchia, limit: int | None, piece: Piece, *shared: Any) -> First:
    """Return the earliest rows of a piece, of those whose rank is below a limit."""
    assert piece.places is not None
    own = First(piece.places, *piece.own[:3])
    if limit is not None:
        own = _rows_at(own, model.ranks(own.places, own.X) < np.uint64(limit))
    return _least(model, own)


def _earlier_of(model: Vecchia, a: First, b: First) -> First:
    """Return the earliest rows of two sets of them."""
    both = Block.join([a.block, b.block])
    return _least(model, First(np.concatenate([a.places, b.places]), *both[:3]))


def _least(model: Vecchia, rows: First) -> First:
    if len(rows.places) <= FIRST:
        return rows
    least = np.argpartition(model.ranks(rows.places, rows.X), FIRST)[:FIRST]
    return _rows_at(rows, np.isin(np.arange(len(rows.places)), least))


def _rows_at(rows: First, mask: np.ndarray) -> First:
    """Return the rows of a mask (f,), in their order."""
    kept = np.flatnonzero(mask)
    at = rows.block.at(namespace(rows.X).asarray(kept))
    return First(rows.places[kept], *at[:3])


def _summarise(model: Vecchia, piece: Piece, prepared: Prepared, shared: Shared) -> Stats:
    return model.sums_of(prepared, model.given(piece, shared))


def _pull(
    model: Vecchia, piece: Piece, prepared: Prepared, shared: Shared, cotangent: Cotangent
) -> ThetaBar:
    """Return the gradient through the sums over the rows of a piece."""
    theta, c = prepared.theta, model.given(piece, shared)
    if theta.inputs is None:
        targets = round(-2.0 * cotangent.logdet)
        slope = scores(theta, c, -2.0 * cotangent.moments, targets).gradient
        return ThetaBar(slope[:-1], float(slope[-1]), None)
    rows, windows = Block(c.X, c.y, c.noise), []
    if not len(c.own):  # every row of the block has missing values
        zero = np.zeros(len(theta.kernel.log_parameters))
        return ThetaBar(zero, 0.0, np.zeros(theta.inputs.shape))
    for own, near in zip(c.own, c.near, strict=True):
        windows.append((rows.at(own[None]), (rows.at(near[near >= 0]),)))
    return LMA.local_vjp_many(model, prepared, windows, cotangent)
