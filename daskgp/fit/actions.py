"""Training of actions: of weights on points of their own, or of actions chosen anew."""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from daskgp import data, train
from daskgp.data import partition
from daskgp.data.blocks import ordering, sampling
from daskgp.data.blocks.layout import read_layout
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import InputError, SettingError
from daskgp.fit import hyperparameters, rounds
from daskgp.fit.arrange.rewriting import check_order, lengths
from daskgp.fit.plan import Beside, Workload, probes_in_blocks
from daskgp.fit.recipe import Outcome, Recipe, Run
from daskgp.fit.subset import Start
from daskgp.fit.task import HELD_POINTS
from daskgp.fit.training import OnBlocks
from daskgp.kernels.weights import Weights
from daskgp.models import scaling
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.choice import Dense, normalised
from daskgp.models.actions.passes import PANEL_ROWS, Paired
from daskgp.models.actions.sums import TILE_ROWS, ActionTheta
from daskgp.models.values import Block, Theta
from daskgp.posterior import action_points
from daskgp.runtime.executor import FAN_IN
from daskgp.train import Evaluate

logger = logging.getLogger("daskgp")

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
                "actions='sparse', of which as many as rows give the exact GP"
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
            beside=Beside(task, 0, client, disk + 8 * points * rows.n_features),
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

    def learn(
        self,
        recipe: Recipe,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        """Learn hyper-parameters with actions, and solve; the points are kept at ``keep``."""
        theta = begun.theta
        if self.sparse and _loss(recipe) == "projected" and recipe.optimizer is not None:
            logger.warning(
                "loss='projected' lets learned actions fit what is easy to fit, with too little "
                "noise: loss='elbo' fits all targets"
            )
        seed = recipe.seed()
        points, edges = self._points(recipe, stage, theta, sums, seed)
        t = recipe.inputs.of(len(stage.rows))
        pairs, quiet = (paired(one, points, int(sums.rows), t) for one in (stage, stage.quiet))
        run = hyperparameters.plan_run(recipe, stage, begun, sums, checkpoint)
        if edges is not None:
            learned = self._learn_sparse(recipe, pairs, quiet, points, theta, run, edges, seed)
        else:
            learned = self._learn_dense(recipe, pairs, quiet, theta, run, seed)
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
        kept = action_points.keep(points, values, edges, stage.executor, keep)
        return Outcome(stage, theta, state, objective, history, kept)

    def _points(
        self, recipe: Recipe, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, seed: int
    ) -> tuple[data.Rows, np.ndarray | None]:
        """Return the rows that actions are on, and the first row of each action with its own."""
        rows, t = stage.rows, recipe.inputs.of(len(stage.rows))
        if not self.sparse:
            return rows, None
        if self.support is None:
            return rows, np.linspace(0, len(rows), t + 1).astype(np.int64)
        number, d = self.support * t, rows.n_features
        plain = scaling.identity(d, rows.n_targets)
        keys = sampling.Keys.by_content((seed, 1), rows, sums)
        drawn = sampling.gather_sample(rows, stage.spans, plain, number, keys, stage.executor)
        line = self._line(drawn, t, stage, theta, sums, seed)
        arrays = {"X": rows.columns.places(drawn.X[line]), "y": drawn.y[line]}
        if drawn.noise is not None:  # in the user's units, as the scaling is plain
            values = {"weight": 1.0 / drawn.noise[line, 0], "y_variance": drawn.noise[line, 1]}
            arrays |= {name: values[name] for name in values if name in rows.arrays}
        points = rows.with_arrays(arrays, chunks=None, identity=None, passing=False)
        return points, np.arange(t + 1) * self.support

    def _line(
        self,
        drawn: Block,
        actions: int,
        stage: rounds.Rounds,
        theta: Theta,
        sums: scaling.Sums,
        seed: int,
    ) -> np.ndarray:
        """Return the order in which drawn rows are cut into actions."""
        if self.order is None or self.order == ordering.RANDOM:  # drawn rows are in random order
            return np.arange(len(drawn.X))
        d, columns = stage.rows.n_features, stage.rows.columns
        units = lengths(stage, theta, sums)
        low, high = sums.low[:d], sums.high[:d]
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

    def _learn_sparse(
        self,
        recipe: Recipe,
        pairs: Paired,
        quiet: Paired,
        points: data.Rows,
        theta: Theta,
        run: Run,
        edges: np.ndarray,
        seed: int,
    ) -> tuple[Theta, Weights, list[dict[str, Any]]]:
        """Learn hyper-parameters and actions by one search, [CAGP] eq. 13."""
        owner, k = np.repeat(np.arange(len(edges) - 1), np.diff(edges)), len(run.start)
        count = len(edges) - 1
        start = self._started(pairs.complete, points, seed)
        if recipe.optimizer is None:
            return theta, normalised(start, owner, count)[0], []

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            weights, norms = normalised(PACE * vector[k:], owner, count)
            batch = None
            if self.batch_rows is not None:  # a resumed run must draw the same rows
                batch = self.batch_rows, seed + zlib.crc32(vector.tobytes())
            value, bar = _evaluated(
                recipe, theta.from_vector(vector[:k]), weights, quiet.drawn(batch)
            )
            along = np.bincount(owner, weights.values * bar.weights, count)
            by_weights = (bar.weights - weights.values * along[owner]) / norms[owner]
            return value, np.concatenate([bar.kernel, [bar.noise], PACE * by_weights])

        free = np.tile([-np.inf, np.inf], (len(start), 1))
        whole_run = run._replace(
            start=np.concatenate([run.start, start / PACE]),
            bounds=np.concatenate([run.bounds, free]),
            describe=lambda vector: run.describe(vector[:k]),
        )
        best, history, *_ = self._maximise(recipe, evaluate, whole_run, pairs)
        weights, _ = normalised(PACE * best[k:], owner, count)
        return theta.from_vector(best[:k]), weights, history

    def _maximise(
        self, recipe: Recipe, evaluate: Evaluate, run: Run, pairs: Paired
    ) -> train.Trained:
        values = pairs.count * pairs.n_targets
        return hyperparameters.maximise(
            recipe,
            evaluate,
            run._replace(values=values),
            values,
            recipe.tol,
            patience=PATIENCE,
            decay=DECAY,
            noisy=self.batch_rows is not None,
            corrections=CORRECTIONS,
        )

    def _started(self, complete: np.ndarray, points: data.Rows, seed: int) -> np.ndarray:
        """Return the first weights (a,): nearly local means, or random ones if in no order."""
        layout = read_layout(points.X)
        shuffled = layout is not None and layout.order.kind == ordering.RANDOM
        lone = shuffled or self.order in (None, ordering.RANDOM)
        noise = np.random.default_rng([seed, 7]).standard_normal(len(complete))
        start: np.ndarray = (noise if lone else 1.0 + 0.1 * noise) * complete
        return start

    def _learn_dense(
        self,
        recipe: Recipe,
        pairs: Paired,
        quiet: Paired,
        theta: Theta,
        run: Run,
        seed: int,
    ) -> tuple[Theta, Weights, list[dict[str, Any]]]:
        """Learn hyper-parameters for fixed actions, then choose these anew, [CAGP] section 4."""
        history: list[dict[str, Any]] = []
        t = recipe.inputs.of(pairs.count)
        choose = Dense(self.kind, t, self.tol, seed, self.given)
        for i in range(0 if recipe.optimizer is None else self.refreshes if choose.follows else 1):
            fixed = pairs.hold(choose(pairs, theta))

            def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
                value, bar = _evaluated(recipe, theta.from_vector(vector), fixed, quiet)  # noqa: B023
                return value, np.append(bar.kernel, bar.noise)

            start = run.start if i == 0 else theta.to_vector(False)
            tape = run.tape and run.tape.stage(i)
            part = run._replace(start=start, tape=tape)
            trained = self._maximise(recipe, evaluate, part, pairs)
            theta = theta.from_vector(trained.vector)
            history = hyperparameters.continued(history, trained.history)
            if trained.stopped:
                break
        return theta, choose(pairs, theta), history


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


def _evaluated(recipe: Recipe, theta: Theta, weights: Any, pairs: Paired) -> tuple[float, Any]:
    """Return the objective and its gradient for some actions."""
    acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
    objective = cast(CaGP, recipe.method).evaluate(acting, pairs)
    return objective.value, objective.gradient
