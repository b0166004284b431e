"""Rounds of stochastic training: one mini-batch a round, a part of it in each task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.arrays.backend import resolve_device, to_device
from daskgp.fit.minibatches import Piece
from daskgp.models.values import Block, Moments, Theta, move
from daskgp.models.variational.decoupled import Decoupled, Draw, Prepared, Sums
from daskgp.models.variational.parameters import Parameters
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import map_reduce, mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread

REMEDY = f"choose fewer functions or a smaller batch_rows, {device_memory.ANOTHER}"
VALIDATION_ROWS = 2_048
"""Rows of a task that validates."""


def diverging() -> AbstractContextManager[Any]:
    """For tasks: a step of numbers that are not finite is an error, and needs no warnings."""
    return np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, eq=False)
class Steps:
    """The sums of a step over the rows of a batch.

    Parameters
    ----------
    model : Decoupled
    count : float
        Rows of the training data, which a batch stands for.
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

    def sums(self, prepared: Prepared, pieces: list[Piece], step: int) -> Sums:
        """What a batch gives, one task a piece."""
        total = sum(piece.size for piece in pieces)
        drawn, weight = self._columns(prepared.parameters, step)
        shared, task = node("prepared", prepared), _Task(self.model, self.device)
        shares = np.array_split(drawn, len(pieces))
        arguments = [
            (piece.rows, Draw(self.count / total, few, weight), shared, *piece.pools)
            for piece, few in zip(pieces, shares, strict=True)
        ]
        label = f"{self.model.name}-step"
        nodes = mapped(task.local, arguments, label)
        found: Sums = tree_sum(nodes, self.model.combine, self.executor, label, in_place=False)
        return found

    def inputs(self, pieces: list[Piece]) -> np.ndarray:
        """Inputs (n, d) of the rows of a batch."""
        nodes = mapped(_inputs, [(piece.rows, *piece.pools) for piece in pieces], "functions")
        return np.concatenate(self.executor.compute_all(nodes))

    def density(self, prepared: Prepared, rows: Block) -> float:
        """Mean log predictive density of rows and their targets."""
        if not len(rows.X):
            return float("nan")
        state = move(self.model.solve(prepared), "cpu")
        shared = [node("prepared", prepared), node("state", state)]
        pieces = [
            Block(rows.X[i : i + VALIDATION_ROWS], rows.y[i : i + VALIDATION_ROWS])
            for i in range(0, len(rows.X), VALIDATION_ROWS)
        ]
        task = _Task(self.model, self.device)
        total = map_reduce(task.density, _plus, pieces, self.executor, "validate", shared)
        return float(total) / rows.y.size

    def _columns(self, own: Parameters, step: int) -> tuple[np.ndarray, float]:
        """Functions of the mean drawn for a step, and how much each counts."""
        number = len(own.weights)
        if self.model.form == "direct":
            number += len(own.shared_weights)
        if number <= self.columns:
            return np.arange(number), 1.0
        rng = np.random.default_rng([self.seed, 10, step])
        return np.sort(rng.permutation(number)[: self.columns]), number / self.columns


def _plus(a: float, b: float) -> float:
    return a + b


def _inputs(rows: Sequence[slice], *pools: Block) -> np.ndarray:
    return np.asarray(_joined(rows, pools).X, np.float64)


def _joined(rows: Sequence[slice], pools: Sequence[Block]) -> Block:
    """Parts of pools as one block."""
    parts = [(pool.X[few], pool.y[few]) for few, pool in zip(rows, pools, strict=True)]
    return Block(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _Task:
    """What tasks do, on the worker: move, summarise, move back."""

    model: Decoupled
    device: str

    def local(self, rows: Sequence[slice], draw: Draw, prepared: Prepared, *pools: Block) -> Sums:
        with single_blas_thread(), diverging():
            device = resolve_device(self.device)

            def work() -> Sums:
                block = move(_joined(rows, pools), device)
                sums: Sums = move(self.model.local(move(prepared, device), block, draw), "cpu")
                return sums

            what = f"{sum(few.stop - few.start for few in rows)} rows of a batch"
            return device_memory.whole(work, device, what, REMEDY)

    def density(self, rows: Block, prepared: Prepared, state: Any) -> float:
        with single_blas_thread(), diverging():
            device = resolve_device(self.device)
            theta = Theta(prepared.kernel, 1.0)

            def work() -> Moments:
                there = move(state, device)
                X = to_device(rows.X, device)
                found: Moments = move(self.model.predict(theta, there, X, None, "variance"), "cpu")
                return found

            found = device_memory.whole(
                work, device, f"{len(rows.X)} rows that are held out", REMEDY
            )
            density = prepared.likelihood.log_density(rows.y, found.mean, found.variance)
            return float(density.sum())
