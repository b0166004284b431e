"""The one scorer: predictions of observations held against what was observed, value by value.

Sums over values, rows and targets pooled, have all that scores and calibration need, so that a pass
over the rows scores any number of them, as a whole or by groups.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask import delayed
from scipy.special import ndtri

from daskgp import data, metrics
from daskgp.data import expected, feature_units, folds, grids, named_targets, reading, visibility
from daskgp.data.blocks import filling
from daskgp.data.feature_units import Change
from daskgp.data.partition import Span
from daskgp.data.rows import Beside
from daskgp.errors import InputError
from daskgp.fit import targets
from daskgp.fit.scratch import scratch_rows
from daskgp.models import scaling
from daskgp.models.fills import without
from daskgp.models.values import Moments
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior, check_columns
from daskgp.predict import known_errors, lazy
from daskgp.predict.stored import Node, check_visible, opened
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import single_blas_thread

logger: logging.Logger = logging.getLogger("daskgp")

BINS = 200
"""Classes of the distribution function that observations are counted by."""
LEVELS = (0.5, 0.8, 0.95)
Predict = Callable[[Posterior, np.ndarray, np.ndarray], Moments]
"""Means and variances (n, p) of the Gaussian at rows X (n, d), with y as ``Rows.read`` has it."""


@dataclass(frozen=True)
class LeftOut:
    """Numbers of values y (n, p) without a score.

    ``unpredicted`` ones are known, where a feature is missing or infinite; ``missing`` ones are
    NaN, and ``infinite`` (p,) are those of each target.
    """

    unpredicted: int = 0
    missing: int = 0
    infinite: np.ndarray = field(default_factory=lambda: np.zeros(1, int))

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.unpredicted + other.unpredicted,
            self.missing + other.missing,
            self.infinite + other.infinite,
        )


class Scores(NamedTuple):
    """Predictions of values y (n, p) and their scores, NaN where there is none.

    ``mean`` and ``variance`` are those of new observations, ``error`` is y - mean; ``score`` is the
    standardised residual, or the normal score of the distribution function of y, and ``below``
    that function; ``density`` the log density of y, ``crps`` its continuous ranked probability
    score and ``interval`` the score of its 95 % interval.  Density and CRPS are those of the
    Gaussian or of the likelihood, whatever the tails of y are.  ``ranked`` is the ranked
    probability score of counts and ordered classes, of which it is the CRPS too.  ``right`` says
    whether a class is the likelier one, ``left_out`` are numbers of values without a score, and
    ``steps`` the ends of the steps of the distribution function at whole numbers y.
    """

    y: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    score: np.ndarray
    below: np.ndarray
    density: np.ndarray
    crps: np.ndarray
    interval: np.ndarray
    ranked: np.ndarray
    right: np.ndarray
    left_out: LeftOut = LeftOut()
    steps: tuple[np.ndarray, np.ndarray] | None = None


def predicted(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return the Gaussian's means and variances (n, p) of new observations at rows X (n, d).

    They are those of f where the likelihood is another one, and of the transformed y.
    """
    found = posterior.moments(X, "variance", include_noise=True, gaussian=True)
    assert found.variance is not None
    variance = known_errors.of_rows(posterior, X, y[:, posterior.n_targets :], found.variance)
    return found._replace(variance=variance)


def scored(
    posterior: Posterior,
    X: np.ndarray,
    y: np.ndarray,
    predict: Predict = predicted,
    beside: Beside | None = None,
    steps: bool = False,
) -> Scores:
    """Return predictions at rows X (n, d), in the user's units, and scores of y, maybe ``steps``.

    ``y`` (n, p) may have weights and error variances after the targets, as ``Rows.read`` has it;
    ``beside`` are numbers (n,) that the likelihood takes.

    Raises
    ------
    InputError
        If a target is none that the likelihood or the transform allows.
    """
    found, p = predict(posterior, X, y), posterior.n_targets
    m, v = found.mean, found.variance
    assert v is not None
    y = without(np.asarray(y[:, :p], np.float64), posterior.fills[posterior.n_features :])
    known, infinite = np.isfinite(y), np.isinf(y)
    missing = int((~known & ~infinite).sum())
    y = np.where(known & ~np.isnan(m + v), y, np.nan)
    outer, nothing = posterior.outer(True).of_rows(beside or {}), np.full(y.shape, np.nan)
    outer.refuse(int((~outer.supports(y)).sum()))
    distribution = outer.over(m, np.sqrt(v))
    score = distribution.score(y) if outer.graded else nothing
    moments = outer.moments(found)
    mean, variance = moments.mean, np.asarray(moments.variance)
    ranked = distribution.ranked(y)
    crps, interval = distribution.crps(y), nothing
    if outer.keeps_moments:
        half = np.sqrt(v) * outer.wider(0.95) * float(ndtri(0.975))
        crps = metrics.crps_of(score, np.sqrt(v))
        interval = metrics.interval_score_of(y - mean, half, 0.95)
    right = nothing if outer.graded else np.where(np.isnan(y), np.nan, (mean > 0.5) == (y > 0.5))
    below, density = distribution.below(score), distribution.log_density(y)
    unpredicted = int(known.sum() - (~np.isnan(y)).sum())
    own = score, below, density, crps, interval, ranked, right
    ends = distribution.steps(y) if steps else None
    left_out = LeftOut(unpredicted, missing, infinite.sum(axis=0))
    return Scores(y, mean, variance, y - mean, *own, left_out, ends)


COLUMNS = (
    *("n", "error", "size", "square", "score", "score2"),
    *("density", "crps", "variance", "interval", "ranked", "right"),
)
"""Sums over values: their number, y - mean, its size and square, scores and their squares, log
density, CRPS, predictive variances, interval scores, ranked probability scores and right
classes."""
METRICS = (
    *("rmse", "mae", "bias", "spread", "nlpd", "crps", "ranked_probability", "brier", "accuracy"),
    *(f"coverage_{100 * q:.0f}" for q in LEVELS),
    *("z_mean", "z_variance"),
)
"""Names of scores by which parts of the rows, and models, are compared."""
SHOWN = ("rmse", "nlpd", "crps", "coverage_95", "ranked_probability", "brier", "accuracy")
"""Scores that are shown by default, of which classes and counts have some."""


@dataclass(eq=False)
class Sums:
    """Sums over the values of each of several groups.

    Attributes
    ----------
    table : ndarray (groups, columns)
        By COLUMNS; NaN in those that the predicted distribution does not have.
    counts : ndarray (groups, BINS)
        Values by classes of their distribution function.
    left_out : LeftOut
        Numbers of values without a score in all rows, of any group.
    """

    table: np.ndarray
    counts: np.ndarray
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def of(cls, scores: Scores, group: np.ndarray | None = None, groups: int = 1) -> Sums:
        """Return the sums over values by the group (n,) of each row, or (n, p) of each value.

        Those of a group -1 are in none.
        """
        group = np.zeros(len(scores.y), int) if group is None else group
        group = np.broadcast_to(group if group.ndim > 1 else group[:, None], scores.y.shape)
        known = ~np.isnan(scores.y) & (group >= 0)
        e, z = scores.error, scores.score
        of_error, of_y = (np.ones(e.shape), e, np.abs(e), e**2), (scores.density, scores.crps)
        more = scores.variance, scores.interval, scores.ranked, scores.right
        values = *of_error, z, z**2, *of_y, *more
        which = group[known]
        table = np.stack([np.bincount(which, v[known], minlength=groups) for v in values], axis=1)
        graded = known & ~np.isnan(scores.below)
        classes = np.minimum((scores.below[graded] * BINS).astype(int), BINS - 1)
        counts = np.bincount(group[graded] * BINS + classes, minlength=groups * BINS)
        return cls(table, counts.reshape(groups, BINS), scores.left_out)

    @classmethod
    def by_target(cls, scores: Scores) -> Sums:
        """Return the sums over values with those of each target as a group."""
        p = scores.y.shape[1]
        return cls.of(scores, np.broadcast_to(np.arange(p), scores.y.shape), p)

    def __add__(self, other: Sums) -> Sums:
        left_out = self.left_out + other.left_out
        return Sums(self.table + other.table, self.counts + other.counts, left_out)

    @property
    def n(self) -> int:
        """Number of values."""
        return int(self.table[:, 0].sum())

    @property
    def total(self) -> Sums:
        """Sums over all groups."""
        return Sums(self.table.sum(axis=0)[None], self.counts.sum(axis=0)[None], self.left_out)

    def group(self, number: int) -> Sums:
        """Return the sums over one group."""
        return Sums(self.table[[number]], self.counts[[number]])

    def named(self, names: Sequence[str]) -> dict[str, Sums]:
        """Return the sums over each group by its name; none of a single group."""
        return {name: self.group(j) for j, name in enumerate(names)} if len(names) > 1 else {}

    def scores(self) -> dict[str, float]:
        """Return the scores of one group, or of all."""
        n, *sums = self.table.sum(axis=0).tolist()
        if not n:
            raise InputError(
                "nothing to score: no row has all features and a known target: give rows that do"
            )
        mean = dict(zip(COLUMNS[1:], (s / n for s in sums), strict=True))
        found = {
            "rmse": math.sqrt(mean["square"]),
            "mae": mean["size"],
            "bias": mean["error"],
            "spread": math.sqrt(mean["variance"]),
            "nlpd": -mean["density"],
            "crps": mean["crps"],
            "ranked_probability": mean["ranked"],
            "brier": math.nan if math.isnan(mean["right"]) else mean["square"],
            **{f"coverage_{level * 100:.0f}": self.coverage(level) for level in LEVELS},
            "interval_score_95": mean["interval"],
            "z_mean": mean["score"],
            "z_variance": mean["score2"] - mean["score"] ** 2,
            "accuracy": mean["right"],
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


# -- of a test set ---------------------------------------------------------------------------


class TestRows(NamedTuple):
    """Rows to predict and score, and how their features get the units of the training data."""

    rows: data.Rows
    how: tuple[Change | None, ...]

    @property
    def spans(self) -> list[Span]:
        """The rows in spans of one length."""
        return folds.even_spans(self.rows)

    def scored(
        self, span: Span, posterior: Posterior, steps: bool = False
    ) -> tuple[np.ndarray, Scores]:
        """Return X (r, d) of a span in the user's units, and scores of its rows."""
        X, y = self.rows.raw(*span)
        X, beside = feature_units.converted(X, self.how), self.rows.beside_in(y)
        return X, scored(posterior, X, y, beside=beside, steps=steps)


def check_left_out(total: Sums, rows: data.Rows) -> None:
    """Warn of values without a score; InputError if some are infinite, or none has a score."""
    none, dtype = total.left_out, np.dtype(rows.arrays["y"].dtype)
    scaling.refuse_infinite_targets(none.infinite, rows.target_names, dtype)
    if not total.n:
        raise InputError(
            f"nothing to score: none of {len(rows)} rows has all features and a known "
            "target: give rows that do"
        )
    gaps = len(rows.target_names) > 1  # which are usual, and a fit keeps the other values
    for count, reason in (
        (none.unpredicted, "a feature is missing or infinite"),
        (0 if gaps else none.missing, "the target is missing"),
    ):
        if count:
            are = "1 value is" if count == 1 else f"{count:,} values are"
            logger.warning("%s left out, because %s", are, reason)


def rows_to_score(
    posterior: Posterior,
    X: Any,
    y: Any,
    fill_values: Any,
    spill: str,
    executor: Executor,
    beside: Beside | None = None,
) -> TestRows:
    """Return rows of any kind that ``fit`` takes, with NaN for fill values, which are said.

    Raises
    ------
    InputError
        If they have no such columns, or a worker does not see them.
    """
    place = posterior.geographic or False
    data.warn_of_packed(X, y=y)
    y, beside = named_targets.by_name(y, beside or {}, posterior.target_names, some=True)
    X = posterior.coded(X)
    of_each = posterior.joint or bool(posterior.each)
    given = None, beside, place, posterior.own_columns, None, of_each
    rows = data.rows_of(X, y, spill, executor.shares_memory, *given)
    check_columns(posterior, rows.X, rows.feature_names)
    if not len(rows):
        raise InputError("no rows: there is nothing to score; give at least one")
    how = lazy.conversions(posterior, X, "X")
    if rows.n_targets != posterior.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, but the model was fitted with "
            f"{posterior.n_targets}: give {', '.join(posterior.target_names)}"
        )
    refuse_unseen(posterior, executor, *rows.arrays.values())
    first = slice(0, min(len(rows), expected.LOOKED_AT))
    look = lazy.warn_of_far if first.stop == len(rows) else lazy.warn_of_far_block
    look(posterior, feature_units.converted(reading.read(rows.X, first), how))
    d, own = posterior.n_features, posterior.fills
    if any(how):  # those of features are in other units
        own = ((),) * d + (own[d:] or ((),) * posterior.n_targets)
    rows, classes = replace(rows, fills=own), posterior.likelihood is not None
    spans = folds.even_spans(rows)
    if posterior.likelihood is not None:
        posterior.likelihood.with_columns({name: np.zeros(0) for name in rows.beside})
        if rows.beside:
            targets.check_columns(rows, spans, executor, posterior.likelihood)
    rows = filling.marked(rows, fill_values, spans, executor, classes=classes)
    return TestRows(rows, how)


def refuse_unseen(posterior: Posterior, executor: Executor, *arrays: Any) -> None:
    """Raise InputError unless all workers see the stores of test rows and of a model's rows."""
    remedy = f"put it in {visibility.HERE}"
    for array in arrays:
        visibility.check(executor, data.behind(array), "the test data", remedy)
    check_visible(executor, posterior, remedy)


def summed(
    task: Callable[..., Any],
    spans: Sequence[Span],
    posterior: Posterior,
    executor: Executor,
    label: str,
    plus: Callable[[Any, Any], Any] = operator.add,
) -> Any:
    """Return the sum of what tasks make of spans of rows and a posterior."""
    node = lazy.posterior_node(posterior, not executor.shares_memory)
    return map_reduce(task, plus, spans, executor, label, [node])


def scores(
    posterior: Posterior, X: Any, y: Any, executor: Executor, fill_values: Any = "auto"
) -> dict[str, Any]:
    """Return the scores of predictions of new observations, with noise, and the number of values.

    Of several targets, ``targets`` has those of each, by its name, empty for one without a value;
    the others are then a mixture: of all values together, whatever units these have.

    They are those of ``metrics.summary`` if y is f and Gaussian noise; ``nlpd`` is otherwise that
    of the likelihood, or of y where targets are transformed.  Intervals have the tails that the
    model has learned; densities and ``crps`` are those of the Gaussian.  Counts and ordered classes
    have the ``ranked_probability`` score, which is their ``crps``; classes have the ``brier`` score
    and the ``accuracy``.

    Parameters
    ----------
    posterior : Posterior
        The fitted method.
    X, y : array-like (n, d) and (n,) or (n, p)
        Test rows of any kind that ``fit`` takes.  Values of y that are missing, and rows that miss
        a feature and so cannot be predicted, are left out.  Rows of a store with error variances
        or weights have the noise that these say.
    executor : Executor
        Where to run.
    fill_values : "auto", sequence of float or None
        Values that stand for missing ones beside those of the fit, as for estimators.

    Raises
    ------
    InputError
        If the columns are not those of the training data, or nothing is left to score.
    """
    posterior.refuse_spread(include_noise=True)
    with scratch_rows(None) as spill:
        rows = rows_to_score(posterior, X, y, fill_values, spill, executor)
        task = partial(_of_span, rows)
        total: Sums = summed(task, rows.spans, posterior, executor, "score")
    check_left_out(total, rows.rows)
    own = partial(_shown, outer=posterior.outer(True))
    each = {name: own(sums) for name, sums in total.named(posterior.target_names).items()}
    return {**({"targets": each} if each else {}), **own(total)}


def _shown(sums: Sums, outer: Outer) -> dict[str, Any]:
    """Return the scores of a test set and the number of values."""
    found = sums.scores() if sums.n else {}
    names = ["rmse", "mae", "nlpd", "crps", "ranked_probability", "interval_score_95"]
    names[5:5] = ["coverage_95"] * outer.increasing
    names += ["brier", "accuracy"]
    return {**{name: found[name] for name in names if name in found}, "n": sums.n}


def _of_span(rows: TestRows, span: Span, node: Node) -> Sums:
    with single_blas_thread():
        return Sums.by_target(rows.scored(span, opened(node))[1])


def compared(
    posterior: Posterior,
    X: Any,
    y: Any,
    mean: Any,
    error: Callable[..., Any],
    executor: Executor,
    weight: Any = None,
    fill_values: Any = "auto",
) -> float:
    """Return ``error(y, mean)`` of the mean at X, of any kind; one round computes a lazy error.

    With weights of the values it is ``error(weight, y, mean)``.
    """
    if grids.is_xarray(mean):
        if weight is not None:
            _, weight = grids.scored_arrays(mean, weight, posterior.vector_target)
        mean, y = grids.scored_arrays(mean, y, posterior.vector_target)
    if isinstance(mean, da.Array):
        refuse_unseen(posterior, executor, X, y)
        y = da.asarray(y if isinstance(y, da.Array) or data.is_zarr(y) else reading.unmasked(y))
    else:
        y = reading.unmasked(y, "y")
    reading.check_kind("y", y)
    y = filling.marked_targets(
        y,
        posterior.target_names,
        posterior.fills[posterior.n_features :],
        fill_values,
        executor,
        classes=posterior.likelihood is not None,
    )
    y = _shaped_like(mean, y, posterior.target_names)
    infinite: Any = np.isinf(y) if weight is None else np.isinf(y) & (weight > 0)
    counts, known = infinite.sum(axis=0), np.where(infinite, np.nan, y)
    found = error(known, mean) if weight is None else error(weight, known, mean)
    if isinstance(mean, da.Array):
        found, counts = executor.compute(delayed(tuple)(dask.optimize(found, counts)))
    scaling.refuse_infinite_targets(np.atleast_1d(counts), posterior.target_names, y.dtype)
    if weight is not None and np.isnan(found):
        raise InputError(
            "no score: no row with a weight has all features and a known target, or their values "
            "of "
            "y are all the same: give rows with different values of y"
        )
    return float(found)


def _shaped_like(mean: Any, y: Any, names: Sequence[str]) -> Any:
    """Return targets in the shape of their mean: one may be (n,) or (n, 1)."""
    rows, others = y.shape[0], np.shape(mean)[0]
    if rows != others and not np.isnan([rows, others]).any():  # as lengths of lazy ones may be
        raise InputError(f"y has {rows} rows and X has {others}: give both of the same rows")
    if len(names) > 1:
        return y
    if y.ndim == 2 and y.shape[1] > 1:
        raise InputError(
            f"y has {y.shape[1]} targets, but the model was fitted with {names[0]} alone: give "
            "that one"
        )
    y = y[:, 0] if y.ndim == 2 else y
    return y[:, None] if np.ndim(mean) == 2 else y


# -- tables ----------------------------------------------------------------------------------


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
