"""Common to methods that combine experts: an expert is a unit with an objective of its own."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial, reduce
from typing import Any, ClassVar, Protocol

from daskgp.models.method import Method, Rounds
from daskgp.models.values import Objective, Theta, add_gradients


class Ensemble(Method, Protocol):
    """Base of methods that combine experts, one per unit.

    Hyper-parameters are trained on the sum of the experts' own objectives; summaries of experts
    are kept apart and combined by ``posterior``.
    """

    n_experts: int
    takes_noise: ClassVar[bool] = True

    @abstractmethod
    def expert_objective(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the objective of one expert's rows with its full gradient."""

    def expert_objectives(
        self, theta: Theta, rows: Rounds, with_inputs: bool = True
    ) -> list[Objective]:
        """Return the objective of each expert's rows with its gradient, by inputs too if asked."""
        return rows.map(partial(_of_expert, self, with_inputs), theta)

    def evaluate(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the sum of the experts' objectives with its gradient."""
        each = self.expert_objectives(theta, rows)
        gradient = reduce(add_gradients, (one.gradient for one in each))
        return Objective(sum(one.value for one in each), gradient, None)


def _of_expert(model: Ensemble, with_inputs: bool, rows: Any, theta: Theta) -> Objective:
    objective = model.expert_objective(theta, rows)
    if with_inputs:
        return objective
    return objective._replace(gradient=objective.gradient._replace(inputs=None))
