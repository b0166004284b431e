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
from daskgp.data import polygons
from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.canvas import Path
from daskgp.plot.places import Places

Coast: TypeAlias = bool | Path | Iterable[Any]

STEP = 0.005
"""Degrees of a whole step in the file."""
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
    if coast is True:
        return coastlines(x, y, max(where.extent)) if where.geographic else []
    lines = coast or []
    turns = (-360.0, 0.0, 360.0) if where.geographic else (0.0,)
    return [line + np.array([turn, 0.0]) for turn in turns for line in lines]


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
