"""Training of experts, on the sum of their objectives or in rounds of steps of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from daskgp import train
from daskgp.data import Rows
from daskgp.errors import InputError
from daskgp.fit import hyperparameters
from daskgp.fit.arrange import Parts
from daskgp.fit.plan import Knob, Probe, Workload
from daskgp.fit.recipe import Outcome, Problem, Recipe, Run
from daskgp.fit.rounds import Rounds
from daskgp.fit.task import TaskRounds
from daskgp.fit.training import OnBlocks
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.values import Objective, Theta

logger: logging.Logger = logging.getLogger("daskgp")

EXACT_PROBE_ROWS = 2_048
"""Maximum rows of an exact expert in a short run."""

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class OfExperts(OnBlocks):
    """Training of experts.

    Attributes
    ----------
    rounds : Federated, optional
        How experts make steps of their own; None for one search on the sum of their objectives.
    central : float, optional
        Share of the rows that optimal weights are measured on.
    weighed : bool
        Whether every expert has one weight for all places.
    """

    rounds: train.Federated | None
    central: float | None
    weighed: bool

    def check_number(self, recipe: Recipe, rows: Rows, n: int) -> None:
        """Raise InputError for a share of n rows that is none."""
        if self.central is not None and self.central * n < 1:
            raise InputError(
                f"central={self.central} of {n} usable rows is less than one row: choose a larger "
                "share"
            )

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit, whose knob is the number of experts."""
        n, count = len(work.rows), len(work.units)
        units = f"experts of up to {-(-n // count)} rows"
        fewer = "choose another aggregation or fewer inducing inputs"
        planned = work.knob.planned
        knob = Knob("n_experts", count, units, planned, finer=True, otherwise=fewer)
        counted = "evaluations" if self.rounds is None else "iteration"
        return replace(work, knob=knob, probes=partial(_probes, recipe, n, count), counted=counted)

    def learn(self, problem: Problem) -> Outcome:
        """Train from initial hyper-parameters, and solve for all rows."""
        if self.weighed and cast(Parts, problem.recipe.arrangement).partition == "block":
            logger.warning(
                "optimal weights give each expert the same weight everywhere, which does not "
                "suit experts of one region each (partition='block'): choose "
                "aggregation='npae' or 'bcm'"
            )
        return super().learn(problem)

    def train(self, problem: Problem, run: Run) -> train.Trained:
        """Return the best vector of hyper-parameters, and the search's history."""
        recipe, stage = problem.recipe, problem.stage
        method = cast(Ensemble, recipe.method.of_units(stage.n_units))
        experts = Objectives(method, stage, problem.theta, recipe.inputs.trained)
        if self.rounds is None:
            values = int(experts.counts.sum())
            sum_of = partial(train.fact, experts)
            return hyperparameters.maximise(recipe, sum_of, run, values)
        own = experts, run.start, run.bounds, self.rounds, run.describe, run.tape
        return train.Trained(*train.train_experts(*own))


def _probes(recipe: Recipe, n: int, count: int, threads: int) -> list[Probe]:
    parts, each = cast(Parts, recipe.arrangement), -(-n // count)
    if parts.whole:
        each = min(each, EXACT_PROBE_ROWS)
    rows = parts.part_rows(n, count)
    settings = {"partition": "random", "order": "auto", "block_rows": rows}
    return [
        Probe(settings | {"n_experts": k}, max(k * each, recipe.inputs.count))
        for k in sorted({min(count, threads), min(count, 3 * threads)})
    ]


@dataclass(frozen=True, eq=False)
class Objectives:
    """Each expert's own objective with its gradient, at vectors of hyper-parameters.

    Parameters
    ----------
    model : Ensemble
    rounds : Rounds
        One unit per expert.
    theta : Theta
        Hyper-parameters of the same kind as the vectors.
    with_inputs : bool
        Whether the vectors hold inducing inputs too.
    """

    model: Ensemble
    rounds: Rounds
    theta: Theta
    with_inputs: bool

    @property
    def counts(self) -> np.ndarray:
        """Number of values of y of each expert (M,), missing ones included."""
        p = self.rounds.rows.n_targets
        return np.array([span.rows * p for span in self.rounds.spans], np.float64)

    def map(
        self, work: Callable[[Evaluate, Any], Any], which: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Return ``work(evaluate, argument)`` for each expert in ``which``, in that order."""
        task = partial(_work, self.model, self.theta, self.with_inputs, work)
        return self.rounds.map(task, which=which, arguments=arguments)

    def evaluate(self, vector: np.ndarray) -> list[tuple[float, np.ndarray]]:
        """Return the value and gradient (k,) of every expert at one vector, in their order.

        Unlike ``map``, it may factor several small experts side by side.
        """
        theta = self.theta.from_vector(vector)
        each = self.model.expert_objectives(theta, self.rounds, self.with_inputs)
        return [_pair(objective, self.with_inputs) for objective in each]


def _work(
    model: Ensemble,
    theta: Theta,
    with_inputs: bool,
    work: Callable[[Evaluate, Any], Any],
    rows: TaskRounds,
    argument: Any,
) -> Any:
    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        return _pair(model.expert_objective(theta.from_vector(vector), rows), with_inputs)

    return work(evaluate, argument)


def _pair(objective: Objective, with_inputs: bool) -> tuple[float, np.ndarray]:
    return objective.value, objective.gradient.to_vector(with_inputs)
