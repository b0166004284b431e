"""Figures from small arrays: all that uses matplotlib.

Every function returns a ``matplotlib.figure.Figure`` that belongs to no window and no global
state, and saves it if ``path`` is given. Arrays are drawn as they are, so give at most a few
hundred thousand points, and thin out larger arrays beforehand.
"""

from daskgp.plot.curves import calibration, history, posterior_lines, traces, tradeoff
from daskgp.plot.fields import maps, posterior_map

__all__ = [
    "calibration",
    "history",
    "maps",
    "posterior_lines",
    "posterior_map",
    "traces",
    "tradeoff",
]
