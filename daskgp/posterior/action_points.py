"""Points of actions with their weights, which predictions read back."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from daskgp import data
from daskgp.arrays.backend import to_device
from daskgp.data import Rows, visibility
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.partition import Span, parts
from daskgp.data.rows import GIVEN
from daskgp.data.stores import groups
from daskgp.errors import StoreError
from daskgp.kernels.weights import Weights
from daskgp.models.actions.passes import PANEL_ROWS
from daskgp.models.actions.sums import Panel
from daskgp.models.scaling import Scaling, complete_rows
from daskgp.posterior.training_rows import Fitted, Streamed
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor

CHUNK_BYTES = 32 << 20
"""Maximum bytes of a chunk of weights."""


@dataclass(frozen=True, eq=False)
class ActionPoints(Streamed):
    """Points X (a, d) in the user's units, and the weights of t actions on them as ``rows.y``.

    Parameters
    ----------
    rows : Rows
        X, and weights (a, 1) of the action that a point belongs to, or (a, t) of all actions; NaN
        for rows with missing values, which belong to none; and any noise variances of the points.
    edges : ndarray (t + 1,)
        First point of each action, and the number of points; empty where every point has a weight
        in every action.
    """

    rows: Rows
    edges: np.ndarray

    @property
    def points(self) -> Rows:
        """Points and weights without noise variances, which predictions do not need."""
        return self.rows.with_arrays({"X": self.rows.X, "y": self.rows.y})

    @property
    def count(self) -> int:
        """Number of actions t."""
        return self.rows.n_targets if not len(self.edges) else len(self.edges) - 1

    @cached_property
    def owner(self) -> np.ndarray | None:
        """Action of each point (a,); None if points belong to all actions."""
        if not len(self.edges):
            return None
        return np.repeat(np.arange(self.count), np.diff(self.edges))

    @cached_property
    def token(self) -> str:
        """Checksum of the points and their weights."""
        sums = []
        for start, stop in parts(0, len(self.rows), PANEL_ROWS):
            X, weights = self.rows.read(start, stop)
            sums.append([_crc(X), _crc(weights)])
        return groups.checksum({"edges": self.edges, "panels": np.array(sums)}, {})

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps beside the points."""
        return {"edges": self.edges}

    def describe(self, state: Any) -> dict[str, str]:
        """Return the number of points, as text."""
        return {"points": f"{int(state.points):,}"}

    def near(self, fit: Fitted) -> Consulted:
        """Return the points, panel by panel."""
        return Consulted(self, fit.scaling, int(fit.state.points), fit.device)

    def write(self, url: str) -> None:
        """Write points and weights to a new dataset store."""
        most = max(1, CHUNK_BYTES // (8 * self.rows.n_targets))
        prepared.copy(url, self.rows, min(PANEL_ROWS, most), most_rows=most)

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the points (a, d) in the user's units and their weights, as ``rows`` has them."""
        X, weights = self.points.raw(0, len(self.rows))
        return np.asarray(X), np.asarray(weights)

    def weights(self) -> Weights:
        """Return all weights, 0 for rows with missing values."""
        values = np.nan_to_num(self.whole()[1])
        return Weights(values if self.owner is None else values[:, 0], self.owner, self.count)


def _crc(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values, np.float64).tobytes())


def of(rows: Rows, weights: np.ndarray, edges: np.ndarray | None) -> ActionPoints:
    """Return the points at some rows, with the weights (a, 1) or (a, t) of actions."""
    names = tuple(f"action{j}" for j in range(weights.shape[1]))
    with_weights = rows.with_other_y(weights, target_names=names, identity=None, passing=False)
    return ActionPoints(with_weights, np.empty(0, np.int64) if edges is None else edges)


def keep(
    rows: Rows, weights: np.ndarray, edges: np.ndarray | None, executor: Executor, url: str
) -> ActionPoints:
    """Keep points with their weights for predictions: at a URL, or in memory if the rows are."""
    if isinstance(rows.X, np.ndarray):  # the caller may change them after the fit
        copies = {name: a.copy() for name, a in rows.arrays.items()}
        return of(rows.with_arrays(copies), weights, edges)
    points = of(rows, weights, edges)
    data.remove(url)
    points.write(url)
    stored = replace(points, rows=open_points(url))
    visibility.check(
        executor, stored.rows.X, "the points of actions", f"give store= {visibility.HERE}"
    )
    return stored


def open_points(url: str) -> Rows:
    """Return the points of a store, with any noise variances of theirs."""
    X, y = data.dataset_arrays(url)
    rows = data.rows_of(X, y, None, False, beside=dict.fromkeys(GIVEN, False))
    return neighbours.held(rows.with_arrays(rows.arrays | data.beside_in_store(y, GIVEN)))


@dataclass(frozen=True, eq=False)
class Consulted:
    """Panels of points, which a prediction reads again and again."""

    supports: ActionPoints
    scaling: Scaling
    points: int
    device: str

    def __iter__(self) -> Iterator[Panel]:
        count, owners = 0, deque[np.ndarray | None]()

        def read(span: Span) -> tuple[np.ndarray, np.ndarray]:
            X, weights = self.supports.points.read(*span)
            keep = complete_rows(X, weights)
            owner = self.supports.owner
            values = np.asarray(weights[keep], np.float64)
            if owner is not None:
                owner, values = owner[span.start : span.stop][keep], values[:, 0]
            owners.append(owner)
            return self.scaling.inputs(np.asarray(X[keep], np.float64)), values

        spans = parts(0, len(self.supports.rows), PANEL_ROWS)
        for inputs, values in device_memory.ahead(read, spans, self.device):
            count += len(inputs)
            yield Panel(
                to_device(inputs, self.device),
                Weights(to_device(values, self.device), owners.popleft(), self.supports.count),
            )
        if count != self.points:
            raise StoreError("points that the model reads back are gone: fit again")
