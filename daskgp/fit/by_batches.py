"""Training by mini-batches: its start, the problem that it ascends, its end."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
from dask import delayed

from daskgp import data, likelihoods
from daskgp.checks import whole
from daskgp.data import partition
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.data.stores.checkpoints import Snapshots
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.fit import hyperparameters, means, rounds, subset, timing
from daskgp.fit.arrange import Batches
from daskgp.fit.arrange.as_stored import BATCH_ROWS
from daskgp.fit.minibatches import LANE_ROWS, POOL_BYTES, Share, Stream
from daskgp.fit.plan import Extra, Knob, Probe, Workload, rows_bytes
from daskgp.fit.recipe import Outcome, Problem, Recipe, Trainer
from daskgp.fit.svi import Bases, Learning, Precondition, Steps
from daskgp.fit.task import Stored
from daskgp.kernels import RBF, Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.values import Block, Theta
from daskgp.models.variational.decoupled import Decoupled
from daskgp.models.variational.parameters import Parameters, empty, with_covariance
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import freed_memory_is_kept, solve_threads
from daskgp.train.stochastic import Ascent, Run, Stopped, ascend

logger: logging.Logger = logging.getLogger("daskgp")

History = list[dict[str, Any]]
POWERS = {"noise_variance": 1.0, "scale": 0.5, "sigma": 0.5}
"""Powers of the targets' variance by which bounds of a likelihood's parameters grow."""
AVERAGE_FROM = 200
"""Number of steps before averaging: an average would lag behind parameters that still move far."""
MEAN_PACE = 10.0
"""Learning rate of the mean's weights relative to others: their coordinates are of size one."""
SMOOTHED = 100
"""Maximum number of steps whose bounds are averaged for the objective, the last tenth of all."""
PROBE_SUBSET = 256
"""Rows whose evidence a short run maximises: its result does not matter."""
N_MEAN = 4_096
"""Default number of functions of a decoupled mean."""
START_ROWS, START_SEED = 10_000, 13
"""Most rows that tell the number of parameters of a likelihood, and the seed that draws them."""
MANY = 1 << 62
"""Number of rows that is never the least of several."""
WATCHED = ("kernel", "likelihood")
"""Parameters that the history names."""


@dataclass(frozen=True)
class Form:
    """Form in which a posterior is written and learned.

    Attributes
    ----------
    natural : float or None
        Rate of the natural gradients of q on the covariance's functions; None leaves q to Adam.
    hyperparameters : {"subset", "bound"}
        Where kernel and noise variance come from.
    parametrization : {"hybrid", "direct"}
    basis : {"kernel", "generalized"}
        Functions of the kernel, or functions with lengthscales of their own.
    shared : bool
        Whether the mean has the covariance's functions.
    decoupled : bool
        Whether the mean has functions of its own.
    n_mean : int or None
        Functions of a decoupled mean, the shared ones included; None for the default.
    precondition : {"blocks", "jacobi", None}
        Coordinates of the mean's weights.
    mean_rate : float or None
        Learning rate of the mean's weights; None for the default.
    moves_mean : bool
        Whether training moves the functions of the mean alone.
    basis_asked : str
        Name by which users ask for the basis.
    """

    natural: Any
    hyperparameters: str
    parametrization: Any = "hybrid"
    basis: str = "kernel"
    shared: bool = True
    decoupled: bool = False
    n_mean: int | None = None
    precondition: Precondition = None
    mean_rate: float | None = None
    moves_mean: bool = False
    basis_asked: str = "kernel"

    def beyond(self, covariance: int, n: int = MANY) -> int:
        """Return the number of functions of the mean beyond those of the covariance, of n rows."""
        if not self.decoupled:
            return 0
        number = min(N_MEAN, n) if self.n_mean is None else whole("n_mean", self.n_mean, 1)
        return max(0, number - covariance) if self.shared else number

    @property
    def scaled(self) -> bool:
        """True if functions have lengthscales of their own."""
        return self.basis == "generalized"


class Left(NamedTuple):
    """State of a run that another call goes on from: its steps, moments and the like, first sums.

    A stored model has no run.  ``streamed`` says that no fit has begun it.
    """

    run: Run | None = None
    learned: Mapping[str, np.ndarray] | None = None
    sums: scaling.Sums | None = None
    streamed: bool = False


@dataclass(frozen=True, eq=False)
class ByBatches(Trainer):
    """Training by mini-batches.

    Attributes
    ----------
    form : Form
    likelihood : str
    n_added : int
        Functions added per step until the bases are full.
    n_columns : int, optional
        Functions of the mean drawn for each step; default as many as the rows of the step.
    n_subset : int
        Rows whose exact evidence gives the hyper-parameters, if it does.
    train_points, average : bool
        Whether functions move, and whether the posterior is that of averaged parameters.
    validation : float, optional
        Share of rows that are held out.
    patience, check_every : int
    gradients : {"workers", "client"}
    """

    form: Form
    likelihood: str
    n_added: int
    n_columns: int | None
    n_subset: int
    train_points: bool
    average: bool
    validation: float | None
    patience: int
    check_every: int
    gradients: Literal["workers", "client"]

    def from_subset(self, recipe: Recipe) -> bool:
        """Return True if hyper-parameters are those of the evidence of some rows, and kept."""
        return recipe.optimizer is not None and self.form.hyperparameters == "subset"

    def learns(self, recipe: Recipe) -> bool:
        """Return True if hyper-parameters follow the bound while a fit goes on."""
        return recipe.optimizer is not None and not self.from_subset(recipe)

    def likelihood_at(self, noise_variance: float) -> Likelihood:
        """Return the likelihood that training starts from."""
        likelihood = likelihoods.by_name(self.likelihood)
        if not likelihood.standardised:
            return likelihood
        powers = [POWERS.get(name, 0.0) for name in likelihood.parameter_names]
        scales = np.array([power * np.log(noise_variance) for power in powers])
        start = np.where(np.array(powers) > 0, scales, likelihood.log_parameters)
        return likelihood.with_log_parameters(start)

    def check(self, recipe: Recipe, rows: data.Rows) -> None:
        """Raise SettingError for a generalised basis with another kernel than that it is of."""
        kernel = recipe.kernel(rows)
        if self.form.basis_asked != "kernel" and type(kernel) is not RBF:
            raise SettingError(
                f"basis={self.form.basis_asked!r} needs an RBF kernel, not "
                f"{type(kernel).__name__}: choose kernel='rbf(ard=true)' or basis='kernel'"
            )

    def check_number(self, recipe: Recipe, rows: data.Rows, n: int) -> None:
        """Raise InputError for more functions of the mean than rows to train on."""
        number, left = self.form.n_mean, n - _batches(recipe).held_out(n)
        if number is not None and number > left:
            raise InputError(f"n_mean={number} for {left} rows to train on: choose at most {left}")

    def with_knob(self, recipe: Recipe, value: int) -> tuple[Recipe, int | None]:
        """Return a recipe for batches of that many rows."""
        arrangement = dataclasses.replace(_batches(recipe), batch_rows=value)
        method: Any = dataclasses.replace(cast(Decoupled, recipe.method), batch_rows=value)
        return dataclasses.replace(recipe, arrangement=arrangement, method=method), None

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit by batches."""
        rows, n, batch = work.rows, len(work.rows), _batches(recipe).size(len(work.rows))
        most = recipe.inputs.count + self.form.beyond(recipe.inputs.count, n)
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
            knob=Knob("batch_rows", batch, f"batches of {batch} rows", work.knob.planned),
            extra=Extra(worker=2 * min(POOL_BYTES * len(work.units), rows_bytes(rows))),
            n_subset=min(self.n_subset, n) if self.from_subset(recipe) else 0,
            probes=lambda _: [probe],
        )

    def learn(self, problem: Problem) -> Outcome:
        """Ascend the bound, from where a checkpoint is if there is one."""
        recipe, sums = problem.recipe, problem.sums
        keeper = _keeper(problem)
        kept = keeper.read() if keeper else None
        bound = Bound.begun(problem, recipe.seed() if kept is None else int(kept["seed"]))
        others, validation = bound.held_out()
        bound = bound._replace(rows=bound.rows - len(validation.X))
        if kept is None and self.from_subset(recipe):
            bound = bound.with_hyperparameters(sums, others, len(validation.X))
        if kept is None:
            run = Run.begin(bound.first_parameters())
        else:
            run = Run.restore(Parameters, kept)
            _refuse_fewer(recipe.max_iter, run.step)
            logger.info("continuing after %d steps", run.step)
        here = self._where_gradients(problem.stage.executor)
        where = None if kept is None else kept["where"]
        with bound.stream(others, where, here.here) as stream:
            learning = bound.learning(here, stream.take, stream.where, validation)
            if kept is not None:
                learning.restore(kept)

            def finished(run: Run, history: History) -> Outcome:
                outcome = bound.concluded(run, history, sums.rows)
                return outcome._replace(left=Left(run.going_on(), learning.arrays(), sums))

            ascent = bound.ascent(sums, self.learns(recipe))
            with keeping_the_last(finished), freed_memory_is_kept:
                run, history = ascend(learning, run, ascent, bound.describe, WATCHED, keeper)
            outcome = finished(run, history)
        if self.learns(recipe):
            _remark_on_limits(bound.theta.kernel, ascent.at_bounds(run.result, "kernel"))
        return outcome

    def _where_gradients(self, executor: Executor) -> Executor:
        """Return the executor that computes gradients."""
        if self.gradients == "client" and executor.client is not None:
            return dataclasses.replace(executor, client=None, here=True)
        return executor


def _batches(recipe: Recipe) -> Batches:
    return cast(Batches, recipe.arrangement)


def _refuse_fewer(most: int, steps: int) -> None:
    """Raise SettingError if a checkpoint is further on than the fit is to go."""
    if steps > most:
        raise SettingError(
            f"max_iter={most}: the checkpoint is {steps} steps on; choose at least as many, or "
            "another checkpoint"
        )


def _keeper(problem: Problem) -> Snapshots | None:
    if problem.checkpoint is None:
        return None
    identity = hyperparameters.run_identity(problem, ("progress", "max_iter"))
    return Snapshots(
        problem.checkpoint.url, identity, problem.checkpoint.claim, problem.checkpoint.renew
    )


def _remark_on_limits(kernel: Kernel, limited: np.ndarray) -> None:
    """Warn if most of a kernel's hyper-parameters are at their limits: it may have diverged."""
    if 2 * limited.sum() > len(limited):
        names = [name for name, limit in zip(kernel.parameter_names, limited, strict=True) if limit]
        logger.warning(
            "training ended with %s at their limits: lower learning_rate, or look for columns "
            "without information",
            ", ".join(names),
        )


class Bound(NamedTuple):
    """Bound to ascend: rows with their scaling, the kernel's kind, and the likelihood of y.

    ``offset`` (p,) is a constant of the latent function, ``rows`` the number to train on.
    """

    recipe: Recipe
    stage: rounds.Rounds
    theta: Theta
    likelihood: Likelihood
    offset: np.ndarray
    rows: float
    seed: int

    @classmethod
    def begun(cls, problem: Problem, seed: int) -> Self:
        """Return the bound of all rows, from initial hyper-parameters."""
        recipe, stage, theta, rows = problem.recipe, problem.stage, problem.theta, problem.sums.rows
        likelihood = trainer_of(recipe).likelihood_at(theta.noise_variance)
        number, keys = min(START_ROWS, int(rows)), sampling.Keys((seed, START_SEED))
        if likelihood.sized_by_data:
            likelihood = likelihood.start(stage.quiet.sampled(number, keys).rows.y.ravel())
        offset = np.zeros(stage.rows.n_targets)
        if not likelihood.standardised and recipe.mean == "constant":
            usual = likelihood
            if stage.rows.beside:
                observed = stage.quiet.sampled(number, keys).rows.observed
                usual = likelihood.with_columns(observed.given if observed else {})
            offset = usual.offset(problem.sums.mean[stage.rows.n_features :])
        return cls(recipe, stage, theta, likelihood, offset, rows, seed)

    @property
    def trainer(self) -> ByBatches:
        """Settings of training by mini-batches."""
        return trainer_of(self.recipe)

    @property
    def method(self) -> Decoupled:
        """Method whose bound it is."""
        return cast(Any, self.recipe.method)

    @property
    def batch_rows(self) -> int:
        """Rows of a batch."""
        return _batches(self.recipe).size(int(self.rows))

    def describe(self, vector: np.ndarray) -> dict[str, float]:
        """Return the hyper-parameters of a vector by name."""
        names = [*self.theta.kernel.parameter_names, *self.likelihood.parameter_names]
        return dict(zip(names, map(float, np.exp(vector)), strict=True))

    def with_hyperparameters(
        self, sums: scaling.Sums, others: AllBut | None, n_held_out: int
    ) -> Self:
        """Return the bound with hyper-parameters from the exact evidence of some rows to train on.

        They are random: held-out rows have the smallest keys of their seed, and the next are taken.
        """
        stage, recipe = self.stage, self.recipe
        number, seed = min(self.trainer.n_subset, int(self.rows)), (self.seed, 12)
        keys = sampling.Keys(others.seed if others else seed)
        drawn = stage.quiet.sampled(n_held_out + number, keys)
        if others is not None:
            trained = drawn.keys > others.highest
            drawn = drawn.at(trained)
        k = len(self.theta.kernel.log_parameters)
        theta = dataclasses.replace(self.theta, inputs=None)
        bounds = hyperparameters.bounds(recipe, theta, sums, stage.scaling)[: k + 1]
        prior = recipe.constraints(theta, stage.scaling).prior
        part = hyperparameters.scaled(prior, len(drawn.rows.X) / self.rows)
        optimum = subset.trained_on(theta, drawn.rows, bounds, part, recipe.progress)
        noise = optimum.noise_variance
        theta = dataclasses.replace(self.theta, kernel=optimum.kernel, noise_variance=noise)
        logger.info("hyper-parameters are those of %d rows: %r", number, optimum.kernel)
        if not self.likelihood.standardised:  # then it has no noise variance
            return self._replace(theta=theta)
        return self._replace(theta=theta, likelihood=self.trainer.likelihood_at(noise))

    def first_parameters(self) -> Parameters:
        """Return the parameters that training starts from."""
        d, p = self.stage.rows.n_features, self.stage.rows.n_targets
        start = empty(self.theta.kernel.log_parameters, self.likelihood.log_parameters, d, p)
        if self.theta.inputs is None:
            return start
        form = self.trainer.form
        settings = form.parametrization, form.scaled, form.shared
        return with_covariance(start, self.theta.inputs, *settings)

    def held_out(self) -> tuple[AllBut | None, Block]:
        """Return the draw of rows to train on, and the rows that are never trained on."""
        stage = self.stage
        if self.trainer.validation is None:
            return None, no_rows(stage.rows)
        number, seed = _batches(self.recipe).held_out(int(self.rows)), (self.seed, 11)
        drawn = stage.sampled(number, sampling.Keys(seed))
        return AllBut(seed, int(drawn.keys.max())), drawn.rows

    def stream(self, others: AllBut | None, where: np.ndarray | None, fetch: bool) -> Stream:
        """Return batches of the rows to train on, from the beginning or from ``where``."""
        stage, settings = self.stage.quiet, (self.batch_rows, self.seed, others, where)
        given = stage.rows, stage.spans, stage.scaling, stage.executor, stage.dtype
        return Stream(*given, *settings, fetch=fetch)

    def batches(self) -> list[list[Share]]:
        """Return one pass over the rows of a call, in batches."""
        stage = self.stage
        whole = partition.Span(0, len(stage.rows))
        block = Stored(stage.rows, stage.scaling, stage.dtype).block(whole)
        node, batch = delayed(block, traverse=False), _batches(self.recipe).batch_rows or BATCH_ROWS
        shares = []
        for span in partition.parts(0, len(block.X), batch):
            lanes = partition.parts(*span, LANE_ROWS)
            shares.append([Share((node,), (slice(*lane),)) for lane in lanes])
        return shares

    def learning(
        self,
        executor: Executor,
        take: Callable[[], list[Share]],
        place: Callable[[], np.ndarray],
        validation: Block,
    ) -> Learning:
        """Return the problem that training ascends: batches, bases and rates."""
        n, batch, stage, own = int(self.rows), self.batch_rows, self.stage, self.trainer
        form, count = own.form, self.recipe.inputs.count
        covariance = count if self.theta.inputs is None else len(self.theta.inputs)
        mean = form.beyond(count, n)
        most = 2 * -(-mean // own.n_added) + 2 * -(-n // batch)
        bases = Bases(covariance, mean, own.n_added, form.scaled, form.shared, most)
        quiet = dataclasses.replace(executor, show=False)
        columns = own.n_columns or batch
        where = quiet, stage.dtype, stage.device
        prior = self.recipe.constraints(self.theta, stage.scaling).prior
        return Learning(
            Steps(self.method, self.rows, columns, self.seed, *where),
            self.theta.kernel,
            self.offset,
            take,
            place,
            bases,
            form.natural,
            form.precondition,
            validation,
            prior if own.learns(self.recipe) else None,
        )

    def ascent(self, sums: scaling.Sums, learn: bool) -> Ascent:
        """Return the settings of a run; ``learn`` lets hyper-parameters follow the bound."""
        recipe, own, hyper = self.recipe, self.trainer, float(learn)
        form, points, of_mean = own.form, float(own.train_points), float(own.form.moves_mean)
        rates = {"kernel": hyper, "likelihood": hyper, "root": 1.0}
        rates |= dict.fromkeys(("covariance_points", "covariance_scales"), points)
        rates |= dict.fromkeys(("mean_points", "mean_scales"), of_mean)
        pace = MEAN_PACE if form.mean_rate is None else form.mean_rate / recipe.learning_rate
        shared = pace if form.parametrization == "hybrid" else 1.0  # else those on Z not whitened
        rates |= {"weights": pace, "shared_weights": shared}
        return Ascent(
            recipe.max_iter,
            recipe.learning_rate,
            rates,
            self._limits(sums),
            check_every=own.check_every,
            patience=None if own.validation is None else own.patience,
            average_from=AVERAGE_FROM if own.average else None,
            progress=recipe.progress,
        )

    def _limits(self, sums: scaling.Sums) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return bounds of the hyper-parameters of the kernel and the likelihood."""
        recipe, likelihood, scale = self.recipe, self.likelihood, self.stage.scaling
        unit = scaling.target_variance(
            sums, scale, means.described(recipe.mean), recipe.beside_places(self.stage.rows)
        )
        if not likelihood.standardised:  # f has no unit
            scale, unit = dataclasses.replace(scale, y_scale=scale.y_scale * np.sqrt(unit)), 1.0
        kernel = hyperparameters.bounds(recipe, self.theta, sums, scale)
        k = len(self.theta.kernel.log_parameters)
        powers = [POWERS.get(name, 0.0) for name in likelihood.parameter_names]
        limited = likelihood.log_bounds + np.log(unit) * np.array(powers)[:, None]
        start = likelihood.log_parameters
        low, high = np.minimum(limited[:, 0], start), np.maximum(limited[:, 1], start)
        chosen = recipe.constraints(self.theta, self.stage.scaling)
        both = chosen.bounded(np.concatenate([kernel[:k], np.column_stack([low, high])]))
        return {"kernel": tuple(both[:k].T), "likelihood": tuple(both[k:].T)}

    def concluded(self, run: Run, history: History, rows: float, begun: int = 0) -> Outcome:
        """Return what a run has learned, its bound as that of ``rows`` rows.

        Bounds of steps before ``begun`` were those of other rows.
        """
        parameters, model = run.result, self.method
        with solve_threads(len(parameters.root)):
            prepared = model.prepare(self.theta.kernel, parameters, self.offset)
        gaussian = self.trainer.likelihood == "gaussian"
        noise = float(np.exp(parameters.likelihood[0])) if gaussian else 0.0
        theta = Theta(prepared.kernel, noise)
        last = max(1, min(SMOOTHED, len(run.history) // 10, run.step - begun))
        bounds = [float(row[0]) for row in run.history[-last:]]
        # as if held-out rows were trained on too
        objective = float(np.mean(bounds)) * rows / self.rows if bounds else None
        return Outcome(self.stage, theta, model.posterior(prepared), objective, history)


def trainer_of(recipe: Recipe) -> ByBatches:
    """Return the settings of training by mini-batches."""
    return cast(ByBatches, recipe.trainer)


def resumed(
    recipe: Recipe, stage: rounds.Rounds, posterior: Posterior, left: Left, history: History
) -> tuple[Bound, Left]:
    """Return the bound and the run that ascends it so far, on other rows."""
    likelihood = likelihoods.by_name(trainer_of(recipe).likelihood, posterior.state.likelihood)
    theta = Theta(posterior.theta.kernel, float(recipe.noise_variance))
    bound = Bound(recipe, stage, theta, likelihood, posterior.state.offset, 0.0, recipe.seed())
    if left.run is None:
        run = Run.begin(posterior.state.parameters(posterior.theta.kernel))
        names = [*theta.kernel.parameter_names, *likelihood.parameter_names]
        run = dataclasses.replace(run, **_rows_of(history, names))
        sums = sampling.describe(stage.rows, stage.spans, stage.executor)
        left = left._replace(run=run, sums=sums)
    # a call that is interrupted leaves the history of the call before as it is
    assert left.run is not None
    run = dataclasses.replace(left.run, history=list(left.run.history))
    return bound, left._replace(run=run)


@contextmanager
def keeping_the_last(finished: Callable[[Run, History], Outcome]) -> Iterator[None]:
    """Add the outcome of the previous step to an error of numbers that are not finite."""
    try:
        yield
    except Stopped as error:
        if len(error.run.parameters.root):
            # the very first step may have no posterior, and the last may be far from the rows
            with suppress(NumericalError), np.errstate(over="ignore", invalid="ignore"):
                error.outcome = finished(error.run, error.history)
        raise


def _rows_of(history: History, names: list[str]) -> dict[str, Any]:
    """Return the rows of a run's history, and its step, from the entries made of those rows."""
    rows = []
    for entry in history:
        told = entry["objective"], entry["gradient_norm"], entry["seconds"]
        logs = np.log([entry[name] for name in names])
        rows.append(np.array([*told, entry.get("validation", np.nan), *logs]))
    return {"step": len(rows), "history": rows}


def no_rows(rows: data.Rows) -> Block:
    """Return an empty block with the columns of ``rows``."""
    return Block(np.zeros((0, rows.n_features)), np.zeros((0, rows.n_targets)))
