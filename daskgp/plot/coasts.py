"""Coastlines of maps in longitude and latitude, where cartopy is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

logger = logging.getLogger("daskgp")

RESOLUTIONS = ((60.0, "110m"), (15.0, "50m"), (0.0, "10m"))
"""Least degrees of a map, and the resolution of its coastlines."""


def coastlines(west: float, east: float, degrees: float) -> list[np.ndarray]:
    """Return lines (k, 2) of longitude and latitude over a map of that many degrees.

    There are none without cartopy, or where it cannot get at its data; that is logged.  Copies
    east and west of the globe serve longitudes beyond 180 degrees.
    """
    globe = _globe(next(name for least, name in RESOLUTIONS if degrees >= least))
    turns = [turn for turn in (-360.0, 0.0, 360.0) if west < 180.0 + turn and east > turn - 180.0]
    return [line + np.array((turn, 0.0)) for turn in turns for line in globe]


@cache
def _globe(resolution: str) -> list[np.ndarray]:
    try:
        from cartopy.io import shapereader
    except ImportError:
        logger.info("no coastlines: pip install cartopy")
        return []
    try:
        path = shapereader.natural_earth(resolution, "physical", "coastline")
        return [line for shape in shapereader.Reader(path).geometries() for line in _lines(shape)]
    except OSError as error:  # it downloads them once
        logger.info("no coastlines: %s", error)
        return []


def _lines(shape: Any) -> Iterator[np.ndarray]:
    for part in getattr(shape, "geoms", (shape,)):
        yield np.asarray(part.coords, np.float64)[:, :2]
