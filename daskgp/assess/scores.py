"""Predictions of observations held against what was observed: scores, and sums of them by group.

Sums are over values: rows, and targets, are pooled.  All that statistics of scores and calibration
need is in them, so that a pass over the rows gives any number of rows' scores.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask import delayed
from scipy.special import ndtr

from daskgp import data, metrics
from daskgp.data import grids, reading, visibility
from daskgp.errors import InputError
from daskgp.models import fills
from daskgp.models.fills import Fills, without
from daskgp.models.values import Moments
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors, lazy
from daskgp.predict.stored import check_visible
from daskgp.runtime.executor import Executor

logger = logging.getLogger("daskgp")

LEVEL = 0.95
"""Level of the central interval that is scored."""
BINS = 200
"""Classes of the distribution function that observations are counted by."""
LEVELS = (0.5, 0.8, 0.95)
Predict = Callable[[Posterior, np.ndarray, np.ndarray], Moments]
"""Means and variances (n, p) of the Gaussian at rows X (n, d), with y as ``Rows.read`` has it."""


class Judged(NamedTuple):
    """Predictions of values y (n, p), NaN where one is not known or cannot be predicted.

    ``mean`` and ``variance`` are those of new observations, ``error`` is y - mean; ``score`` is the
    standardised residual, or the normal score of the distribution function of y, and ``below``
    that function; ``density`` the log density of y, and ``crps`` its continuous ranked probability
    score, where there is one.  Both are those of the Gaussian, whatever the tails of y are.
    """

    y: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    score: np.ndarray
    below: np.ndarray
    density: np.ndarray
    crps: np.ndarray | None


def predicted(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return the Gaussian's means and variances (n, p) of new observations at rows X (n, d).

    They are those of f where the likelihood is another one, and of the transformed y.
    """
    found = posterior.moments(X, "variance", include_noise=True, gaussian=True)
    assert found.variance is not None
    variance = known_errors.of_rows(posterior, y[:, posterior.n_targets :], found.variance)
    return found._replace(variance=variance)


def judge(
    posterior: Posterior, X: np.ndarray, y: np.ndarray, predict: Predict = predicted
) -> Judged:
    """Return predictions at rows X (n, d), in the user's units, held against y.

    ``y`` (n, p) may have weights and error variances after the targets, as ``Rows.read`` has it.

    Raises
    ------
    InputError
        If a target is none that the likelihood or the transform allows.
    """
    found = predict(posterior, X, y)
    m, v = found.mean, found.variance
    assert v is not None
    y = without(
        np.asarray(y[:, : posterior.n_targets], np.float64), posterior.fills[posterior.n_features :]
    )
    y = np.where(np.isnan(m + v) | ~np.isfinite(y), np.nan, y)
    outer = posterior.outer(True)
    outer.refuse(int((~outer.supports(y)).sum()))
    distribution = outer.over(m, np.sqrt(v))
    scores = distribution.score(y) if outer.graded else np.full(y.shape, np.nan)
    seen = outer.moments(found)
    mean, variance = seen.mean, np.asarray(seen.variance)
    crps = gaussian_crps(scores, v) if outer.keeps_moments else None
    below, density = distribution.below(scores), distribution.log_density(y)
    return Judged(y, mean, variance, y - mean, scores, below, density, crps)


def gaussian_crps(z: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the continuous ranked probability scores of Gaussians at standardised residuals."""
    normal = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    terms = z * (2 * ndtr(z) - 1) + 2 * normal - 1 / math.sqrt(math.pi)
    return np.asarray(np.sqrt(variance) * terms)


COLUMNS = ("n", "error", "size", "square", "score", "score2", "density", "crps", "variance")
"""Sums over values: their number, y - mean, its size and square, scores and their squares, log
density, CRPS, and predictive variances."""


@dataclass(eq=False)
class Sums:
    """Sums over the values of each of several groups.

    Attributes
    ----------
    table : ndarray (groups, columns)
        By COLUMNS; NaN in those that the predicted distribution does not have.
    counts : ndarray (groups, BINS)
        Values by classes of their distribution function.
    """

    table: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, judged: Judged, group: np.ndarray, groups: int) -> Sums:
        """Return the sums over values by the group (n,) of each row; those of a group -1 none."""
        known = ~np.isnan(judged.y) & (group >= 0)[:, None]
        crps = np.full(judged.y.shape, np.nan) if judged.crps is None else judged.crps
        e, z = judged.error, judged.score
        one, v = np.ones(e.shape), judged.variance
        values = one, e, np.abs(e), e**2, z, z**2, judged.density, crps, v
        which = np.broadcast_to(group[:, None], known.shape)[known]
        table = np.stack([np.bincount(which, v[known], minlength=groups) for v in values], axis=1)
        graded = known & ~np.isnan(judged.below)
        classes = np.minimum((judged.below[graded] * BINS).astype(int), BINS - 1)
        which = np.broadcast_to(group[:, None], known.shape)[graded]
        counts = np.bincount(which * BINS + classes, minlength=groups * BINS)
        return cls(table, counts.reshape(groups, BINS))

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.table + other.table, self.counts + other.counts)

    @property
    def total(self) -> Sums:
        """Sums over all groups."""
        return Sums(self.table.sum(axis=0)[None], self.counts.sum(axis=0)[None])

    @staticmethod
    def column(name: str) -> int:
        """Return the number of a column of the table."""
        return COLUMNS.index(name)

    def group(self, number: int) -> Sums:
        """Return the sums over one group."""
        return Sums(self.table[[number]], self.counts[[number]])

    def scores(self) -> dict[str, float]:
        """Return the scores of one group, or of all."""
        n, *sums = self.table.sum(axis=0).tolist()
        if not n:
            raise InputError("nothing to score: no row has all features and a known target")
        mean = dict(zip(COLUMNS[1:], (s / n for s in sums), strict=True))
        found = {
            "rmse": math.sqrt(mean["square"]),
            "mae": mean["size"],
            "bias": mean["error"],
            "spread": math.sqrt(mean["variance"]),
            "nlpd": -mean["density"],
            "crps": mean["crps"],
            **{f"coverage_{level * 100:.0f}": self.coverage(level) for level in LEVELS},
            "z_mean": mean["score"],
            "z_variance": mean["score2"] - mean["score"] ** 2,
        }
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def coverage(self, level: float) -> float:
        """Return the share of values inside the central interval of a level."""
        counts, edges = self.counts.sum(axis=0), np.linspace(0, 1, BINS + 1)
        if not counts.any():
            return math.nan
        cumulated = np.append(0.0, np.cumsum(counts)) / counts.sum()
        low, high = np.interp([0.5 - level / 2, 0.5 + level / 2], edges, cumulated)
        return float(high - low)


METRICS = (
    "rmse",
    "mae",
    "bias",
    "spread",
    "nlpd",
    "crps",
    *(f"coverage_{100 * q:.0f}" for q in LEVELS),
)
METRICS = (*METRICS, "z_mean", "z_variance")
"""Names of scores."""


def aligned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of a table as lines, their columns aligned."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(text.rjust(w) for text, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(padded)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return str(value) if isinstance(value, str | int | np.integer) else f"{value:.4g}"


# -- of a test set ----------------------------------------------------------------------------


def scores(posterior: Posterior, X: da.Array, y: da.Array, executor: Executor) -> dict[str, Any]:
    """Return the scores of ``metrics.summary`` for predictions of new observations, with noise.

    Scores of Gaussian densities are left out unless y is f and Gaussian noise; ``nlpd`` is then
    that of the likelihood, or of y where targets are transformed.  Intervals have the tails that
    the model has learned; densities and ``crps`` are those of the Gaussian.

    Parameters
    ----------
    posterior : Posterior
        The fitted method.
    X, y : dask arrays (n, d) and (n,) or (n, p)
        Test rows with equal row chunks.  Values of y that are missing, and rows that miss a
        feature and so cannot be predicted, are left out.  Rows of a store with error variances or
        weights have the noise that these say.
    executor : Executor
        Where to run.

    Raises
    ------
    InputError
        If the columns are not those of the training data, or nothing is left to score.
    """
    posterior.refuse_spread(include_noise=True)
    rows = lazy.rows_for(posterior, X)
    if not X.shape[0]:
        raise InputError("no rows: there is nothing to score")
    columns = 1 if y.ndim == 1 else y.shape[1]
    if columns != posterior.n_targets:
        raise InputError(
            f"y has {columns} targets, but the model was fitted with {posterior.n_targets}: "
            f"{', '.join(posterior.target_names)}"
        )
    _check_visible(posterior, X, y, executor)
    mean, variance = lazy.lazy(posterior, rows, "variance", include_noise=True)
    variance = known_errors.of_store(posterior, y, variance)
    y = y.reshape(mean.shape) if y.ndim != mean.ndim else y
    y = measured(posterior, y)
    known = da.where(da.isnan(mean) | da.isnan(variance), np.nan, y)
    outer = posterior.outer(True)
    if outer.keeps_moments:
        results = metrics.summary(known, mean, variance)
        wide = variance * outer.wider(LEVEL) ** 2
        results["coverage_95"] = metrics.coverage(known, mean, wide, LEVEL)
        results["interval_score_95"] = metrics.interval_score(known, mean, wide, LEVEL)
    else:
        results = _of_distribution(posterior, outer, rows, known, mean)
    other = (~outer.supports(y)).sum()
    wanted = {**results, "observed": (~da.isnan(y)).sum(), "other": other}
    optimized = dask.optimize(wanted)[0]
    results = executor.compute(delayed(dict)(optimized))
    observed, n, other = (int(results.pop(name)) for name in ("observed", "n", "other"))
    outer.refuse(other)
    if n == 0:
        raise InputError(
            f"nothing to score: none of {len(X)} rows has all features and a known target"
        )
    if n < observed:
        logger.warning("%d values are left out: their rows miss a feature", observed - n)
    return {**{name: float(value) for name, value in results.items()}, "n": n}


def compared(
    posterior: Posterior,
    X: Any,
    y: Any,
    mean: Any,
    error: Callable[..., Any],
    executor: Executor,
    weight: Any = None,
) -> float:
    """Return ``error(y, mean)`` of the mean at X, of any kind; one round computes a lazy error.

    With weights of the values it is ``error(weight, y, mean)``.
    """
    reading.refuse_other_order(X, y=y)
    if grids.is_xarray(mean):
        if weight is not None:
            _, weight = grids.scored_arrays(mean, weight, posterior.vector_target)
        mean, y = grids.scored_arrays(mean, y, posterior.vector_target)
    if not isinstance(mean, da.Array):
        masked = weight is not None or np.ma.isMaskedArray(y) or any(_fills(posterior))
        y = measured(posterior, reading.unmasked(y) if masked else y)
        y = y if weight is None else y.reshape(mean.shape)
        found = float(error(y, mean) if weight is None else error(weight, y, mean))
    else:
        _check_visible(posterior, X, y, executor)
        y = measured(posterior, da.asarray(y))
        lazy = error(y, mean) if weight is None else error(weight, y.reshape(mean.shape), mean)
        found = float(executor.compute(delayed(float)(dask.optimize(lazy)[0])))
    if weight is not None and np.isnan(found):
        raise InputError(
            "no score: the values of y that have a weight are none or constant, or their rows miss "
            "a feature"
        )
    return found


def _fills(posterior: Posterior) -> Fills:
    """Return the values of each target that are missing."""
    return posterior.fills[posterior.n_features :]


def measured(posterior: Posterior, y: Any) -> Any:
    """Return y (n,) or (n, p), a NumPy or dask array, with NaN for fill values of the targets."""
    own = _fills(posterior)
    if not any(own):
        return y

    def known(y: np.ndarray) -> np.ndarray:
        return fills.without(y.reshape(len(y), -1), own).reshape(y.shape)

    if isinstance(y, da.Array):
        apply: Any = da.map_blocks
        return apply(known, y.astype(np.result_type(y.dtype, np.float32)))
    return known(y)


def _check_visible(posterior: Posterior, X: Any, y: Any, executor: Executor) -> None:
    """Raise InputError unless all workers see the stores of test rows and of a model's rows."""
    remedy = f"put it in {visibility.HERE}"
    for array in (X, y):
        visibility.check(executor, data.behind(array), "the test data", remedy)
    check_visible(executor, posterior, remedy)


def _of_distribution(
    posterior: Posterior, outer: Outer, X: da.Array, y: da.Array, mean: da.Array
) -> dict[str, Any]:
    """Return scores of the mean of y (n,) or (n, p), and of its distribution."""
    m, variance = lazy.lazy(posterior, X, "variance", include_noise=True, gaussian=True)
    apply: Any = da.map_blocks
    own = {"dtype": np.float64, "meta": mean._meta}
    kept = da.where(outer.supports(y), y, np.nan)  # others are refused
    results = {
        "rmse": metrics.rmse(y, mean),
        "mae": metrics.mae(y, mean),
        "nlpd": -da.nanmean(apply(outer.log_density, kept, m, variance, **own)),
        "n": (~da.isnan(y)).sum(),
    }
    if outer.increasing:
        z, wide = apply(outer.inward, kept, **own), variance * outer.wider(LEVEL) ** 2
        results["coverage_95"] = metrics.coverage(z, m, wide, LEVEL)
    if not outer.graded:
        right = da.where(da.isnan(y), np.nan, (mean > 0.5) == (y > 0.5))
        results["accuracy"] = da.nanmean(right)
    return results
