"""Spread of predictions learned on rows that were held out of a fit, or left out one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from daskgp import data
from daskgp.data.blocks import sampling
from daskgp.data.folds import Wanted
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.estimators.cross_validation import fold_of, scratch
from daskgp.fit import means
from daskgp.predict.judged import judge
from daskgp.predict.lazy import solved_node
from daskgp.predict.loo import leave_one_out
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor, map_all
from daskgp.runtime.process import single_blas_thread

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess

logger = logging.getLogger("daskgp")

FEW = 50
"""Held-out values, below which the standard error of the factor is above a tenth."""
LEFT_OUT = 1_024
"""Rows that are left out one by one, about.

The standard error of the factor is 2.2 %, which costs 0.0005 nats of a mean density.
"""
RUN = 32
"""Rows drawn together where near ones are predicted from the same rows, by one factor."""


def spread_of(
    estimator: GaussianProcess, rows: data.Rows, whole: data.Rows, executor: Executor
) -> float:
    """Return the factor on standard deviations with the best density of rows that were left out.

    With residuals z in standard deviations their mean density is best for the factor s with s^2 =
    mean z^2, where the derivative 1 / s - mean z^2 / s^3 of the loss log s + mean z^2 / 2 s^2
    vanishes.

    Parameters
    ----------
    estimator : GaussianProcess
        Fitted to all rows.
    rows, whole : data.Rows
        What a regressor leaves of the target, if there is one, and the rows as they were given.
    executor : Executor
    """
    if estimator.calibrate == "loo":
        what, (n, square) = "left-out", _left_out(estimator, whole, executor)
    else:
        what, (n, square) = "held-out", _held_out(estimator, rows, executor)
    if not square > 0:
        raise InputError(
            f"calibrate={estimator.calibrate!r}: {n} {what} values are predicted without "
            "any error, which tells no spread: choose calibrate=None"
        )
    factor = math.sqrt(square / n)
    if n < FEW:
        logger.warning(
            "the factor %.3g on standard deviations is learned from only %d %s values: it "
            "may be off by %.0f %%",
            factor,
            n,
            what,
            100 / math.sqrt(2 * n),
        )
    logger.info("standard deviations are multiplied by %.3g, from %d %s values", factor, n, what)
    return factor


def _held_out(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> tuple[int, float]:
    """Return the number and the sum of z^2 of a fifth of the rows, by a fit to the others."""
    blocks = "auto" if estimator.calibrate == "blocks" else None
    wanted = Wanted(1, blocks, seed=estimator._seed(), instead="choose calibrate=None")
    other = clone(estimator).set_params(calibrate=None)
    if means.is_regressor(estimator.mean):  # the rows are what it leaves
        other.set_params(mean=means.described(estimator.mean))
    with scratch(estimator.store) as url:
        parts = wanted.made(rows, url, executor)
        found = fold_of(other, parts, url, (None, 0), None, executor, 0)
    n, square = (float(found.sums.table[0, found.sums.column(name)]) for name in ("n", "score2"))
    return int(n), square


def _left_out(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> tuple[int, float]:
    """Return the number and the sum of z^2 of some rows, each predicted from all others."""
    share, seed = LEFT_OUT / max(len(rows), 1), estimator._seed()
    task = partial(_squares, rows, share, seed)
    node = solved_node(estimator.solved_, not executor.shares_memory)
    found: Sequence[tuple[int, float]] = map_all(
        task, estimator._spans(rows), executor, "left-out", [node]
    )
    return sum(n for n, _ in found), sum(square for _, square in found)


def _squares(
    rows: data.Rows, share: float, seed: int, span: Span, node: Node
) -> list[tuple[int, float]]:
    X, y = rows.raw(*span)
    solved = opened(node)
    order = solved.grouped(X)
    run = 1 if order is None else RUN
    keys = sampling.row_keys((seed, 29), span.start, -(-len(X) // run))
    drawn = np.repeat(keys.astype(np.float64) / 2.0**64 < share, run)[: len(X)]
    own = np.flatnonzero(drawn) if order is None else np.sort(order[drawn])
    with single_blas_thread():
        z = judge(solved, X[own], y[own], leave_one_out).score
    known = np.isfinite(z)
    return [(int(known.sum()), float((z[known] ** 2).sum()))]
