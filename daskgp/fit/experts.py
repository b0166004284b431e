"""Rounds over experts: each has rows of its own, and what it finds stands beside the others'.

An expert is the unit of work: a task reads its rows block by block and gives a small result, such
as its own objective at its own hyper-parameters.  Experts with few rows share a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows
from daskgp.data.partition import TASK_ROWS, Span, even, parts
from daskgp.models import exact, scaling
from daskgp.models.exact import Exact
from daskgp.models.experts import inner_products
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.method import Model
from daskgp.models.scaling import Scaling
from daskgp.models.values import Block, Theta, ThetaBar, move
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import map_all, map_reduce, node
from daskgp.runtime.process import single_blas_thread, solve_threads

T = TypeVar("T")
P = TypeVar("P")
CENTRAL_STREAM = 3
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Central(NamedTuple):
    """Rows drawn at random: one of each expert, or a share of them all."""

    share: float | None
    seed: int

    def among(self, expert: Span, part: Span) -> np.ndarray:
        """Which rows of a part of an expert are drawn (r,); by their places alone."""
        if self.share is None:
            rng = np.random.default_rng([self.seed, CENTRAL_STREAM, expert.start])
            drawn = expert.start + int(rng.integers(max(expert.rows, 1)))
            return np.arange(part.start, part.stop) == drawn
        keys = np.random.PCG64([self.seed, CENTRAL_STREAM]).advance(part.start)
        return keys.random_raw(part.rows) < np.uint64(self.share * (2.0**64 - 2048))


@dataclass(frozen=True, eq=False)
class ExpertRounds:
    """The rounds over the experts of one set of rows.

    Parameters
    ----------
    rows : Rows
    spans : tuple of Span
        Rows of each expert, one after another.
    block_rows : int
        Most rows that a task holds of an expert.
    scaling, executor, dtype, device
        As for other rounds.
    """

    rows: Rows
    spans: tuple[Span, ...]
    block_rows: int
    scaling: Scaling
    executor: Executor
    dtype: str = "float64"
    device: str = "cpu"

    @property
    def counts(self) -> np.ndarray:
        """Values of y that each expert has (M,), missing ones included."""
        return np.array([span.rows * self.rows.n_targets for span in self.spans], np.float64)

    def summaries(self, model: SparseExperts | ExactExperts, theta: Theta, seed: int) -> list[Any]:
        """What the combination needs of each expert, in their order."""
        central = None
        if model.needs_central:
            central = Central(model.central, seed)
        with solve_threads(0 if theta.inputs is None else len(theta.inputs)):
            prepared = model.prepare(theta)
        task = partial(_summarise, self._reader(), model, central)
        shared = (node("prepared", prepared),)
        return map_all(task, self._groups(range(len(self.spans))), self.executor, "experts", shared)

    def cross(
        self, model: ExactExperts, theta: Theta, weights: Sequence[np.ndarray], seed: int
    ) -> inner_products.Cross:
        """Sums over rows of the functions of all experts, and their products with one another.

        Of all rows; of a share where ``central`` is set; and for the paper's weights as printed,
        products over one row of each expert and the rest over all rows.
        """
        share, letter = model.central, model.weights == "paper" and model.central is None
        everywhere = None if share is None else Central(share, seed)
        products = Central(None, seed) if letter else everywhere
        starts = np.concatenate([[0], np.cumsum([len(w) for w in weights])])
        functions = _Functions(theta, np.concatenate(weights), starts)
        task = partial(_cross_sums, self._reader(), everywhere, products)
        pieces, shared = range(len(self.spans)), (node("functions", functions),)
        found: inner_products.Cross = map_reduce(
            task, inner_products.combine, pieces, self.executor, "cross", shared
        )
        return found

    def _reader(self) -> _Reader:
        edges = np.array([span.start for span in self.spans] + [self.spans[-1].stop])
        return _Reader(self.rows, edges, self.block_rows, self.scaling, self.dtype, self.device)

    def _groups(self, which: Sequence[int]) -> list[tuple[int, ...]]:
        """Experts of each task: those with few rows share one as long as there are many."""
        most = max(1, max((span.rows for span in self.spans), default=1))
        wide = per_task(most, len(which))
        return [tuple(which[i : i + wide]) for i in range(0, len(which), wide)]


def per_task(most: int, count: int) -> int:
    """Experts of a task, where ``count`` have ``most`` rows each."""
    return max(1, min(TASK_ROWS // max(most, 1), count // 16))


@dataclass(frozen=True, eq=False)
class Objectives:
    """Each expert's own objective, as training wants it: a function of a vector.

    ``model`` is the method that an expert is for itself.
    """

    rounds: ExpertRounds
    model: Model
    theta: Theta
    with_inputs: bool

    @property
    def counts(self) -> np.ndarray:
        """Values of y that each expert has (M,)."""
        return self.rounds.counts

    def map(
        self, work: Callable[[Evaluate, Any], Any], which: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """``work(evaluate, argument)`` for each expert of ``which``, in that order."""
        given = dict(zip(which, arguments, strict=True))
        groups = self.rounds._groups(list(which))
        pieces = [[(i, given[i]) for i in group] for group in groups]
        task = partial(_work, self.rounds._reader(), self.model, self.theta, self.with_inputs, work)
        return map_all(task, pieces, self.rounds.executor, "train")

    def evaluate(self, vector: np.ndarray) -> list[tuple[float, np.ndarray]]:
        """Value and gradient (k,) of every expert at one vector, in their order.

        Unlike ``map`` it may have several small experts factored side by side.
        """
        groups = self.rounds._groups(range(len(self.rounds.spans)))
        shared = (node("vector", vector),)
        task = partial(
            _evaluate_all, self.rounds._reader(), self.model, self.theta, self.with_inputs
        )
        return map_all(task, groups, self.rounds.executor, "train", shared)


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads, cleans, scales and moves the rows of experts, on the worker."""

    rows: Rows
    edges: np.ndarray
    """First row of each expert, and the last one's end: small, for it goes with every task."""
    block_rows: int
    scaling: Scaling
    dtype: str
    device: str

    def __len__(self) -> int:
        return len(self.edges) - 1

    def span(self, i: int) -> Span:
        """The rows of expert i."""
        return Span(int(self.edges[i]), int(self.edges[i + 1]))

    def parts(self, i: int) -> list[Span]:
        """The rows of expert i in equal parts, one at least."""
        span = self.span(i)
        return parts(span.start, span.stop, self.block_rows) or even(span.start, span.stop, 1)

    def blocks(self, i: int, central: Central | None = None) -> Iterator[Block]:
        """The rows of expert i, or those of them that are drawn, part by part."""
        for part in self.parts(i):
            yield self.block(i, part, central)

    def streamed(self, i: int, central: Central | None = None) -> Iterator[Block]:
        """``blocks`` that are used one at a time, the next on its way meanwhile."""
        return device_memory.ahead(partial(self._read, i, central=central), self.parts(i), self.on)

    def block(self, i: int, part: Span, central: Central | None = None) -> Block:
        """A part of the rows of expert i, or those of them that are drawn."""
        block: Block = move(self._read(i, part, central), self.on)
        return block

    def _read(self, i: int, part: Span, central: Central | None = None) -> Block:
        X, y = self.rows.read(*part)
        if central is not None:
            drawn = central.among(self.span(i), part)
            X, y = X[drawn], y[drawn]
        return self.scaling.block(X, y, self.dtype)

    def held(self, i: int, divides: bool) -> Callable[[], Iterator[Block]]:
        """Reads the rows of expert i again and again; once where they are one part."""
        if len(self.parts(i)) > 1:
            return partial(self.streamed if divides else self.blocks, i)
        found = list(self.blocks(i))
        return lambda: iter(found)

    @property
    def on(self) -> str:
        """The device of this process."""
        return resolve_device(self.device)


def _summarise(
    reader: _Reader,
    model: SparseExperts | ExactExperts,
    central: Central | None,
    experts: tuple[int, ...],
    prepared: Any,
) -> list[Any]:
    with single_blas_thread():
        there = device_memory.whole(
            partial(move, prepared, reader.on), reader.on, "what experts share"
        )
        if not model.divisible:
            summarise = partial(cast(ExactExperts, model).summarise_many, there)
            return _side_by_side(reader, experts, model.name, reader.blocks, summarise)

        def work(i: int, most: int) -> Any:
            cut = replace(reader, block_rows=most)
            more = () if central is None else (cut.streamed(i, central),)
            return move(model.summarise(there, cut.streamed(i), *more), "cpu")

        found = (partial(work, i) for i in experts)
        return [
            device_memory.shrinking(one, reader.block_rows, reader.on, model.name) for one in found
        ]


def _side_by_side(
    reader: _Reader,
    experts: Sequence[int],
    kind: str,
    read: Callable[[int], P],
    work: Callable[[list[P]], list[T]],
) -> list[T]:
    """``work`` on what is read of experts that cannot be cut, of several together on a GPU."""

    def some(most: int) -> list[T]:
        some_of = device_memory.few(experts, most)
        return [found for few in some_of for found in work([read(i) for i in few])]

    largest = max(reader.span(i).rows for i in experts)
    what = f"an expert of {largest} rows ({kind})"
    return device_memory.together(some, len(experts), reader.on, kind, what)


class _Functions(NamedTuple):
    """The experts' means as functions: k(., x) weighted by alpha (n, p), and where each begins."""

    theta: Theta
    weights: np.ndarray
    starts: np.ndarray

    def of(self, i: int) -> slice:
        """Rows of expert i among the weights."""
        return slice(int(self.starts[i]), int(self.starts[i + 1]))


def _cross_sums(
    reader: _Reader,
    everywhere: Central | None,
    products: Central | None,
    i: int,
    functions: _Functions,
) -> inner_products.Cross:
    what = f"an expert of {reader.span(i).rows} rows (its functions at those of all)"

    def sums(central: Central | None) -> inner_products.Cross:
        return device_memory.whole(
            partial(_sums_of, reader, functions, i, central), reader.on, what
        )

    with single_blas_thread():
        found = sums(everywhere)
        if products is everywhere:
            return found
        few = sums(products)
        return few._replace(hilbert=found.hilbert)


def _sums_of(
    reader: _Reader, functions: _Functions, i: int, central: Central | None
) -> inner_products.Cross:
    """Sums over the rows of expert i, or over those of them that are drawn."""
    span, own = reader.span(i), functions.weights[functions.of(i)]
    if central is not None:
        complete = scaling.complete_rows(*reader.rows.read(*span))
        own = own[central.among(span, span)[complete]]
    others = device_memory.ahead(
        partial(_function, reader, functions), range(len(reader)), reader.on
    )
    block, kernel = reader.block(i, span, central), functions.theta.kernel
    return inner_products.cross_sums(kernel, block, own, i, others, len(reader))


def _function(reader: _Reader, functions: _Functions, i: int) -> Block:
    """All rows X of an expert and, in the place of y, the weights of its function."""
    return Block(reader._read(i, reader.span(i)).X, functions.weights[functions.of(i)])


def _work(
    reader: _Reader,
    model: Model,
    theta: Theta,
    with_inputs: bool,
    work: Callable[[Evaluate, Any], Any],
    piece: list[tuple[int, Any]],
) -> list[Any]:
    with single_blas_thread():
        of = partial(_evaluate_one, model, theta, with_inputs, reader)
        return [work(partial(of, i, _held(reader, i, model)), argument) for i, argument in piece]


def _held(reader: _Reader, i: int, model: Model) -> Callable[[int], Callable[[], Iterator[Block]]]:
    """The rows of expert i in parts of so many at most; where one is enough, it is read once.

    Parts are used one at a time but where all rows are one matrix.
    """

    @lru_cache(1)
    def held(most: int) -> Callable[[], Iterator[Block]]:
        return replace(reader, block_rows=most).held(i, model.divisible)

    return held


def _evaluate_all(
    reader: _Reader,
    model: Model,
    theta: Theta,
    with_inputs: bool,
    experts: tuple[int, ...],
    vector: np.ndarray,
) -> list[tuple[float, np.ndarray]]:
    """Objectives of the experts of a task and their gradients (k,), at one vector."""
    with single_blas_thread():
        if not model.divisible:
            at = theta.from_vector(vector)
            return _evaluate_exact(reader, cast(Exact, model), at, experts, reader.blocks)
        of = partial(_evaluate_one, model, theta, with_inputs, reader)
        return [of(i, _held(reader, i, model), vector) for i in experts]


def _evaluate_exact(
    reader: _Reader,
    model: Exact,
    theta: Theta,
    experts: Sequence[int],
    read: Callable[[int], Iterable[Block]],
) -> list[tuple[float, np.ndarray]]:
    """The same of exact experts, wholly on the device."""

    def rows(i: int) -> exact.Rows:
        return reduce(model.combine, (model.local(theta, block) for block in read(i)))

    def objectives(few: list[exact.Rows]) -> list[tuple[float, np.ndarray]]:
        found = model.objective_many(theta, few)
        return [(each.value, each.gradient.to_vector(False)) for each in found]

    return _side_by_side(reader, experts, model.name, rows, objectives)


def _evaluate_one(
    model: Model,
    theta: Theta,
    with_inputs: bool,
    reader: _Reader,
    i: int,
    held: Callable[[int], Callable[[], Iterator[Block]]],
    vector: np.ndarray,
) -> tuple[float, np.ndarray]:
    """One expert's objective and its gradient (k,).

    Blocks are on the device; what is small is solved on the host.
    """
    device, at = reader.on, theta.from_vector(vector)
    if not model.divisible:
        return _evaluate_exact(
            reader, cast(Exact, model), at, [i], lambda _: held(reader.block_rows)()
        )[0]

    def work(most: int) -> tuple[float, np.ndarray]:
        prepared = model.prepare(at)
        moved, blocks = move(prepared, device), held(most)
        total = reduce(model.combine, (model.local(moved, block) for block in blocks()))
        objective = model.objective(prepared, move(total, "cpu"))
        gradient = objective.gradient.to_vector(with_inputs)
        if objective.cotangent is not None:
            cotangent = move(objective.cotangent, device)
            for block in blocks():
                through: ThetaBar = model.local_vjp(moved, block, cotangent)
                gradient = gradient + through.to_vector(with_inputs)
        return objective.value, gradient

    return device_memory.shrinking(work, reader.block_rows, device, model.name)
