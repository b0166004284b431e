"""Distances along which the correlation of a kernel falls."""

from __future__ import annotations

import numpy as np

from daskgp.kernels import Kernel
from daskgp.kernels.compose import beside_places
from daskgp.kernels.rotated import rotations
from daskgp.kernels.units import has_rotation

REFINED, FINE = 2, 65
"""Number of refinements of the interval of a length, and the places in it."""
NEAR = np.geomspace(1e-5, 10.0, 241)
FAR = np.geomspace(10.0, 1e6, 201)[1:]
"""Distances, in ranges of a column, that correlations are evaluated at."""


def correlation_lengths(kernel: Kernel, spread: np.ndarray, share: float = 0.5) -> np.ndarray:
    """Return the distance (d,) along each dimension where the correlation first falls half-way.

    That is half-way from one to its lowest value, so that a constant part does not count: within
    ten times the ranges ``spread`` (d,) or, of a stationary kernel, at any distance, so that
    lengths beyond the ranges keep their proportions.  It is infinite for a column that the kernel
    does not depend on, and for one of categories.
    So distances can be measured alike for every kernel.  Columns that the kernel ties are evaluated
    over the largest of their ranges, so that their lengths have the proportions of the kernel.
    """
    spread = _tied(kernel, spread)
    return _along(kernel, np.diag((spread > 0).astype(np.float64)), spread, share)


def distance_units(kernel: Kernel, spread: np.ndarray, share: float = 0.5) -> np.ndarray:
    """Return the units of distances that make those of a kernel alike in all directions.

    They are the correlation lengths (d,) along the columns; of a kernel with rotated columns a
    matrix T (q, d), whose product T x has units of one: correlation lengths along the turned axes.
    Where several parts of a kernel are rotated, the axes are those of the first one.  With another
    ``share`` lengths are those where the correlation has fallen by that share of its way.
    """
    if not has_rotation(kernel):
        return correlation_lengths(kernel, spread, share)
    (_, rotated), *_ = rotations(kernel)
    spread = _tied(kernel, spread)
    axes = rotated.axes(len(spread)) * (spread > 0)
    lengths = _along(kernel, axes, np.where(axes != 0, spread, 0.0).max(axis=1), share)
    matters = np.isfinite(lengths)
    return axes[matters] / lengths[matters, None] if matters.any() else lengths


def in_units(X: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return rows (..., d) in units of distance, (d,) or (q, d), without what does not matter.

    >>> in_units(np.array([[1.0, 2.0]]), np.array([np.inf, 4.0]))
    array([[0.5]])
    """
    if units.ndim == 2:
        return np.asarray(X @ units.T)
    matters = np.isfinite(units)
    return np.asarray(X[..., matters] / units[matters])


def of_scaled(units: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return units of distance of columns times ``scale`` (d,) from those of the columns.

    >>> of_scaled(np.array([1.0, 2.0]), np.array([10.0, 1.0]))
    array([10.,  2.])
    """
    return units / scale if units.ndim == 2 else units * scale


def _tied(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """Return ranges of columns, the largest one for those that are tied; 0 if not of places."""
    spread = np.array(spread, np.float64)
    # there is nothing between two levels, and a place is where the centre of an area is
    spread[list(beside_places(kernel, len(spread)))] = 0.0
    for group in map(list, kernel.tied_columns(len(spread))):
        spread[group] = np.where(spread[group] > 0, spread[group].max(), 0.0)
    return spread


def _along(kernel: Kernel, axes: np.ndarray, spread: np.ndarray, share: float) -> np.ndarray:
    """Return correlation lengths along axes (q, d), on which rows spread over (q,)."""
    lengths = np.full(len(spread), np.inf)
    for j, (axis, width) in enumerate(zip(axes, spread, strict=True)):
        steps, correlation = NEAR, _correlation(kernel, axis, NEAR * width)
        if not width > 0 or not correlation.min() < 1 - 1e-6:  # it says nothing
            continue
        if _is_stationary(kernel, axis, width):
            steps = np.concatenate([NEAR, FAR])
            correlation = _correlation(kernel, axis, steps * width)
        lowest = max(float(correlation.min()), 0.0)
        middle = 1.0 - share * (1.0 - lowest)
        below = np.flatnonzero(correlation < middle)
        if len(below):
            away = width * steps
            for _ in range(REFINED):  # to a length that does not depend on the ranges
                start, stop = away[max(below[0] - 1, 0)], away[below[0]]
                away = np.linspace(start, stop, FINE)
                correlation = _correlation(kernel, axis, away)
                below = np.flatnonzero(correlation < middle)
                below = below if len(below) else np.array([FINE - 1])  # rounding at its end
            before, first = max(below[0] - 1, 0), below[0]  # interpolated, so without a jump
            lengths[j] = np.interp(middle, correlation[[first, before]], away[[first, before]])
    return lengths


def _is_stationary(kernel: Kernel, axis: np.ndarray, width: float) -> bool:
    """Return True if the variance is the same at places along an axis (d,)."""
    places = np.append(0.0, NEAR * width)[:, None] * axis
    variances = np.asarray(kernel.diag(places))
    return bool(np.allclose(variances, variances[0], rtol=1e-9, atol=0.0))


def _correlation(kernel: Kernel, axis: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the correlation (n,) over distances along an axis (d,)."""
    away, origin = steps[:, None] * axis, np.zeros((1, len(axis)))
    unit = np.sqrt(kernel.diag(away) * kernel.diag(origin)[0])
    # a kernel such as the linear one may be zero at the origin
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(kernel(away, origin)[:, 0] / unit)
