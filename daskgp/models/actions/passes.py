"""Passes of a computation-aware GP: rows are paired with the points that actions are made of.

A task reads some rows and then, one panel after another, all points: a tile of the kernel is
contracted with the actions as it is computed.  Points are training rows, all of them or some, so
a value costs one kernel entry per pair of a row and a point, and a gradient as many again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from daskgp.arrays.backend import namespace, to_host
from daskgp.kernels.weights import Weights
from daskgp.models.actions import sums
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
)
from daskgp.models.method import Method, Pass, Rounds
from daskgp.models.values import Block, Objective, Piece, Theta, add, variances
from daskgp.typing import Array

PANEL_ROWS = 4_096
"""Points that a task holds at a time if it does not hold them all."""


@dataclass(frozen=True, eq=False)
class Paired:
    """Rows of training data and the points that actions are made of.

    Parameters
    ----------
    rows : Rounds
    points : Rounds
        ``rows`` itself if all rows are points.
    count : int
        Number of usable rows.
    n_targets : int
    actions : int
        Maximum number t of actions.
    batch : tuple, optional
        Number of rows drawn for the sums over rows, and a seed; by default all rows count.
    """

    rows: Rounds
    points: Rounds
    count: int
    n_targets: int
    actions: int
    batch: tuple[int, int] | None = None

    def drawn(self, batch: tuple[int, int] | None) -> Paired:
        """Return the same points, with sums over a mini-batch of rows."""
        return replace(self, batch=batch)

    def hold(self, weights: Weights) -> Any:
        """Return weights for reuse over many evaluations, sent to workers once."""
        return self.rows.hold(weights)

    def times(self, theta: Theta, V: np.ndarray) -> np.ndarray:
        """Return K(X, Z) V (n, m) for V (a, m) over the points; incomplete rows have 0."""
        over = _rowwise("times", _times)
        shared = self.points.points(PANEL_ROWS), theta, Weights.dense(V)
        return self.rows.values(over, V.shape[1], *shared)

    def kernel_at(self, theta: Theta, places: np.ndarray) -> np.ndarray:
        """Return the kernel (n, m) of rows and m places in scaled units; 0 for incomplete rows."""
        return self.rows.values(_rowwise("kernel", _kernel_at), len(places), theta, places)

    def noise(self, theta: Theta) -> np.ndarray:
        """Return the noise variances (n, 1) of the rows; s for incomplete ones."""
        noise = self.rows.values(_rowwise("noise", _noise), 1, theta)
        return np.where(noise > 0, noise, theta.noise_variance)

    def covariance(self, theta: Theta) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from V to (K + D) V (n, m), if all rows are points."""
        noise = self.noise(theta)
        return lambda V: self.times(theta, V) + noise * V

    def targets(self) -> np.ndarray:
        """Return the scaled targets (n, p); incomplete rows have 0."""
        return self.rows.values(_rowwise("targets", _targets), self.n_targets)

    @cached_property
    def complete(self) -> np.ndarray:
        """Mask (a,) of points without a missing value."""
        return self.points.values(_rowwise("complete", _ones), 1)[:, 0] > 0


class _Begun(NamedTuple):
    """Evaluation whose points are factored."""

    factored: Factored
    shared: tuple[Any, ...]
    kept: Any


class Projecting(Method, Protocol):
    """Base of a method that sees its targets through actions: three passes per evaluation.

    Its ``theta`` is an ``ActionTheta``; of rows that are not ``Paired`` all are points.
    """

    @property
    def needs_rows(self) -> bool:
        """True if the objective needs the actions' functions at all rows."""

    @abstractmethod
    def at_points(self, F: Array, block: Block, weights: Weights) -> PointSums:
        """Return sums over rows that are points and have functions F (t, n)."""

    @abstractmethod
    def factor(self, noise_variance: float, points: PointSums) -> Factored:
        """Return the factored sums over points, without uninformative actions."""

    @abstractmethod
    def at_rows(
        self, theta: Theta, block: Block, F: Array, factored: Factored, weight: float = 1.0
    ) -> RowSums:
        """Return sums over rows that each count ``weight`` times."""

    @abstractmethod
    def combine(self, a: Any, b: Any) -> Any:
        """Return the sums over both sets of rows, or of points."""

    @abstractmethod
    def objective(self, factored: Factored, rows: RowSums | None) -> Loss:
        """Return the objective and its adjoint; ``rows`` are taken if it needs them."""

    @abstractmethod
    def pull(
        self,
        theta: Theta,
        block: Block,
        F: Array,
        panels: Iterable[Panel],
        cotangent: Cotangent,
        own: Weights | None = None,
        weight: float | None = 1.0,
    ) -> tuple[np.ndarray, float, list[Array], Array | None]:
        """Return the gradient through a block: by kernel, noise, panels and its own weights."""

    @abstractmethod
    def posterior(self, factored: Factored, points: int) -> Any:
        """Return what prediction needs, from the sums over that many points."""

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

    def solve(self, theta: Theta, rows: Rounds | Paired) -> tuple[Any, float]:
        """Return what prediction needs, from the points alone, and the objective."""
        theta, pairs = _taken(theta, rows)
        begun = self._begin(theta, pairs)
        state = self.posterior(begun.factored, int(pairs.complete.sum()))
        return state, self._loss(begun, pairs)[0].value

    # -- passes ------------------------------------------------------------------------------

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
        return Pass(
            f"{self.name}-{what}",
            partial(_first, function, self),
            self.combine,
            tile=TILE_ROWS,
            located=True,
            keeping=partial(function, self),
            kept_bytes=partial(_kept_bytes, actions),
            generous=generous,
        )

    def _pulling(self, own: bool, counts: bool) -> Pass:
        function = partial(_pull, self, own, counts)
        return Pass(f"{self.name}-gradient", function, add, tile=TILE_ROWS, located=True)


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


def _rowwise(what: str, function: Callable[..., Array]) -> Pass:
    return Pass(f"cagp-{what}", function, add, tile=TILE_ROWS, located=True)


# -- what tasks do -----------------------------------------------------------------------------


def _panels(points: Any, weights: Weights) -> Iterator[Panel]:
    """Yield the points with their weights, panel by panel."""
    for piece in points.pieces(weights):
        if len(piece.places):
            yield Panel(piece.own.X, _weights(weights, piece.places, piece.own.y), piece.places)


def _weights(weights: Weights, places: np.ndarray, values: Array) -> Weights:
    owner = None if weights.owner is None else weights.owner[places]
    return Weights(values, owner, weights.count)


def _own(piece: Piece, weights: Weights) -> Weights:
    """Return the weights on the rows of a piece, which are points."""
    assert piece.places is not None
    values = namespace(piece.own.X).asarray(weights.values[piece.places])
    return _weights(weights, piece.places, values)


def _functions(piece: Piece, points: Any, theta: Theta, weights: Weights) -> Array:
    """Return the actions' functions (t, n) at the rows of a piece, which may have been kept."""
    if piece.kept is not None:
        return piece.kept
    return sums.functions(theta.kernel, _panels(points, weights), piece.own.X)


def _first(function: Callable[..., tuple[Any, Array]], model: Projecting, *arguments: Any) -> Any:
    return function(model, *arguments)[0]


def _at_points(
    model: Projecting, piece: Piece, points: Any, theta: Theta, weights: Weights
) -> tuple[PointSums, Array]:
    F = _functions(piece, points, theta, weights)
    return model.at_points(F, piece.own, _own(piece, weights)), F


def _at_rows(
    model: Projecting,
    piece: Piece,
    points: Any,
    theta: Theta,
    weights: Weights,
    factored: Factored,
) -> tuple[RowSums, Array]:
    F = _functions(piece, points, theta, weights)
    assert piece.weight is not None
    return model.at_rows(theta, piece.own, F, factored, piece.weight), F


def _pull(
    model: Projecting,
    own: bool,
    counts: bool,
    piece: Piece,
    points: Any,
    theta: Theta,
    weights: Weights,
    cotangent: Cotangent,
) -> ActionBar:
    """Return the gradient through a piece, whose rows are points, count among all, or both."""
    F = _functions(piece, points, theta, weights)
    places: list[np.ndarray] = []
    kernel, noise, by_panels, by_own = model.pull(
        theta,
        piece.own,
        F,
        _noting(_panels(points, weights), places),
        cotangent,
        _own(piece, weights) if own else None,
        piece.weight if counts else None,
    )
    if weights.owner is None:
        return ActionBar(kernel, noise, None)
    learned = np.zeros(len(weights))
    for rows, by_weights in zip(places, by_panels, strict=True):
        learned[rows] += to_host(by_weights)
    if by_own is not None:
        learned[piece.places] += to_host(by_own)
    return ActionBar(kernel, noise, learned)


def _noting(panels: Iterator[Panel], places: list[np.ndarray]) -> Iterator[Panel]:
    """Yield panels, and note the places of each."""
    for panel in panels:
        assert panel.places is not None
        places.append(panel.places)
        yield panel


def _times(piece: Piece, points: Any, theta: Theta, weights: Weights) -> Array:
    return sums.functions(theta.kernel, _panels(points, weights), piece.own.X).T


def _kernel_at(piece: Piece, theta: Theta, places: Array) -> Array:
    return theta.kernel(piece.own.X, places)


def _noise(piece: Piece, theta: Theta) -> Array:
    xp = namespace(piece.own.X)
    noise = xp.zeros(len(piece.own.X)) + variances(theta.noise_variance, piece.own.noise)
    return noise[:, None]


def _targets(piece: Piece) -> Array:
    return piece.own.y


def _ones(piece: Piece) -> np.ndarray:
    return np.ones((len(piece.own.X), 1))
