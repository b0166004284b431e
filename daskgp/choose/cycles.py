"""Cycles of a series: periods of lines that stand out from the spectrum around them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.fft

MOST = 4
"""Most cycles that are looked for."""
HARMONICS = 3
"""Waves of a cycle that are fitted with it, those of half its period and so on included."""
MOST_TURNS, CELLS, FINENESS = 4_096, 8, 4
"""Most cycles over the range, cells per turn of the fastest wave, and frequencies per cycle."""
APART = 1.5
"""Cycles over the range by which lines differ that can be told apart."""
RESOLVED = 0.5
"""Cycles over the range to which the frequency of a line is known at least."""
AROUND, STANDS_OUT = 3.0, 25.0
"""Factor on a frequency within which the spectrum is around it, and how many times a line is above
the median there."""
GAIN = 0.02
"""Least share of the variance left that a cycle explains."""
CLIPPED = 5.0
"""Normal standard deviations of a residual beyond which it is an outlier."""
LEAST_ROWS = 50
LEAST_LEFT = 0.1
"""Least variance of what is left beside noise, in that of the noise."""
STEPS, SETTLED = 20, 1e-12
"""Most steps to the frequencies that fit best, and the shortest one, in cycles over the range."""
ROUNDING = 1e-20
"""Share of the variance below which what is left is rounding."""


class Cycle(NamedTuple):
    """A cycle: its period in the unit of x, and the variance of its waves."""

    period: float
    variance: float


class Series(NamedTuple):
    """Cycles of a series, the strongest first, and what is left without them.

    ``reach`` is the range of x, ``variance`` that of the rest but noise, ``length`` the distance at
    which half of it is reached, and ``noise`` its variance as a share of that of y.
    """

    cycles: tuple[Cycle, ...] = ()
    reach: float = 0.0
    variance: float = 0.0
    length: float = 0.0
    noise: float = 0.0

    @property
    def limits(self) -> dict[str, tuple[float, float]]:
        """Limits of the periods of a sum of what is left and of a product with each cycle.

        A range tells frequencies to half a cycle over it.  In training from few turns a cycle might
        become a trend otherwise.
        """
        turns = [self.reach / one.period for one in self.cycles]
        ends = [(self.reach / (f + RESOLVED), self.reach / (f - RESOLVED)) for f in turns]
        return {f"{number}.0.period": pair for number, pair in enumerate(ends, 1)}


def of_series(x: np.ndarray, y: np.ndarray) -> Series:
    """Return the cycles of values y (n,) along x (n,), and what is left without them.

    One after another is fitted by least squares with a parabola, frequencies with heights, and the
    next one is looked for in what is left: a frequency that is a little off would leave lines on
    both sides of its own.
    """
    known = np.isfinite(x) & np.isfinite(y)
    turns, y = x[known] - x[known].min(initial=np.inf), y[known]
    reach = float(turns.max(initial=0.0))
    if len(y) < LEAST_ROWS or reach <= 0 or y.std() == 0:
        return Series()
    turns /= reach
    gaps = np.diff(np.unique(turns))
    fastest = min(0.5 / float(gaps.min()), MOST_TURNS) if len(gaps) else 0.0
    trend, spread = np.vander(turns - 0.5, 3), float(y.var())
    left = _clipped(_rest(trend, y))
    y, found = left, list[float]()
    while len(found) < MOST and left.var() > ROUNDING * spread:
        line = _line(turns, left, fastest, found)
        if line is None:
            break
        # a wave may have been found before the one of which it is a part
        parts = [f for f in found if any(abs(f - k * line) < 0.5 for k in range(2, HARMONICS + 1))]
        others = [f for f in found if f not in parts]
        settled, rest = _settled(turns, y, trend, [*others, line], fastest)
        if rest.var() > (1 - GAIN) * left.var():
            break
        found, left = settled, rest
    waves = [_waves(turns, f, fastest) for f in found]
    design = np.hstack([*waves, trend])
    values = np.linalg.lstsq(design, y, rcond=None)[0]
    own = np.split(values, np.cumsum([part.shape[1] for part in waves]))
    cycles = [
        Cycle(reach / f, float((part @ height).var()))
        for f, part, height in zip(found, waves, own, strict=False)  # the trend is last
    ]
    rest = y - design @ values
    ordered = tuple(sorted(cycles, key=lambda one: -one.variance))
    length, noise = _variogram(turns, rest)
    variance = max(float(rest.var()) - noise, LEAST_LEFT * noise)
    return Series(ordered, reach, variance, reach * length, noise / spread)


def _variogram(turns: np.ndarray, rest: np.ndarray) -> tuple[float, float]:
    """Return the distance at which differences are half of what they grow to, and the noise."""
    order = np.argsort(turns)
    x, values = turns[order], rest[order]
    lags = 2 ** np.arange(max(int(np.log2(len(x) / 4)), 1))
    apart = np.array([np.median(x[lag:] - x[:-lag]) for lag in lags])
    half = np.array([np.mean((values[lag:] - values[:-lag]) ** 2) / 2 for lag in lags])
    beyond = half >= (half[0] + half.max()) / 2
    least = float(np.diff(np.unique(x)).min())  # rows may share a place
    noise = max(float(half[0]), float(np.finfo(float).tiny))
    return max(float(apart[np.argmax(beyond)]), least), noise


def _clipped(rest: np.ndarray) -> np.ndarray:
    """Return residuals without outliers."""
    middle = np.median(rest)
    most = CLIPPED * 1.4826 * float(np.median(np.abs(rest - middle))) or np.inf
    return np.asarray(np.clip(rest - middle, -most, most))


def _rest(design: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(y - design @ np.linalg.lstsq(design, y, rcond=None)[0])


def _waves(turns: np.ndarray, f: float, fastest: float) -> np.ndarray:
    """Return cosines and sines of a frequency and its multiples up to the fastest one."""
    angles = 2 * np.pi * np.outer(turns, _multiples(f, fastest))
    return np.hstack([np.cos(angles), np.sin(angles)])


def _slope(turns: np.ndarray, f: float, fastest: float, heights: np.ndarray) -> np.ndarray:
    """Return the derivative (n,) of waves of such heights by their frequency."""
    numbers = np.array(_multiples(f, fastest)) / f
    cosines, sines = np.split(_waves(turns, f, fastest), 2, axis=1)
    a, b = np.split(heights, 2)
    return np.asarray(2 * np.pi * turns * ((cosines * b - sines * a) @ numbers))


def _multiples(f: float, fastest: float) -> list[float]:
    return [k * f for k in range(1, HARMONICS + 1) if k * f <= fastest or k == 1]


def _settled(
    turns: np.ndarray, y: np.ndarray, trend: np.ndarray, found: list[float], fastest: float
) -> tuple[list[float], np.ndarray]:
    """Return the frequencies near given ones that fit best with a trend, and what is left.

    Steps are those of Gauss and Newton, of all frequencies and heights together, and end where they
    gain nothing.
    """
    best, left = found, np.full(len(y), np.inf)
    for _ in range(STEPS):
        waves = [_waves(turns, f, fastest) for f in found]
        design = np.hstack([*waves, trend])
        values = np.linalg.lstsq(design, y, rcond=None)[0]
        rest = y - design @ values
        if not rest @ rest < left @ left:
            break
        best, left = found, rest
        own = np.split(values, np.cumsum([part.shape[1] for part in waves]))
        pairs = zip(found, own, strict=False)  # the trend is last
        slopes = np.column_stack([_slope(turns, f, fastest, heights) for f, heights in pairs])
        steps = np.linalg.lstsq(np.hstack([slopes, design]), rest, rcond=None)[0][: len(found)]
        found = [float(f + step) for f, step in zip(found, steps, strict=True)]
        if np.abs(steps).max() < SETTLED or np.abs(steps).max() > 1 / FINENESS:
            break
    return best, left


def _line(turns: np.ndarray, left: np.ndarray, fastest: float, found: list[float]) -> float | None:
    """Return the frequency of the strongest line of a spectrum; None if no line stands out."""
    if fastest < 2.0:
        return None
    size = int(CELLS * fastest) + 1
    cells = np.bincount(np.rint(turns * size).astype(int), left, minlength=size + 1)
    power = np.abs(scipy.fft.rfft(cells, FINENESS * size)) ** 2
    f = np.arange(len(power)) / FINENESS
    known = [k * one for one in found for k in range(1, HARMONICS + 1)]
    far = np.ones(len(f), bool)
    for one in known:
        far &= np.abs(f - one) > APART
    inside = far & (f >= 1.0) & (f <= fastest)
    peaks = 1 + np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:]))
    peaks = peaks[inside[peaks]]
    for i in peaks[np.argsort(-power[peaks])[: 4 * FINENESS]]:
        near = far & (f > f[i] / AROUND) & (f < f[i] * AROUND) & (np.abs(f - f[i]) > 2 * APART)
        near &= f <= fastest
        if near.any() and power[i] > STANDS_OUT * np.median(power[near]):
            return float(f[i])
    return None
