"""Hyper-parameters: where they start, their bounds, and their training."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Self, cast

import dask
import numpy as np

from daskgp import train
from daskgp.checks import text_of, whole
from daskgp.data import feature_units, partition, whole_dates
from daskgp.data.blocks import sampling
from daskgp.data.stores import checkpoints
from daskgp.errors import SettingError
from daskgp.fit import constraints, means, rounds, subset
from daskgp.fit.inputs import Inputs
from daskgp.fit.recipe import Problem, Recipe, Run
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import averages
from daskgp.kernels.compose import beside_places, derived_of, factor_beside
from daskgp.kernels.registry import identity
from daskgp.kernels.units import Size, left_open, opened, without_unit
from daskgp.models import inducing, scaling
from daskgp.models.additive import Additive
from daskgp.models.columns import RADIUS
from daskgp.models.values import Theta
from daskgp.train import callbacks, newton
from daskgp.train.callbacks import calling

logger: logging.Logger = logging.getLogger("daskgp")

NOISE_BOUNDS = (1e-6, 1e2)
TOLERATED = 25.0
"""Nats of the evidence of all rows that training on some blocks may lose."""
FIRST, SECOND = 8, 32
"""Number of blocks in the first stage of ``train_blocks="auto"``, and in the second."""
COARSE, NEGLIGIBLE = 0.25, 1e-4
"""Largest variance of the error of averages that is not warned of: as a part of the noise variance,
and, where that is less, of the variance of points."""
CURVED = 16
"""Maximum number of blocks that curvature is taken from: one gradient for each hyper-parameter."""
ROUGH = 0.5
"""Tolerance of every stage but the last, in nats per hyper-parameter."""
SEVERAL = 128
"""Maximum number of blocks from which the covariance of block gradients is estimated."""
MARGIN = 1.1
"""Factor on the number of blocks that seem enough: an estimate from few blocks is rough."""
GROWTH = 4
"""Maximum growth of the number of blocks per stage: each then starts near its optimum."""
LEAST_SPREAD = 1e-3
"""Least variance of targets that variances begin with."""
PRIOR_STEP = 1e-4
"""Step of the differences that the curvature of a prior is taken from."""
LEAP = 1.25
"""Ratio of all blocks to those of a stage below which the stage takes all of them."""


class Sampled(NamedTuple):
    """A recipe for some rows, and a random sample of these."""

    recipe: Recipe
    stage: rounds.Rounds
    sums: scaling.Sums
    keys: sampling.Keys
    sample: sampling.Drawn

    @classmethod
    def of(cls, recipe: Recipe, stage: rounds.Rounds, sums: scaling.Sums) -> Self:
        """Return the sample that a start is found by."""
        number = max(inducing.sample_rows(recipe.inputs.count), subset.ROWS + 1)
        keys = sampling.Keys.by_content((recipe.seed(), 1), stage.rows, sums)
        return cls(recipe, stage, sums, keys, stage.sampled(number, keys))

    def evidence(self) -> subset.Evidence | None:
        """Return the exact evidence of a subset of rows; None where no start is searched for."""
        recipe, stage = self.recipe, self.stage
        known = recipe.method.uses_kernel and recipe.method.has_evidence
        if recipe.optimizer is None or not (known and recipe.traits.searches_start):
            return None
        few = subset.subset_rows(stage, self.sample, self.keys)
        if len(few.X) < 2:
            return None
        share = few.y.size / (self.sums.rows * stage.rows.n_targets)

        def prior(theta: Theta) -> train.Evaluate:
            return scaled(recipe.constraints(theta, stage.scaling).prior, share)

        limits = partial(bounds, recipe, sums=self.sums, scale=stage.scaling)
        return subset.Evidence(few, limits, recipe.tol, prior)


def start(recipe: Recipe, stage: rounds.Rounds, sums: scaling.Sums) -> subset.Start:
    """Return the initial hyper-parameters, from a sample of rows."""
    own, sampled = recipe.inputs, Sampled.of(recipe, stage, sums)
    sample = sampled.sample
    places = stage.rows.columns.places(stage.scaling.places(sample.rows.X))
    scaling.remark_on_repeats(sums, places)
    rows = stage.rows
    whole_dates.warn(rows.feature_names, places, rows.feature_units)
    where = (at if isinstance(at, int) else None for at in rows.columns.where)
    ends = [None if at is None else (sums.low[at], sums.high[at]) for at in where]
    feature_units.warn_of_stand_ins(rows.feature_names, rows.feature_units, ends)
    kernel = recipe.choices_in_units(stage)[0]
    _say_without_unit(recipe.kernel(rows), rows.n_features, recipe.size(stage.scaling))
    measured = np.ones(rows.n_features, bool)
    measured[list(recipe.beside_places(rows))] = False
    median = subset.median_distances(np.where(measured, sample.rows.X, 0.0))
    # a distance over d columns is about sqrt(d) times that over one; a column left out has none
    uses = stage.scaling.uses & measured
    per_column = np.where(uses, median.per_column, 0.0) * np.sqrt(uses.sum())
    distances = subset.Distances(per_column, median.euclidean)
    periods = subset.periods(kernel, sample.smallest(subset.ROWS).rows, stage.rows.n_targets)
    plain = Theta(periods.resolved(kernel, distances), _first_noise(recipe, sums))
    plain = recipe.constraints(plain, stage.scaling).started(plain)
    recipe.asked.check_sizes(plain)
    begun = _searched(sampled, distances, periods)
    starts = [begun, subset.Start(plain)]
    # few inducing inputs may not carry a lengthscale as short as the evidence of a subset favours
    if begun.theta == plain or not own.count or recipe.method.keeps_rows:
        starts = [begun]
    placed = own.placed(stage, sums)
    candidates = [_with_inputs(own, stage, placed, sample.rows.X, one) for one in starts]
    chosen = candidates[0]
    if len(candidates) > 1:
        units = partition.sample(stage.units, FIRST, np.random.default_rng(0))
        part = dataclasses.replace(stage, units=units)
        # methods with inducing inputs are
        model = cast(Additive, recipe.objective_of(stage))
        chosen = max(candidates, key=lambda one: model.value(one.theta, part))
    if placed is None:
        own.warn(chosen.theta.inputs, sums, stage.scaling, recipe.extents(stage.rows))
    return chosen._replace(searched=begun.searched, evidence=begun.evidence, sample=sample.rows.X)


def _first_noise(recipe: Recipe, sums: scaling.Sums) -> float:
    """Return the noise variance given, or where training begins, which is for usual weights."""
    given = float(recipe.noise_variance)
    return given if recipe.optimizer is None else given * sums.usual


def _say_without_unit(kernel: Kernel, d: int, size: Size) -> None:
    """Log which numbers of a user's kernel have no unit of the data, so that they are scaled."""
    names = without_unit(kernel, d, size)
    if names:
        logger.info(
            "%s of the kernel %s taken in standardised units, as the columns or targets concerned "
            "have scales of their own: standardize=False for those of the data",
            ", ".join(names),
            "is" if len(names) == 1 else "are",
        )


def _with_inputs(
    own: Inputs,
    stage: rounds.Rounds,
    placed: np.ndarray | None,
    sample: np.ndarray,
    begun: subset.Start,
) -> subset.Start:
    """Return a start with its inducing inputs, if the method has any."""
    inputs = placed
    if inputs is None:
        inputs = own.choose(stage, sample, begun.theta.kernel)
    return begun._replace(theta=dataclasses.replace(begun.theta, inputs=inputs))


def _searched(
    sampled: Sampled, distances: subset.Distances, periods: subset.Periods
) -> subset.Start:
    """Return the kernel and noise variance to start from; a kernel with all values set is kept."""
    recipe, stage, sums, *_ = sampled
    noise, choices = _first_noise(recipe, sums), recipe.choices_in_units(stage)
    kernel = choices[0]
    theta = Theta(periods.resolved(kernel, distances), noise)
    given = kernel == theta.kernel
    theta = recipe.constraints(theta, stage.scaling).started(theta)
    evidence = sampled.evidence()
    if evidence is None:
        return subset.Start(theta)
    free, few = opened(kernel), evidence.few
    if recipe.begins_at_spread:
        variance = max(float(few.y.var()), LEAST_SPREAD)
        noise, distances = variance * noise, distances._replace(variance=variance)
    instead = Theta(subset.periods(free, few, few.y.shape[1]).resolved(free, distances), noise)
    evidence = dataclasses.replace(evidence, instead=instead)
    if given:  # nothing is left to search for
        return subset.at(evidence, theta)._replace(evidence=evidence)
    names = np.array([name.rpartition(".")[2] for name in theta.kernel.parameter_names])
    lengths = np.char.startswith(names, "lengthscale") | np.char.startswith(names, "period")
    found = subset.search(evidence, choices, noise, distances, periods)
    if (left_open(kernel, stage.rows.n_features) & lengths).any():
        return found
    return found._replace(evidence=evidence)


def scaled(prior: constraints.LogPrior, share: float) -> train.Evaluate:
    """Return a log prior times a share, and its gradient, as a function."""

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = prior(vector)
        return share * value, share * gradient

    return evaluate


def _most_blocks(asked: int | Literal["auto"] | None, total: int, auto: int) -> int:
    """Return how many of ``total`` blocks ``train_blocks`` asks for; ``auto`` if it is "auto"."""
    chosen = auto if asked == "auto" else asked
    return total if chosen is None else min(whole("train_blocks", chosen, 1), total)


def _warn_of_few_blocks(chosen: int | Literal["auto"] | None, total: int) -> None:
    """Warn of a number of blocks to train on that leaves none out."""
    if chosen is not None and chosen != "auto" and chosen >= total:
        logger.warning(
            "train_blocks=%d has no effect on rows in %s a smaller block_rows",
            chosen,
            f"{total} blocks: choose fewer, or"
            if total > 1
            else "1 block: leave it out, or choose",
        )


class Learned(NamedTuple):
    """Hyper-parameters, the history of their training and standard errors of their logarithms.

    The errors (k,) are NaN where they are unknown, and followed by those of what kernels derive
    from them; ``stopped`` says that a callback wished so.
    """

    theta: Theta
    history: list[dict[str, Any]]
    errors: np.ndarray
    stopped: bool = False


def train_theta(problem: Problem) -> Learned:
    """Train the hyper-parameters, or keep them if there is no optimizer."""
    recipe, stage, begun, theta = problem.recipe, problem.stage, problem.start, problem.theta
    unknown = np.full(len(theta.to_vector(False)), np.nan)
    if recipe.optimizer is None:
        return Learned(theta, [], unknown)
    _warn_of_few_blocks(recipe.train_blocks, len(stage.units))
    run = plan_run(problem)
    trained = recipe.trainer.train(problem, run)
    errors = unknown
    if trained.curvature is not None and trained.curvature.exact:
        derived = derived_of(theta.from_vector(trained.vector).kernel)
        directions = np.eye(len(unknown) + len(derived), len(trained.vector))
        for row, one in zip(directions[len(unknown) :], derived, strict=True):
            row[:] = 0.0
            row[: len(one.gradient)] = one.gradient
        errors = newton.errors_along(directions, trained.vector, trained.curvature, run.bounds)
    found = theta.from_vector(trained.vector)
    own = recipe.inputs
    if begun.searched and own.finer and found.inputs is not None:
        inputs = f"{len(found.inputs)} {own.label}"
        begun.searched.warn_of_coarse(found, inputs, f"{own.finer}, or take LMA")
    if begun.evidence and constraints.NOISE not in constraints.fixed_values(recipe.asked.fixed):
        begun.evidence.warn_of_nothing(theta, found)
    return Learned(found, trained.history, errors, trained.stopped)


def plan_run(problem: Problem) -> Run:
    """Return the run that trains from a start."""
    recipe, stage, begun, sums, *_ = problem
    theta, values = begun.theta, begun.rows * stage.rows.n_targets
    curvature = begun.curvature and begun.curvature.scaled(1.0 / values)
    limits = bounds(recipe, theta, sums, stage.scaling)
    varies = newton.varies(limits)[: len(theta.kernel.parameter_names)]
    prior = recipe.constraints(theta, stage.scaling).prior
    return Run(
        np.clip(theta.to_vector(recipe.inputs.trained), *limits.T),
        limits,
        partial(_named, theta),
        _tape(problem),
        subset.with_noise(theta.kernel.coordinates(varies)),
        curvature,
        SECOND if begun.refined else FIRST,
        prior,
        _values(stage.units, stage),
    )


def refines(problem: Problem) -> bool:
    """Return True if the order of blocks is worth making again from lengthscales of some blocks.

    That is where columns have lengthscales of their own, or the subset leaves several kernels.
    """
    recipe, stage, begun = problem.recipe, problem.stage, problem.start
    if recipe.optimizer is None or not recipe.traits.knows_enough_blocks:
        return False
    uses = stage.scaling.uses
    groups = [[j for j in group if uses[j]] for group in recipe.tied(stage.rows)]
    lengths = uses.sum() - sum(len(group) - 1 for group in groups if group)
    return bool(begun.rivals) or lengths > 1


def best_rival(
    problem: Problem, training: Callable[[Problem], train.Trained | None]
) -> tuple[subset.Start, train.Trained] | None:
    """Return the start whose kernel trains to the largest objective, there; None without any."""
    best: tuple[float, subset.Start, train.Trained] | None = None
    begun = problem.start
    for rival in (begun.theta, *begun.rivals):
        theta = dataclasses.replace(rival, inputs=begun.theta.inputs)
        with calling(None):  # the history begins later
            trained = training(problem._replace(start=begun._replace(theta=theta), checkpoint=None))
        if trained is None:
            continue
        value = max((entry["objective"] for entry in trained.history), default=-np.inf)
        if best is None or value > best[0]:
            there = theta.from_vector(trained.vector)
            best = value, begun._replace(theta=there, rivals=()), trained
    return best and best[1:]


def refined(problem: Problem) -> subset.Start:
    """Return the start whose kernel has the largest evidence on the first blocks.

    Each kernel is trained on them: the subset alone can hardly tell them apart, and its
    lengthscales are rough.  Inputs that are chosen are those for the lengthscales found.
    """
    recipe, stage, begun, sums, *_ = problem
    total = len(stage.units)
    line = np.random.default_rng(recipe.random_state).permutation(total)
    number = min(FIRST, _most_blocks(recipe.train_blocks, total, total))
    units = tuple(stage.units[j] for j in np.sort(line[:number]))
    rows, own = sum(unit.own.rows for unit in units), recipe.inputs
    more: dict[str, Any] = {"quiet": True, "verify": False, "tol": max(ROUGH, recipe.tol)}
    found = best_rival(problem, lambda part: _on(part, plan_run(part), units, **more))
    assert found is not None
    best, trained = found
    curvature = trained.curvature and trained.curvature._replace(exact=False)
    best = best._replace(curvature=curvature, rows=rows, refined=True)
    if own.trained:
        return best
    assert begun.sample is not None
    return _with_inputs(own, stage, own.placed(stage, sums), begun.sample, best)


def on_blocks(problem: Problem, run: Run) -> train.Trained:
    """Maximise the objective of the blocks to train on."""
    recipe, stage = problem.recipe, problem.stage
    settings = _settings(recipe, run)
    if recipe.traits.knows_enough_blocks and settings.chosen(len(run.start)) == "trust-region":
        return on_growing_blocks(problem, run)
    if recipe.train_blocks == "auto":
        logger.info(
            "hyper-parameters trained on %d of %d blocks; the loss compared with training on "
            "all (train_blocks=None) is not known with optimizer=%r or trained inputs",
            min(SECOND, len(stage.units)),
            len(stage.units),
            recipe.optimizer,
        )
    number = _most_blocks(recipe.train_blocks, len(stage.units), SECOND)
    units = partition.sample(stage.units, number, np.random.default_rng(recipe.random_state))
    trained = _on(problem, run, units, quiet=True)
    found, exact = problem.theta.from_vector(trained.vector), problem.start.searched
    # what rounding hides is little where exact evidence of some rows is nearly the largest
    good = trained.early == train.LOST and exact is not None and exact.lost(found) <= subset.COARSE
    if trained.early and not good:
        logger.warning("%s", trained.early)
    return trained


def on_growing_blocks(problem: Problem, run: Run) -> train.Trained:
    """Maximise on some blocks, then on more, until training on all of them would gain little.

    With F the curvature and V the covariance of the gradients of single blocks, training on b of M
    random blocks loses (M / b - 1) tr(F^-1 V) / 2 nats of the evidence of all blocks on average.
    Each stage conditions its blocks on those that are nearest under the hyper-parameters so far,
    and takes curvature from the first CURVED of its blocks.
    """
    recipe, stage, theta = problem.recipe, problem.stage, problem.theta
    total, enough = len(stage.units), recipe.train_blocks == "auto"
    most, number = _most_blocks(recipe.train_blocks, total, total), run.blocks
    line = np.random.default_rng(recipe.random_state).permutation(total)
    result, lost, needed = train.Trained(run.start, []), np.nan, most
    while True:
        number = most if most < LEAP * number else number
        units, leading, several = (
            tuple(stage.units[j] for j in np.sort(line[:count]))
            for count in (number, CURVED, min(number, SEVERAL))
        )
        last = number >= needed  # by the estimate so far
        more: dict[str, Any] = {"few": leading if number > CURVED else (), "quiet": True}
        more["verify"] = last or number == SECOND
        more["tol"] = recipe.tol if last or number <= SECOND else max(ROUGH, recipe.tol)
        staged = run._replace(tape=run.tape and run.tape.stage(number if result.history else 0))
        trained = _on(problem, staged, units, **more)
        result = trained._replace(history=continued(result.history, trained.history))
        if number == most or trained.stopped:
            break
        curvature = trained.curvature and trained.curvature.scaled(1.0 / _values(units, stage))
        if number < SECOND:  # too few blocks for the curvature of all
            curvature = curvature and curvature._replace(exact=False)
        run = run._replace(start=trained.vector, curvature=curvature)
        if enough and number >= SECOND:
            spread = _spread(problem, trained, units, several, run.bounds)
            lost = 0.5 * (total / number - 1.0) * spread
            if lost <= TOLERATED and (last or number == SECOND):
                break
            needed = int(np.ceil(MARGIN * total * spread / (spread + 2.0 * TOLERATED)))
            needed = min(max(needed, int(1.25 * number)), most)
        stage = recipe.arrangement.settle(stage, theta.from_vector(trained.vector))
        problem = problem._replace(stage=stage)
        before, number = number, min(needed, GROWTH * number)
        if not callbacks.has_room(number / before):
            callbacks.cut()
            return result._replace(stopped=True)
    if result.stopped:
        return result
    if number == total:
        lost = 0.0
    elif not enough and number > 1:
        lost = (total / number - 1.0) / 2 * _spread(problem, result, units, several, run.bounds)
    say_lost(result, lost, f"{number} of {total} blocks", "train_blocks=None")
    return result


def say_lost(trained: train.Trained, lost: float, some: str, setting: str) -> None:
    """Log what hyper-parameters were trained on and how it ended; record the loss.

    The ``setting`` trains on all.
    """
    if trained.early:
        logger.warning("%s", trained.early)
    if trained.history and not np.isnan(lost):
        trained.history[-1]["expected_loss"] = float(lost)
    logger.info(
        "hyper-parameters trained on %s: %s nats of the evidence of all rows are lost compared "
        "with training on all (%s)",
        some,
        "an unknown number of" if np.isnan(lost) else f"about {lost:.0f}",
        setting,
    )


def _spread(
    problem: Problem,
    trained: train.Trained,
    units: Sequence[partition.Unit],
    several: tuple[partition.Unit, ...],
    limits: np.ndarray,
) -> float:
    """Return tr(F^-1 V) over the hyper-parameters that are at no bound.

    F is the mean curvature of the blocks trained on; V is estimated on ``several`` of them.
    """
    assert trained.curvature is not None
    part = dataclasses.replace(problem.stage, units=several)
    model = cast(Any, problem.recipe.objective_of(problem.stage))
    each = model.block_gradients(problem.theta.from_vector(trained.vector), part)
    free = (trained.vector > limits[:, 0] + newton.ATOP) & (
        trained.vector < limits[:, 1] - newton.ATOP
    )
    if not free.any():
        return 0.0
    values, vectors = np.linalg.eigh(trained.curvature.matrix[np.ix_(free, free)])
    values = np.maximum(values, newton.FLOOR * len(units)) / len(units)
    along = (each[:, free] - each[:, free].mean(axis=0)) @ vectors
    return float((along.var(axis=0, ddof=1) / values).sum())


def _on(
    problem: Problem,
    run: Run,
    units: tuple[partition.Unit, ...],
    few: tuple[partition.Unit, ...] = (),
    **more: Any,
) -> train.Trained:
    """Maximise the objective of some blocks; ``more`` holds settings of the loop.

    Curvature is that of the blocks ``few``, if there are any.
    """
    values = _values(units, problem.stage)
    if few:
        more["sampled"] = _objective(problem, few, values / _values(few, problem.stage))
    return maximise(problem.recipe, _objective(problem, units), run, values, **more)


def _objective(
    problem: Problem, units: tuple[partition.Unit, ...], factor: float = 1.0
) -> train.Evaluate:
    """Return the objective of some blocks times a factor, and its gradient, as a function."""
    with_inputs = problem.recipe.inputs.trained
    part = dataclasses.replace(problem.stage, units=units)
    model = problem.recipe.objective_of(problem.stage)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        objective = model.evaluate(problem.theta.from_vector(vector), part)
        gradient = objective.gradient.to_vector(with_inputs)
        if len(gradient) != len(vector):
            _refuse_gradient(problem, len(objective.gradient.kernel))
        return factor * objective.value, factor * gradient

    return evaluate


def _refuse_gradient(problem: Problem, found: int) -> None:
    """Raise SettingError for a gradient by ``found`` parameters of the kernel, or by no inputs."""
    kernel, name = problem.theta.kernel, problem.recipe.method.name
    names = ", ".join(kernel.parameter_names) or "none"
    raise SettingError(
        f"the gradient of {name} has {found} numbers for the parameters of the kernel, which are "
        f"{len(kernel.parameter_names)} ({names}): return a ThetaBar with one for each, and with "
        "inputs where these are trained"
    )


def _values(units: Sequence[partition.Unit], stage: rounds.Rounds) -> int:
    return sum(unit.own.rows for unit in units) * stage.rows.n_targets


def maximise(
    recipe: Recipe, evaluate: train.Evaluate, run: Run, values: int, **more: Any
) -> train.Trained:
    """Maximise an objective of ``values`` target values, and the prior, by the optimizer.

    ``more`` holds further settings of the loop.
    """
    if run.prior.terms:
        prior = scaled(run.prior, values / run.values)
        evaluate = train.plus(evaluate, prior)
        if more.get("sampled"):
            more["sampled"] = train.plus(more["sampled"], prior)
        if more.get("information"):
            more["information"] = with_curvature(more["information"], prior)
    curvature = run.curvature and run.curvature.scaled(values)
    settings = _settings(recipe, run, curvature=curvature, **more)
    return train.maximise(evaluate, run.start, run.bounds, values, settings, run.describe, run.tape)


def with_curvature(
    information: Callable[[np.ndarray], np.ndarray], prior: train.Evaluate
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the information of data and a prior of independent hyper-parameters."""

    def both(vector: np.ndarray) -> np.ndarray:
        ahead, behind = (prior(vector + step)[1] for step in (PRIOR_STEP, -PRIOR_STEP))
        return information(vector) + np.diag((behind - ahead) / (2 * PRIOR_STEP))

    return both


def _settings(recipe: Recipe, run: Run, **more: Any) -> train.Training:
    """Return the settings of a training loop; ``more`` comes before those of the recipe."""
    assert recipe.optimizer is not None
    settings: dict[str, Any] = {
        "max_iter": recipe.max_iter,
        "tol": recipe.tol,
        "learning_rate": recipe.learning_rate,
        "progress": recipe.progress,
        "hyperparameters": run.hyperparameters,
        "coordinates": run.coordinates,
        "precision": recipe.dtype,
    }
    return train.Training(recipe.optimizer, **settings | more)


def continued(history: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a history followed by that of the next stage, whose counts go on."""
    before = history[-1] if history else {}
    counts = {name: before.get(name, 0) for name in ("iteration", "evaluations", "seconds")}
    return history + [
        {**entry, **{name: entry[name] + so_far for name, so_far in counts.items()}}
        for entry in more
    ]


def bounds(recipe: Recipe, theta: Theta, sums: scaling.Sums, scale: scaling.Scaling) -> np.ndarray:
    """Return bounds (k, 2) of the vector of hyper-parameters; equal ones for columns left out."""
    d = len(scale.x_scale)
    spread = (sums.high[:d] - sums.low[:d]) / scale.x_scale
    kernel, noise = theta.kernel.log_bounds(spread), np.log([NOISE_BOUNDS])
    # an input with its own lengthscale may turn out not to matter
    single = np.array(["lengthscale[" in name for name in theta.kernel.parameter_names], dtype=bool)
    single &= len(spread) > 1
    kernel[single, 1] += np.log(recipe.traits.ard_reach)
    # bounds of variances are for targets of variance 1
    mean, others = means.described(recipe.mean), beside_places(theta.kernel, d)
    unit = scaling.target_variance(sums, scale, mean, others)
    variances = ["variance" in name for name in theta.kernel.parameter_names]
    kernel[variances] += np.log(unit)
    # the noise variance is that of a row of weight 1, which may be far from the weights there are
    limits = np.concatenate([kernel, noise + np.log(unit * sums.usual)])
    # the user's start is always allowed, and room about a period, of which data may have many
    start = theta.to_vector(with_inputs=False)
    period = [name.endswith("period") for name in theta.kernel.parameter_names]
    kernel_start = start[:-1][period]
    limits[:-1][period, 0] = np.minimum(limits[:-1][period, 0], kernel_start - np.log(2.0))
    limits[:-1][period, 1] = np.maximum(limits[:-1][period, 1], kernel_start + np.log(2.0))
    limits = np.stack([np.minimum(limits[:, 0], start), np.maximum(limits[:, 1], start)], axis=1)
    idle = [scaling.left_out(unit, scale.uses) for unit in theta.kernel.units(d)]
    limits[:-1][idle] = start[:-1][idle, None]
    limits = recipe.constraints(theta, scale).bounded(limits)
    if not recipe.inputs.trained or theta.inputs is None:
        return limits
    return np.concatenate([limits, np.tile([-np.inf, np.inf], (theta.inputs.size, 1))])


def warn_of_footprints(
    theta: Theta, scale: scaling.Scaling, sums: scaling.Sums, names: Sequence[str]
) -> None:
    """Warn about areas so wide that the error of their nodes is large beside the noise."""
    known = sums.error / max(sums.rows, 1.0) / float(np.min(scale.y_scale)) ** 2
    noise = float(theta.noise_variance + known)
    for part in averages(theta.kernel):
        if part.of_points or part.is_exact:
            continue
        row = np.zeros((1, len(names)))
        ((j, places),) = part.extents(len(names)).items()
        row[0, j] = sums.high[j] / scale.x_scale[j]
        if part.sphere:
            row[0, places[0]] = RADIUS / scale.x_scale[places[0]]
        height = factor_beside(part, theta.kernel, row)
        least = NEGLIGIBLE * float(part.kernel.diag(row)[0])
        enough = max(COARSE * noise / height, least) if height else np.inf
        order, orders = part.order_of(part.directions(len(places))), part.finer_orders(len(names))
        error = part.error_variance(row)
        if error <= enough:
            continue
        finer = (dataclasses.replace(part, order=one) for one in orders)
        wanted = next((one.order for one in finer if one.error_variance(row) <= enough), orders[-1])
        logger.warning(
            "averages over the widest footprint, %r = %.4g, are sums over nodes of order %d, "
            "whose error has %.2g times the variance of the noise, so predictions are "
            "overconfident: give a larger order, kernels.Averaged(..., order=%d)",
            *(names[j], sums.high[j], order, error * height / noise, wanted),
        )


def warn_of_periods(
    kernel: Kernel, scale: scaling.Scaling, sums: scaling.Sums, names: Sequence[str]
) -> None:
    """Warn about periods that are longer than the range of their columns."""
    ranges = np.asarray(sums.high - sums.low)
    pairs = zip(kernel.parameter_names, kernel.log_parameters, strict=True)
    for (name, value), unit in zip(pairs, kernel.units(len(names)), strict=True):
        if not name.endswith("period") or not unit.columns or scaling.left_out(unit, scale.uses):
            continue
        own, longest = np.exp(value) * (scale.size(unit) or 1.0), ranges[list(unit.columns)].max()
        if own > longest:
            logger.warning(
                "%s=%.4g is longer than the data, which span %.4g of %s, so nothing repeats "
                "in them: give the period in the kernel or by fixed=, in the units of the "
                "data, or leave the periodic kernel out",
                name,
                own,
                longest,
                ", ".join(repr(names[j]) for j in unit.columns),
            )


def _tape(problem: Problem) -> checkpoints.Checkpoint | None:
    if problem.checkpoint is None:
        return None
    url, claim, renew = problem.checkpoint
    return checkpoints.Checkpoint(url, run_identity(problem), claim, renew)


def run_identity(problem: Problem, free: Sequence[str] = ("progress",)) -> dict[str, Any]:
    """Return what a training run depends on: the data, and all settings but the ``free`` ones."""
    recipe = problem.recipe
    free = (*free, "calibrate")  # a fit of its own
    settings = {k: identity_of(v) for k, v in recipe.settings.items() if k not in free}
    data = dask.base.tokenize(*problem.sums.parts)
    begun = {} if recipe.begun_from is None else {"start": recipe.begun_from}
    return {"settings": settings, "data": data} | begun


def identity_of(setting: Any) -> str:
    """Return text that tells settings apart; the repr of a long array leaves out its middle."""
    if isinstance(setting, Kernel):
        return identity(setting)
    setting = text_of(setting)
    plain = setting is None or isinstance(setting, str | bool | int | float)
    return repr(setting) if plain else str(dask.base.tokenize(setting))


def _named(theta: Theta, vector: np.ndarray) -> dict[str, float]:
    """Return the hyper-parameters of a vector by name, for the history."""
    trained = theta.from_vector(vector)
    values = np.exp(trained.kernel.log_parameters)
    named = dict(zip(trained.kernel.parameter_names, map(float, values), strict=True))
    return {**named, "noise_variance": trained.noise_variance}
