"""Hyper-parameters of an estimator: where they start, their bounds, and their training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import numpy as np

from daskgp import scaling, selection, train
from daskgp.estimators.settings import whole
from daskgp.flow import partition, rounds
from daskgp.flow.io import checkpoints
from daskgp.flow.io.checkpoints import Place
from daskgp.kernels import Kernel
from daskgp.kernels.registry import identity
from daskgp.model import Theta

if TYPE_CHECKING:
    from daskgp.estimators.method import Method

NOISE_BOUNDS = (1e-6, 1e2)


class Run(NamedTuple):
    """One training run: where it starts (k,), bounds (k, 2), names for its history, its tape."""

    start: np.ndarray
    bounds: np.ndarray
    describe: Callable[[np.ndarray], dict[str, Any]]
    tape: checkpoints.Checkpoint | None


def start(estimator: Method, stage: rounds.Rounds, sums: scaling.Sums) -> Theta:
    """Initial hyper-parameters, from a sample of rows."""
    number = selection.sample_rows(estimator._n_inputs())
    sample = rounds.gather_sample(
        stage.rows, stage.spans, stage.scaling, number, estimator._seed(), stage.executor
    )
    median = selection.median_distances(sample.X)
    # a distance over d columns is about sqrt(d) times that over one
    per_column = median.per_column * np.sqrt(len(median.per_column))
    kernel = estimator._kernel().resolve(per_column, median.euclidean)
    inputs = estimator._placed_inputs(stage, sums)
    if inputs is None:
        inputs = estimator._choose_inputs(stage, sample.X, kernel)
        estimator._warn_of_inputs(inputs, sums, stage.scaling)
    return Theta(kernel, float(estimator.noise_variance), inputs)


def lengths(stage: rounds.Rounds, theta: Theta, sums: scaling.Sums) -> np.ndarray | None:
    """Correlation lengths (d,) of the kernel in the units of X; None where all are infinite."""
    d, scale = stage.rows.n_features, stage.scaling.x_scale
    spread = (sums.high[:d] - sums.low[:d]) / scale
    found = selection.correlation_lengths(theta.kernel, spread) * scale
    return found if np.isfinite(found).any() else None


def train_windows(
    estimator: Method, windows: tuple[partition.Window, ...]
) -> tuple[partition.Window, ...]:
    """The blocks that hyper-parameters are trained on: ``train_blocks`` at random, or all."""
    if estimator.train_blocks is None:
        return windows
    number = whole("train_blocks", estimator.train_blocks, 1)
    return partition.sample(windows, number, np.random.default_rng(estimator.random_state))


def train_theta(
    estimator: Method,
    stage: rounds.Rounds,
    theta: Theta,
    sums: scaling.Sums,
    checkpoint: Place | None,
) -> tuple[Theta, list[dict[str, Any]]]:
    """Trained hyper-parameters and the history of their training."""
    if estimator.optimizer is None:
        return theta, []
    run = plan_run(estimator, stage, theta, sums, checkpoint)
    best, history = estimator._train(stage, theta, run)
    return theta.from_vector(best), history


def plan_run(
    estimator: Method,
    stage: rounds.Rounds,
    theta: Theta,
    sums: scaling.Sums,
    checkpoint: Place | None,
) -> Run:
    """The run that trains from hyper-parameters."""
    return Run(
        theta.to_vector(estimator._trains_inputs()),
        bounds(estimator, theta, sums, stage.scaling),
        partial(_named, theta),
        _tape(estimator, checkpoint, sums),
    )


def on_blocks(
    estimator: Method, stage: rounds.Rounds, theta: Theta, run: Run
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Maximise the objective of the blocks that are trained on."""
    windows, with_inputs = train_windows(estimator, stage.windows), estimator._trains_inputs()
    quiet = dataclasses.replace(stage.executor, show=False)
    part = dataclasses.replace(stage, windows=windows, executor=quiet)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        found = part.value_and_gradient(theta.from_vector(vector))
        return found.value, found.gradient.to_vector(with_inputs)

    values = sum(window.own.rows for window in windows) * stage.rows.n_targets
    assert estimator.tol is not None
    return maximise(estimator, evaluate, run, values, estimator.tol)


def maximise(
    estimator: Method,
    evaluate: train.Evaluate,
    run: Run,
    values: int,
    tol: float,
    **more: Any,
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Maximise an objective of ``values`` target values by the estimator's optimizer.

    ``more`` are other settings of the loop.
    """
    assert estimator.optimizer is not None
    settings = train.Training(
        estimator.optimizer,
        estimator.max_iter,
        tol,
        estimator.learning_rate,
        progress=estimator.progress,
        **more,
    )
    return train.maximise(evaluate, run.start, run.bounds, values, settings, run.describe, run.tape)


def bounds(
    estimator: Method, theta: Theta, sums: scaling.Sums, scale: scaling.Scaling
) -> np.ndarray:
    """Bounds (k, 2) of the hyper-parameters' vector."""
    d = len(scale.x_scale)
    spread = (sums.high[:d] - sums.low[:d]) / scale.x_scale
    kernel, noise = theta.kernel.log_bounds(spread), np.log([NOISE_BOUNDS])
    # an input of its own lengthscale may turn out not to matter
    single = np.array(["lengthscale[" in name for name in theta.kernel.parameter_names])
    single &= len(spread) > 1
    kernel[single, 1] += np.log(estimator.ard_reach)
    # bounds of variances are for targets of variance 1
    unit = scaling.target_variance(sums, scale, estimator.mean)
    variances = ["variance" in name for name in theta.kernel.parameter_names]
    kernel[variances] += np.log(unit)
    found = np.concatenate([kernel, noise + np.log(unit)])
    # what the user starts from is allowed
    given = theta.to_vector(with_inputs=False)
    found = np.stack([np.minimum(found[:, 0], given), np.maximum(found[:, 1], given)], axis=1)
    if not estimator._trains_inputs() or theta.inputs is None:
        return found
    return np.concatenate([found, np.tile([-np.inf, np.inf], (theta.inputs.size, 1))])


def _tape(
    estimator: Method, checkpoint: Place | None, sums: scaling.Sums
) -> checkpoints.Checkpoint | None:
    if checkpoint is None:
        return None
    return checkpoints.Checkpoint(checkpoint.url, run_identity(estimator, sums), checkpoint.claim)


def run_identity(
    estimator: Method, sums: scaling.Sums, free: Sequence[str] = ("progress",)
) -> dict[str, Any]:
    """What a training run depends on: the data, and all settings but those that are ``free``."""
    settings = {k: _identity(v) for k, v in estimator.get_params().items() if k not in free}
    data = dask.base.tokenize(*(np.asarray(part) for part in sums))
    return {"settings": settings, "data": data}


def _identity(setting: Any) -> str:
    """Text that differs where a setting does; the repr of a long array leaves out its middle."""
    if isinstance(setting, Kernel):
        return identity(setting)
    plain = setting is None or isinstance(setting, str | bool | int | float)
    return repr(setting) if plain else str(dask.base.tokenize(setting))


def _named(theta: Theta, vector: np.ndarray) -> dict[str, float]:
    """Hyper-parameters of a vector by name, for the history."""
    found = theta.from_vector(vector)
    values = np.exp(found.kernel.log_parameters)
    named = dict(zip(found.kernel.parameter_names, map(float, values), strict=True))
    return {**named, "noise_variance": found.noise_variance}
