"""Answers of an estimator about its method; the stages ask it."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import RegressorMixin

from daskgp import data, train
from daskgp.data import partition
from daskgp.data.blocks.neighbours import Nearby
from daskgp.estimators.nested import NestedKernel
from daskgp.estimators.settings import kernel_of
from daskgp.fit import hyperparameters, rounds
from daskgp.fit.effects import ADAM, TRAINED, Effects
from daskgp.fit.inputs import ChosenInputs
from daskgp.kernels import Kernel
from daskgp.models import scaling
from daskgp.models.method import Method as Contract
from daskgp.models.values import Theta
from daskgp.predict.members import Members
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Device, DtypeName, MeanName, OptimizerName

logger = logging.getLogger("daskgp")

DEFAULT_TOL = 0.1
OUTSIDE = 0.1
"""Share of the data's range by which inducing inputs may lie beyond it without a warning."""


@dataclass(eq=False, repr=False)
class Method(RegressorMixin, NestedKernel):
    """Settings that all estimators have, and what a method may say otherwise."""

    kernel: Kernel | str | None = None
    _: KW_ONLY
    noise_variance: float = 0.1
    mean: MeanName = "constant"
    standardize: bool = True
    optimizer: OptimizerName | None = field(default=None, init=False)
    learning_rate: float = field(default=0.05, init=False)
    max_iter: int = 100
    tol: float | None = field(default=0.1, init=False)
    train_blocks: int | Literal["auto"] | None = field(default=None, init=False)
    block_rows: int | None = None
    dtype: DtypeName = "float64"
    device: Device = "auto"
    store: str | None = None
    random_state: int | None = 0
    progress: ShowProgress = "auto"

    model_name: ClassVar[str]
    effects: ClassVar[Effects] = {
        "learning_rate": (ADAM,),
        "max_iter": (TRAINED,),
        "tol": (TRAINED,),
        "train_blocks": (TRAINED,),
    }
    """What settings need to have an effect."""
    chooses_tol: ClassVar[bool] = False
    """Whether ``tol=None`` leaves it to the method."""
    ard_reach: ClassVar[float] = 1.0
    """What multiplies the upper bounds of lengthscales of single inputs, where they may not matter.

    Lengthscales and variance may drift off together then, which not every method bears.
    """
    knows_enough_blocks: ClassVar[bool] = False
    """Whether ``train_blocks="auto"`` can tell how many blocks are enough."""
    searches_start: ClassVar[bool] = True
    """Whether training starts from the best of several starts."""
    inputs_label: ClassVar[str] = "inducing inputs"

    def _model(self) -> Contract:
        raise TypeError(f"{type(self).__name__} is a base class: use SGPR or ExactGP")

    def _fitted(self, stage: rounds.Rounds) -> Contract:
        """The method that predicts."""
        return self._model()

    def _n_inputs(self) -> int:
        """Number of inducing inputs, 0 for a method without."""
        return 0

    def _n_inputs_of(self, n: int) -> int:
        """Return the number of inducing inputs for n rows: the default one is at most n."""
        count = self._n_inputs()
        usual = self._chosen is not None and self._chosen.usual
        return min(n, count) if usual else count

    @property
    def _chosen(self) -> ChosenInputs | None:
        """How inducing inputs are chosen, of a method that has some."""
        return None

    def _planned_inputs(self, rows: data.Rows) -> int:
        """Number of inducing inputs that a plan for these rows reckons with."""
        return self._n_inputs()

    def _choose_inputs(
        self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel
    ) -> np.ndarray | None:
        """Inducing inputs in scaled units, from a scaled sample."""
        return None

    def _placed_inputs(self, stage: rounds.Rounds, sums: scaling.Sums) -> np.ndarray | None:
        """Inducing inputs in scaled units that follow from the ranges of the data alone."""
        return None

    def _trains_inputs(self) -> bool:
        return False

    def _trains_more(self) -> bool:
        """Whether training moves more than hyper-parameters."""
        return self._trains_inputs()

    def _arranged(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> rounds.Rounds:
        """The rounds over the rows as the method wants them; new ones are kept at ``keep``."""
        return stage

    def _settled(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        """The rounds of the final summary, now that the hyper-parameters are known."""
        return stage

    def _train(self, stage: rounds.Rounds, theta: Theta, run: hyperparameters.Run) -> train.Trained:
        """The best vector of hyper-parameters, the history of the search and the curvature."""
        return hyperparameters.on_blocks(self, stage, theta, run)

    def _solve(self, stage: rounds.Rounds, theta: Theta) -> tuple[Any, float]:
        """What prediction needs, and the value of the objective."""
        return self._model().solve(theta, stage)

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> Nearby | Members | None:
        """Training rows that prediction reads back, of a method that wants them."""
        return None

    def _held_rows(self, block_rows: int, n: int) -> tuple[int, int, int]:
        """Rows of a window, rows that a prediction is conditioned on, and blocks of a task."""
        return block_rows, 0, 1

    def _solve_steps(self) -> int:
        """Steps that the fit of a method took which trains nothing."""
        return 1

    def _most_iterations(self) -> int | None:
        """Iterations of a fit at most; None where it makes none."""
        return None if self.optimizer is None else self.max_iter

    def _counted(self) -> str:
        """What the history counts that takes about the same time each."""
        return "evaluations"

    # -- small things ----------------------------------------------------------------------------

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel)

    def _chooses_kernel(self) -> bool:
        """Whether training chooses the kernel by the evidence of a subset of rows."""
        return self.kernel is None

    def _tol(self) -> float:
        """Nats per hyper-parameter below which training stops."""
        return DEFAULT_TOL if self.tol is None else self.tol

    def _seed(self) -> int:
        """The seed of samples; a new one each time where ``random_state`` is None."""
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(self.random_state)

    def _read_rows(self) -> int | None:
        """Rows that a task reads of the data as they are given."""
        return self.block_rows

    def _spans(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        return tuple(partition.blocks(len(rows), rows.chunks, self._read_rows()))

    def _work(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        """The blocks that the method will work on."""
        return self._spans(rows)

    def _warn_of_inputs(
        self, inputs: np.ndarray | None, sums: scaling.Sums, scale: scaling.Scaling
    ) -> None:
        """Of inducing inputs far from all data, which explain nothing."""
        if inputs is None:
            return
        d = len(scale.x_scale)
        low, high = scale.inputs(sums.low[:d]), scale.inputs(sums.high[:d])
        margin = OUTSIDE * (high - low)
        away = (inputs < low - margin) | (inputs > high + margin)
        count = int(away.any(axis=1).sum())
        if count:
            logger.warning(
                "%d of %d %s lie outside the range of the data: they explain nothing there",
                count,
                len(inputs),
                self.inputs_label,
            )
