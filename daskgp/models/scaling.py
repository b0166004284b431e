"""Standardisation of inputs and outputs and the mean function, from one pass over the rows.

The pass gathers the count, mean and scatter matrix of [X, y] (merged by the pairwise update
of Chan, Golub & LeVeque 1983), the ranges, and what has to be reported: rows with missing
values and infinite entries.  The means, scales and the linear trend all follow from these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from daskgp import checks
from daskgp.arrays.backend import namespace
from daskgp.checks import LARGEST
from daskgp.errors import InputError
from daskgp.kernels.base import Unit
from daskgp.kernels.compose import united
from daskgp.models import place_ranges, repeats
from daskgp.models.transform import Transform
from daskgp.models.trend import Trend, by_column, uncorrelated
from daskgp.models.values import Block, Moments, Observed
from daskgp.typing import Array, MeanName

logger: logging.Logger = logging.getLogger("daskgp")

LARGEST_SCALED = {"float32": 1e15, "float64": 1e50}
"""Largest value in the model's units, by dtype; sums of such values are squared again."""
ROUNDING = 1e-14
"""Standard deviation relative to the size of values below which double precision rounds it away."""
COARSE_PLACES, COARSE_TARGETS = 0.025, 0.1
"""Step of a narrow type, in standard deviations of a feature or a target, that is warned of."""
FIRST_ROWS = 1_000
"""First rows whose values tell whether they were rounded."""
DISPARATE = 100.0
"""Ratio of standard deviations of columns that share a scale, above which a warning is logged."""
FEW_VALUES, ROWS_A_VALUE = 20, 10
"""Most distinct values of a target that are warned about, and least rows per value."""
ROWS_TO_NUMBER, UNEVEN = 20, 0.1
"""Least rows that a feature is said to number, and how far its variance may be off that of the
numbers, in proportion, where some rows are left out or weighted."""
GAPS = 0.1
"""Most numbers, in proportion to the rows, that are gone with rows left out before a fit."""
REMOVE = ": remove the rows or set them to NaN"
"""Remedy for infinite values."""
UNIT = "give it in another unit"
"""Remedy for values of a size that double precision cannot hold."""
Ties = Sequence[Sequence[int]]
"""Groups of columns that share a scale, as `Kernel.tied_columns` returns them."""


class Given(NamedTuple):
    """Facts about the arrays that rows are read from: their types, and if some weigh 0."""

    X: np.dtype[Any] = np.dtype(np.float64)
    y: np.dtype[Any] = np.dtype(np.float64)
    weighted: bool = False

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Self:
        """Return that of the arrays of rows, by their names in a store."""
        X, y = (np.dtype(arrays[name].dtype) for name in ("X", "y"))
        return cls(X, y, "weight" in arrays)

    def types(self, d: int, p: int) -> list[np.dtype[Any]]:
        """Return the types of d features and p targets."""
        return [self.X] * d + [self.y] * p


DOUBLE = Given()
"""Rows in double precision, without weights."""


class Sums(NamedTuple):
    """Summary of rows w = [x, y] with k = d + p columns."""

    rows: float
    weight: float
    """Sum of the rows' weights, their number where they have none."""
    error: float
    """Sum of the known error variances."""
    usual: float
    """Geometric mean of the weights."""
    dropped: float
    infinite: Array
    """Number of infinite entries in each column (k,); their rows are left out of the other sums."""
    mean: Array
    """Weighted mean of each column (k,)."""
    scatter: Array
    """Weighted sum of (w - mean)(w - mean)' (k, k)."""
    low: Array
    high: Array
    inputs: Array
    """Sketch of the distinct x, as `daskgp.models.repeats` makes it."""
    targets: Array
    """Sketch of the distinct y, likewise."""
    sphere: tuple[int, ...] = ()
    """Columns of x that are x, y and z of places on a sphere, one feature of one scale."""
    transform: Transform | None = None
    """Transform of the targets, of which y here is the result."""
    trend: Sums | None = None
    """Sums of the columns of a trend, as users have them, in place of x."""
    ends: Array | None = None
    """Ends of longitudes and latitudes, as `daskgp.models.place_ranges` makes them."""
    checksum: int = 0
    """Sum modulo 2^64 of the hashes of the rows as they were given."""

    @property
    def parts(self) -> list[np.ndarray]:
        """All parts as arrays, without the ends of places, which x has, and the checksum."""
        own = [np.asarray(part) for part in self[:-3]]
        return own if self.trend is None else own + self.trend.parts


def complete_rows(X: Array, y: Array) -> Array:
    """Return the mask (n,) of the rows without a missing value; y is (n, p)."""
    xp = namespace(X)
    return ~(xp.isnan(X).any(axis=1) | xp.isnan(y).any(axis=1))


def usable_rows(X: np.ndarray) -> np.ndarray:
    """Return the mask (n,) of rows that can be predicted: none missing, infinite or too large."""
    return np.asarray((np.abs(X) <= LARGEST).all(axis=1))


@np.errstate(over="ignore", invalid="ignore")  # ``check`` reports it
def local(
    X: Array, y: Array, noise: Array | None = None, usual: tuple[float, float] = (1.0, 1.0)
) -> Sums:
    """Return the summary of one block of raw rows, in float64.

    ``noise`` (n, 2) has the weight w and error variance e of each row, which counts as
    1 / (1 + u / w + e / v) rows with ``usual`` ones u and v: less the less its noise lets it say,
    but never much more than others.
    """
    W = np.concatenate([X, y], axis=1, dtype=np.float64)
    infinite = np.isinf(W)
    complete = np.asarray(~np.isnan(W).any(axis=1))
    kept = complete & ~infinite.any(axis=1)
    W, dropped = W[kept], float(len(complete) - complete.sum())
    X_seen, y_seen = (repeats.local(part) for part in np.split(W, [X.shape[1]], axis=1))
    k, n, infinities = W.shape[1], len(W), infinite.sum(axis=0)
    weight, error, counted = float(n), 0.0, None
    if noise is not None and n:
        weights, errors = noise[kept].T
        counted = 1.0 / (1.0 + usual[0] / weights + errors / usual[1])
        weight, error = float(counted.sum()), float(errors.sum())
    mean = np.zeros(k)
    if n:
        mean = W.mean(axis=0) if counted is None else counted @ W / weight
    low, high = W.min(axis=0, initial=np.inf), W.max(axis=0, initial=-np.inf)
    W -= mean
    scatter = (W if counted is None else counted[:, None] * W).T @ W
    sums = float(n), weight, error, usual[0], dropped
    return Sums(*sums, infinities, mean, scatter, low, high, X_seen, y_seen)


@np.errstate(over="ignore", invalid="ignore")
def combine(a: Sums, b: Sums) -> Sums:
    """Return the summary of both sets of rows."""
    weight = a.weight + b.weight
    share = b.weight / weight if weight else 0.0
    step = b.mean - a.mean
    return Sums(
        a.rows + b.rows,
        weight,
        a.error + b.error,
        a.usual,
        a.dropped + b.dropped,
        a.infinite + b.infinite,
        a.mean + share * step,
        a.scatter + b.scatter + (a.weight * share) * np.outer(step, step),
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
        repeats.combine(a.inputs, b.inputs),
        repeats.combine(a.targets, b.targets),
        a.sphere,
        a.transform,
        None if a.trend is None or b.trend is None else combine(a.trend, b.trend),
        None if a.ends is None or b.ends is None else place_ranges.combine(a.ends, b.ends),
        (a.checksum + b.checksum) % 2**64,
    )


@dataclass(frozen=True, eq=False)
class Scaling:
    """Affine maps between the user's units and the model's.

    x -> (x - x_shift) / x_scale, and y -> (y - intercept - slope' x_scaled) / y_scale, of the
    transformed y if there is a ``transform``, and less the least squares fit of a ``trend``.
    A column that is left out, because it is constant, has an infinite scale: all its values are
    0 in the model's units.
    """

    x_shift: np.ndarray
    x_scale: np.ndarray
    intercept: np.ndarray
    slope: np.ndarray
    y_scale: np.ndarray
    transform: Transform | None = None
    trend: Trend | None = None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: a for name, a in vars(self).items() if name not in ("transform", "trend")}

    @property
    def n_sides(self) -> int:
        """Number of columns of y in a block: targets and trend functions."""
        return len(self.y_scale) + (0 if self.trend is None else self.trend.n_functions)

    def inputs(self, X: Array) -> Array:
        """Return the scaled inputs (n, d)."""
        xp = namespace(X)
        with np.errstate(over="ignore", invalid="ignore"):  # rows that overflow are not usable
            return (X - xp.asarray(self.x_shift)) / xp.asarray(self.x_scale)

    def places(self, scaled: np.ndarray) -> np.ndarray:
        """Return inputs (n, d) in the user's units; columns left out hold their constants."""
        unit = np.where(self.uses, self.x_scale, 0.0)
        return np.asarray(scaled * unit + self.x_shift)

    def of_inputs(self, p: int) -> Scaling:
        """Return the same map of inputs, with p targets left as they are."""
        slope = np.zeros((len(self.x_shift), p))
        own = {"intercept": np.zeros(p), "slope": slope, "y_scale": np.ones(p)}
        return replace(self, **own, transform=None, trend=None)

    @property
    def uses(self) -> np.ndarray:
        """Mask (d,) of the columns that are not left out."""
        return np.isfinite(self.x_scale)

    def size(self, unit: Unit, levels: np.ndarray | None = None) -> float | None:
        """Return the size of a unit in the user's; None if its columns or targets differ in it.

        ``levels`` (p,) are the scales of the levels of the last column, where these are targets.
        """
        columns, targets = list(unit.columns), self.y_scale if levels is None else levels
        if levels is not None and unit.level is not None:
            column, code = unit.level
            targets = targets[[code]] if column == len(self.x_scale) - 1 else targets
        used = self.x_scale[columns][self.uses[columns]]
        factors = [1.0]
        for scales, power in ((used, unit.of_inputs), (targets, unit.of_target)):
            if power and not np.allclose(scales, scales[:1], rtol=1e-12, atol=0.0):
                return None
            factors += [float(scales[0]) ** power] if power and len(scales) else []
        return float(np.prod(factors))

    def block(
        self,
        X: np.ndarray,
        y: np.ndarray,
        dtype: str = "float64",
        observed: Mapping[str, np.ndarray] | None = None,
    ) -> Block:
        """Return scaled rows without missing values, centred in float64 before any narrowing.

        ``y`` is as ``Rows.read`` returns it, with columns of a trend, weights and error variances
        after the targets.  Trend functions follow them in the block.  ``observed`` are numbers (n,)
        that a likelihood takes, by their names.
        """
        keep, p, trend = complete_rows(X, y), len(self.y_scale), self.trend
        end = p if trend is None else p + len(trend.columns)
        if not keep.all():
            X, y = X[keep], y[keep]
        scaled = self.inputs(np.asarray(X, np.float64))
        measured = np.asarray(y[:, :p], np.float64)
        if self.transform is not None:
            measured = self.transform.forward(measured)
        if trend is not None:
            measured = measured - trend.fitted(y[:, p:end])
        targets = (measured - self.mean_function(scaled)) / self.y_scale
        if trend is not None:
            targets = np.concatenate([targets, trend.functions(y[:, p:end])], axis=1)
        noise = self.noise(*y[:, end:].T) if y.shape[1] > end else None
        block = Block(scaled.astype(dtype, copy=False), targets, noise)
        if not observed:
            return block
        own = {name: np.asarray(values, np.float64)[keep] for name, values in observed.items()}
        for name in {"lower", "upper"} & {*own}:  # as far from y as they are, in its unit
            own[name] = targets[:, 0] + (own[name] - measured[:, 0]) / self.y_scale[0]
        return block._replace(observed=Observed(**own))

    def noise(self, weight: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Return ``Block.noise`` (n, 2) of rows with weights (n,) and error variances (n,)."""
        return np.column_stack([1.0 / weight, error / self.y_scale[0] ** 2])

    def moments(self, moments: Moments, scaled: np.ndarray) -> Moments:
        """Return the posterior in the user's units: mean, variance (n, p); covariance (n, n, p).

        They are those of the transformed y if there is a ``transform``.  A covariance (n p, n p)
        of places with all targets of each becomes one (n, p, n, p).
        """
        mean = np.asarray(moments.mean, np.float64) * self.y_scale + self.mean_function(scaled)
        unit = self.y_scale**2
        variance, covariance = moments.variance, moments.covariance
        if covariance is not None:
            covariance = np.asarray(covariance, np.float64)
            if len(covariance) > len(mean):
                both = self.y_scale[:, None, None] * self.y_scale
                covariance = covariance.reshape(mean.shape * 2) * both
            else:
                covariance = covariance[:, :, None] * unit
        return Moments(mean, None if variance is None else _columns(variance) * unit, covariance)

    def mean_function(self, scaled: np.ndarray) -> np.ndarray:
        """Return the mean (n, p) at scaled inputs, in the user's units, without that of a trend."""
        return self.intercept + (by_column(scaled, self.slope) if self.slope.any() else 0.0)


def _columns(variance: Array) -> np.ndarray:
    """Return variances that all outputs share (n,) as (n, 1); those of each output (n, p) as is."""
    values = np.asarray(variance, np.float64)
    return values[:, None] if values.ndim == 1 else values


def identity(n_features: int, n_targets: int) -> Scaling:
    """Return the scaling that changes nothing."""
    d, p = n_features, n_targets
    return Scaling(np.zeros(d), np.ones(d), np.zeros(p), np.zeros((d, p)), np.ones(p))


def solve(
    sums: Sums,
    n_features: int,
    mean: MeanName | None,
    standardize: bool,
    tied: Ties = (),
    categories: Sequence[int] = (),
    extents: Mapping[int, Sequence[int]] | None = None,
    known: Collection[int] = (),
) -> Scaling:
    """Return the scaling of summed rows: least squares for ``mean="ols"``, residual scale for y.

    Columns that are ``tied`` share a scale; constant ones are left out.  Those of ``categories``
    hold codes, which stay as they are, and no mean depends on their size; nor on ``extents``, which
    are not centred and have the scale of the columns that are given with each, or of those tied to
    them; the centre of a sphere that they extend along is the origin.  Where all of these are
    constant they stay as they are if those columns are ``known``, as the lengthscale is in their
    unit, and else are left out too.  A mean of None is that of a trend which is integrated over.
    """
    if mean is None:
        assert sums.trend is not None
        plain = solve(sums, n_features, "constant", standardize, tied, categories, extents, known)
        trend, y_scale = _integrated(sums.trend, len(plain.intercept))
        y_scale = y_scale if standardize else plain.y_scale
        return replace(plain, intercept=np.zeros(len(y_scale)), y_scale=y_scale, trend=trend)
    d, p = n_features, len(sums.mean) - n_features
    flat = constant(sums, d)
    shift, scale = np.zeros(d), np.where(flat, np.inf, 1.0)
    if standardize:
        shift, scale = sums.mean[:d], scales(sums, d, tied)
    shift = np.where(flat, sums.low[:d], shift)
    extents, sphere = extents or {}, list(sums.sphere)
    if any(set(sphere) <= set(places) for places in extents.values()) and not flat[sphere].all():
        shift[sphere] = 0.0  # areas are moved along the sphere, about its centre
    others = [*categories, *extents]
    flat[others], shift[others], scale[others] = False, 0.0, 1.0
    groups = united([*map(tuple, tied), sums.sphere])
    for j, places in extents.items():
        alike = [i for group in groups if not set(group).isdisjoint(places) for i in group]
        varying = (scale[i] for i in (*places, *alike) if i not in others and not flat[i])
        scale[j] = next(varying, 1.0 if set(places) <= set(known) else np.inf)
    slope, spread = _trend(sums, d, mean, others)
    slope = slope * np.where(np.isfinite(scale), scale, 0.0)[:, None]
    intercept = np.zeros(p)
    if mean != "zero":
        intercept = sums.mean[d:] - (sums.mean[:d] - shift) / scale @ slope
    y_scale = spread if standardize else np.ones(p)
    return Scaling(shift, scale, intercept, slope, y_scale, sums.transform)


def _integrated(sums: Sums, p: int) -> tuple[Trend, np.ndarray]:
    """Return the trend of the columns of sums (q + p columns), and the spread (p,) it leaves."""
    q = len(sums.mean) - p
    own = solve(sums, q, "ols", True)
    uses = np.flatnonzero(own.uses)
    unit = own.x_scale[uses]
    correlations = sums.scatter[np.ix_(uses, uses)] / np.outer(unit, unit) / sums.weight
    small = uncorrelated(correlations)
    basis = np.zeros((q, small.shape[1]))
    basis[uses] = small
    columns = tuple(range(q))
    return Trend(columns, own.x_shift, own.x_scale, own.intercept, own.slope, basis), own.y_scale


def target_variance(
    sums: Sums, scaling: Scaling, mean: MeanName | None, categories: Sequence[int] = ()
) -> float:
    """Return the mean variance of scaled targets about their mean function; 1 if standardised.

    A mean of None is that of a trend which is integrated over; ``categories`` are as for ``solve``.
    """
    if mean is None:
        assert sums.trend is not None
        _, spread = _trend(sums.trend, len(sums.trend.mean) - len(scaling.y_scale), "ols")
    else:
        _, spread = _trend(sums, len(scaling.x_scale), mean, categories)
    return float(np.mean((spread / scaling.y_scale) ** 2))


def constant(sums: Sums, n_features: int) -> np.ndarray:
    """Return the mask (d,) of features that have the same value in all rows.

    Places on the equator are not the same place: the sphere's columns are constant together.
    """
    flat = sums.low == sums.high
    sphere = list(sums.sphere)
    flat[sphere] = flat[sphere].all()
    return np.asarray(flat[:n_features])


def scales(sums: Sums, n_features: int, tied: Ties = ()) -> np.ndarray:
    """Return the divisors of features (d,): standard deviations, infinite for constant ones.

    Tied ones share the root of the mean of their variances, which no rotation changes.
    """
    flat, deviations = constant(sums, n_features), _deviations(sums)[:n_features]
    for group in united([*map(tuple, tied), sums.sphere]):
        varying = [j for j in group if not flat[j]]
        if len(varying) > 1:
            deviations[varying] = np.sqrt(np.mean(deviations[varying] ** 2))
    return np.where(flat, np.inf, deviations)


def _deviations(sums: Sums) -> np.ndarray:
    """Return the standard deviations (k,); 1 for a column without any."""
    deviations = np.sqrt(np.diag(sums.scatter) / sums.weight)
    return np.where(deviations > 0.0, deviations, 1.0)


def _sizes(sums: Sums) -> np.ndarray:
    """Return the largest absolute values (k,)."""
    return np.maximum(np.abs(sums.low), np.abs(sums.high))


def _trend(
    sums: Sums, d: int, mean: MeanName, categories: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return the slope (d, p) of the mean function in units of X, and the spread (p,) it leaves.

    A target that the mean function explains up to rounding has no spread of its own: its standard
    deviation, or else its size, stands in, so that small units work as well as large ones.
    """
    n, p = sums.weight, len(sums.mean) - d
    total, size = np.diag(sums.scatter)[d:], _sizes(sums)[d:]
    residual, slope, rounding = total, np.zeros((d, p)), np.zeros(p)
    if mean == "ols":
        # in units of standard deviations, or lstsq would take columns of small units for noise
        unit = scales(sums, d)  # infinite units give no slope
        unit[list(categories)] = np.inf
        cross = sums.scatter[:d, d:] / unit[:, None]
        slope = np.linalg.lstsq(sums.scatter[:d, :d] / np.outer(unit, unit), cross)[0]
        residual, rounding = total - (slope * cross).sum(axis=0), np.sqrt(1e-15 * total / n)
        slope = slope / unit[:, None]
    if mean == "zero":
        residual = residual + n * sums.mean[d:] ** 2
    spread = np.sqrt(np.maximum(residual, 0.0) / n)
    deviation = np.sqrt(total / n)
    stand_in = np.where(deviation > 1e-14 * size, deviation, np.where(size > 0.0, size, 1.0))
    return slope, np.where(spread > np.maximum(rounding, 1e-14 * size), spread, stand_in)


_on_purpose: ContextVar[bool] = ContextVar("missing_on_purpose", default=False)


@contextmanager
def missing_on_purpose() -> Iterator[None]:
    """Fit without a warning of rows with missing values, which the caller has made missing."""
    token = _on_purpose.set(True)
    try:
        yield
    finally:
        _on_purpose.reset(token)


def warn_of_missing(count: float, weighted: bool = False) -> None:
    """Log a warning with the number of rows that are not used; ``weighted`` ones may weigh 0."""
    if count and not _on_purpose.get():
        are = "is" if count == 1 else "are"
        what = "missing values or a weight of zero" if weighted else "missing values"
        logger.warning("%s with %s %s left out", checks.rows(count), what, are)


def warn_of_columns(
    sums: Sums, tied: Ties, feature_names: Sequence[str], categories: Sequence[int] = ()
) -> None:
    """Warn about features that are left out, or share a scale that does not suit them.

    ``categories`` are as for ``solve``: they stay where only one is there.
    """
    flat = constant(sums, len(feature_names))
    flat[list(categories)] = False
    if flat.any():
        logger.warning(
            "%s: left out of the fit, and predictions do not depend on %s",
            _constants(sums, feature_names, flat),
            "it" if flat.sum() == 1 else "them",
        )
    deviations = _deviations(sums)
    if sums.sphere:  # one feature, although a region is flat
        deviations[list(sums.sphere)] = scales(sums, len(feature_names))[list(sums.sphere)]
    uneven = []
    for group in tied:
        ranked = sorted((deviations[j], feature_names[j]) for j in group if not flat[j])
        if ranked and ranked[-1][0] > DISPARATE * ranked[0][0]:
            uneven.append(", ".join(f"{name!r} ({size:.3g})" for size, name in ranked))
    if uneven:
        logger.warning(
            "features of very different standard deviation, %s, share one lengthscale or "
            "variance of the kernel: give each its own (ard=True), or give them in other "
            "units",
            "; ".join(uneven),
        )


def remark_on_repeats(sums: Sums, sample: Array) -> None:
    """Log if many rows have the same inputs, of which ``sample`` (N, d) are some."""
    if repeats.telling(sums.inputs, sums.rows, sample):
        share, per_place = repeats.of_sketch(sums.inputs)
        logger.info(
            "about %.0f %% of the rows repeat the inputs of another row, %.3g rows per place on "
            "average: their differences count as noise, and copies of a row among those held "
            "out make their scores too good",
            100 * share,
            per_place,
        )


def warn_of_few_values(
    sums: Sums, target_names: Sequence[str], dtype: np.dtype[Any] = DOUBLE.y
) -> None:
    """Warn if the targets take only a few values, as classes and counts do.

    Those of a narrow type may be what its rounding has left.
    """
    number = repeats.exact_count(sums.targets)
    if number is None or number > FEW_VALUES or sums.rows < ROWS_A_VALUE * number:
        return
    p = len(target_names)
    rounded = _as_rounded(dtype, sums.low[-p:], sums.high[-p:], number)
    what = f"target {target_names[0]!r} takes" if p == 1 else f"the {p} targets take together"
    if number == 1:
        what = what.replace(" takes", " is").replace(" take together", " are")
        logger.warning(
            "%s the same in all %d rows%s: there is nothing to learn", what, sums.rows, rounded
        )
    else:
        logger.warning(
            "%s only %d distinct values in %d rows%s: for classes or counts choose a likelihood, "
            "such as likelihood='bernoulli' or 'poisson'",
            *(what, number, sums.rows, rounded),
        )


def _as_rounded(dtype: np.dtype[Any], low: Array, high: Array, number: int) -> str:
    """Return words for a ``number`` of values between ends (k,) that rounding may have left.

    They are next to one another in a narrow type, or one value where it has whole steps; "" for
    others.
    """
    largest = np.maximum(np.abs(low), np.abs(high))
    gap = (high - low) / max(number - 1, 1)
    least = np.where(gap > 0, gap / 2, 1.0)
    coarse = [may_round(dtype, largest[[j]], least[[j]] * (1 - 1e-9)) for j in range(len(largest))]
    if not any(coarse):
        return ""
    at = coarse.index(True)
    return f" ({_steps_at(dtype, largest[at])})"


def _steps_at(dtype: np.dtype[Any], size: float) -> str:
    """Return words for the steps of a narrow type at values of a size, with the remedy."""
    step = float(np.spacing(dtype.type(size)))
    return (
        f"{dtype} holds values of {size:.3g} in steps of {step:.3g}: give them in float64 from "
        "their source, or subtract an offset before they are rounded"
    )


def warn_of_row_numbers(
    sums: Sums, feature_names: Sequence[str], first: Callable[[int], np.ndarray]
) -> None:
    """Warn about features beside others that merely number the rows, from 0 or 1.

    They do so in any order, or ascending with few gaps by what ``first`` returns of a column: its
    values in the first rows.  Those without a name are not looked at.
    """
    n, longest = sums.rows, sums.rows + sums.dropped
    if n < ROWS_TO_NUMBER or len(feature_names) < 2:
        return
    plain, rounding = n == longest == sums.weight, 1e-7 * n
    span = sums.high - sums.low + 1
    low = (sums.low >= 0) & (sums.low <= 1 + sums.dropped)  # the first ones may be left out
    whole = (sums.low % 1 == 0) & (sums.high % 1 == 0) & (span > 1)
    gaps = whole & (sums.low >= 0) & (span > longest + rounding)
    gaps &= sums.high <= (1 + GAPS) * longest
    numbers = low & whole
    numbers &= (span >= n - rounding) & (span <= longest + rounding)
    variance = (np.where(numbers, span, 2) ** 2 - 1) / 12
    off = np.abs(np.diag(sums.scatter) / sums.weight / variance - 1)
    numbers &= off < (1e-6 if plain else UNEVEN)
    for j in np.flatnonzero(gaps[: len(feature_names)]).tolist():  # others are targets
        numbers[j] = feature_names[j] and _counts(first(j))
    said = [repr(name) for j, name in enumerate(feature_names) if name and numbers[j]]
    if said:
        logger.warning(
            "%s only to number the rows: leave %s out unless the order of the rows matters",
            f"features {', '.join(said)} seem" if said[1:] else f"feature {said[0]} seems",
            "them" if said[1:] else "it",
        )


def _counts(values: np.ndarray) -> bool:
    """Return whether values (n,) are ascending numbers, of which few are left out."""
    steps = np.diff(values[~np.isnan(values)])
    return bool((steps > 0).all() and np.count_nonzero(steps == 1) >= (1 - GAPS) * len(steps) > 0)


def may_round(dtype: np.dtype[Any], largest: np.ndarray, least: np.ndarray) -> bool:
    """Return whether a type is narrow and has steps at the largest values (k,) beyond some (k,)."""
    if dtype.kind != "f" or dtype.itemsize >= 8:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((np.spacing(largest.astype(dtype)) > least).any())


def steps(values: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return the steps (k,) in which a type narrower than double precision holds columns (n, k).

    They are those at the ``largest`` values (k,), and 0 where values do not fill them, as whole
    numbers and other coarse ones, so that nothing was rounded away.

    >>> steps(np.array([[5e6, 5e6], [5e6 + 0.5, 5e6 + 1]], np.float32), np.full(2, 5e6))
    array([0.5, 0. ])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.spacing(largest.astype(values.dtype)).astype(np.float64)
        wide = values.astype(np.float64)
        filled = ((wide / step) % 2 != 0) & np.isfinite(wide)
    whole = (step <= 1) & ((wide == np.rint(wide)) | np.isnan(wide)).all(axis=0)
    return np.where(filled.any(axis=0) & ~whole & np.isfinite(step), step, 0.0)


def of_steps(
    step: np.ndarray,
    deviation: np.ndarray,
    names: Sequence[str],
    dtype: np.dtype[Any],
    share: float,
) -> str:
    """Return words for columns (k,) whose steps are coarse beside their spread; "" for none."""
    said = [
        f"{name} (steps of {s:.3g}, standard deviation {size:.3g})"
        for name, s, size in zip(names, step, deviation, strict=True)
        if s > share * size
    ]
    if not said:
        return ""
    return (
        f"{', '.join(said)}: {dtype} rounds such values to these steps, so that closer ones are "
        "the same: give them in float64 from their source, or subtract an offset before they are "
        "rounded"
    )


def _constants(sums: Sums, feature_names: Sequence[str], flat: np.ndarray) -> str:
    """Return words for the features that are constant, by a mask (d,), with their values."""
    named = np.flatnonzero(flat).tolist()
    said = [f"{feature_names[j]!r} is constant ({sums.low[j]:g} in every row)" for j in named]
    if len(said) == 1:
        return f"feature {said[0]}"
    listed = ", ".join(f"{feature_names[j]!r} ({sums.low[j]:g})" for j in named)
    return f"features are constant, with the same value in every row, {listed}"


def check(
    sums: Sums,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    given: Given = DOUBLE,
    smallest: float = 1.0 / LARGEST,
) -> None:
    """Raise InputError if no model can be fitted to the rows.

    Differences, and values that are all the same, must be larger than ``smallest``.
    """
    check_values(sums, feature_names, target_names, given)
    if sums.rows == 1:
        raise one_row(int(sums.dropped), given.weighted)
    d = len(feature_names)
    flat = constant(sums, d)
    if flat.all():
        rounded = _as_rounded(given.X, sums.low[:d], sums.high[:d], 1)
        raise InputError(
            f"{_constants(sums, feature_names, flat)}{rounded}: give at least one feature that "
            "varies"
        )
    _check_differences(sums, feature_names, target_names, smallest)


def one_row(missing: int = 0, weighted: bool = False) -> InputError:
    """Return the error of a single row beside those with a missing value, or a weight of zero."""
    what = "a missing value (NaN)" if not weighted else "a sample_weight of zero or a missing value"
    others = f" of {missing + 1}, as all others have {what}" if missing else ""
    return InputError(
        f"1 usable row{others}: rows at two places or more are needed, because one sample "
        "says nothing about how the target varies"
    )


def _check_differences(
    sums: Sums, feature_names: Sequence[str], target_names: Sequence[str], smallest: float
) -> None:
    """Raise InputError for columns whose differences are too small to be squared, or rounded."""
    spans, sizes = sums.high - sums.low, _sizes(sums)
    spreads = np.sqrt(np.diag(sums.scatter) / sums.weight)
    for values in (spans, sizes, spreads):  # one feature, although a region is flat
        values[list(sums.sphere)] = values[list(sums.sphere)].max(initial=0.0)
    for j, name in enumerate(_names(feature_names, target_names)):
        varies = spans[j] > 0.0
        extent = spans[j] if varies else sizes[j] * (j >= len(feature_names))
        if 0.0 < extent < smallest:
            what = "values that differ by at most" if varies else "the same value in every row,"
            raise InputError(
                f"{name} has {what} {extent:.3g}, which cannot be squared in double precision: "
                f"{UNIT}"
            )
        if varies and spreads[j] < ROUNDING * sizes[j]:
            raise InputError(
                f"{name} has values of up to {sizes[j]:.3g} in size that differ by at most "
                f"{spans[j]:.3g}, which double precision rounds away: subtract an offset where the "
                "values are made, or set them to one value if the differences mean nothing"
            )


def check_values(
    sums: Sums,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    given: Given = DOUBLE,
) -> None:
    """Raise InputError if rows cannot be used even where the scaling is known."""
    names = _names(feature_names, target_names)
    types = given.types(len(feature_names), len(target_names))
    for name, infinite, dtype in zip(names, sums.infinite, types, strict=True):
        _refuse_infinite(name, infinite, dtype)
    if not sums.rows:
        raise InputError(
            f"no usable rows: all {int(sums.dropped)} rows have a missing value (NaN): "
            "leave out columns that are mostly missing, or fill them"
            if sums.dropped
            else "no rows: the training data has length 0; give rows at two places or more"
        )
    for name, size in zip(names, _sizes(sums), strict=True):
        if size > LARGEST:
            raise InputError(
                f"{name} has values of up to {size:.3g} in size, which cannot be squared: "
                f"{UNIT} or set placeholders for missing values to NaN"
            )


def refuse_infinite_targets(
    infinite: np.ndarray, target_names: Sequence[str], dtype: np.dtype[Any]
) -> None:
    """Raise InputError for targets with infinite values, of which there are ``infinite`` (p,)."""
    for name, count in zip(_names((), target_names), infinite, strict=True):
        _refuse_infinite(name, count, dtype)


def _refuse_infinite(name: str, count: float, dtype: np.dtype[Any]) -> None:
    if count:
        beyond = ""
        if dtype == np.float16:
            beyond = f", as float16 holds none beyond {np.finfo(dtype).max:,.0f}: give float32"
        values = "value" if count == 1 else "values"
        raise InputError(f"{name} has {int(count)} infinite {values}{beyond or REMOVE}")


def check_range(
    sums: Sums,
    scale: Scaling,
    dtype: str,
    feature_names: Sequence[str],
    target_names: Sequence[str],
) -> None:
    """Raise InputError if values or error variances are too large in the model's units."""
    ends, d = np.stack([sums.low, sums.high]), len(scale.x_scale)
    y = (ends[:, d:] - scale.intercept) / scale.y_scale
    sizes = np.abs(np.column_stack([scale.inputs(ends[:, :d]), y])).max(axis=0)
    for name, size in zip(_names(feature_names, target_names), sizes, strict=True):
        if size > LARGEST_SCALED[dtype]:
            raise InputError(
                f"{name} has values of up to {size:.3g} times its scale, which cannot be squared "
                f"in {dtype}: {UNIT} or set placeholders for missing values to NaN"
            )
    with np.errstate(over="ignore"):
        error = sums.error / sums.rows / scale.y_scale**2
    if error.max() > LARGEST:
        raise InputError(
            f"y_variance is {error.max():.3g} times the variance of the targets on average, which "
            "cannot be squared in double precision: give it in the unit of the targets, squared"
        )


def _names(feature_names: Sequence[str], target_names: Sequence[str]) -> list[str]:
    features = [f"feature {name!r}" for name in feature_names]
    return features + [f"target {name!r}" for name in target_names]


def left_out(unit: Unit, uses: np.ndarray) -> bool:
    """Return True if all columns of a unit are left out, by the mask (d,) of the columns in use."""
    return bool(unit.columns) and not uses[list(unit.columns)].any()
