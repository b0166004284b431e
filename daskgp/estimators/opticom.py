"""OptiComGP: sparse grids and the optimised combination technique."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from daskgp.checks import positive, shown, whole
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import Requirements, among
from daskgp.estimators.settings import JITTER
from daskgp.fit import rounds
from daskgp.fit.inputs import Inputs
from daskgp.models import scaling
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom

logger: logging.Logger = logging.getLogger("daskgp")

WIDEST = 1e6
"""Half-width of bounds, in ranges of the data, beyond which a grid cannot resolve the data."""


@dataclass(eq=False, repr=False, kw_only=True)
class OptiComGP(GaussianProcess):
    """GP regression on the partial grids of a sparse grid, optimally combined.

    The method of [OPT] section 3, for one to about four features whose region is a box.  A value
    and gradient costs 4 n m² operations for the m points of the sparse grid, a prediction with its
    variance 3 m² per row, and nothing that is kept grows with n.  Exact under any chunking.

    Parameters
    ----------
    level : int
        Level of the sparse grid.
    bounds : array-like (d, 2), optional
        Lowest and highest value of each feature, in the units of X: the box that the grid fills.
        Its points lie inside.  Default the range of the training rows.  With ``geographic`` columns
        a place has three, x, y and z in km from the centre of the Earth.
    weights : {"projection", "paper", "combination"}
        Coefficients of the partial grids: those of least penalised risk; those with the paper's
        right-hand side, equal up to rounding; or those of the plain combination technique.
    variance : {"linear", "paper"}
        Error variance of the linear predictor, or the paper's, which can be negative: that is an
        error when predicting.
    ridge : float
        Strength of a pull of the coefficients towards those of the combination technique, 0 for
        none.
    max_points : int
        Maximum number of points of a sparse grid; larger grids are refused.

    Attributes
    ----------
    grid_ : ndarray (m, d), in the units of X
    levels_ : ndarray of int (g, d), the multi-index of each partial grid
    weights_ : ndarray (g,), their coefficients
    objective_ : float, the bound of the sparse GP with all points of the grid

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.random.default_rng(0).uniform(0, 1, (200, 2))
    >>> y = np.sin(6 * X[:, 0]) * X[:, 1]
    >>> model = daskgp.OptiComGP(level=5).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5, 0.5]]))[0] - np.sin(3) / 2) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "opticom"
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "ridge": (among("weights", "projection", "paper"),),
    }

    level: int = 4
    bounds: ArrayLike | None = None
    weights: Literal["projection", "paper", "combination"] = "projection"
    variance: Literal["linear", "paper"] = "linear"
    ridge: float = 1e-6
    max_points: int = 4096
    train_blocks: int | None = None

    @property
    def grid_(self) -> np.ndarray:
        """Points of the sparse grid (m, d) in the units of X; x, y, z in km for a place."""
        Z = self._one.theta.inputs
        assert Z is not None
        return self._one.scaling.places(Z)

    @property
    def levels_(self) -> np.ndarray:
        """Multi-indices (g, d) of the partial grids; 1 for a column that is left out."""
        model, uses = self._one.method, self._one.scaling.uses
        assert isinstance(model, OptiCom)
        indices = sparse_grid.multi_indices(int(uses.sum()), model.level)
        levels = np.ones((len(indices), len(uses)), indices.dtype)
        levels[:, uses] = indices
        return levels

    @property
    def weights_(self) -> np.ndarray:
        """Coefficients (g,) of the partial grids."""
        coefficients: np.ndarray = self._one.state.coefficients
        return coefficients

    def _model(self) -> OptiCom:
        positive("ridge", self.ridge, or_zero=True)
        level = whole("level", self.level, 1)
        return OptiCom(level, self.weights, self.variance, float(self.ridge), JITTER[self.dtype])

    @property
    def _inputs(self) -> Grid:
        return Grid(
            label="grid points",
            finer="raise level",
            level=self.level,
            bounds=self.bounds,
            most=self.max_points,
        )


@dataclass(frozen=True, kw_only=True)
class Grid(Inputs):
    """Points of a sparse grid that fills a box."""

    level: int
    bounds: ArrayLike | None
    most: int

    takes_categories: ClassVar[bool] = False

    def planned(self, features: int) -> int:
        """Return the number of points, after a check that there are not too many."""
        d, most = features, whole("max_points", self.most, 1)
        level, largest = whole("level", self.level, 1), sparse_grid.largest_level(d, most)
        if level > largest:
            raise SettingError(
                f"level={level}: a sparse grid of that level in {d} dimensions has more than "
                f"max_points={most:,} points: choose at most level={largest}, which has "
                f"{sparse_grid.n_points(d, largest):,}"
            )
        self._box(d)
        return sparse_grid.n_points(d, level)

    def _box(self, d: int) -> np.ndarray | None:
        """Return the setting ``bounds`` as an array (d, 2)."""
        if self.bounds is None:
            return None
        try:
            box = np.asarray(self.bounds, np.float64)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"bounds={shown(self.bounds)}: give a lowest and a highest number for each feature"
            ) from error
        if box.shape != (d, 2):
            raise InputError(
                f"bounds has shape {box.shape} for {d} features: shape ({d}, 2) is needed, a "
                "lowest and a highest value for each"
            )
        for j, (low, high) in enumerate(box.tolist()):
            if not (np.isfinite([low, high]).all() and low < high):
                raise SettingError(
                    f"bounds of feature {j} are {low:g} and {high:g}: two finite numbers are "
                    "needed, the lower one first"
                )
        return box

    def placed(self, stage: rounds.Rounds, sums: scaling.Sums) -> np.ndarray:
        """Return all points (m, d) in scaled units; InputError for a box that cannot be used."""
        d, uses = stage.rows.n_features, stage.scaling.uses
        for j in stage.rows.columns.categories:
            raise InputError(
                f"feature {stage.rows.columns.inputs_names[j]!r} is a category, along which a "
                "sparse grid has no points: leave it out, or fit SGPR or VecchiaGP"
            )
        names = [
            name for name, used in zip(stage.rows.columns.inputs_names, uses, strict=True) if used
        ]
        box, low, high = self._box(d), sums.low[:d][uses], sums.high[:d][uses]
        box = np.stack([low, high], axis=1) if box is None else box[uses]
        outside = [
            name
            for name, out in zip(names, (low < box[:, 0]) | (high > box[:, 1]), strict=True)
            if out
        ]
        too_wide = box[:, 1] / 2 - box[:, 0] / 2 > WIDEST * (high - low)
        if bool(too_wide.any()):
            j = int(np.argmax(too_wide))
            raise InputError(
                f"bounds of feature {names[j]!r} are {box[j, 0]:g} and {box[j, 1]:g} but its data "
                f"go from {low[j]:g} to {high[j]:g}: give bounds near those of the data"
            )
        if bool(((high < box[:, 0]) | (low > box[:, 1])).any()):
            raise InputError(
                f"no row lies within bounds, in {', '.join(map(repr, outside))}: give bounds "
                "in the units of X"
            )
        if outside:
            logger.warning(
                "rows lie outside bounds, in %s, where the grid has no points: give wider "
                "bounds, or leave them out",
                ", ".join(map(repr, outside)),
            )
        points = sparse_grid.build(len(names), self.level).points
        places = np.tile(stage.scaling.x_shift, (len(points), 1))
        places[:, uses] = box[:, 0] + points * (box[:, 1] - box[:, 0])
        return np.asarray(stage.scaling.inputs(places))
