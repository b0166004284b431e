"""Common to methods that combine experts: an expert is a unit with an objective of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, Literal, Self

from daskgp.errors import InputError
from daskgp.models.experts import aggregation
from daskgp.models.experts.aggregation import Aggregation
from daskgp.models.method import Method, Rounds, one_place
from daskgp.models.values import Block, Moments, Objective, Theta, Want, add_gradients
from daskgp.typing import Array


@dataclass(frozen=True)
class Ensemble(Method):
    """Base of methods that combine experts, one per unit, and settings that they share.

    Hyper-parameters are trained on the sum of the experts' own objectives; summaries of experts
    are kept apart and combined by ``posterior``.

    Parameters
    ----------
    n_experts : int
        Number M of experts.
    aggregation : {"poe", "gpoe", "bcm", "rbcm", "grbcm", "npae", "optimal"}
        How they are combined.
    weights : {"projection", "paper"}
        Right-hand side of optimal weights: the exact <f_i, f*>, or diag(A) as in the paper.
    variance : {"linear", "paper"}
        For optimal weights: error variance of the linear predictor, or [OPT] eqs. 43b and 45b as
        printed.
    central : float, optional
        Share of the rows that inner products are summed over, scaled up.  None: one row per expert
        for the paper's weights, as printed.
    ridge : float
        Added to the weights' system, relative to its mean diagonal.
    noise_in_experts : bool
        Whether experts predict observations, as [OPT] eq. 14 prints it, rather than f.
    """

    n_experts: int
    aggregation: Aggregation = "optimal"
    weights: Literal["projection", "paper"] = "projection"
    variance: Literal["linear", "paper"] = "linear"
    central: float | None = None
    ridge: float = 1e-6
    noise_in_experts: bool = False

    takes_noise: ClassVar[bool] = True

    def of_units(self, number: int) -> Self:
        """Return the method for that many experts."""
        return replace(self, n_experts=number)

    @property
    def noisy(self) -> bool:
        """True if the variance is that of new observations alone."""
        return self.noise_in_experts

    def quiet_setting(self) -> str:
        """Return the setting with which experts tell noise from f."""
        return "noise_in_experts=False"

    def why_no_joint(self) -> str | None:
        """Return which setting rules out a joint covariance; None if none does."""
        return one_place("aggregation", self.aggregation, "optimal")

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

    def _refuse_joint(self, want: Want) -> None:
        if want == "covariance" and self.aggregation != "optimal":
            raise InputError(
                f"aggregation={self.aggregation!r} gives the variance of one place at a time: ask "
                "for return_std, or choose aggregation='optimal'"
            )

    def _by_committee(
        self, expert: Callable[[int], tuple[Array, Array]], count: int, prior: Array
    ) -> Moments:
        """Return the joint prediction of a committee; the arguments are those of ``committee``."""
        mean, variance = aggregation.committee(self.aggregation, expert, count, prior)
        return Moments(mean, variance=variance, noisy=self.noise_in_experts)

    @property
    def _has_limit(self) -> bool:
        """True if one expert may be the exact GP; rBCM's weight is not 1, nor eqs. 43b and 45b."""
        printed = (self.aggregation, self.variance) == ("optimal", "paper")
        return self.aggregation != "rbcm" and not printed


@dataclass(frozen=True, eq=False)
class HeldExperts:
    """Experts' rows in memory, for the predictions of a method that reads them back."""

    model: Any
    theta: Theta
    state: Any
    blocks: Sequence[Block]

    def __len__(self) -> int:
        return len(self.blocks)

    def rows(self, i: int) -> Block:
        """Return the scaled rows of expert i."""
        return self.blocks[i]

    def conditioned(self, *experts: int) -> Any:
        """Condition the method on the rows of some experts together."""
        return self.model.condition(self.theta, self.state, [self.blocks[i] for i in experts])


def _of_expert(model: Ensemble, with_inputs: bool, rows: Any, theta: Theta) -> Objective:
    objective = model.expert_objective(theta, rows)
    if with_inputs:
        return objective
    return objective._replace(gradient=objective.gradient._replace(inputs=None))
