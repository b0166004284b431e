"""Base of the estimators that are trained by stochastic variational inference."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from daskgp.checks import choice, share, shown, whole
from daskgp.data.rows import Beside, named_beside
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Needs, Requirements, among, given
from daskgp.estimators.settings import JITTER, check_settings
from daskgp.fit.arrange import Batches
from daskgp.fit.by_batches import AVERAGE_FROM, MANY, ByBatches, Form, Left
from daskgp.fit.fitted import Fit
from daskgp.fit.inputs import Inputs
from daskgp.fit.recipe import Recipe, Traits
from daskgp.models.variational.decoupled import Decoupled
from daskgp.typing import LikelihoodName, OptimizerName
from daskgp.update import streaming

logger: logging.Logger = logging.getLogger("daskgp")

Chosen = Literal["greedy", "kmeans", "random", "stream"]
STREAM = "stream"
"""Setting for inducing inputs that come from batches, [DGP] Algorithm 1."""
STEPS = (
    "learning_rate",
    "mean_learning_rate",
    "batch_rows",
    "n_added",
    "train_points",
    "optimizer",
)
"""Settings of the steps to come, which may change from one call of ``partial_fit`` to the next."""


@dataclass(eq=False, repr=False, kw_only=True)
class VariationalGP(GaussianProcess):
    """Base of ``DecoupledGP`` and ``SVGP``, which learn from mini-batches.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default ``Matern32(ard=True)``; lengthscales that are not given start at median distances.
    batch_rows : int, optional
        Rows per step; default 1,024 or all.
    likelihood : str
        Likelihood of y given f: "gaussian" or "student-t" noise; classes 0 and 1, "bernoulli" with
        the probit link or "bernoulli-logit"; counts with the log link, "poisson" or
        "negative-binomial"; positive y, "gamma" or "lognormal"; "beta" for shares between 0 and 1;
        "ordinal" for classes 0, 1, 2, ... that have an order.  Targets of the first two alone are
        standardised; for others ``mean`` is that of the latent f.  Methods of Gaussian noise, such
        as ``VecchiaGP`` and ``SGPR``, take likelihoods too, by Gaussian sites.
    n_added : int
        Functions added per step until the bases are full.
    train_points : bool
        Whether training moves the functions of the covariance, with their lengthscales if they have
        any.
    n_subset : int
        Rows for "subset"; an evaluation costs operations of order n_subset³.
    noise_variance : float
        Initial noise variance of a Gaussian likelihood, squared scale of a Student-t, in units of
        the standardised y.
    optimizer : {"adam", None}
        None keeps hyper-parameters as they are; q is learned all the same.
    learning_rate : float
        Learning rate of Adam at the first step; at step t it is divided by 1 + 0.1 sqrt(t).
    average : bool
        Whether the posterior is that of parameters averaged over the steps from the 200th on, the
        last fifth prevailing, which removes most of the mini-batch noise.  The steps themselves
        are the same.
    max_iter : int
        Number of steps.
    validation : float, optional
        Share of rows that are held out, at most 10,000 rows; training stops when ``patience``
        scores of them, one every ``check_every`` steps, brought no gain, and takes the best.
    patience, check_every : int
        Scores of held-out rows without a gain, and steps from one to the next.
    gradients : {"workers", "client"}
        On a Dask cluster: workers compute gradients of their parts of a batch, or they read rows
        ahead for the client, which trains.

    Attributes
    ----------
    noise_variance_, likelihood_ : learned, in units of the standardised y
    objective_ : float, the evidence lower bound of all standardised rows, estimated by the mean
        over the last tenth of the steps, at most 100; ``log_marginal_likelihood()`` is the same in
        the units of y
    history_ : list of dict, one per step; ``objective`` is the estimate of its batch
    """

    inducing: Chosen | ArrayLike = "greedy"
    batch_rows: int | None = None
    likelihood: LikelihoodName | str = "gaussian"
    n_added: int = 128
    natural: float | Literal["auto"] | None = "auto"
    n_columns: int | None = field(default=None, init=False)
    train_points: bool = True
    hyperparameters: Literal["auto", "subset", "bound"] = "auto"
    n_subset: int = 2_048
    optimizer: OptimizerName | None = "adam"
    learning_rate: float = 0.02
    average: bool = True
    max_iter: int = 2_000
    validation: float | None = None
    patience: int = 10
    check_every: int = 50
    gradients: Literal["workers", "client"] = "workers"

    requirements: ClassVar[Requirements] = {
        "target_transform": (among("likelihood", "gaussian"),),
        "calibrate": (among("likelihood", "gaussian"),),
        "hyperparameters": (TRAINED,),
        "prior": (TRAINED,),
        "n_subset": (
            TRAINED,
            Needs(
                "hyperparameters",
                lambda gp: gp._form.hyperparameters == "subset",
                "choose hyperparameters='subset'",
            ),
        ),
        "noise_variance": (among("likelihood", "gaussian", "student-t"),),
        "patience": (given("validation"),),
        "check_every": (given("validation"),),
        "average": (
            Needs(
                "max_iter",
                lambda gp: gp.max_iter > AVERAGE_FROM,
                f"choose max_iter greater than {AVERAGE_FROM}",
            ),
        ),
    }
    tol: float = field(default=1.0, init=False)
    traits: ClassVar[Traits] = Traits(ard_reach=100.0, searches_start=False, keeps_seed=True)

    # -- form ------------------------------------------------------------------------------------

    @property
    def _form(self) -> Form:
        """Form in which the posterior is written and learned."""
        return Form(self.natural, self.hyperparameters)

    @property
    def _learns(self) -> bool:
        """True if hyper-parameters follow the bound while ``fit`` goes on."""
        return self.optimizer is not None and self._form.hyperparameters != "subset"

    def _n_mean(self) -> int:
        """Return the number of functions of the mean beyond those of the covariance."""
        return self._form.beyond(self._inputs.count)

    # -- settings --------------------------------------------------------------------------------

    def _model(self) -> Any:
        form = self._form
        return Decoupled(
            form.parametrization,
            form.basis,
            self.likelihood,
            form.natural is not None,
            not self._learns and not form.moves_mean,
            JITTER[self.dtype],
            self._n_mean(),
            self._arrangement().size(MANY),
        )

    def _inducing_inputs(self, number: str, label: str) -> Inputs:
        """Return the inputs of the covariance's functions, whose number is that setting."""
        setting = self.inducing
        if isinstance(setting, str):
            choice("inducing", setting, ("greedy", "kmeans", "random", STREAM))
            if setting == STREAM:
                return Inputs(whole(number, getattr(self, number), 1), label)
        return self._chosen_inputs("inducing", number, label)

    def _arrangement(self) -> Batches:
        batch = self.batch_rows
        batch = None if batch is None else whole("batch_rows", batch, 1)
        return Batches(self.block_rows, batch_rows=batch, share=self.validation)

    def _trainer(self) -> ByBatches:
        return ByBatches(
            self._form,
            self.likelihood,
            self.n_added,
            self.n_columns,
            self.n_subset,
            self.train_points,
            self.average,
            self.validation,
            self.patience,
            self.check_every,
            self.gradients,
        )

    def _check_own(self) -> None:
        form = self._form
        whole("n_added", self.n_added, 1)
        whole("n_subset", self.n_subset, 1)
        if form.hyperparameters == "subset" and self.likelihood != "gaussian":
            raise SettingError(
                f"hyperparameters='subset' takes the evidence of a Gaussian likelihood, not of "
                f"{shown(self.likelihood)}: choose 'bound'"
            )
        whole("patience", self.patience, 1)
        whole("check_every", self.check_every, 1)
        if form.natural is not None:
            share("natural", form.natural)
        if self.n_columns is not None:
            whole("n_columns", self.n_columns, 1)
        if self.validation is not None:
            share("validation", self.validation)
            if self.validation > 0.5:
                raise SettingError(
                    f"validation={shown(self.validation)}: hold out at most half of the rows, 0.5"
                )
            if self.check_every > self.max_iter:
                raise SettingError(
                    f"check_every={self.check_every} exceeds max_iter={self.max_iter}: held-out "
                    "rows would never be scored; choose fewer, or leave validation out"
                )
        if self.optimizer == "l-bfgs":
            raise SettingError(
                "optimizer='l-bfgs' needs all rows at every step: choose 'adam', or None to keep "
                "the hyper-parameters as they are"
            )

    # -- what is learned -------------------------------------------------------------------------

    def _in_units(self, inputs: np.ndarray) -> np.ndarray:
        return self._one.columns.places(self._one.scaling.places(inputs))

    # -- prediction ------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
    ) -> Self:
        """Continue learning from more rows, in one pass over them.

        The first call sets units, hyper-parameters to start from and inducing inputs as ``fit``
        would from these rows; bases grow from rows of later calls until they are full.  The bound
        is that of the rows seen so far.  Hyper-parameters follow it unless ``optimizer`` is None,
        or ``fit`` has taken them from a subset.  Settings of how ``fit`` ends, such as ``max_iter``
        and ``validation``, do not matter here.  Between calls ``learning_rate``,
        ``mean_learning_rate``, ``batch_rows``, ``n_added``, ``train_points`` and ``optimizer`` may
        be set anew; other settings have to be those of the first call.  A model read from a store
        has lost the moments of Adam, so its first steps are as long as those of a new model.

        Parameters
        ----------
        X, y, y_variance, sample_weight, trials, exposure, offset, lower, upper : array-like
            As for ``fit``; they need not be kept.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(400, 1))
        >>> model = daskgp.SVGP(n_inducing=10, progress=False)
        >>> for start in range(0, 400, 100):
        ...     rows = slice(start, start + 100)
        ...     _ = model.partial_fit(X[rows], np.sin(6 * X[rows, 0]))
        >>> model.predict(X[:2]).shape
        (2,)
        """
        if hasattr(self, "solved_"):
            self._check_fitted(*STEPS)
        check_settings(self, besides=("n_added", "average"))
        before: Fit | None = vars(self).get("_fitted")
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        given = X, y, beside
        return self._learn(partial(streaming.learned, self.recipe(), before, *given))

    def _more(self, recipe: Recipe, fit: Fit, X: Any, y: Any, beside: Beside) -> Fit:
        return streaming.learned(recipe, fit, X, y, beside)

    def _notes(self) -> dict[str, Any]:
        return {"streamed": self._fitted.left.streamed}

    def _take_notes(self, notes: Mapping[str, Any]) -> None:
        left = Left(streamed=notes.get("streamed") is True)
        self._fitted = dataclasses.replace(self._fitted, left=left)
