"""Evidence lower bounds per row."""

from dataclasses import replace
from typing import Any

import numpy as np


def bound_per_row(y: np.ndarray, moments: tuple, noise: float, divergence: float) -> float:
    """Return an evidence lower bound over its rows, estimated by places with y.

    ``moments`` are mean and variance of f at these places, ``divergence`` is KL[q || p] over the
    number of rows that the bound is of.
    """
    mean, variance = map(np.ravel, moments)
    square = np.mean((np.ravel(y) - mean) ** 2 + variance)
    return float(-0.5 * (np.log(2 * np.pi * noise) + square / noise) - divergence)


def bound_of(model: Any, split: Any, rows: int) -> float:
    """Return the bound per row of an estimator with Gaussian noise, by the rows to predict."""
    noise = float(model.noise_variance_ * model.solved_.scaling.y_scale[0] ** 2)
    if hasattr(model.solved_.state, "mean_points"):
        divergence = divergence_of(model.solved_)
    else:  # what its own rows say less the divergence is the evidence, or the best bound
        own = len(split.y), moments_of(model, split.X)
        divergence = own[0] * bound_per_row(split.y, own[1], noise, 0.0)
        divergence -= model.log_marginal_likelihood()
    places = moments_of(model, split.X_test)
    return bound_per_row(split.y_test, places, noise, divergence / rows)


def moments_of(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f."""
    mean, std = model.predict(X, return_std=True)
    return mean, std**2


def divergence_of(solved: Any, columns: int = 1_024) -> float:
    """Return KL[q || p] of a variational posterior, with all columns of its quadratic form."""
    from daskgp.models.values import Block
    from daskgp.models.variational.decoupled import Draw
    from daskgp.models.variational.parameters import mean_functions

    method, own = replace(solved.method, frozen=True), solved.state.parameters(solved.theta.kernel)
    prepared = method.prepare(solved.theta.kernel, own, solved.state.offset)
    none = Block(own.covariance_points[:0], own.weights[:0])
    number = len(mean_functions(own, method.form)[1])
    parts = np.split(np.arange(number), range(columns, number, columns))
    return prepared.kl - sum(method.local(prepared, none, Draw(1.0, p, 1.0)).value for p in parts)
