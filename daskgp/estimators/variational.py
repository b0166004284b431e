"""Base of the estimators that are trained by stochastic variational inference."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from daskgp import data, likelihoods, metrics
from daskgp.arrays.backend import resolve_device
from daskgp.assess import weighing
from daskgp.checks import choice, share, shown, whole
from daskgp.data import grids, partition, reading
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.data.stores.checkpoints import Place
from daskgp.data.stores.snapshots import Snapshots
from daskgp.errors import InputError, SettingError
from daskgp.estimators import ascending
from daskgp.estimators.ascending import AVERAGE_FROM, POWERS, Fit, Form, no_rows
from daskgp.estimators.attributes import offered_unless
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.outcome import Outcome, Traits
from daskgp.estimators.settings import JITTER, check_settings
from daskgp.estimators.updating import described, known_ranges, more_rows, ranges_of, seen, seen_by
from daskgp.fit import hyperparameters, rounds, targets, timing
from daskgp.fit.arrange import Batches
from daskgp.fit.effects import TRAINED, Effects, Needs, among, given
from daskgp.fit.inputs import Inputs
from daskgp.fit.inputs import chosen as chosen_inputs
from daskgp.fit.minibatches import POOL_BYTES, Stream
from daskgp.fit.plan import Beside, Knob, Probe, Workload, rows_bytes
from daskgp.fit.subset import Start
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.variational.decoupled import Decoupled
from daskgp.models.variational.parameters import Parameters
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import freed_memory_is_kept
from daskgp.train.stochastic import Ascent, Run, ascend
from daskgp.typing import LikelihoodName, OptimizerName

logger = logging.getLogger("daskgp")

PROBE_SUBSET = 256
"""Rows whose evidence a short run maximises: its result does not matter."""
N_MEAN = 4_096
"""Default number of functions of a decoupled mean."""
MANY = 1 << 62
"""Number of rows that is never the least of several."""
Chosen = Literal["greedy", "kmeans", "random", "stream"]
STREAM = "stream"
"""Setting for inducing inputs that come from batches, [DGP] Algorithm 1."""
WATCHED = ("kernel", "likelihood")
STEPS = (
    "learning_rate",
    "mean_learning_rate",
    "batch_rows",
    "n_added",
    "train_points",
    "optimizer",
)
"""Settings of the steps to come, which may change from one call of ``partial_fit`` to the next."""
"""Parameters that the history names."""


def _without_classes(estimator: VariationalGP) -> str | None:
    """Return why an estimator has no ``predict_proba``; None if it has one."""
    name = estimator._likelihood_name
    if likelihoods.by_name(name).classes:
        return None
    return (
        f"{type(estimator).__name__} has no predict_proba, as likelihood={name!r} has no classes: "
        "predict(X, include_noise=True) gives the distribution of y"
    )


@dataclass(eq=False, repr=False, kw_only=True)
class VariationalGP(GaussianProcess):
    """Base of ``DecoupledGP`` and ``SVGP``, which learn from mini-batches."""

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
        """How the posterior is written and learned."""
        return Form(self.natural, self.hyperparameters)

    @property
    def _learns(self) -> bool:
        """True if hyper-parameters follow the bound while ``fit`` goes on."""
        return self.optimizer is not None and not self._from_subset()

    def _from_subset(self) -> bool:
        """Return True if hyper-parameters are those of the evidence of some rows, and kept."""
        return self.optimizer is not None and self._form.hyperparameters == "subset"

    def _n_mean(self, n: int = MANY) -> int:
        """Return the number of functions of the mean beyond those of the covariance."""
        form = self._form
        if not form.decoupled:
            return 0
        number = min(N_MEAN, n) if form.n_mean is None else whole("n_mean", form.n_mean, 1)
        return max(0, number - self._inputs.count) if form.shared else number

    # -- settings --------------------------------------------------------------------------------

    def _likelihood(self, noise_variance: float | None = None) -> Likelihood:
        likelihood = likelihoods.by_name(self.likelihood)
        if noise_variance is None or likelihood.discrete:
            return likelihood
        powers = [POWERS.get(name, 0.0) for name in likelihood.parameter_names]
        scales = np.array([power * np.log(noise_variance) for power in powers])
        start = np.where(np.array(powers) > 0, scales, likelihood.log_parameters)
        return likelihood.with_log_parameters(start)

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
        return chosen_inputs(self, "inducing", number, label)

    def _arrangement(self) -> Batches:
        batch = self.batch_rows
        batch = None if batch is None else whole("batch_rows", batch, 1)
        return Batches(self.block_rows, batch_rows=batch, share=self.validation)

    def _check(self, rows: data.Rows, n: int | None) -> None:
        self._likelihood()
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
        choice("average", self.average, (True, False))
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
        super()._check(rows, n)

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        if value is not None:
            return clone(self).set_params(batch_rows=value)._workload(rows)
        work, n, batch = super()._workload(rows), len(rows), self._arrangement().size(len(rows))
        most = self._inputs.count + self._n_mean(n)
        grown = 1 + -(-most // batch)  # steps until the bases are full; all later ones cost as much
        settings = {
            "max_iter": grown + timing.ITERATIONS,
            "n_added": max(self.n_added, batch),
            "n_subset": min(self.n_subset, PROBE_SUBSET),
            "validation": None,
        }
        probe = Probe(settings, min(n, max(most, grown * batch)))
        return dataclasses.replace(
            work,
            knob=Knob("batch_rows", batch, f"batches of {batch} rows", self._planning(rows)),
            beside=Beside(worker=2 * min(POOL_BYTES * len(work.units), rows_bytes(rows))),
            n_subset=min(self.n_subset, n) if self._from_subset() else 0,
            probes=lambda _: [probe],
        )

    _learned: Mapping[str, np.ndarray] | None = field(default=None, init=False)
    """State beside the run that another call of ``partial_fit`` goes on from."""
    _streamed: bool = field(default=False, init=False)
    """True if ``partial_fit`` has begun the model."""

    # -- what is learned -------------------------------------------------------------------------

    @property
    def likelihood_(self) -> Likelihood:
        """Likelihood with its learned parameters, in standardised units."""
        check_is_fitted(self, "solved_")
        return likelihoods.by_name(self._likelihood_name, self.solved_.state.likelihood)

    @property
    def _likelihood_name(self) -> str:
        """Likelihood of the fit, even if the setting has changed since; else the setting."""
        fitted = getattr(self, "solved_", None)
        return str(self.likelihood if fitted is None else fitted.method.likelihood)

    def _in_units(self, inputs: np.ndarray) -> np.ndarray:
        return self.solved_.columns.places(self.solved_.scaling.places(inputs))

    # -- prediction ------------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
        *,
        y_variance: Any = None,
        quantiles: Sequence[float] | None = None,
    ) -> Any:
        """Return the posterior mean, and on request its standard deviation, covariance, quantiles.

        Parameters
        ----------
        X, return_std, return_cov, y_variance, quantiles
            As for every estimator; quantiles of y only where its likelihood is Gaussian.
        include_noise : bool
            Whether mean and spread are those of a new observation y, rather than of the latent f:
            for a Bernoulli likelihood the probability of 1, for a Poisson one the expected count.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov, quantiles : if asked for

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(400, 1))
        >>> counts = np.random.default_rng(1).poisson(np.exp(2 * X[:, 0]))
        >>> settings = {"n_inducing": 10, "max_iter": 50, "progress": False}
        >>> model = daskgp.SVGP(likelihood="poisson", **settings).fit(X, counts)
        >>> expected = model.predict(X, include_noise=True)
        >>> bool(np.corrcoef(expected, np.exp(2 * X[:, 0]))[0, 1] > 0.9)
        True
        """
        return super().predict(
            X, return_std, return_cov, include_noise, y_variance=y_variance, quantiles=quantiles
        )

    @offered_unless(_without_classes)
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (n, 2) of 0 and 1 at X for a Bernoulli likelihood; lazy for dask X.

        On the grid of an xarray object they are along a last dimension, ``class``.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(400, 1))
        >>> settings = {"n_inducing": 10, "max_iter": 50, "progress": False}
        >>> model = daskgp.SVGP(likelihood="bernoulli", **settings).fit(X, X[:, 0] > 0.5)
        >>> p = model.predict_proba(np.array([[0.1], [0.9]]))
        >>> p.shape, bool(p[0, 1] < 0.5 < p[1, 1])
        ((2, 2), True)
        """
        self._check_fitted()
        if not self.solved_.vector_target:
            raise SettingError("predict_proba is for one target: fit with y of shape (n,)")
        one = self.predict(X, include_noise=True)
        if grids.is_xarray(one):
            return grids.of_classes(one)
        stack = da.stack if isinstance(one, da.Array) else np.stack
        return stack([1.0 - one, one], axis=1)

    def _score(self, X: Any, y: Any, weights: tuple[Any, ...]) -> float:
        if not likelihoods.by_name(self._likelihood_name).discrete:
            return super()._score(X, y, weights)
        likelihood = self.likelihood_
        likelihood.refuse(int(self._error(X, y, y, partial(_unobservable, likelihood))))
        mean = self.predict(X, include_noise=True)
        if likelihood.classes:
            return 1.0 - self._error(X, y, mean, _wrong_classes, weighing.wrong, weights)
        return 1.0 - self._error(X, y, mean, metrics.nmse, weighing.nmse, weights)

    # -- stages ----------------------------------------------------------------------------------

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        theta = begun.theta
        keeper = self._keeper(checkpoint, sums)
        kept = keeper.read() if keeper else None
        seed = self._seed() if kept is None else int(kept["seed"])
        fit = ascending.begin(self, stage, theta, sums, seed)
        others, validation = ascending.held_out(self, fit)
        fit = fit._replace(rows=fit.rows - len(validation.X))
        if kept is None and self._from_subset():
            fit = ascending.with_hyperparameters(self, fit, sums, others, len(validation.X))
        run = (
            Run.begin(ascending.first_parameters(self, fit))
            if kept is None
            else Run.restore(Parameters, kept)
        )
        if kept is not None:
            self._refuse_fewer(run.step)
            logger.info("continuing after %d steps", run.step)
        here = ascending.where_gradients(self, stage.executor)
        where = None if kept is None else kept["where"]
        with closing(self._stream(fit, others, where, here.here)) as stream:
            problem = ascending.learning(self, fit, here, stream.take, stream.where, validation)
            if kept is not None:
                problem.restore(kept)

            def concluded(run: Run, history: ascending.History) -> Outcome:
                self._learned, self._sums, self._streamed = problem.arrays(), sums, False
                outcome = ascending.concluded(self, fit, run, history, sums.rows)
                self._run = run.going_on()
                return outcome

            def remember(run: Run, history: ascending.History) -> None:
                self._remember(concluded(run, history), int(sums.rows))

            ascent, describe = (
                self._ascent(fit, sums, self._learns),
                ascending.describing(self, fit),
            )
            with ascending.keeping_the_last(remember), freed_memory_is_kept:
                run, history = ascend(problem, run, ascent, describe, WATCHED, keeper)
            outcome = concluded(run, history)
        if self._learns:
            _remark_on_limits(fit.theta.kernel, ascent.at_bounds(run.result, "kernel"))
        return outcome

    def _ascent(self, fit: Fit, sums: scaling.Sums, learn: bool) -> Ascent:
        return ascending.ascent(self, fit, sums, learn)

    def _refuse_fewer(self, steps: int) -> None:
        """Raise SettingError if a checkpoint is further on than the fit is to go."""
        if steps > self.max_iter:
            raise SettingError(
                f"max_iter={self.max_iter}: the checkpoint is {steps} steps on; choose at least "
                "as many, or another checkpoint"
            )

    def _keeper(self, checkpoint: Place | None, sums: scaling.Sums) -> Snapshots | None:
        if checkpoint is None:
            return None
        identity = hyperparameters.run_identity(self, sums, ("progress", "max_iter"))
        return Snapshots(checkpoint.url, identity, checkpoint.claim, checkpoint.renew)

    def _stream(
        self, fit: Fit, others: AllBut | None, where: np.ndarray | None, fetch: bool
    ) -> Stream:
        """Return batches of the rows to train on, from the beginning or from ``where``."""
        stage = fit.stage
        quiet = dataclasses.replace(stage.executor, show=False)
        rows = stage.rows, stage.spans, stage.scaling
        batch = self._arrangement().size(int(fit.rows))
        return Stream(*rows, quiet, stage.dtype, batch, fit.seed, others, where, fetch=fetch)

    def partial_fit(
        self, X: Any, y: Any, *, y_variance: Any = None, sample_weight: Any = None
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
        X, y, y_variance, sample_weight : array-like
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
        if self.target_transform is not None:
            raise SettingError(
                f"partial_fit with target_transform={self.target_transform!r} is not supported: "
                "use fit, or transform y first"
            )
        if self.calibrate is not None:
            raise SettingError(
                f"partial_fit with calibrate={self.calibrate!r} has no rows to hold out: use "
                "fit, or leave calibrate out"
            )
        resolve_device(self.device)
        executor = Executor(None, False, here=True)
        if hasattr(self, "solved_"):  # as the first rows said
            rows = more_rows(self, X, y, None, True, y_variance, sample_weight)
            rows = self._marked(rows, executor, known_ranges(self))
        else:
            rows = self._rows_of(X, y, None, True, y_variance, sample_weight)
            rows = self._marked(rows, executor)
        rows = self._residuals(rows, executor, "")
        self._check(rows, None)
        if not len(rows):
            raise InputError("no rows: there is nothing to learn from")
        spans = self._spans(rows)
        if self._codes is not None:
            targets.check(rows, spans, executor, self._codes)
        stage, sums = self._given(rows, spans, executor)
        if hasattr(self, "solved_"):
            before, (fit, run) = self.n_rows_, ascending.resumed(self, stage)
        else:
            before, (fit, run) = 0, self._opened(stage, sums)
        self._follow(fit._replace(rows=before + sums.rows), run, before)
        self._seen = [*(seen_by(self) if before else []), seen("update", sums, rows)]
        return self

    def _take(self, X: Any, y: Any, y_variance: Any, weight: Any) -> None:
        self.partial_fit(X, y, y_variance=y_variance, sample_weight=weight)

    def _given(
        self, rows: data.Rows, spans: Sequence[partition.Span], executor: Executor
    ) -> tuple[rounds.Rounds, scaling.Sums]:
        """Return more rows in the units of the first ones, and their sums."""
        if hasattr(self, "solved_"):
            sums, scale = described(self, rows, spans, executor)
        else:
            sums = sampling.describe(rows, spans, executor)
            self._check_columns(sums, rows)
            scale, names = self._scaling(sums, rows), rows.columns.inputs_names
            scaling.check_range(sums, scale, self.dtype, names, rows.target_names)
            scaling.warn_of_missing(sums.dropped, rows.weight is not None)
        before = getattr(self, "_ranges", None) if hasattr(self, "solved_") else None
        self._ranges = ranges_of(sums, rows.columns, before)
        units = partition.alone(spans)
        return rounds.Rounds(rows, units, scale, executor, self.dtype, self.device), sums

    def _opened(self, stage: rounds.Rounds, sums: scaling.Sums) -> tuple[Fit, Run]:
        """Return the fit and run that the first rows of a stream begin."""
        fit = ascending.begin(
            self, stage, hyperparameters.start(self, stage, sums).theta, sums, self._seed()
        )
        self._sums, self._learned, self._streamed = sums, None, True
        return fit, Run.begin(ascending.first_parameters(self, fit))

    def _follow(self, fit: Fit, run: Run, before: float) -> None:
        """Make one pass over the rows of a call, which follow ``before`` others."""
        pieces, begun, executor = ascending.batches(self, fit), run.step, fit.stage.executor
        seen = np.cumsum([before, *(sum(p.size for p in batch) for batch in pieces)])

        def remember(run: Run, history: ascending.History) -> None:
            rows = float(seen[run.step - begun])
            self._learned = problem.arrays()
            seen_so_far = fit._replace(rows=rows)
            outcome = ascending.concluded(self, seen_so_far, run, history, rows, begun)
            self._run = run
            self._remember(outcome, int(rows))

        none = no_rows(fit.stage.rows)
        problem = ascending.learning(self, fit, executor, lambda: pieces.pop(0), _nowhere, none)
        problem.bases = problem.bases._replace(covariance=self._inputs.count, most=None)
        # a model that ``fit`` has begun keeps to its setting
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
        with ascending.keeping_the_last(remember):
            run, history = ascend(problem, run, ascent, ascending.describing(self, fit), WATCHED)
        remember(run, history)


def _wrong_classes(y: Any, mean: Any) -> Any:
    """Return the share of classes 0 and 1 that are not the likelier one."""
    return metrics.mae(y, np.where(np.isnan(mean), np.nan, mean > 0.5))


def _remark_on_limits(kernel: Kernel, limited: np.ndarray) -> None:
    """Warn if most of a kernel's hyper-parameters are at their limits: it may have diverged."""
    if 2 * limited.sum() > len(limited):
        names = [name for name, limit in zip(kernel.parameter_names, limited, strict=True) if limit]
        logger.warning(
            "training ended with %s at their limits: lower learning_rate, or look for columns "
            "without information",
            ", ".join(names),
        )


def _unobservable(likelihood: Likelihood, y: Any, _: Any) -> Any:
    """Return how many values the likelihood cannot produce."""
    y = y if isinstance(y, da.Array) else np.asarray(y)
    reading.check_kind("y", y)
    return (~likelihood.supports(y)).sum()


def _nowhere() -> np.ndarray:
    return np.zeros((0, 3), np.int64)
