"""Objectives of experts as functions of a vector, for federated training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskgp.fit.rounds import Rounds
from daskgp.fit.task import TaskRounds
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.values import Objective, Theta

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


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
        return [_told(objective, self.with_inputs) for objective in each]


def _work(
    model: Ensemble,
    theta: Theta,
    with_inputs: bool,
    work: Callable[[Evaluate, Any], Any],
    rows: TaskRounds,
    argument: Any,
) -> Any:
    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        return _told(model.expert_objective(theta.from_vector(vector), rows), with_inputs)

    return work(evaluate, argument)


def _told(objective: Objective, with_inputs: bool) -> tuple[float, np.ndarray]:
    return objective.value, objective.gradient.to_vector(with_inputs)
