"""Training rows near a place; places that are served by the same rows are predicted together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import number
from daskgp.data import Rows
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.blocks.around import Around, Key, Part, around_of
from daskgp.data.blocks.layout import Layout
from daskgp.data.polygons import Polygons
from daskgp.errors import InputError, StoreError
from daskgp.models.markov.barriers import Barriers
from daskgp.models.markov.earlier import LOOKED
from daskgp.models.method import Conditioned
from daskgp.models.values import Across, Block, Moments, Want, leaves, move
from daskgp.posterior.training_rows import CACHE_BYTES, Fitted, NewRows, TrainingRows, cached
from daskgp.runtime.process import warn_once

BLOCK = -2
"""First part of the cache keys of blocks; other keys name groups of places."""
BOUNDS = "bounds"
CHANGED = ("cuts", "centroids", BOUNDS, "ends", "near")
"""Names of the arrays that describe blocks of which some were added or taken out."""
JOINT_ROWS = 10_000
"""Most training rows that one joint prediction is conditioned on; they are factored at once."""
SUM_ROWS = 1_000_000
"""Most training rows for a sum over places that are conditioned one after another."""
MANY = (
    "the places of this joint prediction are near more than {:,} training rows, which "
    "it would be conditioned on: ask for fewer places or places closer together, for return_std, "
    "or for sample_paths, which take any number and have averages"
)
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

    def write(self, url: str) -> None:
        """Write the rows with their blocks to a new dataset store."""
        prepared.copy(url, self.rows, len(self.rows), self.layout.write)

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


def united(several: Iterable[list[Part]], most: int | None = None) -> list[Part]:
    """Return all rows of several sets of training rows; InputError if they are too many.

    ``most`` is the number of those allowed, JOINT_ROWS by default.
    """
    most = JOINT_ROWS if most is None else most
    found: dict[int, np.ndarray] = {}
    for parts in several:
        for block, rows in parts:
            assert rows is not None
            found[block] = np.union1d(found.get(block, rows), rows)
        if sum(map(len, found.values())) > most:
            raise InputError(MANY.format(most))
    return [Part(block, found[block]) for block in sorted(found)]


class _Block(NamedTuple):
    """A block that was read back: inputs in the user's units, scaled rows and their features."""

    inputs: np.ndarray
    block: Block
    features: Any

    @property
    def nbytes(self) -> int:
        arrays = self.inputs, self.features, *leaves(self.block)
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
        time.  A covariance is that of rows which are all conditioned on what serves any of them.
        """
        X, scaled, usable = new
        if want == "covariance":
            return self._joint(X, scaled)
        mean = np.zeros((len(X), self.fit.scaling.n_sides))
        variance = np.zeros(len(X)) if want == "variance" else None
        places = np.flatnonzero(usable)
        for key, group in self.nearby.groups(np.asarray(X, np.float64)[usable]):
            near = self.near(key)
            for start in range(0, len(group), most):
                rows = places[group[start : start + most]]
                tile = self._predict(X[rows], scaled[rows], near, want)
                mean[rows] = tile.mean
                if variance is not None:
                    variance[rows] = tile.variance
        return Moments(mean, variance)

    def _joint(self, X: np.ndarray, scaled: np.ndarray) -> Moments:
        if not len(X):
            return Moments(np.zeros((0, self.fit.scaling.n_sides)), covariance=np.zeros((0, 0)))
        near = self._factored(united([self.serving(X, scaled)]))
        return self._predict(X, scaled, near, "covariance")

    def _predict(self, X: np.ndarray, scaled: np.ndarray, near: Any, want: Want) -> Moments:
        fit = self.fit
        inputs = backend.to_device(scaled, fit.device)
        found = move(fit.model.predict(fit.theta, fit.state, inputs, near, want), "cpu")
        self._say_far(found.far)
        if found.hidden is not None and found.hidden.any():
            self._say_hidden(np.asarray(X[found.hidden], np.float64))
        return found

    def _say_far(self, far: Any) -> None:
        if far is not None and far.any():
            warn_once(FAR, self.fit.token)

    def _say_hidden(self, X: np.ndarray) -> None:
        """Warn of places (n, d) that see no row, unless they are on land, where none can."""
        polygons = polygons_of(self.fit.state.barriers, self.nearby.rows)
        assert polygons is not None
        x, y = X[:, [*map(self.nearby.rows.feature_names.index, polygons.features)]].T
        if not polygons.hold(x, y).all():
            warn_once(HIDDEN, self.fit.token)

    def serving(self, X: np.ndarray, scaled: np.ndarray) -> list[Part]:
        """Return the training rows that places X (n, d), in the user's units, are conditioned on.

        ``scaled`` are the places in the model's units.
        """
        found: dict[int, np.ndarray] = {}
        for key, group in self.nearby.groups(np.asarray(X, np.float64)):
            for block, rows in self._picked(self._parts(key), scaled[group]):
                start, stop = self.nearby.layout.span(block)
                own = np.arange(stop - start) if rows is None else rows
                found[block] = np.union1d(found.get(block, own), own)
        return [Part(block, found[block]) for block in sorted(found)]

    def _picked(self, parts: list[Part], scaled: np.ndarray) -> list[Part]:
        """Return the rows that any of some places is conditioned on, among those of its group."""
        near = [backend.to_host(block.X) for block, _ in self._rows(parts)]
        chosen = self.model.picks(self.fit.state, scaled, np.concatenate(near))
        if chosen is None:
            return parts
        edges = np.cumsum([0, *map(len, near)])
        pieces = np.split(chosen, np.searchsorted(chosen, edges[1:-1]))
        return [
            Part(part.block, piece - first if part.rows is None else part.rows[piece - first])
            for part, piece, first in zip(parts, pieces, edges, strict=False)
            if len(piece)
        ]

    def summed(self, scaled: np.ndarray, weights: np.ndarray, parts: Sequence[Part]) -> Across:
        """Return what ties a weighted sum over scaled places (n, d) to training rows: (1, ...)."""
        fit, near = self.fit, [block.X for block, _ in self._rows(parts)]
        inputs, w = (backend.to_device(a, fit.device) for a in (scaled, weights[None]))
        rows = backend.namespace(inputs).concatenate(near)
        across = self.model.across(fit.theta, fit.state, inputs, rows)
        self._say_far(across.far)
        return move(Across(w @ across.features, w @ across.kernel), "cpu")

    def of_sum(self, across: Across, parts: Sequence[Part]) -> Moments:
        """Return the posterior of a weighted sum over places, less its variance a priori."""
        fit = self.fit
        near = self.model.factored(fit.theta, fit.state, self._factored(parts))
        ties, none = move(across, fit.device), backend.to_device(np.zeros(1), fit.device)
        return move(self.model.predict_from(fit.state, near, ties, none, "variance"), "cpu")

    def one_by_one(self, scaled: np.ndarray, weights: np.ndarray, parts: Sequence[Part]) -> Moments:
        """Return the posterior of a weighted sum over places with hyper-parameters of their own."""
        fit = self.fit
        inputs, w = (backend.to_device(a, fit.device) for a in (scaled, weights))
        near = self._factored(parts)
        return move(self.model.of_sum(fit.theta, fit.state, inputs, w, near), "cpu")

    def prior(self, scaled: np.ndarray, w: np.ndarray, others: np.ndarray, v: np.ndarray) -> float:
        """Return the covariance a priori of two weighted sums over scaled places."""
        X, Z, w, v = (backend.to_device(a, self.fit.device) for a in (scaled, others, w, v))
        return number(w @ (self.fit.theta.kernel(X, Z) @ v))

    def near(self, key: Key) -> Any:
        """Return what predictions of a group need of the training rows that serve it."""
        return self._cached(key, lambda: self._factored(self._parts(key)))

    def _cached(self, key: Key, make: Callable[[], Any]) -> Any:
        return cached((self.fit.token, key), make, self.fit.device, CACHE_BYTES)

    def _factored(self, parts: Sequence[Part]) -> Any:
        """Return what predictions of a group, or of several, need of training rows."""
        blocks, features = zip(*self._rows(parts), strict=True)
        return self.model.condition(self.fit.theta, self.fit.state, blocks, features)

    def inputs_near(self, key: Key) -> np.ndarray:
        """Return the scaled inputs (w, d) of the training rows that serve a group."""
        blocks = [backend.to_host(block.X) for block, _ in self._rows(self._parts(key))]
        return np.concatenate(blocks).astype(np.float64)

    def _parts(self, key: Key) -> list[Part]:
        """Return the training rows that serve a group."""
        return self.nearby.parts(key, lambda block: self._block(block).inputs)

    def _rows(self, parts: Sequence[Part]) -> list[tuple[Block, Any]]:
        """Return training rows, and their features."""
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


FAR = (
    "some rows lie far from all training rows: the prediction there is the mean function with the "
    "prior's variance"
)
HIDDEN = (
    f"barriers hide some places from the {LOOKED:,} training rows nearest to them, or more: the "
    "prediction there is the mean function with the prior's variance"
)


def polygons_of(barriers: Barriers | None, rows: Rows) -> Polygons | None:
    """Return the polygons of a model's barriers, over features of rows."""
    if barriers is None:
        return None
    ends = np.flatnonzero(np.isnan(barriers.rings[:, 0]))
    polygons: list[list[np.ndarray]] = [[]]
    for part in np.split(barriers.rings, ends + 1):
        if len(part) > 1:
            polygons[-1].append(part[:-1])
        else:
            polygons.append([])
    across, up = rows.geographic or np.asarray(barriers.axes)[0].astype(np.int64)
    each = tuple(tuple(rings) for rings in polygons if rings)
    return Polygons(each, (rows.feature_names[across], rows.feature_names[up]))
