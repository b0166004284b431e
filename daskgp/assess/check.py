"""Scores and calibration of a fitted model, as a whole and by parts.

One pass over the rows sums, for each region and each class of distance to the training data, what
scores and calibration are made of; a sample of the rows says beforehand where these classes lie.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import betaincinv, entr, ndtr, ndtri

from daskgp.arrays.backend import to_host
from daskgp.assess.scores import (
    BINS,
    LEVELS,
    METRICS,
    Scores,
    Sums,
    TestRows,
    aligned,
    check_left_out,
    rows_to_score,
    scored,
    summed,
)
from daskgp.checks import whole
from daskgp.data import feature_units, folds
from daskgp.data.blocks import sampling
from daskgp.data.folds import Boxes
from daskgp.data.partition import Span
from daskgp.data.rows import GIVEN, Beside
from daskgp.errors import InputError, SettingError
from daskgp.fit.scratch import scratch_rows
from daskgp.models.categories import shown
from daskgp.models.columns import KILOMETRES, RADIUS
from daskgp.models.scaling import Scaling, usable_rows
from daskgp.posterior.neighbour_rows import Local
from daskgp.posterior.posterior import Posterior
from daskgp.predict.hyperparameter_table import units_of
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.typing import Path

logger: logging.Logger = logging.getLogger("daskgp")

SAMPLE_ROWS = 2_000
"""Rows of the sample."""
PIT_BINS, SEED = 20, 29
"""Classes of distribution functions, and the seed of points of steps."""
CRITICAL = 1.358
"""Root of n times the distance of Kolmogorov that one in 20 calibrated samples exceeds."""
VARIANCE = 1.3
"""Variance of residuals up to which, and down to its inverse, it counts as 1."""
ROW, SAME = "training row", 1e-6
"""Name of rows that distances are to, and the largest in scaled units of the same features."""
ERRORS, LEAST = 3.0, 0.01
"""Standard errors, and a difference, up to which a share of values inside intervals is right."""
BY_PART = ("rmse", "spread", "bias", "z_variance", "coverage_95", "nlpd", "brier")
"""Scores by region and by distance."""
PROBABILITIES = 10
"""Classes of equal width of probabilities, by which their reliability is told."""
LEVEL = 0.95
"""Probability of intervals of observed shares."""


@dataclass(frozen=True, eq=False)
class Check:
    """Scores and calibration of predictions of new observations; ``print`` shows all of it.

    Attributes
    ----------
    n : int
        Values that were predicted and observed.
    scores : dict of str to float
        ``rmse``, ``mae``, ``bias`` (mean of y minus its prediction) and ``spread`` (root mean
        predictive variance) in the units of y; ``nlpd`` and ``crps``; ``coverage_50``,
        ``coverage_80`` and ``coverage_95``, the shares of values inside these central intervals;
        ``z_mean`` and ``z_variance`` of the standardised residuals, 0 and 1 if calibrated;
        ``r2`` and ``nlpd_gain``, how much less ``nlpd`` is than that of one Gaussian for all rows,
        with their own mean and variance, or of classes one probability; neither where y is
        constant.  Counts and ordered classes have ``ranked_probability``, classes ``brier`` and
        ``accuracy``, and nothing of intervals.
    pit : ndarray (20,)
        Shares of the values by their predictive distribution function, in 20 equal classes: all
        0.05 if calibrated, U-shaped if the spread is too small.  That of a count is in the middle
        of its step.
    pit_distance, pit_critical : float
        Distance of Kolmogorov of that distribution from the uniform one, and what one in 20 samples
        of so many independent values of a calibrated model exceeds; neighbours are not independent.
        Classes have neither these nor ``pit``: they are empty, and NaN.
    regions, distances : list of dict
        Scores of the rows of each region, and of each class of their distance to the training
        data; the latter is empty where a method keeps nothing to measure it from.  Those of several
        targets are a row for each ``target``.
    distance : str
        What the distance is to, and its unit.
    counts : ndarray (200,)
        Values by their predictive distribution function.
    sample : Sample
        Up to 2,000 rows X with y, mean and std, for figures.
    feature_names : tuple of str
    note : str
        What is wrong with the tails of residuals, and what to do about it; empty if nothing is.
    reliability : list of dict
        Of classes 0 and 1, by tenths of the probability of 1: the number of values, their mean
        ``probability``, the share of 1 that was ``observed``, and the ends ``low`` and ``high`` of
        the 95 % interval of that share.
    targets : dict of str to dict
        The scores of each of several targets by its name, with its number ``n`` of values: those of
        all of them together are in the units that these happen to have.
    ranks : ndarray (20,)
        Shares of counts and ordered classes by the distribution function at a point of its step
        that is drawn at random, with a fixed seed: all 0.05 if calibrated, unlike those of ``pit``.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
    >>> found = daskgp.check(model, X[1::2], y[1::2])
    >>> found.n, found.scores["rmse"] < 0.2
    (100, True)
    """

    n: int
    scores: dict[str, float]
    pit: np.ndarray
    pit_distance: float
    pit_critical: float
    regions: list[dict[str, Any]]
    distances: list[dict[str, Any]]
    distance: str
    counts: np.ndarray
    sample: Sample
    feature_names: tuple[str, ...]
    note: str = ""
    reliability: list[dict[str, float]] = field(default_factory=list)
    ranks: np.ndarray = field(default_factory=lambda: np.empty(0))
    targets: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as numbers, lists and texts.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
        >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
        >>> found = daskgp.check(model, X[1::2], y[1::2])
        >>> found.to_dict()["n"]
        100
        """
        calibration: dict[str, Any] = {"reliability": self.reliability}
        if not self.reliability:
            distance = {"pit_distance": self.pit_distance, "pit_critical": self.pit_critical}
            calibration = {"pit": self.pit.tolist(), **distance}
        if len(self.ranks):
            calibration["ranks"] = self.ranks.tolist()
        targets = {"targets": self.targets} if self.targets else {}
        return {
            "n": self.n,
            **self.scores,
            **targets,
            **calibration,
            "regions": self.regions,
            "distance": self.distance,
            "distances": self.distances,
            "note": self.note,
        }

    def __str__(self) -> str:
        named = [("n", self.n), *self.scores.items()]
        width = max(12, *(len(name) for name, _ in named))
        of_all = "\n".join(f"{name:>{width}}  {_text(v)}" for name, v in named)
        if self.targets:
            of_all = f"all targets together, each in its own unit:\n{of_all}"
        parts = [
            *([f"by target:\n{aligned(self._by_target)}"] if self.targets else []),
            of_all,
            *([self.note] if self.note else []),
            *self._calibration,
            f"by region:\n{aligned(self.regions)}",
            f"by distance to {self.distance}:\n{aligned(self.distances)}"
            if self.distances
            else f"by distance: {self.distance}",
        ]
        return "\n\n".join(parts)

    __repr__ = __str__

    @property
    def _by_target(self) -> list[dict[str, Any]]:
        names = "n", *BY_PART, "r2"
        return [
            {"target": target, **{name: own[name] for name in names if name in own}}
            for target, own in self.targets.items()
        ]

    @property
    def _calibration(self) -> list[str]:
        """Texts of what is right or wrong with distributions or probabilities."""
        if self.reliability:
            return [f"by probability of 1:\n{aligned(self.reliability)}"]
        each = f"in {PIT_BINS} classes, each {1 / PIT_BINS:g} if calibrated"
        if len(self.ranks):
            return [f"randomised PIT {each}:\n{_shares(self.ranks)}"]
        told = "beyond" if self.pit_distance > self.pit_critical else "within"
        return [
            f"PIT {each}:\n{_shares(self.pit)}\n"
            f"distance from uniform {self.pit_distance:.3g}, {told} the {self.pit_critical:.3g} of "
            "one in 20 samples of independent values"
        ]


class Sample(NamedTuple):
    """Some of the rows: X (n, d), and y, mean and std (n, p) of new observations.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
    >>> found = daskgp.check(model, X[1::2], y[1::2])
    >>> found.sample.X.shape, found.sample.std.shape
    ((100, 1), (100, 1))
    """

    X: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def checked(
    posterior: Posterior,
    rows: tuple[Any, Any, Beside],
    fill_values: Any,
    remedy: str,
    parts: tuple[int, int],
    store: Path | None,
    seed: int,
    executor: Executor,
) -> Check:
    """Hold predictions against X, y and what is beside it, see `daskgp.check`.

    ``remedy`` says what mends intervals whose tails are not normal; ``parts`` are the numbers of
    regions and of classes of distance.
    """
    (X, y, beside), (regions, distances) = rows, parts
    noise = {argument: beside.get(name) for name, argument in GIVEN.items()}
    _refuse_without_effect(posterior, **noise)
    with scratch_rows(store) as spill:
        test = rows_to_score(posterior, X, y, fill_values, spill, executor, beside)
        sample = _sample(posterior, test, seed, executor)
        inputs, near = np.asarray(posterior.columns.inputs(sample.X)), Distance.of(posterior)
        columns = list(range(test.rows.n_features))
        depth = int(math.log2(regions))
        boxes = Boxes.halved(test.rows, columns, inputs[:, columns], depth, 2**depth, seed)
        edges = np.empty(0)
        if near is not None:
            levels = np.arange(1, distances) / distances
            away = near.to(posterior, inputs)
            edges = np.unique(np.quantile(away, levels, method="inverted_cdf"))
            _warn_of_training_rows(near, away)
        task = partial(_summed, test, boxes, near, edges)
        total: Parts = summed(task, test.spans, posterior, executor, "check", _plus)
    check_left_out(total.targets, test.rows)
    found = _checked(posterior, test.rows.feature_names, total, sample, boxes, near, edges)
    if any(layer.of_observations for layer in posterior.outer(True).layers):
        return found
    return replace(found, note=_note(found, remedy))


def refuse(posterior: Posterior, regions: Any, distances: Any = 1) -> None:
    """Raise SettingError for a model or settings that cannot be."""
    posterior.refuse_spread(include_noise=True)
    number = whole("regions", regions, 1)
    if number & (number - 1):
        raise SettingError(f"regions={number}: a power of 2 is needed, such as 4 or 8")
    whole("distances", distances, 1)


def _refuse_without_effect(posterior: Posterior, **noise: Any) -> None:
    """Raise SettingError for noise of rows that a likelihood takes no notice of."""
    for name, values in noise.items():
        if posterior.likelihood is not None and values is not None and values is not False:
            raise SettingError(
                f"{name} is given and the likelihood is {posterior.likelihood.name!r}: only "
                "Gaussian noise differs from row to row, leave it out"
            )


def _sample(posterior: Posterior, rows: TestRows, seed: int, executor: Executor) -> Sample:
    """Return some complete rows with their predictions, near one another for a local method."""
    given = rows.rows, rows.spans, SAMPLE_ROWS, sampling.Keys((seed, 17)), executor
    gaps = posterior.joint or bool(posterior.each)
    X, y = sampling.draw_given(*given, gaps)
    if not len(X):
        raise InputError(
            f"nothing to check: none of {len(rows.rows)} rows has all values: give rows that do"
        )
    X = feature_units.converted(np.asarray(X, np.float64), rows.how)
    with single_blas_thread():
        found = scored(posterior, X, y, beside=rows.rows.beside_in(y))
    known = ~np.isnan(found.y)
    keep = known.any(axis=1) if gaps else known.all(axis=1)
    if not keep.any():
        raise InputError(
            f"nothing to check: none of {len(rows.rows)} rows has finite values: give rows that do"
        )
    values = (found.y, found.mean, np.sqrt(found.variance))
    return Sample(X[keep], *(v[keep] for v in values))


def _warn_of_training_rows(near: Distance, away: np.ndarray) -> None:
    """Warn of test rows most of which lie where a training row does; ``away`` are distances."""
    same = int((away <= SAME * near.factor).sum())
    if near.what == ROW and 2 * same > len(away):
        logger.warning(
            "%d of the %d test rows examined have the features of a training row: scores of "
            "rows that the model was fitted to are too good, so give other rows, or "
            "cross-validate",
            *(same, len(away)),
        )


# -- distances -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Distance:
    """Distance of places to what stands for the training rows, of which one is a ``what``.

    It is along the ``columns`` that the kernel sees.  ``places`` (m, d) are in scaled units; None
    where rows near a place are read back.  ``factor`` makes a distance of ``unit``, and on a
    ``sphere`` of a chord an arc.
    """

    what: str
    columns: np.ndarray
    unit: str
    factor: float
    sphere: bool
    places: np.ndarray | None = None

    @classmethod
    def of(cls, posterior: Posterior) -> Distance | None:
        """Return the distance that a fitted method can tell; None where it can tell none."""
        if posterior.each:  # one of each target
            return None
        seen = {
            j for unit in posterior.theta.kernel.units(len(posterior.columns)) for j in unit.columns
        }
        used = np.array([j in seen or not seen for j in range(len(posterior.columns))])
        used[len(used) - posterior.joint :] = False  # the column that says what target a row is of
        columns = np.flatnonzero(used & posterior.scaling.uses)
        unit = columns, *_unit(posterior, columns)
        if posterior.nearby is not None:
            return cls(ROW, *unit)
        found = posterior.method.stands_for_rows(posterior.theta, posterior.state)
        if found is None:
            return None
        return cls(found[0], *unit, np.asarray(to_host(found[1]), np.float64))

    def to(self, posterior: Posterior, inputs: np.ndarray) -> np.ndarray:
        """Return the distance (n,) of rows of inputs, in the user's units."""
        scaling: Scaling = posterior.scaling
        scaled = np.asarray(scaling.inputs(inputs))[:, self.columns]
        if self.places is not None:
            away = cKDTree(self.places[:, self.columns]).query(scaled)[0]
        else:
            assert posterior.nearby is not None
            away, local = np.empty(len(scaled)), Local(posterior.fitted("cpu"), posterior.nearby)
            for key, group in posterior.nearby.groups(inputs):
                near = local.inputs_near(key)[:, self.columns]
                away[group] = cKDTree(near).query(scaled[group])[0]
        away = np.asarray(away) * self.factor
        if self.sphere:
            return np.asarray(2 * RADIUS * np.arcsin(np.minimum(away / (2 * RADIUS), 1.0)))
        return away

    def describe(self) -> str:
        """Return what the distance is to, and its unit."""
        return f"the nearest {self.what}, in {self.unit}"


def _unit(posterior: Posterior, used: np.ndarray) -> tuple[str, float, bool]:
    """Return a distance's unit, its factor, and whether all columns ``used`` are of a sphere."""
    columns, scaling = posterior.columns, posterior.scaling
    scales = scaling.x_scale[used]
    if not len(used) or not np.allclose(scales, scales[0], rtol=1e-12, atol=0.0):
        return "standard deviations of the columns", 1.0, False
    if columns.sphere and {*used.tolist()} <= {*columns.sphere}:
        return KILOMETRES, float(scales[0]), True
    return f"units of {columns.unit(used.tolist(), units_of(posterior))}", float(scales[0]), False


# -- sums ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Parts:
    """Sums by target, and by region or distance and target; moments of y (p,): n, mean, squares."""

    regions: Sums
    targets: Sums
    distances: Sums | None
    moments: tuple[np.ndarray, np.ndarray, np.ndarray]
    probabilities: np.ndarray
    """Number of values, their probabilities of 1 and how many were 1, by classes of these."""
    ranks: np.ndarray
    """Number of values by a random point of the step of their distribution function."""


def _summed(
    rows: TestRows,
    boxes: Boxes,
    near: Distance | None,
    edges: np.ndarray,
    span: Span,
    node: Node,
) -> Parts:
    posterior = opened(node)
    with single_blas_thread():
        X, found = rows.scored(span, posterior, steps=True)
        inputs = np.asarray(posterior.columns.inputs(X), np.float64)
        which = boxes.number_of(inputs[:, : rows.rows.n_features])
        which[~usable_rows(posterior.scaling.inputs(inputs))] = folds.LEFT_OUT
        by_distance = None
        if near is not None:
            class_, here = np.full(len(X), folds.LEFT_OUT), which >= 0
            class_[here] = np.searchsorted(edges, near.to(posterior, inputs[here]), side="left")
            by_distance = _by_part(found, class_, len(edges) + 1)
        n = (~np.isnan(found.y)).sum(axis=0).astype(np.float64)
        mean = np.nansum(found.y, axis=0) / np.maximum(n, 1)
        squares = np.nansum((found.y - mean) ** 2, axis=0)
        regions = _by_part(found, which, len(boxes.parts))
        moments, ranks = (n, mean, squares), _ranks(found, span.start)
        targets = Sums.by_target(found)
        return Parts(regions, targets, by_distance, moments, _probabilities(found), ranks)


def _by_part(found: Scores, part: np.ndarray, parts: int) -> Sums:
    """Return sums by the part (n,) of each row, of each of p targets one after another."""
    p = found.y.shape[1]
    part = part[:, None]
    return Sums.of(found, np.where(part < 0, folds.LEFT_OUT, part * p + np.arange(p)), parts * p)


def _probabilities(found: Scores) -> np.ndarray:
    """Return the number of classes, sum of probabilities and number of 1 by probability (b, 3)."""
    known = ~np.isnan(found.right)
    return _by_probability(found.mean[known], found.y[known])


def _by_probability(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    which = np.minimum((p * PROBABILITIES).astype(int), PROBABILITIES - 1)
    sums = (np.bincount(which, w, PROBABILITIES) for w in (np.ones(len(p)), p, y))
    return np.stack([*sums], axis=1)


def _ranks(found: Scores, start: int) -> np.ndarray:
    """Return the number of whole numbers (PIT_BINS,) by a point of their step, drawn at random."""
    if found.steps is None:
        return np.zeros(PIT_BINS)
    below, upto = found.steps
    share = np.random.default_rng((SEED, start)).uniform(size=below.shape)
    at = below + share * (upto - below)
    at = at[~np.isnan(at)]
    return np.bincount(np.minimum((at * PIT_BINS).astype(int), PIT_BINS - 1), minlength=PIT_BINS)


def _plus(a: Parts, b: Parts) -> Parts:
    (n, mean, squares), (k, other, more) = a.moments, b.moments
    total = np.maximum(n + k, 1)
    step = other - mean
    moments = n + k, mean + k / total * step, squares + more + n * k / total * step**2
    by_distance = None
    if a.distances is not None and b.distances is not None:
        by_distance = a.distances + b.distances
    both = a.probabilities + b.probabilities, a.ranks + b.ranks
    return Parts(a.regions + b.regions, a.targets + b.targets, by_distance, moments, *both)


def _nowhere(posterior: Posterior) -> str:
    """Return why there are no distances."""
    if posterior.each:
        return "the targets have rows of their own, check the model of each, in parts_"
    return "this method keeps no places to measure it from"


def _checked(
    posterior: Posterior,
    feature_names: tuple[str, ...],
    total: Parts,
    sample: Sample,
    boxes: Boxes,
    near: Distance | None,
    edges: np.ndarray,
) -> Check:
    whole_, counts = total.regions.total, total.regions.counts.sum(axis=0)
    found = whole_.scores()
    scores = {name: found[name] for name in METRICS if name in found}
    n, _, squares = total.moments
    seen = n > 0
    if (squares[seen] > 0.0).all():  # y varies
        scores["r2"] = 1.0 - scores["rmse"] ** 2 * float(n.sum() / squares.sum())
        per = 0.5 * (np.log(2 * np.pi * squares[seen] / n[seen]) + 1)
        if total.probabilities.any():  # y is 0 or 1
            share = total.moments[1][seen]
            per = entr(share) + entr(1.0 - share)
        scores["nlpd_gain"] = float((n[seen] * per).sum() / n.sum()) - scores["nlpd"]
    number, graded = whole_.n, bool(counts.any())
    steps = np.append(0.0, np.cumsum(counts)) / max(number, 1)
    distance = float(np.abs(steps - np.linspace(0, 1, BINS + 1)).max())
    targets = posterior.target_names
    regions = _rows("region", _centres(posterior, sample, boxes), total.regions, targets)
    classes: list[dict[str, Any]] = []
    if total.distances is not None:
        ends = [f"{end:.3g}" for end in (0.0, *edges.tolist())]
        texts = [*(f"{a} to {b}" for a, b in pairwise(ends)), f"{ends[-1]} on"]
        classes = _rows("distance", texts, total.distances, targets)
    return Check(
        number,
        scores,
        counts.reshape(PIT_BINS, -1).sum(axis=1) / number if graded else np.empty(0),
        distance if graded else math.nan,
        CRITICAL / math.sqrt(number) if graded else math.nan,
        regions,
        classes,
        _nowhere(posterior) if near is None else near.describe(),
        counts,
        sample,
        feature_names,
        reliability=_reliability(total.probabilities),
        ranks=total.ranks / total.ranks.sum() if total.ranks.any() else np.empty(0),
        targets=_of_targets(posterior, total),
    )


def _of_targets(posterior: Posterior, total: Parts) -> dict[str, dict[str, float]]:
    """Return the scores of each of several targets."""
    each = {}
    for j, (name, sums) in enumerate(total.targets.named(posterior.target_names).items()):
        found = sums.scores() if sums.n else {}
        own = {score: found[score] for score in METRICS if score in found}
        squares = float(total.moments[2][j])
        if squares > 0.0:
            own["r2"] = 1.0 - own["rmse"] ** 2 * sums.n / squares
        each[name] = {"n": sums.n, **own}
    return each


def reliability_of(p: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
    """Return what was observed, y (n,) of 0 and 1, by classes of its probability p (n,) of 1.

    Examples
    --------
    >>> import numpy as np
    >>> [row["observed"] for row in reliability_of(np.array([0.1, 0.9]), np.array([0.0, 1.0]))]
    [0.0, 1.0]
    """
    return _reliability(_by_probability(p, y))


def _reliability(sums: np.ndarray) -> list[dict[str, float]]:
    """Return what was observed by classes of probability, with the intervals of binomial shares."""
    found, outside = [], 0.5 * (1.0 - LEVEL)
    for n, p, ones in sums[sums[:, 0] > 0].tolist():
        # of Clopper and Pearson
        low = float(betaincinv(ones, n - ones + 1, outside)) if ones else 0.0
        high = float(betaincinv(ones + 1, n - ones, 1.0 - outside)) if ones < n else 1.0
        one = {"n": int(n), "probability": p / n, "observed": ones / n, "low": low, "high": high}
        found.append(one)
    return found


def _note(found: Check, remedy: str) -> str:
    """Return a line on residuals that are not normal ones, whatever the variance of heavy tails."""
    scores, levels = found.scores, np.array(LEVELS)
    variance = scores["z_variance"]
    if not 0 < variance < math.inf:
        return ""
    shares = np.array([scores[f"coverage_{100 * level:.0f}"] for level in LEVELS])
    normal = 2 * ndtr(ndtri(0.5 + levels / 2) / math.sqrt(variance)) - 1
    error = np.sqrt(levels * (1 - levels) / found.n)
    away = np.minimum(np.abs(shares - levels), np.abs(shares - normal))
    beyond = away > np.maximum(ERRORS * error, LEAST)
    if not 1 / VARIANCE <= variance <= VARIANCE:  # a wrong scale: only a centre too full tells
        beyond &= (levels == levels[0]) & (shares > np.maximum(levels, normal))
    if not beyond.any():
        return ""
    worst = int(np.argmax(np.where(beyond, away / error, 0.0)))
    what = "heavier" if shares[0] > normal[0] else "lighter"
    low, high = float(found.pit[0]), float(found.pit[-1])
    if abs(high - low) > ERRORS * math.sqrt((low + high) / found.n):  # symmetric widths do not help
        remedy = "; they are skewed: fit with target_transform='log', 'sqrt' or 'boxcox'"
    return (
        f"residuals have {what} tails than normal ones: their variance is {variance:.2g}, but "
        f"{100 * levels[worst]:.0f} % intervals cover {100 * shares[worst]:.1f} %{remedy}"
    )


def _rows(
    name: str, parts: Sequence[str], sums: Sums, targets: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the scores of each part that has values, of each of several targets."""
    found, p = list[dict[str, Any]](), len(targets)
    for i, text in enumerate(parts):
        for j, target in enumerate(targets):
            own = {"target": target} if p > 1 else {}
            found.append({name: text, **own, **_part(sums.group(i * p + j))})
    return [row for row in found if row["n"]]


def _part(sums: Sums) -> dict[str, Any]:
    n = int(sums.table[0, 0])
    if not n:
        return {"n": 0}
    scores = sums.scores()
    return {"n": n, **{name: scores[name] for name in BY_PART if name in scores}}


def _centres(posterior: Posterior, sample: Sample, boxes: Boxes) -> list[str]:
    """Return the middle of each region as text, along the columns that regions differ in."""
    names, depth = posterior.feature_names, len(boxes.axis)
    units = posterior.feature_units or ("",) * len(names)
    inputs = np.asarray(posterior.columns.inputs(sample.X))
    places = inputs[:, : len(posterior.columns) - posterior.joint]
    which, where = boxes.number_of(places), posterior.columns.where
    cut = {boxes.columns[axis] for axis in boxes.axis.tolist()} if depth else set()
    along = [j for j, own in enumerate(where) if cut & {*np.atleast_1d(own).tolist()}]
    found = []
    for i in range(len(boxes.parts)):
        own = inputs[which == i]
        if not len(own) or not along:
            found.append("all" if not along else str(i))
            continue
        middle = posterior.columns.places(own.mean(axis=0)[None])[0]
        told = []
        for j in along:
            levels = posterior.categories.get(names[j], ())
            if levels:
                codes = np.unique(own[:, where[j]]).astype(int)
                text = shown([levels[code] for code in codes if code < len(levels)])
            else:
                text = feature_units.text_of(middle[j], units[j], ".3g")
            told.append(f"{names[j]} {text}")
        found.append(", ".join(told))
    return found


def _shares(values: np.ndarray) -> str:
    return " ".join(f"{share:.3f}" for share in values)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
