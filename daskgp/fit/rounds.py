"""Rounds of a method over its blocks: a map, and a sum in a fixed order.

Every round is a small fresh graph.  A map task reads its own rows, drops those with missing
values, scales them and summarises them; what is common to all tasks is one node.  The tree sum
has the same shape whatever the workers, so the result has the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp.data import Rows
from daskgp.data.blocks.layout import Layout
from daskgp.data.partition import Span, Window, per_task
from daskgp.fit.units import BlockTask
from daskgp.models import scaling
from daskgp.models.method import LocalModel, Model
from daskgp.models.values import Objective, Theta, add_gradients
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import map_all, mapped, node, tree_sum
from daskgp.runtime.process import solve_threads
from daskgp.typing import Device

KEEP_SHARE, KEEP_BYTES = 0.15, 128 * 2**20
"""Share of the workers' memory for factors that wait for the gradient, and most bytes of them a
process: a fit is not to take much memory only because it is there."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of one method over one set of rows.

    ``windows`` are the blocks and what each is conditioned on; ``layout`` says more of them where
    the method wants rows in an order.
    """

    model: Model
    rows: Rows
    windows: tuple[Window, ...]
    scaling: scaling.Scaling
    executor: Executor
    dtype: str = "float64"
    device: Device = "cpu"
    layout: Layout | None = None
    landmarks: np.ndarray | None = None
    """Some rows (M, r, d) of each block of the layout, where the method looks for near blocks."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The rows that are summarised, without those near them."""
        return tuple(window.own for window in self.windows)

    def total(self, theta: Theta) -> Any:
        """The reduced summary of all blocks."""
        return self._round("local", node("prepared", self._prepare(theta)))

    def value_and_gradient(self, theta: Theta) -> Objective:
        """The objective on all rows with its whole gradient: two rounds."""
        prepared = self._prepare(theta)
        common, kept = node("prepared", prepared), None
        fitting = self._fitting_pieces(theta)
        if fitting:
            kept = self._keep(common, fitting)
            first = delayed(operator.itemgetter(0), pure=False)
            label = f"{self.model.name}-local"
            total = tree_sum([first(k) for k in kept], self.model.combine, self.executor, label)
        else:
            total = self._round("local", common)
        with self._solving(theta):
            objective = self.model.objective(prepared, total)
        if objective.cotangent is None:
            return objective
        cotangent = node("cotangent", objective.cotangent)
        through = self._round("gradient", common, cotangent, each=kept)
        gradient = add_gradients(objective.gradient, through)
        return objective._replace(gradient=gradient, cotangent=None)

    def block_gradients(self, theta: Theta) -> np.ndarray:
        """Gradient (blocks, k) by the hyper-parameters through each block's summary: two rounds.

        They sum up to the whole gradient of a method whose objective depends on them through the
        blocks alone.
        """
        prepared = self._prepare(theta)
        common = node("prepared", prepared)
        total = self._round("local", common)
        with self._solving(theta):
            cotangent = node("cotangent", self.model.objective(prepared, total).cotangent)
        label = f"{self.model.name}-gradients"
        return np.array(
            map_all(self._task().each, self._pieces(), self.executor, label, (common, cotangent))
        )

    def solve(self, theta: Theta) -> tuple[Any, float]:
        """What prediction needs, and the value of the objective: one round."""
        prepared = self._prepare(theta)
        total = self._round("local", node("prepared", prepared))
        with self._solving(theta):
            return self.model.solve(prepared, total), self.model.objective(prepared, total).value

    def _prepare(self, theta: Theta) -> Any:
        """What all blocks share, computed once and here, so that no machine has another jitter."""
        with self._solving(theta):
            return self.model.prepare(theta)

    def _solving(self, theta: Theta) -> AbstractContextManager[None]:
        order = sum(s.rows for s in self.spans) if theta.inputs is None else len(theta.inputs)
        return solve_threads(order)

    def _round(self, what: str, *shared: Delayed, each: Sequence[Delayed] | None = None) -> Any:
        """One map with its sum; ``each`` gives every task one more argument of its own."""
        block = self._task()
        task = block.local if what == "local" else block.gradient
        combine = self.model.combine if what == "local" else add_gradients
        pieces, label = self._pieces(), f"{self.model.name}-{what}"
        own = [()] * len(pieces) if each is None else [(one,) for one in each]
        arguments = [(piece, *shared, *more) for piece, more in zip(pieces, own, strict=True)]
        return tree_sum(mapped(task, arguments, label), combine, self.executor, label)

    def _task(self) -> BlockTask:
        return BlockTask(self.model, self.rows, self.scaling, self.dtype, self.device)

    def _pieces(self) -> list[tuple[Window, ...]]:
        count = len(self.windows)
        step = 1 if self.layout is None else per_task(count, self.layout.block_rows)
        return [self.windows[i : i + step] for i in range(0, len(self.windows), step)]

    def _keep(self, prepared: Delayed, fitting: int) -> list[Delayed]:
        """Summaries, the first with their factors, which stay with the workers that made them."""
        arguments = [(piece, prepared, i < fitting) for i, piece in enumerate(self._pieces())]
        label = f"{self.model.name}-factor"
        return self.executor.persist(mapped(self._task().keep, arguments, label))

    def _fitting_pieces(self, theta: Theta) -> int:
        """Pieces of work, from the first on, whose factors fit the memory that they may have."""
        stays = self.executor.client is not None or self.executor.shares_memory
        if not (self.model.keeps_rows and stays) or theta.inputs is None:
            return 0
        model, p = cast(LocalModel[Any, Any, Any], self.model), self.rows.n_targets
        m = len(theta.inputs)
        needed = [
            sum(model.window_bytes(own.rows + sum(s.rows for s in near), m, p) for own, near in few)
            for few in self._pieces()
        ]
        return int(np.searchsorted(np.cumsum(needed), kept_bytes(self.executor), side="right"))


def kept_bytes(executor: Executor) -> float:
    """Most bytes of factors that wait for the gradient in all workers together."""
    return min(KEEP_SHARE * executor.memory(), KEEP_BYTES * executor.processes())
