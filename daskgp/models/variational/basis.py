"""Inducing functions of variational GPs: the latent function at points, or smoothed around them.

After [DGP] = Cheng & Boots (2017), "Variational Inference for Gaussian Process Models with Linear
Complexity", App. C.1, eq. 19.  Letters: P, Q functions of points Z (m, d), Z' (q, d); C[P, Q]
their covariances, C[P, f(X)] those with the latent function at rows X (n, d); l = s c the lengths
of a function, s the kernel's lengthscales; bars are derivatives of some objective.
"""

# ruff: noqa: D102 - the base class documents what its kinds override

from __future__ import annotations

from dataclasses import dataclass

from daskgp.arrays.backend import namespace
from daskgp.errors import SettingError
from daskgp.kernels import Kernel, Pullback
from daskgp.kernels.weights import WeightedGradient, Weights
from daskgp.models.variational.inducing_functions import (
    Basis,
    Points,
    Pull,
    Through,
)
from daskgp.models.variational.multiscale import Multiscale
from daskgp.typing import Array


def make(kind: str, kernel: Kernel) -> KernelBasis | Multiscale:
    """Return the inducing functions of a kind, "kernel" or "generalized".

    Raises
    ------
    SettingError
        If the kind is neither, or is not available for this kernel.
    """
    if kind == "kernel":
        return KernelBasis(kernel)
    if kind == "generalized":
        return Multiscale(kernel)  # type: ignore[arg-type]  # it raises for other kernels
    raise SettingError(f'basis must be "kernel" or "generalized", not {kind!r}')


@dataclass(frozen=True)
class KernelBasis(Basis):
    """The latent function at the points, f(z): for any kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from daskgp.kernels import RBF
    >>> points = Points(np.array([[0.0]]), np.empty((0, 1)))
    >>> KernelBasis(RBF(variance=2.0)).own(points)
    array([2.])
    """

    def own(self, P: Points) -> Array:
        return self.kernel.diag(P.inputs)

    def values(self, P: Points, X: Array) -> tuple[Array, Pull]:
        return _with_points(*self.kernel.pullback(X, P.inputs))

    def gram(self, P: Points) -> tuple[Array, Pull]:
        return _with_points(*self.kernel.pullback(P.inputs))

    def mixed(self, P: Points, weights: Array, X: Array) -> Array:
        return self.kernel.weighted(P.inputs, Weights.dense(weights), X)

    def mixed_vjp(self, P: Points, weights: Array, X: Array, F_bar: Array) -> Through:
        bars = self._weighted_vjp(P, weights, X, F_bar)
        return Through(bars.log_parameters, _at(bars.points), None, bars.weights)

    def spread(self, P: Points, X: Array, G: Array) -> Array:
        return self.kernel.weighted(X, Weights.dense(G), P.inputs).T

    def among(self, P: Points, weights: Array, Q: Points) -> Array:
        return self.mixed(P, weights, Q.inputs)

    def among_vjp(self, P: Points, weights: Array, Q: Points, F_bar: Array) -> Through:
        bars = self._weighted_vjp(P, weights, Q.inputs, F_bar)
        return Through(bars.log_parameters, _at(bars.points), _at(bars.rows), bars.weights)

    def _weighted_vjp(self, P: Points, weights: Array, X: Array, F_bar: Array) -> WeightedGradient:
        return self.kernel.weighted_vjp(P.inputs, Weights.dense(weights), X, F_bar)


def _at(inputs: Array) -> Points:
    """Return the gradient with respect to inputs alone."""
    return Points(inputs, namespace(inputs).zeros((0, inputs.shape[1]), inputs.dtype))


def _with_points(K: Array, pull_kernel: Pullback) -> tuple[Array, Pull]:
    """Return a tile with its pullback to points, which were its second argument, or both."""

    def pull(K_bar: Array, overwrite: bool = False) -> Through:
        bars = pull_kernel(K_bar, overwrite)
        return Through(bars.log_parameters, _at(bars.X if bars.Z is None else bars.Z), None, None)

    return K, pull
