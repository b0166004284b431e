"""Training loops: an optimiser over rounds.  They know objectives, not models.

``optimizers`` maximises one objective, by ``newton`` where there are few parameters; ``federated``
trains the shared hyper-parameters of experts that each have an objective of their own, and
``federated_rounds`` has a round of each of its methods.
"""

from daskgp.train.federated import fact, train_experts
from daskgp.train.federated_rounds import Experts, Federated, FederatedName, Work
from daskgp.train.optimizers import (
    LOST,
    Evaluate,
    Tape,
    Trained,
    Training,
    maximise,
    plus,
    refuse_nan,
)

__all__ = [
    "LOST",
    "Evaluate",
    "Experts",
    "Federated",
    "FederatedName",
    "Tape",
    "Trained",
    "Training",
    "Work",
    "fact",
    "maximise",
    "plus",
    "refuse_nan",
    "train_experts",
]
