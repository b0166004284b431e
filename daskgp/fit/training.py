"""Training on the objective of blocks, or on conditionals of rows, and the solve for all rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from daskgp import data, train
from daskgp.fit import conditionals, hyperparameters, means, varying
from daskgp.fit.arrange import Blocks
from daskgp.fit.hyperparameters import Learned
from daskgp.fit.plan import NOTHING, Extra, Probe, Workload, probes_in_blocks
from daskgp.fit.recipe import Outcome, Problem, Recipe, Run, Trainer
from daskgp.fit.subset import Start
from daskgp.models.markov.lma import LMA
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.method import Summed
from daskgp.models.values import Theta

logger: logging.Logger = logging.getLogger("daskgp")

PROBE_ROWS = (1_536, 3_072)
"""Rows of the short runs by which iterations with all rows are timed."""
FEW_ROWS, FEW_FEATURES = 10_000, 4
"""Most rows that are trained on blocks by default, and most features of those that are not: with
more, the nearest rows say less than blocks."""


@dataclass(frozen=True)
class OnBlocks(Trainer):
    """Training on the objective of all blocks, or of some of them."""

    def begin(self, problem: Problem) -> Start:
        """Return a start from some blocks of a first order, which is written and removed again."""
        if not hyperparameters.refines(problem):
            return problem.start
        try:
            return self._refined(problem.arranged())
        finally:
            data.remove(problem.keep)

    def _refined(self, problem: Problem) -> Start:
        return hyperparameters.refined(problem)

    def train(self, problem: Problem, run: Run) -> train.Trained:
        """Return the best vector of hyper-parameters, the search's history and the curvature."""
        return hyperparameters.on_blocks(problem, run)

    def learn(self, problem: Problem) -> Outcome:
        """Train from initial hyper-parameters, and solve for all rows."""
        trained = hyperparameters.train_theta(problem)
        theta, history, errors, _ = self._varied(problem, trained)
        recipe = problem.recipe
        stage = recipe.arrangement.settle(problem.stage, theta)
        method, total = recipe.method_of(stage), None
        if method.why_no_update() is None:
            summed = cast(Summed, method)
            prepared, total = summed.totals(theta, stage)
            state, objective = summed.concluded(theta, prepared, total, stage)
        else:
            state, objective = method.solve(theta, stage)
        kept = recipe.arrangement.kept(stage, theta)
        return Outcome(stage, theta, state, objective, history, kept, errors, total)

    def _varied(self, problem: Problem, learned: Learned) -> Learned:
        """Return what is learned, with hyper-parameters that vary if any do."""
        return learned


@dataclass(frozen=True)
class OnAll(OnBlocks):
    """Training of a method that has all rows at once."""

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit that no block size makes smaller."""
        knob = replace(work.knob, otherwise="choose fewer rows or another method")
        numbers = sorted({min(len(work.rows), number) for number in PROBE_ROWS})
        return replace(work, knob=knob, probes=lambda _: [Probe({}, n) for n in numbers])


@dataclass(frozen=True)
class OnNearby(OnBlocks):
    """Training of methods of nearby rows: on blocks, or on conditionals of rows.

    Attributes
    ----------
    model : Vecchia
        Method whose conditionals are trained on.
    train_with : {"auto", "blocks", "vecchia"}
    training_rows : int, "auto" or None
        Rows whose conditionals are drawn.
    variation : Variation, optional
        Which hyper-parameters vary over space, which is trained on conditionals of rows.
    """

    model: Vecchia
    train_with: Literal["auto", "blocks", "vecchia"] = "auto"
    training_rows: int | Literal["auto"] | None = "auto"
    variation: varying.Variation | None = None

    def check(self, recipe: Recipe, rows: data.Rows) -> None:
        """Raise SettingError for hyper-parameters that cannot vary as asked."""
        if self.variation is not None:
            self.variation.check(recipe, rows)

    def on_rows(self, recipe: Recipe, rows: data.Rows) -> bool:
        """Return whether hyper-parameters are trained on conditionals of rows."""
        if self.train_with != "auto":
            return self.train_with == "vecchia"
        usual = recipe.optimizer in ("auto", "trust-region") and recipe.train_blocks == "auto"
        spatial = len(rows) > FEW_ROWS and rows.n_features <= FEW_FEATURES
        return self.training_rows != "auto" or (usual and not recipe.inputs.trained and spatial)

    def of_kinds(self, counts: np.ndarray) -> OnNearby:
        """Return the trainer with a model of rows of codes, of so many rows each."""
        return replace(self, model=self.model.of_kinds(counts))

    def takes_curvature(self, recipe: Recipe, rows: data.Rows) -> bool:
        """Return whether training begins with the curvature of a subset's evidence."""
        return not self.on_rows(recipe, rows)

    def check_number(self, recipe: Recipe, rows: data.Rows, n: int) -> None:
        """Raise SettingError for a draw of rows that says nothing about hyper-parameters."""
        if recipe.optimizer is not None and self.on_rows(recipe, rows):
            conditionals.refuse_few(recipe, self.training_rows, rows, n)

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit with its factors of windows."""
        rows, method = work.rows, cast(LMA, recipe.method)
        n, largest, near, m = len(rows), work.largest, work.near_rows, work.n_inputs
        d, p, count = rows.n_features, rows.n_sides, len(work.units)
        window = work.window_rows or largest
        # the trust region trains on a part of the blocks first, which takes other times
        usual = recipe.optimizer in ("auto", "trust-region")
        settings = {"block_rows": largest} | ({"optimizer": "l-bfgs"} if usual else {})
        draws = self.on_rows(recipe, rows) or self.variation is not None
        if recipe.optimizer is not None and draws:
            extra = self._of_knots(recipe, rows, work.extra)
            work = replace(work, extra=extra.with_compiled(predicting=False))
        return replace(
            work,
            kept=round(count * work.trained) * method.window_bytes(window, m, p),
            cached=8 * n * (2 * d + p + m) + count * 8 * near * (near + m + d + p),
            staged=usual and not recipe.inputs.trained,
            probes=probes_in_blocks(n, 2 * largest, m, **settings),
        )

    def _of_knots(self, recipe: Recipe, rows: data.Rows, extra: Extra) -> Extra:
        """Return bytes with those of the information about hyper-parameters at knots."""
        asked = self.variation
        if asked is None or asked.given is not None:
            return extra
        kernel = recipe.kernel(rows).resolve(np.ones(rows.n_features), 1.0)
        count = asked.knots or min(varying.MOST, max(len(rows) // varying.EACH, 1))
        information = 8 * (count * (1 + len(kernel.parameter_names))) ** 2
        return extra._replace(
            task=extra.task + 3 * information, client=extra.client + 4 * information
        )

    def _refined(self, problem: Problem) -> Start:
        if not self.on_rows(problem.recipe, problem.stage.rows):
            return super()._refined(problem)
        return self._started(problem)

    def _started(self, problem: Problem) -> Start:
        """Return the start with the largest evidence of some conditionals."""
        return conditionals.best_start(*self._conditioned(problem))

    def train(self, problem: Problem, run: Run) -> train.Trained:
        """Return the best vector of hyper-parameters, the search's history and the curvature."""
        if not self.on_rows(problem.recipe, problem.stage.rows):
            return super().train(problem, run)
        near = self._conditioned(problem)
        return conditionals.on_conditionals(self.training_rows, *near, run)

    def _conditioned(self, problem: Problem) -> tuple[Vecchia, Problem]:
        """Return the method, and blocks with those in which rows find their earlier neighbours."""
        model: Vecchia = means.with_trend(self.model, problem.stage.scaling)
        arrangement = cast(Blocks, problem.recipe.arrangement)
        stage = arrangement.with_beside(problem.stage, problem.theta)
        return model, problem._replace(stage=stage)

    def _varied(self, problem: Problem, learned: Learned) -> Learned:
        """Return what is learned, with hyper-parameters that vary if any do."""
        asked, theta = self.variation, learned.theta
        if asked is None:
            return learned
        if asked.given is not None:
            given = varying.taken(asked.given, problem.stage, theta, asked)
            return learned._replace(theta=_of(problem.recipe, given))
        if learned.stopped:
            return learned
        run = hyperparameters.plan_run(problem)
        problem = problem._replace(start=problem.start._replace(theta=theta))
        model, near = self._conditioned(problem)
        total = near.stage.n_rows
        number = conditionals.wanted(self.training_rows, total, len(run.start))
        found = varying.trained(asked, model, near, run, number)
        if learned.history:
            learned.history[-1].update(found.gains)
        return learned._replace(theta=_of(problem.recipe, found.theta))


@dataclass(frozen=True)
class OnRows(OnNearby):
    """Training on conditionals of rows, of the method itself."""

    train_with: Literal["auto", "blocks", "vecchia"] = "vecchia"

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit with the conditionals that workers hold."""
        work, rows = super().workload(recipe, work), work.rows
        drawn = conditionals.MOST if self.training_rows == "auto" else self.training_rows
        number = len(rows) if drawn is None else min(int(drawn), len(rows))
        neighbours = min(self.model.n_neighbours, len(rows))
        each = 4 * (neighbours + 1) + 8 * (rows.n_features + rows.n_sides + 2)
        extra = self._of_knots(recipe, rows, NOTHING).with_compiled(predicting=True)
        return replace(work, kept=number * each, staged=False, extra=extra)

    def learn(self, problem: Problem) -> Outcome:
        """Train from the best start that some conditionals tell, and solve for all rows."""
        conditionals.warn_of_kernel(self.model, problem.theta)
        recipe = problem.recipe
        if recipe.optimizer is not None and (recipe.latent is None or not recipe.begun_from):
            problem = problem._replace(start=self._started(problem))
        return super().learn(problem)


def _of(recipe: Recipe, theta: Theta) -> Theta:
    """Return hyper-parameters without support inputs, if they vary by the window."""
    varies = theta.varying is not None and recipe.method.varies_by_window
    if not varies or theta.inputs is None:
        return theta
    logger.info(
        "%d support inputs are left out, as their low-rank part has one set of hyper-parameters",
        len(theta.inputs),
    )
    return replace(theta, inputs=None)
