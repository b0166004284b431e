"""Methods of summed summaries, on rows in memory."""

from typing import Any, NamedTuple

import numpy as np

from daskgp import testing
from daskgp.models.values import Block, Moments


class Run(NamedTuple):
    """Objective of some rows, posterior at some places, and the state that gives it."""

    value: float
    moments: Moments
    state: Any


def run(model, theta, X, y, T=None, want="covariance", pieces=1):
    """All that a method finds of rows, whose summaries are combined; at T, or at the rows."""
    units = [[Block(X[rows], y[rows])] for rows in np.array_split(np.arange(len(X)), pieces)]
    state, value = model.solve(theta, testing.rows_of(*units))
    return Run(value, model.predict(theta, state, X if T is None else T, None, want), state)
