"""Methods whose objective is a function of summed local summaries: two passes over the rows.

With h_b(theta) the summary of block b, H their sum and F(theta, H) the objective, the gradient is
dF/dtheta + sum over b of (dF/dH) dh_b/dtheta: a pass over the rows, a small solve, a pass back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from daskgp.models.method import Method, Pass, Rounds
from daskgp.models.values import Block, Objective, Piece, Theta, ThetaBar, add, add_gradients


class Additive(Method, Protocol):
    """Base of methods that add local summaries.

    The law that ``testing.check_model`` checks: ``local(A ++ B) == combine(local(A), local(B))``.
    """

    @abstractmethod
    def prepare(self, theta: Theta) -> Any:
        """Return what all blocks need, computed once."""

    @abstractmethod
    def local(self, prepared: Any, block: Block, near: Sequence[Block] = ()) -> Any:
        """Return the summary of one block, given the blocks that it is conditioned on."""

    def combine(self, a: Any, b: Any) -> Any:
        """Return the summary of both sets of blocks, of tuples the sum; may overwrite ``a``."""
        return add(a, b)

    @abstractmethod
    def objective(self, prepared: Any, total: Any) -> Objective:
        """Return the evidence or its bound, with gradients as far as the summaries."""

    @abstractmethod
    def local_vjp(
        self, prepared: Any, block: Block, cotangent: Any, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """Return the part of the gradient that flows through this block's summary."""

    @abstractmethod
    def posterior(self, prepared: Any, total: Any) -> Any:
        """Return what prediction needs, from the summary of all blocks."""

    def evaluate(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the objective of all rows with its full gradient: two passes."""
        with rows.solving(order_of(theta)):
            prepared = self.prepare(theta)
        total, kept = rows.forward(self.summing(theta), prepared)
        with rows.solving(order_of(theta)):
            objective = self.objective(prepared, total)
        if objective.cotangent is None:
            return objective
        through = rows.sum(self.pulling(), prepared, objective.cotangent, kept=kept)
        gradient = add_gradients(objective.gradient, through)
        return objective._replace(gradient=gradient, cotangent=None)

    def solve(self, theta: Theta, rows: Rounds) -> tuple[Any, float]:
        """Return what prediction needs and the value of the objective: one pass."""
        return self.concluded(theta, *self.totals(theta, rows), rows)

    def value(self, theta: Theta, rows: Rounds) -> float:
        """Return the objective of all rows: one pass."""
        prepared, total = self.summed(theta, rows)
        with rows.solving(order_of(theta)):
            return self.objective(prepared, total).value

    def summed(self, theta: Theta, rows: Rounds) -> tuple[Any, Any]:
        """Return what blocks need and the summary of all blocks."""
        with rows.solving(order_of(theta)):
            prepared = self.prepare(theta)
        return prepared, rows.sum(self.summing(theta), prepared)

    def totals(self, theta: Theta, rows: Rounds) -> tuple[Any, Any]:
        """Return what blocks need and the sums that a fit follows from: the summary of all."""
        return self.summed(theta, rows)

    def concluded(self, theta: Theta, prepared: Any, total: Any, rows: Rounds) -> tuple[Any, float]:
        """Return what prediction needs and the value of the objective, from the sums alone."""
        with rows.solving(order_of(theta)):
            return self.posterior(prepared, total), self.objective(prepared, total).value

    def misfit(self, prepared: Any, total: Any) -> float | None:
        """Return y' C^-1 y of all rows, where a method gives it."""
        return None

    def block_gradients(self, theta: Theta, rows: Rounds) -> np.ndarray:
        """Return the gradient (blocks, k) through each block, for the hyper-parameters.

        These sum to the full gradient of a method whose objective depends on the hyper-parameters
        through the blocks alone.
        """
        prepared, total = self.summed(theta, rows)
        with rows.solving(order_of(theta)):
            cotangent = self.objective(prepared, total).cotangent
        each = self._pass("gradients", partial(_pull, self), add_gradients)
        return np.array([g.to_vector(False) for g in rows.gather(each, prepared, cotangent)])

    def summing(self, theta: Theta) -> Pass:
        """Return the pass that sums summaries."""
        return self._pass("local", partial(_summarise, self), self.combine)

    def pulling(self) -> Pass:
        """Return the pass that sums gradients."""
        return self._pass("gradient", partial(_pull, self), add_gradients)

    def _pass(self, what: str, function: Any, combine: Any, **more: Any) -> Pass:
        name = f"{self.name}-{what}"
        return Pass(name, function, combine, cut=self.divisible, method=self, **more)


def order_of(theta: Theta) -> int | None:
    """Return the size of the matrices that a solve has; None for that of all rows."""
    return None if theta.inputs is None else len(theta.inputs)


def _summarise(model: Additive, piece: Piece, prepared: Any) -> Any:
    return model.local(prepared, piece.own, piece.near)


def _pull(model: Additive, piece: Piece, prepared: Any, cotangent: Any) -> ThetaBar:
    return model.local_vjp(prepared, piece.own, cotangent, piece.near)
