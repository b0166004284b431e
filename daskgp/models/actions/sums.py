"""Sums of a computation-aware GP over points and rows, and the actions that it sums for.

Letters are those of ``cagp``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.errors import NumericalError
from daskgp.kernels import Kernel
from daskgp.kernels.weights import Weights
from daskgp.models.values import Theta
from daskgp.typing import Array

TILE_ROWS = 2_048
"""Rows per tile of the actions' functions."""


@dataclass(frozen=True)
class ActionTheta(Theta):
    """Hyper-parameters, and the actions' weights S over the points, or what ``hold`` made of it."""

    weights: Weights | Any = None


class ActionBar(NamedTuple):
    """Gradient with respect to ActionTheta: log kernel parameters (k,), log noise, weights (a,).

    ``weights`` is None for dense actions, which are not learned.
    """

    kernel: np.ndarray
    noise: float
    weights: np.ndarray | None

    def to_vector(self, with_inputs: bool) -> np.ndarray:
        """Return the gradient in the layout of ``Theta.to_vector``, in which no weights are."""
        return np.append(self.kernel, self.noise)


class Panel(NamedTuple):
    """Some of the points that actions are made of: X (a, d) and the actions' weights on them.

    ``places`` (a,) are the numbers of these points, for callers that need them.
    """

    X: Array
    weights: Weights
    places: np.ndarray | None = None


class PointSums(NamedTuple):
    """Sums over the points of actions."""

    joint: Array
    """G = F S (t, t)."""
    cross: Array
    """b = S' y (t, p)."""
    normal: Array
    """T = S' S (t, t); S' U S of rows whose noise variances are D = s U + E."""
    given: Array | None = None
    """S' E S (t, t) of such rows."""

    def relative(self, noise_variance: float) -> Array:
        """Return S' D S / s (t, t), the covariance of the noise in b relative to s."""
        return self.normal if self.given is None else self.normal + self.given / noise_variance


class Factored(NamedTuple):
    """Sums over points, factored for the actions that are kept.

    ``columns`` (r,) of t actions; L (r, r) of their W; v (r, p); their sums; s.
    """

    columns: Array
    factor: Array
    weights: Array
    points: PointSums
    noise_variance: float
    actions: int


class RowSums(NamedTuple):
    """Sums over rows, with A = L^-1 F and the residuals e = y - F' v: nothing here cancels."""

    gram: Array
    """A A' (r, r)."""
    right: Array
    """A e (r, p)."""
    square: float
    """Sum of e^2."""
    gap: float
    """Sum of k(x, x) - |A|^2, the posterior variances."""
    trace: float
    """Sum of k(x, x)."""
    rows: float
    """Number of rows."""
    logs: float = 0.0
    """Sum of log(d / s) of rows with noise variances d; each then counts s / d times."""


class Cotangent(NamedTuple):
    """Derivatives with respect to the sums over points; ``rows`` is true if rows count."""

    factored: Factored
    joint: Array
    cross: Array
    normal: Array
    given: Array
    rows: bool


class Loss(NamedTuple):
    """Value to maximise, its derivative with respect to log s, and cotangents."""

    value: float
    noise: float
    cotangent: Cotangent


def functions(kernel: Kernel, panels: Iterable[Panel], X: Array) -> Array:
    """Return F = S' K(Z, X) (t, n) over the points of all panels."""
    F: Array | None = None
    for panel in panels:
        if F is None and namespace(X) is not np:  # panels are added up in float64
            F = namespace(X).zeros((panel.weights.count, len(X)))
        F = kernel.weighted(panel.X, panel.weights, X, F)
    if F is None:
        raise NumericalError("no points to predict from: fit again")
    return F
