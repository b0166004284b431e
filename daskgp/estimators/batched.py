"""Settings and plans of estimators that learn from mini-batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from distributed.system import MEMORY_LIMIT
from numpy.typing import ArrayLike
from sklearn.base import clone

from daskgp import data, likelihoods
from daskgp.checks import choice, share, shown, whole
from daskgp.data import partition
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import JITTER
from daskgp.fit import plan as planning
from daskgp.fit import refusal, rounds, subset, timing
from daskgp.fit.effects import TRAINED, Effects, Needs, among, given
from daskgp.fit.inputs import ChosenInputs
from daskgp.fit.minibatches import LANE_ROWS, POOL_BYTES
from daskgp.fit.svi import Precondition
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.variational.decoupled import Decoupled
from daskgp.runtime.executor import Executor
from daskgp.typing import LikelihoodName, OptimizerName

PROBE_SUBSET = 256
"""Rows whose evidence a short run maximises: what it finds does not matter."""
BATCH_ROWS = 1_024
MEAN_PACE = 10.0
"""What the mean's weights move by beside other parameters: their coordinates are of size one."""
VALIDATION_ROWS = 10_000
"""Most rows that are held out."""
POWERS = {"noise_variance": 1.0, "scale": 0.5}
"""Of the variance of the targets, by which bounds of a likelihood's parameters grow."""
AVERAGE_FROM = 200
"""Steps before any average: it would lag behind parameters that still go far."""
Chosen = Literal["greedy", "kmeans", "random", "stream"]
STREAM = "stream"
"""Inducing inputs that come from batches, [DGP] Algorithm 1."""


@dataclass(eq=False, repr=False, kw_only=True)
class Batched(GaussianProcess):
    """An estimator that learns from mini-batches, and what a form of it says."""

    inducing: Chosen | ArrayLike = "greedy"
    batch_rows: int | None = None
    likelihood: LikelihoodName = "gaussian"
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

    effects: ClassVar[Effects] = {
        "hyperparameters": (TRAINED,),
        "n_subset": (
            TRAINED,
            Needs(
                "hyperparameters",
                lambda found: found._hyperparameters == "subset",
                "choose hyperparameters='subset'",
            ),
        ),
        "noise_variance": (among("likelihood", "gaussian", "student-t"),),
        "patience": (given("validation"),),
        "check_every": (given("validation"),),
        "average": (
            Needs(
                "max_iter",
                lambda found: found.max_iter > AVERAGE_FROM,
                f"choose max_iter greater than {AVERAGE_FROM}",
            ),
        ),
    }
    tol: float | None = field(default=1.0, init=False)
    searches_start: ClassVar[bool] = False
    ard_reach: ClassVar[float] = 100.0
    _inducing: ClassVar[tuple[str, str]]
    """Names of the settings that choose the covariance's functions, and their number."""

    # -- what a form says ------------------------------------------------------------------------

    @property
    def _form(self) -> Any:
        return "hybrid"

    @property
    def _basis(self) -> str:
        return "kernel"

    @property
    def _precondition(self) -> Precondition:
        return None

    @property
    def _natural(self) -> Any:
        return self.natural

    @property
    def _mean_pace(self) -> float:
        """What the mean's weights move by beside other parameters."""
        return MEAN_PACE

    @property
    def _moves_mean(self) -> bool:
        """Whether the functions of the mean alone move."""
        return False

    @property
    def _hyperparameters(self) -> str:
        return self.hyperparameters

    @property
    def _learns(self) -> bool:
        """Whether hyper-parameters follow the bound while ``fit`` goes on."""
        return self.optimizer is not None and not self._from_subset()

    def _from_subset(self) -> bool:
        """Whether hyper-parameters are those of the evidence of some rows, and kept."""
        return self.optimizer is not None and self._hyperparameters == "subset"

    def _shared(self) -> bool:
        return True

    def _n_mean(self, n: int) -> int:
        """Functions of the mean beyond those of the covariance."""
        return 0

    # -- settings --------------------------------------------------------------------------------

    def _likelihood(self, noise_variance: float | None = None) -> Likelihood:
        found = likelihoods.by_name(self.likelihood)
        if noise_variance is None or found.discrete:
            return found
        powers = [POWERS.get(name, 0.0) for name in found.parameter_names]
        scales = np.array([power * np.log(noise_variance) for power in powers])
        start = np.where(np.array(powers) > 0, scales, found.log_parameters)
        return found.with_log_parameters(start)

    def _model(self) -> Any:
        return Decoupled(
            self._form,
            self._basis,
            self.likelihood,
            self._natural is not None,
            not self._learns and not self._moves_mean,
            JITTER[self.dtype],
            self._n_mean(1 << 62),
            self._batch(1 << 62),
        )

    @property
    def _chosen(self) -> ChosenInputs | None:
        how, number = self._inducing
        given = getattr(self, how)
        if isinstance(given, str):
            choice(how, given, ("greedy", "kmeans", "random", STREAM))
            if given == STREAM:
                return None
        return ChosenInputs(self, how, number, self.inputs_label)

    def _batch(self, n: int) -> int:
        if self.batch_rows is None:
            return min(BATCH_ROWS, n)
        return whole("batch_rows", self.batch_rows, 1)

    def _n_validation(self, n: int) -> int:
        if self.validation is None:
            return 0
        return max(1, min(VALIDATION_ROWS, round(self.validation * n)))

    def _n_inputs(self) -> int:
        number = self._inducing[1]
        chosen = self._chosen
        return whole(number, getattr(self, number), 1) if chosen is None else chosen.count

    def _choose_inputs(
        self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel
    ) -> np.ndarray | None:
        return None if self._chosen is None else self._chosen.choose(stage, sample, kernel)

    def _codes_targets(self) -> bool:
        return self._likelihood().discrete

    def _scaling(self, sums: scaling.Sums, rows: data.Rows) -> scaling.Scaling:
        if not self._codes_targets():
            return super()._scaling(sums, rows)
        tied = self._tied(rows)
        found = scaling.solve(sums, rows.n_features, "zero", self.standardize, tied)
        p = rows.n_targets
        return dataclasses.replace(found, intercept=np.zeros(p), y_scale=np.ones(p))

    def _check(self) -> None:
        """Raise SettingError for settings out of range or that contradict one another."""
        found = self._likelihood()
        whole("n_added", self.n_added, 1)
        whole("n_subset", self.n_subset, 1)
        if self._hyperparameters == "subset" and self.likelihood != "gaussian":
            raise SettingError(
                f"hyperparameters='subset' takes the evidence of a Gaussian likelihood, not of "
                f"{shown(self.likelihood)}: choose 'bound'"
            )
        whole("patience", self.patience, 1)
        whole("check_every", self.check_every, 1)
        choice("average", self.average, (True, False))
        if self._natural is not None:
            share("natural", self._natural)
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
        if found.discrete and self.mean == "linear":
            raise SettingError(
                f"mean='linear' is least squares of measured targets: with likelihood="
                f"{shown(self.likelihood)} choose 'constant' or 'zero'"
            )

    # -- plans -----------------------------------------------------------------------------------

    def _refuse_few_rows(self, n: int) -> None:
        super()._refuse_few_rows(n)
        left = n - self._n_validation(n)
        if left < 1:
            raise InputError(f"{n} usable rows: too few to hold some out, leave validation out")
        if self._batch(left) > left:
            raise InputError(
                f"batch_rows={self.batch_rows} for {left} rows to train on: choose at most {left}"
            )

    def _refuse(self, rows: data.Rows, executor: Executor) -> None:
        self._check()
        if self._from_subset():
            few, d, p = min(self.n_subset, len(rows)), rows.n_features, rows.n_targets
            subset.refuse_large(few, d, p, self._kernel().tiles, MEMORY_LIMIT)
        super()._refuse(rows, executor)

    def _plan_blocks(self, rows: data.Rows, spans: Sequence[partition.Span]) -> planning.Plan:
        self._check()
        n, batch = len(rows), self._batch(len(rows))
        lanes = -(-batch // LANE_ROWS)
        step = super()._plan_blocks(rows, [partition.Span(0, -(-batch // lanes))] * lanes)
        found = dataclasses.replace(step, block_rows=max((s.rows for s in spans), default=0))
        pools = 2 * min(POOL_BYTES * lanes, planning.rows_bytes(rows))
        client = found.bytes_client
        if self._from_subset():
            few, d, p = min(self.n_subset, n), rows.n_features, rows.n_targets
            client = max(client, subset.solve_bytes(few, d, p, self._kernel().tiles))
        return dataclasses.replace(
            found,
            bytes_per_worker=found.bytes_per_worker + pools,
            bytes_client=client,
        )

    def _knob(self, rows: data.Rows) -> refusal.Knob:
        def planned(batch_rows: int) -> planning.Plan:
            return clone(self).set_params(batch_rows=batch_rows)._plan(rows)

        batch = self._batch(len(rows))
        return refusal.Knob("batch_rows", batch, f"batches of {batch} rows", planned)

    def _probes(self, rows: data.Rows, threads: int) -> list[timing.Probe]:
        """One run of a few steps once the bases are full, which take the same for any rows."""
        batch, most = self._batch(len(rows)), self._n_inputs() + self._n_mean(len(rows))
        grown = 1 + -(-most // batch)
        copy = self._quick(
            max_iter=grown + timing.ITERATIONS,
            n_added=max(self.n_added, batch),
            n_subset=min(self.n_subset, PROBE_SUBSET),
            validation=None,
        )
        number = min(len(rows), max(most, grown * batch))
        return [timing.Probe(copy, number)]
