"""Work of a task on its units: read, draw, clean, scale, move, cut to fit the device, sum.

``TaskRounds`` serves a method as ``Rounds`` does, but in this process: a task runs on it, an expert
trains on it, and tests pass it to methods.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from daskgp.data import Rows
from daskgp.data.blocks.draws import Central, Some
from daskgp.data.partition import Draw, Span, Unit, parts, whole_chunks
from daskgp.errors import DeviceMemoryError
from daskgp.models import scaling
from daskgp.models.markov.barriers import Barriers
from daskgp.models.method import Pass
from daskgp.models.values import Block, Piece, Theta, add_lists, move
from daskgp.runtime import device_memory
from daskgp.runtime.device_memory import FEWER

T = TypeVar("T")
PANEL_ROWS = 4_096
"""Rows of a panel of points, if a task does not hold all points."""
HELD_POINTS = 65_536
"""Maximum number of points that a task holds all at once."""
DRAWS, DRAW_ROWS = 32, 8_192
"""Maximum number of spans of rows that a mini-batch is drawn from, and maximum rows of one."""


@dataclass(frozen=True, eq=False)
class Stored:
    """Training rows as they are stored; those with missing values are dropped.

    Parameters
    ----------
    rows : Rows
    scaling : Scaling
    dtype : str
        Precision of the inputs.
    read_rows : int, optional
        Maximum rows of a unit that are read at a time.
    """

    rows: Rows
    scaling: scaling.Scaling
    dtype: str = "float64"
    read_rows: int | None = None

    def spans(self, unit: Unit, device: str) -> Sequence[Span]:
        """Return the parts in which a unit is read: a GPU works on one while the next is read."""
        if self.read_rows is not None:
            return parts(*unit.own, self.read_rows) or [unit.own]
        return [unit.own] if device == "cpu" else whole_chunks(unit.own, self.rows.chunks)

    def block(self, span: Span, unit: Unit | None = None) -> Block:
        """Return scaled complete rows, or those drawn from a unit."""
        X, y, observed, _ = self._read(span, unit)
        return self.scaling.block(X, y, self.dtype, observed)

    def located(self, span: Span, unit: Unit | None = None) -> tuple[Block, np.ndarray]:
        """Return ``block`` and the numbers (n,) of its rows among all rows."""
        X, y, observed, places = self._read(span, unit)
        block = self.scaling.block(X, y, self.dtype, observed)
        return block, places[scaling.complete_rows(X, y)]

    def _read(
        self, span: Span, unit: Unit | None
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """Return X and y as ``Rows.read`` does, what is beside y, and the numbers of the rows."""
        (X, y), rows, places = self.rows.read(*span), self.rows, np.arange(*span)
        observed = rows.beside_in(rows.raw(*span)[1]) if rows.beside else {}
        if unit is not None and unit.draw is not None:
            drawn = unit.draw.among(unit.own, span)
            X, y, places = X[drawn], y[drawn], places[drawn]
            observed = {name: values[drawn] for name, values in observed.items()}
        return X, y, observed, places


@dataclass(frozen=True, eq=False)
class Given:
    """Scaled rows in memory, read in blocks.

    Parameters
    ----------
    rows : Block
    edges : tuple of int
        First row of each block, and the end of the last one.
    """

    rows: Block
    edges: tuple[int, ...]

    def spans(self, unit: Unit, device: str) -> Sequence[Span]:
        """Return the blocks of a unit."""
        inside = [edge for edge in self.edges if unit.own.start <= edge <= unit.own.stop]
        return [Span(*edge) for edge in itertools.pairwise(inside)] or [unit.own]

    def block(self, span: Span, unit: Unit | None = None) -> Block:
        """Return rows, or those drawn from a unit."""
        rows = self.rows.at(slice(*span))
        if unit is None or unit.draw is None:
            return rows
        return rows.at(unit.draw.among(unit.own, span))

    def located(self, span: Span, unit: Unit | None = None) -> tuple[Block, np.ndarray]:
        """Return ``block`` and the numbers (n,) of its rows among all rows."""
        places = np.arange(*span)
        if unit is not None and unit.draw is not None:
            places = places[unit.draw.among(unit.own, span)]
        return self.block(span, unit), places


Source: TypeAlias = Stored | Given
"""Source of the rows of units."""


class Points(NamedTuple):
    """All rows again, for passes that pair every row with all of them."""

    source: Source
    spans: tuple[Span, ...]
    panels: bool
    """True if spans are cut for their own sake, so that a few points may be held together."""

    @classmethod
    def of(cls, source: Source, spans: tuple[Span, ...], panel_rows: int | None) -> Self:
        """Return the rows of spans, in panels if ``panel_rows`` are given."""
        if panel_rows is None:
            return cls(source, spans, False)
        start, stop = min(s.start for s in spans), max(s.stop for s in spans)
        return cls(source, tuple(parts(start, stop, panel_rows)), True)


class Columns(Protocol):
    """Values that accompany points instead of their targets."""

    def rows(self, i: int, places: np.ndarray) -> np.ndarray:
        """Return the values of panel i, which has the rows at ``places``."""


@dataclass(eq=False)
class TaskPoints:
    """Points that a task reads for every use, or only once if they are few."""

    points: Points
    device: str
    _columns: Any = None
    _pieces: list[Piece] = field(default_factory=list)

    def pieces(self, columns: Columns) -> Iterator[Piece]:
        """Yield the points panel by panel; many points are on the device one panel at a time."""
        few = sum(span.rows for span in self.points.spans) <= HELD_POINTS
        if not (self.points.panels and few):
            yield from self._read(columns, streamed=True)
            return
        if self._columns is not columns:
            self._pieces, self._columns = list(self._read(columns, streamed=False)), columns
        yield from self._pieces

    def _read(self, columns: Columns, streamed: bool) -> Iterator[Piece]:
        waiting: deque[tuple[Span, np.ndarray]] = deque()

        def read(i: int) -> Block:
            span = self.points.spans[i]
            block, places = self.points.source.located(span)
            waiting.append((span, places))
            return Block(block.X, columns.rows(i, places))

        indices = range(len(self.points.spans))
        blocks: Iterator[Block] = (
            device_memory.ahead(read, indices, self.device)
            if streamed
            else (move(read(i), self.device) for i in indices)
        )
        for block in blocks:
            span, places = waiting.popleft()
            yield Piece(block, span=span, places=places)


class Kept(NamedTuple):
    """Residuals of a pass, on the host and piece by piece, and the most rows of a piece."""

    most: int
    residuals: list[Any]


class OverUnits(ABC):
    """Base of rounds: the units of a source of rows, wherever passes over them run."""

    units: tuple[Unit, ...]
    seed: int

    @property
    def barriers(self) -> Barriers | None:
        """Barriers between rows; none where tasks run, among whose shared values they are."""
        return None

    @abstractmethod
    def over(self, units: tuple[Unit, ...]) -> Self:
        """Return rounds over other units of the same source."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Rows of each unit, without those that it is conditioned on."""
        return tuple(unit.own for unit in self.units)

    @property
    def n_rows(self) -> int:
        """Number of rows of all units."""
        return sum(unit.own.rows for unit in self.units)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.units)

    def draw(self, share: float | None) -> Central:
        """Return a draw of a share of all rows, or of one row per unit."""
        return Central(share, self.seed)

    def drawn(self, draw: Draw | None) -> Self:
        """Return the same units, each with only its drawn rows."""
        return self.over(tuple(unit._replace(draw=draw) for unit in self.units))

    def batch(self, number: int, seed: int) -> Self:
        """Return about ``number`` rows of some spans, weighted by the inverse probability."""
        rng = np.random.default_rng([seed, 5])
        cut = [piece for span in self.spans for piece in parts(*span, DRAW_ROWS)]
        chosen = np.sort(rng.permutation(len(cut))[:DRAWS])
        share, units = len(cut) / len(chosen), []
        total = sum(cut[i].rows for i in chosen)
        for i in chosen:
            rows = min(cut[i].rows, max(1, round(number * cut[i].rows / total)))
            units.append(Unit(cut[i], (), share * cut[i].rows / rows, Some(rows, seed)))
        return self.over(tuple(units))


@dataclass(frozen=True, eq=False)
class TaskRounds(OverUnits):
    """Rounds over units in this process.

    Parameters
    ----------
    source : Source
    units : tuple of Unit
    device : {"cpu", "gpu"}
    seed : int
        Seed of the rows that are drawn.
    """

    source: Source
    units: tuple[Unit, ...]
    device: str = "cpu"
    seed: int = 0
    _read_once: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, units: Sequence[Sequence[Block]], device: str = "cpu") -> TaskRounds:
        """Return rounds over units in memory, each made of blocks of scaled rows."""
        blocks = [block for unit in units for block in unit]
        edges = np.cumsum([0, *(len(block.X) for block in blocks)]).tolist()
        ends = np.cumsum([0, *(sum(len(block.X) for block in unit) for unit in units)]).tolist()
        source = Given(Block.join(blocks), tuple(edges))
        return cls(source, tuple(Unit(Span(*edge)) for edge in itertools.pairwise(ends)), device)

    def over(self, units: tuple[Unit, ...]) -> Self:
        """Return rounds over other units of the same source."""
        return replace(self, units=units, _read_once={})

    def sum(self, over: Pass, *shared: Any, kept: Kept | None = None) -> Any:
        """Return the results of a pass summed over all units, on the host."""
        return self._run(over, shared, kept, False)[0]

    def forward(self, over: Pass, *shared: Any) -> tuple[Any, Kept | None]:
        """Return ``sum`` and the residuals that the pass leaves, if any."""
        if over.keeping is None:
            return self.sum(over, *shared), None
        return self._run(over, shared, None, True)

    def gather(self, over: Pass, *shared: Any) -> list[Any]:
        """Return the result of a pass for each unit; a ``together`` pass returns a list itself."""
        if over.together:
            return list(self.sum(over, *shared))
        return [self._only(unit).sum(over, *shared) for unit in self.units]

    def map(
        self,
        function: Callable[..., Any],
        *shared: Any,
        which: Sequence[int] | None = None,
        arguments: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Return ``function(rows, *shared, argument)`` for each unit."""
        units = self.units if which is None else [self.units[i] for i in which]
        more = [()] * len(units) if arguments is None else [(a,) for a in arguments]
        return [
            function(self._only(unit), *shared, *own) for unit, own in zip(units, more, strict=True)
        ]

    def values(self, over: Pass, width: int, *shared: Any) -> np.ndarray:
        """Return values (n, width) of a located pass by row; 0 for rows with missing values."""
        results = []
        for unit in self.units:
            own = np.zeros((unit.own.rows, width))
            for places, rows in self._only(unit).sum(_listed(over), *shared):
                own[places - unit.own.start] = rows
            results.append(own)
        return np.concatenate(results)

    def points(self, panel_rows: int | None = None) -> Points:
        """Return all rows again, unit by unit or in panels."""
        return Points.of(self.source, self.spans, panel_rows)

    def hold(self, value: Any) -> Any:
        """Return a value to share with many passes."""
        return value

    def solving(self, order: int | None) -> AbstractContextManager[Any]:
        """Return an empty context for solves: a task has one thread."""
        return nullcontext()

    # -- pieces ------------------------------------------------------------------------------

    def _only(self, unit: Unit) -> TaskRounds:
        return self if len(self.units) == 1 else self.over((unit,))

    def _run(
        self, over: Pass, shared: Sequence[Any], kept: Kept | None, keep: bool
    ) -> tuple[Any, Kept]:
        def work(most: int) -> tuple[Any, Kept]:
            try:
                return attempt(most)
            except DeviceMemoryError:
                self._read_once.clear()
                raise

        def attempt(most: int) -> tuple[Any, Kept]:
            on_device = [self._shared(value) for value in shared]
            total, residuals = None, []
            for pieces in self._given(over, most, kept):
                if keep:
                    assert over.keeping is not None
                    statistics, left = over.keeping(pieces, *on_device)
                    several = left if over.together else [left]
                    residuals += [self._moved(one, "cpu") for one in several]
                else:
                    statistics = over.function(pieces, *on_device)
                total = statistics if total is None else over.combine(total, statistics)
            return self._moved(total, "cpu"), Kept(most, residuals)

        return self._fitting(over, work, shared)

    def _shared(self, value: Any) -> Any:
        if isinstance(value, Points):
            return TaskPoints(value, self.device)
        return self._moved(value, self.device)

    def _moved(self, value: Any, device: str) -> Any:
        """Return ``move(value, device)``; a task on the CPU has nothing to move."""
        return value if self.device == "cpu" else move(value, device)

    def _given(self, over: Pass, most: int, kept: Kept | None) -> Iterator[Any]:
        pieces = self._cut(over, most) if over.cut else self._whole(over)
        if kept is not None and kept.residuals and (over.together or kept.most == most):
            pieces = (
                piece._replace(kept=self._moved(left, self.device))
                for piece, left in zip(pieces, kept.residuals, strict=True)
            )
        return _few(pieces, most) if over.together else pieces

    def _whole(self, over: Pass) -> Iterator[Piece]:
        """Yield whole units on the device, with the blocks near them, which are read only once."""
        if len(self.units) > 1 or self.units[0].near:
            yield from self._windows(over)
            return
        known = over.located, None
        if known not in self._read_once:  # an expert is evaluated again and again
            self._read_once[known] = list(self._windows(over))
        yield from self._read_once[known]

    def _windows(self, over: Pass) -> Iterator[Piece]:
        @functools.cache
        def read(span: Span, unit: Unit | None) -> tuple[Block, np.ndarray | None]:
            block, places = self._read(over, span, unit)
            return self._moved(block, self.device), places

        for unit in self.units:
            block, places = read(unit.own, unit if unit.draw else None)
            near = [read(span, None) for span in unit.near]
            there = tuple(own for _, own in near if own is not None)
            blocks = tuple(block for block, _ in near)
            yield Piece(block, blocks, unit.weight, unit.own, places, near_places=there)

    def _cut(self, over: Pass, most: int) -> Iterator[Piece]:
        """Yield the rows of units in pieces of at most ``most``, one at a time on the device."""
        cuts = [
            (unit, span, slice(*rows))
            for unit in self.units
            for span in self.source.spans(unit, self.device)
            for rows in parts(0, _drawn_of(span, unit), most) or [Span(0, 0)]
        ]
        if len(cuts) > 1:
            yield from self._ahead(over, cuts)
            return
        known = over.located, most
        if known not in self._read_once:  # an expert is evaluated again and again
            self._read_once[known] = list(self._ahead(over, cuts))
        yield from self._read_once[known]

    def _ahead(self, over: Pass, cuts: Sequence[tuple[Unit, Span, slice]]) -> Iterator[Piece]:
        read = functools.lru_cache(1)(functools.partial(self._read, over))
        waiting: deque[tuple[Unit, np.ndarray | None]] = deque()

        def part(cut: tuple[Unit, Span, slice]) -> Block:
            unit, span, rows = cut
            block, places = read(span, unit)
            # rows with missing values are gone: the last part takes what is left
            last = rows.stop == _drawn_of(span, unit)
            chosen = slice(rows.start, None if last else rows.stop)
            waiting.append((unit, None if places is None else places[chosen]))
            return block.at(chosen)

        blocks: Iterator[Block] = (
            map(part, cuts)
            if self.device == "cpu"
            else device_memory.ahead(part, cuts, self.device)
        )
        for block in blocks:
            unit, places = waiting.popleft()
            yield Piece(block, (), unit.weight, unit.own, places)

    def _read(self, over: Pass, span: Span, unit: Unit | None) -> tuple[Block, np.ndarray | None]:
        if over.located:
            return self.source.located(span, unit)
        return self.source.block(span, unit), None

    def _fitting(self, over: Pass, work: Callable[[int], T], shared: Sequence[Any]) -> T:
        """Work on as many rows, or uncut units, at a time as the device has memory for."""
        largest = max((unit.own.rows for unit in self.units), default=0)
        most = max(1, min(over.tile or largest, largest))
        if isinstance(self.source, Stored):
            most = min(most, self.source.read_rows or most)
        if self.device == "cpu":  # which one unit keeps busy
            return work(most if over.cut else 1)
        kind = over.name.rpartition("-")[0] or over.name
        if not over.cut:
            what = f"{over.described.format(rows=largest)} ({kind})"
            count = len(self.units) if over.together else 1
            more = {} if over.remedy is None else {"remedy": over.remedy}
            return device_memory.together(work, count, self.device, kind, what, **more)
        if isinstance(self.source, Stored) and over.method is not None:
            sizes = _sizes(self.source, shared[0])
            most = device_memory.rows_that_fit(over.method, sizes, most, self.device)
        return device_memory.shrinking(work, most, self.device, kind, over.remedy or FEWER)


def _few(pieces: Iterator[Piece], most: int) -> Iterator[list[Piece]]:
    """Yield the pieces in their order, ``most`` at a time."""
    while taken := list(itertools.islice(pieces, most)):
        yield taken


def _drawn_of(span: Span, unit: Unit) -> int:
    """Return how many rows of a span of a unit are worked on at most."""
    return span.rows if unit.draw is None else unit.draw.most(span.rows)


def _listed(over: Pass) -> Pass:
    """Return a pass that lists values together with their places."""
    return replace(over, function=functools.partial(_placed, over.function), combine=add_lists)


def _placed(function: Callable[..., Any], piece: Piece, *shared: Any) -> list[Any]:
    return [(piece.places, move(function(piece, *shared), "cpu"))]


def _sizes(source: Stored, prepared: Any) -> device_memory.Sizes:
    theta = prepared if isinstance(prepared, Theta) else prepared.theta
    return device_memory.Sizes(
        source.rows.n_features,
        source.rows.n_sides,
        0 if theta.inputs is None else len(theta.inputs),
        np.dtype(source.dtype).itemsize,
        theta.kernel.tiles,
    )
