"""Passes over rows that are paired with the points that actions are made of.

A task reads some rows and then, one panel after another, all points: a tile of the kernel is
contracted with the actions as it is computed.  Points are training rows, all of them or some, so
a value costs one kernel entry per pair of a row and a point, and a gradient as many again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.kernels.weights import Weights
from daskgp.models.actions import sums
from daskgp.models.actions.sums import TILE_ROWS, Panel
from daskgp.models.method import Pass, Rounds
from daskgp.models.values import Piece, Theta, add, variances
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


def tiled(name: str, function: Callable[..., Any], **more: Any) -> Pass:
    """Return a pass over tiles of rows that knows their numbers."""
    return Pass(name, function, add, tile=TILE_ROWS, located=True, **more)


def _rowwise(what: str, function: Callable[..., Array]) -> Pass:
    return tiled(f"cagp-{what}", function)


# -- what tasks do -----------------------------------------------------------------------------


def panels_of(points: Any, weights: Weights) -> Iterator[Panel]:
    """Yield the points with their weights, panel by panel."""
    for piece in points.pieces(weights):
        if len(piece.places):
            yield Panel(piece.own.X, _weights(weights, piece.places, piece.own.y), piece.places)


def _weights(weights: Weights, places: np.ndarray, values: Array) -> Weights:
    owner = None if weights.owner is None else weights.owner[places]
    return Weights(values, owner, weights.count)


def own_weights(piece: Piece, weights: Weights) -> Weights:
    """Return the weights on the rows of a piece, which are points."""
    assert piece.places is not None
    values = namespace(piece.own.X).asarray(weights.values[piece.places])
    return _weights(weights, piece.places, values)


def functions_at(piece: Piece, points: Any, theta: Theta, weights: Weights) -> Array:
    """Return the actions' functions (t, n) at the rows of a piece, which may have been kept."""
    if piece.kept is not None:
        return piece.kept
    return sums.functions(theta.kernel, panels_of(points, weights), piece.own.X)


def _times(piece: Piece, points: Any, theta: Theta, weights: Weights) -> Array:
    return sums.functions(theta.kernel, panels_of(points, weights), piece.own.X).T


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
