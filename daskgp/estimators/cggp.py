"""CGGP: the mean from conjugate gradients, to compare CaGP with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from daskgp.checks import positive
from daskgp.estimators.attributes import Learned
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import Requirements
from daskgp.fit.actions import BySteps
from daskgp.fit.arrange import AsStored
from daskgp.models.actions.cggp import CGGP as ConjugateGradients
from daskgp.typing import OptimizerName


@dataclass(eq=False, repr=False, kw_only=True)
class CGGP(GaussianProcess):
    """GP regression whose linear system is solved by conjugate gradients; a mean alone.

    Kept for comparison: ``CaGP(actions="cg")`` has the same mean after as many steps and says how
    far to trust it.  A step costs n² kernel entries, of which no tile is kept.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default ``Matern32(ard=True)``.  Hyper-parameters are not trained: take those of a fit of
        another estimator.
    noise_variance : float
        Noise variance, in units of the standardised y.
    solver_tol : float
        Relative residual at which the solver stops.
    max_iter : int
        Maximum number of steps of the solver.

    Attributes
    ----------
    residual_ : float, the relative residual reached
    n_iter_ : int, the steps taken
    objective_ : None: there is none
    history_ : empty list

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = daskgp.CGGP("matern32(0.3)", noise_variance=0.01).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    residual_: ClassVar[Learned[float]] = Learned(lambda fit: fit.left[1])
    n_iter_: ClassVar[Learned[int]] = Learned(lambda fit: fit.left[0])

    model_name: ClassVar[str] = "cggp"
    requirements: ClassVar[Requirements] = {}

    target_transform: None = field(default=None, init=False)
    calibrate: None = field(default=None, init=False)
    likelihood: str = field(default="gaussian", init=False)
    optimizer: OptimizerName | None = field(default=None, init=False)
    learning_rate: float = field(default=0.05, init=False)
    tol: float = field(default=1.0, init=False)
    fixed: Sequence[str] | str | Mapping[str, float | Sequence[float]] | None = field(
        default=None, init=False
    )
    limits: Mapping[str, Sequence[float]] | None = field(default=None, init=False)
    prior: Mapping[str, Any] | None = field(default=None, init=False)
    solver_tol: float = 1e-4
    max_iter: int = 512

    def _model(self) -> Any:
        return ConjugateGradients()

    def _arrangement(self) -> AsStored:
        return AsStored(self.block_rows, keeps_rows=True)

    def _trainer(self) -> BySteps:
        return BySteps(self.solver_tol)

    def _check_own(self) -> None:
        positive("solver_tol", self.solver_tol)

    def _notes(self) -> dict[str, Any]:
        left: tuple[int, float] | None = self._fitted.left
        return {} if left is None else {"steps": left[0], "residual": left[1]}

    def _take_notes(self, notes: Mapping[str, Any]) -> None:
        if {"steps", "residual"} <= notes.keys():
            left = int(notes["steps"]), float(notes["residual"])
            self._fitted = dataclasses.replace(self._fitted, left=left)
