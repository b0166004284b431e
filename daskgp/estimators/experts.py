"""Experts: many small Gaussian processes, and the combination of their predictions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import dask
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from daskgp import data, train
from daskgp.checks import choice, share, whole
from daskgp.data import partition, visibility
from daskgp.data.blocks import neighbours, ordering, sampling
from daskgp.data.blocks.layout import read_layout
from daskgp.data.blocks.prepare import arrange
from daskgp.data.partition import Span, Unit
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import JITTER
from daskgp.estimators.updating import Grown
from daskgp.fit import hyperparameters, rounds, timing
from daskgp.fit.effects import TRAINED, WAYS, Effects, Needs, among, chosen
from daskgp.fit.experts import Objectives
from daskgp.fit.inputs import Inputs
from daskgp.fit.inputs import chosen as chosen_inputs
from daskgp.fit.plan import Knob, Workload, rows_bytes, spilled_bytes
from daskgp.fit.scratch import ordered
from daskgp.models import scaling
from daskgp.models.experts.aggregation import Aggregation
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.values import Theta
from daskgp.predict import members
from daskgp.predict.members import Members
from daskgp.predict.posterior import in_users_units
from daskgp.train import federated
from daskgp.typing import OptimizerName

logger = logging.getLogger("daskgp")

EXACT_PROBE_ROWS = 2_048
"""Maximum rows of an exact expert in a short run."""
EXACT_ROWS, SPARSE_EXPERTS, SPARSE_ROWS = 1_000, 16, 64
"""By default: rows of an exact expert, most sparse experts, and least rows of a sparse expert."""
ROUNDS_TOL = 1e-4
ADMM_STEPS, OTHER_STEPS = 20, 5
"""Steps of Adam per round; ADMM's experts must get close to the optimum of their penalised loss."""
WEIGHTS, VARIANCES = ("projection", "paper"), ("linear", "paper")
COMMITTEES = ("grbcm", "rbcm", "bcm", "gpoe", "poe")
OPTIMAL, SPARSE = among("aggregation", "optimal"), among("expert", "sparse")
SHARED = f"give store= {visibility.HERE}"
TrainingName = Literal["fact", "fedavg", "fedprox", "admm", "pxadmm"]


@dataclass(eq=False, repr=False, kw_only=True)
class ExpertsGP(GaussianProcess):
    """Distributed experts: a Gaussian process for each part of the rows, and their combination.

    Every expert sees its own rows alone; hyper-parameters are shared.  Predictions combine the
    experts' by one of the rules of the literature or by the weights of least penalised risk
    ([OPT]), which take into account how the experts agree.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order (1/2, 3/2 or 5/2) with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Numbers in it are
        in the units of the data, and where training starts; those that are not given start where
        the evidence of the subset is largest.
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
    noise_variance, mean, standardize, optimizer, max_iter, block_rows, dtype, device, store, \
random_state, progress, geographic, fill_values, fixed, limits, prior, target_transform, calibrate
        As in ``SGPR``; ``optimizer`` is that of FACT, None keeps the hyper-parameters, and
        ``max_iter`` counts rounds otherwise.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data
    noise_variance_ : learned noise variance, in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    n_experts_ : int
    weights_ : ndarray (M,), of ``aggregation="optimal"``
    inducing_ : ndarray (m, d), in the units of X, of sparse experts
    objective_ : float, the sum of the experts' objectives on their standardised rows
    history_ : list of dict, one per iteration or round
    n_features_in_, feature_names_in_, n_rows_

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
    effects: ClassVar[Effects] = {
        **GaussianProcess.effects,
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
        model = self.solved_.method
        assert isinstance(model, SparseExperts | ExactExperts)
        return model.n_experts

    @property
    def weights_(self) -> np.ndarray:
        """Optimal weights (M,) of the experts; AttributeError for other aggregations."""
        check_is_fitted(self, "solved_")
        beta: np.ndarray = self.solved_.state.beta
        if not len(beta):
            aggregation = vars(self.solved_.method)["aggregation"]
            raise AttributeError(f"aggregation={aggregation!r} has no weights_")
        return beta

    @property
    def inducing_(self) -> np.ndarray:
        """Inducing inputs (m, d) in the units of X; AttributeError for exact experts."""
        if self.solved_.theta.inputs is None:
            raise AttributeError("exact experts have no inducing_ inputs")
        return in_users_units(self.solved_)

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
        return chosen_inputs(self, "inducing", "n_inducing", trained=self.train_inducing)

    def _number(self, n: int) -> int:
        """Return the number of experts for n rows."""
        if self.n_experts is not None:
            return whole("n_experts", self.n_experts, 1)
        if self._exact:
            return max(1, -(-n // EXACT_ROWS))
        return min(SPARSE_EXPERTS, max(1, n // max(SPARSE_ROWS, self._inputs.count)))

    def _check(self, rows: data.Rows, n: int | None) -> None:
        if self.aggregation == "grbcm" and self.partition == "block":
            raise SettingError(
                "aggregation='grbcm' needs a first expert whose rows are spread over all data: "
                "choose partition='random'"
            )
        self._check_weights()
        federated.check(self._federated("fedavg" if self.training == "fact" else self.training))
        layout = read_layout(rows.X)
        if self.partition == "block" and (layout is None or layout.order.kind == ordering.RANDOM):
            self._check_order(rows, nearby=True)
        super()._check(rows, n)
        if n is not None:
            self._check_number(n)

    def _check_weights(self) -> None:
        """Raise SettingError for settings of optimal weights out of range."""
        choice("weights", self.weights, WEIGHTS)
        choice("variance", self.variance, VARIANCES)
        share("ridge", self.ridge, zero=True)
        if self.shrinkage is not None:
            share("shrinkage", self.shrinkage, zero=True)
        if self.central is not None:
            share("central", self.central)

    # -- rows --------------------------------------------------------------------------------

    def _check_number(self, n: int) -> None:
        """Raise InputError for more experts than n rows, or a share of these that is none."""
        count = self._number(n)
        if count > n:
            raise InputError(f"n_experts={count} for {n} usable rows: choose at most {n}")
        if self.central is not None and self.central * n < 1:
            raise InputError(
                f"central={self.central} of {n} usable rows is less than one row: choose a larger "
                "share"
            )

    def _part_rows(self, n: int, count: int) -> int:
        """Return how many rows of an expert a task holds at a time."""
        most = -(-n // count)
        if self._exact:
            return max(most, 1)
        return min(self.block_rows or partition.default_block_rows(n), max(most, 1))

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        n = len(rows)
        count = self._number(n) if value is None else value
        largest, each = min(self._part_rows(n, count), n), -(-n // count)
        units, fewer = (
            f"experts of up to {each} rows",
            "choose another aggregation or fewer inducing inputs",
        )
        planned = self._planning(rows)
        return Workload(
            self._model().of_units(count),
            self._kernel(rows),
            rows,
            [Span(0, largest)] * count,
            self._inputs.count,
            Knob("n_experts", count, units, planned, finer=True, otherwise=fewer),
            partial(self._probes, n, count),
            np.dtype(self.dtype).itemsize,
            per_task=partition.per_task(count, each, rounds.EXPERT_TASKS),
            written=spilled_bytes(rows) + (rows_bytes(rows) if self._reorders(rows) else 0),
            iterations=None if self.optimizer is None else self.max_iter,
            counted="evaluations" if self.training == "fact" else "iteration",
        )

    def _reorders(self, rows: data.Rows) -> bool:
        """Return True if a fit writes the rows in the order of the experts."""
        if self.partition == "chunks" or read_layout(rows.X) is not None:
            return False
        return self.partition != "random" or not isinstance(rows.X, np.ndarray)

    def _probes(self, n: int, count: int, threads: int) -> list[timing.Probe]:
        each = -(-n // count)
        if self._exact:
            each = min(each, EXACT_PROBE_ROWS)
        part = self._part_rows(n, count)
        settings = {"partition": "random", "order": "auto", "block_rows": part}
        return [
            timing.Probe(settings | {"n_experts": k}, max(k * each, self._inputs.count))
            for k in sorted({min(count, threads), min(count, 3 * threads)})
        ]

    def _arranged(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> rounds.Rounds:
        if self.aggregation == "optimal" and self.partition == "block":
            logger.warning(
                "optimal weights are one number for each expert, which does not suit experts that "
                "know one region each (partition='block'): choose aggregation='npae' or 'bcm'"
            )
        rows = self._placed(stage, sums, keep)
        count = self._number(int(sums.rows))
        return self._split(stage, rows, partition.alone(partition.even(0, len(rows), count)))

    def _split(
        self, stage: rounds.Rounds, rows: data.Rows, units: tuple[Unit, ...]
    ) -> rounds.Rounds:
        """Return the rounds over rows in the order of the experts, which are the units."""
        return dataclasses.replace(
            stage,
            rows=rows,
            units=units,
            read_rows=None if self._exact else self._part_rows(len(rows), len(units)),
            least_tasks=rounds.EXPERT_TASKS,
            seed=self._seed(),
        )

    def _why_no_change(self, forget: bool) -> str | None:
        if self.partition == "random":
            return None
        return (
            f"with partition={self.partition!r} other rows have other experts: fit all rows again, "
            "fit(..., start=model) or daskgp update --retrain, or fit with partition='random'"
        )

    def _grown(self, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Grown:
        """Return more rows, a random share of them for each expert, by turns one more."""
        keep, count = ordered(spill), self.n_experts_
        rows = self._placed(stage, sums, keep)
        first = self.n_rows_ % count
        parts = partition.even(0, len(rows), count)
        units = partition.alone([*parts[count - first :], *parts[: count - first]])
        return Grown(self._split(stage, rows, units))

    def _placed(self, stage: rounds.Rounds, sums: scaling.Sums, keep: str) -> data.Rows:
        """Return the rows in the order in which experts take them."""
        rows, layout = stage.rows, read_layout(stage.rows.X)
        shuffled = layout is not None and layout.order.kind == ordering.RANDOM
        as_it_lies = self.partition == "chunks" or (
            layout is not None and shuffled == (self.partition == "random")
        )
        if as_it_lies:
            if isinstance(rows.X, np.ndarray):  # the caller may change them after the fit
                copies = {name: a.copy() for name, a in rows.arrays.items()}
                return rows.with_arrays(copies) if self._exact else rows
            return self._kept_as_they_lie(stage, keep)
        if isinstance(rows.X, np.ndarray) and self.partition == "random":
            X, y = rows.raw(0, len(rows))
            keys = sampling.Keys.of_order(self._seed(), rows, sums)
            line = np.argsort(keys.of(0, X, y[:, : rows.n_targets]), kind="stable")
            line = line[scaling.complete_rows(X, y)[line]]
            chosen = {name: a[line] for name, a in rows.arrays.items()}
            return rows.with_arrays(chosen, chunks=None)
        order = ordering.RANDOM if self.partition == "random" else self.order
        units = scaling.scales(sums, rows.n_features, self._tied(rows))
        source = str(dask.base.tokenize(*sums.parts, units, order, self.random_state))
        if not neighbours.made_from(keep, source):  # else they are those of the resumed run
            data.remove(keep)
            settings = order, None, units, self._seed(), stage.executor, sums
            arrange(stage.rows, keep, *settings, SHARED)
            neighbours.mark(keep, source)
        ordered, _ = neighbours.open_blocks(keep)
        if not isinstance(rows.X, np.ndarray):
            return ordered
        here = ordered.held_here()
        data.remove(keep)
        return here

    def _kept_as_they_lie(self, stage: rounds.Rounds, keep: str) -> data.Rows:
        """Return rows of a store; those that predictions read back outlive the fit unchanged."""
        rows = neighbours.held(stage.rows)
        if not self._exact or not (rows.passing or rows.identity is None):
            return rows
        rows = members.keep(stage.rows, keep, len(stage.rows))
        visibility.check(stage.executor, rows.X, "the experts' rows", SHARED)
        return rows

    # -- stages ------------------------------------------------------------------------------

    def _train(self, stage: rounds.Rounds, theta: Theta, run: hyperparameters.Run) -> train.Trained:
        method, moved = self._model().of_units(stage.n_units), self._inputs.trained
        experts = Objectives(method, stage, theta, moved)
        if self.training == "fact":
            values = int(experts.counts.sum())
            return hyperparameters.maximise(
                self, partial(train.fact, experts), run, values, self._tol()
            )
        settings = self._federated(self.training)
        trained = train.train_experts(
            experts, run.start, run.bounds, settings, run.describe, run.tape
        )
        return train.Trained(*trained)

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
            self._seed(),
            self.progress,
        )

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> Members | None:
        if not self._exact:
            return None
        edges = [span.start for span in stage.spans] + [len(stage.rows)]
        return Members(stage.rows, np.array(edges, np.int64))
