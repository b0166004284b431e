"""Training of actions, with weights on points of their own or chosen anew; or a solve by steps."""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from daskgp import data, train
from daskgp.data import partition
from daskgp.data.blocks import ordering, sampling
from daskgp.data.blocks.layout import read_layout
from daskgp.errors import InputError, SettingError
from daskgp.fit import hyperparameters, rounds
from daskgp.fit.arrange.rewriting import check_order, lengths
from daskgp.fit.plan import Extra, Workload, probes_in_blocks, rows_bytes
from daskgp.fit.recipe import Outcome, Problem, Recipe, Run
from daskgp.fit.task import HELD_POINTS
from daskgp.fit.training import OnBlocks
from daskgp.kernels.weights import Weights
from daskgp.models import scaling
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.cggp import CGGP
from daskgp.models.actions.choice import Dense, normalised
from daskgp.models.actions.passes import PANEL_ROWS, Paired
from daskgp.models.actions.sums import TILE_ROWS, ActionTheta
from daskgp.models.values import Block, Theta
from daskgp.posterior import action_points
from daskgp.runtime.executor import FAN_IN
from daskgp.train import Evaluate

logger: logging.Logger = logging.getLogger("daskgp")

PACE = 10.0
"""Factor on steps of weights, relative to kernel parameters: weights of an action are many."""
PATIENCE, DECAY = 20, 0.1
"""Steps of Adam within which there must be a gain, and the share its learning rate falls to."""
ENTRY = 30
"""Operations per kernel entry, with what is computed from it."""
CORRECTIONS = 20
"""Pairs that L-BFGS remembers: weights are many and depend on one another."""


@dataclass(frozen=True, eq=False)
class OfActions(OnBlocks):
    """Training of actions with the hyper-parameters, or for actions that are chosen.

    Attributes
    ----------
    kind : {"sparse", "cg", "random", "eigen", "given"}
        Weights on points of each action's own, which are learned, or how actions are chosen.
    given : ndarray (n, t), optional
        Actions as users give them.
    support : int, optional
        Number of points of an action; None for a share of all rows.
    order : str or sequence of str, optional
        Order in which points are cut into actions.
    batch_rows : int, optional
        Number of rows that an iteration draws.
    tol : float
        Relative residual at which "cg" adds no further action.
    refreshes : int
        Number of times that training starts from actions chosen anew.
    """

    kind: str
    given: np.ndarray | None
    support: int | None
    order: str | Sequence[str] | None
    batch_rows: int | None
    tol: float
    refreshes: int

    @property
    def sparse(self) -> bool:
        """True if each action has points of its own."""
        return self.kind == "sparse"

    def check(self, recipe: Recipe, rows: data.Rows) -> None:
        """Raise InputError for given actions of other rows, or an order that rows cannot have."""
        if self.given is not None and len(self.given) != len(rows):
            raise SettingError(
                f"actions have {len(self.given)} rows, the training data {len(rows)}: give one for "
                "each row"
            )
        if self.order is not None and self.support is not None:
            check_order(rows, self.order)

    def check_number(self, recipe: Recipe, rows: data.Rows, n: int) -> None:
        """Raise InputError for more actions, points or drawn rows than n rows allow."""
        t = recipe.inputs.of(n)
        if self.support is not None and self.support * t > n:
            raise InputError(
                f"support={self.support} for {t} actions on {n} usable rows: an action has at "
                f"most {n // t} of them; choose a smaller support or fewer actions"
            )
        if self.kind == "eigen" and t >= n:
            raise InputError(
                f"{t} eigenvectors of {n} usable rows: choose at most {n - 1}, or "
                "actions='sparse', which give the exact GP if there are as many as rows"
            )
        if self.batch_rows is not None and self.batch_rows > n:
            raise InputError(
                f"batch_rows={self.batch_rows} for {n} usable rows: choose at most {n}"
            )

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit with the points that actions are on."""
        rows, count = work.rows, recipe.inputs.count
        n, t, elbo = len(rows), recipe.inputs.of(len(rows)), _loss(recipe) == "elbo"
        points, counted = self._n_points(n, count), self._counted_rows(n, count)
        panel = points if points <= HELD_POINTS else PANEL_ROWS
        task, client, disk, per_row = self._grows_with(points, t)
        store = 8 * points * (rows.n_features + (1 if self.sparse else t))
        settings: dict[str, Any] = {"block_rows": work.largest, "refreshes": 1}
        if self.given is not None:
            settings |= {"actions": "random", "n_actions": count}
        least = max(2 * count, self._n_points(0, count), self.batch_rows or 0)
        anew = self.kind in ("cg", "eigen") and self.refreshes > 1
        return dataclasses.replace(
            work,
            window_rows=max(work.largest, panel),
            near_rows=panel,
            written=work.written + (0 if isinstance(rows.X, np.ndarray) else store),
            kept=work.itemsize * count * (counted if elbo else points),
            generous=True,
            staged=recipe.optimizer is not None and anew,
            extra=Extra(task, 0, client, disk + 8 * points * rows.n_features),
            operations=2.0 * ENTRY * counted * points + 6.0 * counted * t * t + per_row * n,
            probes=probes_in_blocks(n, work.largest, least, **settings),
        )

    def _counted_rows(self, n: int, count: int) -> int:
        """Return how many rows an iteration needs the actions' functions at, with drawn points."""
        own = 0 if self.support is None else self._n_points(n, count)
        return own + (n if self.batch_rows is None else self.batch_rows)

    def _grows_with(self, points: int, t: int) -> tuple[int, int, int, float]:
        """Return bytes in a task, in the client and on disk, and operations per row, to add."""
        if self.sparse:  # weights, their gradients in a sum, and what L-BFGS remembers
            return 8 * (FAN_IN + 3) * points, 8 * (2 * CORRECTIONS + 8) * points, 8 * points, 0.0
        # weights as chosen and at the points, their products with the kernel and what follows
        dense = 8 * points * t
        return 2 * dense, 4 * dense, dense, 6.0 * points * t

    def _n_points(self, n: int, count: int) -> int:
        return n if self.support is None else self.support * count

    def learn(self, problem: Problem) -> Outcome:
        """Learn hyper-parameters with actions, and solve; the points are kept."""
        recipe, stage, sums = problem.recipe, problem.stage, problem.sums
        if self.sparse and _loss(recipe) == "projected" and recipe.optimizer is not None:
            logger.warning(
                "with loss='projected', learned actions fit what is easy to fit, with too "
                "little noise: choose loss='elbo', which fits all targets"
            )
        seed = recipe.seed()
        points, edges = self._points(problem, seed)
        t = recipe.inputs.of(len(stage.rows))
        pairs, quiet = (paired(one, points, int(sums.rows), t) for one in (stage, stage.quiet))
        search = _Search(self, problem, hyperparameters.plan_run(problem), pairs, quiet, seed)
        learned = search.for_chosen() if edges is None else search.with_sparse(points, edges)
        theta, weights, history = learned
        drawn = pairs if self.batch_rows is None else pairs.drawn((self.batch_rows, seed))
        acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
        state, objective = cast(CaGP, recipe.method).solve(acting, drawn)
        dropped = weights.count - len(state.columns)
        if dropped:
            logger.warning(
                "%d of %d actions are zero or combinations of others and were dropped",
                dropped,
                weights.count,
            )
        values = weights.values[:, None] if weights.owner is not None else weights.values
        values = np.where(pairs.complete[:, None], values, np.nan)
        kept = action_points.keep(points, values, edges, stage.executor, problem.keep)
        return Outcome(stage, theta, state, objective, history, kept)

    def _points(self, problem: Problem, seed: int) -> tuple[data.Rows, np.ndarray | None]:
        """Return the rows that actions are on, and the first row of each action with its own."""
        stage, rows = problem.stage, problem.stage.rows
        t = problem.recipe.inputs.of(len(rows))
        if not self.sparse:
            return rows, None
        if self.support is None:
            return rows, np.linspace(0, len(rows), t + 1).astype(np.int64)
        number, d = self.support * t, rows.n_features
        plain = scaling.identity(d, rows.n_targets)
        keys = sampling.Keys.by_content((seed, 1), rows, problem.sums)
        drawn = sampling.draw(rows, stage.spans, plain, number, keys, stage.executor).rows
        line = self._line(problem, drawn, t, seed)
        arrays = {"X": rows.columns.places(drawn.X[line]), "y": drawn.y[line]}
        if drawn.noise is not None:  # in the user's units, as the scaling is plain
            values = {"weight": 1.0 / drawn.noise[line, 0], "y_variance": drawn.noise[line, 1]}
            arrays |= {name: values[name] for name in values if name in rows.arrays}
        points = rows.with_arrays(arrays, chunks=None, identity=None, passing=False)
        return points, np.arange(t + 1) * self.support

    def _line(self, problem: Problem, drawn: Block, actions: int, seed: int) -> np.ndarray:
        """Return the order in which drawn rows are cut into actions."""
        if self.order is None or self.order == ordering.RANDOM:  # drawn rows are in random order
            return np.arange(len(drawn.X))
        columns, sums = problem.stage.rows.columns, problem.sums
        units = lengths(problem.stage, problem.theta, sums)
        low, high = (ends[: problem.stage.rows.n_features] for ends in (sums.low, sums.high))
        order = ordering.make_order(
            columns.order(self.order),
            drawn.X,
            low,
            high,
            columns.inputs_names,
            actions,
            units,
            seed,
            columns.sphere,
        )
        return np.argsort(order.keys(drawn.X), kind="stable")


Learned: TypeAlias = tuple[Theta, Weights, list[dict[str, Any]]]
"""Hyper-parameters, actions, and the history of the search for them."""


@dataclass(frozen=True, eq=False)
class _Search:
    """Search for hyper-parameters, and for actions where these are learned.

    ``quiet`` are the ``pairs`` without a display of progress.
    """

    trainer: OfActions
    problem: Problem
    run: Run
    pairs: Paired
    quiet: Paired
    seed: int

    def with_sparse(self, points: data.Rows, edges: np.ndarray) -> Learned:
        """Learn hyper-parameters and actions by one search, [CAGP] eq. 13."""
        run, theta, batch_rows = self.run, self.problem.theta, self.trainer.batch_rows
        owner, k = np.repeat(np.arange(len(edges) - 1), np.diff(edges)), len(run.start)
        count = len(edges) - 1
        start = self._first_weights(points)
        if self.problem.recipe.optimizer is None:
            return theta, normalised(start, owner, count)[0], []

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            weights, norms = normalised(PACE * vector[k:], owner, count)
            batch = None
            if batch_rows is not None:  # a resumed run must draw the same rows
                batch = batch_rows, self.seed + zlib.crc32(vector.tobytes())
            value, bar = self._evaluated(theta.from_vector(vector[:k]), weights, batch)
            along = np.bincount(owner, weights.values * bar.weights, count)
            by_weights = (bar.weights - weights.values * along[owner]) / norms[owner]
            return value, np.concatenate([bar.to_vector(False), PACE * by_weights])

        free = np.tile([-np.inf, np.inf], (len(start), 1))
        whole_run = run._replace(
            start=np.concatenate([run.start, start / PACE]),
            bounds=np.concatenate([run.bounds, free]),
            describe=lambda vector: run.describe(vector[:k]),
        )
        best, history, *_ = self._maximise(evaluate, whole_run)
        weights, _ = normalised(PACE * best[k:], owner, count)
        return theta.from_vector(best[:k]), weights, history

    def _first_weights(self, points: data.Rows) -> np.ndarray:
        """Return the first weights (a,): nearly local means, or random ones if in no order."""
        layout, complete = read_layout(points.X), self.pairs.complete
        shuffled = layout is not None and layout.order.kind == ordering.RANDOM
        lone = shuffled or self.trainer.order in (None, ordering.RANDOM)
        noise = np.random.default_rng([self.seed, 7]).standard_normal(len(complete))
        start: np.ndarray = (noise if lone else 1.0 + 0.1 * noise) * complete
        return start

    def for_chosen(self) -> Learned:
        """Learn hyper-parameters for fixed actions, then choose these anew, [CAGP] section 4."""
        recipe, theta, pairs = self.problem.recipe, self.problem.theta, self.pairs
        kind, tol, given = self.trainer.kind, self.trainer.tol, self.trainer.given
        history: list[dict[str, Any]] = []
        choose = Dense(kind, recipe.inputs.of(pairs.count), tol, self.seed, given)
        refreshes = self.trainer.refreshes if choose.follows else 1
        for i in range(0 if recipe.optimizer is None else refreshes):
            fixed = pairs.hold(choose(pairs, theta))

            def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
                value, bar = self._evaluated(theta.from_vector(vector), fixed)  # noqa: B023
                return value, bar.to_vector(False)

            start = self.run.start if i == 0 else theta.to_vector(False)
            tape = self.run.tape and self.run.tape.stage(i)
            trained = self._maximise(evaluate, self.run._replace(start=start, tape=tape))
            theta = theta.from_vector(trained.vector)
            history = hyperparameters.continued(history, trained.history)
            if trained.stopped:
                break
        return theta, choose(pairs, theta), history

    def _evaluated(
        self, theta: Theta, weights: Any, batch: tuple[int, int] | None = None
    ) -> tuple[float, Any]:
        """Return the objective and its gradient for some actions."""
        acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
        method = cast(CaGP, self.problem.recipe.method)
        objective = method.evaluate(acting, self.quiet.drawn(batch))
        return objective.value, objective.gradient

    def _maximise(self, evaluate: Evaluate, run: Run) -> train.Trained:
        values = self.pairs.count * self.pairs.n_targets
        return hyperparameters.maximise(
            self.problem.recipe,
            evaluate,
            run._replace(values=values),
            values,
            patience=PATIENCE,
            decay=DECAY,
            noisy=self.trainer.batch_rows is not None,
            corrections=CORRECTIONS,
        )


def _loss(recipe: Recipe) -> str:
    return cast(CaGP, recipe.method).loss


def paired(stage: rounds.Rounds, points: data.Rows, count: int, t: int) -> Paired:
    """Return the rows, paired with the points that actions are on."""
    over = stage
    if points is not stage.rows:
        # as many tasks for large blocks of rows as for small ones
        size = max(1, min(stage.spans[0].rows, TILE_ROWS))
        units = partition.alone(partition.parts(0, len(points), size))
        over = dataclasses.replace(stage, rows=points, units=units)
    return Paired(stage, over, count, stage.rows.n_targets, t)


@dataclass(frozen=True)
class BySteps(OnBlocks):
    """Steps of conjugate gradients until the relative residual is ``tol``."""

    tol: float

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit whose steps pair all rows with all rows."""
        rows, n = work.rows, len(work.rows)
        return dataclasses.replace(
            work,
            window_rows=max(work.largest, min(n, HELD_POINTS)),
            near_rows=n,
            written=work.written + (0 if isinstance(rows.X, np.ndarray) else rows_bytes(rows)),
            iterations=recipe.max_iter,
        )

    def learn(self, problem: Problem) -> Outcome:
        """Solve for the weights of all rows, which are kept."""
        recipe, stage, theta = problem.recipe, problem.stage, problem.theta
        rows, quiet = stage.rows, stage.quiet
        pairs = Paired(quiet, quiet, int(problem.sums.rows), rows.n_targets, 0)
        solution = cast(CGGP, recipe.method).weights(theta, pairs, self.tol, recipe.max_iter)
        if solution.residual > 2 * self.tol:
            logger.warning(
                "conjugate gradients stopped after %d steps at a relative residual of %.2g: raise "
                "max_iter or the noise variance",
                solution.steps,
                solution.residual,
            )
        plain = rows.with_arrays({"X": rows.X, "y": rows.y})
        values = np.where(pairs.complete[:, None], solution.weights, np.nan)
        kept = action_points.keep(plain, values, None, stage.executor, problem.keep)
        state = CGGP.state_type(np.array(pairs.complete.sum(), np.int64))
        left = solution.steps, solution.residual
        return Outcome(stage, theta, state, None, [], kept, left=left)
