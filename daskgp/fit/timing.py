"""Time per iteration of training, from short runs on a part of the rows."""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from sklearn.base import clone

from daskgp import data
from daskgp.fit import effects

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess
    from daskgp.runtime.executor import Executor

E = TypeVar("E", bound="GaussianProcess")

ITERATIONS = 3
"""Iterations of a run, the first of which warms up."""


class Probe(NamedTuple):
    """A short run: an estimator with all settings that its rows need, and the number of rows."""

    estimator: GaussianProcess
    rows: int


class Timed(NamedTuple):
    """Operations of the busiest worker per iteration, and seconds per iteration."""

    operations: float
    seconds: float


def seconds(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> float:
    """Measure the seconds per iteration of training, or of a whole fit that trains nothing.

    Two runs of different size separate the time that grows with the work from the rest.
    """
    threads = executor.threads()
    measured: list[Timed] = []
    for probe in estimator._probes(rows, threads):
        X, y = (np.asarray(part[: probe.rows]) for part in (rows.X, rows.y))
        measured.append(_timed(probe.estimator, X, y, threads))
    return _at(_share(estimator, rows, threads), measured)


def sizes(n: int, step: int, least: int) -> list[int]:
    """Return the rows of two runs: ``step``, or ``least`` if that is more, and 2 ``step`` more.

    Both are at most ``n``; if they are the same, ``n`` alone is returned.
    """
    small = min(n, max(step, least))
    large = min(n, small + 2 * step)
    return [small, large] if large > small else [n]


def quick(estimator: E, **settings: Any) -> E:
    """Return a copy that makes a few silent iterations, with those of ``settings`` that it has."""
    wanted = {"max_iter": ITERATIONS, "progress": False, **settings}
    known = estimator.get_params(deep=False)
    copy: E = clone(estimator)
    copy.set_params(**{name: value for name, value in wanted.items() if name in known})
    # settings that these made idle would be refused
    usual = effects.defaults(type(copy))
    copy.set_params(**{name: usual[name] for name in effects.idle(copy)})
    return copy


def _timed(estimator: GaussianProcess, X: np.ndarray, y: np.ndarray, threads: int) -> Timed:
    began = time.perf_counter()
    estimator.fit(X, y)
    whole = time.perf_counter() - began
    rows = data.rows_of(X, y, None, True, estimator._read_rows())
    spent = _of_history(estimator) if estimator.history_ else whole / estimator._solve_steps()
    return Timed(_share(estimator, rows, threads), spent)


def _of_history(estimator: GaussianProcess) -> float:
    """Return the seconds per iteration, the first one left out if there are others."""
    counted, entries = estimator._counted(), estimator.history_[-ITERATIONS:]
    steps = [
        (after["seconds"] - before["seconds"]) / max(after[counted] - before[counted], 1)
        for before, after in itertools.pairwise(entries)
    ]
    return median(steps) if steps else entries[0]["seconds"] / max(entries[0][counted], 1)


def _share(estimator: GaussianProcess, rows: data.Rows, threads: int) -> float:
    """Return the operations of the busiest of ``threads`` threads."""
    plan = estimator._plan(rows)
    tasks = max(1, round(plan.tasks * estimator._trained_share(len(estimator._work(rows)))))
    return plan.operations * -(-tasks // threads) / tasks


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
