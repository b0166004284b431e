"""Scores of predictions against a test set, in one pass over its chunks."""

from __future__ import annotations

import logging
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp import metrics
from daskgp.errors import InputError
from daskgp.flow import io, predict, visible
from daskgp.flow.cluster import Executor
from daskgp.flow.solved import Solved, check_columns

logger = logging.getLogger("daskgp")


def scores(solved: Solved, X: da.Array, y: da.Array, executor: Executor) -> dict[str, Any]:
    """What ``metrics.summary`` names, of predictions of new observations (noise included).

    Parameters
    ----------
    solved : Solved
        The fitted method.
    X, y : dask arrays (n, d) and (n,) or (n, p)
        Test rows with equal row chunks.  Values of y that are missing, and rows that miss a
        feature and so cannot be predicted, are left out.
    executor : Executor
        Where to run.

    Raises
    ------
    InputError
        If the columns are not those of the training data, or nothing is left to score.
    """
    solved.refuse_spread(include_noise=True)
    check_columns(solved, X, io.column_names(X))
    if not X.shape[0]:
        raise InputError("no rows: there is nothing to score")
    columns = 1 if y.ndim == 1 else y.shape[1]
    if columns != solved.n_targets:
        raise InputError(
            f"y has {columns} targets, the model was fitted with {solved.n_targets}: "
            f"{', '.join(solved.target_names)}"
        )
    for array in (X, y):
        remedy = f"put it in {visible.HERE}"
        visible.check(executor, io.behind(array), "the test data", remedy)
    if solved.kept is not None:
        visible.check(executor, solved.kept.rows.X, "the training rows of the model", remedy)
    mean, variance = predict.lazy(solved, X, "variance", include_noise=True)
    y = y.reshape(mean.shape) if y.ndim != mean.ndim else y
    known = da.where(da.isnan(mean), np.nan, y)
    wanted = {**metrics.summary(known, mean, variance), "observed": (~da.isnan(y)).sum()}
    optimized = dask.optimize(wanted)[0]
    found = executor.compute(delayed(dict)(optimized))
    observed, n = int(found.pop("observed")), int(found.pop("n"))
    if n == 0:
        raise InputError(
            f"nothing to score: none of {len(X)} rows has all features and a known target"
        )
    if n < observed:
        logger.warning("%d values are left out: their rows miss a feature", observed - n)
    return {**{name: float(value) for name, value in found.items()}, "n": n}
