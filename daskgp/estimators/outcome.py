"""Facts about a class of estimators, and the result of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskgp.fit import rounds
from daskgp.models.values import Theta
from daskgp.posterior.training_rows import TrainingRows


@dataclass(frozen=True)
class Traits:
    """Facts about a class of estimators that hold for all settings.

    Attributes
    ----------
    ard_reach : float
        Factor on the upper bounds of lengthscales of single inputs, which may not matter.
        Lengthscales and variance may then drift off together, which not every method tolerates.
    searches_start : bool
        Whether training starts from the best of several starts.
    knows_enough_blocks : bool
        Whether ``train_blocks="auto"`` can tell how many blocks are enough.
    reads_blocks : bool
        Whether ``block_rows`` are the rows that a task reads in their original order.
    keeps_seed : bool
        Whether a checkpoint keeps the seed that ``random_state=None`` drew.
    """

    ard_reach: float = 1.0
    searches_start: bool = True
    knows_enough_blocks: bool = False
    reads_blocks: bool = True
    keeps_seed: bool = False


class Outcome(NamedTuple):
    """Result of training, which the estimator remembers.

    Attributes
    ----------
    stage : Rounds
        The rows in units, as the method has solved for them.
    theta : Theta
        Hyper-parameters.
    state : NamedTuple
        What the method's predictions need.
    objective : float, optional
        Its value for all rows, if the method has one.
    history : list of dict
        Iterations of the search for hyper-parameters.
    kept : TrainingRows, optional
        Rows that predictions read back.
    errors : ndarray (k,), optional
        Standard errors of the logarithms of the hyper-parameters.
    total : NamedTuple, optional
        Sums over rows that state and objective follow from, to which more rows can be added.
    """

    stage: rounds.Rounds
    theta: Theta
    state: Any
    objective: float | None
    history: list[dict[str, Any]]
    kept: TrainingRows | None = None
    errors: np.ndarray | None = None
    total: Any = None
