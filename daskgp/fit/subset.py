"""Hyper-parameters from the exact evidence of a subset of rows."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from daskgp import train
from daskgp.errors import PlanError
from daskgp.fit.refusal import SHARE
from daskgp.models.exact import Exact, Rows
from daskgp.models.values import Block, Shape, Theta
from daskgp.runtime.process import solve_threads
from daskgp.runtime.progress import ShowProgress
from daskgp.train import newton

logger = logging.getLogger(__name__)

ITERATIONS, TOL = 50, 0.01
NO_NOISE = 100.0
"""Multiple of its lower bound below which a noise variance counts as none."""


def solve_bytes(number: int, features: int, targets: int, tiles: int) -> int:
    """Return the bytes that an evaluation of the evidence of ``number`` rows takes."""
    shape = Shape(number, features, targets, number, 0, 8, tiles, number)
    return Exact().footprint(shape).solve


def refuse_large(number: int, features: int, targets: int, tiles: int, memory: int) -> None:
    """Raise PlanError if the kernel matrices of ``number`` rows do not fit in memory."""
    needed = solve_bytes(number, features, targets, tiles)
    if needed > SHARE * memory:
        raise PlanError(
            f"n_subset={number} needs {needed / 2**30:.2f} GiB for its kernel matrices, this "
            f"machine has {memory / 2**30:.2f} GiB: choose fewer, or hyperparameters='bound'"
        )


def evidence(block: Block, theta: Theta) -> train.Evaluate:
    """Return the exact log evidence of scaled rows, and its gradient, as a function of a vector."""
    model, rows = Exact(), Rows(block.X, block.y)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        with solve_threads(len(block.X)):
            objective = model.objective(replace(theta.from_vector(vector), inputs=None), rows)
        gradient = objective.gradient.to_vector(with_inputs=False)
        train.refuse_nan(objective.value, gradient)
        return objective.value, gradient

    return evaluate


def with_noise(coordinates: np.ndarray) -> np.ndarray:
    """Return training coordinates (k + 1, k + 1) of a kernel and, last, the noise variance."""
    k = len(coordinates)
    extended = np.eye(k + 1)
    extended[:k, :k] = coordinates
    return extended


def trained_on(theta: Theta, block: Block, bounds: np.ndarray, progress: ShowProgress) -> Theta:
    """Return the theta of largest evidence of scaled rows within bounds (k, 2).

    Only the kernel and the noise variance are trained.
    """
    coordinates = with_noise(theta.kernel.coordinates(newton.varies(bounds)[:-1]))
    settings = train.Training(
        "auto",
        ITERATIONS,
        TOL,
        progress=progress,
        coordinates=coordinates,
        remedy="start from other hyper-parameters, or choose hyperparameters='bound'",
    )
    start = theta.to_vector(with_inputs=False)
    best = train.maximise(
        evidence(block, theta), start, bounds, block.y.size, settings, lambda _: {}
    ).vector
    trained = theta.from_vector(best)
    if trained.noise_variance < NO_NOISE * np.exp(bounds[-1, 0]):
        logger.warning(
            "the evidence of %d rows sees no noise (variance %.1e of standardised targets), which "
            "makes predictions too sure where there is some: choose a larger n_subset, or "
            "hyperparameters='bound'",
            len(block.X),
            trained.noise_variance,
        )
    return trained
