"""The engine: passes of a method over its units as small Dask graphs.

Every pass is a small new graph: a map whose tasks read their own rows, and a sum in a fixed order.
Its shape does not depend on the workers, so the result has the same bits.  Values that tasks share
are nodes of the graph.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from dask import delayed
from dask.delayed import Delayed

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows
from daskgp.data.blocks import sampling
from daskgp.data.blocks.layout import Layout
from daskgp.data.partition import Unit, default_block_rows, per_task
from daskgp.fit.task import Kept, OverUnits, Points, Source, Stored, TaskRounds
from daskgp.models import scaling
from daskgp.models.markov.barriers import Barriers
from daskgp.models.method import Pass
from daskgp.runtime.executor import Executor, mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread, solve_threads
from daskgp.runtime.progress import Amount
from daskgp.typing import Device

KEEP_SHARE, KEEP_BYTES = 0.15, 128 * 2**20
"""Share of the workers' memory for residuals that wait for a later pass, and most bytes of them per
process: a fit must not take much memory only because it is free."""
WINDOW_TASKS, EXPERT_TASKS = 64, 16
"""Minimum number of tasks for thin windows, and for experts of few rows, that share tasks."""


@dataclass(frozen=True, eq=False)
class Rounds(OverUnits):
    """Rows of training data in units, wherever they and the workers are.

    Parameters
    ----------
    rows : Rows
    units : tuple of Unit
        Blocks, windows or experts.
    scaling : Scaling
    executor : Executor
    dtype : str
    device : {"cpu", "gpu", "auto"}
    layout : Layout, optional
        Blocks and their order, if the rows are in one.
    landmarks : ndarray (M, r, d), optional
        Some rows of each block of the layout, if near blocks are searched for.
    read_rows : int, optional
        Maximum rows of a unit that a task holds at a time.
    least_tasks : int, optional
        Minimum number of tasks when thin units share them; default one task per unit.
    seed : int
        Seed of the rows that are drawn.
    barriers : Barriers, optional
        Barriers between rows.
    """

    rows: Rows
    units: tuple[Unit, ...]
    scaling: scaling.Scaling
    executor: Executor
    dtype: str = "float64"
    device: Device = "cpu"
    layout: Layout | None = None
    landmarks: np.ndarray | None = None
    read_rows: int | None = None
    least_tasks: int | None = None
    seed: int = 0
    barriers: Barriers | None = None

    @property
    def source(self) -> Stored:
        """Source of the rows of the units."""
        return Stored(self.rows, self.scaling, self.dtype, self.read_rows)

    def over(self, units: tuple[Unit, ...]) -> Self:
        """Return rounds over other units of the same rows."""
        return replace(self, units=units)

    def onto(self, inputs: np.ndarray) -> np.ndarray:
        """Return scaled inputs (m, d), moved onto the sphere where there is one."""
        columns = self.rows.columns
        if not columns.sphere:
            return inputs
        return np.asarray(self.scaling.inputs(columns.onto(self.scaling.places(inputs))))

    @property
    def quiet(self) -> Rounds:
        """Copy of these rounds that shows no progress."""
        return replace(self, executor=replace(self.executor, show=False))

    def sampled(self, number: int, keys: sampling.Keys) -> sampling.Drawn:
        """Return complete scaled rows of so many smallest keys."""
        return sampling.draw(self.rows, self.spans, self.scaling, number, keys, self.executor)

    # -- what a method asks for --------------------------------------------------------------

    def sum(self, over: Pass, *shared: Any, kept: Sequence[Delayed] | None = None) -> Any:
        """Return the results of a pass summed over all units, in their order.

        Parameters
        ----------
        over : Pass
        shared
            Values for all tasks, each sent once; nodes that ``hold`` returned are used as they are.
        kept : sequence of Delayed, optional
            Residuals that ``forward`` kept.
        """
        more = None if kept is None else [(one,) for one in kept]
        light = over.light and kept is None
        nodes = self._mapped(partial(_sum, over), over.name, shared, more, light)
        return self._summed(nodes, over)

    def forward(self, over: Pass, *shared: Any) -> tuple[Any, list[Delayed] | None]:
        """Return ``sum`` and the residuals that fit in memory, which stay where they were made."""
        fitting = self._tasks_that_keep(over)
        if not fitting:
            return self.sum(over, *shared), None
        flags = [(i < fitting,) for i in range(len(self._tasks(self.units)))]
        nodes = self._mapped(partial(_forward, over), over.name, shared, flags)
        kept = self.executor.persist(nodes, over.name, self._amount)
        first = delayed(operator.itemgetter(0), pure=False)
        nodes = [first(one) for one in kept]
        return self._summed(nodes, over), kept

    def gather(self, over: Pass, *shared: Any) -> list[Any]:
        """Return the result of a pass for each unit."""
        nodes = self._mapped(partial(_gather, over), over.name, shared)
        return list(itertools.chain.from_iterable(self._computed(nodes, over.name)))

    def map(
        self,
        function: Callable[..., Any],
        *shared: Any,
        which: Sequence[int] | None = None,
        arguments: Sequence[Any] | None = None,
        label: str = "experts",
    ) -> list[Any]:
        """Return ``function(rows, *shared, argument)`` for each unit, whose rows are Rounds too."""
        units = self.units if which is None else tuple(self.units[i] for i in which)
        more: list[tuple[Any, ...]] | None = None
        if arguments is not None:
            coming = iter(arguments)
            more = [(list(itertools.islice(coming, len(group))),) for group in self._tasks(units)]
        part = replace(self, units=units)
        nodes = part._mapped(partial(_map, function), label, shared, more)
        return list(itertools.chain.from_iterable(part._computed(nodes, label)))

    def values(self, over: Pass, width: int, *shared: Any) -> np.ndarray:
        """Return values (n, width) of a located pass by row; 0 for rows with missing values."""
        nodes = self._mapped(partial(_values, over, width), over.name, shared)
        return np.concatenate(self._computed(nodes, over.name))

    def points(self, panel_rows: int | None = None) -> Points:
        """Return all rows again, unit by unit or in panels."""
        return Points.of(self.source, self.spans, panel_rows)

    def hold(self, value: Any) -> Delayed:
        """Return a value as a node that stays on the workers over many passes."""
        return self.executor.persist([node("held", value)])[0]

    def solving(self, order: int | None) -> AbstractContextManager[None]:
        """Return a context with as many BLAS threads as suit a solve of size ``order``."""
        return solve_threads(sum(s.rows for s in self.spans) if order is None else order)

    # -- graphs ------------------------------------------------------------------------------

    @cached_property
    def _amount(self) -> Amount:
        """Rows of all units, for the progress."""
        return Amount(sum(unit.own_rows for unit in self.units))

    def _summed(self, nodes: list[Delayed], over: Pass) -> Any:
        how = over.name, over.in_place, self._amount
        return tree_sum(nodes, over.combine, self.executor, *how)

    def _computed(self, nodes: Sequence[Delayed], label: str) -> list[Any]:
        return self.executor.compute_all(nodes, label, self._amount)

    def _tasks(self, units: Sequence[Unit], light: bool = False) -> list[tuple[Unit, ...]]:
        """Return the units of each task, of light ones as many rows as a block by default has."""
        step = 1
        if self.least_tasks is not None:
            most = max((unit.own.rows for unit in units), default=1)
            step = per_task(len(units), most, self.least_tasks)
            if light:
                step = max(step, default_block_rows(self.n_rows) // max(most, 1))
        return [tuple(units[i : i + step]) for i in range(0, len(units), step)]

    def _mapped(
        self,
        task: Callable[..., Any],
        label: str,
        shared: Sequence[Any],
        more: Sequence[tuple[Any, ...]] | None = None,
        light: bool = False,
    ) -> list[Delayed]:
        """Return one node per task, each with the shared values and more of its own."""
        nodes = [v if isinstance(v, Delayed) else node("shared", v) for v in shared]
        tasks = self._tasks(self.units, light)
        own = [()] * len(tasks) if more is None else more
        begin = partial(_begin, self.source, self.device, self.seed, task)
        arguments = [(units, values, *nodes) for units, values in zip(tasks, own, strict=True)]
        # Dask finds nodes among a task's own values only if these are arguments themselves
        flat = [(units, *values, *rest) for units, values, *rest in arguments]
        return mapped(partial(begin, len(own[0]) if own else 0), flat, label)

    def _tasks_that_keep(self, over: Pass) -> int:
        """Return how many tasks, from the first on, may keep their residuals."""
        stays = self.executor.client is not None or self.executor.shares_memory
        if over.kept_bytes is None or not stays:
            return 0
        memory = KEEP_SHARE * self.executor.memory() if over.generous else kept_bytes(self.executor)
        p, size = self.rows.n_sides, np.dtype(self.dtype).itemsize
        needed = [
            sum(over.kept_bytes(rows=unit.rows, targets=p, itemsize=size) for unit in group)
            for group in self._tasks(self.units)
        ]
        return int(np.searchsorted(np.cumsum(needed), memory, side="right"))


def kept_bytes(executor: Executor) -> float:
    """Return the most bytes of residuals that may wait for a later pass on all workers together."""
    return min(KEEP_SHARE * executor.memory(), KEEP_BYTES * executor.processes())


def _begin(
    source: Source,
    device: str,
    seed: int,
    task: Callable[..., Any],
    count: int,
    units: tuple[Unit, ...],
    *values: Any,
) -> Any:
    """Run a task on its units, on the worker, with ``count`` own values before the shared ones."""
    with single_blas_thread():
        rounds = TaskRounds(source, units, resolve_device(device), seed)
        return task(rounds, *values[count:], own=values[:count])


def _sum(over: Pass, rounds: TaskRounds, *shared: Any, own: tuple[Any, ...]) -> Any:
    kept: Kept | None = own[0][1] if own else None
    return rounds.sum(over, *shared, kept=kept)


def _forward(over: Pass, rounds: TaskRounds, *shared: Any, own: tuple[Any, ...]) -> Any:
    (keep,) = own
    return rounds.forward(over, *shared) if keep else (rounds.sum(over, *shared), None)


def _gather(over: Pass, rounds: TaskRounds, *shared: Any, own: tuple[Any, ...]) -> list[Any]:
    return rounds.gather(over, *shared)


def _map(
    function: Callable[..., Any], rounds: TaskRounds, *shared: Any, own: tuple[Any, ...]
) -> list[Any]:
    return rounds.map(function, *shared, arguments=own[0] if own else None)


def _values(
    over: Pass, width: int, rounds: TaskRounds, *shared: Any, own: tuple[Any, ...]
) -> np.ndarray:
    return rounds.values(over, width, *shared)
