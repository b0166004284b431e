"""Passes of stochastic training: one mini-batch per step, a part of it in each task."""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from daskgp.fit.minibatches import Batch, Share
from daskgp.models.method import Pass
from daskgp.models.values import Block, Piece, Theta, add_lists, move
from daskgp.models.variational.decoupled import Decoupled, Draw, Prepared, Sums
from daskgp.models.variational.parameters import Parameters
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor

REMEDY = f"choose fewer functions or a smaller batch_rows, {device_memory.ANOTHER}"
VALIDATION_ROWS = 2_048
"""Rows per task of validation."""


def diverging() -> AbstractContextManager[Any]:
    """Return a context that silences NumPy: a step with non-finite numbers raises an error."""
    return np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, eq=False)
class Steps:
    """Sums over the rows of a batch, for one step of training.

    Parameters
    ----------
    model : Decoupled
    count : float
        Number of training rows, which a batch stands for.
    columns : int
        Functions of the mean that are drawn for each step.
    seed : int
    executor : Executor
    dtype, device : str
    """

    model: Decoupled
    count: float
    columns: int
    seed: int
    executor: Executor
    dtype: str
    device: str

    def sums(self, prepared: Prepared, shares: list[Share], step: int) -> Sums:
        """Return the sums over a batch, one task per share."""
        total = sum(share.size for share in shares)
        drawn, weight = self._columns(prepared.parameters, step)
        own = [Draw(self.count / total, js, weight) for js in np.array_split(drawn, len(shares))]
        over = self._pass("step", partial(_sums, self.model), self.model.combine)
        result: Sums = self._batch(shares).sum(over, prepared, own=own)
        return result

    def inputs(self, shares: list[Share]) -> np.ndarray:
        """Return the inputs (n, d) of the rows of a batch."""
        over = Pass("functions", _inputs, add_lists, cut=False, in_place=False)
        return np.concatenate(Batch(tuple(shares), self.executor).sum(over))

    def density(self, prepared: Prepared, rows: Block) -> float:
        """Return the mean log predictive density of rows and their targets."""
        if not len(rows.X):
            return float("nan")
        state = move(self.model.posterior(prepared), "cpu")
        parts = [
            rows.at(slice(i, i + VALIDATION_ROWS)) for i in range(0, len(rows.X), VALIDATION_ROWS)
        ]
        shares = [Share((part,), (slice(0, len(part.X)),)) for part in parts]
        over = self._pass("validate", partial(_density, self.model), operator.add)
        over = replace(over, described="{rows} rows that are held out")
        total = self._batch(shares).sum(over, prepared, state)
        return float(total) / rows.y.size

    def _pass(self, what: str, function: Any, combine: Any) -> Pass:
        return Pass(
            f"{self.model.name}-{what}",
            function,
            combine,
            cut=False,
            described="{rows} rows of a batch",
            remedy=REMEDY,
            in_place=False,
        )

    def _batch(self, shares: list[Share]) -> Batch:
        return Batch(tuple(shares), self.executor, self.device)

    def _columns(self, own: Parameters, step: int) -> tuple[np.ndarray, float]:
        """Return the functions of the mean drawn for a step, and the weight of each."""
        number = len(own.weights)
        if self.model.form == "direct":
            number += len(own.shared_weights)
        if number <= self.columns:
            return np.arange(number), 1.0
        rng = np.random.default_rng([self.seed, 10, step])
        return np.sort(rng.permutation(number)[: self.columns]), number / self.columns


def _sums(model: Decoupled, draw: Draw, piece: Piece, prepared: Prepared) -> Sums:
    with diverging():
        return model.local(prepared, piece.own, draw)


def _inputs(piece: Piece) -> list[np.ndarray]:
    return [np.asarray(piece.own.X, np.float64)]


def _density(model: Decoupled, piece: Piece, prepared: Prepared, state: Any) -> float:
    with diverging():
        predicted = model.predict(Theta(prepared.kernel, 1.0), state, piece.own.X, None, "variance")
        moments, rows = move(predicted, "cpu"), move(piece.own, "cpu")
        likelihood = prepared.likelihood.of_rows(rows.noise)
        density = likelihood.log_density(rows.y, moments.mean, moments.variance)
        return float(density.sum())
