"""VecchiaGP: every row is conditioned on its nearest earlier rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from daskgp.checks import shown, whole
from daskgp.data.polygons import geojson_of
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.lma import LMA
from daskgp.estimators.requirements import TRAINED, Needs, Requirements, chosen
from daskgp.estimators.settings import JITTER
from daskgp.fit.arrange import Blocks
from daskgp.fit.arrange.blocks import NEAR_BLOCKS
from daskgp.fit.inputs import WAYS, Inputs
from daskgp.fit.recipe import Recipe, Traits
from daskgp.fit.training import OnRows
from daskgp.models.markov.conditionals import MOST_COMPILED
from daskgp.models.markov.vecchia import Vecchia
from daskgp.typing import Path

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
        wide gaps; where hyper-parameters vary each place then takes several milliseconds.
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
    varying : int, "auto", sequence of str or Dataset, optional
        Hyper-parameters that vary over space, from values at knots: their number K, or "auto" for
        as many as the rows tell, where they do better on rows held out than common ones; names, as
        in ``fixed``, for some of them alone; or a Dataset of values in the units of the data, as
        ``hyperparameter_map_`` has them, whose places become knots.  Rows are then given all
        support inputs too, which can be 256 together with the neighbours.
    varying_over : sequence of str, optional
        Features that they vary over; default all.
    barriers : str, path or mapping, optional
        Path of a GeoJSON file of polygons over longitude and latitude, or x and y, such as those of
        land; what such a file says; or an object with ``__geo_interface__``.  Rows and places are
        conditioned on the nearest rows that they see: those to which no polygon lies on the way, on
        the great circle where columns are ``geographic``, else on the straight line.  Places that
        see no row have the prior.  Distances are straight as before.  Rows inside are refused, and
        so are support inputs, which would tie all rows, and more than 256 ``predict_neighbours``.
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
    hyperparameter_map_ : Dataset of hyper-parameters at knots, if they vary
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
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "n_support": (chosen("support", *WAYS),),
        "support": (SOME,),
        "training_rows": (TRAINED,),
        "varying": LMA.requirements["varying"],
        "varying_over": LMA.requirements["varying_over"],
    }

    default_block_rows: ClassVar[int] = 2_048

    n_support: int = 0
    support: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    n_neighbours: int = 30
    predict_neighbours: int = 100
    training_rows: int | Literal["auto"] | None = "auto"
    barriers: Path | Mapping[str, Any] | None = None
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
        return self._chosen_inputs("support", "n_support", "support inputs")

    def _arrangement(self) -> Blocks:
        number = self.predict_neighbours
        rows = number if self._model().shares else max(LEAST_ROWS, MULTIPLE * number)
        blocks = super()._arrangement()
        return dataclasses.replace(blocks, near="both", reach=NEAR_BLOCKS, predict_rows=rows)

    def recipe(self) -> Recipe:
        """Return all that a fit needs to know, as a value, see ``GaussianProcess.recipe``."""
        return dataclasses.replace(super().recipe(), barriers=self.barriers)

    def _trainer(self) -> OnRows:
        rows = self.training_rows
        return OnRows(self._model(), training_rows=rows, variation=self._variation())

    def _check_own(self) -> None:
        self._check_barriers()
        if self._variation() is None:
            return
        count, model = self._inputs.count, self._model()
        number = max(model.n_neighbours, model.predict_neighbours)
        if count and count + number > MOST_COMPILED:
            raise SettingError(
                f"{count} support inputs and {number} neighbours: with varying every row is "
                f"conditioned on all support inputs and its neighbours, at most {MOST_COMPILED} "
                "together; choose fewer of either, or varying=None"
            )

    def _check_barriers(self) -> None:
        """Raise SettingError for barriers that are none, or that others would look across."""
        given = self.barriers
        if given is None:
            return
        if not isinstance(given, str | os.PathLike) and geojson_of(given) is None:
            raise SettingError(
                f"barriers={shown(given)}: give the path of a GeoJSON file of polygons, what it "
                "says, or an object with __geo_interface__"
            )
        if self.n_support or not isinstance(self.support, str):
            raise SettingError(
                "barriers leave out rows that are not seen, and support inputs tie all rows, those "
                "beyond a barrier too: choose n_support=0"
            )
        if self._model().shares:
            raise SettingError(
                f"predict_neighbours={self.predict_neighbours} with barriers: of more than "
                f"{MOST_COMPILED} the places of a cell share their rows, which each place sees or "
                f"not: choose at most {MOST_COMPILED}"
            )
