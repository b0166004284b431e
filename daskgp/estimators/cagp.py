"""CaGP: computation-aware GPs, whose variance includes what was not computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from daskgp.checks import choice, positive, whole
from daskgp.data import partition
from daskgp.data.kinds import Kind, OfRows, Places, Stored
from daskgp.errors import SettingError
from daskgp.estimators import requirements
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Requirements, among, chosen
from daskgp.estimators.trees import of_nodes
from daskgp.fit import rounds
from daskgp.fit.actions import OfActions, paired
from daskgp.fit.arrange import AsStored, Sorted
from daskgp.fit.inputs import Inputs
from daskgp.fit.recipe import Traits
from daskgp.models import scaling
from daskgp.models.actions.cagp import CaGP as ComputationAware
from daskgp.models.actions.cagp import LossName
from daskgp.posterior.action_points import ActionPoints
from daskgp.predict import computational, observed
from daskgp.predict import lazy as prediction
from daskgp.runtime.executor import Executor

DENSE = ("cg", "random", "eigen")
COLUMNS, COLUMN_BYTES = 256, 256 << 20
"""Most places whose computational part is computed at a time, and most bytes of its matrices."""


@dataclass(eq=False, repr=False, kw_only=True)
class CaGP(GaussianProcess):
    """Computation-aware GP regression: exact given a few combinations of the targets.

    The targets are seen through n_actions linear combinations (actions), [CAGP] eq. 5.  Whatever
    the actions are, the variance is never below the exact GP's with the same hyper-parameters: it
    also includes what was not computed.  A value and gradient takes two kernel entries for each
    pair of a training row and a point of an action: about 2 n² if all rows are points,
    2 n k n_actions with ``support=k``, and no tile of the kernel is ever kept.

    Parameters
    ----------
    n_actions : int
        Number of actions.
    actions : {"sparse", "cg", "random", "eigen"} or array-like (n, n_actions)
        Learned weights, each action on rows of its own (eq. 14); residuals of conjugate gradients;
        normal random numbers; the leading eigenvectors of the kernel matrix; or the actions
        themselves, for rows in their original order.  All but "sparse" keep n x n_actions numbers
        in the client, and a pass takes n² n_actions operations.
    support : int, optional
        Maximum rows of an action, drawn at random from all; other targets then affect the posterior
        only through the hyper-parameters.  Default all rows.
    order : str or sequence of str, optional
        Sparse actions combine rows next to one another in this order, as for ``daskgp.prepare``;
        None for the rows' own order.  A store that ``daskgp.prepare`` made is read as it is.
    loss : {"elbo", "projected"}
        What training maximises: the evidence lower bound of all targets (eq. 11), or the evidence
        of the combinations alone (eq. 9), with which learned actions fit what is easy to fit and
        others overestimate the noise.
    batch_rows : int, optional
        Approximate number of rows drawn anew for each step, from which the bound's sums over rows
        are estimated without bias; for ``optimizer="adam"`` with ``support=``.
    action_tol : float
        Relative residual at which "cg" adds no further action.
    refreshes : int
        Number of times that training starts from actions chosen for the hyper-parameters so far,
        if actions depend on these ("cg", "eigen"), with at most ``max_iter`` iterations each.
    learning_rate : float
        Learning rate of Adam at the start; it falls to a tenth of that.
    tol : float
        Gain of the objective, in nats per hyper-parameter, below which training stops, as in
        ``SGPR``; Adam stops when 20 steps have gained less than that over the 20 before.

    Attributes
    ----------
    n_actions_ : int, number of actions that are neither zero nor combinations of others
    actions_ : sparse array or ndarray (a, n_actions), the weights of all actions
    points_ : ndarray (a, d), the rows they are on, in the units of X
    objective_ : float, what training maximised, of all standardised rows; with ``batch_rows`` an
        estimate from that many

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.CaGP(n_actions=20).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "cagp"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0)
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "n_actions": (chosen("actions", "sparse", *DENSE),),
        "support": (among("actions", "sparse"),),
        "order": (among("actions", "sparse"),),
        "batch_rows": (
            among("actions", "sparse"),
            among("loss", "elbo"),
            among("optimizer", "adam", None),
        ),
        "action_tol": (among("actions", "cg"),),
        "refreshes": (among("actions", "cg", "eigen"), TRAINED),
    }

    n_actions: int = 512
    actions: Literal["sparse", "cg", "random", "eigen"] | ArrayLike = "sparse"
    support: int | None = None
    order: str | Sequence[str] | None = "auto"
    loss: LossName = "elbo"
    batch_rows: int | None = None
    action_tol: float = 1e-6
    refreshes: int = 2
    learning_rate: float = 0.1

    # -- what is learned ---------------------------------------------------------------------

    @property
    def n_actions_(self) -> int:
        """Number of actions that are neither zero nor combinations of others."""
        return len(self._one.state.columns)

    @property
    def actions_(self) -> Any:
        """Weights (a, n_actions): a sparse array if each action has points of its own."""
        S = self._supports().weights()
        if S.owner is None:
            return S.values
        places = np.arange(len(S)), S.owner
        return sp.csc_array((S.values, places), shape=(len(S), S.count))

    @property
    def points_(self) -> np.ndarray:
        """Points (a, d) that actions are on, in the units of X, missing values included."""
        return self._supports().whole()[0]

    def _supports(self) -> ActionPoints:
        kept = self._one.rows
        assert isinstance(kept, ActionPoints)
        return kept

    # -- prediction --------------------------------------------------------------------------

    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        *,
        return_computational: Literal[True],
        quantiles: Sequence[float] | None = ...,
        **beside: Unpack[OfRows],
    ) -> tuple[np.ndarray, ...]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[False] = ...,
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        return_computational: Literal[False] = ...,
        *,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> Kind: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[True],
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        return_computational: Literal[False] = ...,
        *,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> tuple[Kind, Kind]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[False] = ...,
        *,
        return_cov: Literal[True],
        include_noise: bool = ...,
        return_computational: Literal[False] = ...,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        return_computational: Literal[False] = ...,
        *,
        quantiles: Sequence[float],
        **beside: Unpack[OfRows],
    ) -> tuple[Kind, ...]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        return_computational: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        **beside: Unpack[OfRows],
    ) -> Any: ...
    @overload
    def predict(
        self,
        X: Stored,
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        return_computational: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        **beside: Unpack[OfRows],
    ) -> Any: ...
    @of_nodes
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
        return_computational: bool = False,
        *,
        y_variance: Any = None,
        quantiles: Sequence[float] | None = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
    ) -> Any:
        """Return the posterior mean, and on request its spread and the spread's computational part.

        Parameters
        ----------
        X, return_std, return_cov, include_noise, y_variance, quantiles, trials, exposure, offset
            As for every estimator.
        return_computational : bool
            Also return the standard deviation of the computational part, which more actions would
            remove: its square is the variance of f less that of the exact GP given all targets.
            For rows in memory, and for actions on all rows; computed by conjugate gradients, of
            which a step costs n² kernel entries.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov, quantiles, computational : if asked for

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> model = daskgp.CaGP(n_actions=8, max_iter=3, progress=False).fit(X, np.sin(6 * X[:, 0]))
        >>> mean, std, part = model.predict(X, return_std=True, return_computational=True)
        >>> bool((part <= std + 1e-9).all())
        True
        """
        self._check_fitted()
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        X, columns = observed.named(self.solved_, X, columns)
        more = {"y_variance": y_variance, "quantiles": quantiles, **columns}
        posterior = super().predict(X, return_std, return_cov, include_noise, **more)
        if not return_computational:
            return posterior
        several = posterior if isinstance(posterior, tuple) else (posterior,)
        return *several, self._computational(X)

    def _computational(self, X: Any) -> np.ndarray:
        """Return the standard deviation of the computational part at rows in memory."""
        self.solved_.refuse_separate("return_computational")
        kept, posterior = self._supports(), self._one
        posterior.refuse_transformed("the computational part", "leave return_computational out")
        if len(kept.rows) < self.n_rows_:
            raise SettingError(
                f"support={self.support} keeps {len(kept.rows)} of {self.n_rows_} training rows: "
                "the computational part needs all; fit with support=None"
            )
        inputs = prediction.in_memory(posterior, X)
        scaled = posterior.scaled(inputs)
        usable = np.flatnonzero(scaling.usable_rows(scaled))
        executor = Executor.current(self.progress, posterior.device)
        spans = partition.blocks(len(kept.rows), kept.rows.chunks, self._read_rows())
        units, scale = partition.alone(tuple(spans)), posterior.scaling
        # the columns are weights of actions, which are not read; errors are in units of y
        columns = kept.rows.n_targets
        inputs_alone = dataclasses.replace(
            scale.of_inputs(columns), y_scale=np.repeat(scale.y_scale[:1], columns)
        )
        stage = rounds.Rounds(kept.rows, units, inputs_alone, executor, device=posterior.device)
        pairs = paired(stage, kept.rows, self.n_rows_, kept.count)
        variance = np.full(len(scaled), np.nan)
        step = max(1, min(COLUMNS, COLUMN_BYTES // (8 * len(kept.rows))))
        for rows in np.split(usable, range(step, len(usable), step)):
            variance[rows] = computational.variance(pairs, kept, posterior, scaled[rows])
        spread: np.ndarray = np.sqrt(variance)[:, None] * posterior.unit
        return spread[:, 0] if posterior.vector_target else spread

    def log_marginal_likelihood(self) -> float:
        """Return the bound on the log evidence of the training targets in their own units.

        With ``batch_rows`` it is an estimate from that many rows, which may exceed the evidence;
        with ``loss="projected"`` it is the log evidence of the combinations alone.
        """
        if self.loss == "elbo":
            return super().log_marginal_likelihood()
        self._check_fitted()
        self.solved_.refuse_transformed("the evidence of combinations", "take loss='elbo'")
        assert self.objective_ is not None
        units = np.log(self._one.scaling.y_scale).sum()
        return self.objective_ - self.n_actions_ * float(units)

    # -- settings ----------------------------------------------------------------------------

    def _model(self) -> Any:
        return ComputationAware(self.loss)

    @property
    def _sparse(self) -> bool:
        return isinstance(self.actions, str) and self.actions == "sparse"

    @property
    def _given(self) -> np.ndarray | None:
        """Actions (n, t) that the user set; None if they are named."""
        if isinstance(self.actions, str):
            choice("actions", self.actions, ("sparse", *DENSE))
            return None
        known = ", ".join(map(repr, ("sparse", *DENSE)))
        try:
            actions = np.asarray(self.actions, np.float64)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"actions of type {type(self.actions).__name__} are not numbers: give a NumPy "
                f"array (n, n_actions), or one of {known}"
            ) from error
        if actions.ndim != 2 or not actions.shape[1] or not np.isfinite(actions).all():
            raise SettingError(
                f"actions of shape {actions.shape}: give finite numbers (n, n_actions), or one of "
                f"{known}"
            )
        return actions

    @property
    def _inputs(self) -> Inputs:
        actions, number = self._given, self.n_actions
        number = whole("n_actions", number, 1) if actions is None else actions.shape[1]
        usual = number == requirements.defaults(type(self))["n_actions"]
        usual &= actions is None and self.support is None
        spare = int(isinstance(self.actions, str) and self.actions == "eigen")
        return Inputs(number, "actions", self._sparse, usual, spare)

    def _check_own(self) -> None:
        positive("action_tol", self.action_tol)
        whole("refreshes", self.refreshes, 1)
        if self.support is not None:
            whole("support", self.support, 1)
        if self.batch_rows is not None:
            whole("batch_rows", self.batch_rows, 1)
            if self.support is None:
                raise SettingError(
                    f"batch_rows={self.batch_rows} saves nothing if all rows are points of "
                    "actions, because each step needs their kernel matrix: set support=, or "
                    "leave batch_rows out"
                )

    def _arrangement(self) -> AsStored:
        if not self._sparse or self.support is not None or self.order is None:
            return AsStored(self.block_rows, keeps_rows=True)
        return Sorted(self.block_rows, True, self.order, self.random_state)

    def _trainer(self) -> OfActions:
        given = self._given
        return OfActions(
            str(self.actions) if given is None else "given",
            given,
            self.support,
            self.order,
            self.batch_rows,
            self.action_tol,
            self.refreshes,
        )
