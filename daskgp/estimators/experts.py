"""Experts: many small Gaussian processes, and the combination of their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from daskgp import train
from daskgp.checks import share, whole
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Needs, Requirements, among, chosen
from daskgp.estimators.settings import JITTER
from daskgp.fit.arrange import Parts
from daskgp.fit.arrange.rewriting import seed_of
from daskgp.fit.experts import OfExperts
from daskgp.fit.inputs import WAYS, Inputs
from daskgp.models.experts.aggregation import Aggregation
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.posterior.posterior import in_users_units
from daskgp.train import federated
from daskgp.typing import OptimizerName

ROUNDS_TOL = 1e-4
ADMM_STEPS, OTHER_STEPS = 20, 5
"""Steps of Adam per round; ADMM's experts must get close to the optimum of their penalised loss."""
COMMITTEES = ("grbcm", "rbcm", "bcm", "gpoe", "poe")
OPTIMAL, SPARSE = among("aggregation", "optimal"), among("expert", "sparse")
TrainingName = Literal["fact", "fedavg", "fedprox", "admm", "pxadmm"]


@dataclass(eq=False, repr=False, kw_only=True)
class ExpertsGP(GaussianProcess):
    """Distributed experts: a Gaussian process for each part of the rows, and their combination.

    Every expert sees its own rows alone; hyper-parameters are shared.  Predictions combine the
    experts' by one of the rules of the literature or by the weights of least penalised risk
    ([OPT]), which take into account how the experts agree.

    Parameters
    ----------
    expert : {"sparse", "exact"}
        Sparse experts share their inducing inputs: with optimal weights a prediction costs no
        more than that of one sparse GP.  Exact experts are exact on their own rows, which
        predictions read back.
    n_experts : int, optional
        Number M of experts.  Default 16 sparse ones, fewer where they would have fewer rows than
        inducing inputs, or exact ones of about 1,000 rows.
    partition : {"random", "block", "chunks"}
        Rows of an expert: drawn at random; near one another in ``order``; or one after another in
        their original order.  A store that ``daskgp.prepare`` made in that kind of order is read
        as it is.
    order : str or sequence of str
        The order of ``partition="block"``, as for ``daskgp.prepare``.
    aggregation : {"optimal", "npae", "grbcm", "rbcm", "bcm", "gpoe", "poe"}
        How predictions are combined: optimal weights, nested pointwise aggregation (best and most
        expensive), the generalised robust, robust and plain Bayesian committee machines, and
        generalised and plain products of experts.  Optimal weights are the same everywhere:
        exact experts, above all those of ``partition="block"``, are better served by "npae" at
        the same cost, or by "grbcm".
    weights : {"projection", "paper"}
        Optimal weights: from the exact inner products with the targets over all rows, or as the
        paper prints them.
    variance : {"linear", "paper"}
        Variance with optimal weights: the exact error variance of the weighted sum, or the paper's
        formula, which is not calibrated.
    central : float, optional
        Share of the rows, greater than 0 and at most 1, that inner products of exact experts are
        summed over: unbiased and cheaper.  With ``weights="paper"`` the share that replaces one
        row of each expert.
    shrinkage : float, optional
        Share, from 0 to 1, of the model's own expectation in the risk that optimal weights of
        sparse experts minimise: a little keeps experts that predict nearly alike from cancelling
        one another, which makes variances large.  Default 0.01; 0 for the risk of the data alone.
    ridge : float
        Added to the system of the weights, relative to its mean diagonal; it shares the weight
        among experts that predict alike.
    noise_in_experts : bool
        Whether committees combine predictions of noisy observations, as printed in [OPT] eq. 14,
        rather than of f.  They then give the variance of observations only.
    n_inducing, inducing, train_inducing
        As in ``SGPR``, for sparse experts.
    training : {"fact", "fedavg", "fedprox", "admm", "pxadmm"}
        How hyper-parameters are learned: on the sum of the experts' objectives by ``optimizer``, or
        in rounds in which every expert makes steps of its own.
    local_steps : int, optional
        Steps of Adam per expert and round; default 20 for ADMM, 5 otherwise.
    learning_rate : float
        Learning rate of these steps, or of FACT with ``optimizer="adam"``.
    sampling_rate : float
        Share of the experts that take part in a round of FedAvg or FedProx.
    rho, mu, lipschitz : float
        Penalty of the ADMMs, FedProx's proximal weight, and the curvature that pxADMM allows for;
        objectives are per target value.
    tol : float, optional
        Tolerance of FACT as in ``SGPR``, default 0.1 nats.  FedAvg and FedProx stop when the
        objective per value, averaged over ten rounds, moves by less, and the ADMMs when their
        residuals are below it; default 1e-4.
    optimizer : {"auto", "trust-region", "l-bfgs", "adam"} or None
        Optimizer of FACT, as in ``SGPR``; None keeps the hyper-parameters.
    max_iter : int
        Maximum number of iterations of FACT, or of rounds.

    Attributes
    ----------
    n_experts_ : int
    weights_ : ndarray (M,), of ``aggregation="optimal"``
    inducing_ : ndarray (m, d), in the units of X, of sparse experts
    objective_ : float, the sum of the experts' objectives on their standardised rows
    history_ : list of dict, one per iteration or round

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.ExpertsGP(n_experts=4, n_inducing=20).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "experts"
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "order": (among("partition", "block"),),
        "weights": (OPTIMAL,),
        "variance": (OPTIMAL,),
        "central": (
            OPTIMAL,
            Needs(
                "weights",
                lambda gp: gp.expert == "exact" or gp.weights == "paper",
                "choose expert='exact' or weights='paper'",
            ),
        ),
        "shrinkage": (OPTIMAL, SPARSE, among("weights", "projection")),
        "ridge": (OPTIMAL,),
        "noise_in_experts": (among("aggregation", *COMMITTEES),),
        "n_inducing": (SPARSE, chosen("inducing", *WAYS)),
        "inducing": (SPARSE,),
        "train_inducing": (SPARSE, TRAINED),
        "training": (TRAINED,),
        "prior": (TRAINED, among("training", "fact")),
        "optimizer": (
            Needs(
                "training",
                lambda gp: gp.training == "fact" or gp.optimizer is None,
                "choose training='fact'",
            ),
        ),
        "learning_rate": (
            TRAINED,
            among("training", "fact", "fedavg", "fedprox", "admm"),
            Needs(
                "optimizer",
                lambda gp: gp.training != "fact" or gp.optimizer == "adam",
                "choose optimizer='adam', or a training in rounds",
            ),
        ),
        "local_steps": (TRAINED, among("training", "fedavg", "fedprox", "admm")),
        "sampling_rate": (TRAINED, among("training", "fedavg", "fedprox")),
        "rho": (TRAINED, among("training", "admm", "pxadmm")),
        "mu": (TRAINED, among("training", "fedprox")),
        "lipschitz": (TRAINED, among("training", "pxadmm")),
    }

    expert: Literal["sparse", "exact"] = "sparse"
    n_experts: int | None = None
    partition: Literal["random", "block", "chunks"] = "random"
    order: str | Sequence[str] = "auto"
    aggregation: Aggregation = "optimal"
    weights: Literal["projection", "paper"] = "projection"
    variance: Literal["linear", "paper"] = "linear"
    central: float | None = None
    shrinkage: float | None = None
    ridge: float = 1e-6
    noise_in_experts: bool = False
    n_inducing: int = 512
    inducing: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    train_inducing: bool = False
    training: TrainingName = "fact"
    local_steps: int | None = None
    sampling_rate: float = 1.0
    rho: float = 0.3
    mu: float = 0.3
    lipschitz: float = 5.0
    optimizer: OptimizerName | None = "auto"
    learning_rate: float = 0.05
    tol: float | None = None  # type: ignore[assignment]  # its rounds have one of their own

    @property
    def n_experts_(self) -> int:
        """Number of experts M."""
        model = self._one.method
        assert isinstance(model, SparseExperts | ExactExperts)
        return model.n_experts

    @property
    def weights_(self) -> np.ndarray:
        """Optimal weights (M,) of the experts; AttributeError for other aggregations."""
        beta: np.ndarray = self._one.state.beta
        if not len(beta):
            aggregation = vars(self._one.method)["aggregation"]
            raise AttributeError(
                f"aggregation={aggregation!r} has no weights_: aggregation='optimal' has them"
            )
        return beta

    @property
    def inducing_(self) -> np.ndarray:
        """Inducing inputs (m, d) in the units of X; AttributeError for exact experts."""
        if self._one.theta.inputs is None:
            raise AttributeError("exact experts have no inducing_ inputs: sparse experts have them")
        return in_users_units(self._one)

    # -- settings ----------------------------------------------------------------------------

    @property
    def _exact(self) -> bool:
        return self.expert == "exact"

    def _model(self) -> SparseExperts | ExactExperts:
        settings: dict[str, Any] = {
            "n_experts": 1,
            "aggregation": self.aggregation,
            "weights": self.weights,
            "variance": self.variance,
            "central": None if self.central is None else float(self.central),
            "ridge": float(self.ridge),
            "noise_in_experts": self.noise_in_experts,
        }
        if self._exact:
            return ExactExperts(**settings)
        if self.shrinkage is not None:
            settings["shrinkage"] = float(self.shrinkage)
        return SparseExperts(**settings, jitter=JITTER[self.dtype])

    @property
    def _inputs(self) -> Inputs:
        if self._exact:
            return Inputs()
        return self._chosen_inputs("inducing", "n_inducing", trained=self.train_inducing)

    def _arrangement(self) -> Parts:
        number = self.n_experts
        return Parts(
            None if number is None else whole("n_experts", number, 1),
            self.partition,
            self.order,
            self._exact,
            self._inputs.count,
            self.block_rows,
            self.random_state,
        )

    def _check_own(self) -> None:
        if self.aggregation == "grbcm" and self.partition == "block":
            raise SettingError(
                "aggregation='grbcm' needs a first expert whose rows are spread over all data: "
                "choose partition='random'"
            )
        self._check_weights()
        federated.check(self._federated("fedavg" if self.training == "fact" else self.training))

    def _trainer(self) -> OfExperts:
        rounds = None if self.training == "fact" else self._federated(self.training)
        return OfExperts(rounds, self.central, self.aggregation == "optimal")

    def _check_weights(self) -> None:
        """Raise SettingError for settings of optimal weights out of range."""
        share("ridge", self.ridge, zero=True)
        if self.shrinkage is not None:
            share("shrinkage", self.shrinkage, zero=True)
        if self.central is not None:
            share("central", self.central)

    def _federated(self, method: train.FederatedName) -> train.Federated:
        steps = self.local_steps
        if steps is None:
            steps = ADMM_STEPS if method == "admm" else OTHER_STEPS
        return train.Federated(
            method,
            self.max_iter,
            ROUNDS_TOL if self.tol is None else self.tol,
            steps,
            self.learning_rate,
            self.sampling_rate,
            self.rho,
            self.mu,
            self.lipschitz,
            seed_of(self.random_state),
            self.progress,
        )
