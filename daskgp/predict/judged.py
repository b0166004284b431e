"""Predictions of observations held against what was observed, and sums of them by group.

Sums are over values: rows, and targets, are pooled.  All that statistics of scores and calibration
need is in them, so that a pass over the rows gives any number of rows' scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from daskgp.errors import InputError
from daskgp.models.fills import without
from daskgp.models.values import Moments
from daskgp.posterior.posterior import Posterior
from daskgp.predict import known_errors

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
