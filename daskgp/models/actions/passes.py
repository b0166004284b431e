"""Passes of a computation-aware GP: rows are paired with the points that actions are made of.

A task reads some rows and then, one panel after another, all points: a tile of the kernel is
contracted with the actions as it is computed.  Points are training rows, all of them or some, so
a value costs one kernel entry per pair of a row and a point, and a gradient as many again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, to_host
from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp
from daskgp.models.actions.cagp import CaGP, Panel
from daskgp.models.method import Pass, Rounds
from daskgp.models.values import Piece, Theta, add
from daskgp.typing import Array

PANEL_ROWS = 4_096
"""Points that a task holds at a time if it does not hold them all."""


class Evaluated(NamedTuple):
    """Objective, and its gradient with respect to log kernel parameters, log noise and weights."""

    value: float
    kernel: np.ndarray
    noise: float
    weights: np.ndarray | None
    dropped: int


class Gradient(NamedTuple):
    """Gradient through some rows: log kernel parameters (k,) and learned weights (a,) if any."""

    kernel: np.ndarray
    weights: np.ndarray | None


class _Begun(NamedTuple):
    """Evaluation whose points are factored."""

    factored: cagp.Factored
    shared: tuple[Any, ...]
    kept: Any


@dataclass(frozen=True, eq=False)
class Passes:
    """Rows of training data and the points that actions are made of.

    Parameters
    ----------
    model : CaGP
    rows : Rounds
    points : Rounds
        ``rows`` itself if all rows are points.
    count : int
        Number of usable rows.
    n_targets : int
    actions : int
        Maximum number t of actions.
    """

    model: CaGP
    rows: Rounds
    points: Rounds
    count: int
    n_targets: int
    actions: int

    def evaluate(
        self, theta: Theta, weights: Any, batch: tuple[int, int] | None = None
    ) -> Evaluated:
        """Return the objective with its gradient: a pass over points and two over rows.

        Parameters
        ----------
        theta : Theta
        weights : Weights
            S over the points, or what ``hold`` returned for it.
        batch : tuple, optional
            Number of rows drawn for the sums over rows, and a seed.
        """
        begun = self._begin(theta, weights)
        objective, over, kept = self._objective(begun, batch)
        shared = (*begun.shared, objective.cotangent)
        both = over is self.points and self.model.needs_rows
        gradient = self.points.sum(self._pulling(True, both), *shared, kept=begun.kept)
        if self.model.needs_rows and not both:
            gradient = add(gradient, over.sum(self._pulling(False, True), *shared, kept=kept))
        kernel, learned = gradient
        return Evaluated(objective.value, kernel, objective.noise, learned, objective.dropped)

    def solve(
        self, theta: Theta, weights: Any, points: int, batch: tuple[int, int] | None = None
    ) -> tuple[cagp.State, cagp.Objective]:
        """Return what prediction needs, from the points alone, and the objective."""
        begun = self._begin(theta, weights)
        return self.model.posterior(begun.factored, points), self._objective(begun, batch)[0]

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

    def covariance(self, theta: Theta) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from V to (K + s I) V (n, m), if all rows are points."""
        return lambda V: self.times(theta, V) + theta.noise_variance * V

    def targets(self) -> np.ndarray:
        """Return the scaled targets (n, p); incomplete rows have 0."""
        return self.rows.values(_rowwise("targets", _targets), self.n_targets)

    def complete(self) -> np.ndarray:
        """Return the mask (a,) of points without a missing value."""
        return self.points.values(_rowwise("complete", _ones), 1)[:, 0] > 0

    # -- passes ------------------------------------------------------------------------------

    def _begin(self, theta: Theta, weights: Any) -> _Begun:
        """Factor the sums over points, and keep the functions at the points if they fit."""
        shared = self.points.points(PANEL_ROWS), theta, weights
        total, kept = self.points.forward(
            self._pass("points", _at_points, self.points is self.rows), *shared
        )
        with self.points.solving(len(total.joint)):
            factored = self.model.factor(theta.noise_variance, total)
        return _Begun(factored, shared, kept)

    def _objective(
        self, begun: _Begun, batch: tuple[int, int] | None
    ) -> tuple[cagp.Objective, Rounds, Any]:
        """Return the objective, the rows that count and what was kept for them."""
        sums, over, kept, factored = None, self.rows, begun.kept, begun.factored
        if self.model.needs_rows:
            if batch is not None:
                over = over.batch(*batch)
            at_rows = self._pass("rows", _at_rows, True)
            shared = (*begun.shared, factored)
            if over is self.points:
                sums = over.sum(at_rows, *shared, kept=kept)
            else:
                sums, kept = over.forward(at_rows, *shared)
            # a mini-batch stands for all rows, whose number is known
            sums = sums._replace(rows=float(self.count))
        with self.points.solving(len(factored.factor)):
            return self.model.objective(factored, sums), over, kept

    def _pass(self, what: str, function: Callable[..., Any], generous: bool) -> Pass:
        """Return a pass that sums, and keeps the functions at the rows."""
        return Pass(
            f"{self.model.name}-{what}",
            partial(_first, function, self.model),
            self.model.combine,
            tile=cagp.TILE_ROWS,
            located=True,
            keeping=partial(function, self.model),
            kept_bytes=partial(_kept_bytes, self.actions),
            generous=generous,
        )

    def _pulling(self, own: bool, counts: bool) -> Pass:
        return Pass(
            f"{self.model.name}-gradient",
            partial(_pull, self.model, own, counts),
            add,
            tile=cagp.TILE_ROWS,
            located=True,
        )


def _kept_bytes(actions: int, rows: int, targets: int, itemsize: int) -> int:
    return itemsize * actions * rows


def _rowwise(what: str, function: Callable[..., Array]) -> Pass:
    return Pass(f"cagp-{what}", function, add, tile=cagp.TILE_ROWS, located=True)


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
    return cagp.functions(theta.kernel, _panels(points, weights), piece.own.X)


def _first(function: Callable[..., tuple[Any, Array]], model: CaGP, *arguments: Any) -> Any:
    return function(model, *arguments)[0]


def _at_points(
    model: CaGP, piece: Piece, points: Any, theta: Theta, weights: Weights
) -> tuple[cagp.PointSums, Array]:
    F = _functions(piece, points, theta, weights)
    return model.at_points(F, piece.own.y, _own(piece, weights)), F


def _at_rows(
    model: CaGP,
    piece: Piece,
    points: Any,
    theta: Theta,
    weights: Weights,
    factored: cagp.Factored,
) -> tuple[cagp.RowSums, Array]:
    F = _functions(piece, points, theta, weights)
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
    cotangent: cagp.Cotangent,
) -> Gradient:
    """Return the gradient through a piece, whose rows are points, count among all, or both."""
    F = _functions(piece, points, theta, weights)
    places: list[np.ndarray] = []
    kernel, by_panels, by_own = model.pull(
        theta,
        piece.own,
        F,
        _noting(_panels(points, weights), places),
        cotangent,
        _own(piece, weights) if own else None,
        piece.weight if counts else None,
    )
    if weights.owner is None:
        return Gradient(kernel, None)
    learned = np.zeros(len(weights))
    for rows, by_weights in zip(places, by_panels, strict=True):
        learned[rows] += to_host(by_weights)
    if by_own is not None:
        learned[piece.places] += to_host(by_own)
    return Gradient(kernel, learned)


def _noting(panels: Iterator[Panel], places: list[np.ndarray]) -> Iterator[Panel]:
    """Yield panels, and note the places of each."""
    for panel in panels:
        assert panel.places is not None
        places.append(panel.places)
        yield panel


def _times(piece: Piece, points: Any, theta: Theta, weights: Weights) -> Array:
    return cagp.functions(theta.kernel, _panels(points, weights), piece.own.X).T


def _kernel_at(piece: Piece, theta: Theta, places: Array) -> Array:
    return theta.kernel(piece.own.X, places)


def _targets(piece: Piece) -> Array:
    return piece.own.y


def _ones(piece: Piece) -> np.ndarray:
    return np.ones((len(piece.own.X), 1))
