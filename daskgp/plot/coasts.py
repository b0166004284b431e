"""Coastlines of maps in longitude and latitude.

They are those of Natural Earth (naturalearthdata.com, public domain), thinned, and come with the
package, so that maps need no network; ``tests/plot/write_coasts.py`` wrote them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import numpy as np

from daskgp.checks import shown
from daskgp.data import crs, polygons
from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.places import Places
from daskgp.typing import Path

Coast: TypeAlias = bool | Path | Iterable[Any]

STEP = 0.005
"""Degrees of a whole step in the file."""
METRES = {"m": 1.0, "metre": 1.0, "metres": 1.0, "meter": 1.0, "meters": 1.0, "km": 1000.0}
METRES_OF_A_DEGREE = 111_000.0
SAMPLE, NEAR_POLE = 41, 85.0
"""Points along a side of a map that tell where it is, and degrees of latitude round a pole."""
SCALES = ((60.0, "110m"), (15.0, "50m"), (0.0, "10m"))
"""Least degrees of a map, and the scale of its coastlines."""


def lines_given(coast: Any) -> bool | list[np.ndarray]:
    """Return the lines (k, 2) that a user draws coasts by, or whether to draw those shipped.

    Raises
    ------
    InputError
        If the file or the array has no lines.
    """
    if isinstance(coast, bool):
        return coast
    if isinstance(coast, str | os.PathLike):
        return list(polygons.lines_in(os.fspath(coast)))
    if _is_geometry(coast):
        return list(polygons.lines_in(coast))
    if not isinstance(coast, Iterable):
        raise InputError(
            f"coast={shown(coast)}: give True, False, the path of a GeoJSON file or lines (k, 2)"
        )
    lines: list[np.ndarray] = []
    for line in [coast] if np.ndim(getattr(coast, "data", ())) == 2 else coast:
        if _is_geometry(line):
            lines += polygons.lines_in(line)
        else:
            lines.append(places.two_columns("a line of coast", line))
    return lines


def _is_geometry(value: Any) -> bool:
    return hasattr(value, "__geo_interface__")


def lines_on(
    where: Places, x: tuple[float, float], y: tuple[float, float], coast: bool | list[np.ndarray]
) -> list[np.ndarray]:
    """Return the lines of coasts on a map of places that shows ranges of its axes."""
    if coast is True and where.geographic:
        return coastlines(x, y, max(where.extent))
    if coast is True:
        return _projected(where, x, y)
    lines = coast or []
    turns = (-360.0, 0.0, 360.0) if where.geographic else (0.0,)
    return [line + np.array([turn, 0.0]) for turn in turns for line in lines]


def _projected(where: Places, x: tuple[float, float], y: tuple[float, float]) -> list[np.ndarray]:
    """Return coastlines in the reference system of a map; none where it is not known."""
    globe = crs.on_globe(where.crs) if where.crs else None
    if globe is None:
        return []
    units = {globe.metres if not unit else METRES.get(unit) for unit in where.units}
    metres = units.pop()
    if units or metres is None:
        return []
    scale = metres / globe.metres  # of the system, in a unit of the axes
    frame = np.meshgrid(np.linspace(*x, SAMPLE) * scale, np.linspace(*y, SAMPLE) * scale)
    lon, lat = (np.where(np.isfinite(v), v, np.nan) for v in globe.to_degrees(*frame))
    if not np.isfinite(lat).any():
        return []
    low, high = np.nanmin(lat), np.nanmax(lat)
    # Round a pole, or across the 180th meridian, all longitudes may be seen.
    west, east = np.nanmin(lon), np.nanmax(lon)
    if east - west > 180 or max(abs(low), abs(high)) > NEAR_POLE:
        west, east = -180.0, 180.0
        low, high = (low, 90.0) if high > NEAR_POLE else (-90.0 if low < -NEAR_POLE else low, high)
    extent = max(x[1] - x[0], y[1] - y[0]) * metres
    seen: list[np.ndarray] = []
    for line in coastlines((west, east), (low, high), extent / METRES_OF_A_DEGREE):
        there = np.column_stack(globe.to_plane(line[:, 0], line[:, 1]))
        known = np.isfinite(there).all(axis=1)
        steps = np.hypot(*np.diff(np.where(known[:, None], there, 0.0), axis=0).T) * globe.metres
        # Parts end where the projection has no places, or jumps from one of its sides to another.
        jumps = (steps > extent / 20) & (steps > 10 * _lengths(line))
        cuts = np.flatnonzero(jumps | ~known[1:] | ~known[:-1]) + 1
        seen += [part / scale for part in np.split(there, cuts) if len(part) > 1]
    return seen


def _lengths(line: np.ndarray) -> np.ndarray:
    """Return about the metres on the ground of the steps of a line in degrees."""
    east, north = np.diff(line, axis=0).T
    return METRES_OF_A_DEGREE * np.hypot(east * np.cos(np.deg2rad(line[1:, 1])), north)


def coastlines(x: tuple[float, float], y: tuple[float, float], degrees: float) -> list[np.ndarray]:
    """Return lines (k, 2) that may cross ranges of longitude and latitude.

    Those of a map of fewer ``degrees`` have more detail.  Copies east and west of the globe serve
    longitudes beyond 180 degrees.
    """
    lines, low, high = _globe(next(scale for least, scale in SCALES if degrees >= least))
    seen = []
    for turn in (-360.0, 0.0, 360.0):
        shift = np.array((turn, 0.0))
        crosses = (low + shift <= (x[1], y[1])) & (high + shift >= (x[0], y[0]))
        seen += [lines[i] + shift for i in np.flatnonzero(crosses.all(axis=1))]
    return seen


@cache
def _globe(scale: str) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the lines of a scale, and the lowest and highest coordinates (n, 2) of each."""
    with (
        (resources.files("daskgp.plot") / "coasts.npz").open("rb") as file,
        np.load(file) as stored,
    ):
        steps, ends = stored[f"steps_{scale}"], np.cumsum(stored[f"lengths_{scale}"])
    points = np.cumsum(steps, axis=1).T * STEP
    starts = np.concatenate([[0], ends[:-1]])
    low, high = (bound.reduceat(points, starts) for bound in (np.minimum, np.maximum))
    return np.split(points, starts[1:]), low, high
