"""Hyper-parameters from the exact evidence of few rows."""

from __future__ import annotations

import logging

import numpy as np

from daskgp import scaling, train
from daskgp.errors import PlanError
from daskgp.flow import io, partition, rounds
from daskgp.flow.cluster import Executor
from daskgp.flow.plan import SHARE
from daskgp.flow.progress import ShowProgress
from daskgp.model import Block, Shape, Theta
from daskgp.models.exact import Exact

logger = logging.getLogger(__name__)

ITERATIONS = 50
NO_NOISE = 10.0
"""Times its lower bound, the noise variance below which the evidence sees none."""


def solve_bytes(number: int, features: int, targets: int, tiles: int) -> int:
    """Bytes that an evaluation of the evidence of so many rows takes."""
    shape = Shape(number, features, targets, number, 0, 8, tiles, number)
    return Exact().footprint(shape).solve


def refuse_large(number: int, features: int, targets: int, tiles: int, memory: int) -> None:
    """Raise PlanError where the kernel matrices of so many rows do not fit."""
    needed = solve_bytes(number, features, targets, tiles)
    if needed > SHARE * memory:
        raise PlanError(
            f"n_subset={number} needs {needed / 2**30:.2f} GiB for its kernel matrices, this "
            f"machine has {memory / 2**30:.2f} GiB: choose fewer, or hyperparameters='bound'"
        )


def trained_on(theta: Theta, few: Block, bounds: np.ndarray, progress: ShowProgress) -> Theta:
    """Kernel and noise variance of the largest evidence of scaled rows, within bounds (k, 2)."""
    features, targets = (tuple(map(str, range(part.shape[1]))) for part in few)
    here = Executor(None, False, here=True)
    rows = io.Rows(few.X, few.y, None, features, targets)
    unit = scaling.identity(few.X.shape[1], few.y.shape[1])
    whole = partition.alone([partition.Span(0, len(few.X))])
    stage = rounds.Rounds(Exact(), rows, whole, unit, here)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        found = stage.value_and_gradient(theta.from_vector(vector))
        return found.value, found.gradient.to_vector(with_inputs=False)

    settings = train.Training("l-bfgs", ITERATIONS, 1e-6, progress=progress)
    start = theta.to_vector(with_inputs=False)
    best, _ = train.maximise(evaluate, start, bounds, few.y.size, settings, lambda _: {})
    found = theta.from_vector(best)
    if found.noise_variance < NO_NOISE * np.exp(bounds[-1, 0]):
        logger.warning(
            "the evidence of %d rows sees no noise (variance %.1e of standardised targets), which "
            "makes predictions too sure where there is some: choose a larger n_subset, or "
            "hyperparameters='bound'",
            len(few.X),
            found.noise_variance,
        )
    return found
