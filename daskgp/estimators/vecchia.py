"""VecchiaGP: every row is conditioned on its nearest earlier rows."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from daskgp import data
from daskgp.checks import whole
from daskgp.data.blocks.around import Around, Band, NearestRows
from daskgp.data.stores.checkpoints import Place
from daskgp.estimators import blocks_added
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.lma import LMA, NEAR_BLOCKS, _layout, _lengths
from daskgp.estimators.outcome import Outcome, Traits
from daskgp.estimators.settings import JITTER
from daskgp.estimators.updating import Grown
from daskgp.fit import conditionals, rounds
from daskgp.fit.effects import TRAINED, WAYS, Effects, Needs, chosen
from daskgp.fit.inputs import Inputs
from daskgp.fit.inputs import chosen as chosen_inputs
from daskgp.fit.plan import NOTHING, Workload
from daskgp.fit.subset import Start
from daskgp.kernels import Kernel, Linear, Periodic, Product, Sum
from daskgp.kernels.compose import Constant
from daskgp.models import scaling
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.values import Theta

logger = logging.getLogger("daskgp")

LEAST_ROWS, MULTIPLE = 2_048, 8
"""Rows around a cell among which the neighbours of its places are looked for: at least so many, and
so many for each neighbour."""
SOME = Needs(
    "n_support",
    lambda gp: gp.n_support != 0 or not isinstance(gp.support, str),
    "choose n_support of at least 1",
)
"""Condition that there are support inputs."""


@dataclass(eq=False, repr=False, kw_only=True)
class VecchiaGP(LMA):
    """Vecchia approximation: every row is conditioned on its nearest earlier rows.

    Rows come in a random order.  The log density is a sum over rows given at most ``n_neighbours``
    of those before it, and a prediction is conditioned on the training rows nearest to its place
    [Vecchia 1988; Katzfuss & Guinness 2021].  With ``n_support`` the residual of a low-rank part is
    conditioned, which is full-scale Vecchia [Gyger, Furrer & Sigrist 2025]: better where noise
    dominates and in wide gaps.  Work is linear in the number of rows, and hyper-parameters are
    trained on conditionals of some rows, by their Fisher information.

    Parameters
    ----------
    kernel : Kernel or str, optional
        As in ``LMA``.
    n_neighbours : int
        Number k of earlier rows that a row is conditioned on.
    n_support : int
        Number m of support inputs; 0 for none.
    support : {"greedy", "kmeans", "random"} or array-like (m, d)
        As in ``LMA``; an array is taken whatever ``n_support`` is.
    predict_neighbours : int
        Number of training rows nearest to a place that a prediction is conditioned on.  Of more
        than 256, the places of a cell share the rows nearest to it, as in ``LMA``, which suits
        wide gaps.
    order : str or sequence of str
        Order in which rows are put into blocks that tasks read, as in ``LMA``.  The order in which
        rows are conditioned is a random one, the same for any blocks of the data.
    block_rows : int, optional
        Rows of a block; default those of a prepared store, or 2048.
    noise_variance : float
        Initial noise variance, in units of the standardised y.
    training_rows : int, "auto" or None
        Rows whose conditionals hyper-parameters are trained on; "auto" takes 20,000 to 100,000,
        more for more hyper-parameters and where more would gain more than 25 nats; None takes all.
        At least 10 for each hyper-parameter.  The posterior is always that of all rows.
    max_iter : int
        Maximum number of iterations of training.
    store : str, optional
        As in ``LMA``.
    mean, standardize, optimizer, learning_rate, tol, dtype, device, random_state, \
progress, geographic, fill_values, fixed, limits, prior, target_transform, calibrate
        As in ``SGPR``.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data
    noise_variance_ : learned noise variance, in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    support_ : ndarray (m, d), in the units of X
    n_blocks_ : int
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the log evidence of all standardised rows
    history_ : list of dict, one per iteration
    n_features_in_, feature_names_in_, n_rows_

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.VecchiaGP().fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "vecchia"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0, reads_blocks=False)
    effects: ClassVar[Effects] = {
        **GaussianProcess.effects,
        "n_support": (chosen("support", *WAYS),),
        "support": (SOME,),
        "training_rows": (TRAINED,),
    }

    default_block_rows: ClassVar[int] = 2_048
    windows_stay: ClassVar[bool] = False

    n_support: int = 0
    support: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    n_neighbours: int = 30
    predict_neighbours: int = 100
    training_rows: int | Literal["auto"] | None = "auto"
    train_support: bool = field(default=False, init=False)
    markov_order: int | None = field(default=None, init=False)
    neighbours: Literal["nearest", "order"] = field(default="nearest", init=False)
    predict_order: int | None = field(default=None, init=False)
    predict_rows: int | None = field(default=None, init=False)
    prediction: Literal["consistent", "paper"] = field(default="consistent", init=False)
    train_blocks: int | Literal["auto"] | None = field(default=None, init=False)
    train_with: Literal["auto", "blocks", "vecchia"] = field(default="vecchia", init=False)

    # -- settings ----------------------------------------------------------------------------

    def _model(self) -> Any:
        return Vecchia(
            jitter=JITTER[self.dtype],
            n_neighbours=whole("n_neighbours", self.n_neighbours, 1),
            predict_neighbours=whole("predict_neighbours", self.predict_neighbours, 1),
            seed=self.random_state or 0,
        )

    @property
    def _inputs(self) -> Inputs:  # type: ignore[override]
        if isinstance(self.support, str) and not whole("n_support", self.n_support, 0):
            return Inputs()
        return chosen_inputs(self, "support", "n_support", "support inputs")

    @property
    def support_(self) -> np.ndarray:
        """Support inputs (m, d) in the units of X."""
        if self.solved_.theta.inputs is None:
            return np.zeros((0, self.solved_.n_features))
        return super().support_

    def _reach(self) -> int:
        return NEAR_BLOCKS

    def _rows_around(self, n: int, blocks: int) -> int:
        number = whole("predict_neighbours", self.predict_neighbours, 1)
        return min(n, number if self._model().shares else max(LEAST_ROWS, MULTIPLE * number))

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        work = super()._workload(rows, value)
        drawn = conditionals.MOST if self.training_rows == "auto" else self.training_rows
        number = len(rows) if drawn is None else min(int(drawn), len(rows))
        each = 4 * (self.n_neighbours + 1) + 8 * (rows.n_features + rows.n_sides + 2)
        beside = NOTHING.with_compiled(predicting=True)
        return dataclasses.replace(work, kept=number * each, staged=False, beside=beside)

    def _refuse_few_blocks(self, count: int, block_rows: int) -> None:
        """Accept any number of blocks."""

    # -- training ----------------------------------------------------------------------------

    def _rows_model(self, stage: rounds.Rounds) -> Vecchia:
        model: Vecchia = self._objective_of(stage)
        return model

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        self._warn_of_kernel(stage, begun.theta)
        if self.optimizer is not None:
            begun = self._started(stage, begun, sums)
        return super()._learn(stage, begun, sums, checkpoint, keep)

    def _warn_of_kernel(self, stage: rounds.Rounds, theta: Theta) -> None:
        """Warn if the nearest rows do not say most about a row, and nothing else says the rest."""
        if theta.inputs is None and _reaches_far(theta.kernel):
            logger.warning(
                "a linear or periodic part of the kernel ties rows far apart, and rows are "
                "conditioned on the nearest %d alone: choose n_support=256 or more, or take LMA or "
                "SGPR",
                self.n_neighbours,
            )

    # -- blocks ------------------------------------------------------------------------------

    def _settled(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        return self._near_either_side(stage, theta)

    def _why_no_change(self, forget: bool) -> str | None:
        return None

    def _grown(self, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Grown:
        """Return the blocks of new rows, which come after all others in the order."""
        grown = super()._grown(stage, sums, spill)
        lengths = self.solved_.state.lengths
        known = tuple(np.where(np.isfinite(lengths), lengths, 0.0).tolist())
        later = min(unit.own.start for unit in grown.stage.units)
        return grown._replace(model=self._like_this(later=later, lengths=known))

    def _shrunk(self, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Grown:
        """Return all blocks that stay: rows were conditioned on those that are taken out."""
        stage, _ = blocks_added.taken(self, stage)
        settled = self._settled(stage, self.solved_.theta)
        grown = self._changed(blocks_added.Changed(stage, settled.units))
        return grown._replace(whole=True, model=self._like_this(later=None, lengths=()))

    def _like_this(self, **changes: Any) -> Vecchia:
        """Return the method of the fit with some changes."""
        return dataclasses.replace(cast(Vecchia, self.solved_.method), **changes)

    def _around(self, stage: rounds.Rounds, theta: Theta) -> Around:
        layout = _layout(stage)
        number = self._rows_around(layout.rows, layout.n_blocks)
        lengths = _lengths(stage, theta) * stage.scaling.x_scale
        if not np.isfinite(lengths).any():
            return Band(-(-number // layout.block_rows))
        assert stage.landmarks is not None
        return NearestRows(number, layout.rows, lengths, stage.landmarks)


def _reaches_far(kernel: Kernel) -> bool:
    """Return whether a summand's correlation does not fall with distance."""
    if isinstance(kernel, Sum):
        return any(map(_reaches_far, kernel.parts))
    if isinstance(kernel, Product):
        parts = [part for part in kernel.parts if not isinstance(part, Constant)]
        return bool(parts) and all(map(_reaches_far, parts))
    return isinstance(kernel, Linear | Periodic)
