"""Time that an iteration of training takes, from short runs on a part of the rows."""

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
"""Of a run, the first of which warms up."""


class Probe(NamedTuple):
    """A short run: an estimator with all settings that its rows need, and how many these are."""

    estimator: GaussianProcess
    rows: int


class Timed(NamedTuple):
    """Operations that the busiest worker does in an iteration, and the seconds of one."""

    operations: float
    seconds: float


def seconds(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> float:
    """Seconds of an iteration of training, or of the fit of a method that trains nothing.

    Two runs of different size tell what grows with the work from what does not.
    """
    threads = executor.threads()
    found: list[Timed] = []
    for probe in estimator._probes(rows, threads):
        X, y = (np.asarray(part[: probe.rows]) for part in (rows.X, rows.y))
        found.append(_timed(probe.estimator, X, y, threads))
    return _at(_share(estimator, rows, threads), found)


def sizes(n: int, step: int, least: int) -> list[int]:
    """Rows of the two runs, of ``step`` and three times as many, at least so many more; or all."""
    small = min(n, max(step, least))
    large = min(n, small + 2 * step)
    return [small, large] if large > small else [n]


def quick(estimator: E, **settings: Any) -> E:
    """A copy that makes a few iterations without a word; of ``settings`` those that it has."""
    wanted = {"max_iter": ITERATIONS, "progress": False, **settings}
    known = estimator.get_params(deep=False)
    copy: E = clone(estimator)
    copy.set_params(**{name: value for name, value in wanted.items() if name in known})
    # what these made idle would be refused
    usual = effects.defaults(type(copy))
    copy.set_params(**{name: usual[name] for name in effects.idle(copy)})
    return copy


def _timed(estimator: GaussianProcess, X: np.ndarray, y: np.ndarray, threads: int) -> Timed:
    began = time.perf_counter()
    estimator.fit(X, y)
    whole = time.perf_counter() - began
    rows = data.rows_of(X, y, None, True, estimator._read_rows())
    found = _of_history(estimator) if estimator.history_ else whole / estimator._solve_steps()
    return Timed(_share(estimator, rows, threads), found)


def _of_history(estimator: GaussianProcess) -> float:
    """Seconds of an iteration, the first one left out where there are others."""
    counted, entries = estimator._counted(), estimator.history_[-ITERATIONS:]
    steps = [
        (after["seconds"] - before["seconds"]) / max(after[counted] - before[counted], 1)
        for before, after in itertools.pairwise(entries)
    ]
    return median(steps) if steps else entries[0]["seconds"] / max(entries[0][counted], 1)


def _share(estimator: GaussianProcess, rows: data.Rows, threads: int) -> float:
    """Operations of the busiest of so many threads."""
    plan = estimator._plan(rows)
    tasks = max(1, round(plan.tasks * estimator._trained_share(len(estimator._work(rows)))))
    return plan.operations * -(-tasks // threads) / tasks


def _at(operations: float, found: list[Timed]) -> float:
    """Seconds for so many operations, on the line through what was found; no part is negative."""
    small, large = found[0], found[-1]
    if large.operations <= small.operations:
        return large.seconds * operations / large.operations
    slope = (large.seconds - small.seconds) / (large.operations - small.operations)
    slope = float(np.clip(slope, 0.0, large.seconds / large.operations))
    return large.seconds + slope * (operations - large.operations)
