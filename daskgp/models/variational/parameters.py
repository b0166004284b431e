"""Parameters of a decoupled posterior, and how they grow."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, wide
from daskgp.kernels import Kernel
from daskgp.models.variational import inducing_functions
from daskgp.models.variational.inducing_functions import Points
from daskgp.typing import Array

FormName = Literal["hybrid", "direct"]
BEGIN = 0.1
"""Initial value of a new function of the direct form on the diagonal of T."""


class Parameters(NamedTuple):
    """All that is learned; logarithms of positive values, (0, ...) for what a form lacks."""

    kernel: Array  # logs (k,)
    likelihood: Array  # logs (r,)
    covariance_points: Array  # Z (b, d)
    covariance_scales: Array  # logs (b, d) of a generalised basis
    mean_points: Array  # (m, d)
    mean_scales: Array  # logs (m, d)
    weights: Array  # a (m, p)
    shared_weights: Array  # w (b, p) hybrid, a_Z (b, p) direct and shared
    root: Array  # T (b, b), lower triangle

    @property
    def covariance(self) -> Points:
        """Functions of the covariance."""
        return Points(self.covariance_points, self.covariance_scales)

    @property
    def residual(self) -> Points:
        """Functions of the mean that the covariance does not have."""
        return Points(self.mean_points, self.mean_scales)


class State(NamedTuple):
    """Arrays that prediction needs, and that further training starts from."""

    likelihood: Array
    covariance_points: Array
    covariance_scales: Array
    mean_points: Array
    mean_scales: Array
    weights: Array
    shared_weights: Array
    root: Array
    offset: Array
    factor: Array
    spread: Array
    coefficients: Array

    def parameters(self, kernel: Kernel) -> Parameters:
        """Return the parameters that the state was solved from."""
        learned = {name: getattr(self, name) for name in Parameters._fields[1:]}
        return Parameters(kernel.log_parameters, **learned)


def empty(kernel: np.ndarray, likelihood: np.ndarray, features: int, targets: int) -> Parameters:
    """Return parameters without any function: q is the prior."""
    none, weights, square = np.zeros((0, features)), np.zeros((0, targets)), np.zeros((0, 0))
    return Parameters(kernel, likelihood, none, none, none, none, weights, weights, square)


def with_covariance(
    own: Parameters, inputs: np.ndarray, form: FormName, scaled: bool, shared: bool
) -> Parameters:
    """Return parameters with more functions of the covariance, at inputs (k, d).

    The hybrid q stays the same if the mean has no functions of its own: in the whitened basis a
    new function begins as the prior.  If it has, new rows of w must be what Z explains of them,
    ``Factors.explained``.  The direct form begins with a small weight, since zero would have no
    gradient.
    """
    old, new = len(own.root), len(own.root) + len(inputs)
    root = np.zeros((new, new))
    root[:old, :old] = own.root
    root[range(old, new), range(old, new)] = 1.0 if form == "hybrid" else BEGIN
    zeros = np.zeros((len(inputs), own.weights.shape[1]))
    return own._replace(
        covariance_points=np.concatenate([own.covariance_points, inputs]),
        covariance_scales=_more_scales(own.covariance_scales, inputs, scaled),
        shared_weights=np.concatenate([own.shared_weights, zeros])
        if shared
        else own.shared_weights,
        root=root,
    )


def with_mean(own: Parameters, inputs: np.ndarray, scaled: bool) -> Parameters:
    """Return parameters with more functions of the mean, at inputs (k, d) and of no weight."""
    return own._replace(
        mean_points=np.concatenate([own.mean_points, inputs]),
        mean_scales=_more_scales(own.mean_scales, inputs, scaled),
        weights=np.concatenate([own.weights, np.zeros((len(inputs), own.weights.shape[1]))]),
    )


def _more_scales(scales: np.ndarray, inputs: np.ndarray, scaled: bool) -> np.ndarray:
    return np.concatenate([scales, np.zeros_like(inputs)]) if scaled else scales


def zero_gradient(own: Parameters) -> Parameters:
    """Return a gradient of zeros; that for T comes from the small solve alone."""
    xp = namespace(own.mean_points)
    parts = {name: xp.zeros(part.shape) for name, part in own._asdict().items()}
    host = {"kernel": np.zeros(len(own.kernel)), "likelihood": np.zeros(len(own.likelihood))}
    return Parameters(**{**parts, **host, "root": xp.zeros((0, 0))})


def mean_functions(own: Parameters, form: FormName) -> tuple[Points, Array]:
    """Return all functions in the quadratic form of the mean, and their weights."""
    if form == "hybrid" or not len(own.shared_weights):
        return own.residual, own.weights
    xp = namespace(own.weights)
    both = (xp.concatenate(pair) for pair in zip(own.covariance, own.residual, strict=True))
    return Points(*both), xp.concatenate([own.shared_weights, own.weights])


def split_gradient(
    gradient: Parameters, bars: inducing_functions.Through, own: Parameters, form: FormName
) -> Parameters:
    """Return ``gradient`` with that for all functions of the mean, divided between the kinds."""
    b = 0 if form == "hybrid" else len(own.shared_weights)
    points, scales = map(wide, bars.points)
    weights = wide(bars.weights)
    parts = {"mean_points": points[b:], "mean_scales": scales[b:], "weights": weights[b:]}
    if b:
        parts |= {"covariance_points": points[:b], "covariance_scales": scales[:b]}
        parts["shared_weights"] = weights[:b]
    return gradient._replace(**parts)


def zeros_like(part: Array) -> Array:
    """Return zeros of the shape and dtype of an array, on its device."""
    return namespace(part).zeros_like(part)


def zero_points(points: Points) -> Points:
    """Return the zero gradient for points on which nothing depends."""
    return Points(*map(zeros_like, points))
