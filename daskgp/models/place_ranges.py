"""Ranges of longitude and latitude: longitudes are on a circle, which has no least one.

Rows are summed up as the least and the largest latitude, longitude, and longitude of each degree
of the circle, so that the widest gap between longitudes is known however the rows are cut.
"""

from __future__ import annotations

import numpy as np

from daskgp.models.columns import LONGITUDES

Ends = np.ndarray
"""Least values, and those largest (2, 362): latitude, longitude, and longitude by degree."""
GAP = 45.0
"""Widest gap in degrees of longitudes that go all round."""
CIRCLE = 360.0


def local(lon: np.ndarray, lat: np.ndarray) -> Ends:
    """Return the ends of places (n,) in degrees."""
    ends = np.full((2, 2 + int(CIRCLE)), np.inf)
    ends[1] *= -1
    if len(lon):
        ends[0, :2], ends[1, :2] = (lat.min(), lon.min()), (lat.max(), lon.max())
        around = np.mod(lon, CIRCLE)
        around[around == CIRCLE] = 0.0  # what rounding made of a longitude just below zero
        degree = 2 + around.astype(int)
        np.minimum.at(ends[0], degree, around)
        np.maximum.at(ends[1], degree, around)
    return ends


def combine(a: Ends, b: Ends) -> Ends:
    """Return the ends of all places of both."""
    return np.stack([np.minimum(a[0], b[0]), np.maximum(a[1], b[1])])


def of(ends: Ends) -> tuple[list[float], list[float]]:
    """Return the ranges of longitude and latitude.

    That of longitudes is the shortest that has all of them; it may cross the date line, as 170 to
    190 does, and is the whole circle if no gap between them is wide.  It lies between 0 and 360
    where the longitudes do, otherwise between -180 and 180 if it can.
    """
    latitudes = [float(end) for end in ends[:, 0]]
    least, largest = ends[:, 1]
    taken = np.flatnonzero(ends[0, 2:] < np.inf)
    west, east = ends[0, 2:][taken], ends[1, 2:][taken]
    gaps = np.append(west[1:], west[0] + CIRCLE) - east
    widest = int(np.argmax(gaps))
    eastern = least >= 0.0 and largest > CIRCLE / 2
    home = 0.0 if eastern else -CIRCLE / 2
    if gaps[widest] <= GAP:
        return [home, home + CIRCLE], latitudes
    start = west[(widest + 1) % len(west)]
    pairs = [(start + turn, start + turn + CIRCLE - gaps[widest]) for turn in (-CIRCLE, 0.0)]
    fitting = [p for p in pairs if p[0] >= LONGITUDES[0] and p[1] <= LONGITUDES[1]]
    if not fitting:
        return [home, home + CIRCLE], latitudes
    inside = [p for p in fitting if p[0] >= home and p[1] <= home + CIRCLE]
    low, high = (inside or fitting)[0]
    if np.isclose(high - low, largest - least, rtol=0.0, atol=1e-9):
        low, high = least, largest  # as they are, without what turning them rounded
    return [float(low), float(high)], latitudes


def along(longitudes: list[float], latitudes: list[float]) -> Ends:
    """Return the ends of all places within ranges, to which those of other rows can be added."""
    west, east = longitudes
    lon = np.append(np.arange(west, east, 0.5), east)
    return local(lon, np.linspace(latitudes[0], latitudes[1], len(lon)))
