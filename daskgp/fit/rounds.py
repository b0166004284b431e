"""One round: map over blocks, sum in a fixed order.

Every round is a small fresh graph.  A map task reads its own rows, drops those with missing
values, scales them and summarises them; what is common to all tasks is one node.  The tree sum
has the same shape whatever the workers, so the result has the same bits.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows
from daskgp.data.blocks.layout import Layout
from daskgp.data.partition import TASK_ROWS, Span, Window, parts, per_task
from daskgp.models import scaling
from daskgp.models.exact import Exact
from daskgp.models.values import Block, LocalModel, Model, Objective, Theta, ThetaBar, move
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor, single_blas_thread, solve_threads
from daskgp.typing import Device

T = TypeVar("T")
FAN_IN = 8
KEEP_SHARE, KEEP_BYTES = 0.15, 128 * 2**20
"""Share of the workers' memory for factors that wait for the gradient, and most bytes of them a
process: a fit is not to take much memory only because it is there."""


def map_reduce(
    task: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
) -> Any:
    """The sum over pieces of work of ``task(piece, *shared)``.

    Parameters
    ----------
    task : callable
        Pure; given a piece and the values of ``shared``.
    combine : callable
        Associative; sums neighbours, FAN_IN at a time, in the order of the pieces.
    pieces : sequence
        Small values that say what a task works on, such as the span of its rows.
    executor : Executor
        Where to run.
    label : str
        Names the tasks on the dashboard and the progress bar.
    shared : sequence of Delayed
        Broadcast once.
    """
    return tree_sum(
        mapped(task, [(piece, *shared) for piece in pieces], label), combine, executor, label
    )


def map_all(
    task: Callable[..., list[Any]],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
) -> list[Any]:
    """The lists that ``task(piece, *shared)`` gives, joined in the order of the pieces."""
    nodes = mapped(task, [(piece, *shared) for piece in pieces], label)
    return list(itertools.chain.from_iterable(executor.compute_all(nodes, label)))


def mapped(
    task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], label: str
) -> list[Delayed]:
    """A node for each tuple of arguments."""
    tag = uuid.uuid4().hex[:8]  # a round is never mistaken for an earlier one
    of = delayed(task, pure=False, traverse=False)
    return [of(*given, dask_key_name=f"{label}-{tag}-{i}") for i, given in enumerate(arguments)]


def tree_sum(
    nodes: list[Delayed],
    combine: Callable[[Any, Any], Any],
    executor: Executor,
    label: str,
    in_place: bool = True,
) -> Any:
    """The sum of nodes, FAN_IN neighbours at a time, in their order.

    A ``combine`` that adds ``in_place`` is given a copy: a task may run again on the same inputs.
    """
    root = _tree(nodes, partial(_fold, combine, in_place), f"{label}-sum-{uuid.uuid4().hex[:8]}")
    return executor.compute(root, nodes, label)


def _tree(nodes: list[Delayed], fold_in_order: Callable[..., Any], name: str) -> Delayed:
    fold = delayed(fold_in_order, pure=False, traverse=False)
    for level in itertools.count():
        groups = [nodes[i : i + FAN_IN] for i in range(0, len(nodes), FAN_IN)]
        if len(nodes) == 1:
            return nodes[0]
        nodes = [
            fold(*group, dask_key_name=f"{name}-{level}-{i}") if len(group) > 1 else group[0]
            for i, group in enumerate(groups)
        ]
    raise AssertionError("unreachable")


def _fold(combine: Callable[[Any, Any], Any], in_place: bool, first: Any, *others: Any) -> Any:
    total = copy.deepcopy(first) if in_place else first
    for other in others:
        total = combine(total, other)
    return total


def describe(rows: Rows, spans: Sequence[Span], executor: Executor) -> scaling.Sums:
    """One pass over the raw rows for the scaling, the ranges and what has to be reported."""
    task = partial(_describe_block, rows)
    return map_reduce(task, scaling.combine, spans, executor, "describe")


def _describe_block(rows: Rows, span: Span) -> scaling.Sums:
    with single_blas_thread():
        return scaling.local(*rows.read(*span))


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of one method over one set of rows.

    ``windows`` are the blocks and what each is conditioned on; ``layout`` says more of them where
    the method wants rows in an order.
    """

    model: Model
    rows: Rows
    windows: tuple[Window, ...]
    scaling: scaling.Scaling
    executor: Executor
    dtype: str = "float64"
    device: Device = "cpu"
    layout: Layout | None = None
    landmarks: np.ndarray | None = None
    """Some rows (M, r, d) of each block of the layout, where the method looks for near blocks."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The rows that are summarised, without those near them."""
        return tuple(window.own for window in self.windows)

    def total(self, theta: Theta) -> Any:
        """The reduced summary of all blocks."""
        return self._round("local", node("prepared", self._prepare(theta)))

    def value_and_gradient(self, theta: Theta) -> Objective:
        """The objective on all rows with its whole gradient: two rounds."""
        prepared = self._prepare(theta)
        common, kept = node("prepared", prepared), None
        fitting = self._fitting_pieces(theta)
        if fitting:
            kept = self._keep(common, fitting)
            first = delayed(operator.itemgetter(0), pure=False)
            label = f"{self.model.name}-local"
            total = tree_sum([first(k) for k in kept], self.model.combine, self.executor, label)
        else:
            total = self._round("local", common)
        with self._solving(theta):
            objective = self.model.objective(prepared, total)
        if objective.cotangent is None:
            return objective
        cotangent = node("cotangent", objective.cotangent)
        through = self._round("gradient", common, cotangent, each=kept)
        gradient = _add_gradients(objective.gradient, through)
        return objective._replace(gradient=gradient, cotangent=None)

    def block_gradients(self, theta: Theta) -> np.ndarray:
        """Gradient (blocks, k) by the hyper-parameters through each block's summary: two rounds.

        They sum up to the whole gradient of a method whose objective depends on them through the
        blocks alone.
        """
        prepared = self._prepare(theta)
        common = node("prepared", prepared)
        total = self._round("local", common)
        with self._solving(theta):
            cotangent = node("cotangent", self.model.objective(prepared, total).cotangent)
        label = f"{self.model.name}-gradients"
        return np.array(
            map_all(self._task().each, self._pieces(), self.executor, label, (common, cotangent))
        )

    def solve(self, theta: Theta) -> tuple[Any, float]:
        """What prediction needs, and the value of the objective: one round."""
        prepared = self._prepare(theta)
        total = self._round("local", node("prepared", prepared))
        with self._solving(theta):
            return self.model.solve(prepared, total), self.model.objective(prepared, total).value

    def _prepare(self, theta: Theta) -> Any:
        """What all blocks share, computed once and here, so that no machine has another jitter."""
        with self._solving(theta):
            return self.model.prepare(theta)

    def _solving(self, theta: Theta) -> AbstractContextManager[None]:
        order = sum(s.rows for s in self.spans) if theta.inputs is None else len(theta.inputs)
        return solve_threads(order)

    def _round(self, what: str, *shared: Delayed, each: Sequence[Delayed] | None = None) -> Any:
        """One map with its sum; ``each`` gives every task one more argument of its own."""
        block = self._task()
        task = block.local if what == "local" else block.gradient
        combine = self.model.combine if what == "local" else _add_gradients
        pieces, label = self._pieces(), f"{self.model.name}-{what}"
        own = [()] * len(pieces) if each is None else [(one,) for one in each]
        arguments = [(piece, *shared, *more) for piece, more in zip(pieces, own, strict=True)]
        return tree_sum(mapped(task, arguments, label), combine, self.executor, label)

    def _task(self) -> _BlockTask:
        return _BlockTask(self.model, self.rows, self.scaling, self.dtype, self.device)

    def _pieces(self) -> list[tuple[Window, ...]]:
        count = len(self.windows)
        step = 1 if self.layout is None else per_task(count, self.layout.block_rows)
        return [self.windows[i : i + step] for i in range(0, len(self.windows), step)]

    def _keep(self, prepared: Delayed, fitting: int) -> list[Delayed]:
        """Summaries, the first with their factors, which stay with the workers that made them."""
        arguments = [(piece, prepared, i < fitting) for i, piece in enumerate(self._pieces())]
        label = f"{self.model.name}-factor"
        return self.executor.persist(mapped(self._task().keep, arguments, label))

    def _fitting_pieces(self, theta: Theta) -> int:
        """Pieces of work, from the first on, whose factors fit the memory that they may have."""
        stays = self.executor.client is not None or self.executor.shares_memory
        if not (self.model.keeps_rows and stays) or theta.inputs is None:
            return 0
        model, p = cast(LocalModel[Any, Any, Any], self.model), self.rows.n_targets
        m = len(theta.inputs)
        needed = [
            sum(model.window_bytes(own.rows + sum(s.rows for s in near), m, p) for own, near in few)
            for few in self._pieces()
        ]
        return int(np.searchsorted(np.cumsum(needed), kept_bytes(self.executor), side="right"))


def kept_bytes(executor: Executor) -> float:
    """Most bytes of factors that wait for the gradient in all workers together."""
    return min(KEEP_SHARE * executor.memory(), KEEP_BYTES * executor.processes())


def node(name: str, value: Any) -> Delayed:
    """A value as one node of a graph."""
    return delayed(value, name=f"{name}-{uuid.uuid4().hex[:8]}", traverse=False)


@dataclass(frozen=True, eq=False)
class _BlockTask:
    """What a map task does, on the worker: read, clean, scale, move, summarise, move back."""

    model: Model
    rows: Rows
    scaling: scaling.Scaling
    dtype: str
    device: str

    def local(self, windows: tuple[Window, ...], prepared: Any) -> Any:
        def work(most: int) -> Any:
            found = self._summaries(windows, move(prepared, device), most, device)
            return move(functools.reduce(self.model.combine, found), "cpu")

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def _summaries(
        self, windows: tuple[Window, ...], prepared: Any, most: int, device: str
    ) -> Iterator[Any]:
        """Summaries of blocks, or of ``most`` of a local method's together."""
        blocks = self._blocks(windows, most, device)
        if self.model.keeps_rows:
            model = cast(LocalModel[Any, Any, Any], self.model)
            yield from (model.local_many(prepared, few) for few in device_memory.few(blocks, most))
            return
        for block, near in blocks:
            yield self.model.local(prepared, block, near)

    def keep(self, windows: tuple[Window, ...], prepared: Any, fit: bool) -> tuple[Any, list[Any]]:
        """``local``, with the factors of the blocks, on the host, where they ``fit``."""
        if not fit:
            return self.local(windows, prepared), []
        model = cast(LocalModel[Any, Any, Any], self.model)

        def work(most: int) -> tuple[Any, list[Any]]:
            there, stats, kept = move(prepared, device), [], []
            for few in device_memory.few(self._blocks(windows, most, device), most):
                found, factored = model.local_and_windows(there, few)
                stats.append(found)
                kept += [move(window, "cpu") for window in factored]
            return move(functools.reduce(model.combine, stats), "cpu"), kept

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def gradient(
        self,
        windows: tuple[Window, ...],
        prepared: Any,
        cotangent: Any,
        kept: tuple[Any, list[Any]] | None = None,
    ) -> ThetaBar:
        def work(most: int) -> ThetaBar:
            there, through = move(prepared, device), move(cotangent, device)
            factored = None if kept is None else kept[1]
            found = self._gradients(windows, there, through, factored, most, device)
            return functools.reduce(_add_gradients, found)

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def each(self, windows: tuple[Window, ...], prepared: Any, cotangent: Any) -> list[np.ndarray]:
        """The gradient (k,) by the hyper-parameters through each block."""
        return [
            self.gradient((window,), prepared, cotangent).to_vector(with_inputs=False)
            for window in windows
        ]

    def _gradients(
        self,
        windows: tuple[Window, ...],
        prepared: Any,
        cotangent: Any,
        kept: list[Any] | None,
        most: int,
        device: str,
    ) -> Iterator[ThetaBar]:
        """Gradients through blocks, or through ``most`` of a local method's together."""
        blocks = self._blocks(windows, most, device)
        if self.model.keeps_rows:
            model, waiting = cast(LocalModel[Any, Any, Any], self.model), iter(kept or ())
            for few in device_memory.few(blocks, most):
                own = [move(window, device) for window in itertools.islice(waiting, len(few))]
                yield model.local_vjp_many(prepared, few, cotangent, own or None)
            return
        for block, near in blocks:
            yield self.model.local_vjp(prepared, block, cotangent, near)

    def _fitting(
        self,
        work: Callable[[int], T],
        windows: tuple[Window, ...],
        prepared: Any,
        device: str,
    ) -> T:
        """``work`` on as many rows, or blocks that cannot be cut, as the device has memory for."""
        largest = max(own.rows for own, _ in windows)
        if not self._divides:
            what = f"a block of {largest} rows ({self.model.name})"
            pieces = len(windows) if self.model.keeps_rows else 1
            return device_memory.together(work, pieces, device, self.model.name, what)
        rows = device_memory.rows_that_fit(self.model, self._sizes(prepared), largest, device)
        return device_memory.shrinking(work, rows, device, self.model.name)

    @property
    def _divides(self) -> bool:
        """Whether a block may be summarised part by part: its summary is a sum over rows."""
        return not (self.model.keeps_rows or isinstance(self.model, Exact))

    def _sizes(self, prepared: Any) -> device_memory.Sizes:
        theta = prepared if isinstance(prepared, Theta) else prepared.theta
        return device_memory.Sizes(
            self.rows.n_features,
            self.rows.n_targets,
            0 if theta.inputs is None else len(theta.inputs),
            np.dtype(self.dtype).itemsize,
            theta.kernel.tiles,
        )

    def _blocks(
        self, windows: tuple[Window, ...], most: int, device: str
    ) -> Iterator[tuple[Block, tuple[Block, ...]]]:
        """Blocks on the device with those near them, read and scaled.

        On a GPU one that divides comes in parts of ``most`` rows, ahead of their use.
        """
        if self._divides and device != "cpu":
            pieces = [piece for own, _ in windows for piece in self._pieces(own, most)]
            for block in device_memory.ahead(self._read_part(), pieces, device):
                yield block, ()
            return
        # neighbours share those near them
        read = functools.cache(lambda span: move(self._read(span), device))
        for own, near in windows:
            yield read(own), tuple(map(read, near))

    def _pieces(self, own: Span, most: int) -> list[tuple[Span, slice]]:
        """What is read of a block at a time, whole chunks of some size, and rows of it."""
        read = device_memory.whole_chunks(own, self.rows.chunks)
        return [
            (span, slice(*part))
            for span in read
            for part in parts(0, span.rows, most) or [Span(0, 0)]
        ]

    def _read_part(self) -> Callable[[tuple[Span, slice]], Block]:
        """Reads parts of spans one after another, each span once."""
        read = functools.lru_cache(1)(self._read)

        def part(piece: tuple[Span, slice]) -> Block:
            block, rows = read(piece[0]), piece[1]
            # rows with missing values have gone: the last part has what is left
            last = rows.stop == piece[0].rows
            few = slice(rows.start, None if last else rows.stop)
            return Block(block.X[few], block.y[few])

        return part

    def _read(self, span: Span) -> Block:
        return self.scaling.block(*self.rows.read(*span), self.dtype)

    def _device(self) -> str:
        return resolve_device(self.device)


def _add_gradients(a: ThetaBar, b: ThetaBar) -> ThetaBar:
    inputs = a.inputs if b.inputs is None else b.inputs
    if a.inputs is not None and b.inputs is not None:
        inputs = a.inputs + b.inputs
    return ThetaBar(a.kernel + b.kernel, a.noise + b.noise, inputs)


def landmarks(rows: Rows, spans: Sequence[Span], number: int, executor: Executor) -> np.ndarray:
    """``number`` evenly spaced rows of each block (M, number, d), in the units of X."""
    wide = max(1, TASK_ROWS // max(1, spans[0].rows))
    pieces = [tuple(spans[i : i + wide]) for i in range(0, len(spans), wide)]
    task = partial(_landmarks_of, rows, number)
    return np.asarray(map_reduce(task, _one_after_another, pieces, executor, "landmarks"))


def _landmarks_of(rows: Rows, number: int, spans: tuple[Span, ...]) -> np.ndarray:
    X, _ = rows.read(spans[0].start, spans[-1].stop)
    at = [np.rint(np.linspace(s.start, s.stop - 1, number)).astype(int) for s in spans]
    return np.asarray(X[np.array(at) - spans[0].start], np.float64)


def _one_after_another(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])


class Drawn(NamedTuple):
    """Scaled rows with a random key each, in their order."""

    keys: np.ndarray
    X: np.ndarray
    y: np.ndarray

    def smallest(self, number: int) -> Drawn:
        """The rows with the ``number`` smallest keys."""
        if len(self.keys) <= number:
            return self
        chosen = np.sort(np.argpartition(self.keys, number)[:number])
        return Drawn(*(part[chosen] for part in self))


def gather_sample(
    rows: Rows,
    spans: Sequence[Span],
    scale: scaling.Scaling,
    number: int,
    seed: int,
    executor: Executor,
) -> Block:
    """``number`` scaled rows drawn uniformly from all without missing values, or all there are."""
    found = draw(rows, spans, scale, number, (seed, 1), executor)
    return Block(found.X, found.y)


def draw(
    rows: Rows,
    spans: Sequence[Span],
    scale: scaling.Scaling,
    number: int,
    seed: tuple[int, ...],
    executor: Executor,
) -> Drawn:
    """``gather_sample`` with the rows' keys.

    A row's random key depends on its place alone and those with the smallest keys are drawn, so
    the sample is the same however rows are cut into blocks.
    """
    task = partial(_sample_block, rows, scale, number, seed)
    combine = partial(_sample_both, number)
    found: Drawn = map_reduce(task, combine, spans, executor, "sample")
    return found


class Nearest(NamedTuple):
    """The rows nearest to each of some places: squared distances and ``Drawn`` of each place."""

    away: tuple[np.ndarray, ...]
    rows: tuple[Drawn, ...]

    def smallest(self, number: int) -> Nearest:
        """The ``number`` nearest rows of each place; of equals those of smaller keys."""
        few = [
            np.lexsort((rows.keys, away))[:number]
            for away, rows in zip(self.away, self.rows, strict=True)
        ]
        return Nearest(
            tuple(away[i] for away, i in zip(self.away, few, strict=True)),
            tuple(
                Drawn(*(part[i] for part in rows)) for rows, i in zip(self.rows, few, strict=True)
            ),
        )


def draw_near(
    rows: Rows,
    spans: Sequence[Span],
    scale: scaling.Scaling,
    places: np.ndarray,
    number: int,
    seed: tuple[int, ...],
    executor: Executor,
) -> Drawn:
    """The ``number`` rows nearest to each of the places (s, d), in scaled units, each row once.

    Their keys are those that ``draw`` gives them with the same seed.
    """
    task = partial(_near_block, rows, scale, places, number, seed)
    combine = partial(_near_both, number)
    found: Nearest = map_reduce(task, combine, spans, executor, "near")
    keys, X, y = (np.concatenate(parts) for parts in zip(*found.rows, strict=True))
    _, first = np.unique(keys, return_index=True)
    return Drawn(keys[first], X[first], y[first])


def _near_block(
    rows: Rows,
    scale: scaling.Scaling,
    places: np.ndarray,
    number: int,
    seed: tuple[int, ...],
    span: Span,
) -> Nearest:
    with single_blas_thread():
        X, y = rows.read(*span)
        keys = row_keys(seed, span.start, len(X))[scaling.complete_rows(X, y)]
        there = Drawn(keys, *scale.block(X, y))
        away = tuple(((there.X - place) ** 2).sum(axis=1) for place in places)
        return Nearest(away, (there,) * len(places)).smallest(number)


def _near_both(number: int, a: Nearest, b: Nearest) -> Nearest:
    away = tuple(np.concatenate(both) for both in zip(a.away, b.away, strict=True))
    rows = tuple(
        Drawn(*(np.concatenate(parts) for parts in zip(*both, strict=True)))
        for both in zip(a.rows, b.rows, strict=True)
    )
    return Nearest(away, rows).smallest(number)


def row_keys(seed: tuple[int, ...], start: int, count: int) -> np.ndarray:
    """Random keys of rows from ``start`` on."""
    # one step of the generator a row
    return np.random.PCG64(list(seed)).advance(start).random_raw(count)


def _sample_block(
    rows: Rows, scale: scaling.Scaling, number: int, seed: tuple[int, ...], span: Span
) -> Drawn:
    with single_blas_thread():
        X, y = rows.read(*span)
        keys = row_keys(seed, span.start, len(X))
        keep = scaling.complete_rows(X, y)
        few = Drawn(keys[keep], X[keep], y[keep]).smallest(number)
        return Drawn(few.keys, *scale.block(few.X, few.y))


def _sample_both(number: int, a: Drawn, b: Drawn) -> Drawn:
    both = (np.concatenate(parts) for parts in zip(a, b, strict=True))
    return Drawn(*both).smallest(number)
