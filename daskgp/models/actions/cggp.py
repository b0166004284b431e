"""GP mean by conjugate gradients (CGGP): the mean of iterative solvers, and no variance.

The representer weights v solve (K + s I) v = y by conjugate gradients; the mean is k' v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays.backend import wide
from daskgp.errors import SettingError
from daskgp.models.method import Declared
from daskgp.models.values import TILE_ROWS, Footprint, Moments, Shape, Theta, Want

NO_VARIANCE = (
    "CGGP gives a mean and no variance, which this wants: choose CaGP(actions='cg'), which has the "
    "same mean after as many steps"
)


class State(NamedTuple):
    """Number () of points; everything else is stored with the points."""

    points: np.ndarray


@dataclass(frozen=True)
class CGGP(Declared):
    """The mean of a GP whose linear system is solved by conjugate gradients."""

    name: ClassVar[str] = "cggp"
    state_type: ClassVar[Any] = State
    keeps_rows: ClassVar[bool] = True

    def why_no_variance(self) -> str | None:
        """Return why there is no variance, and which method has one."""
        return NO_VARIANCE

    def predict(
        self, theta: Theta, state: State, X: Any, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the mean k' v, with the points' weights v from ``near``; there is no variance."""
        if want != "mean":
            raise SettingError(NO_VARIANCE)
        mean = None
        for panel in near:
            mean = theta.kernel.weighted(panel.X, panel.weights, X, mean)
        return Moments(wide(mean).T)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint: a kernel strip in a task, vectors of all rows in the client."""
        vectors = 8 * shape.rows * shape.targets
        return Footprint(
            task=vectors + 8 * shape.window_rows * (2 * shape.features + 4),
            stats=8 * shape.block_rows,
            solve=6 * vectors,
            state=vectors + 8 * shape.rows * shape.features,
            operations=30.0 * shape.rows * shape.rows,
            predict=8 * shape.targets * TILE_ROWS + vectors,
            shared=vectors,
        )
