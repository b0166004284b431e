"""Time per iteration of training, from short runs on a part of the rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.data import grids, reading
from daskgp.fit.plan import Plan, Workload, make_plan
from daskgp.runtime.executor import Executor

ITERATIONS = 3
"""Iterations of a run, the first of which warms up."""


class Timed(NamedTuple):
    """Operations of the busiest worker per iteration, and seconds per iteration."""

    operations: float
    seconds: float


Quick: TypeAlias = Callable[[Mapping[str, Any], Any, Any, int], Timed]
"""Times a short fit with some settings to X and y on a number of threads."""


def measured(plan: Plan, quick: Quick, work: Workload, executor: Executor) -> Plan:
    """Return a plan with the measured seconds of an iteration, and of each of its tasks."""
    spent = seconds(quick, work, executor)
    turns = -(-work.trained_tasks // executor.threads())
    each = None if work.iterations is None else spent / turns
    return replace(plan, seconds=spent, task_seconds=each)


def seconds(quick: Quick, work: Workload, executor: Executor) -> float:
    """Measure the seconds per iteration of training, or of a whole fit that trains nothing.

    Two runs of different size separate the time that grows with the work from the rest.
    """
    threads, rows = executor.threads(), work.rows
    measured: list[Timed] = []
    for probe in work.probes(threads):
        X, y = (reading.read(part, slice(0, probe.rows)) for part in (rows.X, rows.y))
        settings = {"geographic": rows.geographic or False, **probe.settings}
        measured.append(quick(settings, *grids.tables(X, y, rows.feature_names), threads))
    return _at(_share(work, threads), measured)


def timed(history: list[dict[str, Any]], whole: float, steps: int, work: Workload, n: int) -> Timed:
    """Return the operations and seconds per iteration of a run on n threads.

    It took ``whole`` seconds; one that trains nothing made so many ``steps`` of its solve.
    """
    spent = _of_history(history, work.counted) if history else whole / steps
    return Timed(_share(work, n), spent)


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
