"""GP mean by conjugate gradients (CGGP): the mean of iterative solvers, and no variance.

The representer weights v solve (K + s I) v = y by conjugate gradients; the mean is k' v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from daskgp.arrays.backend import wide
from daskgp.errors import SettingError
from daskgp.models.actions.passes import Paired
from daskgp.models.method import Declared
from daskgp.models.values import TILE_ROWS, Footprint, Moments, Shape, Theta, Want

NO_VARIANCE = (
    "CGGP gives a mean but no variance, which is needed here: choose CaGP(actions='cg'), which "
    "has the same mean after as many steps"
)


class State(NamedTuple):
    """Number () of points; everything else is stored with the points."""

    points: np.ndarray


class Solution(NamedTuple):
    """Representer weights v (n, p), steps of the solver, and relative residual reached."""

    weights: np.ndarray
    steps: int
    residual: float


@dataclass(frozen=True)
class CGGP(Declared):
    """The mean of a GP whose linear system is solved by conjugate gradients.

    It has no objective, so its hyper-parameters come from elsewhere.
    """

    name: ClassVar[str] = "cggp"
    state_type: ClassVar[Any] = State
    keeps_rows: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True

    def why_no_variance(self) -> str | None:
        """Return why there is no variance, and which method has one."""
        return NO_VARIANCE

    def weights(self, theta: Theta, rows: Paired, tol: float, max_iter: int) -> Solution:
        """Return the representer weights of all rows, solved target by target."""
        product, y = rows.covariance(theta), rows.targets()
        operator = LinearOperator(
            (len(y), len(y)), matvec=lambda v: product(v.reshape(-1, 1))[:, 0], dtype=y.dtype
        )
        solution, most, worst = np.zeros(y.shape), 0, 0.0
        for j, target in enumerate(y.T):
            steps: list[None] = []

            def count(_: Any, steps: list[None] = steps) -> None:
                steps.append(None)

            solution[:, j], _ = cg(operator, target, rtol=tol, maxiter=max_iter, callback=count)
            size = np.linalg.norm(target) or 1.0
            left = float(np.linalg.norm(target - operator @ solution[:, j]) / size)
            most, worst = max(most, len(steps)), max(worst, left)
        return Solution(solution, most, worst)

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
