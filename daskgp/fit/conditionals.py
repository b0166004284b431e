"""Training on conditionals of rows: all of the first rows of the order, and a draw of the others.

The log density is a sum over rows given earlier ones.  The first rows, which are far apart, carry
the long distances, so all of them count; of the others some are drawn, with the inverse of their
probability as weight.  Neighbours are found once and held while the hyper-parameters move, and
found again where the proportions of lengthscales have changed.  The Fisher information, which comes
with the gradient, is the curvature of the trust region.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from dask.delayed import Delayed

from daskgp import train
from daskgp.arrays import backend
from daskgp.arrays.backend import resolve_device
from daskgp.checks import whole
from daskgp.data import Rows, partition
from daskgp.errors import NumericalError, SettingError
from daskgp.fit import hyperparameters, rounds, subset
from daskgp.fit.hyperparameters import ROUGH, TOLERATED, continued, say_lost
from daskgp.fit.recipe import Problem, Recipe, Run
from daskgp.fit.task import TaskRounds
from daskgp.kernels import Averaged, Kernel, Linear, Periodic, Product, Rotated, Sum
from daskgp.kernels.compose import Constant
from daskgp.models.markov.conditionals import Conditionals, Scores, log_densities, scores
from daskgp.models.markov.earlier import ranks
from daskgp.models.markov.vecchia import Shared, Vecchia
from daskgp.models.method import Pass
from daskgp.models.trend import contrasts
from daskgp.models.values import Piece, Theta, add, move
from daskgp.runtime.executor import mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread
from daskgp.train.callbacks import calling

logger: logging.Logger = logging.getLogger("daskgp")

EACH, LEAST, MOST = 10_000, 20_000, 100_000
"""Rows drawn for each hyper-parameter, and the least and most of them."""
FEWEST = 10
"""Rows for each hyper-parameter below which a draw says nothing about them."""
FIRST = 4_000
"""Number of the first rows of the order that all count."""
TRIAL = 4_000
"""Rows that starts are compared on, besides the first."""
UNITS = 256
"""Number of blocks that rows are drawn from, more of small ones."""
TASK_ROWS = 4_096
"""Rows whose conditionals one task evaluates, about: fewer take less time than a task does."""
AGAIN = 1.2
"""Ratio by which proportions of lengthscales change before neighbours are found again."""
TIMES = 4
"""Maximum number of times that neighbours are found."""
SCALES = (1.0, 0.25, 4.0, 0.0625, 16.0)
"""Multiples of all lengthscales that are tried."""
TRIED_ITERATIONS = 12
"""Most iterations of a start on few rows."""
STREAM = 9
"""Stream of random numbers of the draw."""
FIRST_ALIKE = 1_000
"""First rows that count alike where every doubling of the rows counts as much as others."""
HELD = 5
"""One of so many drawn rows is held out where fits to the others are compared."""


class Question(NamedTuple):
    """A question to tasks about rows, which sums over them answer.

    ``doubly`` weighs them by w (w - 1) for weights w; ``knots`` asks for derivatives by
    hyper-parameters of knots; ``held`` is True for rows that are held out alone, and False for the
    others alone.  ``other`` are hyper-parameters whose gains are asked for instead.
    """

    theta: Theta
    W: np.ndarray
    targets: int
    doubly: bool = False
    knots: bool = False
    held: bool | None = None
    other: Theta | None = None


class Draw(NamedTuple):
    """Rows that count: those ranked up to ``first``, and some of the others of some units.

    Units have ``share`` of the rows, and of theirs each is drawn with probability ``chance``, or
    all if that is None.  With ``evenly`` half of the weight is even over the doublings of the rows
    in their order, of ``rows``, each of which is drawn from as often.
    """

    first: int
    chance: float | None
    share: float
    seed: int
    rows: int
    evenly: bool

    def of_first(self, rank: np.ndarray) -> np.ndarray:
        """Return the numbers of rows ranked up to ``first``."""
        return np.flatnonzero(rank <= np.uint64(self.first))

    def of_others(self, rank: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the numbers of the other rows that are drawn."""
        keys = ranks(places, self.seed + STREAM)
        drawn = keys < (self._chances(rank) * 2.0**63).astype(np.uint64)
        return np.flatnonzero((rank > np.uint64(self.first)) & drawn)

    def _chances(self, rank: np.ndarray) -> np.ndarray:
        """Return the probabilities (n,) of other rows with ranks (n,)."""
        assert self.chance is not None
        before = rank * 2.0**-63 if self.evenly else np.ones(len(rank))
        return np.minimum(self.chance / np.maximum(before, 2.0**-63), 1.0)

    def often(self, rank: np.ndarray) -> np.ndarray | None:
        """Return how often rows with ranks (n,) count, or None for once each."""
        drawn = self.chance is not None
        if not (drawn or self.evenly):
            return None
        often = np.ones(len(rank))
        if drawn:
            others = rank > np.uint64(self.first)
            often[others] /= self._chances(rank)[others] * self.share
        if self.evenly:
            alike = min(FIRST_ALIKE, self.rows)
            even = self.rows / np.maximum(rank * 2.0**-63 * self.rows, alike)
            often *= 0.5 + 0.5 * even / (1.0 + np.log(self.rows / alike))
        return often


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """Conditionals of rows, which stay with the workers."""

    stage: rounds.Rounds
    nodes: list[Delayed]
    trend: int
    rows: int
    """Number of rows drawn."""
    worth: float = 1.0
    """Share of the weights of rows that the rows drawn tell."""

    def scores(self, theta: Theta, W: np.ndarray, **more: Any) -> Scores:
        """Return the sums over rows; ``more`` is asked as in ``Question``."""
        question = Question(theta, W, self.stage.rows.n_sides - self.trend, **more)
        total: Scores = self._summed(_scored, question, add)
        return total

    def _summed(self, function: Callable[..., Any], question: Question, combine: Any) -> Any:
        shared, begin = node("theta", question), partial(function, self.stage.device)
        nodes = mapped(begin, [(one, shared) for one in self.nodes], "conditionals")
        return tree_sum(nodes, combine, self.stage.executor, "conditionals")

    def weights(self, theta: Theta, held: bool | None = None) -> np.ndarray:
        """Return how products of the columns of y count: contrasts that a trend leaves."""
        W = np.eye(self.stage.rows.n_sides)
        if self.trend:
            first = self.scores(theta, W, held=held)
            W = np.asarray(contrasts(first.square, self.trend, first.rows).weights)
        return W

    def evaluate(
        self, theta: Theta, knots: bool = False, held: bool | None = None
    ) -> tuple[float, Scores]:
        """Return an estimate of the log evidence of all rows, and the sums with its derivatives.

        ``knots`` and ``held`` are as in ``Question``.
        """
        p = self.stage.rows.n_sides - self.trend
        found = self.scores(theta, self.weights(theta, held), knots=knots, held=held)
        seen = contrasts(found.square, self.trend, found.rows).value
        value = -0.5 * (seen + p * (found.logdet + found.rows * np.log(2 * np.pi)))
        return float(value), found

    def gains(
        self, theta: Theta, other: Theta, W: np.ndarray, held: bool | None = None
    ) -> np.ndarray:
        """Return sums over rows of what other hyper-parameters gain in log density.

        With gains d and weights w they are those of w, w d, w^2, w^2 d and w^2 d^2.
        """
        p = self.stage.rows.n_sides - self.trend
        question = Question(theta, W, p, held=held, other=other)
        return np.asarray(self._summed(_gained, question, np.add))

    def objective(self, theta: Theta, tape: train.Tape | None) -> Memory:
        """Return the estimate as a function of vectors, and the tape of its information."""
        return Memory(partial(self._at, theta), tape)

    def _at(self, theta: Theta, vector: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, found = self.evaluate(theta.from_vector(vector))
        return value, found.gradient, found.information


@dataclasses.dataclass
class Memory:
    """Value, gradient and information at a vector, of which the last are remembered.

    The information that was asked for is kept on the tape: an evaluation that a stopped run made
    has none otherwise.
    """

    compute: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]
    tape: train.Tape | None = None
    _kept: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)
    _last: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        for row in self.tape.read() if self.tape else ():
            size = (np.sqrt(1 + 4 * len(row)) - 1) / 2  # k + k^2 numbers
            vector, information = np.split(row, [round(size)])
            self._kept.append((vector, information.reshape(len(vector), -1)))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient (k,)."""
        value, gradient, information = self.compute(vector)
        self._last = [*self._last[-1:], (vector.copy(), information)]
        return value, gradient

    def information(self, vector: np.ndarray) -> np.ndarray:
        """Return the Fisher information (k, k)."""
        for known, information in self._kept:
            if np.array_equal(known, vector):
                return information
        information = self._computed(vector)
        if self.tape:
            self.tape.append(len(self._kept), np.concatenate([vector, information.ravel()]))
        self._kept.append((vector.copy(), information))
        return information

    def _computed(self, vector: np.ndarray) -> np.ndarray:
        for known, information in self._last:
            if np.array_equal(known, vector):
                return information
        return self.compute(vector)[2]


def refuse_few(recipe: Recipe, asked: int | Literal["auto"] | None, rows: Rows, n: int) -> None:
    """Raise SettingError if hyper-parameters are to be trained on a handful of n rows."""
    if asked is None or isinstance(asked, str):
        return
    count = recipe.asked.learned(recipe.kernel(rows), rows.n_features)
    least = min(FEWEST * count, n)
    if asked < least:
        raise SettingError(
            f"training_rows={asked} but {count} hyper-parameters are to be trained on them: choose "
            f"at least {least}, 'auto', or None for all {n} rows"
        )


def on_conditionals(
    asked: int | Literal["auto"] | None, model: Vecchia, problem: Problem, run: Run
) -> train.Trained:
    """Maximise the log evidence of drawn conditionals.

    Units are blocks with those in which their rows find their neighbours.  ``asked`` is the
    setting ``training_rows``.
    """
    stage, theta, first = problem.stage, problem.theta, model.first(problem.stage)
    number = wanted(asked, stage.n_rows, len(run.start))
    result, times = train.Trained(run.start, []), 0
    while True:
        times += 1
        now = theta.from_vector(run.start)
        shared = model.shared(now, first)
        drawn = draw(model, stage, shared, number, problem.recipe.seed())
        tape = run.tape and run.tape.stage(times - 1)
        staged = run._replace(tape=tape)
        last = drawn.rows >= stage.n_rows or number >= MOST
        trained = _maximised(problem, drawn, staged)
        result = trained._replace(history=continued(result.history, trained.history))
        if trained.stopped or times == TIMES:
            break
        found = model.shared(theta.from_vector(trained.vector), first)
        lost = _lost(drawn, theta, trained, run)
        more = drawn.rows
        if asked == "auto" and lost > TOLERATED:
            more = int(min(MOST, stage.n_rows, drawn.rows * lost / TOLERATED))
        if not _moved(shared.lengths, found.lengths) and (last or more <= number):
            break
        number = max(number, more)
        del drawn  # before the next are there
        run = run._replace(start=trained.vector)
    some = f"the conditionals of {drawn.rows} of {stage.n_rows} rows"
    say_lost(result, _lost(drawn, theta, result, run), some, "training_rows=None")
    return result


def best_start(model: Vecchia, problem: Problem) -> subset.Start:
    """Return the start with the largest evidence of few conditionals.

    Each kernel is trained on them, from the best of several common scales of its lengthscales:
    the subset cannot tell kernels apart that differ in how near rows explain a row.  They are
    compared given the neighbours that each of them finds, by all rows and evenly by distances to
    these: most of dense rows are conditioned on rows close by, where a kernel that says nothing of
    a gap may be slightly better.
    """
    recipe, stage, begun, *_ = problem
    first, seed = model.first(stage), recipe.seed()
    drawn = draw(model, stage, model.shared(begun.theta, first), FIRST + TRIAL, seed)
    few = {"tol": max(ROUGH, recipe.tol), "max_iter": min(TRIED_ITERATIONS, recipe.max_iter)}
    found = list[Theta]()
    for rival in (begun.theta, *begun.rivals, *begun.others):
        theta = dataclasses.replace(rival, inputs=begun.theta.inputs)
        part = problem._replace(start=begun._replace(theta=theta), checkpoint=None)
        run = hyperparameters.plan_run(part)
        starts = [np.clip(at, *run.bounds.T) for at in _scales(theta, run.start)]
        values = [_value(drawn, theta, at) for at in starts]
        if not np.isfinite(values).any():
            continue
        run = run._replace(start=starts[int(np.nanargmax(values))])
        with calling(None):  # the history begins later
            trained = _maximised(part, drawn, run, progress=False, **few)
        found.append(theta.from_vector(trained.vector))
    if not found:
        return begun
    best = found[0]
    if len(found) > 1:
        every = (model.shared(one, first) for one in found)
        own = (draw(model, stage, one, FIRST + TRIAL, seed, evenly=True) for one in every)
        evidence = [_value(d, t, t.to_vector(False)) for d, t in zip(own, found, strict=True)]
        best = found[int(np.argmax(evidence))]
    return begun._replace(theta=best, rivals=(), others=())


def draw(
    model: Vecchia,
    stage: rounds.Rounds,
    shared: Shared,
    number: int,
    seed: int,
    evenly: bool = False,
) -> Drawn:
    """Return conditionals of about ``number`` rows, half of which may be first ones.

    ``evenly`` is as in ``Draw``; rows whose order says more than their hash are not weighed by it.
    """
    total = stage.n_rows
    evenly = evenly and not model.tiers
    units, number = stage.units, max(number, 2)
    first = min(FIRST, number // 2)
    rank = np.sort(model.ranks(np.asarray(shared.first.places), shared.first.X))
    plan = Draw(2**64 - 1, None, 1.0, seed, total, evenly)
    if number < total:
        rng = np.random.default_rng([seed, STREAM])
        mean = total / len(stage.units)  # no more than half of the rows of a block on average
        count = max(UNITS, int(np.ceil(2.0 * (number - first) / mean)))
        units = partition.sample(stage.units, count, rng)
        share = sum(unit.own.rows for unit in units) / total  # of all rows, and of the others
        others = total * np.log(total / first) if evenly else total - first
        chance = min((number - first) / (share * others), 1.0)
        plan = plan._replace(first=int(rank[:first][-1]), chance=chance, share=share)
    # the first rows come from the sample that all tasks have
    stage = dataclasses.replace(stage, units=units)
    pass_ = Pass(
        f"{model.name}-draw", partial(_draw, model, plan), _joined, cut=False, located=True,
        in_place=False,
    )  # fmt: skip
    nodes = stage._mapped(partial(_of_task, pass_), pass_.name, (shared,))
    if number < total:
        nodes.append(node("first", _first(model, shared, plan)))
    drawn = min(number, total)
    parts = np.array_split(np.array(nodes, object), -(-drawn // TASK_ROWS))
    together = mapped(_together, [tuple(part) for part in parts if len(part)], pass_.name)
    kept = stage.executor.persist(together, pass_.name)
    heavy, weight = (drawn - first, 1.0 / (chance * share)) if number < total else (0, 1.0)
    worth = (drawn - heavy + heavy * weight) / max(drawn - heavy + heavy * weight**2, 1.0)
    return Drawn(stage, kept, model.trend, drawn, worth)


def made_by(stage: rounds.Rounds, pass_: Pass, shared: Shared, trend: int) -> Drawn:
    """Return the conditionals that a pass over units makes."""
    nodes = stage._mapped(partial(_of_task, pass_), pass_.name, (shared,))
    kept = stage.executor.persist(nodes, pass_.name)
    return Drawn(stage, kept, trend, 0)


def _of_task(
    over: Pass, rows: TaskRounds, *shared: Any, own: tuple[Any, ...]
) -> list[Conditionals]:
    found: list[Conditionals] = rows.sum(over, *shared)
    return found


def _draw(model: Vecchia, plan: Draw, piece: Piece, shared: Shared) -> list[Conditionals]:
    """Return the conditionals of the rows drawn from a piece."""
    places = piece.places
    assert places is not None
    rank = model.ranks(places, piece.own.X)
    own = plan.of_first(rank) if plan.chance is None else plan.of_others(rank, places)
    return (
        [model.given(piece, shared, own)._replace(often=plan.often(rank[own]))] if len(own) else []
    )


def _first(model: Vecchia, shared: Shared, plan: Draw) -> list[Conditionals]:
    """Return the conditionals of the first rows, which find their neighbours among themselves."""
    places, block = np.asarray(shared.first.places), shared.first.block
    piece = Piece(block, places=places)
    rank = model.ranks(places, block.X)
    own = plan.of_first(rank)
    often = plan.often(rank[own]) if plan.evenly else None
    return [model.given(piece, shared, own)._replace(often=often)]


def _together(*drawn: list[Conditionals]) -> list[Conditionals]:
    """Return the conditionals of several tasks."""
    return list(itertools.chain.from_iterable(drawn))


def _joined(a: list[Conditionals], b: list[Conditionals]) -> list[Conditionals]:
    return a + b


def _scored(device: str, drawn: list[Conditionals], asked: Question) -> Scores:
    """Return the sums over the rows of a task."""
    theta, s = asked.theta, len(asked.W)
    k = len(theta.kernel.log_parameters) + 1
    if asked.knots:
        assert theta.varying is not None
        k = theta.varying.logs.size
    total = Scores(np.zeros((s, s)), 0.0, np.zeros(k), np.zeros((k, k)), 0.0)
    with single_blas_thread():
        where = resolve_device(device)
        theta_there, W = move(theta, where), backend.to_device(asked.W, where)
        for c in map(partial(_asked_of, asked, where), drawn):
            found = scores(theta_there, c, W, asked.targets, asked.knots)
            total = add(total, move(found, "cpu"))
    return total


def _asked_of(asked: Question, where: str, c: Conditionals) -> Conditionals:
    """Return the rows in question, on a device, with the weights asked for."""
    often = np.ones(len(c.own)) if c.often is None else c.often
    if asked.doubly:
        c = c._replace(often=often * (often - 1.0))
    if asked.held is not None:
        rows = np.flatnonzero((np.arange(len(c.own)) % HELD == HELD - 1) == asked.held)
        c = c._replace(own=c.own[rows], near=c.near[rows], often=often[rows])
    return c if where == "cpu" else move(c, where)


def _gained(device: str, drawn: list[Conditionals], asked: Question) -> np.ndarray:
    """Return the sums of gains over the rows of a task, see ``Drawn.gains``."""
    total = np.zeros(5)
    with single_blas_thread():
        where = resolve_device(device)
        for c in map(partial(_asked_of, asked, where), drawn):
            W, targets = backend.to_device(asked.W, where), asked.targets
            both = (move(one, where) for one in (asked.theta, asked.other))
            before, after = (log_densities(one, c, W, targets) for one in both)
            w = np.ones(len(before)) if c.often is None else backend.to_host(c.often)
            d = after - before
            total += [one.sum() for one in (w, w * d, w**2, w**2 * d, w**2 * d**2)]
    return total


def _scales(theta: Theta, start: np.ndarray) -> list[np.ndarray]:
    """Return starts with all lengthscales multiplied by each of SCALES."""
    names = theta.kernel.parameter_names
    lengths = np.array(["lengthscale" in name for name in names], bool)
    starts = []
    for scale in SCALES:
        moved = start.copy()
        moved[: len(names)][lengths] += np.log(scale)
        starts.append(moved)
    return starts


def _value(drawn: Drawn, theta: Theta, vector: np.ndarray) -> float:
    try:
        return drawn.evaluate(theta.from_vector(vector))[0]
    except NumericalError:
        return -np.inf


def _maximised(problem: Problem, drawn: Drawn, run: Run, **more: Any) -> train.Trained:
    memory = drawn.objective(problem.theta, run.tape and run.tape.stage(TIMES))
    more |= {"information": memory.information, "quiet": True}
    run = run._replace(curvature=None)
    return hyperparameters.maximise(problem.recipe, memory, run, run.values, **more)


def wanted(asked: int | Literal["auto"] | None, rows: int, parameters: int) -> int:
    """Return how many of the rows to draw."""
    if asked == "auto":
        return int(np.clip(EACH * parameters, LEAST, MOST))
    if asked is None:
        return rows
    return max(whole("training_rows", asked, 1), 1)


def _moved(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether the proportions of units of distance, (d,) or (q, d), have changed."""
    if before.shape != after.shape:
        return True
    if before.ndim == 2:  # in some direction
        sizes = np.linalg.svd(after @ np.linalg.pinv(before))[1]
        return bool(sizes.max() > AGAIN * sizes.min())
    both = np.isfinite(before) & np.isfinite(after)
    if (np.isfinite(before) != np.isfinite(after)).any():
        return True
    if both.sum() < 2:
        return False
    change = np.log(after[both] / before[both])
    return bool(np.ptp(change) > np.log(AGAIN))


def _lost(drawn: Drawn, theta: Theta, trained: train.Trained, run: Run) -> float:
    """Return the nats of the evidence of all rows that the draw loses on average.

    The scores of rows are uncorrelated, each with its information as covariance.
    """
    if trained.curvature is None:
        return float("nan")
    low, high = run.bounds.T
    free = (trained.vector > low + 1e-9) & (trained.vector < high - 1e-9)
    if not free.any():
        return 0.0
    at = theta.from_vector(trained.vector)
    spread = drawn.scores(at, np.eye(drawn.stage.rows.n_sides), doubly=True).information
    pairs = np.ix_(free, free)
    return float(0.5 * np.trace(np.linalg.pinv(trained.curvature.matrix[pairs]) @ spread[pairs]))


def warn_of_kernel(model: Vecchia, theta: Theta) -> None:
    """Warn if the nearest rows do not say most about a row, and nothing else says the rest."""
    if theta.inputs is None and _reaches_far(theta.kernel):
        logger.warning(
            "a linear or periodic part of the kernel correlates rows that are far apart, but "
            "rows are conditioned only on the nearest %d: choose n_support=256 or more, or "
            "take LMA or SGPR",
            model.n_neighbours,
        )


def _reaches_far(kernel: Kernel) -> bool:
    """Return whether a summand's correlation does not fall with distance."""
    if isinstance(kernel, Sum):
        return any(map(_reaches_far, kernel.parts))
    if isinstance(kernel, Product):
        parts = [part for part in kernel.parts if not isinstance(part, Constant)]
        return bool(parts) and all(map(_reaches_far, parts))
    if isinstance(kernel, Rotated | Averaged):
        return _reaches_far(kernel.kernel)
    return isinstance(kernel, Linear | Periodic)
