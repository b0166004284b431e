"""Time per iteration of training, from short runs on a part of the rows."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from sklearn.base import clone

from daskgp.data import grids
from daskgp.fit import effects
from daskgp.fit.plan import Plan, Probe, Probes, Workload, make_plan

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess
    from daskgp.runtime.executor import Executor

E = TypeVar("E", bound="GaussianProcess")

ITERATIONS = 3
"""Iterations of a run, the first of which warms up."""


class Timed(NamedTuple):
    """Operations of the busiest worker per iteration, and seconds per iteration."""

    operations: float
    seconds: float


def measured(plan: Plan, estimator: GaussianProcess, work: Workload, executor: Executor) -> Plan:
    """Return a plan with the measured seconds of an iteration, and of each of its tasks."""
    spent = seconds(estimator, work, executor)
    turns = -(-work.trained_tasks // executor.threads())
    each = None if work.iterations is None else spent / turns
    return replace(plan, seconds=spent, task_seconds=each)


def seconds(estimator: GaussianProcess, work: Workload, executor: Executor) -> float:
    """Measure the seconds per iteration of training, or of a whole fit that trains nothing.

    Two runs of different size separate the time that grows with the work from the rest.
    """
    threads, rows = executor.threads(), work.rows
    measured: list[Timed] = []
    for probe in work.probes(threads):
        X, y = (np.asarray(part[: probe.rows]) for part in (rows.X, rows.y))
        quickly = quick(estimator, geographic=rows.geographic or False, **probe.settings)
        measured.append(_timed(quickly, *grids.tables(X, y, rows.feature_names), threads))
    return _at(_share(work, threads), measured)


def in_blocks(n: int, step: int, least: int, **settings: Any) -> Probes:
    """Return the short runs of a method whose tasks work on blocks, some for each thread.

    A run has ``step`` of the ``n`` rows per thread or more, and at least ``least``.
    """

    def probes(threads: int) -> list[Probe]:
        return [Probe(settings, number) for number in sizes(n, step * threads, least)]

    return probes


def sizes(n: int, step: int, least: int) -> list[int]:
    """Return the rows of two runs: ``step``, or ``least`` if that is more, and 2 ``step`` more.

    Both are at most ``n``; if they are the same, ``n`` alone is returned.
    """
    small = min(n, max(step, least))
    large = min(n, small + 2 * step)
    return [small, large] if large > small else [n]


def quick(estimator: E, **settings: Any) -> E:
    """Return a copy that makes a few silent iterations on all blocks of its rows.

    It has those of ``settings`` that the estimator has.
    """
    wanted = {"max_iter": ITERATIONS, "progress": False, "train_blocks": None, **settings}
    known = estimator.get_params(deep=False)
    copy: E = clone(estimator)
    copy.set_params(**{name: value for name, value in wanted.items() if name in known})
    # settings that these made idle would be refused
    usual = effects.defaults(type(copy))
    copy.set_params(**{name: usual[name] for name in effects.idle(copy)})
    return copy


def _timed(estimator: GaussianProcess, X: Any, y: Any, threads: int) -> Timed:
    began = time.perf_counter()
    estimator.fit(X, y)
    whole = time.perf_counter() - began
    work = estimator._workload(estimator._rows_of(X, y, None, True))
    history, alone = estimator.history_, estimator.n_iter_ + 1  # without any, steps of the solve
    spent = _of_history(history, work.counted) if history else whole / alone
    return Timed(_share(work, threads), spent)


def _of_history(history: list[dict[str, Any]], counted: str) -> float:
    """Return the seconds per iteration, the first one left out if there are others."""
    entries = history[-ITERATIONS:]
    steps = [
        (after["seconds"] - before["seconds"]) / max(after[counted] - before[counted], 1)
        for before, after in itertools.pairwise(entries)
    ]
    return median(steps) if steps else entries[0]["seconds"] / max(entries[0][counted], 1)


def _share(work: Workload, threads: int) -> float:
    """Return the operations of the busiest of ``threads`` threads."""
    tasks = work.trained_tasks
    return make_plan(work).operations * -(-tasks // threads) / tasks


def _at(operations: float, measured: list[Timed]) -> float:
    """Return the seconds for a number of operations, on the line through the measured runs.

    Neither its slope nor its intercept is negative.
    """
    small, large = measured[0], measured[-1]
    if large.operations <= small.operations:
        return large.seconds * operations / large.operations
    slope = (large.seconds - small.seconds) / (large.operations - small.operations)
    slope = float(np.clip(slope, 0.0, large.seconds / large.operations))
    return large.seconds + slope * (operations - large.operations)
