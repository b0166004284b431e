"""Computational part of a computation-aware GP's variance, which more actions would remove."""

from __future__ import annotations

import logging

import numpy as np

from daskgp.arrays import linalg
from daskgp.models.actions import krylov
from daskgp.models.actions.passes import Paired
from daskgp.posterior.action_points import ActionPoints
from daskgp.posterior.posterior import Posterior

logger: logging.Logger = logging.getLogger("daskgp")

SETTLED, STEPS = 1e-3, 500
"""Share of the variance by which its computational part may fall short, and maximum steps."""


def variance(
    pairs: Paired, supports: ActionPoints, posterior: Posterior, places: np.ndarray
) -> np.ndarray:
    """Return the computational part (m,) of the variance at scaled places.

    It is the excess over the variance of the exact GP with the same hyper-parameters.  With
    A = K + D, D the rows' noise variances, and the actions' estimate S u of A^-1 k, it is
    r' A^-1 r for r = k - A S u, approached from below by conjugate gradients for D^-1/2 A D^-1/2,
    whose eigenvalues are at least 1.
    """
    theta, state = posterior.theta, posterior.state
    k, S = pairs.kernel_at(theta, places), supports.weights()
    noise = pairs.noise(theta)
    root = np.sqrt(noise)
    F = S.times(k.T)[:, state.columns].T
    explained = linalg.solve_lower(state.factor, F)
    u = np.zeros((len(places), S.count))
    u[:, state.columns] = linalg.solve_lower_t(state.factor, explained).T
    estimate = S.spread(u).T
    r = k - pairs.times(theta, estimate) - noise * estimate
    prior = theta.kernel.diag(places)
    whole = np.maximum(prior - (explained**2).sum(axis=0), 0.0)
    missing = SETTLED * np.maximum(whole, 1e-12 * prior)
    left = krylov.energy(
        lambda V: pairs.times(theta, V / root) / root + V, r / root, missing, 1.0, STEPS
    )
    if not left.settled:
        logger.warning(
            "conjugate gradients for the computational part stopped after %d steps: the "
            "value given is too small",
            STEPS,
        )
    part: np.ndarray = np.minimum(left.value, whole)
    return part
