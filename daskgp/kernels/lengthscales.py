"""Distances along which the correlation of a kernel falls."""

from __future__ import annotations

import numpy as np

from daskgp.kernels import Kernel
from daskgp.kernels.compose import codes_of

REFINED, FINE = 2, 65
"""How often the interval of a length is refined, and the places in it."""
NEAR = np.geomspace(1e-5, 10.0, 241)
FAR = np.geomspace(10.0, 1e6, 201)[1:]
"""Distances, in ranges of a column, that correlations are evaluated at."""


def correlation_lengths(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """Return the distance (d,) along each dimension where the correlation first falls half-way.

    That is half-way from one to its lowest value, so that a constant part does not count: within
    ten times the ranges ``spread`` (d,) or, of a stationary kernel, at any distance, so that
    lengths beyond the ranges keep their proportions.  It is infinite for a column that the kernel
    does not depend on, and for one of categories.
    So distances can be measured alike for every kernel.  Columns that the kernel ties are evaluated
    over the largest of their ranges, so that their lengths have the proportions of the kernel.
    """
    spread = np.array(spread, np.float64)
    for group in map(list, kernel.tied_columns(len(spread))):
        spread[group] = np.where(spread[group] > 0, spread[group].max(), 0.0)
    lengths, codes = np.full(len(spread), np.inf), codes_of(kernel, len(spread))
    for j, width in enumerate(spread):
        if j in codes:  # there is nothing between two levels
            continue
        steps, correlation = NEAR, _correlation(kernel, j, NEAR * width, len(spread))
        if not width > 0 or not correlation.min() < 1 - 1e-6:  # it says nothing
            continue
        if _is_stationary(kernel, j, width, len(spread)):
            steps = np.concatenate([NEAR, FAR])
            correlation = _correlation(kernel, j, steps * width, len(spread))
        lowest = max(float(correlation.min()), 0.0)
        middle = 0.5 * (1 + lowest)
        below = np.flatnonzero(correlation < middle)
        if len(below):
            away = width * steps
            for _ in range(REFINED):  # to a length that does not depend on the ranges
                start, stop = away[max(below[0] - 1, 0)], away[below[0]]
                away = np.linspace(start, stop, FINE)
                correlation = _correlation(kernel, j, away, len(spread))
                below = np.flatnonzero(correlation < middle)
                below = below if len(below) else np.array([FINE - 1])  # rounding at its end
            before, first = max(below[0] - 1, 0), below[0]  # interpolated, so without a jump
            lengths[j] = np.interp(middle, correlation[[first, before]], away[[first, before]])
    return lengths


def _is_stationary(kernel: Kernel, j: int, width: float, d: int) -> bool:
    """Return True if the variance is the same at places along dimension j of d."""
    places = np.zeros((len(NEAR) + 1, d))
    places[1:, j] = NEAR * width
    variances = np.asarray(kernel.diag(places))
    return bool(np.allclose(variances, variances[0], rtol=1e-9, atol=0.0))


def _correlation(kernel: Kernel, j: int, steps: np.ndarray, d: int) -> np.ndarray:
    """Return the correlation (n,) over distances along dimension j of d."""
    away, origin = np.zeros((len(steps), d)), np.zeros((1, d))
    away[:, j] = steps
    unit = np.sqrt(kernel.diag(away) * kernel.diag(origin)[0])
    # a kernel such as the linear one may be zero at the origin
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(kernel(away, origin)[:, 0] / unit)
