"""Rounds of a computation-aware GP: rows meet the points that actions are made of.

A task reads some rows and then, one panel after another, all points: a tile of the kernel is
contracted with the actions as it is made.  Points are training rows, all of them or some, so a
value costs a kernel entry for each pair of a row and a point, and a gradient as many again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp import scaling
from daskgp.backend import resolve_device, to_device, to_host
from daskgp.flow.cluster import Executor, single_blas_thread, solve_threads
from daskgp.flow.io import Rows
from daskgp.flow.partition import Span, parts
from daskgp.flow.rounds import KEEP_SHARE, map_all, mapped, node, tree_sum
from daskgp.kernels.weights import Weights
from daskgp.model import Block, Theta, add, move
from daskgp.models import cagp
from daskgp.models.cagp import CaGP, Panel
from daskgp.scaling import Scaling
from daskgp.typing import Array

PANEL_ROWS = 4_096
"""Points that a task holds at a time, where it does not hold them all."""
HELD_POINTS = 65_536
"""Most points that a task holds all at once."""
DRAWS, DRAW_ROWS = 32, 8_192
"""Most stretches of rows that a mini-batch is drawn from, and most rows of one."""


class Piece(NamedTuple):
    """Rows of one task.

    ``weight`` is how often each counts among all rows, None where it does not; ``own`` says that
    they are points of actions; ``drawn`` how many of them are drawn by which seed, if not all.
    """

    span: Span
    weight: float | None = 1.0
    own: bool = False
    drawn: tuple[int, int] | None = None


class Common(NamedTuple):
    """What all tasks of a round share."""

    theta: Theta
    weights: Weights
    points: Rows


class Evaluated(NamedTuple):
    """Objective, its gradient by the logarithms of kernel parameters and noise, and by weights."""

    value: float
    kernel: np.ndarray
    noise: float
    weights: np.ndarray | None
    dropped: int


@dataclass(frozen=True, eq=False)
class ActionRounds:
    """The rounds over one set of rows and the points that actions are made of.

    Parameters
    ----------
    model : CaGP
    rows : Rows
    spans : tuple of Span
        Of each task.
    points : Rows
        ``rows`` itself where all rows are points.
    count : int
        Number of usable rows.
    scaling, executor, dtype, device
        As for other rounds.
    """

    model: CaGP
    rows: Rows
    spans: tuple[Span, ...]
    points: Rows
    count: int
    scaling: Scaling
    executor: Executor
    dtype: str = "float64"
    device: str = "cpu"

    def total(
        self, theta: Theta, weights: Weights, batch: tuple[int, int] | None = None
    ) -> cagp.Stats:
        """The sums over all rows, or those of a mini-batch, and over points."""
        common = node("common", Common(theta, weights, self.points))
        found = self._round(self._reader().local, self._pieces(batch), [common], "local")
        return self._counted(found)

    def value_and_gradient(
        self, theta: Theta, weights: Weights, batch: tuple[int, int] | None = None
    ) -> Evaluated:
        """The objective with its gradient: two rounds.

        ``batch`` is the number of rows that are drawn for its sums over rows, and a seed.
        """
        common, pieces = node("common", Common(theta, weights, self.points)), self._pieces(batch)
        reader, kept = self._reader(), None
        if self._keeps(weights.count, pieces):
            label = f"{self.model.name}-local"
            arguments = [(piece, common) for piece in pieces]
            kept = self.executor.persist(mapped(reader.keep, arguments, label))
            first = delayed(operator.itemgetter(0), pure=False)
            total = tree_sum([first(k) for k in kept], self.model.combine, self.executor, label)
        else:
            total = self._round(reader.local, pieces, [common], "local")
        with solve_threads(weights.count):
            objective = self.model.objective(theta.noise_variance, self._counted(total))
        shared = [common, node("cotangent", objective.cotangent)]
        found = self._round(reader.gradient, pieces, shared, "gradient", add, kept)
        return Evaluated(
            objective.value, found.kernel, objective.noise, found.weights, objective.dropped
        )

    def solve(
        self,
        theta: Theta,
        weights: Weights,
        points: int,
        batch: tuple[int, int] | None = None,
    ) -> tuple[cagp.State, cagp.Objective]:
        """What prediction needs, which is of the points alone, and the objective: one round."""
        total = self.total(theta, weights, batch)
        with solve_threads(weights.count):
            objective = self.model.objective(theta.noise_variance, total)
            return self.model.solve(theta.noise_variance, total, points), objective

    def times(self, theta: Theta, V: np.ndarray) -> np.ndarray:
        """K(X, Z) V (n, m) for V (a, m) over the points; rows with missing values give 0."""
        common = node("common", Common(theta, Weights.dense(V), self.points))
        found = map_all(self._reader().times, self.spans, self.executor, "times", [common])
        return np.concatenate(found)

    def kernel_at(self, theta: Theta, places: np.ndarray) -> np.ndarray:
        """The kernel (n, m) at rows and m places in scaled units; 0 where a row has a gap."""
        shared = node("theta", theta), node("places", places)
        found = map_all(self._reader().kernel_at, self.spans, self.executor, "kernel", shared)
        return np.concatenate(found)

    def covariance(self, theta: Theta) -> Callable[[np.ndarray], np.ndarray]:
        """Products (K + s I) V (n, m), where all rows are points."""
        return lambda V: self.times(theta, V) + theta.noise_variance * V

    def targets(self) -> np.ndarray:
        """Scaled targets (n, p); rows with missing values give 0."""
        return np.concatenate(map_all(self._reader().targets, self.spans, self.executor, "targets"))

    def complete(self) -> np.ndarray:
        """Which rows (n,) have no missing value."""
        found = map_all(self._reader().complete, self.spans, self.executor, "complete")
        return np.concatenate(found)

    def on_points(self) -> ActionRounds:
        """The same rounds over the points."""
        spans = self._point_spans(self.spans[0].rows)
        return replace(self, rows=self.points, spans=spans)

    def _counted(self, total: cagp.Stats) -> cagp.Stats:
        """The sums of a mini-batch stand for all rows, whose number is known."""
        return total._replace(rows=float(self.count)) if self.model.needs_rows else total

    def _round(
        self,
        task: Callable[..., Any],
        pieces: Sequence[Piece],
        shared: Sequence[Delayed],
        what: str,
        combine: Callable[[Any, Any], Any] | None = None,
        each: Sequence[Delayed] | None = None,
    ) -> Any:
        label = f"{self.model.name}-{what}"
        own = [()] * len(pieces) if each is None else [(one,) for one in each]
        arguments = [(piece, *shared, *more) for piece, more in zip(pieces, own, strict=True)]
        nodes = mapped(task, arguments, label)
        return tree_sum(nodes, combine or self.model.combine, self.executor, label)

    def _pieces(self, batch: tuple[int, int] | None) -> list[Piece]:
        """The rows of each task: those that count, and those that are points."""
        counts = self.model.needs_rows
        if self.points is self.rows and (batch is None or not counts):
            return [Piece(span, 1.0 if counts else None, own=True) for span in self.spans]
        own = [Piece(span, None, own=True) for span in self._point_spans(self.spans[0].rows)]
        if not counts:
            return own
        if batch is None:
            return [*(Piece(span) for span in self.spans), *own]
        return [*self._drawn(*batch), *own]

    def _drawn(self, number: int, seed: int) -> list[Piece]:
        """A mini-batch: rows of some stretches, each weighted by the inverse of its chance."""
        rng = np.random.default_rng([seed, 5])
        spans = [few for span in self.spans for few in parts(*span, DRAW_ROWS)]
        chosen = np.sort(rng.permutation(len(spans))[:DRAWS])
        share, found = len(spans) / len(chosen), []
        total = sum(spans[i].rows for i in chosen)
        for i in chosen:
            span = spans[i]
            rows = min(span.rows, max(1, round(number * span.rows / total)))
            found.append(Piece(span, share * span.rows / rows, False, (rows, seed)))
        return found

    def _point_spans(self, wide: int) -> tuple[Span, ...]:
        if self.points is self.rows:
            return self.spans
        return tuple(parts(0, len(self.points), max(wide, 1)))

    def _keeps(self, t: int, pieces: Sequence[Piece]) -> bool:
        """Whether the functions at all rows fit a share of the workers' memory."""
        if self.executor.client is None and not self.executor.shares_memory:
            return False
        rows = sum(p.span.rows if p.drawn is None else p.drawn[0] for p in pieces)
        needed = np.dtype(self.dtype).itemsize * t * rows
        return needed <= KEEP_SHARE * self.executor.memory()

    def _reader(self) -> _Reader:
        return _Reader(self.model, self.rows, self.scaling, self.dtype, self.device)


class Gradient(NamedTuple):
    """Gradient through some rows: log kernel parameters (k,) and learned weights (a,) if any."""

    kernel: np.ndarray
    weights: np.ndarray | None


class _Part(NamedTuple):
    """Rows of one tile, those of them that are complete, and the weights of their own actions."""

    block: Block
    own: Weights | None
    places: np.ndarray


@dataclass(frozen=True, eq=False)
class _Reader:
    """What tasks do, on the worker: read, clean, scale, move, contract."""

    model: CaGP
    rows: Rows
    scaling: Scaling
    dtype: str
    device: str

    def local(self, piece: Piece, common: Common) -> cagp.Stats:
        """The sums over a piece."""
        return self.keep(piece, common, False)[0]

    def keep(
        self, piece: Piece, common: Common, keep: bool = True
    ) -> tuple[cagp.Stats, list[np.ndarray]]:
        """The sums over a piece, and the actions' functions at its tiles."""
        with single_blas_thread():
            theta, panels, found, kept = common.theta, self._panels(common), [], []
            for part in self._parts(piece, common):
                F = cagp.functions(theta.kernel, panels(), part.block.X)
                found.append(self.model.local(theta, part.block, F, part.own, piece.weight))
                if keep:
                    kept.append(to_host(F))
            return move(functools.reduce(self.model.combine, found), "cpu"), kept

    def gradient(
        self,
        piece: Piece,
        common: Common,
        cotangent: cagp.Cotangent,
        kept: tuple[Any, list[np.ndarray]] | None = None,
    ) -> Gradient:
        """The gradient through a piece."""
        with single_blas_thread():
            theta, panels, weights = common.theta, self._panels(common), common.weights
            cotangent = move(cotangent, self._on)
            kernel = np.zeros(len(theta.kernel.log_parameters))
            learned = None if weights.owner is None else np.zeros(len(weights))
            for i, part in enumerate(self._parts(piece, common)):
                if kept is None:
                    F = cagp.functions(theta.kernel, panels(), part.block.X)
                else:
                    F = to_device(kept[1][i], self._on)
                through, found, own = self.model.pull(
                    theta, part.block, F, panels(), cotangent, part.own, piece.weight
                )
                kernel += through
                if learned is None:
                    continue
                for panel, by_weights in zip(panels(), found, strict=True):
                    learned[panel.places] += to_host(by_weights)
                if own is not None:
                    learned[part.places] += to_host(own)
            return Gradient(kernel, learned)

    def times(self, span: Span, common: Common) -> list[np.ndarray]:
        """Products of the kernel at rows and points with what the points are weighted by."""
        with single_blas_thread():
            found = np.zeros((span.rows, common.weights.count))
            panels = self._panels(common)
            for places, inputs in self._inputs(span):
                F = cagp.functions(common.theta.kernel, panels(), inputs)
                found[places] = to_host(F).T
            return [found]

    def kernel_at(self, span: Span, theta: Theta, places: np.ndarray) -> list[np.ndarray]:
        """The kernel (r, m) at rows and m places in scaled units."""
        with single_blas_thread():
            found, others = np.zeros((span.rows, len(places))), to_device(places, self._on)
            for here, inputs in self._inputs(span):
                found[here] = to_host(theta.kernel(inputs, others))
            return [found]

    def targets(self, span: Span) -> list[np.ndarray]:
        """Scaled targets."""
        X, y = self.rows.read(*span)
        found, keep = np.zeros(y.shape), scaling.complete_rows(X, y)
        found[keep] = self.scaling.block(X, y).y
        return [found]

    def complete(self, span: Span) -> list[np.ndarray]:
        """Which rows have no missing value."""
        return [scaling.complete_rows(*self.rows.read(*span))]

    def _parts(self, piece: Piece, common: Common) -> Iterator[_Part]:
        """The complete rows of a piece, tile by tile."""
        rows = common.points if piece.own else self.rows
        X, y = rows.read(*piece.span)
        places = np.flatnonzero(scaling.complete_rows(X, y))
        if piece.drawn is not None:
            number, seed = piece.drawn
            drawn = np.zeros(len(X), bool)
            rng = np.random.default_rng([seed, 6, piece.span.start])
            drawn[rng.permutation(len(X))[:number]] = True
            places = places[drawn[places]]
        for start in range(0, max(len(places), 1), cagp.TILE_ROWS):
            few = places[start : start + cagp.TILE_ROWS]
            block: Block = move(self.scaling.block(X[few], y[few], self.dtype), self._on)
            at, own = few + piece.span.start, None
            if piece.own:
                own = _of(common.weights, at, self._on)
            yield _Part(block, own, at)

    def _inputs(self, span: Span) -> Iterator[tuple[np.ndarray, Array]]:
        """Scaled inputs of the complete rows of a span, tile by tile, and where they are in it."""
        X, y = self.rows.read(*span)
        places = np.flatnonzero(scaling.complete_rows(X, y))
        for start in range(0, len(places), cagp.TILE_ROWS):
            few = places[start : start + cagp.TILE_ROWS]
            scaled = self.scaling.inputs(np.asarray(X[few], np.float64))
            yield few, to_device(scaled.astype(self.dtype, copy=False), self._on)

    def _panels(self, common: Common) -> Callable[[], Iterator[Panel]]:
        """Reads all points again and again; once where they are few."""
        if len(common.points) > HELD_POINTS:
            return partial(self._read_panels, common)
        held = list(self._read_panels(common))
        return lambda: iter(held)

    def _read_panels(self, common: Common) -> Iterator[Panel]:
        for span in parts(0, len(common.points), PANEL_ROWS):
            X, y = common.points.read(*span)
            places = np.flatnonzero(scaling.complete_rows(X, y))
            if not len(places):
                continue
            scaled = self.scaling.inputs(np.asarray(X[places], np.float64))
            at = places + span.start
            inputs = to_device(scaled.astype(self.dtype, copy=False), self._on)
            yield Panel(inputs, _of(common.weights, at, self._on), at)

    @property
    def _on(self) -> str:
        return resolve_device(self.device)


def _of(weights: Weights, places: np.ndarray, device: str) -> Weights:
    """The weights at some points, on a device."""
    owner = None if weights.owner is None else weights.owner[places]
    return Weights(to_device(weights.values[places], device), owner, weights.count)
