"""Training rows near a place; places that are served by the same rows are predicted together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from daskgp.arrays import backend
from daskgp.data import Rows
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.blocks.around import Around, Key, Part, around_of
from daskgp.data.blocks.layout import Layout
from daskgp.errors import StoreError
from daskgp.models.method import Conditioned
from daskgp.models.values import Block, Moments, Want, move
from daskgp.predict.training_rows import CACHE_BYTES, Fitted, NewRows, TrainingRows, cached
from daskgp.runtime.process import this_worker

BLOCK = -2
"""First part of the cache keys of blocks; other keys name groups of places."""
BOUNDS = "bounds"
CHANGED = ("cuts", "centroids", BOUNDS, "ends", "near")
"""Names of the arrays that describe blocks of which some were added or taken out."""
NEAR_BLOCKS = 4
"""Blocks that a place consults, for a rough estimate of work."""


@dataclass(frozen=True, eq=False)
class Nearby(TrainingRows):
    """Blocks of training rows, of which each place consults those near it.

    Parameters
    ----------
    rows : Rows
        Training rows in the order of the layout.
    layout : Layout
        Blocks of the rows.
    around : Around
        Choice of the rows that predictions are conditioned on.
    """

    rows: Rows
    layout: Layout
    around: Around

    fewer: ClassVar[str] = "a smaller block_rows"
    together: ClassVar[bool] = True

    def groups(self, X: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
        """Yield groups and the numbers of their rows of X (n, d), which is in the user's units."""
        return self.around.groups(self.layout, X)

    def parts(self, key: Key, inputs: Callable[[int], np.ndarray] | None = None) -> list[Part]:
        """Return the training rows that serve a group.

        ``inputs`` returns those of a block; by default they are read.
        """
        return self.around.parts(key, inputs or (lambda block: self.read(block)[0]))

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Return X and y of a block, in the user's units."""
        return self.rows.read(*self.layout.span(block))

    @property
    def token(self) -> str:
        """Checksum of the blocks."""
        return self.layout.token

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps beside the rows and their blocks."""
        arrays, layout = self.around.arrays(), self.layout
        if layout.bounds is None:
            return arrays
        order = layout.order
        changed = layout.cuts, layout.centroids, layout.bounds
        ends = np.stack([order.low, order.high, order.step])
        named = zip(CHANGED, (*changed, ends, layout.near), strict=True)
        return arrays | {name: values for name, values in named if values is not None}

    def describe(self, state: Any) -> dict[str, str]:
        """Return the blocks, their order, and which of them a place consults, as text."""
        layout, order = self.layout, self.layout.order
        along = ", ".join(order.leading) if order.leading else f"seed {order.seed}"
        return {
            "blocks": f"{layout.n_blocks:,} of {layout.block_rows:,} rows",
            "order": f"{order.kind}: {along}",
            "conditioned on": self.around.describe(),
        }

    def write(
        self, url: str, start: int = 0, stop: int | None = None, before: Rows | None = None
    ) -> None:
        """Write the rows, or those from start to stop, with their blocks to a new dataset store.

        It can take others that these come ``before``.
        """
        layout = self.layout
        description = {
            "order": layout.order.to_dict(),
            "rows": layout.rows,
            "block_rows": layout.block_rows,
        }
        blocks = prepared.Written(layout.cuts, layout.centroids, description)
        span = slice(start, stop)
        prepared.copy(url, self.rows, len(self.rows), blocks, span=span, before=before)

    def order(self, X: np.ndarray, usable: np.ndarray) -> np.ndarray:
        """Return the order (n,) that puts rows with the same blocks near them together."""
        places, rest = np.flatnonzero(usable), np.flatnonzero(~usable)
        groups = self.groups(np.asarray(X, np.float64)[usable])
        return np.concatenate([*(places[group] for _, group in groups), rest])

    def operations(self, places: int) -> float:
        """Return about how many operations the factors of blocks near some places cost."""
        rows = min(len(self.rows), NEAR_BLOCKS * self.layout.block_rows)
        return float(min(places, self.layout.n_blocks) * rows**3 + 4 * places * rows**2)

    def place(self) -> np.ndarray:
        """Return the first training row, as the user has it."""
        return self.rows.raw(0, 1)[0]

    def moments(self, fit: Fitted, new: NewRows, want: Want, most: int) -> Moments:
        """Return the posterior at new rows, group by group."""
        return Local(fit, self).moments(new, want, most)


def open_nearby(url: str, arrays: dict[str, np.ndarray]) -> Nearby:
    """Return the rows that ``Nearby.write`` or a fit left in a model store."""
    if BOUNDS in arrays:
        rows, layout = neighbours.changed(url, **{k: arrays[k] for k in CHANGED if k in arrays})
    else:
        rows, layout = neighbours.open_blocks(url, more=True)
    return Nearby(rows, layout, around_of(arrays))


class _Block(NamedTuple):
    """A block that was read back: inputs in the user's units, scaled rows and their features."""

    inputs: np.ndarray
    block: Block
    features: Any

    @property
    def nbytes(self) -> int:
        arrays = self.inputs, self.features, *self.block
        return int(sum(array.nbytes for array in arrays if array is not None))

    def rows(self, chosen: np.ndarray | None) -> tuple[Block, Any]:
        """Return the chosen rows and their features; all of them for None."""
        if chosen is None or len(chosen) == len(self.inputs):
            return self.block, self.features
        indices = backend.namespace(self.features).asarray(chosen)
        return self.block.at(indices), self.features[indices]


@dataclass(frozen=True, eq=False)
class Local:
    """A fitted local method and its training rows."""

    fit: Fitted
    nearby: Nearby

    @property
    def model(self) -> Conditioned:
        """Method whose predictions are conditioned on rows."""
        return cast(Conditioned, self.fit.model)

    def moments(self, new: NewRows, want: Want, most: int) -> Moments:
        """Return the posterior at new rows; those that are not ``usable`` come out as 0.

        Rows conditioned on the same training rows are predicted together, ``most`` of them at a
        time.
        """
        X, scaled, usable = new
        total = _Gathered.empty(len(X), self.fit.scaling.n_sides, want)
        places = np.flatnonzero(usable)
        for key, group in self.nearby.groups(np.asarray(X, np.float64)[usable]):
            near = self.near(key)
            step = most if want != "covariance" else len(group)
            for start in range(0, len(group), step):
                rows = places[group[start : start + step]]
                inputs = backend.to_device(scaled[rows], self.fit.device)
                tile = self.fit.model.predict(self.fit.theta, self.fit.state, inputs, near, want)
                total.put(rows, move(tile, "cpu"))
        if total.far:
            _say_far(self.fit.token)
        return total.moments()

    def near(self, key: Key) -> Any:
        """Return what predictions of a group need of the training rows that serve it."""
        return self._cached(key, partial(self._condition, key))

    def _cached(self, key: Key, make: Callable[[], Any]) -> Any:
        return cached((self.fit.token, key), make, self.fit.device, CACHE_BYTES)

    def _condition(self, key: Key) -> Any:
        """Return what predictions need of the training rows that serve a group."""
        blocks, features = zip(*self._rows(key), strict=True)
        return self.model.condition(self.fit.theta, self.fit.state, blocks, features)

    def inputs_near(self, key: Key) -> np.ndarray:
        """Return the scaled inputs (w, d) of the training rows that serve a group."""
        blocks = [backend.to_host(block.X) for block, _ in self._rows(key)]
        return np.concatenate(blocks).astype(np.float64)

    def _rows(self, key: Key) -> list[tuple[Block, Any]]:
        """Return the training rows that serve a group, and their features."""
        parts = self.nearby.parts(key, lambda block: self._block(block).inputs)
        return [self._block(part.block).rows(part.rows) for part in parts]

    def _block(self, number: int) -> _Block:
        return self._cached((BLOCK, number), partial(self._read, number))

    def _read(self, number: int) -> _Block:
        X, y = self.nearby.read(number)
        block = move(self.fit.scaling.block(X, y), self.fit.device)
        if len(block.X) < len(X):
            raise StoreError("training rows that the model reads back are gone: fit again")
        features = self.model.features(self.fit.theta, self.fit.state, block.X)
        return _Block(np.asarray(X, np.float64), block, features)


@dataclass(eq=False)
class _Gathered:
    """Moments of groups of rows, put together.

    Rows conditioned on different blocks are correlated only through what they share: given the
    training rows, their residuals are independent.
    """

    mean: np.ndarray
    variance: np.ndarray | None
    covariance: np.ndarray | None
    shared: np.ndarray | None = None
    far: int = 0

    @classmethod
    def empty(cls, n: int, p: int, want: Want) -> Self:
        return cls(
            np.zeros((n, p)),
            np.zeros(n) if want == "variance" else None,
            np.zeros((n, n)) if want == "covariance" else None,
        )

    def put(self, rows: np.ndarray, moments: Moments) -> None:
        self.mean[rows] = moments.mean
        self.far += 0 if moments.far is None else int(np.count_nonzero(moments.far))
        if self.variance is not None:
            self.variance[rows] = moments.variance
        if self.covariance is not None:
            assert moments.shared is not None
            if self.shared is None:
                self.shared = np.zeros((len(self.mean), moments.shared.shape[1]))
            across = moments.shared @ self.shared.T
            self.covariance[rows] = across
            self.covariance[:, rows] = across.T
            self.covariance[np.ix_(rows, rows)] = moments.covariance
            self.shared[rows] = moments.shared

    def moments(self) -> Moments:
        return Moments(self.mean, self.variance, self.covariance)


@cache
def _say_far(token: str) -> None:
    """Warn once per model and process; a worker leaves it to the client to show the warning."""
    message = (
        "some rows lie far from all training rows: the prediction there is the mean function "
        "with the prior's variance"
    )
    worker = this_worker()
    if worker is None:
        warnings.warn(message, stacklevel=2)
    else:  # distributed.warn would show it on the worker's stderr as well, often the client's
        worker.log_event("warn", message)
