"""CGGP: the mean from conjugate gradients, to compare CaGP with."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskgp import data
from daskgp.checks import positive
from daskgp.data.stores.checkpoints import Place
from daskgp.estimators.attributes import Learned
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.outcome import Outcome
from daskgp.fit import rounds
from daskgp.fit.arrange import AsStored
from daskgp.fit.effects import Effects
from daskgp.fit.plan import Workload, rows_bytes
from daskgp.fit.subset import Start
from daskgp.fit.task import HELD_POINTS
from daskgp.models import scaling
from daskgp.models.actions.cggp import CGGP as ConjugateGradients
from daskgp.models.actions.passes import Paired
from daskgp.posterior import action_points
from daskgp.typing import OptimizerName

logger = logging.getLogger("daskgp")


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
    mean, standardize, block_rows, dtype, device, store, random_state, progress, geographic, \
fill_values
        As in ``SGPR``.

    Attributes
    ----------
    kernel_ : kernel, in the units of the data
    noise_variance_ : in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    residual_ : float, the relative residual reached
    n_iter_ : int, the steps taken
    objective_ : None: there is none
    history_ : empty list
    n_features_in_, feature_names_in_, n_rows_

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = daskgp.CGGP("matern32(0.3)", noise_variance=0.01).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    residual_ = Learned[float]()
    n_iter_ = Learned[int]()

    model_name: ClassVar[str] = "cggp"
    effects: ClassVar[Effects] = {}

    target_transform: None = field(default=None, init=False)
    calibrate: None = field(default=None, init=False)
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

    def _check(self, rows: data.Rows, n: int | None) -> None:
        positive("solver_tol", self.solver_tol)
        super()._check(rows, n)

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        work, n = super()._workload(rows, value), len(rows)
        return dataclasses.replace(
            work,
            window_rows=max(work.largest, min(n, HELD_POINTS)),
            near_rows=n,
            written=work.written + (0 if isinstance(rows.X, np.ndarray) else rows_bytes(rows)),
            iterations=self.max_iter,
        )

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        theta = begun.theta
        rows, quiet = stage.rows, stage.quiet
        pairs = Paired(quiet, quiet, int(sums.rows), rows.n_targets, 0)
        solution = self._model().weights(theta, pairs, self.solver_tol, self.max_iter)
        self.n_iter_, self.residual_ = solution.steps, solution.residual
        if self.residual_ > 2 * self.solver_tol:
            logger.warning(
                "conjugate gradients stopped after %d steps at a relative residual of %.2g: raise "
                "max_iter or the noise variance",
                self.n_iter_,
                self.residual_,
            )
        v, complete = solution.weights, pairs.complete
        plain = rows.with_arrays({"X": rows.X, "y": rows.y})
        values = np.where(complete[:, None], v, np.nan)
        kept = action_points.keep(plain, values, None, stage.executor, keep)
        state = ConjugateGradients.state_type(np.array(complete.sum(), np.int64))
        return Outcome(stage, theta, state, None, [], kept)
