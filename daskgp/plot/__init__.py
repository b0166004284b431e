"""Figures of data, fits and predictions, of matplotlib, and interactive maps, of HoloViews.

Every function draws on the ``ax`` or ``axes`` that it is given, or else on a new figure, and
returns the ``Axes`` that it drew on: one, or an array of them if it may have several panels.
``ax.figure`` is the figure.  A new one is a figure of ``pyplot``, which notebooks and
``pyplot.show`` show; with ``path`` it is saved instead, and belongs to no window and no global
state.  Arrays are drawn as they are, so thin out those of more than a few hundred thousand points
beforehand.
"""

from daskgp.plot.checks import check, distances, pit, ranks, reliability
from daskgp.plot.choice import choice, spread
from daskgp.plot.curves import (
    calibration,
    history,
    posterior_lines,
    traces,
    tradeoff,
    variogram,
)
from daskgp.plot.fields import maps, posterior_map, residuals
from daskgp.plot.hyperparameters import hyperparameter_map
from daskgp.plot.interactive import explore

__all__ = [
    "calibration",
    "check",
    "choice",
    "distances",
    "explore",
    "history",
    "hyperparameter_map",
    "maps",
    "pit",
    "posterior_lines",
    "posterior_map",
    "ranks",
    "reliability",
    "residuals",
    "spread",
    "traces",
    "tradeoff",
    "variogram",
]
