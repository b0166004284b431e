"""What estimators trained by stochastic variational inference share."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import dask.array as da
import numpy as np
from dask import delayed
from distributed.system import MEMORY_LIMIT
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskgp import likelihoods, metrics, scaling
from daskgp.errors import InputError, MemoryRunError, NumericalError, SettingError
from daskgp.estimators import measuring, subset, training
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.inputs import ChosenInputs
from daskgp.estimators.learning import Bases, Learning, Precondition
from daskgp.estimators.settings import JITTER, check_settings, choice, positive, share, whole
from daskgp.flow import io, partition, rounds, visible
from daskgp.flow import plan as planning
from daskgp.flow.cluster import Executor, freed_memory_is_kept, solve_threads
from daskgp.flow.io import grids
from daskgp.flow.io.checkpoints import Place
from daskgp.flow.io.snapshots import Snapshots
from daskgp.flow.solved import Solved, check_columns
from daskgp.flow.steps import Steps
from daskgp.flow.stream import LANE_ROWS, POOL_BYTES, HeldOut, Piece, Stream
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.model import Block, Theta
from daskgp.models.decoupled import Decoupled, Parameters, empty, with_covariance
from daskgp.train.stochastic import Ascent, Run, Stopped, ascend

logger = logging.getLogger("daskgp")

PROBE_SUBSET = 256
"""Rows whose evidence a short run maximises: what it finds does not matter."""
BATCH_ROWS = 1_024
MEAN_PACE = 10.0
"""What the mean's weights move by beside other parameters: their coordinates are of size one."""
AVERAGE_FROM = 200
"""Steps before any average: it would lag behind parameters that still go far."""
VALIDATION_ROWS = 10_000
"""Most rows that are held out."""
SMOOTHED = 100
"""Most steps whose bounds are averaged for ``objective_``: the last tenth of all."""
POWERS = {"noise_variance": 1.0, "scale": 0.5}
"""Of the variance of the targets, by which bounds of a likelihood's parameters grow."""
STREAM = "stream"
"""Inducing inputs that come from batches, [DGP] Algorithm 1."""


class _Fit(NamedTuple):
    """What training works on: rows with their scaling, the kernel's kind, and what y is."""

    stage: rounds.Rounds
    theta: Theta
    likelihood: Likelihood
    offset: np.ndarray
    rows: float
    seed: int


def _has_classes(estimator: VariationalGP) -> bool:
    """True, or SettingError for what has no ``predict_proba`` then."""
    if not str(estimator.likelihood).startswith("bernoulli"):
        raise SettingError(
            f"likelihood={estimator.likelihood!r} has no classes: predict(X, include_noise=True) "
            "gives the distribution of y"
        )
    return True


class VariationalGP(GaussianProcess):
    """Base of ``DecoupledGP`` and ``SVGP``."""

    likelihood: str
    natural: Any
    learning_rate: float
    average: bool
    batch_rows: int | None
    n_added: int
    hyperparameters: str
    n_subset: int
    n_columns: int | None
    train_points: bool
    validation: float | None
    patience: int
    check_every: int
    gradients: str

    _learned: Mapping[str, np.ndarray] | None = None
    """Beside the run, what another call of ``partial_fit`` goes on from."""
    _streamed: bool = False
    """Whether ``partial_fit`` has begun the model."""
    tol: float | None = 1.0
    ard_reach: ClassVar[float] = 100.0
    _inducing: ClassVar[tuple[str, str]]
    """Names of the settings that choose the covariance's functions, and their number."""

    # -- what a form says --------------------------------------------------------------------

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
    def _natural(self) -> float | None:
        return self.natural

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

    def _shared(self) -> bool:
        return True

    def _n_mean(self, n: int) -> int:
        """Functions of the mean beyond those of the covariance."""
        return 0

    # -- what is learned ---------------------------------------------------------------------

    @property
    def likelihood_(self) -> Likelihood:
        """The likelihood with its learned parameters, in standardised units."""
        check_is_fitted(self, "solved_")
        return likelihoods.by_name(self.likelihood, self.solved_.state.likelihood)

    def _in_units(self, inputs: np.ndarray) -> np.ndarray:
        scale = self.solved_.scaling
        return np.asarray(inputs * scale.x_scale + scale.x_shift)

    # -- prediction --------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Posterior mean, and on request its standard deviation or covariance.

        Parameters
        ----------
        X, return_std, return_cov
            As for every estimator.
        include_noise : bool
            Whether mean and spread are those of a new observation y, rather than of the latent f:
            for a Bernoulli likelihood the probability of 1, for a Poisson one the expected count.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov : where asked for
        """
        return super().predict(X, return_std, return_cov, include_noise)

    @available_if(_has_classes)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of 0 and 1 at X, (n, 2), for a Bernoulli likelihood; lazy for dask X.

        On the grid of an xarray object they are along a last dimension, ``class``.
        """
        check_is_fitted(self, "solved_")
        if not self.solved_.vector_target:
            raise SettingError("predict_proba is for one target: fit with y of shape (n,)")
        one = self.predict(X, include_noise=True)
        if grids.is_xarray(one):
            return grids.of_classes(one)
        stack = da.stack if isinstance(one, da.Array) else np.stack
        return stack([1.0 - one, one], axis=1)

    def score(self, X: Any, y: Any) -> float:
        """R² of the mean of y at X; for a Bernoulli likelihood the share of right classes."""
        if not likelihoods.by_name(self.likelihood).discrete:
            return super().score(X, y)
        likelihood = self.likelihood_
        likelihood.refuse(int(self._error(X, y, y, partial(_unobservable, likelihood))))
        error = _wrong_classes if self.likelihood.startswith("bernoulli") else metrics.nmse
        return 1.0 - self._error(X, y, self.predict(X, include_noise=True), error)

    # -- settings ----------------------------------------------------------------------------

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

    def _n_inputs(self) -> int:
        number = self._inducing[1]
        chosen = self._chosen
        return whole(number, getattr(self, number), 1) if chosen is None else chosen.count

    def _choose_inputs(
        self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel
    ) -> np.ndarray | None:
        return None if self._chosen is None else self._chosen.choose(stage, sample, kernel)

    def _check(self) -> None:
        """Raise SettingError for settings out of range or that contradict one another."""
        found = self._likelihood()
        positive("learning_rate", self.learning_rate)
        whole("n_added", self.n_added, 1)
        whole("n_subset", self.n_subset, 1)
        if self._hyperparameters == "subset" and self.likelihood != "gaussian":
            raise SettingError(
                f"hyperparameters='subset' takes the evidence of a Gaussian likelihood, not of "
                f"{self.likelihood!r}: choose 'bound'"
            )
        whole("patience", self.patience, 1)
        whole("check_every", self.check_every, 1)
        choice("average", self.average, (True, False))
        if self._natural is not None:
            share("natural", self._natural)
            if self._form == "direct":
                raise SettingError(
                    f"natural={self._natural!r} is for parametrization='hybrid': choose that, or "
                    "natural=None"
                )
        if self.n_columns is not None:
            whole("n_columns", self.n_columns, 1)
        if self.validation is not None:
            share("validation", self.validation)
            if self.validation > 0.5:
                raise SettingError(
                    f"validation={self.validation!r}: hold out at most half of the rows, 0.5"
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
                f"{self.likelihood!r} choose 'constant' or 'zero'"
            )

    def _refuse_few_rows(self, n: int) -> None:
        super()._refuse_few_rows(n)
        left = n - self._n_validation(n)
        if left < 1:
            raise InputError(f"{n} usable rows: too few to hold some out, leave validation out")
        if self._batch(left) > left:
            raise InputError(
                f"batch_rows={self.batch_rows} for {left} rows to train on: choose at most {left}"
            )

    def _refuse(self, rows: io.Rows, executor: Executor) -> None:
        self._check()
        if self._from_subset():
            few, d, p = min(self.n_subset, len(rows)), rows.n_features, rows.n_targets
            subset.refuse_large(few, d, p, self._kernel().tiles, MEMORY_LIMIT)
        super()._refuse(rows, executor)

    def _plan_blocks(self, rows: io.Rows, spans: Sequence[partition.Span]) -> planning.Plan:
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

    def _refuse_plan(self, plan: planning.Plan, rows: io.Rows, limit: int | None) -> None:
        planned, batch = partial(self._planned_batch, rows), self._batch(len(rows))
        planning.refuse_batch(plan, limit, planned, batch)

    def _out_of_memory(
        self, error: MemoryRunError, rows: io.Rows, limit: int | None
    ) -> MemoryRunError:
        planned, batch = partial(self._planned_batch, rows), self._batch(len(rows))
        return planning.batch_out_of_memory(error, self._plan(rows), limit, planned, batch)

    def _planned_batch(self, rows: io.Rows, batch_rows: int) -> planning.Plan:
        """The plan for batches of so many rows."""
        return clone(self).set_params(batch_rows=batch_rows)._plan(rows)

    def _probes(self, rows: io.Rows, threads: int) -> list[measuring.Probe]:
        """One run of a few steps once the bases are full, which take the same for any rows."""
        batch, most = self._batch(len(rows)), self._n_inputs() + self._n_mean(len(rows))
        grown = 1 + -(-most // batch)
        copy = self._quick(
            max_iter=grown + measuring.ITERATIONS,
            n_added=max(self.n_added, batch),
            n_subset=min(self.n_subset, PROBE_SUBSET),
            validation=None,
        )
        number = min(len(rows), max(most, grown * batch))
        return [measuring.Probe(copy, number)]

    # -- stages ------------------------------------------------------------------------------

    def _scaling(self, sums: scaling.Sums, rows: io.Rows) -> scaling.Scaling:
        if not self._likelihood().discrete:
            return super()._scaling(sums, rows)
        found = scaling.solve(sums, rows.n_features, "zero", self.standardize)
        p = rows.n_targets
        return dataclasses.replace(found, intercept=np.zeros(p), y_scale=np.ones(p))

    def _fit_rows(
        self, rows: io.Rows, executor: Executor, checkpoint: Place | None, keep: str | None = None
    ) -> None:
        if self._likelihood().discrete:
            remedy = f"put it in {visible.HERE}, with store= where fit writes it"
            for array in (rows.X, rows.y):
                visible.check(executor, array, "the training data", remedy)
            _check_targets(rows, self._spans(rows), executor, self._likelihood())
        super()._fit_rows(rows, executor, checkpoint, keep)

    def _learn(
        self,
        stage: rounds.Rounds,
        theta: Theta,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> None:
        keeper = None
        if checkpoint is not None:
            free = ("progress", "max_iter")
            identity = training.run_identity(self, sums, free)
            keeper = Snapshots(checkpoint.url, identity, checkpoint.claim)
        kept = keeper.read() if keeper else None
        seed = self._seed() if kept is None else int(kept["seed"])
        fit = self._begin(stage, theta, sums, seed)
        held, validation = self._held_out(fit)
        fit = fit._replace(rows=fit.rows - len(validation.X))
        if kept is None and self._from_subset():
            fit = self._with_hyperparameters(fit, sums, held, len(validation.X))
        run = Run.begin(self._parameters(fit)) if kept is None else Run.restore(Parameters, kept)
        if kept is not None:
            if run.step > self.max_iter:
                raise SettingError(
                    f"max_iter={self.max_iter}: the checkpoint is {run.step} steps on; choose at "
                    "least as many, or another checkpoint"
                )
            logger.info("continuing after %d steps", run.step)
        here = self._here(stage.executor)
        batch = self._batch(int(fit.rows))
        with closing(
            Stream(
                stage.rows,
                stage.spans,
                stage.scaling,
                dataclasses.replace(stage.executor, show=False),
                stage.dtype,
                batch,
                seed,
                held,
                None if kept is None else kept["where"],
                fetch=here.here,
            )
        ) as stream:
            problem = self._problem(fit, here, stream.take, stream.where, validation)
            if kept is not None:
                problem.restore(kept)

            def conclude(run: Run) -> None:
                self._learned, self._sums, self._streamed = problem.arrays(), sums, False
                self._conclude(fit, run, sums.rows)
                self._run = run.going_on()

            ascent = self._ascent(fit, sums, self._learns)
            with self._keeping_the_last(conclude), freed_memory_is_kept:
                run, self.history_ = ascend(
                    problem,
                    run,
                    ascent,
                    self._describe(fit),
                    ("kernel", "likelihood"),
                    keeper,
                )
            conclude(run)
        if self._learns:
            _remark_on_limits(fit.theta.kernel, ascent.at_bounds(run.result, "kernel"))

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Go on learning from more rows, in one pass over them.

        The first call sets units, hyper-parameters to start from and inducing inputs as ``fit``
        would from these rows; bases grow from rows of later calls until they are full.  The bound
        is that of the rows seen so far.  Hyper-parameters follow it unless ``optimizer`` is None,
        or ``fit`` has taken them from a subset.  A model read from a store has lost what Adam
        remembers, so its first steps are as long as those of a new one.

        Parameters
        ----------
        X, y : array-like
            As for ``fit``; they need not be kept.

        Returns
        -------
        self
        """
        check_settings(self)
        self._check()
        stage, sums, before = self._streaming(X, y)
        if hasattr(self, "solved_"):
            fit, run = self._resumed(stage)
        else:
            fit = self._begin(stage, training.start(self, stage, sums), sums, self._seed())
            run, self._sums, self._learned = Run.begin(self._parameters(fit)), sums, None
            self._streamed = True
        fit = fit._replace(rows=before + sums.rows)
        pieces, begun = self._pieces(fit), run.step
        seen = np.cumsum([before, *(sum(p.size for p in batch) for batch in pieces)])

        def conclude(run: Run) -> None:
            rows = float(seen[run.step - begun])
            self._conclude(fit._replace(rows=rows), run, rows, begun)

        place, none = _nowhere, _none(stage.rows)
        problem = self._problem(fit, stage.executor, lambda: pieces.pop(0), place, none)
        problem.bases = problem.bases._replace(covariance=self._n_inputs(), most=None)
        # a model that fit has begun keeps to its setting
        learn = self._learns or (self._streamed and self.optimizer is not None)
        if learn:
            problem.let_go()
        if self._learned is not None:
            problem.restore(self._learned)
        ascent = dataclasses.replace(
            self._ascent(fit, self._sums, learn),
            steps=run.step + len(pieces),
            patience=None,
        )
        with self._keeping_the_last(conclude):
            run, self.history_ = ascend(
                problem, run, ascent, self._describe(fit), ("kernel", "likelihood")
            )
        self._learned = problem.arrays()
        conclude(run)
        return self

    # -- parts of a fit ----------------------------------------------------------------------

    def _streaming(self, X: Any, y: Any) -> tuple[rounds.Rounds, scaling.Sums, int]:
        """What works on the rows of a call here, their sums, and how many rows were before."""
        executor = Executor(None, False, here=True)
        rows = io.rows_of(X, y, None, True, self.block_rows)
        if not len(rows):
            raise InputError("no rows: there is nothing to learn from")
        spans = self._spans(rows)
        if self._likelihood().discrete:
            _check_targets(rows, spans, executor, self._likelihood())
        sums = rounds.describe(rows, spans, executor)
        if hasattr(self, "solved_"):
            _check_more(self.solved_, rows, sums)
            scale, before = self.solved_.scaling, self.n_rows_
        else:
            scaling.check(sums, rows.feature_names, rows.target_names)
            scale, before = self._scaling(sums, rows), 0
        windows = partition.alone(spans)
        stage = rounds.Rounds(
            self._model(), rows, windows, scale, executor, self.dtype, self.device
        )
        return stage, sums, before

    def _begin(self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, seed: int) -> _Fit:
        found = self._likelihood(theta.noise_variance)
        offset = np.zeros(stage.rows.n_targets)
        if found.discrete and self.mean == "constant":
            offset = found.offset(sums.mean[stage.rows.n_features :])
        return _Fit(stage, theta, found, offset, sums.rows, seed)

    def _from_subset(self) -> bool:
        """Whether hyper-parameters are those of the evidence of some rows, and kept."""
        return self.optimizer is not None and self._hyperparameters == "subset"

    def _with_hyperparameters(
        self, fit: _Fit, sums: scaling.Sums, held: HeldOut | None, n_held: int
    ) -> _Fit:
        """Hyper-parameters from the exact evidence of a random subset of rows that are trained on.

        Rows that are held out have the smallest keys of their seed; those after them are taken.
        """
        stage = dataclasses.replace(fit.stage.executor, show=False)
        number, seed = min(self.n_subset, int(fit.rows)), (fit.seed, 12)
        rows = fit.stage.rows, fit.stage.spans, fit.stage.scaling
        drawn = rounds.draw(*rows, n_held + number, held.seed if held else seed, stage)
        if held is not None:
            trained = drawn.keys > held.highest
            drawn = rounds.Drawn(*(part[trained] for part in drawn))
        k = len(fit.theta.kernel.log_parameters)
        theta = dataclasses.replace(fit.theta, inputs=None)
        bounds = training.bounds(self, theta, sums, fit.stage.scaling)[: k + 1]
        found = subset.trained_on(theta, Block(drawn.X, drawn.y), bounds, self.progress)
        noise = found.noise_variance
        theta = dataclasses.replace(fit.theta, kernel=found.kernel, noise_variance=noise)
        logger.info("hyper-parameters are those of %d rows: %r", number, found.kernel)
        return fit._replace(theta=theta, likelihood=self._likelihood(noise))

    def _parameters(self, fit: _Fit) -> Parameters:
        d, p = fit.stage.rows.n_features, fit.stage.rows.n_targets
        found = empty(fit.theta.kernel.log_parameters, fit.likelihood.log_parameters, d, p)
        if fit.theta.inputs is None:
            return found
        scaled = self._basis == "generalized"
        return with_covariance(found, fit.theta.inputs, self._form, scaled, self._shared())

    def _problem(
        self, fit: _Fit, executor: Executor, take: Any, place: Any, validation: Block
    ) -> Learning:
        n, stage = int(fit.rows), fit.stage
        covariance = self._n_inputs() if fit.theta.inputs is None else len(fit.theta.inputs)
        scaled, shared = self._basis == "generalized", self._shared()
        mean, batch = self._n_mean(n), self._batch(n)
        most = 2 * -(-mean // self.n_added) + 2 * -(-n // batch)
        bases = Bases(covariance, mean, self.n_added, scaled, shared, most)
        quiet = dataclasses.replace(executor, show=False)
        steps = Steps(
            self._model(),
            fit.rows,
            self.n_columns or batch,
            fit.seed,
            quiet,
            stage.dtype,
            stage.device,
        )
        return Learning(
            steps,
            fit.theta.kernel,
            fit.offset,
            take,
            place,
            bases,
            self._natural,
            self._precondition,
            validation,
        )

    def _ascent(self, fit: _Fit, sums: scaling.Sums, learn: bool) -> Ascent:
        """Settings of a run; ``learn`` says whether hyper-parameters may follow the bound."""
        hyper = float(learn)
        points, means = float(self.train_points), float(self._moves_mean)
        rates = {"kernel": hyper, "likelihood": hyper, "root": 1.0}
        rates |= dict.fromkeys(("covariance_points", "covariance_scales"), points)
        rates |= dict.fromkeys(("mean_points", "mean_scales"), means)
        shared = MEAN_PACE if self._form == "hybrid" else 1.0  # those on Z are not whitened
        rates |= {"weights": MEAN_PACE, "shared_weights": shared}
        scale = fit.stage.scaling
        unit = scaling.target_variance(sums, scale, self.mean)
        if fit.likelihood.discrete:  # f has no unit
            scale, unit = dataclasses.replace(scale, y_scale=scale.y_scale * np.sqrt(unit)), 1.0
        kernel = training.bounds(self, fit.theta, sums, scale)
        k = len(fit.theta.kernel.log_parameters)
        powers = [POWERS.get(name, 0.0) for name in fit.likelihood.parameter_names]
        own = fit.likelihood.log_bounds + np.log(unit) * np.array(powers)[:, None]
        start = fit.likelihood.log_parameters
        limits = {
            "kernel": (kernel[:k, 0], kernel[:k, 1]),
            "likelihood": (np.minimum(own[:, 0], start), np.maximum(own[:, 1], start)),
        }
        return Ascent(
            self.max_iter,
            self.learning_rate,
            rates,
            limits,
            check_every=self.check_every,
            patience=None if self.validation is None else self.patience,
            average_from=AVERAGE_FROM if self.average else None,
            progress=self.progress,
        )

    def _describe(self, fit: _Fit) -> Any:
        names = [*fit.theta.kernel.parameter_names, *fit.likelihood.parameter_names]

        def describe(vector: np.ndarray) -> dict[str, float]:
            return dict(zip(names, map(float, np.exp(vector)), strict=True))

        return describe

    def _held_out(self, fit: _Fit) -> tuple[HeldOut | None, Block]:
        """Rows that are never trained on."""
        stage = fit.stage
        if self.validation is None:
            return None, _none(stage.rows)
        number = self._n_validation(int(fit.rows))
        seed = fit.seed, 11
        drawn = rounds.draw(stage.rows, stage.spans, stage.scaling, number, seed, stage.executor)
        return HeldOut(seed, int(drawn.keys.max())), Block(drawn.X, drawn.y)

    def _n_validation(self, n: int) -> int:
        if self.validation is None:
            return 0
        return max(1, min(VALIDATION_ROWS, round(self.validation * n)))

    def _here(self, executor: Executor) -> Executor:
        """Where gradients are computed."""
        if self.gradients == "client" and executor.client is not None:
            return dataclasses.replace(executor, client=None, here=True)
        return executor

    def _pieces(self, fit: _Fit) -> list[list[Piece]]:
        """One pass over the rows of a call, in batches."""
        stage = fit.stage
        block = stage.scaling.block(*stage.rows.read(0, len(stage.rows)), stage.dtype)
        node, n = delayed(block, traverse=False), len(block.X)
        batch = self.batch_rows or BATCH_ROWS
        found = []
        for span in partition.parts(0, n, batch):
            lanes = partition.parts(*span, LANE_ROWS)
            found.append([Piece((node,), (slice(*lane),)) for lane in lanes])
        return found

    def _resumed(self, stage: rounds.Rounds) -> tuple[_Fit, Run]:
        """The fit and run so far, on other rows."""
        solved = self.solved_
        found = self.likelihood_
        theta = Theta(solved.theta.kernel, float(self.noise_variance))
        fit = _Fit(stage, theta, found, solved.state.offset, 0.0, self._seed())
        if not hasattr(self, "_run"):  # read from a store
            run = Run.begin(solved.state.parameters(solved.theta.kernel))
            names = [*theta.kernel.parameter_names, *found.parameter_names]
            self._run = dataclasses.replace(run, **_retold(self.history_, names))
            self._sums = rounds.describe(stage.rows, stage.spans, stage.executor)
        # a call that is interrupted leaves the history of the last one as it is
        return fit, dataclasses.replace(self._run, history=list(self._run.history))

    @contextmanager
    def _keeping_the_last(self, conclude: Callable[[Run], None]) -> Iterator[None]:
        """Where training meets numbers that are not finite, keep the step before."""
        try:
            yield
        except Stopped as error:
            if len(error.run.parameters.root):
                with suppress(NumericalError):  # of the very first there may be no posterior
                    conclude(error.run)
                    self.history_ = error.history
            raise

    def _conclude(self, fit: _Fit, run: Run, rows: float, begun: int = 0) -> None:
        """Remember what prediction needs of a run, and so many rows that were given.

        Bounds of steps before ``begun`` were those of other rows.
        """
        parameters, model = run.result, self._model()
        with solve_threads(len(parameters.root)):
            prepared = model.prepare(fit.theta.kernel, parameters, fit.offset)
        noise = float(np.exp(parameters.likelihood[0])) if self.likelihood == "gaussian" else 0.0
        theta = Theta(prepared.kernel, noise)
        last = max(1, min(SMOOTHED, len(run.history) // 10, run.step - begun))
        bounds = [float(row[0]) for row in run.history[-last:]]
        # as if those held out were trained on too
        self.objective_ = float(np.mean(bounds)) * rows / fit.rows if bounds else None
        self._run, self.n_rows_ = run, int(rows)
        stage = dataclasses.replace(fit.stage, model=model)
        self._remember(stage, theta, model.solve(prepared), None)


def _wrong_classes(y: Any, mean: Any) -> Any:
    """Share of classes 0 and 1 that are not the likelier one."""
    return metrics.mae(y, np.where(np.isnan(mean), np.nan, mean > 0.5))


def _remark_on_limits(kernel: Kernel, at: np.ndarray) -> None:
    """Warn of a kernel most of whose hyper-parameters are at their limits: it may have diverged."""
    if 2 * at.sum() > len(at):
        names = [name for name, limit in zip(kernel.parameter_names, at, strict=True) if limit]
        logger.warning(
            "training ended with %s at their limits: lower learning_rate, or look for columns "
            "without information",
            ", ".join(names),
        )


def _unobservable(likelihood: Likelihood, y: Any, _: Any) -> Any:
    """How many values the likelihood cannot give."""
    return (~likelihood.supports(y if isinstance(y, da.Array) else np.asarray(y, float))).sum()


def _check_targets(
    rows: io.Rows, spans: Sequence[partition.Span], executor: Executor, likelihood: Likelihood
) -> None:
    """Raise InputError for targets of complete rows outside the support of a likelihood."""

    def wrong(span: partition.Span) -> list[np.ndarray]:
        X, y = rows.read(*span)
        y = y[scaling.complete_rows(X, y)]
        return [y[(~likelihood.supports(y)).any(axis=1)]]

    found = rounds.map_all(wrong, spans, executor, "targets")
    likelihood.check(np.concatenate(found), rows.target_names)


def _check_more(solved: Solved, rows: io.Rows, sums: scaling.Sums) -> None:
    """Raise InputError for rows that a fitted model cannot learn from."""
    check_columns(solved, rows.X, rows.feature_names)
    if rows.n_targets != solved.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, the model was fitted with {solved.n_targets}: "
            f"{', '.join(solved.target_names)}"
        )
    if sums.infinite.any() or not sums.rows:
        # constant columns are no matter once units are known
        scaling.check(sums, rows.feature_names, rows.target_names)


def _retold(history: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """The rows of a run's history, and its step, from the entries that were made of them."""
    rows = []
    for entry in history:
        told = entry["objective"], entry["gradient_norm"], entry["seconds"]
        logs = np.log([entry[name] for name in names])
        rows.append(np.array([*told, entry.get("validation", np.nan), *logs]))
    return {"step": len(rows), "history": rows}


def _none(rows: io.Rows) -> Block:
    return Block(np.zeros((0, rows.n_features)), np.zeros((0, rows.n_targets)))


def _nowhere() -> np.ndarray:
    return np.zeros((0, 3), np.int64)
