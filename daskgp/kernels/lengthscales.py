"""Distances along which the correlation of a kernel falls."""

from __future__ import annotations

import numpy as np

from daskgp.kernels import Kernel

REFINED, FINE = 2, 65
"""How often the interval of a length is refined, and the places in it."""


def correlation_lengths(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """Return the distance (d,) along each dimension where the correlation first falls half-way.

    That is half-way from one to its lowest value within ten times the ranges ``spread`` (d,), so
    that a constant part does not count; infinite for a column that the kernel does not depend on.
    So distances can be measured alike for every kernel.  Columns that the kernel ties are evaluated
    over the largest of their ranges, so that their lengths have the proportions of the kernel.
    """
    spread = np.array(spread, np.float64)
    for group in map(list, kernel.tied_columns(len(spread))):
        spread[group] = np.where(spread[group] > 0, spread[group].max(), 0.0)
    steps = np.geomspace(1e-5, 10.0, 241)
    lengths = np.full(len(spread), np.inf)
    for j, width in enumerate(spread):
        correlation = _correlation(kernel, j, steps * width, len(spread))
        lowest = max(float(correlation.min()), 0.0)  # NaN is not below anything
        middle = 0.5 * (1 + lowest)
        below = np.flatnonzero(correlation < middle)
        if len(below) and width > 0 and lowest < 1 - 1e-6:
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


def _correlation(kernel: Kernel, j: int, steps: np.ndarray, d: int) -> np.ndarray:
    """Return the correlation (n,) over distances along dimension j of d."""
    away, origin = np.zeros((len(steps), d)), np.zeros((1, d))
    away[:, j] = steps
    unit = np.sqrt(kernel.diag(away) * kernel.diag(origin)[0])
    # a kernel such as the linear one may be zero at the origin
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(kernel(away, origin)[:, 0] / unit)
