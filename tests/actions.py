"""Computation-aware GPs on rows that are paired with points, as tests of several folders need."""

from typing import NamedTuple

from daskgp.models.actions.sums import ActionTheta


class Evaluated(NamedTuple):
    """Value, and gradient by log kernel parameters, log noise variance and weights."""

    value: float
    kernel: object
    noise: float
    weights: object


def acting(theta, weights):
    """Hyper-parameters with actions."""
    return ActionTheta(theta.kernel, theta.noise_variance, weights=weights)


def evaluated(model, pairs, theta, weights, batch=None):
    objective = model.evaluate(acting(theta, weights), pairs.drawn(batch))
    return Evaluated(objective.value, *objective.gradient)


def solved(model, pairs, theta, weights):
    """State and value."""
    return model.solve(acting(theta, weights), pairs)
