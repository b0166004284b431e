"""Coastlines of maps in longitude and latitude.

They are those of Natural Earth (naturalearthdata.com, public domain), thinned, and come with the
package, so that maps need no network; ``tests/plot/write_coasts.py`` wrote them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np

STEP = 0.005
"""Degrees of a whole step in the file."""
SCALES = ((60.0, "110m"), (15.0, "50m"), (0.0, "10m"))
"""Least degrees of a map, and the scale of its coastlines."""


def coastlines(x: tuple[float, float], y: tuple[float, float], degrees: float) -> list[np.ndarray]:
    """Return lines (k, 2) that may cross ranges of longitude and latitude.

    Those of a map of fewer ``degrees`` have more detail.  Copies east and west of the globe serve
    longitudes beyond 180 degrees.
    """
    lines, low, high = _globe(next(scale for least, scale in SCALES if degrees >= least))
    shown = []
    for turn in (-360.0, 0.0, 360.0):
        shift = np.array((turn, 0.0))
        crosses = (low + shift <= (x[1], y[1])) & (high + shift >= (x[0], y[0]))
        shown += [lines[i] + shift for i in np.flatnonzero(crosses.all(axis=1))]
    return shown


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
