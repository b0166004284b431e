"""Rows that trials are scored on: folds, their predictions, and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgp import data, metrics
from daskgp.assess.leaderboard import HeldOut
from daskgp.assess.scores import SHOWN, scored
from daskgp.choose.profile import Profile
from daskgp.data.blocks import sampling
from daskgp.data.folds import Fold, Parts, Wanted
from daskgp.data.partition import Span
from daskgp.data.rows import Beside
from daskgp.errors import InputError
from daskgp.likelihoods import Censored, by_name
from daskgp.likelihoods.ranked import ranked_probability
from daskgp.models.scaling import complete_rows
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread

FEW = "give more rows, or fit an exact GP (--model exact; ExactGP in Python)"
"""Remedy where rows are too few to hold some out."""
SURE = 1e-6
"""Standard deviation of an f that is as good as known."""
FEW_VALUES = 50
"""Held-out values that tell a spread at least."""
HALVINGS = 4
"""Times that held-out regions are halved to tell chance."""
FOLDS = ((1_000, 5), (4_000, 3))
"""Most rows for which so many folds are made; one for more."""


def folds_of(
    rows: data.Rows,
    n: int,
    task: str,
    time: int | None,
    places: Any,
    seed: int,
    url: str,
    executor: Executor,
    repeated: bool = False,
) -> Parts:
    """Return the rows in folds that fit a task, in a store beside a URL.

    Those at one place go together where most are ``repeated``: a score of others of them would be
    that of what is known.
    """
    number = next((folds for most, folds in FOLDS if n <= most), 1)
    if n < number:
        raise InputError(f"{n} rows are too few to hold some out for choosing a method: {FEW}")
    blocks = (places if places is not None else "auto") if task == "gaps" else None
    column = time if task == "forecast" else None
    together = True if repeated and task == "interpolate" else None
    latter = column is not None and number > 1  # forecasts from half of the rows at least
    stretches = 2 * number - 1 if latter else number
    wanted = Wanted(stretches, blocks, None, column, seed, FEW, places=together, latter=latter)
    wanted.check()
    return wanted.made(rows, url, executor)


def _chosen_rows(
    parts: Parts, fold: Fold, share: float, seed: int, span: Span
) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a share of the rows of a span that a fold is tested on."""
    part = parts.of(span)
    keys = sampling.row_keys((seed, 23), span.start, span.rows)
    drawn = keys.astype(np.float64) / 2.0**64 < share
    places = np.flatnonzero(fold.tested[part] & (part >= 0) & drawn)
    X, y = parts.rows.raw(*span)
    return X[places], y[places]


def tested(
    parts: Parts, fold: Fold, share: float, seed: int, span: Span, node: Node
) -> list[HeldOut]:
    """Return predictions of the rows of a span that a fold is tested on."""
    X, y = _chosen_rows(parts, fold, share, seed, span)
    with single_blas_thread():
        found = scored(opened(node), X, y, beside=parts.rows.beside_in(y))
    own = found.score, found.density, found.crps, found.ranked, found.right
    return [HeldOut(np.asarray(X, np.float64), found.y, found.mean, found.variance, *own)]


def constant(
    parts: Parts,
    fold: Fold,
    share: float,
    seed: int,
    training: np.ndarray,
    beside: Beside,
    profile: Profile,
    span: Span,
) -> list[HeldOut]:
    """Return the prediction of held-out rows by the mean and variance of training targets.

    With numbers ``beside`` these it is that of a constant f.
    """
    X, y = _chosen_rows(parts, fold, share, seed, span)
    if beside or (profile.settled and profile.kind != "class"):
        return [_of_constant(profile, training[:, 0], beside, X, y, parts.rows.beside_in(y))]
    y = np.asarray(y[:, : training.shape[1]], np.float64)
    y = np.where(np.isfinite(y) & np.isfinite(X).all(axis=1)[:, None], y, np.nan)
    mean, variance = np.nanmean(training, axis=0), np.nanvar(training, axis=0)
    m = np.broadcast_to(mean, y.shape)
    v = np.broadcast_to(np.maximum(variance, np.finfo(float).tiny), y.shape)
    nothing = np.full(y.shape, np.nan)
    if profile.kind == "class":
        p = np.clip(m, 1e-6, 1 - 1e-6)
        density = np.where(y == 1, np.log(p), np.where(y == 0, np.log1p(-p), np.nan))
        right = np.where(np.isnan(y), np.nan, (p > 0.5) == (y > 0.5))
        return [HeldOut(X, y, p, p * (1 - p), nothing, density, nothing, nothing, right)]
    z = (y - m) / np.sqrt(v)
    density = -0.5 * (np.log(2 * np.pi * v) + z**2)
    crps = metrics.crps_of(z, np.sqrt(v))
    return [HeldOut(X, y, m, v, z, density, crps, nothing, nothing)]


def _of_constant(
    profile: Profile,
    training: np.ndarray,
    beside: Beside,
    X: np.ndarray,
    y: np.ndarray,
    own: Beside,
) -> HeldOut:
    """Return what the constant f that gives training targets (n,) their mean predicts of y."""
    known = ~np.isnan(training)
    t, numbers = training[known], {name: values[known] for name, values in beside.items()}
    likelihood = by_name(str(profile.likelihood)).start(t, numbers)
    if isinstance(likelihood, Censored):
        likelihood = Censored(likelihood.spread(t, numbers) or 1.0)
        f = float(likelihood.values(t, numbers).mean())
    elif likelihood.standardised:
        f = float(np.median(t))
    else:
        f = float(likelihood.with_columns(numbers).offset(t.mean(keepdims=True))[0])
    known = complete_rows(X, y)
    of_rows = likelihood.with_columns({name: values[known] for name, values in own.items()})
    y = np.where(known[:, None], y[:, :1], np.nan)
    constant = np.full((int(known.sum()), 1), f)
    mean, variance, density, ranked, nothing = (np.full(y.shape, np.nan) for _ in range(5))
    mean[known], variance[known] = of_rows.response(constant, np.zeros(len(constant)))
    density[known] = of_rows.log_p(y[known], constant).value
    if likelihood.discrete:
        ranked[known] = ranked_probability(of_rows, y[known], constant, 0 * constant + SURE)
    return HeldOut(X, y, mean, variance, nothing, density, ranked, ranked, nothing)


def joined(pieces: Sequence[HeldOut]) -> HeldOut:
    """Return the held-out rows of all pieces; InputError if there are none."""
    if not pieces:
        raise InputError("no held-out row has all features and a known target: give more rows")
    return HeldOut(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def nothing(rows: data.Rows) -> HeldOut:
    """Return no held-out rows, of a trial that failed."""
    X, y = np.empty((0, len(rows.feature_names))), np.empty((0, rows.n_targets))
    return HeldOut(X, *[y] * (len(HeldOut._fields) - 1))


def with_spread(found: HeldOut) -> HeldOut:
    """Return Gaussian predictions with the spread that held-out rows tell, if these are enough.

    The factor on standard deviations is that of ``calibrate``, the root of the mean square of
    standardised residuals.
    """
    z = found.score
    known = np.isfinite(z)
    square = float(np.mean(z[known] ** 2)) if known.sum() >= FEW_VALUES else 0.0
    if not square > 0:
        return found
    variance, score = found.variance * square, z / math.sqrt(square)
    density = found.density + (z**2 - score**2 - math.log(square)) / 2
    crps = np.where(np.isfinite(found.crps), metrics.crps_of(score, np.sqrt(variance)), np.nan)
    return found._replace(variance=variance, score=score, density=density, crps=crps)


def loss_of(found: HeldOut, metric: str) -> np.ndarray:
    """Return the loss (n,) of each held-out row, averaged over targets in their spreads' units.

    Targets that do not vary do not count beside others.
    """
    if not len(found.y):
        return np.empty(0)
    unit = _spreads(found.y)
    values = np.where(np.isnan(unit), np.nan, -found.density)
    if metric != "nlpd":
        power, own = (2, (found.y - found.mean) ** 2) if metric == "rmse" else (1, found.crps)
        values = own / unit**power * np.nanmean(unit**power)
    known = np.isfinite(values)
    number = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _spreads(y: np.ndarray) -> np.ndarray:
    """Return the standard deviations (p,) of targets y (n, p); NaN of one that does not vary.

    They are 1 where none varies.
    """
    several = [column[np.isfinite(column)] for column in y.T]
    unit = np.array([own.std() if len(own) and np.ptp(own) else np.nan for own in several])
    return unit if np.isfinite(unit).any() else np.ones(len(unit))


def error_of(values: np.ndarray, cells: np.ndarray | None = None) -> float:
    """Return the standard error of a mean of values (n,), where those of a cell may err alike."""
    n = max(len(values), 1)
    error = float(values.std()) / math.sqrt(n) if len(values) else 0.0
    if cells is None or not len(values):
        return error
    sums = np.bincount(cells, values - values.mean())
    number = max(int(np.count_nonzero(np.bincount(cells))), 2)
    return max(error, float(np.sqrt((sums**2).sum() * number / (number - 1))) / n)


def cells_of(X: np.ndarray) -> np.ndarray:
    """Return the cell (n,) of each place X (n, d), halves of halves along the widest column."""
    X, cells = np.nan_to_num(X), np.zeros(len(X), int)
    if not len(X):  # of a trial that failed
        return cells
    spread = X.std(axis=0)
    scaled = X / np.where(spread > 0, spread, 1.0)
    for _ in range(HALVINGS):
        halves = 2 * cells
        for cell in np.unique(cells):
            own = np.flatnonzero(cells == cell)
            column = scaled[own, int(np.ptp(scaled[own], axis=0).argmax())]
            halves[own] += column > np.median(column)
        cells = halves
    return cells


def summary(loss: np.ndarray, metric: str, cells: np.ndarray | None = None) -> tuple[float, float]:
    """Return the score and its standard error, where losses of a cell may be alike."""
    finite = np.isfinite(loss)
    known = loss[finite]
    if not len(known):
        return math.nan, math.nan
    mean = float(known.mean())
    error = error_of(known, None if cells is None else cells[finite])
    if metric != "rmse":
        return mean, error
    root = math.sqrt(mean)
    return root, error / (2 * root) if root > 0 else 0.0


def scores_of(found: HeldOut) -> dict[str, float]:
    """Return the scores of held-out rows that there are."""
    if not len(found.y):
        return {}
    scores = found.sums.scores()
    return {name: scores[name] for name in SHOWN if name in scores}
