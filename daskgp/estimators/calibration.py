"""Spread of predictions learned on rows that were held out of a fit."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from sklearn.base import clone

from daskgp import data
from daskgp.data.folds import Wanted
from daskgp.errors import InputError
from daskgp.estimators.cross_validation import fold_of, scratch
from daskgp.fit import means
from daskgp.runtime.executor import Executor

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess

logger = logging.getLogger("daskgp")

FEW = 50
"""Held-out values, below which the standard error of the factor is above a tenth."""


def spread_of(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> float:
    """Return the factor on standard deviations with the best density of held-out rows.

    A fifth of the rows is held out of a fit with the same settings.  With residuals z in standard
    deviations their mean density is best for the factor s with s^2 = mean z^2, where the derivative
    1 / s - mean z^2 / s^3 of the loss log s + mean z^2 / 2 s^2 vanishes.
    """
    blocks = "auto" if estimator.calibrate == "blocks" else None
    wanted = Wanted(1, blocks, seed=estimator._seed(), instead="choose calibrate=None")
    other = clone(estimator).set_params(calibrate=None)
    if means.is_regressor(estimator.mean):  # the rows are what it leaves
        other.set_params(mean=means.described(estimator.mean))
    with scratch(estimator.store) as url:
        parts = wanted.made(rows, url, executor)
        found = fold_of(other, parts, url, (None, 0), None, executor, 0)
    n, square = (float(found.sums.table[0, found.sums.column(name)]) for name in ("n", "score2"))
    if not square > 0:
        raise InputError(
            f"calibrate={estimator.calibrate!r}: {int(n)} held-out values are predicted without "
            "any error, which tells no spread: choose calibrate=None"
        )
    factor = math.sqrt(square / n)
    if n < FEW:
        logger.warning(
            "the factor %.3g on standard deviations is learned from only %d held-out values: it "
            "may be off by %.0f %%",
            factor,
            n,
            100 / math.sqrt(2 * n),
        )
    logger.info("standard deviations are multiplied by %.3g, from %d held-out values", factor, n)
    return factor
