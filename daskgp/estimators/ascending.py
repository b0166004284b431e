"""Stages of a fit by mini-batches: its start, the problem that it ascends, its end."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dask import delayed

from daskgp import data
from daskgp.data import partition
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.errors import NumericalError
from daskgp.estimators.outcome import Outcome
from daskgp.fit import control, hyperparameters, means, rounds, subset
from daskgp.fit.arrange.batches import BATCH_ROWS
from daskgp.fit.minibatches import LANE_ROWS, Share
from daskgp.fit.steps import Steps
from daskgp.fit.svi import Bases, Learning, Precondition
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.values import Block, Theta
from daskgp.models.variational.parameters import Parameters, empty, with_covariance
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import solve_threads
from daskgp.train.stochastic import Ascent, Run, Stopped

if TYPE_CHECKING:
    from daskgp.estimators.variational import VariationalGP

logger = logging.getLogger("daskgp")

History = list[dict[str, Any]]
POWERS = {"noise_variance": 1.0, "scale": 0.5}
"""Powers of the targets' variance by which bounds of a likelihood's parameters grow."""
AVERAGE_FROM = 200
"""Number of steps before averaging: an average would lag behind parameters that still move far."""
MEAN_PACE = 10.0
"""Learning rate of the mean's weights relative to others: their coordinates are of size one."""
SMOOTHED = 100
"""Maximum number of steps whose bounds are averaged for ``objective_``, the last tenth of all."""


@dataclass(frozen=True)
class Form:
    """How the posterior of an estimator is written and learned.

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

    @property
    def scaled(self) -> bool:
        """True if functions have lengthscales of their own."""
        return self.basis == "generalized"


class Fit(NamedTuple):
    """Problem of a fit: rows with their scaling, the kernel's kind, and the likelihood of y."""

    stage: rounds.Rounds
    theta: Theta
    likelihood: Likelihood
    offset: np.ndarray
    rows: float
    seed: int


def begin(
    estimator: VariationalGP, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, seed: int
) -> Fit:
    """Return the fit of a likelihood to rows, from initial hyper-parameters."""
    likelihood = estimator._likelihood(theta.noise_variance)
    offset = np.zeros(stage.rows.n_targets)
    if likelihood.discrete and estimator.mean == "constant":
        offset = likelihood.offset(sums.mean[stage.rows.n_features :])
    return Fit(stage, theta, likelihood, offset, sums.rows, seed)


def with_hyperparameters(
    estimator: VariationalGP, fit: Fit, sums: scaling.Sums, others: AllBut | None, n_held_out: int
) -> Fit:
    """Return the fit with hyper-parameters from the exact evidence of some rows to train on.

    They are random: held-out rows have the smallest keys of their seed, and the next are taken.
    """
    executor = dataclasses.replace(fit.stage.executor, show=False)
    number, seed = min(estimator.n_subset, int(fit.rows)), (fit.seed, 12)
    rows = fit.stage.rows, fit.stage.spans, fit.stage.scaling
    keys = sampling.Keys(others.seed if others else seed)
    drawn = sampling.draw(*rows, n_held_out + number, keys, executor)
    if others is not None:
        trained = drawn.keys > others.highest
        drawn = drawn.at(trained)
    k = len(fit.theta.kernel.log_parameters)
    theta = dataclasses.replace(fit.theta, inputs=None)
    bounds = hyperparameters.bounds(estimator, theta, sums, fit.stage.scaling)[: k + 1]
    prior = control.of(estimator, theta, fit.stage.scaling).prior
    part = hyperparameters.scaled(prior, len(drawn.rows.X) / fit.rows)
    optimum = subset.trained_on(theta, drawn.rows, bounds, part, estimator.progress)
    noise = optimum.noise_variance
    theta = dataclasses.replace(fit.theta, kernel=optimum.kernel, noise_variance=noise)
    logger.info("hyper-parameters are those of %d rows: %r", number, optimum.kernel)
    return fit._replace(theta=theta, likelihood=estimator._likelihood(noise))


def first_parameters(estimator: VariationalGP, fit: Fit) -> Parameters:
    """Return the parameters that training starts from."""
    d, p = fit.stage.rows.n_features, fit.stage.rows.n_targets
    start = empty(fit.theta.kernel.log_parameters, fit.likelihood.log_parameters, d, p)
    if fit.theta.inputs is None:
        return start
    form = estimator._form
    return with_covariance(start, fit.theta.inputs, form.parametrization, form.scaled, form.shared)


def learning(
    estimator: VariationalGP, fit: Fit, executor: Executor, take: Any, place: Any, validation: Block
) -> Learning:
    """Return the problem that training ascends: batches, bases and rates."""
    n, stage, form = int(fit.rows), fit.stage, estimator._form
    covariance = estimator._inputs.count if fit.theta.inputs is None else len(fit.theta.inputs)
    mean, batch = estimator._n_mean(n), estimator._arrangement().size(n)
    most = 2 * -(-mean // estimator.n_added) + 2 * -(-n // batch)
    bases = Bases(covariance, mean, estimator.n_added, form.scaled, form.shared, most)
    quiet = dataclasses.replace(executor, show=False)
    steps = Steps(
        estimator._model(),
        fit.rows,
        estimator.n_columns or batch,
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
        form.natural,
        form.precondition,
        validation,
        control.of(estimator, fit.theta, stage.scaling).prior if estimator._learns else None,
    )


def ascent(estimator: VariationalGP, fit: Fit, sums: scaling.Sums, learn: bool) -> Ascent:
    """Return the settings of a run; ``learn`` lets hyper-parameters follow the bound."""
    hyper, form = float(learn), estimator._form
    points, of_mean = float(estimator.train_points), float(form.moves_mean)
    rates = {"kernel": hyper, "likelihood": hyper, "root": 1.0}
    rates |= dict.fromkeys(("covariance_points", "covariance_scales"), points)
    rates |= dict.fromkeys(("mean_points", "mean_scales"), of_mean)
    pace = MEAN_PACE if form.mean_rate is None else form.mean_rate / estimator.learning_rate
    shared = pace if form.parametrization == "hybrid" else 1.0  # else those on Z are not whitened
    rates |= {"weights": pace, "shared_weights": shared}
    scale = fit.stage.scaling
    unit = scaling.target_variance(sums, scale, means.described(estimator.mean))
    if fit.likelihood.discrete:  # f has no unit
        scale, unit = dataclasses.replace(scale, y_scale=scale.y_scale * np.sqrt(unit)), 1.0
    kernel = hyperparameters.bounds(estimator, fit.theta, sums, scale)
    k = len(fit.theta.kernel.log_parameters)
    powers = [POWERS.get(name, 0.0) for name in fit.likelihood.parameter_names]
    own = fit.likelihood.log_bounds + np.log(unit) * np.array(powers)[:, None]
    start = fit.likelihood.log_parameters
    own = np.column_stack([np.minimum(own[:, 0], start), np.maximum(own[:, 1], start)])
    chosen = control.of(estimator, fit.theta, fit.stage.scaling)
    both = chosen.bounded(np.concatenate([kernel[:k], own]))
    limits = {"kernel": tuple(both[:k].T), "likelihood": tuple(both[k:].T)}
    return Ascent(
        estimator.max_iter,
        estimator.learning_rate,
        rates,
        limits,
        check_every=estimator.check_every,
        patience=None if estimator.validation is None else estimator.patience,
        average_from=AVERAGE_FROM if estimator.average else None,
        progress=estimator.progress,
    )


def describing(estimator: VariationalGP, fit: Fit) -> Any:
    """Return a function that names the hyper-parameters of a vector."""
    names = [*fit.theta.kernel.parameter_names, *fit.likelihood.parameter_names]

    def describe(vector: np.ndarray) -> dict[str, float]:
        return dict(zip(names, map(float, np.exp(vector)), strict=True))

    return describe


def held_out(estimator: VariationalGP, fit: Fit) -> tuple[AllBut | None, Block]:
    """Return the draw of rows to train on, and the rows that are never trained on."""
    stage = fit.stage
    if estimator.validation is None:
        return None, no_rows(stage.rows)
    number = estimator._arrangement().held_out(int(fit.rows))
    seed = fit.seed, 11
    rows, keys = (stage.rows, stage.spans, stage.scaling), sampling.Keys(seed)
    drawn = sampling.draw(*rows, number, keys, stage.executor)
    return AllBut(seed, int(drawn.keys.max())), drawn.rows


def where_gradients(estimator: VariationalGP, executor: Executor) -> Executor:
    """Return the executor that computes gradients."""
    if estimator.gradients == "client" and executor.client is not None:
        return dataclasses.replace(executor, client=None, here=True)
    return executor


def batches(estimator: VariationalGP, fit: Fit) -> list[list[Share]]:
    """Return one pass over the rows of a call, in batches."""
    stage = fit.stage
    block = stage.scaling.block(*stage.rows.read(0, len(stage.rows)), stage.dtype)
    node, n = delayed(block, traverse=False), len(block.X)
    batch = estimator.batch_rows or BATCH_ROWS
    shares = []
    for span in partition.parts(0, n, batch):
        lanes = partition.parts(*span, LANE_ROWS)
        shares.append([Share((node,), (slice(*lane),)) for lane in lanes])
    return shares


def resumed(estimator: VariationalGP, stage: rounds.Rounds) -> tuple[Fit, Run]:
    """Return the fit and run so far, on other rows."""
    posterior = estimator.solved_
    likelihood = estimator.likelihood_
    theta = Theta(posterior.theta.kernel, float(estimator.noise_variance))
    fit = Fit(stage, theta, likelihood, posterior.state.offset, 0.0, estimator._seed())
    if not hasattr(estimator, "_run"):  # read from a store
        run = Run.begin(posterior.state.parameters(posterior.theta.kernel))
        names = [*theta.kernel.parameter_names, *likelihood.parameter_names]
        estimator._run = dataclasses.replace(run, **_retold(estimator.history_, names))
        estimator._sums = sampling.describe(stage.rows, stage.spans, stage.executor)
    # a call that is interrupted leaves the history of the call before as it is
    return fit, dataclasses.replace(estimator._run, history=list(estimator._run.history))


@contextmanager
def keeping_the_last(remember: Callable[[Run, History], None]) -> Iterator[None]:
    """Keep the previous step if training meets numbers that are not finite."""
    try:
        yield
    except Stopped as error:
        if len(error.run.parameters.root):
            with suppress(NumericalError):  # the very first step may have no posterior
                remember(error.run, error.history)
        raise


def concluded(
    estimator: VariationalGP, fit: Fit, run: Run, history: History, rows: float, begun: int = 0
) -> Outcome:
    """Return what a run has learned, its bound as that of ``rows`` rows.

    Bounds of steps before ``begun`` were those of other rows.
    """
    parameters, model = run.result, estimator._model()
    with solve_threads(len(parameters.root)):
        prepared = model.prepare(fit.theta.kernel, parameters, fit.offset)
    noise = float(np.exp(parameters.likelihood[0])) if estimator.likelihood == "gaussian" else 0.0
    theta = Theta(prepared.kernel, noise)
    last = max(1, min(SMOOTHED, len(run.history) // 10, run.step - begun))
    bounds = [float(row[0]) for row in run.history[-last:]]
    # as if held-out rows were trained on too
    objective = float(np.mean(bounds)) * rows / fit.rows if bounds else None
    return Outcome(fit.stage, theta, model.posterior(prepared), objective, history)


def _retold(history: History, names: list[str]) -> dict[str, Any]:
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
