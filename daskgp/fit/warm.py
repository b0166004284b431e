"""Hyper-parameters of another fitted model, to start from."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from daskgp.data import Rows
from daskgp.data.rows import names_differ
from daskgp.errors import SettingError
from daskgp.fit import hyperparameters, rounds, subset
from daskgp.fit.inputs import Inputs
from daskgp.fit.recipe import Recipe
from daskgp.kernels import Kernel
from daskgp.kernels.categories import with_levels, with_more_levels
from daskgp.kernels.registry import identity
from daskgp.models import scaling
from daskgp.models.categories import shown
from daskgp.models.values import Theta
from daskgp.posterior.posterior import Posterior

logger: logging.Logger = logging.getLogger("daskgp")


class Other(NamedTuple):
    """Another fitted model, and how its inputs were chosen."""

    posterior: Posterior
    inputs: Inputs


def start(recipe: Recipe, stage: rounds.Rounds, sums: scaling.Sums, other: Other) -> subset.Start:
    """Return the hyper-parameters of another fitted model in the units of these rows.

    Inducing inputs are the other model's too, if there are to be as many.

    Raises
    ------
    SettingError
        If it has other columns, or a kernel of another structure.
    """
    posterior = other.posterior
    if posterior.each:
        raise SettingError(
            "start is a model of targets that are fitted to rows of their own, but these "
            "targets share their rows: start from one of its parts_"
        )
    _check(recipe, stage.rows, posterior)
    kernel = kernel_of(posterior, stage.scaling, stage.rows.n_features)
    kernel = with_more_levels(kernel, stage.rows.columns.categories)
    theta = Theta(kernel, _noise(stage, posterior))
    theta = recipe.constraints(theta, stage.scaling).started(theta)
    sampled = hyperparameters.Sampled.of(recipe, stage, sums)
    theta = replace(theta, inputs=_inputs(sampled, theta, other))
    begun, evidence = subset.Start(theta), None
    if recipe.trainer.takes_curvature(recipe, stage.rows):
        evidence = sampled.evidence()
    if evidence is not None:
        begun = subset.at(evidence, replace(theta, inputs=None))._replace(theta=theta)
    return begun._replace(sample=sampled.sample.rows.X)


def _check(recipe: Recipe, rows: Rows, posterior: Posterior) -> None:
    """Raise SettingError unless a model has these columns and a kernel of the same structure."""
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
    choices = [_plain(kernel.resolve(*distances)) for kernel in recipe.choices(rows)]
    kernel = with_more_levels(posterior.theta.kernel, rows.columns.categories)
    if _plain(kernel) not in choices:
        _check_levels(kernel, rows, posterior)
        raise SettingError(
            f"start has the kernel {posterior.users_kernel!r:.200}, but this estimator has "
            "another one: give it kernel=start.kernel_, or leave kernel out of both"
        )


def _check_levels(kernel: Kernel, rows: Rows, posterior: Posterior) -> None:
    """Raise SettingError where a model's kernel cannot have the levels of the rows."""
    now = rows.columns.categories
    try:
        with_levels(kernel, now)
    except SettingError as error:
        for j, known in posterior.columns.categories.items():
            own = now.get(j, known)
            if own[: len(known)] != known:
                raise SettingError(
                    f"start has the levels {shown(known)} of {rows.feature_names[j]!r}, but the "
                    f"rows have {shown(own)}: give its levels first, in their order, such as by "
                    "pandas.Categorical or daskgp convert --like, or leave start out"
                ) from error


def _columns(names: tuple[str, ...], geographic: tuple[int, int] | None) -> str:
    place = "" if geographic is None else " on the sphere"
    return f"{', '.join(names)}{place}"


def _plain(kernel: Kernel) -> str:
    """Return text that is the same for kernels that differ in their hyper-parameters alone."""
    return identity(kernel.with_log_parameters(np.zeros(len(kernel.parameter_names))))


def kernel_of(posterior: Posterior, now: scaling.Scaling, n_features: int) -> Kernel:
    """Return the kernel of a model in the units of other rows, of as many features."""
    kernel, then = posterior.theta.kernel, posterior.scaling
    both = then.uses & now.uses
    powers = []
    for unit in kernel.units(n_features):
        used = [j for j in unit.columns if both[j]]
        inputs = np.mean(np.log(then.x_scale[used] / now.x_scale[used])) if used else 0.0
        targets = np.mean(np.log(then.y_scale)) - np.mean(np.log(now.y_scale))
        powers.append(unit.of_inputs * inputs + unit.of_target * targets)
    return kernel.with_log_parameters(kernel.log_parameters + np.array(powers))


def _noise(stage: rounds.Rounds, posterior: Posterior) -> float:
    """Return the noise variance of a model in the units of these rows."""
    ratio = np.mean(np.log(posterior.scaling.y_scale)) - np.mean(np.log(stage.scaling.y_scale))
    return float(posterior.theta.noise_variance * np.exp(2.0 * ratio))


def _inputs(sampled: hyperparameters.Sampled, theta: Theta, other: Other) -> np.ndarray | None:
    """Return the inducing inputs: those of the model, or chosen as without it."""
    recipe, stage, sums, _, sample = sampled
    own, posterior = recipe.inputs, other.posterior
    Z = posterior.theta.inputs
    placed = own.placed(stage, sums)
    if placed is not None or not own.count:
        return placed
    able = own.takes(other.inputs) and _has_codes_of(posterior, stage.rows)
    if Z is not None and able and len(Z) == own.of(int(sums.rows)):
        return own.moved(Z, posterior.scaling, stage.scaling)
    logger.info("%s are chosen again: start has %d", own.label, 0 if Z is None else len(Z))
    return own.choose(stage, sample.rows.X, theta.kernel)


def _has_codes_of(posterior: Posterior, rows: Rows) -> bool:
    """Return whether levels of categories have the same codes in a model as in rows."""
    now = rows.columns.categories
    known = posterior.columns.categories.items()
    return all(now.get(j, own)[: len(own)] == own for j, own in known)
