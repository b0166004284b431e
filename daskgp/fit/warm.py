"""Hyper-parameters of another fitted model, to start from."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from daskgp import train
from daskgp.data.blocks import sampling
from daskgp.data.rows import names_differ
from daskgp.errors import SettingError
from daskgp.fit import control, hyperparameters, rounds, subset
from daskgp.kernels import Kernel
from daskgp.kernels.registry import identity
from daskgp.models import inducing, scaling
from daskgp.models.values import Theta

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess
    from daskgp.posterior.posterior import Posterior

logger = logging.getLogger("daskgp")


def start(
    estimator: GaussianProcess, stage: rounds.Rounds, sums: scaling.Sums, other: GaussianProcess
) -> subset.Start:
    """Return the hyper-parameters of another fitted model in the units of these rows.

    Inducing inputs are the other model's too, if there are to be as many.

    Raises
    ------
    SettingError
        If it has other columns, or a kernel of another structure.
    """
    posterior, own = other.solved_, estimator._inputs
    _check(estimator, stage, sums, posterior, other)
    theta = Theta(_kernel(stage, posterior), _noise(stage, posterior))
    theta = control.of(estimator, theta, stage.scaling).started(theta)
    number = max(inducing.sample_rows(own.count), subset.ROWS + 1)
    rows = stage.rows, stage.spans, stage.scaling
    keys = sampling.Keys.by_content((estimator._seed(), 1), stage.rows, sums)
    sample = sampling.draw(*rows, number, keys, stage.executor)
    theta = replace(theta, inputs=_inputs(estimator, stage, sums, sample.rows.X, theta, other))
    begun = subset.Start(theta)
    if estimator.optimizer is not None and estimator.traits.searches_start:
        few = subset.subset_rows(stage, sample, keys)
        limits = partial(hyperparameters.bounds, estimator, sums=sums, scale=stage.scaling)
        if len(few.X) > 1:
            share = few.y.size / (sums.rows * stage.rows.n_targets)

            def prior(theta: Theta) -> train.Evaluate:
                found = control.of(estimator, theta, stage.scaling).prior
                return hyperparameters.scaled(found, share)

            evidence = subset.Evidence(few, limits, estimator._tol(), prior)
            begun = subset.at(evidence, replace(theta, inputs=None))._replace(theta=theta)
    return begun._replace(sample=sample.rows.X)


def _check(
    estimator: GaussianProcess,
    stage: rounds.Rounds,
    sums: scaling.Sums,
    posterior: Posterior,
    other: GaussianProcess,
) -> None:
    """Raise SettingError unless a model has these columns and a kernel of the same structure."""
    rows = stage.rows
    own, others = rows.feature_names, posterior.feature_names
    if (
        len(own) != len(others)
        or names_differ(own, others)
        or rows.geographic != posterior.geographic
    ):
        raise SettingError(
            f"start is a model of columns {_columns(others, posterior.geographic)}, but "
            f"the rows have {_columns(rows.feature_names, rows.geographic)}: start from a model of "
            "the same columns"
        )
    distances = np.ones(rows.n_features), 1.0
    choices = [_plain(kernel.resolve(*distances)) for kernel in estimator._choices(rows)]
    if _plain(posterior.theta.kernel) not in choices:
        raise SettingError(
            f"start has the kernel {other.kernel_!r:.200}, but this estimator has another one: "
            "give it kernel=start.kernel_, or leave kernel out of both"
        )


def _columns(names: tuple[str, ...], geographic: tuple[int, int] | None) -> str:
    place = "" if geographic is None else " on the sphere"
    return f"{', '.join(names)}{place}"


def _plain(kernel: Kernel) -> str:
    """Return text that is the same for kernels that differ in their hyper-parameters alone."""
    return identity(kernel.with_log_parameters(np.zeros(len(kernel.parameter_names))))


def _kernel(stage: rounds.Rounds, posterior: Posterior) -> Kernel:
    """Return the kernel of a model in the units of these rows."""
    kernel, then, now = posterior.theta.kernel, posterior.scaling, stage.scaling
    both = then.uses & now.uses
    powers = []
    for unit in kernel.units(stage.rows.n_features):
        used = [j for j in unit.columns if both[j]]
        inputs = np.mean(np.log(then.x_scale[used] / now.x_scale[used])) if used else 0.0
        targets = np.mean(np.log(then.y_scale)) - np.mean(np.log(now.y_scale))
        powers.append(unit.of_inputs * inputs + unit.of_target * targets)
    return kernel.with_log_parameters(kernel.log_parameters + np.array(powers))


def _noise(stage: rounds.Rounds, posterior: Posterior) -> float:
    """Return the noise variance of a model in the units of these rows."""
    ratio = np.mean(np.log(posterior.scaling.y_scale)) - np.mean(np.log(stage.scaling.y_scale))
    return float(posterior.theta.noise_variance * np.exp(2.0 * ratio))


def _inputs(
    estimator: GaussianProcess,
    stage: rounds.Rounds,
    sums: scaling.Sums,
    sample: np.ndarray,
    theta: Theta,
    other: GaussianProcess,
) -> np.ndarray | None:
    """Return the inducing inputs: those of the model, or chosen as without it."""
    own, Z = estimator._inputs, other.solved_.theta.inputs
    placed = own.placed(stage, sums)
    if placed is not None or not own.count:
        return placed
    if Z is not None and own.takes(other._inputs) and len(Z) == own.of(int(sums.rows)):
        return own.moved(Z, other.solved_.scaling, stage.scaling)
    logger.info("%s are chosen again: start has %d", own.label, 0 if Z is None else len(Z))
    return own.choose(stage, sample, theta.kernel)
