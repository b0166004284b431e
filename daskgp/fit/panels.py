"""Rounds of a computation-aware GP: rows meet the points that actions are made of.

A task reads some rows and then, one panel after another, all points: a tile of the kernel is
contracted with the actions as it is made.  Points are training rows, all of them or some, so a
value costs a kernel entry for each pair of a row and a point, and a gradient as many again.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp.arrays.backend import resolve_device, to_device, to_host
from daskgp.data import Rows
from daskgp.data.partition import Span, parts
from daskgp.fit.rounds import KEEP_SHARE
from daskgp.kernels.weights import Weights
from daskgp.models import scaling
from daskgp.models.actions import cagp
from daskgp.models.actions.cagp import CaGP, Panel
from daskgp.models.scaling import Scaling
from daskgp.models.values import Block, Theta, add, move
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import map_all, mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread, solve_threads
from daskgp.typing import Array

T = TypeVar("T")
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
    points: Rows


@dataclass(frozen=True)
class Held:
    """The weights of ``count`` actions as a node of graphs."""

    node: Delayed
    count: int

    @classmethod
    def of(cls, weights: Weights) -> Held:
        """Weights that are sent with the next round."""
        return cls(node("weights", weights), weights.count)


class _Begun(NamedTuple):
    """An evaluation whose points are factored."""

    factored: cagp.Factored
    pieces: list[Piece]
    shared: list[Delayed]
    kept: list[Delayed] | None


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

    def factored(self, theta: Theta, weights: Weights | Held) -> cagp.Factored:
        """What the points say of the actions: one round."""
        return self._started(theta, weights, None, keep=False).factored

    def value_and_gradient(
        self,
        theta: Theta,
        weights: Weights | Held,
        batch: tuple[int, int] | None = None,
    ) -> Evaluated:
        """The objective with its gradient: a round over points and two over rows.

        ``batch`` is the number of rows that are drawn for its sums over rows, and a seed.
        ``weights`` may be what ``hold`` gave.
        """
        begun = self._started(theta, weights, batch, keep=True)
        objective = self._objective(begun)
        shared = [*begun.shared, node("cotangent", objective.cotangent)]
        task, pieces = self._reader().gradient, begun.pieces
        found = self._round(task, pieces, shared, "gradient", add, begun.kept)
        return Evaluated(
            objective.value, found.kernel, objective.noise, found.weights, objective.dropped
        )

    def solve(
        self,
        theta: Theta,
        weights: Weights | Held,
        points: int,
        batch: tuple[int, int] | None = None,
    ) -> tuple[cagp.State, cagp.Objective]:
        """What prediction needs, which is of the points alone, and the objective: two rounds."""
        begun = self._started(theta, weights, batch, keep=True)
        return self.model.solve(begun.factored, points), self._objective(begun)

    def hold(self, weights: Weights) -> Held:
        """Weights that stay the same over many evaluations, sent to the workers once."""
        return Held(self.executor.persist([node("weights", weights)])[0], weights.count)

    def _started(
        self,
        theta: Theta,
        weights: Weights | Held,
        batch: tuple[int, int] | None,
        keep: bool,
    ) -> _Begun:
        """The sums over points, factored; the functions at all rows are kept where they fit."""
        held = weights if isinstance(weights, Held) else Held.of(weights)
        shared = [node("common", Common(theta, self.points)), held.node]
        pieces, reader, label = self._pieces(batch), self._reader(), f"{self.model.name}-points"
        own = [i for i, piece in enumerate(pieces) if piece.own]
        kept: list[Delayed] | None = None
        if keep and self._keeps(weights.count, pieces):
            arguments = [(piece, *shared) for piece in pieces]
            kept = self.executor.persist(mapped(reader.begin, arguments, label))
            first = delayed(operator.itemgetter(0), pure=False)
            nodes = [first(kept[i]) for i in own]
            points = tree_sum(nodes, self.model.combine, self.executor, label)
        else:
            few = [pieces[i] for i in own]
            points = self._round(reader.at_points, few, shared, "points", self.model.combine)
        with solve_threads(len(points.joint)):
            factored = self.model.factor(theta.noise_variance, points)
        return _Begun(factored, pieces, shared, kept)

    def _objective(self, begun: _Begun) -> cagp.Objective:
        """The objective, by a round over the rows that count."""
        rows, factored = None, begun.factored
        if self.model.needs_rows:
            which = [i for i, piece in enumerate(begun.pieces) if piece.weight is not None]
            kept = begun.kept and [begun.kept[i] for i in which]
            shared = [*begun.shared, node("factored", factored)]
            pieces, task = [begun.pieces[i] for i in which], self._reader().at_rows
            rows = self._round(task, pieces, shared, "rows", self.model.combine, kept)
            # a mini-batch stands for all rows, whose number is known
            rows = rows._replace(rows=float(self.count))
        with solve_threads(len(factored.factor)):
            return self.model.objective(factored, rows)

    def times(self, theta: Theta, V: np.ndarray) -> np.ndarray:
        """K(X, Z) V (n, m) for V (a, m) over the points; rows with missing values give 0."""
        shared = node("common", Common(theta, self.points)), node("V", Weights.dense(V))
        found = map_all(self._reader().times, self.spans, self.executor, "times", shared)
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

    def _round(
        self,
        task: Callable[..., Any],
        pieces: Sequence[Piece],
        shared: Sequence[Delayed],
        what: str,
        combine: Callable[[Any, Any], Any],
        each: Sequence[Delayed] | None = None,
    ) -> Any:
        label = f"{self.model.name}-{what}"
        own = [()] * len(pieces) if each is None else [(one,) for one in each]
        arguments = [(piece, *shared, *more) for piece, more in zip(pieces, own, strict=True)]
        nodes = mapped(task, arguments, label)
        return tree_sum(nodes, combine, self.executor, label)

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
        # as many tasks however large the blocks of rows are
        return tuple(parts(0, len(self.points), max(1, min(wide, cagp.TILE_ROWS))))

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
    """Complete rows of one tile, the weights of their own actions, and where they are.

    ``read`` are the rows on the host.
    """

    block: Block
    own: Weights | None
    places: np.ndarray
    read: Block


class _Kept(NamedTuple):
    """Rows of a tile on the host, their places, and the actions' functions there."""

    block: Block
    places: np.ndarray
    functions: np.ndarray


@dataclass(frozen=True, eq=False)
class _Reader:
    """What tasks do, on the worker: read, clean, scale, move, contract."""

    model: CaGP
    rows: Rows
    scaling: Scaling
    dtype: str
    device: str

    def begin(
        self, piece: Piece, common: Common, weights: Weights
    ) -> tuple[cagp.PointSums | None, list[_Kept]]:
        """The sums over the points of a piece, and the actions' functions at its tiles."""

        def work(most: int) -> tuple[cagp.PointSums | None, list[_Kept]]:
            total: Any = None
            kept = []
            for part, F in self._functions(piece, common, weights, most):
                if part.own is not None:
                    found = self.model.at_points(F, part.block.y, part.own)
                    total = found if total is None else self.model.combine(total, found)
                kept.append(_Kept(part.read, part.places, to_host(F)))
            return None if total is None else move(total, "cpu"), kept

        return self._fitting(work)

    def at_points(self, piece: Piece, common: Common, weights: Weights) -> cagp.PointSums:
        """The sums over points alone."""
        found = self.begin(piece, common, weights)[0]
        assert found is not None
        return found

    def at_rows(
        self,
        piece: Piece,
        common: Common,
        weights: Weights,
        factored: cagp.Factored,
        kept: tuple[Any, list[_Kept]] | None = None,
    ) -> cagp.RowSums:
        """The sums over rows."""
        assert piece.weight is not None
        weight = piece.weight

        def work(most: int) -> cagp.RowSums:
            there = move(factored, self._on)
            found = (
                self.model.at_rows(common.theta, part.block, F, there, weight)
                for part, F in self._functions(piece, common, weights, most, kept)
            )
            sums: cagp.RowSums = move(functools.reduce(self.model.combine, found), "cpu")
            return sums

        return self._fitting(work)

    def gradient(
        self,
        piece: Piece,
        common: Common,
        weights: Weights,
        cotangent: cagp.Cotangent,
        kept: tuple[Any, list[_Kept]] | None = None,
    ) -> Gradient:
        """The gradient through a piece."""

        def work(most: int) -> Gradient:
            theta, panels = common.theta, self._panels(common, weights)
            there = move(cotangent, self._on)
            kernel = np.zeros(len(theta.kernel.log_parameters))
            learned = None if weights.owner is None else np.zeros(len(weights))
            for part, F in self._functions(piece, common, weights, most, kept):
                places: list[np.ndarray] = []
                through, found, own = self.model.pull(
                    theta,
                    part.block,
                    F,
                    _noting(panels(), places),
                    there,
                    part.own,
                    piece.weight,
                )
                kernel += through
                if learned is None:
                    continue
                for at, by_weights in zip(places, found, strict=True):
                    learned[at] += to_host(by_weights)
                if own is not None:
                    learned[part.places] += to_host(own)
            return Gradient(kernel, learned)

        return self._fitting(work)

    def _fitting(self, work: Callable[[int], T]) -> T:
        """``work`` on tiles of as many rows as the device has memory for."""
        with single_blas_thread():
            return device_memory.shrinking(work, cagp.TILE_ROWS, self._on, self.model.name)

    def _functions(
        self,
        piece: Piece,
        common: Common,
        weights: Weights,
        most: int,
        kept: tuple[Any, list[_Kept]] | None = None,
    ) -> Iterator[tuple[_Part, Array]]:
        """The tiles of a piece with the actions' functions there, which may have been kept."""
        if kept is not None:
            for block, places, F in _cut(kept[1], most):
                own = _of(weights, places, self._on) if piece.own else None
                yield _Part(move(block, self._on), own, places, block), to_device(F, self._on)
            return
        panels = self._panels(common, weights)
        for part in self._parts(piece, common, weights, most):
            yield part, cagp.functions(common.theta.kernel, panels(), part.block.X)

    def times(self, span: Span, common: Common, weights: Weights) -> list[np.ndarray]:
        """Products of the kernel at rows and points with what the points are weighted by."""

        def work(most: int) -> list[np.ndarray]:
            found = np.zeros((span.rows, weights.count))
            panels = self._panels(common, weights)
            for places, inputs in self._inputs(span, most):
                F = cagp.functions(common.theta.kernel, panels(), inputs)
                found[places] = to_host(F).T
            return [found]

        return self._fitting(work)

    def kernel_at(self, span: Span, theta: Theta, places: np.ndarray) -> list[np.ndarray]:
        """The kernel (r, m) at rows and m places in scaled units."""

        def work(most: int) -> list[np.ndarray]:
            found, others = np.zeros((span.rows, len(places))), to_device(places, self._on)
            for here, inputs in self._inputs(span, most):
                found[here] = to_host(theta.kernel(inputs, others))
            return [found]

        return self._fitting(work)

    def targets(self, span: Span) -> list[np.ndarray]:
        """Scaled targets."""
        X, y = self.rows.read(*span)
        found, keep = np.zeros(y.shape), scaling.complete_rows(X, y)
        found[keep] = self.scaling.block(X, y).y
        return [found]

    def complete(self, span: Span) -> list[np.ndarray]:
        """Which rows have no missing value."""
        return [scaling.complete_rows(*self.rows.read(*span))]

    def _parts(self, piece: Piece, common: Common, weights: Weights, most: int) -> Iterator[_Part]:
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
        for start in range(0, max(len(places), 1), most):
            few = places[start : start + most]
            read = self.scaling.block(X[few], y[few], self.dtype)
            at, own = few + piece.span.start, None
            if piece.own:
                own = _of(weights, at, self._on)
            yield _Part(move(read, self._on), own, at, read)

    def _inputs(self, span: Span, most: int) -> Iterator[tuple[np.ndarray, Array]]:
        """Scaled inputs of the complete rows of a span, tile by tile, and where they are in it."""
        X, y = self.rows.read(*span)
        places = np.flatnonzero(scaling.complete_rows(X, y))
        for start in range(0, len(places), most):
            few = places[start : start + most]
            scaled = self.scaling.inputs(np.asarray(X[few], np.float64))
            yield few, to_device(scaled.astype(self.dtype, copy=False), self._on)

    def _panels(self, common: Common, weights: Weights) -> Callable[[], Iterator[Panel]]:
        """Reads all points again and again; once where they are few."""
        if len(common.points) > HELD_POINTS:
            return partial(self._read_panels, common, weights, streamed=True)
        held = list(self._read_panels(common, weights, streamed=False))
        return lambda: iter(held)

    def _read_panels(self, common: Common, weights: Weights, streamed: bool) -> Iterator[Panel]:
        """Panels of points; where they are ``streamed`` one is used at a time."""
        waiting: deque[np.ndarray] = deque()

        def read(span: Span) -> tuple[np.ndarray, np.ndarray]:
            X, y = common.points.read(*span)
            few = np.flatnonzero(scaling.complete_rows(X, y))
            scaled = self.scaling.inputs(np.asarray(X[few], np.float64))
            waiting.append(few + span.start)
            return scaled.astype(self.dtype, copy=False), weights.values[waiting[-1]]

        on, spans = self._on, parts(0, len(common.points), PANEL_ROWS)
        for inputs, values in (
            device_memory.ahead(read, spans, on) if streamed else map(read, spans)
        ):
            at = waiting.popleft()
            if not len(at):
                continue
            owner = None if weights.owner is None else weights.owner[at]
            yield Panel(
                to_device(inputs, on), Weights(to_device(values, on), owner, weights.count), at
            )

    @property
    def _on(self) -> str:
        return resolve_device(self.device)


def _of(weights: Weights, places: np.ndarray, device: str) -> Weights:
    """The weights at some points, on a device."""
    owner = None if weights.owner is None else weights.owner[places]
    return Weights(to_device(weights.values[places], device), owner, weights.count)


def _noting(panels: Iterator[Panel], places: list[np.ndarray]) -> Iterator[Panel]:
    """The panels, with the places of each that was asked for noted."""
    for panel in panels:
        assert panel.places is not None
        places.append(panel.places)
        yield panel


def _cut(kept: list[_Kept], most: int) -> Iterator[_Kept]:
    """Tiles of at most so many rows."""
    for block, places, F in kept:
        for start in range(0, max(len(places), 1), most):
            few = slice(start, start + most)
            yield _Kept(Block(block.X[few], block.y[few]), places[few], F[:, few])
