"""Monthly fields on the globe, with gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special

from datasets.processes import Truth

EARTH = 6371.0088
GAP = 12.0
"""Radius of gaps, in degrees of arc."""
DATE_LINE = [(180.0, lat) for lat in (-60.0, -30.0, 0.0, 30.0, 60.0)]
ELSEWHERE = [(-90.0, -45.0), (0.0, -30.0), (90.0, -15.0), (-60.0, 15.0), (30.0, 45.0)]
GAPS = {"poles": [(0.0, 90.0), (0.0, -90.0)], "date_line": DATE_LINE, "elsewhere": ELSEWHERE}
"""Longitude and latitude of the middles of gaps."""


class Globe(NamedTuple):
    """Monthly values on a grid of the sphere.

    Longitudes (J,) and latitudes (I,) of the cells, the values without noise (T, I, J), those of
    rows, NaN where there is none, and a mask (I, J) of each kind of gap.
    """

    lon: np.ndarray
    lat: np.ndarray
    f: np.ndarray
    y: np.ndarray
    gaps: dict[str, np.ndarray]

    def places(self, kind: str, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return so many places (n, 3) in gaps of a kind, at random, and their values (n,)."""
        month, i, j = np.nonzero(np.broadcast_to(self.gaps[kind], self.f.shape))
        few = np.random.default_rng(0).permutation(len(month))[:number]
        month, i, j = month[few], i[few], j[few]
        return np.column_stack([self.lon[j], self.lat[i], month]), self.f[month, i, j]


def globe(
    rng: np.random.Generator, space: Truth, time: Truth, shape: tuple[int, int, int], rows: int
) -> Globe:
    """Draw a sum of spherical harmonics whose coefficients change from month to month.

    Its covariance is the product of a kernel of the chord in km and one of months, cut at degree
    60; ``shape`` is the number of months, of latitudes and of longitudes.  Values of ``rows`` cells
    outside the gaps, at random, have the noise of ``space``.
    """
    months, *sides = shape
    lat, lon = (
        width * ((np.arange(n) + 0.5) / n - 0.5) for n, width in zip(sides, (180, 360), strict=True)
    )
    month = np.arange(months, dtype=float)[:, None]
    root = np.linalg.cholesky(time.kernel(month, month) + 1e-9 * np.eye(months))
    f = np.zeros(shape)
    for wave, functions in harmonics(space, np.radians(lon), np.radians(lat)):
        coefficients = root @ rng.standard_normal((months, len(functions)))
        f += (coefficients @ functions)[:, :, None] * wave
    gaps = {kind: around(lon, lat, middles) for kind, middles in GAPS.items()}
    outside = np.flatnonzero(np.broadcast_to(~np.any([*gaps.values()], axis=0), shape))
    measured = rng.permutation(outside)[:rows]
    y = np.full(f.size, np.nan)
    y[measured] = f.ravel()[measured] + np.sqrt(space.noise) * rng.standard_normal(len(measured))
    return Globe(lon, lat, f, y.reshape(shape), gaps)


def harmonics(
    truth: Truth, lon: np.ndarray, lat: np.ndarray, degree: int = 60
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield waves (J,) along longitudes and functions (k, I) of latitudes, in radians.

    With independent standard normal coefficients the sum of all products has the kernel's
    covariance: the variance of a degree is the coefficient of its Legendre polynomial.
    """
    nodes, weights = np.polynomial.legendre.leggauss(4 * degree)
    chord = EARTH * np.sqrt(2 - 2 * nodes)
    weights = 2 * np.pi * weights * truth.kernel(chord[:, None], np.zeros((1, 1)))[:, 0]
    for m in range(degree + 1):
        ells = np.arange(m, degree + 1)[:, None]
        variance = scipy.special.eval_legendre(ells, nodes) @ weights
        sizes = scipy.special.gammaln(ells - m + 1) - scipy.special.gammaln(ells + m + 1)
        norms = (2 * ells + 1) * (2 if m else 1) / (4 * np.pi) * np.exp(sizes)
        functions = scipy.special.lpmv(m, ells, np.sin(lat))
        functions *= np.sqrt(norms * np.maximum(variance, 0)[:, None])
        yield np.cos(m * lon), functions
        if m:
            yield np.sin(m * lon), functions


def around(lon: np.ndarray, lat: np.ndarray, middles: Iterable[tuple[float, float]]) -> np.ndarray:
    """Return a mask (I, J) of the cells that are in a gap around one of some places."""
    cells = unit(lon, lat[:, None])
    points = unit(*np.transpose([*middles]))
    return (cells @ points.T >= np.cos(np.radians(GAP))).any(axis=-1)


def unit(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Return places (…, 3) on the unit sphere of degrees east and north."""
    lon, lat = np.broadcast_arrays(np.radians(lon), np.radians(lat))
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)
