"""LMA and PIC: methods of blocks of nearby rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from daskgp.checks import shown, whole
from daskgp.data import grids
from daskgp.data.blocks.layout import DEFAULT_BLOCK_ROWS
from daskgp.data.kinds import Dataset
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Needs, Requirements, among, chosen
from daskgp.estimators.settings import JITTER
from daskgp.fit.arrange import Blocks
from daskgp.fit.inputs import WAYS, ChosenInputs
from daskgp.fit.recipe import Traits
from daskgp.fit.training import OnNearby
from daskgp.fit.varying import Variation
from daskgp.models.markov.lma import LMA as LowRankMarkov
from daskgp.models.markov.vecchia import Vecchia
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.posterior.posterior import in_users_units
from daskgp.predict import hyperparameter_map
from daskgp.runtime.process import begin_call

DEFAULT_ORDER = 3
MOST_KNOTS = 256
"""Most knots of hyper-parameters that vary, which are trained together."""
JOINED = Needs("markov_order", lambda gp: gp.markov_order != 0, "choose a markov_order from 1")

LEARNED = Needs(
    "optimizer",
    lambda gp: gp.optimizer is not None or grids.is_xarray(gp.varying),
    "choose an optimizer",
)
"""Condition that hyper-parameters are trained, or given."""
VARYING = Needs(
    "varying",
    lambda gp: gp.varying is not None and not grids.is_xarray(gp.varying),
    "choose varying='auto'",
)
"""Condition that hyper-parameters vary as they are trained."""


@dataclass(eq=False, repr=False, kw_only=True)
class LMA(GaussianProcess):
    """Low-rank-cum-Markov approximation: GP regression that is local and global at once.

    A low-rank part on support inputs carries what is smooth; the residual is exact within a block
    of nearby rows and the blocks it is conditioned on ([LMA]).  Fit and prediction are linear in
    the number of rows, the log evidence is that of all rows, and variances are those of one joint
    distribution.  Markov order 0 is PIC; conditioned on all other blocks it is the exact GP.

    Parameters
    ----------
    n_support : int
        Number m of support inputs.
    support : {"greedy", "kmeans", "random"} or array-like (m, d)
        How support inputs are chosen from a sample of rows, or the inputs themselves, in the units
        of X.
    train_support : bool
        Whether training also moves the support inputs.
    markov_order : int, optional
        Number B of blocks that a block is conditioned on, less than the number of blocks.  Default
        3, or all others if there are fewer.
    neighbours : {"nearest", "order"}
        Whether these are the nearest blocks before it, in units of the kernel's lengthscales, or
        the B blocks after it in the order, as in the paper.  Predictions are conditioned on the
        training rows nearest to the place, or on the place's own block with B on either side.
    predict_rows : int, optional
        With ``neighbours="nearest"``, the number of training rows nearest to a place that a
        prediction is conditioned on.  Default 512; a place's own block if ``markov_order=0``,
        all rows if ``markov_order`` spans all blocks.
    predict_order : int, optional
        Condition predictions on whole blocks instead: the one that the place lies in, and that many
        more that are nearest to it.
    prediction : {"consistent", "paper"}
        "paper" extends the paper's eq. 1 to test inputs; its variance can come out negative,
        which is an error.  It needs ``neighbours="order"``.
    order : str or sequence of str
        Order of the rows before they are cut into blocks: "hilbert", "pca", "kmeans", "auto", the
        name of a column, or names of up to three for a Hilbert curve through them.
        A store that ``daskgp.prepare`` made keeps its own; a random one is refused.
    block_rows : int, optional
        Rows of a block; default those of a prepared store, or 256.
    train_blocks : int, "auto" or None
        Train hyper-parameters on that many blocks drawn at random, each with those it is
        conditioned on; the posterior is always that of all rows.  "auto" takes as many as keep the
        expected loss of evidence of all rows, against training on all blocks, to at most 25 nats,
        and says in the log what is lost; None takes all blocks.
    train_with : {"auto", "blocks", "vecchia"}
        What hyper-parameters are trained on: the evidence of blocks, or conditionals of rows given
        their nearest earlier rows, as in ``VecchiaGP``, which takes a fraction of the time.  "auto"
        takes these where ``training_rows`` is set, and for more than 10,000 rows of up to four
        features, unless ``train_blocks`` or ``train_support`` is set.
    training_rows : int, "auto" or None
        Rows whose conditionals are drawn, as in ``VecchiaGP``.
    varying : int, "auto", sequence of str or Dataset, optional
        Hyper-parameters that vary over space, as in ``VecchiaGP``.  They are those of its middle in
        all of a window, a block with those that it is conditioned on or the rows that predict a
        cell.  Support inputs, whose low-rank part has one set of them, are then left out.
        Joint covariances, averages and sample paths are refused: ``VecchiaGP`` has them.
    varying_over : sequence of str, optional
        Features that they vary over; default all.
    max_iter : int
        Maximum number of iterations of training, on each of the growing parts of the blocks.
    store : str, optional
        Folder or URL where rows in the order of blocks are kept, which prediction reads back;
        default a temporary folder that lasts as long as this process.  ``save`` copies them.

    Attributes
    ----------
    support_ : ndarray (m, d), in the units of X
    hyperparameter_map_ : Dataset of hyper-parameters at knots, if they vary
    n_blocks_ : int
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the log evidence of all standardised rows

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.LMA(n_support=10, block_rows=40).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "lma"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0, knows_enough_blocks=True, reads_blocks=False)
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "n_support": (chosen("support", *WAYS),),
        "train_support": (TRAINED, among("train_with", "auto", "blocks")),
        "train_blocks": (TRAINED, among("train_with", "auto", "blocks")),
        "train_with": (TRAINED,),
        "training_rows": (
            TRAINED,
            among("train_with", "auto", "vecchia"),
            among("train_blocks", "auto"),
            among("train_support", False),
        ),
        "predict_order": (among("neighbours", "nearest"),),
        "predict_rows": (
            among("neighbours", "nearest"),
            Needs(
                "predict_order",
                lambda gp: gp.predict_order is None,
                "choose predict_order=None",
            ),
        ),
        "neighbours": (JOINED,),
        "prediction": (JOINED,),
        "varying": (LEARNED, among("prediction", "consistent")),
        "varying_over": (VARYING,),
    }

    default_block_rows: ClassVar[int] = DEFAULT_BLOCK_ROWS

    n_support: int = 256
    support: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    train_support: bool = False
    markov_order: int | None = None
    neighbours: Literal["nearest", "order"] = "nearest"
    predict_order: int | None = None
    predict_rows: int | None = None
    prediction: Literal["consistent", "paper"] = "consistent"
    order: str | Sequence[str] = "auto"
    max_iter: int = 50
    train_blocks: int | Literal["auto"] | None = "auto"
    train_with: Literal["auto", "blocks", "vecchia"] = "auto"
    training_rows: int | Literal["auto"] | None = "auto"
    varying: int | str | Sequence[str] | Mapping[str, Any] | None = None
    varying_over: Sequence[str] | None = None

    @property
    def support_(self) -> np.ndarray:
        """Support inputs (m, d) in the units of X."""
        if self._one.theta.inputs is None:
            return np.zeros((0, self._one.n_features))
        return in_users_units(self._one)

    @property
    def n_blocks_(self) -> int:
        """Number of blocks."""
        assert isinstance(self._one.rows, Nearby)
        return self._one.rows.layout.n_blocks

    # -- settings ----------------------------------------------------------------------------

    def _model(self) -> LowRankMarkov:
        if self.prediction == "paper" and self.neighbours != "order":
            raise SettingError(
                "prediction='paper' conditions on blocks on either side in the order: choose "
                "neighbours='order' or prediction='consistent'"
            )
        return LowRankMarkov(self._reach(), self.prediction, JITTER[self.dtype])

    def _reach(self) -> int:
        if self.markov_order is None:
            return DEFAULT_ORDER
        return whole("markov_order", self.markov_order, 0)

    def _arrangement(self) -> Blocks:
        order, rows = self.predict_order, self.predict_rows
        return Blocks(
            self.order,
            self.block_rows,
            self.default_block_rows,
            self.random_state,
            self.neighbours,
            self._reach(),
            self.markov_order is not None,
            None if rows is None else whole("predict_rows", rows, 1),
            None if order is None else whole("predict_order", order, 0),
        )

    @property
    def _inputs(self) -> ChosenInputs:
        moved = self.train_support
        return self._chosen_inputs("support", "n_support", "support inputs", trained=moved)

    def _trainer(self) -> OnNearby:
        model = Vecchia(jitter=JITTER[self.dtype], seed=self.random_state or 0)
        return OnNearby(model, self.train_with, self.training_rows, self._variation())

    def _variation(self) -> Variation | None:
        """Return which hyper-parameters vary; SettingError if that cannot be said so."""
        asked = self.varying
        over = () if self.varying_over is None else self._names("varying_over", self.varying_over)
        if asked is None:
            return None
        if grids.is_xarray(asked):
            return Variation(given=hyperparameter_map.given(asked))
        if isinstance(asked, str) and asked == "auto":
            return Variation(compared=True, over=over)
        if isinstance(asked, Integral):
            if whole("varying", asked, 2) > MOST_KNOTS:
                raise SettingError(f"varying={asked}: choose at most {MOST_KNOTS} knots")
            return Variation(int(asked), over=over)
        return Variation(names=self._names("varying", asked), over=over)

    def _names(self, setting: str, value: Any) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else value
        several = isinstance(names, list | tuple) and bool(names)
        if not several or not all(isinstance(name, str) for name in names):
            number = "'auto', a whole number of at least 2, " if setting == "varying" else ""
            raise SettingError(f"{setting}={shown(value)}: give {number}names or None")
        return tuple(names)

    @property
    def hyperparameter_map_(self) -> Dataset:
        """Hyper-parameters at the knots, in the units of the data, as a Dataset."""
        check_is_fitted(self, "solved_")
        if self._one.theta.varying is None:
            raise AttributeError(
                "hyperparameter_map_ belongs to hyper-parameters that vary over space, and these "
                "are the same everywhere: see hyperparameters_, or fit with varying=16"
            )
        return hyperparameter_map.at_knots(self._one, self._fitted.errors_of_logs)

    def hyperparameter_map(self, X: Any) -> Dataset:
        """Return the hyper-parameters at places, in the units of the data.

        Parameters
        ----------
        X : array-like (n, d) or xarray object
            Places, in the columns of the fit; of a labelled grid the features that the
            hyper-parameters vary over are enough.

        Returns
        -------
        Dataset
            A variable a hyper-parameter and one of its standard errors, on the grid or along
            ``row``; lazy if the grid is.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 400)[:, None]
        >>> model = daskgp.VecchiaGP(varying=2).fit(X, np.sin(30 * X[:, 0] ** 2))
        >>> model.hyperparameter_map(X[::100])["lengthscale[0]"].shape
        (4,)
        """
        self._check_fitted()
        self.solved_.refuse_separate("hyperparameter_map")
        begin_call(self.solved_.token)
        return hyperparameter_map.at_places(self._one, X, self._fitted.errors_of_logs)


@dataclass(eq=False, repr=False, kw_only=True)
class PIC(LMA):
    """Partially independent conditional approximation: LMA of Markov order 0.

    Blocks are independent given the support inputs.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = daskgp.PIC(n_support=10, block_rows=40).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "pic"

    markov_order: int | None = field(default=0, init=False)
    neighbours: Literal["nearest", "order"] = field(default="nearest", init=False)
    predict_order: int | None = field(default=None, init=False)
    predict_rows: int | None = field(default=None, init=False)
    prediction: Literal["consistent", "paper"] = field(default="consistent", init=False)
