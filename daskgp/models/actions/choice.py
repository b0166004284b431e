"""Choice of the actions of a computation-aware GP."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from daskgp.kernels.weights import Weights
from daskgp.models.actions import krylov
from daskgp.models.actions.passes import Paired
from daskgp.models.values import Theta

logger: logging.Logger = logging.getLogger("daskgp")


def normalised(values: np.ndarray, owner: np.ndarray, count: int) -> tuple[Weights, np.ndarray]:
    """Return equivalent actions of unit length, and their lengths; zero ones stay zero."""
    norms = np.sqrt(np.bincount(owner, values**2, count))
    norms[norms == 0] = 1.0
    return Weights(values / norms[owner], owner, count), norms


@dataclass(frozen=True, eq=False)
class Dense:
    """Actions with a weight on every row, for given hyper-parameters.

    Parameters
    ----------
    kind : {"cg", "random", "eigen", "given"}
    number : int
        Maximum number of actions.
    tol : float
        Relative residual at which conjugate gradients stop.
    seed : int
    given : ndarray (n, t), optional
        The actions of kind "given".
    """

    kind: str
    number: int
    tol: float
    seed: int
    given: np.ndarray | None = None

    @property
    def follows(self) -> bool:
        """True if other hyper-parameters need other actions."""
        return self.kind in ("cg", "eigen")

    def __call__(self, acts: Paired, theta: Theta) -> Weights:
        """Return the actions; rows with missing values have no weight."""
        complete = acts.complete[:, None]
        if self.given is not None:
            return Weights.dense(self.given * complete)
        if self.kind == "random":
            rng = np.random.default_rng([self.seed, 8])
            return Weights.dense(rng.standard_normal((len(complete), self.number)) * complete)
        product = acts.covariance(theta)
        if self.kind == "eigen":
            return Weights.dense(self._eigenvectors(product, complete))
        directions = krylov.residual_directions(product, acts.targets(), self.number, self.tol)
        if not len(directions.residuals):  # all targets are zero, as any action shows
            return Weights.dense(1.0 * complete)
        logger.info(
            "%d actions of conjugate gradients, relative residual %.2g",
            len(directions.residuals),
            directions.residuals[-1],
        )
        return Weights.dense(directions.actions)

    def _eigenvectors(self, product: krylov.Product, complete: np.ndarray) -> np.ndarray:
        """Return the leading eigenvectors (n, t), largest first; [CAGP] Lemma S5."""
        n = len(complete)
        start = np.random.default_rng([self.seed, 9]).standard_normal(n) * complete[:, 0]
        operator = LinearOperator(
            (n, n), matvec=lambda v: product(v.reshape(-1, 1))[:, 0], dtype=start.dtype
        )
        _, vectors = eigsh(operator, k=self.number, which="LA", v0=start)
        return np.ascontiguousarray(vectors[:, ::-1])
